//! [`Claim`]: exclusive CPUs and whose they are; [`KubeletClaim`]: those that the kubelet assigned.

use super::model::{ContainerId, CpuRequest, PodUid};
use cpuset::CpuSet;
use placement::wishes::Margin;
use std::fmt;

/// Exclusive CPUs and their container: the checkpoint has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub pod_uid: PodUid,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub id: ContainerId,
    pub cpus: CpuSet,
    /// What is kept idle around them.
    pub margin: Margin,
    /// Whether the container uses shared CPUs beside them.
    pub mixed: bool,
    /// What it asked for in the last event that says so; nothing if that is unknown. A runtime's
    /// list may say less.
    pub cpu: CpuRequest,
}

impl Claim {
    pub(super) fn is_of(&self, uid: &PodUid, container: &str) -> bool {
        &self.pod_uid == uid && self.container == container
    }
}

/// Exclusive CPUs that the kubelet's own CPU manager gave to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletClaim {
    pub of: Named,
    pub cpus: CpuSet,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Named {
    /// By its pod's uid and its name in the pod.
    Container(PodUid, String),
    /// By the runtime's id, as kubelets before 1.18.
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
