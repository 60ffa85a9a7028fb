//! Keeps exclusive CPUs exclusive: the one home of all that writes cgroups.
//!
//! ```text
//!   ledger ──► wanted ─┐
//!                      ├──► plan ──► groups: reads, writes, remembers
//!   files ──► tree ────┘
//! ```
//!
//! * `mechanism` chooses between partitions, cgroups and the runtime, by what `probe` finds.
//! * `cgroup_tree`, `wanted` and `plan` are pure: a model of cgroup v2 cpusets, what groups have to
//!   be, and the writes that lead there. [`Groups`] carries them out.
//! * [`Writer`] makes cpuset partitions, and sets single containers' CPUs.
//! * `release` undoes everything.
//!
//! What writes waits for the kernel: call it only where that delays no other work.

mod affinity;
mod cgroup_tree;
mod files;
mod groups;
mod hierarchy;
mod mechanism;
mod memory;
mod partition;
mod plan;
mod probe;
mod quota;
mod release;
mod wanted;
mod watch;
mod writer;

pub use affinity::widen;
pub use cgroup_tree::{Refused, Tree};
pub use files::Scope;
pub use groups::{Groups, Released, Report};
pub use hierarchy::{FileError, Hierarchy, Version};
pub use mechanism::{Exclusivity, Means};
pub use memory::Memory;
pub use partition::{KernelRefusal, holds};
pub use plan::{Outcome, carry_out};
pub use probe::{ProbeError, binding, probe, writable};
pub use quota::quota_of;
pub use release::{Undone, undo};
pub use wanted::{Layout, Level, Wanted};
pub use watch::Watch;
pub use writer::Writer;
