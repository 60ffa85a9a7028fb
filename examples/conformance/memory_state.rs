//! `memory-state.jsonl`: the file `memory_manager_state`, which must be read and written as by the
//! kubelet.

use super::Outcome;
use nri_cpu_manager::kubelet::{MemoryStateError, MemoryStateFile, MemoryStateFormat};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    memory_policy: String,
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    /// What is configured when the kubelet starts again.
    #[serde(default)]
    with: Changed,
    /// The file as the kubelet wrote it.
    checkpoint_before: String,
    /// The text in its place: absent if it was not changed, `null` if the file was removed.
    #[serde(default, deserialize_with = "present")]
    state_file: Option<Option<String>>,
    expect: Expect,
}

#[derive(Debug, Default, Deserialize)]
struct Changed {
    memory_policy: Option<String>,
    gates: Option<BTreeMap<String, bool>>,
}

#[derive(Debug, Deserialize)]
struct Expect {
    /// Why the kubelet does not start.
    error: Option<String>,
    /// The file afterwards.
    checkpoint: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// Why the kubelet does not start with a file, as far as the file decides that.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// Not JSON, or not of this form.
    Form,
    Checksum,
    /// With the policies that are configured and in the file.
    Policy(String),
    /// Memory of containers, but no nodes.
    NoNodes,
}

impl Refusal {
    /// What an error of the kubelet says; `None` if the machine decides too.
    fn of(error: &str) -> Option<Refusal> {
        let error = error.strip_prefix("start memory manager error: ")?;
        let Some(restore) = error.strip_prefix("could not restore state from checkpoint: ") else {
            let no_nodes = "machine state can not be empty when it has memory assignments";
            return error.ends_with(no_nodes).then_some(Refusal::NoNodes);
        };
        let (reason, _) = restore.split_once(", please drain this node")?;
        Some(match reason.strip_prefix("[memorymanager] ") {
            Some(policies) => Refusal::Policy(policies.to_owned()),
            None if reason == "checkpoint is corrupted" => Refusal::Checksum,
            None => Refusal::Form,
        })
    }
}

impl Vector {
    /// Whether a kubelet with this configuration starts with a file.
    fn start(&self, text: &str) -> Result<(), Refusal> {
        let file = MemoryStateFile::parse(text.as_bytes()).map_err(|error| match error {
            MemoryStateError::Form(_) => Refusal::Form,
            MemoryStateError::Checksum { .. } => Refusal::Checksum,
        })?;
        let gates = self.with.gates.as_ref().unwrap_or(&self.gates);
        let gate = gates.get("PodLevelResourceManagers") == Some(&true);
        if file.format == MemoryStateFormat::V2 && !gate {
            return Err(Refusal::Checksum);
        }
        let policy = self.with.memory_policy.as_ref().unwrap_or(&self.memory_policy);
        if file.policy != *policy {
            return Err(Refusal::Policy(format!(
                "configured policy {policy:?} differs from state checkpoint policy {:?}",
                file.policy
            )));
        }
        if file.machine.is_empty() && !file.containers.is_empty() {
            return Err(Refusal::NoNodes);
        }
        Ok(())
    }

    fn run(&self) -> Result<Outcome, String> {
        written_back(&self.checkpoint_before)?;
        let before = match &self.state_file {
            None => Some(&self.checkpoint_before),
            Some(changed) => changed.as_ref(),
        };
        // A file that the kubelet leaves alone may be of another hand.
        match &self.expect.checkpoint {
            Some(after) if Some(after) != before => written_back(after)?,
            Some(after) => read_back(after)?,
            None => {}
        }
        let ours = before.map_or(Ok(()), |text| self.start(text));
        let theirs = match &self.expect.error {
            None => Ok(()),
            Some(error) => match Refusal::of(error) {
                Some(refusal) => Err(refusal),
                // The file alone is no reason, and whether the machine is one is not decided here.
                None if ours.is_ok() => return Ok(Outcome::Excepted),
                None => return Err(format!("{ours:?}, expected {error}")),
            },
        };
        if ours == theirs {
            Ok(Outcome::Passed)
        } else {
            Err(format!("{ours:?}, expected {theirs:?}"))
        }
    }
}

/// The file of a kubelet's text, which must be the same text again.
fn written_back(text: &str) -> Result<(), String> {
    let file = MemoryStateFile::parse(text.as_bytes());
    let file = file.map_err(|error| format!("{error}: {text}"))?;
    let written = file.to_json();
    if written == text { Ok(()) } else { Err(format!("{written} written for {text}")) }
}

/// A text of another hand says the same after it was read and written.
fn read_back(text: &str) -> Result<(), String> {
    let file = MemoryStateFile::parse(text.as_bytes());
    let file = file.map_err(|error| format!("{error}: {text}"))?;
    let again = MemoryStateFile::parse(file.to_json().as_bytes());
    if again.as_ref() == Ok(&file) { Ok(()) } else { Err(format!("{again:?} for {text}")) }
}

pub(super) fn check(vector: Vector) -> Outcome {
    match vector.run() {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(format!("{}: {error}, {vector:?}", vector.id)),
    }
}
