//! [`Claim`]: exclusive CPUs and their container; [`KubeletClaim`]: those of the kubelet;
//! [`MemoryClaim`]: counted memory.

use super::model::{ContainerId, CpuRequest, PodUid};
use cpuset::CpuSet;
use placement::pod_options::Margin;
use std::fmt;

/// Exclusive CPUs and their container, or the CPUs that a pod's containers share. The state file
/// has all claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub pod_uid: PodUid,
    pub namespace: String,
    pub pod: String,
    /// Empty for the own pool of a pod ([`PodLevelResources`](super::PodLevelResources)).
    pub container: String,
    pub id: ContainerId,
    /// Empty only for an own pool: its pod's exclusive containers leave none.
    pub cpus: CpuSet,
    /// Which of their neighbours stay idle.
    pub margin: Margin,
    /// Whether the container also uses shared CPUs (`cpus: exclusive+shared`).
    pub mixed: bool,
    /// Whether its container has ended while others of its pod run, as init containers have, and
    /// lends the CPUs to the shared pool.
    pub lent: bool,
    /// The request in the last event that had one; empty if no event did. It is kept because a
    /// runtime's list can be incomplete.
    pub cpu: CpuRequest,
}

impl Claim {
    pub(super) fn is_of(&self, uid: &PodUid, container: &str) -> bool {
        &self.pod_uid == uid && self.container == container
    }

    /// Whether it is the own pool of this pod, and no container's claim.
    pub(super) fn is_of_own_pool(&self, uid: &PodUid) -> bool {
        self.is_of(uid, "")
    }
}

/// Counted memory and its container. The state file has these claims, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryClaim {
    pub pod_uid: PodUid,
    pub container: String,
    pub memory: placement::memory_manager::NodeMemoryClaim,
}

/// Exclusive CPUs that the kubelet's own CPU manager gave to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletClaim {
    pub of: Named,
    pub cpus: CpuSet,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Named {
    Container(PodUid, String),
    /// By the runtime's id, as in the state files of kubelets before 1.18.
    Id(ContainerId),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Container(uid, name) => write!(f, "{uid}/{name}"),
            Named::Id(id) => write!(f, "container {id}"),
        }
    }
}
