//! [`PodOption`]: what one annotation of a pod asks for a container, by key and value.
//!
//! A pod option has one of a few values. Latency knobs ([`Knobs`]) have open ones: [`parse`] reads
//! both.

use placement::pod_options::{Numa, PodOptions, Smt, Uncore};
use placement::{EngineKind, IsolatedCpus};
use quiet::{InterruptMode, Knobs};
use serde::{Deserialize, Serialize};
use std::fmt;
use wording::unknown;

/// Whether a container gets exclusive CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cpus {
    /// Yes, also in a Burstable pod if its request is a whole number of CPUs.
    Exclusive,
    /// Like `Exclusive`, and the container also uses the shared CPUs.
    Mixed,
    /// No, not even in a Guaranteed pod.
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodOption {
    Cpus(Cpus),
    Uncore(Uncore),
    Numa(Numa),
    Smt(Smt),
    Placement(EngineKind),
    Isolated(IsolatedCpus),
    /// Whether the container may move to other exclusive CPUs while it runs.
    Movable(bool),
    /// What happens to device interrupts on its exclusive CPUs.
    Interrupts(InterruptMode),
}

pub(super) const ALL: [(&str, &str, PodOption); 22] = [
    ("cpus", "exclusive", PodOption::Cpus(Cpus::Exclusive)),
    ("cpus", "exclusive+shared", PodOption::Cpus(Cpus::Mixed)),
    ("cpus", "shared", PodOption::Cpus(Cpus::Shared)),
    ("uncore", "prefer", PodOption::Uncore(Uncore::Prefer)),
    ("uncore", "require", PodOption::Uncore(Uncore::Require)),
    ("uncore", "ignore", PodOption::Uncore(Uncore::Ignore)),
    ("uncore", "exclusive", PodOption::Uncore(Uncore::Exclusive)),
    ("numa", "single", PodOption::Numa(Numa::Single)),
    ("numa", "closest", PodOption::Numa(Numa::Closest)),
    ("numa", "spread", PodOption::Numa(Numa::Spread)),
    ("smt", "full-cores", PodOption::Smt(Smt::FullCores)),
    ("smt", "isolate", PodOption::Smt(Smt::Isolate)),
    ("placement", "kubelet", PodOption::Placement(EngineKind::Kubelet)),
    ("placement", "compact", PodOption::Placement(EngineKind::Compact)),
    ("isolated-cpus", "exclude", PodOption::Isolated(IsolatedCpus::Exclude)),
    ("isolated-cpus", "prefer", PodOption::Isolated(IsolatedCpus::Prefer)),
    ("isolated-cpus", "require", PodOption::Isolated(IsolatedCpus::Require)),
    ("movable", "true", PodOption::Movable(true)),
    ("movable", "false", PodOption::Movable(false)),
    ("interrupts", "leave", PodOption::Interrupts(InterruptMode::Leave)),
    ("interrupts", "away", PodOption::Interrupts(InterruptMode::Away)),
    ("interrupts", "housekeeping", PodOption::Interrupts(InterruptMode::Housekeeping)),
];

/// What one key and its value ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    PodOption(PodOption),
    /// Only the knob of the key.
    Knob(Knobs),
}

/// Parses the key and the value of an annotation.
///
/// # Errors
/// Names the unknown word, the expected ones, and the nearest of these.
pub fn parse(key: &str, value: &str) -> Result<Parsed, String> {
    if !Knobs::KEYS.contains(&key) {
        return PodOption::parse(key, value).map(Parsed::PodOption);
    }
    let mut knob = Knobs::NONE;
    knob.set(key, value).map_err(|error| error.to_string())?;
    Ok(Parsed::Knob(knob))
}

/// Whether a pod option or a latency knob has this key.
///
/// # Errors
/// Names the keys.
pub fn check_key(key: &str) -> Result<(), String> {
    let keys = keys();
    if keys.contains(&key) { Ok(()) } else { Err(unknown(key, &keys)) }
}

fn keys() -> Vec<&'static str> {
    let mut keys: Vec<&str> = ALL.iter().map(|(key, ..)| *key).collect();
    keys.dedup();
    keys.extend(Knobs::KEYS);
    keys
}

impl PodOption {
    pub fn all() -> impl Iterator<Item = PodOption> {
        ALL.iter().map(|(_, _, pod_option)| *pod_option)
    }

    /// As [`parse`], without knobs.
    ///
    /// # Errors
    /// Those of [`parse`].
    pub fn parse(key: &str, value: &str) -> Result<PodOption, String> {
        if let Some((_, _, pod_option)) = ALL.iter().find(|(k, v, _)| (*k, *v) == (key, value)) {
            return Ok(*pod_option);
        }
        let values: Vec<&str> =
            ALL.iter().filter(|(known, ..)| *known == key).map(|(_, value, _)| *value).collect();
        if !values.is_empty() {
            return Err(unknown(value, &values));
        }
        Err(unknown(key, &keys()))
    }

    pub(super) fn parts(self) -> (&'static str, &'static str) {
        let found = ALL.iter().find(|(_, _, pod_option)| *pod_option == self);
        found.map(|(key, value, _)| (*key, *value)).unwrap_or_default()
    }

    /// The single pod options of which these consist.
    pub fn list(pod_options: &PodOptions) -> Vec<PodOption> {
        let PodOptions { uncore, numa, smt, engine, isolated } = *pod_options;
        let pod_options = [
            uncore.map(PodOption::Uncore),
            numa.map(PodOption::Numa),
            smt.map(PodOption::Smt),
            engine.map(PodOption::Placement),
            isolated.map(PodOption::Isolated),
        ];
        pod_options.into_iter().flatten().collect()
    }
}

impl fmt::Display for PodOption {
    /// As in a configuration: `uncore: require`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = self.parts();
        write!(f, "{key}: {value}")
    }
}
