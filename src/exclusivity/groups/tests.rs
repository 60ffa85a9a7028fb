//! What lasts between two looks, with files like the kernel's. What the kernel makes of them is the
//! model's business.

use super::super::goal::PodGroup;
use super::*;
use std::fs;
use tempfile::TempDir;

struct Node {
    root: TempDir,
    groups: Groups,
}

const CLASS: &str = "kubepods/burstable";

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn path(group: &str) -> CgroupPath {
    CgroupPath::new(group).unwrap()
}

impl Node {
    fn new() -> Node {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        fs::write(root.path().join("cpuset.cpus.effective"), "0-7\n").unwrap();
        let on = Hierarchy::open(root.path()).unwrap();
        let node = Node { root, groups: Groups::new(on, Memory::default()) };
        node.set("kubepods", "");
        node.set(CLASS, "");
        node.set("kubepods/burstable/poda", "");
        node
    }

    fn set(&self, group: &str, list: &str) {
        let directory = self.root.path().join(group);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(CPUS), format!("{list}\n")).unwrap();
    }

    fn get(&self, group: &str) -> String {
        fs::read_to_string(self.root.path().join(group).join(CPUS)).unwrap().trim().to_owned()
    }

    /// Follows a pool beside an exclusive container; returns what is set for the class.
    fn follow(&mut self, pool: &str) -> String {
        self.report(pool);
        self.get(CLASS)
    }

    fn report(&mut self, pool: &str) -> Report {
        let pods = [("a", "kubepods/burstable/poda"), ("g", "kubepods/podg")];
        let place = |(uid, group): (&str, &str)| PodGroup {
            uid: PodUid(uid.to_owned()),
            group: path(group),
            running: true,
        };
        let goal = Goal {
            pool: cpus(pool),
            widest: cpus("0-7"),
            exclusive: [(path("kubepods/podg/c"), cpus("0-7") - cpus(pool))].into(),
            tops: [(path(CLASS), CgroupLevel::Class), (path("kubepods/podg"), CgroupLevel::Pod)]
                .into(),
            ..Goal::default()
        };
        let layout = Layout { goal, pods: pods.map(place).into(), ..Layout::default() };
        self.groups.follow(&layout, Scope::All)
    }
}

/// One write of an administrator counts once, however often the group is looked at.
#[test]
fn a_value_of_another_program_is_a_bound() {
    let mut node = Node::new();
    assert_eq!(node.follow("0-5"), "0-5");
    node.set(CLASS, "0-3,7");
    for _ in 0..20 {
        assert_eq!(node.follow("0-5"), "0-3");
    }
    assert_eq!(node.follow("2-5"), "2-3");
    // Exclusive CPUs were no part of it. If nothing else is, it is none, and nothing is given up.
    assert_eq!(node.follow("4-7"), "4-7");
    let report = node.report("0-7");
    assert_eq!(report.bounds, [(CLASS.to_owned(), cpus("0-3"))]);
    assert_eq!(report.distrusted, []);
}

#[test]
fn a_program_that_does_not_give_in_is_not_outfought() {
    let mut node = Node::new();
    node.set("kubepods/burstable/poda/c", "0-7");
    for _ in 0..6 {
        node.follow("0-5");
        node.set(CLASS, "0-7");
    }
    let report = node.report("0-5");
    assert_eq!(report.distrusted.len(), 1);
    assert_eq!([node.get(CLASS), node.get("kubepods/burstable/poda")], ["0-7", "0-5"]);
    assert_eq!(node.report("0-5").written, 0);
}

/// systemd clears slices that it realises.
#[test]
fn a_cleared_value_is_set_again_and_counted_against_nobody() {
    let mut node = Node::new();
    node.groups.empties_populated = false;
    for _ in 0..20 {
        assert_eq!(node.follow("0-5"), "0-5");
        node.set(CLASS, "");
        node.groups.witnesses.clear();
    }
    let report = node.report("0-5");
    assert_eq!((report.distrusted, report.bounds), (vec![], vec![]));
}

/// A pod ran in it all the time, so this kernel lets populated groups be cleared.
#[test]
fn where_classes_can_be_cleared_at_any_time_pods_containers_are_bound() {
    let mut node = Node::new();
    node.set("kubepods/burstable/poda/c", "0-7");
    node.follow("0-5");
    node.set(CLASS, "");
    node.report("0-5");
    assert_eq!(node.get("kubepods/burstable/poda/c"), "0-5");
}

/// After a loss of the memory the value that would be written is no bound.
#[test]
fn what_would_be_written_is_not_anothers() {
    let mut node = Node::new();
    node.set(CLASS, "0-5");
    assert_eq!(node.follow("0-5"), "0-5");
    assert_eq!(node.follow("0-7"), "0-7");
}

#[test]
fn a_group_that_is_not_there_is_said() {
    let mut node = Node::new();
    node.follow("0-5");
    let report = node.report("0-5");
    let unbound: Vec<String> = report.unbound.keys().map(ToString::to_string).collect();
    assert_eq!(unbound, ["g"]);
    node.set("kubepods/podg", "");
    assert!(node.report("0-5").unbound.is_empty());
}

#[test]
fn all_of_it_can_be_undone() {
    let mut node = Node::new();
    node.set(CLASS, "0-6");
    node.set("kubepods/podg", "");
    node.set("kubepods/podg/pause", "");
    node.follow("0-5");
    assert_eq!([node.get(CLASS), node.get("kubepods/podg/pause")], ["0-5", "0-5"]);
    let released = node.groups.release(cpus("0-7"));
    assert!(released.groups >= 2 && released.errors.is_empty(), "{released:?}");
    assert_eq!([node.get(CLASS), node.get("kubepods/podg/pause")], ["0-6", ""]);
    assert_eq!(node.groups.release(cpus("0-7")).groups, 0);
}
