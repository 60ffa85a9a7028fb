//! [`unwritable`]: whether this process can have any effect, before a pass tries each file.

use crate::Roots;
use crate::goal::Goal;
use crate::knobs::Knobs;
use kernel::Kernel;
use std::io;
use std::path::Path;

/// Why a pass towards this goal would change nothing; `None` if it can. Runtimes mount `/proc/irq` and
/// `/sys` read-only into containers.
pub fn unwritable(kernel: &dyn Kernel, roots: &Roots, goal: &Goal) -> Option<String> {
    if goal.is_empty() {
        let default = roots.proc.join("irq/default_smp_affinity");
        return check(kernel, &default, |error| error.kind() == io::ErrorKind::ReadOnlyFilesystem);
    }
    if !goal.avoided().is_empty() {
        let default = roots.proc.join("irq/default_smp_affinity");
        let why = check(kernel, &default, |_| true);
        if why.is_some() {
            return why;
        }
    }
    let container = goal.containers.iter().find(|one| one.knobs != Knobs::default())?;
    let cpu = container.cpus.iter().next()?;
    let latency = format!("devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    // A kernel without power management has no such file: containers are denied what it lacks.
    check(kernel, &roots.sys.join(latency), |error| error.kind() != io::ErrorKind::NotFound)
}

fn check(
    kernel: &dyn Kernel,
    path: &Path,
    counts: impl FnOnce(&io::Error) -> bool,
) -> Option<String> {
    let error = kernel.check_writable(path).err()?;
    if counts(&error) { Some(format!("cannot write {}: {error}", path.display())) } else { None }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests make a copy of the kernel's files")]
mod tests {
    use super::*;
    use crate::goal::{InterruptMode, QuietContainer};
    use kernel::Linux;
    use std::fs;

    #[test]
    fn only_files_that_the_goal_needs_have_to_be_writable() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::below(root.path());
        let container = QuietContainer { cpus: "2".parse().unwrap(), ..QuietContainer::default() };
        let mut goal = Goal { containers: vec![container], ..Goal::default() };
        assert_eq!(unwritable(&Linux, &roots, &goal), None);
        goal.containers[0].knobs.set("c-states", "disable").unwrap();
        assert_eq!(unwritable(&Linux, &roots, &goal), None);
        goal.containers[0].interrupts = InterruptMode::Away;
        let why = unwritable(&Linux, &roots, &goal).unwrap();
        assert!(why.contains("irq/default_smp_affinity: No such file"), "{why}");
        fs::create_dir_all(roots.proc.join("irq")).unwrap();
        fs::write(roots.proc.join("irq/default_smp_affinity"), "f\n").unwrap();
        assert_eq!(unwritable(&Linux, &roots, &goal), None);
    }
}
