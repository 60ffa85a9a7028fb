//! The vocabulary of Linux's cpuset controller: sets of CPUs ([`CpuSet`]) and of NUMA nodes
//! ([`NodeSet`]), paths of cgroups ([`CgroupPath`]) and types of partitions ([`PartitionType`]), with
//! the kernel's text formats.
//!
//! ```
//! use cpuset::CpuSet;
//! let online: CpuSet = "0-7".parse()?;
//! let reserved = CpuSet::from_mask("00000011")?;
//! assert_eq!((online - reserved).to_string(), "1-3,5-7");
//! # Ok::<(), cpuset::ParseError>(())
//! ```
//!
//! Sets are plain data of a fixed size. Nothing here reads a file.

mod cgroup;
mod cpus;
mod nodes;
mod partition;

pub use cgroup::CgroupPath;
pub use cpus::{CpuSet, Iter, MAX_CPUS, ParseError, PastLimit};
pub use nodes::{MAX_NODES, NodeSet};
pub use partition::{PartitionState, PartitionType};
