//! `cpu_manager_state`: the file of the kubelet's CPU manager with its assignments.
//!
//! One line of JSON in three generations: entries by container id (1), by pod uid and container
//! name (2), and with CPUs of whole pods in addition (3). Its checksum is FNV-1a over the text of
//! Go's debugging printer.
//!
//! The file belongs to root, and no pod has influence on its text. The
//! [`Ledger`](ledger::Ledger) accepts its claims only if they are legal, like all others.

use cpuset::{CpuSet, ParseError};
use ledger::{Claim, ContainerId, KubeletClaim, Named, PodUid, Policy};
use placement::PlacementSettings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    /// The policy of the kubelet that wrote it. A kubelet with another one refuses to start until
    /// the file is deleted.
    pub policy: String,
    /// The CPUs of all containers without exclusive ones.
    pub shared: CpuSet,
    /// Exclusive CPUs, in order of pod uid and container name.
    pub claims: Vec<KubeletClaim>,
    /// CPUs of pods with pod-level resources; the claims of their containers are parts of them.
    pub pods: Vec<(PodUid, CpuSet)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateFileError {
    #[error("truncated, or not a state file of the kubelet's CPU manager ({0})")]
    Form(String),
    /// Something changed the file after the kubelet wrote it, or a later kubelet wrote it.
    #[error("checksum {says}, expected {is}: damaged, edited, or of an unknown format")]
    Checksum { policy: String, says: u64, is: u32 },
    #[error("invalid CPUs of {of}: {error}")]
    Cpus { policy: String, of: String, error: ParseError },
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
    /// The claims of a node with these online CPUs, as the policy `static` writes them.
    pub fn of(
        claims: impl IntoIterator<Item = Claim>,
        online: CpuSet,
        placement: &PlacementSettings,
    ) -> StateFile {
        let mut shared = online;
        if placement.options.strict_cpu_reservation {
            shared -= placement.reserved;
        }
        let mut of_kubelet = Vec::new();
        for Claim { pod_uid, container, cpus, .. } in claims {
            shared -= cpus;
            // This generation of the file has no place for the own pool of a pod.
            if container.is_empty() {
                continue;
            }
            of_kubelet.push(KubeletClaim { of: Named::Container(pod_uid, container), cpus });
        }
        let policy = Policy::Static.name().to_owned();
        StateFile { policy, shared, claims: of_kubelet, pods: Vec::new() }
    }

    pub fn parse(bytes: &[u8]) -> Result<StateFile, StateFileError> {
        let file: CheckpointFile = serde_json::from_slice(bytes)
            .map_err(|error| StateFileError::Form(error.to_string()))?;
        file.verify()?;
        let mut claims = Vec::new();
        for (key, entry) in file.entries.iter().flatten() {
            match entry {
                CheckpointEntry::Container(text) => {
                    let of = Named::Id(ContainerId(key.clone().into()));
                    claims.push(KubeletClaim { of, cpus: file.cpus(text, key)? });
                }
                CheckpointEntry::Pod(containers) => {
                    for (name, text) in containers {
                        let cpus =
                            file.cpus(text, format_args!("container {name} of pod {key}"))?;
                        let of = Named::Container(PodUid(key.clone().into()), name.clone());
                        claims.push(KubeletClaim { of, cpus });
                    }
                }
            }
        }
        claims.retain(|claim| !claim.cpus.is_empty());
        let mut pods = Vec::new();
        for (uid, pod) in file.pod_entries.iter().flatten() {
            let cpus = file.cpus(&pod.cpu_set, format_args!("pod {uid}"))?;
            pods.push((PodUid(uid.clone().into()), cpus));
        }
        let shared = file.cpus(&file.default_cpu_set, "all other containers")?;
        Ok(StateFile { policy: file.policy_name, shared, claims, pods })
    }

    /// The file's content in the second generation, which every kubelet since 1.18 reads. It has no
    /// place for CPUs of whole pods and for claims by container id.
    pub fn to_json(&self) -> String {
        let mut pods: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for KubeletClaim { of, cpus } in &self.claims {
            let Named::Container(uid, name) = of else { continue };
            pods.entry(uid.0.to_string()).or_default().insert(name.clone(), cpus.to_string());
        }
        let entries: BTreeMap<String, CheckpointEntry> =
            pods.into_iter().map(|(uid, pod)| (uid, CheckpointEntry::Pod(pod))).collect();
        let mut file = CheckpointFile {
            policy_name: self.policy.clone(),
            default_cpu_set: self.shared.to_string(),
            entries: Some(entries).filter(|entries| !entries.is_empty()),
            pod_entries: None,
            checksum: 0,
        };
        file.checksum = u64::from(file.checksums()[0]);
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
    fn cpus(&self, text: &str, of: impl fmt::Display) -> Result<CpuSet, StateFileError> {
        text.parse().map_err(|error| StateFileError::Cpus {
            policy: self.policy_name.clone(),
            of: of.to_string(),
            error,
        })
    }

    /// A checksum of zero stands for none, except in the third generation.
    fn verify(&self) -> Result<(), StateFileError> {
        if self.checksum == 0 && self.pod_entries.is_none() {
            return Ok(());
        }
        let checksums = self.checksums();
        if checksums.iter().any(|&checksum| u64::from(checksum) == self.checksum) {
            return Ok(());
        }
        let policy = self.policy_name.clone();
        Err(StateFileError::Checksum { policy, says: self.checksum, is: checksums[0] })
    }

    /// The possible checksums, at least one; the first is that of the second generation where the
    /// file does not show its own. They are taken from the text of Go's printer, for which a map
    /// that is missing in the file was nil or empty.
    fn checksums(&self) -> Vec<u32> {
        const NOTHING: [&str; 2] = ["map[]", "<nil>"];
        const BY_ID: &str = "map[string]string";
        const BY_POD: &str = "map[string]map[string]string";
        let entries: Vec<String> = match &self.entries {
            Some(entries) if !entries.is_empty() => {
                let mut values = entries.values();
                let by_id = values.any(|entry| matches!(entry, CheckpointEntry::Container(_)));
                vec![format!("({}){}", if by_id { BY_ID } else { BY_POD }, dump(entries))]
            }
            _ => [BY_POD, BY_ID]
                .iter()
                .flat_map(|kind| NOTHING.map(|nothing| format!("({kind}){nothing}")))
                .collect(),
        };
        const PODS: &str = "PodEntries:(state.PodCPUAssignments)";
        let pods: Vec<String> = match &self.pod_entries {
            Some(pods) if !pods.is_empty() => vec![format!("{PODS}{} ", dump_pods(pods))],
            _ => {
                let third = NOTHING.map(|nothing| format!("{PODS}{nothing} "));
                std::iter::once(String::new()).chain(third).collect()
            }
        };
        let CheckpointFile { policy_name, default_cpu_set, .. } = self;
        let pairs = entries.iter().flat_map(|entries| pods.iter().map(move |pods| (entries, pods)));
        pairs
            .map(|(entries, pods)| {
                fnv1a(&format!(
                    "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy_name} \
                     DefaultCPUSet:(string){default_cpu_set} Entries:{entries} {pods}Checksum:(checksum.Checksum)0}}"
                ))
            })
            .collect()
    }
}

fn dump(entries: &BTreeMap<String, CheckpointEntry>) -> String {
    dump_map(entries.iter().map(|(key, entry)| match entry {
        CheckpointEntry::Container(text) => format!("{key}:{text}"),
        CheckpointEntry::Pod(containers) => {
            let containers = containers.iter().map(|(name, text)| format!("{name}:{text}"));
            format!("{key}:{}", dump_map(containers))
        }
    }))
}

fn dump_pods(pods: &BTreeMap<String, PodCpus>) -> String {
    dump_map(pods.iter().map(|(uid, pod)| {
        let cpus = pod.cpu_set.parse::<CpuSet>().unwrap_or_default();
        let elems = dump_map(cpus.iter().map(|cpu| format!("{cpu}:{{}}")));
        format!("{uid}:{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){elems}}}}}")
    }))
}

fn dump_map(pairs: impl Iterator<Item = String>) -> String {
    format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
}

/// The 32-bit hash of Fowler, Noll and Vo, as Go's `fnv.New32a`.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
