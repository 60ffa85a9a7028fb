//! cpuset partitions: the kernel takes a cgroup's CPUs away from all other cgroups of the machine,
//! and gives them back after the cgroup's removal, whether this program runs or not.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` of the kernel, `cpuset.cpus.exclusive` (Linux
//! 6.7) and `cpuset.cpus.partition`. A cgroup becomes a *remote* partition of CPUs that all cgroups
//! above it have in their `cpuset.cpus.exclusive`. This works at any depth below cgroups that are no
//! partitions.

use super::hierarchy::{CPUS, EFFECTIVE, EXCLUSIVE, FileError, Hierarchy, PARTITION, unless_gone};
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;
use crate::partition::PartitionType;
use crate::wording;
use std::time::{Duration, Instant};

pub(super) const EXCLUSIVE_EFFECTIVE: &str = "cpuset.cpus.exclusive.effective";
/// The state of a cgroup that is no partition.
const MEMBER: &str = "member";

/// How long to wait for the CPUs of removed cgroups, at most twice per answer: far less than the
/// runtime's time limit. The kernel needs milliseconds as a rule.
const PATIENCE: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
pub enum KernelRefusal {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the runtime does not name the container's cgroup")]
    Nowhere,
    #[error("the kernel still holds {} for a removed cgroup", wording::cpus(.0))]
    Withheld(CpuSet),
    #[error("a cpuset partition beside it still has {}", wording::cpus(.0))]
    Beside(CpuSet),
    /// All writes succeeded, but the cgroup is no valid partition of its CPUs.
    #[error("{0}")]
    Invalid(String),
}

impl KernelRefusal {
    /// Whether the cgroup does not exist (any more): it needs no CPUs then.
    pub fn is_gone(&self) -> bool {
        matches!(self, KernelRefusal::File(error) if error.is_gone())
    }
}

/// Waits until no other cgroup has `cpus`, and lets the cgroups above `group` pass them on to it.
/// The cgroup itself need not exist yet.
pub(super) fn reserve(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
) -> Result<(), KernelRefusal> {
    await_returned(on, group, cpus, deadline(on))?;
    match pass_down(on, group, cpus) {
        Err(error) if !error.is_gone() => {
            // Leftovers of ended containers may be in the way.
            if let Some(top) = group.top() {
                tidy(on, &top);
            }
            Ok(pass_down(on, group, cpus)?)
        }
        result => Ok(result?),
    }
}

fn pass_down(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), FileError> {
    for ancestor in group.ancestors() {
        let has = on.cpus(&ancestor, EXCLUSIVE)?;
        if !cpus.is_subset(&has) {
            on.write(&ancestor, EXCLUSIVE, &(has | cpus).to_string())?;
        }
    }
    Ok(())
}

/// Makes `group` a partition of `cpus`, whatever it was before, and reads the result back.
///
/// # Errors
/// The cgroup is an ordinary one then; if its CPUs are withheld, it is unchanged.
pub(super) fn ensure(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: PartitionType,
) -> Result<(), KernelRefusal> {
    if is_valid(on, group, cpus, kind)? && on.cpus(group, EXCLUSIVE)? == cpus {
        return Ok(());
    }
    let result = make(on, group, cpus, kind);
    match &result {
        // The cgroup is unchanged.
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
    // CPUs that it gives up leave `cpuset.cpus` first, and new CPUs come last, so that the cgroup is
    // never without CPUs.
    let list = cpus.to_string();
    if on.cpus(group, CPUS)? != cpus {
        on.write(group, CPUS, &list)?;
    }
    on.write(group, EXCLUSIVE, &list)?;
    if is_valid(on, group, cpus, kind)? {
        return Ok(());
    }
    // A second write does not always make an invalid partition, or one of the other type, valid.
    if on.read(group, PARTITION)? != MEMBER {
        on.write(group, PARTITION, MEMBER)?;
    }
    on.write(group, PARTITION, kind.name())?;
    if is_valid(on, group, cpus, kind)? {
        return Ok(());
    }
    // The kernel appends its reason to the state.
    let state = on.read(group, PARTITION)?;
    let effective = wording::cpus(on.cpus(group, EFFECTIVE)?);
    let wanted = wording::cpus(cpus);
    Err(KernelRefusal::Invalid(format!(
        "{group}: asked for a {kind} partition of {wanted}, got {state:?} with {effective}"
    )))
}

/// Removes `cpus`, and the CPUs of partitions beside `group`, from the ordinary cgroups beside it:
/// the kernel makes no partition of CPUs in another cgroup's `cpuset.cpus`. The answer informs the
/// runtime.
fn clear_siblings(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), FileError> {
    let Some(pod) = group.parent() else { return Ok(()) };
    let mut siblings = on.children(&pod);
    siblings.retain(|sibling| sibling != group);
    let exclusive = siblings.iter().filter_map(|sibling| on.cpus(sibling, EXCLUSIVE).ok());
    let exclusive = cpus | exclusive.collect::<CpuSet>();
    for sibling in siblings {
        let Ok(set) = on.cpus(&sibling, CPUS) else { continue };
        let rest = set - exclusive;
        let in_the_way = !set.is_disjoint(&cpus) && !rest.is_empty();
        if in_the_way && on.read(&sibling, PARTITION).is_ok_and(|state| state == MEMBER) {
            unless_gone(on.write(&sibling, CPUS, &rest.to_string()))?;
        }
    }
    Ok(())
}

pub(super) fn deadline(on: &Hierarchy) -> Instant {
    on.kernel().now() + PATIENCE
}

/// Waits until no cgroup but this one has `cpus`.
///
/// The kernel gives the CPUs of a removed partition back a while after the cgroup's directory is
/// gone. Meanwhile it still compares the cgroup with its siblings. A write of these CPUs into a
/// sibling's `cpuset.cpus`, as the runtime makes for a container that comes back, invalidates the
/// partition and all others beside it, but incompletely: their CPUs are lost, and the kernel's
/// memory is damaged (Linux 6.12: warnings in `partition_xcpus_del`, crashes minutes later).
///
/// It does not wait for partitions outside of pods: they do not end, and the kernel reports those
/// that are in the way.
pub(super) fn await_returned(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    until: Instant,
) -> Result<(), KernelRefusal> {
    let Some(top) = group.top() else { return Ok(()) };
    // The runtime may make the cgroup later.
    let own = match unless_gone(on.read(group, PARTITION))? {
        Some(state) if state != MEMBER => on.cpus(group, EFFECTIVE)?,
        _ => CpuSet::EMPTY,
    };
    await_free(on, &top, cpus - own, |other| *other != top, until)
}

/// Waits until no removed cgroup beside an ordinary one has `cpus`, which may be CPUs of existing
/// partitions. Without a removed cgroup there is no wait.
pub(super) fn await_removed(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    until: Instant,
) -> Result<(), KernelRefusal> {
    let Some(top) = group.top() else { return Ok(()) };
    let Some(pod) = group.parent() else { return Ok(()) };
    // The kernel counts a removed cgroup for some time after it has given the CPUs back.
    let stat = on.read(&pod, "cgroup.stat");
    if stat.is_ok_and(|stat| stat.lines().any(|line| line == "nr_dying_descendants 0")) {
        return Ok(());
    }
    await_free(on, &top, cpus, |_| true, until)
}

/// Checks that no partition beside an ordinary cgroup has any of `cpus`.
///
/// The write of such CPUs into `cpuset.cpus` succeeds, and damages the partition and the kernel's
/// memory as described at [`await_returned()`].
pub(super) fn check_siblings(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
) -> Result<(), KernelRefusal> {
    let Some(pod) = group.parent() else { return Ok(()) };
    let siblings = on.children(&pod).into_iter().filter(|other| other != group);
    let partitions = siblings.filter(|other| is_any(on, other));
    let held: CpuSet = partitions.filter_map(|other| on.cpus(&other, EXCLUSIVE).ok()).collect();
    let held = held & cpus;
    if held.is_empty() { Ok(()) } else { Err(KernelRefusal::Beside(held)) }
}

/// Waits until all of `cpus` are free for the cgroups in `top`, but those of partitions in the top
/// cgroups that `ignored` names.
///
/// CPUs that `top` may not use (one that came online after the kubelet's start, or a slice with
/// `AllowedCPUs=`) are never effective in it: they count as free if no partition has them.
fn await_free(
    on: &Hierarchy,
    top: &CgroupPath,
    cpus: CpuSet,
    ignored: impl Fn(&CgroupPath) -> bool,
    until: Instant,
) -> Result<(), KernelRefusal> {
    let allowed = on.cpus(top, CPUS)?;
    let barred = if allowed.is_empty() { CpuSet::EMPTY } else { cpus - allowed };
    let missing = || Ok::<_, KernelRefusal>(cpus - on.cpus(top, EFFECTIVE)? - (barred & on.free()));
    if missing()?.is_empty() {
        return Ok(());
    }
    let tops = on.tops();
    let elsewhere = tops.iter().filter(|top| ignored(top)).map(|top| partitioned_in(on, top));
    let elsewhere: CpuSet = elsewhere.collect();
    loop {
        let withheld = missing()? - elsewhere;
        if withheld.is_empty() {
            return Ok(());
        }
        if on.kernel().now() > until {
            return Err(KernelRefusal::Withheld(withheld));
        }
        on.kernel().pause(PAUSE);
    }
}

/// The CPUs of valid partitions among a cgroup and those in it.
fn partitioned_in(on: &Hierarchy, group: &CgroupPath) -> CpuSet {
    if is_valid_one(on, group) {
        return on.cpus(group, EXCLUSIVE_EFFECTIVE).unwrap_or_default();
    }
    // A partition in a cgroup gets its CPUs from the cgroup's exclusive ones.
    match on.cpus(group, EXCLUSIVE) {
        Ok(cpus) if !cpus.is_empty() => {
            on.children(group).iter().map(|child| partitioned_in(on, child)).collect()
        }
        _ => CpuSet::EMPTY,
    }
}

/// Whether a cgroup is a valid partition, of any type and CPUs.
pub(super) fn is_valid_one(on: &Hierarchy, group: &CgroupPath) -> bool {
    on.read(group, PARTITION).is_ok_and(|state| is_valid_state(&state))
}

/// The kernel appends a reason to the state of an invalid partition.
fn is_valid_state(state: &str) -> bool {
    PartitionType::ALL.iter().any(|kind| state == kind.name())
}

/// Whether a cgroup is a partition of any type, valid or not.
pub(super) fn is_any(on: &Hierarchy, group: &CgroupPath) -> bool {
    on.read(group, PARTITION).is_ok_and(|state| state != MEMBER)
}

/// Whether a cgroup is a valid partition of exactly these CPUs, of either type.
pub fn is_partition_of(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
) -> Result<bool, FileError> {
    let state = on.read(group, PARTITION)?;
    Ok(is_valid_state(&state) && on.cpus(group, EFFECTIVE)? == cpus)
}

fn is_valid(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: PartitionType,
) -> Result<bool, FileError> {
    Ok(on.read(group, PARTITION)? == kind.name() && on.cpus(group, EFFECTIVE)? == cpus)
}

/// Makes a cgroup an ordinary one, whatever it was before.
pub(super) fn release(on: &Hierarchy, group: &CgroupPath) -> Result<(), FileError> {
    if on.read(group, PARTITION)? != MEMBER {
        on.write(group, PARTITION, MEMBER)?;
    }
    if !on.read(group, EXCLUSIVE)?.is_empty() {
        on.write(group, EXCLUSIVE, "")?;
    }
    Ok(())
}

/// Reduces a cgroup's `cpuset.cpus.exclusive` to what the cgroups in it need, and returns that.
/// Cgroups removed meanwhile need nothing. A file that cannot be written keeps its value.
pub(super) fn tidy(on: &Hierarchy, group: &CgroupPath) -> CpuSet {
    let has = on.cpus(group, EXCLUSIVE).unwrap_or_default();
    let is_member = on.read(group, PARTITION).is_ok_and(|state| state == MEMBER);
    // No cgroup below one without exclusive CPUs has any. A partition manages its own CPUs.
    if has.is_empty() || !is_member {
        return has;
    }
    let needs: CpuSet = on.children(group).iter().map(|child| tidy(on, child)).collect();
    if needs == has || on.write(group, EXCLUSIVE, &needs.to_string()).is_err() {
        has
    } else {
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Files like the kernel's, in the order of the array below.
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
    fn a_cgroup_gets_no_cpus_of_a_partition_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let on = hierarchy(
            root.path(),
            &[
                ("k/pod/moved", ["1-2", "1-2", "1-2", "root"]),
                ("k/pod/shared", ["0,3-7", "", "0,3-7", MEMBER]),
            ],
        );
        let check = |cpus: &str| check_siblings(&on, &group("k/pod/shared"), cpus.parse().unwrap());
        check("0,3-7").unwrap();
        let refused = check("0,2-7").unwrap_err().to_string();
        assert_eq!(refused, "a cpuset partition beside it still has CPU 2");
        // Its own are no reason.
        check_siblings(&on, &group("k/pod/moved"), "1-4".parse().unwrap()).unwrap();
    }

    #[test]
    fn cpus_of_a_removed_group_are_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let on = hierarchy(
            root.path(),
            &[("k", ["0-7", "1-2", "0,3-7", MEMBER]), ("k/pod/own", ["1", "1", "1", "root"])],
        );
        // Its own are no reason to wait.
        await_returned(&on, &group("k/pod/own"), "1,3".parse().unwrap(), deadline(&on)).unwrap();
        let effective = root.path().join("k").join(EFFECTIVE);
        let returned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(10 * PAUSE);
                returned.store(true, Ordering::SeqCst);
                fs::write(effective, "0-7\n").unwrap();
            });
            await_returned(&on, &group("k/pod/new"), "1-2".parse().unwrap(), deadline(&on))
                .unwrap();
            assert!(returned.load(Ordering::SeqCst), "returned before the CPUs were free");
        });
        let refused =
            await_returned(&on, &group("k/pod/new"), "7-8".parse().unwrap(), deadline(&on))
                .unwrap_err();
        assert_eq!(refused.to_string(), "the kernel still holds CPU 8 for a removed cgroup");
        // No group has it, and the pods may not use it: the kernel decides what becomes of that.
        fs::write(root.path().join(EFFECTIVE), "0-8\n").unwrap();
        await_returned(&on, &group("k/pod/new"), "7-8".parse().unwrap(), deadline(&on)).unwrap();
        // They may, and do not yet.
        fs::write(root.path().join("k").join(CPUS), "0-8\n").unwrap();
        await_returned(&on, &group("k/pod/new"), "7-8".parse().unwrap(), deadline(&on))
            .unwrap_err();
    }
}
