//! Keeps exclusive CPUs quiet: moves device interrupts away from them, sets their idle states and
//! frequencies, verifies both at every pass, and restores what was there before.
//!
//! ```text
//!   Goal ──► plan ───┐
//!                    ├──► Steering: records originals, writes what differs, reads back
//!   files ───────────┘
//! ```
//!
//! * [`Goal`] has the containers with their CPUs, [`InterruptMode`] and [`Knobs`]; its [`Area`] says where
//!   interrupts may go (pure).
//! * [`Steering`] is the one writer. [`Steering::pass`] corrects what others change, and tells drift from
//!   a value that an administrator has set and that does no harm.
//! * [`Originals`] outlive a crash, so that [`Steering::restore`] loses nothing.
//! * [`Irqbalance`] asks that daemon not to move interrupts back.
//!
//! ```
//! use quiet::{Goal, InterruptMode, Irqbalance, Originals, QuietContainer, Roots, Steering};
//!
//! // A node without any interrupt.
//! let root = tempfile::tempdir()?;
//! let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
//! std::fs::create_dir_all(roots.proc.join("irq"))?;
//! std::fs::write(roots.proc.join("interrupts"), "     CPU0   CPU1\n")?;
//! std::fs::write(roots.proc.join("irq/default_smp_affinity"), "3\n")?;
//!
//! let mut steering = Steering::new(roots, Originals::default(), Irqbalance::new(Vec::new()));
//! let container = QuietContainer {
//!     name: "default/db/main".to_owned(),
//!     cpus: "1".parse()?,
//!     interrupts: InterruptMode::Away,
//!     ..QuietContainer::default()
//! };
//! let goal =
//!     Goal { online: "0-1".parse()?, containers: vec![container], ..Goal::default() };
//! assert_eq!(steering.pass(&kernel::Linux, &goal).written, 1);
//! assert_eq!(steering.pass(&kernel::Linux, &goal).written, 0);
//! assert_eq!(steering.restore(&kernel::Linux).files, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it cannot do: the kernel manages the interrupts of most storage queues itself and refuses to move
//! them ([`Report::refused`]); timers, scheduler ticks and interrupts between processors have no affinity.

mod access;
mod goal;
mod interrupts;
mod irqbalance;
mod knob_plan;
mod knobs;
mod originals;
mod plan;
mod planned;
mod steer;

pub use access::unwritable;
pub use goal::{Goal, InterruptMode, QuietContainer};
pub use interrupts::{Interrupt, Interrupts, MOST_INTERRUPTS, read as read_interrupts};
pub use irqbalance::{BanState, DIRECTORIES as IRQBALANCE_DIRECTORIES, Irqbalance};
pub use knob_plan::Denied;
pub use knobs::{CStates, KnobError, Knobs, frequency};
pub use originals::{Originals, Setting, SettingValue};
pub use plan::Area;
pub use steer::{Drift, RETRY, RefusedInterrupt, Report, Restored, Steering, StrayInterrupt};

use std::path::PathBuf;

/// Where the kernel's file systems are mounted. A runtime masks `/proc/irq` in containers: a container needs
/// the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Roots {
    #[cfg(test)]
    fn below(root: &std::path::Path) -> Roots {
        Roots { proc: root.join("proc"), sys: root.join("sys") }
    }
}
