//! Keeps exclusive CPUs exclusive: the one home of all that writes cgroups.
//!
//! ```text
//!   ledger ──► goal ───┐
//!                      ├──► plan ──► groups: reads, writes, remembers
//!   files ──► tree ────┘
//! ```
//!
//! * `hazard` knows the writes that break a kernel's accounting of partitions.
//! * `mechanism` chooses between partitions, cgroups and the runtime, by what `probe` finds.
//! * `cgroup_tree`, `goal` and `plan` are pure: a model of cgroup v2 cpusets, what cgroups have to
//!   be, and the writes that lead there. [`Groups`] carries them out.
//! * [`Writer`] makes cpuset partitions, and sets single containers' CPUs.
//! * `release` undoes everything.
//! * `foreign` reads other programs' partitions; nothing here writes them.
//!
//! What writes waits for the kernel: call it only where that delays no other work.

mod affinity;
mod cgroup_tree;
mod files;
mod foreign;
mod goal;
mod groups;
mod hazard;
mod hierarchy;
mod interference;
mod mechanism;
mod memory;
mod partition;
mod plan;
mod probe;
mod quota;
mod release;
mod watch;
mod writer;

pub use affinity::widen;
pub use cgroup_tree::{CgroupTree, KernelRules, PartitionFiles, Refused, Write};
pub use files::Scope;
pub use foreign::{ForeignPartitions, foreign_partitions};
pub use goal::{CgroupLevel, Goal, Layout};
pub use groups::{AFTER_REFUSAL, Groups, Report, Undone};
pub use hazard::{Hazard, hazard};
pub use hierarchy::{CPUS, CgroupVersion, EFFECTIVE, FileError, Hierarchy, PARTITION};
pub use interference::Bound;
pub use mechanism::{Exclusivity, Means};
pub use memory::Memory;
pub use partition::{KernelRefusal, is_partition_of};
pub use plan::{PlanOutcome, carry_out};
pub use probe::{ProbeError, probe, writable};
pub use quota::{QuotaChange, quota_of};
pub use release::undo;
pub use watch::{Watch, Watched};
pub use writer::Writer;
