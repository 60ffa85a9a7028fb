use super::*;
use crate::ledger::Occupant;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Files like the kernel's, where they can be remembered on.
struct Groups(TempDir);

impl Groups {
    /// Of each group the CPUs that are set for it.
    fn new(groups: &[(&str, &str)]) -> Groups {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        let made = Groups(root);
        groups.iter().for_each(|(group, cpus)| made.make(group, cpus));
        made
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn make(&self, group: &str, cpus: &str) {
        fs::create_dir_all(self.root().join(group)).unwrap();
        fs::write(self.root().join(group).join(CPUS), format!("{cpus}\n")).unwrap();
        fs::write(self.root().join(group).join(EFFECTIVE), "\n").unwrap();
    }

    fn pool(&self) -> SharedPool {
        SharedPool::new(Hierarchy::open(self.root()).unwrap())
    }

    #[track_caller]
    fn check(&self, expected: &[(&str, &str)]) {
        for (group, cpus) in expected {
            let found = fs::read_to_string(self.root().join(group).join(CPUS)).unwrap();
            assert_eq!(found.trim(), *cpus, "{group}");
        }
    }
}

fn path(group: &str) -> CgroupPath {
    CgroupPath::new(group).unwrap()
}

fn target(group: &str, exclusive: &[(&str, &str)], is_pod: bool) -> GroupTarget {
    let occupant =
        |(group, cpus): &(&str, &str)| Occupant { group: path(group), cpus: cpus.parse().unwrap() };
    GroupTarget { group: path(group), exclusive: exclusive.iter().map(occupant).collect(), is_pod }
}

fn layout(pool: &str, groups: Vec<GroupTarget>) -> Layout {
    Layout { pool: pool.parse().unwrap(), told: "0-7".parse().unwrap(), groups }
}

/// A class, a Guaranteed pod that shares CPUs, and one with exclusive CPUs and a container beside.
fn node() -> (Groups, Vec<GroupTarget>) {
    let groups = Groups::new(&[
        ("k/burstable", ""),
        ("k/podg", ""),
        ("k/pode", ""),
        ("k/pode/pause", ""),
        ("k/pode/beside", "0-7"),
        ("k/pode/main", "2-3"),
    ]);
    let targets = vec![
        target("k/burstable", &[], false),
        target("k/pode", &[("k/pode/main", "2-3")], true),
        target("k/podg", &[], true),
        target("k/gone", &[], true),
    ];
    (groups, targets)
}

#[test]
fn all_but_exclusive_containers_are_in_the_pool() {
    let (groups, targets) = node();
    let layout = layout("0-1,4-7", targets);
    let report = groups.pool().apply(&layout).unwrap();
    assert_eq!(report.written, 5);
    let expected = [
        ("k/burstable", "0-1,4-7"),
        ("k/podg", "0-1,4-7"),
        ("k/pode", "0-7"),
        ("k/pode/pause", "0-1,4-7"),
        ("k/pode/beside", "0-1,4-7"),
        ("k/pode/main", "2-3"),
    ];
    groups.check(&expected);
    let again = groups.pool().apply(&layout).unwrap();
    assert_eq!(again, PoolReport::default(), "nothing is written twice");
    // The class has emptied, and is made anew.
    groups.make("k/burstable", "");
    assert_eq!(groups.pool().apply(&layout).unwrap().written, 1);
    groups.check(&expected);
}

#[test]
fn nothing_is_left_behind() {
    let (groups, targets) = node();
    let pool = groups.pool();
    pool.apply(&layout("0-1,4-7", targets.clone())).unwrap();
    pool.apply(&layout("0-1", targets)).unwrap();
    // Four groups, and the pause container; the other one's CPUs are the ledger's.
    assert_eq!(pool.release(&path("k")).unwrap(), 4);
    groups.check(&[("k/burstable", ""), ("k/podg", ""), ("k/pode", ""), ("k/pode/pause", "")]);
    assert_eq!(pool.release(&path("k")).unwrap(), 0);
}

/// A container is to leave CPUs, and has not yet: no other one is let on them.
#[test]
fn cpus_are_left_before_others_get_them() {
    let (groups, mut targets) = node();
    groups.make("k/pode/main", "2-4");
    targets[1] = target("k/pode", &[("k/pode/main", "2-3")], true);
    let layout = layout("0-1,4-7", targets);
    let report = groups.pool().apply(&layout).unwrap();
    assert_eq!(report.withheld.to_string(), "4");
    groups.check(&[("k/burstable", "0-1,5-7"), ("k/podg", "0-1,5-7"), ("k/pode", "0-7")]);
    groups.make("k/pode/main", "2-3");
    assert!(groups.pool().apply(&layout).unwrap().withheld.is_empty());
    groups.check(&[("k/burstable", "0-1,4-7")]);
}

/// An empty list would open a group for everything.
#[test]
fn a_group_is_never_emptied() {
    let (groups, targets) = node();
    let pool = groups.pool();
    pool.apply(&layout("0-1,4-7", targets.clone())).unwrap();
    groups.make("k/pode/main", "0-7");
    let report = pool.apply(&layout("0-1,4-7", targets.clone())).unwrap();
    assert_eq!(report.withheld.to_string(), "0-1,4-7");
    groups.check(&[("k/burstable", "0-1,4-7"), ("k/podg", "0-1,4-7"), ("k/pode", "0-7")]);
    groups.make("k/pode/main", "2-3");
    pool.apply(&layout("", targets)).unwrap();
    groups.check(&[("k/burstable", "0-1,4-7"), ("k/podg", "0-1,4-7"), ("k/pode", "2-3")]);
}

#[test]
fn what_another_program_has_set_is_a_bound() {
    let (groups, targets) = node();
    groups.make("k/burstable", "0-3");
    let wide = layout("0-1,4-7", targets.clone());
    let report = groups.pool().apply(&wide).unwrap();
    let bounds: Vec<String> =
        report.bounds.iter().map(|(group, cpus)| format!("{group} {cpus}")).collect();
    assert_eq!(bounds, ["k/burstable 0-3"]);
    groups.check(&[("k/burstable", "0-1")]);
    // It changes its mind.
    groups.make("k/burstable", "0-4");
    let report = groups.pool().apply(&wide).unwrap();
    assert_eq!(report.foreign, [(path("k/burstable"), "0-4".parse().unwrap())]);
    groups.check(&[("k/burstable", "0-1,4")]);
    let refused = groups.pool().apply(&layout("5-7", targets)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "k/burstable is bound to CPUs 0-4 by another program, and none of these are shared"
    );
    groups.pool().release(&path("k")).unwrap();
    groups.check(&[("k/burstable", "0-4")]);
}

/// A crash between remembering and writing, or right after: both values are known as ours.
#[test]
fn a_crash_between_two_steps_makes_no_bound() {
    let (groups, targets) = node();
    let pool = groups.pool();
    pool.apply(&layout("0-1,4-7", targets.clone())).unwrap();
    pool.apply(&layout("0-1,4-5", targets.clone())).unwrap();
    groups.make("k/burstable", "0-1,4-7");
    let report = pool.apply(&layout("0-1,4-6", targets)).unwrap();
    assert!(report.bounds.is_empty() && report.foreign.is_empty());
    groups.check(&[("k/burstable", "0-1,4-6")]);
}

#[test]
fn the_kernel_does_otherwise() {
    let (groups, targets) = node();
    std::fs::write(groups.root().join("k/podg").join(EFFECTIVE), "0-7\n").unwrap();
    let refused = groups.pool().apply(&layout("0-1,4-7", targets)).unwrap_err();
    assert_eq!(refused.to_string(), "k/podg runs on CPUs 0-7, though CPUs 0-1,4-7 are set for it");
}

#[test]
fn hostile_memories() {
    for text in ["", ";", "0-1", "x;y;z", "0-1;2", ";;x"] {
        assert_eq!(Memory::parse(text), None, "{text:?}");
    }
    let memory =
        Memory { bound: CpuSet::EMPTY, ours: Some(["0-1".parse().unwrap(), CpuSet::EMPTY]) };
    assert_eq!(Memory::parse(&memory.text()), Some(memory));
    assert!(is_in(&path("k/poda/c"), &path("k/poda")) && !is_in(&path("k/podab"), &path("k/poda")));
}
