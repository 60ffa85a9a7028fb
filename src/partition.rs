//! [`PartitionType`]: the type of a cpuset partition.

use std::fmt;

/// The types of cpuset partitions, as `cpuset.cpus.partition` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionType {
    /// A scheduling domain of its own, in which the kernel balances load: for ordinary programs.
    #[default]
    Root,
    /// No load balancing, as with `isolcpus`: for programs that place their own threads.
    Isolated,
}

impl PartitionType {
    pub const ALL: [PartitionType; 2] = [PartitionType::Root, PartitionType::Isolated];

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
