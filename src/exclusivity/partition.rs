//! cpuset partitions: the kernel takes a group's CPUs away from all other groups of the machine,
//! and gives them back after the group's removal, whether this program runs or not.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` of the kernel, `cpuset.cpus.exclusive` (Linux
//! 6.7) and `cpuset.cpus.partition`. A group becomes a *remote* partition of CPUs that all groups
//! above it have in their `cpuset.cpus.exclusive`. This works at any depth below groups that are no
//! partitions.

use super::hierarchy::{FileError, Hierarchy};
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;
use crate::partition::PartitionType;
use crate::wording;
use std::thread::sleep;
use std::time::{Duration, Instant};

const CPUS: &str = "cpuset.cpus";
const EFFECTIVE: &str = "cpuset.cpus.effective";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const EXCLUSIVE_EFFECTIVE: &str = "cpuset.cpus.exclusive.effective";
const PARTITION: &str = "cpuset.cpus.partition";
/// The state of a group that is no partition.
const MEMBER: &str = "member";

/// How long to wait for the CPUs of removed groups, at most twice per answer: far less than the
/// runtime's time limit. The kernel needs milliseconds as a rule.
const PATIENCE: Duration = Duration::from_millis(400);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Why the kernel does not keep other groups off a group's CPUs.
#[derive(Debug, thiserror::Error)]
pub enum KernelRefusal {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The runtime did not name the container's group.
    #[error("the runtime does not name the container's control group")]
    Nowhere,
    /// The kernel has not given back the CPUs of a removed group.
    #[error("the kernel still keeps {} for a group that is gone", wording::cpus(.0))]
    Withheld(CpuSet),
    /// All writes succeeded, but the group is no valid partition of its CPUs.
    #[error(
        "{group} is {state:?} with {} after {kind:?} of {} was asked for", wording::cpus(.effective), wording::cpus(.cpus)
    )]
    Invalid {
        /// The group.
        group: CgroupPath,
        /// The content of `cpuset.cpus.partition`, with the kernel's reason.
        state: String,
        /// Its effective CPUs.
        effective: CpuSet,
        /// The requested type.
        kind: PartitionType,
        /// The requested CPUs.
        cpus: CpuSet,
    },
}

impl KernelRefusal {
    /// Whether the group does not exist (any more): it needs no CPUs then.
    pub fn is_gone(&self) -> bool {
        matches!(self, KernelRefusal::File(error) if error.is_gone())
    }
}

/// Waits until no other group has `cpus`, and lets the groups above `group` pass them on to it. The
/// group itself need not exist yet.
///
/// # Errors
/// If the kernel refuses, as a rule because another partition has some of the CPUs.
pub(super) fn reserve(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
) -> Result<(), KernelRefusal> {
    await_returned(on, group, cpus, deadline())?;
    let widen = || {
        for ancestor in group.ancestors() {
            let has = on.cpus(&ancestor, EXCLUSIVE)?;
            if !cpus.is_subset(&has) {
                on.write(&ancestor, EXCLUSIVE, &(has | cpus).to_string())?;
            }
        }
        Ok(())
    };
    // Leftovers of ended containers may be in the way.
    widen().or_else(|error: FileError| match error.is_gone() {
        true => Err(error),
        false => {
            group.top().map(|top| tidy(on, &top));
            widen()
        }
    })?;
    Ok(())
}

/// Makes `group` a partition of `cpus`, whatever it was before, and reads the result back.
///
/// # Errors
/// If the kernel refuses. The group is an ordinary one then; if its CPUs are withheld, it is
/// unchanged.
pub(super) fn keep(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: PartitionType,
) -> Result<(), KernelRefusal> {
    if holds(on, group, cpus, kind)? && on.cpus(group, EXCLUSIVE)? == cpus {
        return Ok(());
    }
    let result = make(on, group, cpus, kind);
    match &result {
        // The group is unchanged.
        Ok(()) | Err(KernelRefusal::Withheld(_)) => {}
        Err(refused) if refused.is_gone() => {}
        // Ignores another error: the first one counts.
        Err(_) => drop(release(on, group)),
    }
    result
}

fn make(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: PartitionType,
) -> Result<(), KernelRefusal> {
    reserve(on, group, cpus)?;
    clear_siblings(on, group, cpus)?;
    // CPUs that it gives up leave `cpuset.cpus` first, and new CPUs come last, so that the group is
    // never without CPUs.
    let list = cpus.to_string();
    if on.cpus(group, CPUS)? != cpus {
        on.write(group, CPUS, &list)?;
    }
    on.write(group, EXCLUSIVE, &list)?;
    if holds(on, group, cpus, kind)? {
        return Ok(());
    }
    // A second write does not always make an invalid partition, or one of the other type, valid.
    if on.read(group, PARTITION)? != MEMBER {
        on.write(group, PARTITION, MEMBER)?;
    }
    on.write(group, PARTITION, &kind.to_string())?;
    if holds(on, group, cpus, kind)? {
        return Ok(());
    }
    let (state, effective) = (on.read(group, PARTITION)?, on.cpus(group, EFFECTIVE)?);
    Err(KernelRefusal::Invalid { group: group.clone(), state, effective, kind, cpus })
}

/// Removes `cpus`, and the CPUs of partitions beside `group`, from the ordinary groups beside it:
/// the kernel makes no partition of CPUs in another group's `cpuset.cpus`. The answer informs the
/// runtime.
fn clear_siblings(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), FileError> {
    let Some(pod) = group.parent() else { return Ok(()) };
    let siblings: Vec<CgroupPath> =
        on.children(&pod).into_iter().filter(|sibling| sibling != group).collect();
    let kept = siblings.iter().filter_map(|sibling| on.cpus(sibling, EXCLUSIVE).ok());
    let kept = cpus | kept.collect::<CpuSet>();
    for sibling in siblings {
        let Ok(named) = on.cpus(&sibling, CPUS) else { continue };
        let rest = named - kept;
        let in_the_way = !named.is_disjoint(&cpus) && !rest.is_empty();
        if in_the_way && on.read(&sibling, PARTITION).is_ok_and(|state| state == MEMBER) {
            match on.write(&sibling, CPUS, &rest.to_string()) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The end of a wait that begins now.
pub(super) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// Waits until no group but this one has `cpus`.
///
/// The kernel gives the CPUs of a removed partition back a while after the group's directory is
/// gone. Meanwhile it still compares the group with its siblings. A write of these CPUs into a
/// sibling's `cpuset.cpus`, as the runtime makes for a container that comes back, invalidates the
/// partition and all others beside it, but incompletely: their CPUs are lost, and the kernel's
/// memory is damaged (Linux 6.12: warnings in `partition_xcpus_del`, crashes minutes later).
///
/// It does not wait for partitions outside of pods: they do not end, and the kernel reports those
/// that are in the way.
///
/// # Errors
/// If the deadline passes.
pub(super) fn await_returned(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    until: Instant,
) -> Result<(), KernelRefusal> {
    let Some(top) = group.top() else { return Ok(()) };
    let own = match on.read(group, PARTITION) {
        Ok(state) if state != MEMBER => on.cpus(group, EFFECTIVE)?,
        Ok(_) => CpuSet::EMPTY,
        // The runtime makes it later.
        Err(error) if error.is_gone() => CpuSet::EMPTY,
        Err(error) => return Err(error.into()),
    };
    let beside =
        || on.tops().iter().filter(|other| **other != top).map(|o| kept_in(on, o)).collect();
    await_free(on, &top, cpus - own, beside, until)
}

/// The same for an ordinary group: waits until no removed group beside it has `cpus`. It may name
/// CPUs of existing partitions. Without a removed group there is no wait.
///
/// # Errors
/// If the deadline passes.
pub(super) fn await_removed(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    until: Instant,
) -> Result<(), KernelRefusal> {
    let (Some(top), Some(pod)) = (group.top(), group.parent()) else { return Ok(()) };
    // The kernel counts a removed group for some time after it has given the CPUs back.
    let is_none = |stat: String| stat.lines().any(|line| line == "nr_dying_descendants 0");
    if on.read(&pod, "cgroup.stat").is_ok_and(is_none) {
        return Ok(());
    }
    await_free(on, &top, cpus, || on.tops().iter().map(|top| kept_in(on, top)).collect(), until)
}

/// Waits until all of `cpus` but those in `kept` are free for the groups in `top`.
///
/// CPUs that `top` may not use (one that came online after the kubelet's start, or a slice with
/// `AllowedCPUs=`) are never effective in it: they count as free if no partition has them.
fn await_free(
    on: &Hierarchy,
    top: &CgroupPath,
    cpus: CpuSet,
    kept: impl FnOnce() -> CpuSet,
    until: Instant,
) -> Result<(), KernelRefusal> {
    let allowed = on.cpus(top, CPUS)?;
    let barred = if allowed.is_empty() { CpuSet::EMPTY } else { cpus - allowed };
    let missing = || Ok::<_, KernelRefusal>(cpus - on.cpus(top, EFFECTIVE)? - (barred & on.free()));
    if missing()?.is_empty() {
        return Ok(());
    }
    let kept = kept();
    loop {
        let withheld = missing()? - kept;
        if withheld.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(KernelRefusal::Withheld(withheld));
        }
        sleep(PAUSE);
    }
}

/// The CPUs of valid partitions among a group and the groups in it.
fn kept_in(on: &Hierarchy, group: &CgroupPath) -> CpuSet {
    let state = on.read(group, PARTITION).unwrap_or_default();
    if PartitionType::ALL.iter().any(|kind| state == kind.name()) {
        return on.cpus(group, EXCLUSIVE_EFFECTIVE).unwrap_or_default();
    }
    // A partition in a group gets its CPUs from the group's exclusive ones.
    match on.cpus(group, EXCLUSIVE) {
        Ok(cpus) if !cpus.is_empty() => {
            on.children(group).iter().map(|child| kept_in(on, child)).collect()
        }
        _ => CpuSet::EMPTY,
    }
}

/// Whether a group is a partition of any kind, valid or not.
pub(super) fn is_one(on: &Hierarchy, group: &CgroupPath) -> bool {
    on.read(group, PARTITION).is_ok_and(|state| state != MEMBER)
}

/// Whether a group is a valid partition of exactly these CPUs.
pub fn holds(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: PartitionType,
) -> Result<bool, FileError> {
    Ok(on.read(group, PARTITION)? == kind.to_string() && on.cpus(group, EFFECTIVE)? == cpus)
}

/// Makes a group an ordinary one, whatever it was before.
///
/// # Errors
/// If its state cannot be read, or the kernel refuses.
pub(super) fn release(on: &Hierarchy, group: &CgroupPath) -> Result<(), FileError> {
    if on.read(group, PARTITION)? != MEMBER {
        on.write(group, PARTITION, MEMBER)?;
    }
    if !on.read(group, EXCLUSIVE)?.is_empty() {
        on.write(group, EXCLUSIVE, "")?;
    }
    Ok(())
}

/// Reduces a group's `cpuset.cpus.exclusive` to what the groups in it need, and returns that.
/// Groups removed meanwhile need nothing. A file that cannot be written keeps its value.
pub(super) fn tidy(on: &Hierarchy, group: &CgroupPath) -> CpuSet {
    let has = on.cpus(group, EXCLUSIVE).unwrap_or_default();
    let is_member = on.read(group, PARTITION).is_ok_and(|state| state == MEMBER);
    // No group below one without exclusive CPUs has any. A partition manages its own CPUs.
    if has.is_empty() || !is_member {
        return has;
    }
    let needs: CpuSet = on.children(group).iter().map(|child| tidy(on, child)).collect();
    match needs == has || on.write(group, EXCLUSIVE, &needs.to_string()).is_err() {
        true => has,
        false => needs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Files like the kernel's: of each group its CPUs, those that it alone may have, those it runs
    /// on, and what it is.
    fn hierarchy(root: &Path, groups: &[(&str, [&str; 4])]) -> Hierarchy {
        fs::write(root.join("cgroup.controllers"), "cpuset\n").unwrap();
        for (group, texts) in groups {
            fs::create_dir_all(root.join(group)).unwrap();
            for (file, text) in [CPUS, EXCLUSIVE, EFFECTIVE, PARTITION].into_iter().zip(texts) {
                fs::write(root.join(group).join(file), format!("{text}\n")).unwrap();
            }
        }
        Hierarchy::open(root).unwrap()
    }

    fn group(path: &str) -> CgroupPath {
        CgroupPath::new(path).unwrap()
    }

    #[test]
    fn siblings_name_nothing_that_a_partition_has() {
        let root = tempfile::tempdir().unwrap();
        let on = hierarchy(
            root.path(),
            &[
                ("k/pod/new", ["1-2", "", "1-2", MEMBER]),
                ("k/pod/other", ["3-4", "3-4", "3-4", "root"]),
                ("k/pod/shared", ["0-7", "", "0,5-7", MEMBER]),
                ("k/pod/elsewhere", ["5-6", "", "5-6", MEMBER]),
                ("k/pod/unset", ["", "", "0,5-7", MEMBER]),
            ],
        );
        clear_siblings(&on, &group("k/pod/new"), "1-2".parse().unwrap()).unwrap();
        let named = ["new", "other", "shared", "elsewhere", "unset"]
            .map(|name| on.read(&group(&format!("k/pod/{name}")), CPUS).unwrap());
        assert_eq!(named, ["1-2", "3-4", "0,5-7", "5-6", ""]);
    }

    #[test]
    fn cpus_of_a_removed_group_are_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let on = hierarchy(
            root.path(),
            &[("k", ["0-7", "1-2", "0,3-7", MEMBER]), ("k/pod/own", ["1", "1", "1", "root"])],
        );
        // Its own are no reason to wait.
        await_returned(&on, &group("k/pod/own"), "1,3".parse().unwrap(), deadline()).unwrap();
        let effective = root.path().join("k").join(EFFECTIVE);
        let returned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(10 * PAUSE);
                returned.store(true, Ordering::SeqCst);
                fs::write(effective, "0-7\n").unwrap();
            });
            await_returned(&on, &group("k/pod/new"), "1-2".parse().unwrap(), deadline()).unwrap();
            assert!(returned.load(Ordering::SeqCst), "it did not wait");
        });
        let refused = await_returned(&on, &group("k/pod/new"), "7-8".parse().unwrap(), deadline())
            .unwrap_err();
        assert_eq!(refused.to_string(), "the kernel still keeps CPU 8 for a group that is gone");
        // No group has it, and the pods may not use it: the kernel decides what becomes of that.
        fs::write(root.path().join(EFFECTIVE), "0-8\n").unwrap();
        await_returned(&on, &group("k/pod/new"), "7-8".parse().unwrap(), deadline()).unwrap();
        // They may, and do not yet.
        fs::write(root.path().join("k").join(CPUS), "0-8\n").unwrap();
        await_returned(&on, &group("k/pod/new"), "7-8".parse().unwrap(), deadline()).unwrap_err();
    }
}
