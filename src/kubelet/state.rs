//! `cpu_manager_state`: the file of the kubelet's CPU manager with its assignments.
//!
//! One line of JSON in three generations: entries by container id (1), by pod uid and container
//! name (2), and with CPUs of whole pods beside them (3). Its checksum is FNV-1a over the text of
//! Go's debugging printer.
//!
//! The file belongs to root, and no pod has influence on its text. The
//! [`Ledger`](crate::ledger::Ledger) accepts its claims only if they are legal, like all others.

use crate::cpuset::{CpuSet, ParseError};
use crate::ledger::{ContainerId, KubeletClaim, Named, PodUid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    /// The policy of the kubelet that wrote it. A kubelet with another one refuses to start until
    /// the file is deleted.
    pub policy: String,
    /// The CPUs of all containers without exclusive ones.
    pub shared: CpuSet,
    /// Exclusive CPUs, in order of pod uid and container name.
    pub claims: Vec<KubeletClaim>,
    /// CPUs of pods with resources of their own; the claims of their containers are parts of them.
    pub pods: Vec<(PodUid, CpuSet)>,
}

/// Why a file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateFileError {
    /// It is no such file, or only part of one.
    #[error("it is torn or not a state file of the kubelet's CPU manager ({0})")]
    Form(String),
    /// Something changed the file after the kubelet wrote it, or a later kubelet wrote it.
    #[error(
        "its checksum is {says} and should be {is}: it was damaged or edited, or is of a format this program does not know"
    )]
    Checksum {
        /// The policy it names.
        policy: String,
        /// The checksum it names.
        says: u64,
        /// The checksum of its content.
        is: u32,
    },
    /// A list of CPUs in it is wrong.
    #[error("the CPUs of {of} are wrong: {error}")]
    Cpus {
        /// The policy it names.
        policy: String,
        /// The container or pod.
        of: String,
        /// What is wrong with them.
        error: ParseError,
    },
}

impl StateFileError {
    /// The policy in the file, which is reliable in an invalid file too.
    pub fn policy(&self) -> Option<&str> {
        match self {
            StateFileError::Form(_) => None,
            StateFileError::Checksum { policy, .. } | StateFileError::Cpus { policy, .. } => {
                Some(policy)
            }
        }
    }
}

impl StateFile {
    /// Reads the file's content.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<StateFile, StateFileError> {
        let file: CheckpointFile = serde_json::from_slice(bytes)
            .map_err(|error| StateFileError::Form(error.to_string()))?;
        file.verify()?;
        let cpus = |text: &str, of: &dyn Fn() -> String| {
            text.parse::<CpuSet>().map_err(|error| StateFileError::Cpus {
                policy: file.policy_name.clone(),
                of: of(),
                error,
            })
        };
        let mut claims = Vec::new();
        for (key, entry) in file.entries.iter().flatten() {
            match entry {
                CheckpointEntry::Container(text) => {
                    let of = Named::Id(ContainerId(key.clone()));
                    claims.push(KubeletClaim { of, cpus: cpus(text, &|| key.clone())? });
                }
                CheckpointEntry::Pod(containers) => {
                    for (name, text) in containers {
                        let cpus = cpus(text, &|| format!("container {name} of pod {key}"))?;
                        let of = Named::Container(PodUid(key.clone()), name.clone());
                        claims.push(KubeletClaim { of, cpus });
                    }
                }
            }
        }
        claims.retain(|claim| !claim.cpus.is_empty());
        let mut pods = Vec::new();
        for (uid, pod) in file.pod_entries.iter().flatten() {
            pods.push((PodUid(uid.clone()), cpus(&pod.cpu_set, &|| format!("pod {uid}"))?));
        }
        let shared = cpus(&file.default_cpu_set, &|| "all other containers".to_owned())?;
        Ok(StateFile { policy: file.policy_name, shared, claims, pods })
    }

    /// The file's content in the second generation, which every kubelet since 1.18 reads. It has no
    /// place for CPUs of whole pods and for claims by container id.
    pub fn to_json(&self) -> String {
        let mut entries: BTreeMap<String, CheckpointEntry> = BTreeMap::new();
        for KubeletClaim { of, cpus } in &self.claims {
            let Named::Container(uid, name) = of else { continue };
            let pod = entries
                .entry(uid.0.clone())
                .or_insert_with(|| CheckpointEntry::Pod(BTreeMap::new()));
            if let CheckpointEntry::Pod(containers) = pod {
                containers.insert(name.clone(), cpus.to_string());
            }
        }
        let mut file = CheckpointFile {
            policy_name: self.policy.clone(),
            default_cpu_set: self.shared.to_string(),
            entries: Some(entries).filter(|entries| !entries.is_empty()),
            pod_entries: None,
            checksum: 0,
        };
        file.checksum = file.dumps().first().map_or(0, |dump| u64::from(fnv1a(dump)));
        // Maps with texts as keys always have a JSON form.
        serde_json::to_string(&file).unwrap_or_default()
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointFile {
    policy_name: String,
    #[serde(default)]
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entries: Option<BTreeMap<String, CheckpointEntry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod_entries: Option<BTreeMap<String, PodCpus>>,
    #[serde(default)]
    checksum: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum CheckpointEntry {
    /// First generation: the key is the container's id.
    Container(String),
    /// Since then the key is the pod's uid.
    Pod(BTreeMap<String, String>),
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodCpus {
    cpu_set: String,
}

impl CheckpointFile {
    /// A checksum of zero stands for none, except in the third generation.
    fn verify(&self) -> Result<(), StateFileError> {
        if self.checksum == 0 && self.pod_entries.is_none() {
            return Ok(());
        }
        let sums: Vec<u32> = self.dumps().iter().map(|dump| fnv1a(dump)).collect();
        match sums.iter().any(|&sum| u64::from(sum) == self.checksum) {
            true => Ok(()),
            false => Err(StateFileError::Checksum {
                policy: self.policy_name.clone(),
                says: self.checksum,
                is: sums.first().copied().unwrap_or_default(),
            }),
        }
    }

    /// The possible texts of Go's printer. A map that is missing in the file was nil or empty, and
    /// a file without entries does not show its generation.
    fn dumps(&self) -> Vec<String> {
        const NOTHING: [&str; 2] = ["map[]", "<nil>"];
        const BY_ID: &str = "map[string]string";
        const BY_POD: &str = "map[string]map[string]string";
        let written = self.entries.as_ref().filter(|entries| !entries.is_empty());
        let entries: Vec<String> = match written {
            Some(entries) => {
                let by_id =
                    entries.values().any(|entry| matches!(entry, CheckpointEntry::Container(_)));
                vec![format!("({}){}", if by_id { BY_ID } else { BY_POD }, dump(entries))]
            }
            None => [BY_POD, BY_ID]
                .iter()
                .flat_map(|kind| NOTHING.map(|nothing| format!("({kind}){nothing}")))
                .collect(),
        };
        const PODS: &str = "PodEntries:(state.PodCPUAssignments)";
        let pods: Vec<String> = match self.pod_entries.as_ref().filter(|pods| !pods.is_empty()) {
            Some(pods) => vec![format!("{PODS}{} ", dump_pods(pods))],
            None => {
                let third = NOTHING.map(|nothing| format!("{PODS}{nothing} "));
                [String::new()].into_iter().chain(third).collect()
            }
        };
        let CheckpointFile { policy_name, default_cpu_set, .. } = self;
        let one = |entries: &String, pods: &String| {
            format!(
                "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy_name} \
                 DefaultCPUSet:(string){default_cpu_set} Entries:{entries} {pods}Checksum:(checksum.Checksum)0}}"
            )
        };
        entries.iter().flat_map(|entries| pods.iter().map(move |pods| one(entries, pods))).collect()
    }
}

fn dump(entries: &BTreeMap<String, CheckpointEntry>) -> String {
    let texts = |map: &BTreeMap<String, String>| {
        let pairs: Vec<String> = map.iter().map(|(key, text)| format!("{key}:{text}")).collect();
        format!("map[{}]", pairs.join(" "))
    };
    let pairs: Vec<String> = entries
        .iter()
        .map(|(key, entry)| match entry {
            CheckpointEntry::Container(text) => format!("{key}:{text}"),
            CheckpointEntry::Pod(containers) => format!("{key}:{}", texts(containers)),
        })
        .collect();
    format!("map[{}]", pairs.join(" "))
}

fn dump_pods(pods: &BTreeMap<String, PodCpus>) -> String {
    let pairs: Vec<String> = pods
        .iter()
        .map(|(uid, pod)| {
            let cpus = pod.cpu_set.parse::<CpuSet>().unwrap_or_default();
            let elems: Vec<String> = cpus.iter().map(|cpu| format!("{cpu}:{{}}")).collect();
            let elems = elems.join(" ");
            format!("{uid}:{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elems}]}}}}")
        })
        .collect();
    format!("map[{}]", pairs.join(" "))
}

/// The 32-bit hash of Fowler, Noll and Vo, as Go's `fnv.New32a`.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
