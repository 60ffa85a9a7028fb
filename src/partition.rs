//! [`PartitionType`]: what the kernel makes of a control group whose CPUs it keeps for it.

use std::fmt;

/// The types of cpuset partitions, as `cpuset.cpus.partition` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionType {
    /// A scheduling domain of its own, in which the kernel balances load: right for ordinary
    /// programs.
    #[default]
    Root,
    /// No load balancing at all, as with `isolcpus`: for programs that place their own threads.
    Isolated,
}

impl PartitionType {
    /// Both types.
    pub const ALL: [PartitionType; 2] = [PartitionType::Root, PartitionType::Isolated];

    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            PartitionType::Root => "root",
            PartitionType::Isolated => "isolated",
        }
    }
}

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
