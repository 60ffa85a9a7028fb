//! [`Figures`]: what keeps exclusive CPUs exclusive, and what is in its way.

use cpuset::{CgroupPath, CpuSet};
use ledger::{Mechanism, PodUid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wording::Moment;

/// What keeps exclusive CPUs exclusive, and what is in the way of that.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Exclusivity"))]
pub struct Figures {
    /// Why the mechanism is not the configuration's first choice; `null` if it is.
    pub because: Option<String>,
    /// Why cgroups cannot be written, and the effect; `null` if they can.
    pub cannot_write: Option<String>,
    /// Cgroups that cannot be relied on at present, with the reason: each child cgroup is bound
    /// individually.
    pub distrusted_cgroups: BTreeMap<CgroupPath, String>,
    /// Pods whose shared containers the runtime updates although cgroups bind others, with the reason.
    pub unbound_pods: BTreeMap<PodUid, String>,
    /// Upper bounds that other programs set on cgroups in which containers share CPUs.
    pub cgroup_bounds: Vec<GroupBound>,
    /// Cpuset partitions of other programs: no container can run on their CPUs.
    pub foreign_partitions: BTreeMap<CgroupPath, CpuSet>,
    /// How often the kernel made no partition for a container, since the start.
    pub partition_refusals: u64,
    /// Writes of the shared pool into cgroups since the start.
    pub pool_writes: u64,
    /// How often a cgroup could not be written, since the start.
    pub write_errors: u64,
}

/// An upper bound that another program has set on a cgroup, and sets again after each change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupBound {
    /// The cgroup.
    pub cgroup: CgroupPath,
    /// What the other program allows it.
    pub cpus: CpuSet,
    /// When the plugin found the bound.
    pub since: Moment,
    /// The shell command that removes it.
    pub remove_with: String,
}

impl Figures {
    /// The CPUs of other programs' partitions.
    pub fn foreign(&self) -> CpuSet {
        self.foreign_partitions.values().copied().collect()
    }

    /// Why the runtime enforces exclusivity although the configuration prefers cgroups.
    pub fn given_up(&self, mechanism: Mechanism) -> Option<&str> {
        self.because.as_deref().filter(|_| mechanism == Mechanism::Runtime)
    }
}
