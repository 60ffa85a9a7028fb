//! [`Claim`]: exclusive CPUs and whose they are.

use super::model::{ContainerId, CpuRequest, PodUid};
use crate::cpuset::CpuSet;

/// Exclusive CPUs and their container: the checkpoint has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub pod_uid: PodUid,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub id: ContainerId,
    pub cpus: CpuSet,
    /// Whether their SMT siblings are kept idle for it.
    pub isolated: bool,
    /// What it asked for in the last event that says so; nothing if that is unknown. A runtime's
    /// list may say less.
    pub cpu: CpuRequest,
}

impl Claim {
    pub(super) fn is_of(&self, uid: &PodUid, container: &str) -> bool {
        &self.pod_uid == uid && self.container == container
    }
}
