//! Keeps exclusive CPUs exclusive: the one home of all that writes cgroups.
//!
//! ```text
//!   ledger ──► goal ───┐
//!                      ├──► plan ──► groups: reads, writes, remembers
//!   files ──► tree ────┘
//! ```
//!
//! * `mechanism` chooses between partitions, cgroups and the runtime, by what `probe` finds.
//! * `cgroup_tree`, `hazard`, `goal` and `plan` are pure: a model of cgroup v2 cpusets, the writes
//!   that break a kernel, what cgroups have to be, and the writes that lead there. [`Groups`] carries
//!   them out, and reads each back.
//! * `container` writes into single containers' cgroups what the runtime has not.
//! * `release` undoes everything.
//! * `foreign` reads other programs' partitions; nothing here writes them.
//!
//! What writes waits for the kernel: call it only where that delays no other work.

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
mod mechanism;
mod memory;
mod plan;
mod probe;
mod quota;
mod release;
mod watch;

pub use affinity::widen;
pub use cgroup_tree::{CgroupTree, KernelRules, PartitionFiles, Refused, Write};
pub use container::{KernelRefusal, lift_quota, set_cpus};
pub use files::{Scope, is_partition_of};
pub use foreign::{ForeignPartitions, foreign_partitions};
pub use goal::{CgroupLevel, Goal, Layout};
pub use groups::{AFTER_REFUSAL, Groups, Report, Undone};
pub use hazard::{Hazard, hazard};
pub use hierarchy::{CPUS, CgroupVersion, EFFECTIVE, FileError, Hierarchy, PARTITION};
pub use interference::Bound;
pub use mechanism::{Exclusivity, Means};
pub use memory::Memory;
pub use plan::{PlanOutcome, carry_out};
pub use probe::{ProbeError, probe, writable};
pub use quota::{QuotaChange, quota_of};
pub use release::undo;
pub use watch::{Watch, Watched};
