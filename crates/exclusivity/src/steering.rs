//! What [`quiet::Steering`] needs on a node: its files, its record of original values, and irqbalance.

use super::records::open_originals;
use kernel::Kernel;
use quiet::{IRQBALANCE_DIRECTORIES, Irqbalance, Roots, Steering};
use state::disk::Storage;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wording::count;

/// The files of interrupts and latency knobs: those below `host`, where the host's are mounted into a
/// container.
pub fn quiet_roots(host: Option<&Path>, proc: &Path, sys: &Path) -> Roots {
    match host {
        Some(host) => Roots { proc: host.join("proc"), sys: host.join("sys") },
        None => Roots { proc: proc.to_owned(), sys: sys.to_owned() },
    }
}

/// Reads the original values in a state directory. `processes` is `/proc`, which names the boot; `host` is
/// that of [`quiet_roots`].
pub fn open_steering(
    state: &Path,
    storage: Arc<dyn Storage>,
    kernel: &dyn Kernel,
    processes: &Path,
    roots: Roots,
    host: Option<&Path>,
) -> Steering {
    let originals = open_originals(state, storage, kernel, processes);
    let directories = IRQBALANCE_DIRECTORIES.iter().map(|directory| match host {
        Some(host) => host.join(directory.trim_start_matches('/')),
        None => PathBuf::from(directory),
    });
    Steering::new(roots, originals, Irqbalance::new(directories.collect()))
}

/// Whether this process can move the node's interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// There are so many interrupts, and the kernel lets so many of them move.
    Writable { interrupts: usize, movable: usize },
    /// Why no interrupt can be moved.
    Unwritable(String),
}

impl Access {
    /// Opens the files of all interrupts, and writes none.
    pub fn read(kernel: &dyn Kernel, roots: &Roots) -> Access {
        let irq = roots.proc.join("irq");
        let default = irq.join("default_smp_affinity");
        if let Err(error) = kernel.check_writable(&default) {
            return Access::Unwritable(format!("cannot write {}: {error}", default.display()));
        }
        let active = match quiet::read_interrupts(kernel, roots) {
            Ok(interrupts) => interrupts.active,
            Err(error) => {
                let proc = roots.proc.display();
                return Access::Unwritable(format!(
                    "cannot read the interrupts in {proc}: {error}"
                ));
            }
        };
        let file = |number: &u32| irq.join(number.to_string()).join("smp_affinity_list");
        let movable = active.keys().filter(|number| kernel.check_writable(&file(number)).is_ok());
        Access::Writable { interrupts: active.len(), movable: movable.count() }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Writable { interrupts, movable } => {
                write!(f, "{movable} of {} can be moved", count(*interrupts, "interrupt"))
            }
            Access::Unwritable(why) => f.write_str(why),
        }
    }
}
