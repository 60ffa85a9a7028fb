//! [`Stance`]: whether the ledger or the kubelet assigns the node's CPUs.

use super::model::{ContainerId, PodUid};
use crate::cpuset::CpuSet;
use std::fmt;

/// Whether the ledger or the kubelet assigns the node's CPUs, and what follows for new containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stance {
    #[default]
    Assign,
    /// The kubelet or another plugin does. The ledger refuses new containers that ask for exclusive
    /// CPUs and changes nothing else.
    Refuse,
    /// The kubelet or another plugin does. The ledger changes nothing, and the log says what it
    /// would decide.
    Observe,
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
