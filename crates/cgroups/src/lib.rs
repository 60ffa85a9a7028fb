//! The cpusets of a node's cgroups: keeps every container off the exclusive CPUs of others, by
//! `cpuset.cpus` and by partitions.
//!
//! ```text
//!   Layout ──► Goal ───┐
//!                      ├──► plan ──► Groups: reads, writes, records
//!   files ──► tree ────┘
//! ```
//!
//! * [`CgroupTree`], [`hazard`](fn@hazard), [`Goal`], [`Layout`] and [`carry_out`] are pure: a model of
//!   cgroup v2 cpusets, the writes that break a kernel, the required state of cgroups, and the writes
//!   that lead there.
//! * [`Groups`] is the one writer. It records each write in a [`CgroupRecords`], makes it and reads
//!   it back, and learns what other programs do to the same cgroups.
//! * [`set_cpus`] and [`lift_quota`] write into single containers' cgroups what the runtime has not.
//! * [`write`](fn@write) and [`end_partition`] do the same for programs with cgroups of their own.
//! * [`undo()`] reverts everything.
//! * [`foreign_partitions`] reads other programs' partitions, which nothing here writes.
//!
//! ```
//! use cgroups::{CgroupLevel, CgroupTree, Goal, Write, carry_out};
//! use cpuset::CgroupPath;
//!
//! let class = CgroupPath::new("kubepods/burstable").ok_or("no path")?;
//! let pod = CgroupPath::new("kubepods/pod1").ok_or("no path")?;
//! let container = CgroupPath::new("kubepods/pod1/db").ok_or("no path")?;
//! let mut tree = CgroupTree::new("0-7".parse()?, "0-7".parse()?);
//! tree.make(&class);
//! // As the runtime has made it.
//! tree.put(&container, "6-7".parse()?);
//!
//! let goal = Goal {
//!     pool: "0-5".parse()?,
//!     widest: "0-7".parse()?,
//!     exclusive: [(container.clone(), "6-7".parse()?)].into(),
//!     partitions: [container.clone()].into(),
//!     tops: [(class.clone(), CgroupLevel::Class), (pod, CgroupLevel::Pod)].into(),
//!     ..Goal::default()
//! };
//! // The plan updates `tree`. A second tree stands in for the kernel here.
//! let mut kernel = tree.clone();
//! let mut writes = Vec::new();
//! let outcome = carry_out(&mut tree, &goal, |group, write| {
//!     writes.push(match write {
//!         Write::Cpus(cpus) => format!("{group}/cpuset.cpus: {cpus}"),
//!         Write::Exclusive(cpus) => format!("{group}/cpuset.cpus.exclusive: {cpus}"),
//!         Write::Partition(Some(kind)) => format!("{group}/cpuset.cpus.partition: {}", kind.name()),
//!         Write::Partition(None) => format!("{group}/cpuset.cpus.partition: member"),
//!     });
//!     kernel.write(group, write).ok().map(|()| kernel.partition(group))
//! });
//! assert!(outcome.failed.is_empty());
//! assert_eq!(
//!     writes,
//!     [
//!         "kubepods/burstable/cpuset.cpus: 0-5",
//!         "kubepods/cpuset.cpus.exclusive: 6-7",
//!         "kubepods/pod1/cpuset.cpus.exclusive: 6-7",
//!         "kubepods/pod1/db/cpuset.cpus.exclusive: 6-7",
//!         "kubepods/pod1/db/cpuset.cpus.partition: root",
//!     ]
//! );
//! assert_eq!(kernel.effective(&class).to_string(), "0-5");
//! assert!(kernel.is_partition(&container));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A cgroup is a path here, with CPUs and processes: nothing knows which pod or container it belongs
//! to, why it has these CPUs, or what program this is. The node is reached through
//! [`Kernel`](kernel::Kernel) only, and the time is an argument. Functions that write wait for the
//! kernel: call them only where that delays no other work.

mod affinity;
mod cgroup_tree;
mod container;
mod files;
mod foreign;
mod goal;
mod groups;
mod hazard;
mod hierarchy;
mod interference;
mod layout;
mod names;
mod plan;
mod probe;
mod quota;
mod records;
mod undo;

pub use affinity::widen;
pub use cgroup_tree::{CgroupTree, KernelRules, PartitionFiles, Refused, Write};
pub use container::{KernelRefusal, set_cpus};
pub use files::{Scope, end_partition, is_partition_of, write};
pub use foreign::{ForeignPartitions, foreign_partitions};
pub use goal::{CgroupLevel, Goal};
pub use groups::{AFTER_REFUSAL, Groups, Report, Undone, Watched};
pub use hazard::{Hazard, hazard};
pub use hierarchy::{CPUS, CgroupVersion, EFFECTIVE, FileError, Hierarchy, PARTITION};
pub use interference::Bound;
pub use layout::{ContainerCpus, ContainerGroup, Layout, PodGroup};
pub use plan::{PlanOutcome, carry_out};
pub use probe::{ProbeError, binding, probe, writable};
pub use quota::{QuotaChange, lift_quota, quota_of};
pub use records::CgroupRecords;
pub use undo::{LiftedQuotas, undo};
