//! Several passes over copies of the kernel's files. How the kernel reacts to writes is tested with the
//! model, not here.

#![allow(clippy::disallowed_methods, reason = "the tests make a copy of the kernel's files")]

use super::super::layout::{ContainerCpus, ContainerGroup, PodGroup};
use super::*;
use kernel::{Kernel, Linux};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

struct Node {
    root: TempDir,
    groups: Groups,
    /// All of them run.
    pods: Vec<&'static str>,
    /// Exclusive containers in addition to `kubepods/podg/c`, which has the rest of the CPUs.
    exclusive: BTreeMap<CgroupPath, CpuSet>,
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
        let pods = vec!["kubepods/burstable/poda", "kubepods/podg"];
        let node = Node {
            root,
            groups: Groups::new(on, CgroupRecords::default(), PartitionType::Root),
            pods,
            exclusive: [].into(),
        };
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

    /// Makes a pass with this pool; returns the CPUs of the class.
    fn follow(&mut self, pool: &str) -> String {
        self.report(pool);
        self.get(CLASS)
    }

    fn report(&mut self, pool: &str) -> Report {
        self.pass(pool, Scope::All)
    }

    fn pass(&mut self, pool: &str, scope: Scope) -> Report {
        self.pass_at(pool, scope, Instant::now())
    }

    fn pass_at(&mut self, pool: &str, scope: Scope, now: Instant) -> Report {
        let rest = self.exclusive.values().fold(cpus("0-7") - cpus(pool), |rest, own| rest - *own);
        let mut exclusive = self.exclusive.clone();
        exclusive.insert(path("kubepods/podg/c"), rest);
        let mut layout = Layout::new(cpus(pool), cpus("0-7"));
        for pod in &self.pods {
            let group = path(pod);
            let top = match group.parent() {
                Some(class) if class == path(CLASS) => CgroupLevel::Class,
                _ => CgroupLevel::Pod,
            };
            let containers = exclusive.iter().filter(|(container, _)| container.is_below(&group));
            let containers = containers.map(|(container, cpus)| ContainerGroup {
                group: container,
                cpus: ContainerCpus::Exclusive(cpus),
            });
            let kept_from_siblings = CpuSet::EMPTY;
            let pool = cpus(pool);
            let group = group.clone();
            let own_pool = CpuSet::EMPTY;
            let pod = PodGroup { group, top, pool, own_pool, kept_from_siblings, running: true };
            layout.add(pod, containers);
        }
        self.groups.follow(&layout, scope, now)
    }

    /// Gives a container processes.
    fn run(&self, container: &str) {
        let directory = self.root.path().join(container);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        for group in [path(container), path(container).parent().unwrap()] {
            let file = self.root.path().join(group.as_str()).join(CPUS);
            if !file.exists() {
                fs::write(file, "\n").unwrap();
            }
        }
    }
}

/// Sets CPUs as another program would, and again after they were replaced.
fn defend(node: &mut Node, list: &str) {
    node.set(CLASS, list);
    node.follow("0-5");
    node.set(CLASS, list);
}

#[test]
fn a_value_that_another_program_sets_again_is_a_bound() {
    let mut node = Node::new();
    assert_eq!(node.follow("0-5"), "0-5");
    node.set(CLASS, "0-7");
    assert_eq!(node.follow("0-5"), "0-5");
    node.set(CLASS, "0-3,7");
    assert_eq!(node.follow("0-5"), "0-5", "one write alone is replaced");
    assert_eq!(node.report("0-5").bounds, BTreeMap::new());
    node.set(CLASS, "0-3,7");
    for _ in 0..20 {
        assert_eq!(node.follow("0-5"), "0-3");
    }
    assert_eq!(node.follow("2-5"), "2-3");
    // The bound is the value as written: what was exclusive at that moment counts when it is shared.
    assert_eq!(node.follow("0-7"), "0-3,7");
    // While none of these CPUs is shared, it has no effect, but it is remembered.
    assert_eq!(node.follow("4-6"), "4-6");
    let report = node.report("0-7");
    assert_eq!(report.bounds[&path(CLASS)].cpus, cpus("0-3,7"));
    assert_eq!(report.distrusted, BTreeMap::new());
}

#[test]
fn a_write_of_all_cpus_removes_a_bound_at_any_time() {
    for pool in ["0-5", "0-7"] {
        let mut node = Node::new();
        node.follow(pool);
        defend(&mut node, "0-3");
        node.follow(pool);
        assert_eq!(node.report(pool).bounds.len(), 1);
        node.set(CLASS, "0-7");
        assert_eq!(node.follow(pool), pool);
        assert_eq!(node.report(pool).bounds, BTreeMap::new());
    }
}

/// They may be those that an uninstall has left: it sets all CPUs in cgroups with pods.
#[test]
fn values_from_before_the_first_pass_are_replaced() {
    for before in ["0-7", "0-3"] {
        let mut node = Node::new();
        node.set(CLASS, before);
        assert_eq!(node.follow("0-5"), "0-5");
        assert_eq!(node.follow("0-7"), "0-7");
        assert_eq!(node.report("0-7").bounds, BTreeMap::new());
    }
}

/// A bound is not stored: a program that still defends it sets it again.
#[test]
fn a_bound_ends_with_the_process() {
    let mut node = Node::new();
    node.follow("0-5");
    defend(&mut node, "0-3");
    assert_eq!(node.follow("0-5"), "0-3");
    let records = node.groups.records.clone();
    node.groups = Groups::new(node.groups.on.clone().unwrap(), records, PartitionType::Root);
    assert_eq!(node.follow("0-5"), "0-5");
    defend(&mut node, "0-3");
    assert_eq!(node.follow("0-5"), "0-3");
}

#[test]
fn a_class_without_pods_is_still_observed() {
    let mut node = Node::new();
    node.follow("0-5");
    defend(&mut node, "0-3");
    assert_eq!(node.follow("0-5"), "0-3");
    node.pods.remove(0);
    node.set(CLASS, "0-7");
    assert_eq!(node.follow("0-5"), "0-5");
    assert_eq!(node.report("0-5").bounds, BTreeMap::new());
    let file = node.root.path().join(CLASS).join(CPUS);
    assert_eq!(node.groups.watched().get(&file), Some(&Watched::File));
}

/// A value there can exclude the CPUs of a pod that must have fewer than others.
#[test]
fn a_class_that_needs_no_value_is_watched() {
    let mut node = Node::new();
    assert_eq!(node.follow("0-7"), "");
    let file = node.root.path().join(CLASS).join(CPUS);
    assert_eq!(node.groups.watched().get(&file), Some(&Watched::File));
}

#[test]
fn a_cgroup_that_another_program_keeps_changing_is_left_to_it() {
    let mut node = Node::new();
    node.set("kubepods/burstable/poda/c", "0-7");
    for _ in 0..6 {
        node.follow("0-5");
        node.set(CLASS, "0-6");
    }
    let report = node.report("0-5");
    assert_eq!(report.distrusted.len(), 1);
    assert_eq!([node.get(CLASS), node.get("kubepods/burstable/poda")], ["0-6", "0-5"]);
    assert_eq!(node.report("0-5").written, 0);
}

/// `status` names it as the remedy for a bound, so whoever applies it is not in a fight.
#[test]
fn writes_of_all_cpus_are_replaced_however_many_there_are() {
    let mut node = Node::new();
    for _ in 0..20 {
        assert_eq!(node.follow("0-5"), "0-5");
        node.set(CLASS, "0-7");
    }
    let report = node.report("0-5");
    assert_eq!((report.distrusted, report.bounds), (BTreeMap::new(), BTreeMap::new()));
    assert_eq!(node.get(CLASS), "0-5");
}

/// The kubelet or systemd removes a class with its last pod, and makes it again without CPUs. As nothing
/// is exclusive, no pass writes it.
#[test]
fn a_class_that_needs_no_value_is_relied_on_after_it_was_made_again() {
    let mut node = Node::new();
    let container = "kubepods/burstable/poda/c";
    node.run(container);
    assert_eq!(node.follow("0-5"), "0-5");
    node.set(CLASS, "0-7");
    assert_eq!(node.follow("0-7"), "0-7");
    fs::remove_dir_all(node.root.path().join(CLASS)).unwrap();
    node.run(container);
    node.set(CLASS, "");
    for _ in 0..20 {
        assert_eq!(node.report("0-7").distrusted, BTreeMap::new());
        assert_eq!(node.get(CLASS), "");
    }
}

/// systemd clears slices that it realises. Here the containers of the class ended in between, which no
/// event has reported, and new ones run when the class is read.
#[test]
fn a_class_that_was_cleared_while_no_container_ran_is_set_again_and_still_trusted() {
    let mut node = Node::new();
    for round in 0..20 {
        let container = format!("kubepods/burstable/poda/c{round}");
        node.run(&container);
        assert_eq!(node.follow("0-5"), "0-5");
        fs::remove_dir_all(node.root.path().join(&container)).unwrap();
        node.run("kubepods/burstable/poda/next");
        node.set(CLASS, "");
    }
    let report = node.report("0-5");
    assert_eq!((report.distrusted, report.bounds), (BTreeMap::new(), BTreeMap::new()));
}

/// The same container ran in it all the time, so this kernel lets populated cgroups be cleared. One
/// occurrence proves nothing. Other cgroups are still relied on, and the class is set again.
#[test]
fn where_a_class_is_cleared_under_containers_each_pod_is_bound() {
    let mut node = Node::new();
    let container = "kubepods/burstable/poda/c";
    node.run(container);
    node.set(container, "0-7");
    node.follow("0-5");
    node.set(CLASS, "");
    let report = node.report("0-5");
    assert_eq!((report.distrusted, node.get(container)), (BTreeMap::new(), "0-7".to_owned()));
    node.set(CLASS, "");
    // A check of binding cgroups is enough to notice it.
    let report = node.pass("0-5", Scope::Binding);
    assert_eq!(report.distrusted.into_keys().collect::<Vec<_>>(), [path(CLASS)]);
    assert_eq!([node.get(CLASS), node.get("kubepods/burstable/poda")], ["0-5", "0-5"]);
    let new = "kubepods/burstable/podb";
    node.run(&format!("{new}/c"));
    node.pods.push(new);
    for pool in ["0-3", "0-6"] {
        node.pass(pool, Scope::Binding);
        let bound = [CLASS, "kubepods/burstable/poda", new].map(|group| node.get(group));
        assert_eq!(bound, [pool; 3]);
    }
    let file = node.root.path().join(new).join(CPUS);
    assert_eq!(node.groups.watched().get(&file), Some(&Watched::File));
}

#[test]
fn the_cgroup_of_a_new_pod_is_bound_before_the_runtime_reports_the_pod() {
    let mut node = Node::new();
    node.follow("0-5");
    let root = node.root.path().join("kubepods");
    assert_eq!(node.groups.watched().get(&root), Some(&Watched::Directory));
    for (group, bound) in [("podnew", "0-5"), ("besteffort", "0-5"), ("other", "")] {
        node.set(&format!("kubepods/{group}"), "");
        node.groups.created(&[root.join(group)]);
        node.pass("0-5", Scope::Binding);
        assert_eq!(node.get(&format!("kubepods/{group}")), bound);
    }
    node.pass("0-3", Scope::Binding);
    assert_eq!(
        ["podnew", "besteffort"].map(|group| node.get(&format!("kubepods/{group}"))),
        ["0-3"; 2]
    );
    // A cgroup that is gone is forgotten.
    fs::remove_dir_all(root.join("podnew")).unwrap();
    node.pass("0-3", Scope::Binding);
    assert_eq!(node.groups.unnamed.len(), 2);
}

/// With the cgroupfs driver a class exists before its first pod.
#[test]
fn a_class_is_bound_before_its_first_pod() {
    let mut node = Node::new();
    node.set("kubepods/besteffort", "");
    for pool in ["0-5", "0-3"] {
        node.follow(pool);
        assert_eq!(node.get("kubepods/besteffort"), pool);
    }
}

#[test]
fn after_a_loss_of_the_memory_the_value_that_would_be_written_is_no_bound() {
    let mut node = Node::new();
    node.set(CLASS, "0-5");
    assert_eq!(node.follow("0-5"), "0-5");
    assert_eq!(node.follow("0-7"), "0-7");
}

#[test]
fn after_a_loss_of_the_memory_a_container_that_shares_cpus_is_a_partition_no_longer() {
    let mut node = Node::new();
    let container = "kubepods/burstable/poda/c";
    node.set(container, "7");
    let file = |group: &str, name: &str| node.root.path().join(group).join(name);
    fs::write(file("", "cpuset.cpus.effective"), "0-6\n").unwrap();
    for group in ["kubepods", CLASS, "kubepods/burstable/poda", container] {
        for name in ["cpuset.cpus.exclusive", "cpuset.cpus.exclusive.effective"] {
            fs::write(file(group, name), "7\n").unwrap();
        }
    }
    fs::write(file(container, "cpuset.cpus.effective"), "7\n").unwrap();
    let partition = file(container, PARTITION);
    fs::write(&partition, "root\n").unwrap();
    node.follow("0-7");
    assert_eq!(fs::read_to_string(partition).unwrap().trim(), "member");
}

/// As where the runtime names cgroups of another hierarchy, because the node is a container.
#[test]
fn a_running_pod_whose_cgroup_is_not_in_the_hierarchy_is_reported() {
    let mut node = Node::new();
    node.pods.push("node/kubepods/podx");
    node.follow("0-5");
    let report = node.report("0-5");
    let unbound: Vec<String> = report.unbound.keys().map(ToString::to_string).collect();
    assert_eq!(unbound, ["node/kubepods/podx"]);
    node.set("node/kubepods/podx", "");
    assert!(node.report("0-5").unbound.is_empty());
}

/// Observed: after a restart the runtime never reports the end of some pods.
#[test]
fn a_pod_whose_cgroup_is_gone_from_an_existing_one_counts_as_ended() {
    let mut node = Node::new();
    node.follow("0-5");
    assert_eq!(node.report("0-5").unbound, BTreeMap::new(), "kubepods/podg does not exist");
}

#[test]
fn undoing_restores_the_values_from_before_the_first_pass() {
    let mut node = Node::new();
    node.set(CLASS, "0-6");
    node.set("kubepods/podg", "");
    node.set("kubepods/podg/pause", "");
    node.follow("0-5");
    assert_eq!([node.get(CLASS), node.get("kubepods/podg/pause")], ["0-5", "0-5"]);
    let undone = node.groups.undo(cpus("0-7"));
    assert!(undone.groups >= 2 && undone.errors.is_empty(), "{undone:?}");
    assert_eq!([node.get(CLASS), node.get("kubepods/podg/pause")], ["0-6", ""]);
    assert_eq!(node.groups.undo(cpus("0-7")).groups, 0);
}

/// Refuses all writes into one container's cgroup.
#[derive(Debug, Default)]
struct Refusing {
    tries: AtomicUsize,
}

impl Kernel for Refusing {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Linux.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if !path.parent().unwrap().ends_with("podg/refused") {
            return Linux.write(path, text);
        }
        self.tries.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::StorageFull.into())
    }

    fn check_writable(&self, path: &Path) -> io::Result<()> {
        Linux.check_writable(path)
    }

    fn entries(&self, path: &Path) -> io::Result<kernel::Entries> {
        Linux.entries(path)
    }

    fn number(&self, path: &Path) -> io::Result<u64> {
        Linux.number(path)
    }

    fn set_affinity(&self, thread: u32, cpus: CpuSet) -> io::Result<()> {
        Linux.set_affinity(thread, cpus)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Linux.resolve(path)
    }

    fn own_process(&self) -> u32 {
        Linux.own_process()
    }
}

#[test]
fn a_refused_value_is_written_again_after_a_second_and_another_value_at_once() {
    let mut node = Node::new();
    for group in ["kubepods/podg", "kubepods/podg/c", "kubepods/podg/refused"] {
        node.set(group, "0-7");
    }
    let kernel = Arc::new(Refusing::default());
    let on = Hierarchy::open_on(Arc::clone(&kernel) as Arc<dyn Kernel>, node.root.path()).unwrap();
    node.groups = Groups::new(on, CgroupRecords::default(), PartitionType::Root);
    let start = Instant::now();
    for (pool, after, tries) in
        [("0-5", 0, 1), ("0-5", 10, 1), ("0-4", 20, 2), ("0-4", 900, 2), ("0-4", 1100, 3)]
    {
        let now = start + Duration::from_millis(after);
        let report = node.pass_at(pool, Scope::Binding, now);
        assert_eq!(kernel.tries.load(Ordering::Relaxed), tries, "{pool} after {after} ms");
        let unbound: Vec<&str> = report.unbound.keys().map(CgroupPath::as_str).collect();
        assert_eq!(unbound, ["kubepods/podg"]);
    }
}

/// A pass sets these before the runtime does if a container is in the way of another. At an uninstall
/// the runtime has set them as well, so it would not correct another value.
#[test]
fn undoing_leaves_containers_their_exclusive_cpus() {
    let mut node = Node::new();
    let container = "kubepods/podg/c";
    node.pods.push("kubepods/podh");
    node.exclusive.insert(path("kubepods/podh/c"), cpus("6"));
    for (group, list) in
        [("kubepods/podg", ""), (container, "6"), ("kubepods/podh", ""), ("kubepods/podh/c", "6")]
    {
        node.set(group, list);
    }
    node.follow("0-5");
    assert_eq!([node.get(CLASS), node.get(container)], ["0-5", "7"]);
    let undone = node.groups.undo(cpus("0-7"));
    assert!(undone.errors.is_empty(), "{undone:?}");
    assert_eq!([node.get(CLASS), node.get(container)], ["", "7"]);
}

/// Containers that were created while this program was away run on all CPUs. The runtime sets their
/// exclusive ones, unless it has just listed them.
#[test]
fn listed_containers_are_pinned_in_one_pass_and_left_to_the_runtime_from_then_on() {
    let mut node = Node::new();
    let leaf = "kubepods/podg/c";
    node.set("kubepods/podg", "");
    node.set(leaf, "0-7");
    assert_eq!(node.pass("0-5", Scope::All).pinned, BTreeSet::new());
    assert_eq!(node.get(leaf), "0-7");
    assert_eq!(node.pass("0-5", Scope::Listed).pinned, BTreeSet::from([path(leaf)]));
    assert_eq!(node.get(leaf), "6-7");
    assert_eq!(node.groups.records.get(&path(leaf)), None, "an uninstall reverts nothing there");
    node.set(leaf, "0-7");
    assert_eq!(node.report("0-5").pinned, BTreeSet::new());
    assert_eq!(node.get(leaf), "0-7");
    // It is listed before it starts: its cgroup comes later.
    fs::remove_dir_all(node.root.path().join(leaf)).unwrap();
    assert_eq!(node.pass("0-5", Scope::Listed).pinned, BTreeSet::new());
    node.set(leaf, "0-7");
    assert_eq!(node.pass("0-5", Scope::Binding).pinned, BTreeSet::from([path(leaf)]));
    assert_eq!(node.get(leaf), "6-7");
}
