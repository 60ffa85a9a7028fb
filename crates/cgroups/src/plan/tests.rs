use super::super::cgroup_tree::Write;
use super::*;
use cpuset::PartitionType;

fn path(path: &str) -> CgroupPath {
    CgroupPath::new(path).unwrap()
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Cgroups with these CPUs, on a machine with eight. Leaves have processes.
fn tree(groups: &[(&str, &str)]) -> CgroupTree {
    let mut tree = CgroupTree::new(cpus("0-7"), cpus("0-7"));
    for (group, list) in groups {
        tree.put(&path(group), cpus(list));
        tree.occupy(&path(group), group.matches('/').count() > 1);
    }
    tree
}

fn goal(pool: &str, exclusive: &[(&str, &str)], tops: &[&str]) -> Goal {
    let level = |top: &str| if top.contains("pod") { CgroupLevel::Pod } else { CgroupLevel::Class };
    Goal {
        pool: cpus(pool),
        widest: cpus("0-7"),
        exclusive: exclusive.iter().map(|(group, list)| (path(group), cpus(list))).collect(),
        tops: tops.iter().map(|top| (path(top), level(top))).collect(),
        ..Goal::default()
    }
}

/// Compares the writes of a plan and their order.
#[track_caller]
fn check(tree: &mut CgroupTree, goal: &Goal, expected: &[&str]) {
    let mut writes = Vec::new();
    let mut kernel = tree.clone();
    let outcome = carry_out(tree, goal, |group, write| {
        writes.push(match write {
            Write::Cpus(cpus) => format!("{group} {cpus}"),
            Write::Exclusive(cpus) => format!("{group} exclusive {cpus}"),
            Write::Partition(kind) => {
                format!("{group} {}", kind.map_or("member", PartitionType::name))
            }
        });
        kernel.write(group, write).ok().map(|()| kernel.partition(group))
    });
    assert_eq!(writes, expected);
    assert_eq!(outcome.written, expected.len());
}

#[test]
fn two_classes_need_two_writes() {
    let mut tree = tree(&[
        ("k/burstable", ""),
        ("k/burstable/poda/c", "0-7"),
        ("k/besteffort", ""),
        ("k/besteffort/podb/c", "0-7"),
        ("k/podg", ""),
        ("k/podg/pause", ""),
    ]);
    let tops = ["k/burstable", "k/besteffort", "k/podg"];
    let goal = goal("0-1,4-7", &[("k/podg/c", "2-3")], &tops);
    let expected = ["k/podg/pause 0-1,4-7", "k/burstable 0-1,4-7", "k/besteffort 0-1,4-7"];
    check(&mut tree, &goal, &expected);
    check(&mut tree, &goal, &[]);
}

#[test]
fn a_pod_with_fewer_cpus_than_its_class_needs_one_write() {
    let mut tree = tree(&[
        ("k/burstable", ""),
        ("k/burstable/poda/c", "0-7"),
        ("k/burstable/poda/pause", ""),
        ("k/burstable/podb", ""),
        ("k/burstable/podb/c", "0-7"),
        ("k/system/burstable/podc/c", "0-7"),
    ]);
    let exclusive = [("k/podg/c", "2-3")];
    let mut one = goal("0-1,4-7", &exclusive, &["k/burstable", "k/system/burstable"]);
    one.pools = [
        ("k/burstable", "0-1,4-7"),
        ("k/burstable/poda", "0-1"),
        ("k/burstable/podb", "0-1,4-7"),
        ("k/system/burstable", "0-1"),
        ("k/system/burstable/podc", "0-1"),
    ]
    .map(|(group, list)| (path(group), cpus(list)))
    .into();
    let expected = ["k/system/burstable 0-1", "k/burstable/poda 0-1", "k/burstable 0-1,4-7"];
    check(&mut tree, &one, &expected);
    check(&mut tree, &one, &[]);
    assert_eq!(tree.effective(&path("k/burstable/poda/pause")), cpus("0-1"));
    // The pool changes, and the reserved CPUs do not.
    let mut two = Goal { pool: cpus("0-1,6-7"), ..one.clone() };
    two.exclusive.insert(path("k/podh/c"), cpus("4-5"));
    two.pools.insert(path("k/burstable"), cpus("0-1,6-7"));
    two.pools.insert(path("k/burstable/podb"), cpus("0-1,6-7"));
    check(&mut tree, &two, &["k/burstable 0-1,6-7"]);
    // The pod gets the pool of all others.
    two.pools.insert(path("k/burstable/poda"), cpus("0-1,6-7"));
    check(&mut tree, &two, &["k/burstable/poda 0-7"]);
    assert_eq!(tree.effective(&path("k/burstable/poda/c")), cpus("0-1,6-7"));
}

/// Under strict reservation the class has the CPUs of all its pods, and binds none of them.
#[test]
fn a_class_with_two_pools_gets_both_after_each_pod_has_its_own() {
    let mut tree =
        tree(&[("k/burstable", "2-7"), ("k/burstable/poda/c", ""), ("k/burstable/podb/c", "")]);
    let mut goal = goal("2-7", &[], &["k/burstable"]);
    goal.pools = [("k/burstable", "0-7"), ("k/burstable/poda", "0-1"), ("k/burstable/podb", "2-7")]
        .map(|(group, list)| (path(group), cpus(list)))
        .into();
    check(&mut tree, &goal, &["k/burstable/podb 2-7", "k/burstable 0-7", "k/burstable/poda 0-1"]);
    check(&mut tree, &goal, &[]);
}

/// As where the kubelet's system partition has none of the reserved CPUs.
#[test]
fn a_pod_whose_parent_has_no_cpu_of_its_pool_gets_the_shared_cpus_of_its_parent() {
    let mut tree = tree(&[("k/system", "4-7"), ("k/system/poda/c", "")]);
    let mut goal = goal("0-1,6-7", &[("k/podg/c", "4-5")], &["k/system/poda"]);
    goal.pools.insert(path("k/system/poda"), cpus("0-1"));
    check(&mut tree, &goal, &["k/system/poda 6-7"]);
    check(&mut tree, &goal, &[]);
}

#[test]
fn a_change_of_the_pool_writes_the_pod_and_not_its_containers() {
    let mut tree = tree(&[("k/poda", ""), ("k/poda/pause", ""), ("k/poda/side", "0-7")]);
    tree.put(&path("k/poda/c"), cpus("2-3"));
    tree.make(&path("k/podb"));
    let tops = ["k/poda", "k/podb"];
    let one = goal("0-1,4-7", &[("k/poda/c", "2-3")], &tops);
    check(&mut tree, &one, &["k/podb 0-1,4-7", "k/poda/side 0-1,4-7", "k/poda/pause 0-1,4-7"]);
    let two = goal("0-1,6-7", &[("k/poda/c", "2-3"), ("k/podb/c", "4-5")], &tops);
    check(&mut tree, &two, &["k/poda 0-3,6-7"]);
    assert_eq!(tree.effective(&path("k/poda/side")), cpus("0-1,6-7"));
}

#[test]
fn cpus_that_a_container_names_without_running_on_them_are_free_for_others() {
    let mut tree = tree(&[
        ("k/burstable", "0-1,6-7"),
        ("k/burstable/podx/c", "0-7"),
        ("k/poda", "0-3,6-7"),
        ("k/poda/c", "0-7"),
        ("k/podb", "0-1,4-7"),
        ("k/podb/c", "4-5"),
    ]);
    let exclusive = [("k/poda/c", "2-3"), ("k/podb/c", "4-5")];
    let goal = goal("0-1,6-7", &exclusive, &["k/burstable", "k/poda", "k/podb"]);
    check(&mut tree, &goal, &[]);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("0-3,6-7"));
}

#[test]
fn cpus_that_a_failed_write_leaves_occupied_are_not_entered() {
    let mut tree = tree(&[("k/burstable", ""), ("k/burstable/podx/c", ""), ("k/poda/pause", "")]);
    let goal = goal("0-1,4-7", &[("k/poda/c", "2-3")], &["k/burstable", "k/poda"]);
    let outcome = carry_out(&mut tree, &goal, |group, _| {
        if group.as_str() == "k/burstable" { None } else { Some(PartitionFiles::default()) }
    });
    assert_eq!((outcome.failed, outcome.withheld), (vec![path("k/burstable")], cpus("2-3")));
    assert_eq!(tree.cpus(&path("k/poda")), Some(cpus("0-1,4-7")));
    let outcome = carry_out(&mut tree, &goal, |_, _| Some(PartitionFiles::default()));
    assert_eq!((outcome.written, outcome.withheld), (2, CpuSet::EMPTY));
    assert_eq!(tree.cpus(&path("k/poda")), Some(cpus("0-7")));
}

/// The container's claim has become smaller, and the runtime has not changed its CPUs yet.
#[test]
fn cpus_that_a_container_has_still_to_leave_are_not_shared() {
    let mut tree = tree(&[
        ("k/burstable", "0-1"),
        ("k/burstable/podx/c", ""),
        ("k/poda", "0-7"),
        ("k/poda/c", "2-7"),
    ]);
    let goal = goal("0-1,4-7", &[("k/poda/c", "2-3")], &["k/burstable", "k/poda"]);
    let outcome = carry_out(&mut tree, &goal, |_, _| panic!("nothing to write"));
    assert_eq!(outcome.withheld, cpus("4-7"));
    tree.write(&path("k/poda/c"), Write::Cpus(cpus("2-3"))).unwrap();
    check(&mut tree, &goal, &["k/burstable 0-1,4-7"]);
}

/// As after the kubelet's own CPU manager, which changed both containers' CPUs and no pod's: each
/// container runs on all CPUs of its pod, and each pod waits for CPUs on which the other's container
/// runs.
#[test]
fn containers_whose_pods_have_none_of_their_cpus_leave_those_of_others() {
    let mut tree =
        tree(&[("k/poda", "0,4-7"), ("k/poda/c", "1-3"), ("k/podb", "0-3,7"), ("k/podb/c", "4-6")]);
    let exclusive = [("k/poda/c", "1-3"), ("k/podb/c", "4-6")];
    let goal = goal("0,7", &exclusive, &["k/poda", "k/podb"]);
    let expected = ["k/poda/c 0,7", "k/podb/c 0,7", "k/podb 0,4-7", "k/poda 0-3,7"];
    check(&mut tree, &goal, &expected);
}

#[test]
fn pods_of_a_class_are_loosened_when_its_last_exclusive_container_has_gone() {
    let mut tree =
        tree(&[("k/burstable", ""), ("k/burstable/poda/c", ""), ("k/burstable/podx/pause", "")]);
    let tight = goal("0-1,4-7", &[("k/burstable/podx/c", "2-3")], &["k/burstable"]);
    let expected = ["k/burstable/podx/pause 0-1,4-7", "k/burstable/poda 0-1,4-7"];
    check(&mut tree, &tight, &expected);
    tree.remove(&path("k/burstable/podx"));
    let loose = goal("0-5", &[("k/podg/c", "6-7")], &["k/burstable"]);
    check(&mut tree, &loose, &["k/burstable/poda 0-7", "k/burstable 0-5"]);
}

#[test]
fn exclusive_cpus_of_other_containers_are_no_bound() {
    let mut tree = tree(&[("k/burstable", "2-3"), ("k/burstable/poda/c", ""), ("k/podg/c", "2-3")]);
    let mut goal = goal("0-1,4-7", &[("k/podg/c", "2-3")], &["k/burstable"]);
    goal.bounds.insert(path("k/burstable"), cpus("2-3"));
    check(&mut tree, &goal, &["k/burstable 0-1,4-7"]);
    goal.bounds.insert(path("k/burstable"), cpus("0-4"));
    check(&mut tree, &goal, &["k/burstable 0-1,4"]);
}

#[test]
fn below_a_distrusted_class_pods_are_bound_and_below_a_distrusted_pod_its_containers() {
    let mut tree = tree(&[
        ("k/burstable", "0-7"),
        ("k/burstable/poda/c", "0-7"),
        ("k/burstable/podb/c", "0-7"),
    ]);
    let mut goal = goal("0-1,4-7", &[("k/podg/c", "2-3")], &["k/burstable"]);
    goal.distrusted = [path("k/burstable"), path("k/burstable/poda")].into();
    check(&mut tree, &goal, &["k/burstable/podb 0-1,4-7", "k/burstable/poda/c 0-1,4-7"]);
}

#[test]
fn a_pool_that_moves_altogether_leaves_every_cgroup_a_cpu_of_its_parent() {
    let mut tree = tree(&[
        ("k/burstable", "0-3"),
        ("k/burstable/poda", "0-1"),
        ("k/burstable/poda/c", ""),
        ("k/burstable/podx", "0-3"),
        ("k/burstable/podx/c", "2-3"),
        ("k/burstable/podx/pause", "0-1,4-7"),
    ]);
    let goal = goal("4-7", &[("k/burstable/podx/c", "2-3"), ("k/podg/c", "0-1")], &["k/burstable"]);
    let expected =
        ["k/burstable 0-7", "k/burstable/poda 4-7", "k/burstable/podx 2-7", "k/burstable 2-7"];
    check(&mut tree, &goal, &expected);
}

#[test]
fn a_container_that_plans_ignore_is_not_loosened() {
    let mut tree = tree(&[
        ("k/burstable", ""),
        ("k/burstable/poda", "0-3"),
        ("k/burstable/poda/c", "2-3"),
        ("k/burstable/podb/c", "5"),
    ]);
    let mut goal = goal("0-7", &[], &["k/burstable"]);
    goal.apart.insert(path("k/burstable/poda/c"));
    check(&mut tree, &goal, &["k/burstable/poda 0-7", "k/burstable/podb/c 0-7"]);
}

/// Containers whose pods get exclusive CPUs, and that run on all CPUs so far. The runtime sets the
/// rest.
#[test]
fn two_containers_on_each_others_cpus_leave_these_first() {
    let mut tree = tree(&[
        ("k/poda", "0-2,4-7"),
        ("k/poda/h", "0-7"),
        ("k/podb", "0,2-7"),
        ("k/podb/h", "0-7"),
    ]);
    let exclusive = [("k/poda/c", "3"), ("k/poda/h", "4"), ("k/podb/c", "1"), ("k/podb/h", "2")];
    let goal = goal("0,5-7", &exclusive, &["k/poda", "k/podb"]);
    let expected = ["k/poda/h 0,4-7", "k/podb/h 2", "k/podb 0-2,5-7", "k/poda 0,3-7"];
    check(&mut tree, &goal, &expected);
}

/// Another program has put a container of a loose pod on exclusive CPUs only.
#[test]
fn a_container_with_no_cpu_of_the_pool_does_not_keep_its_pod_off_the_pool() {
    let mut tree = tree(&[("k/poda", ""), ("k/poda/c", "4"), ("k/podb", "0-2"), ("k/podb/c", "1")]);
    let goal = goal("0", &[("k/podb/c", "1-7")], &["k/poda", "k/podb"]);
    check(&mut tree, &goal, &["k/poda/c 0,4", "k/poda 0", "k/poda/c 0-7", "k/podb 0-7"]);
}

/// The runtime has not moved the first container to its new claim yet. The second one uses the pool,
/// which had the first one's CPUs meanwhile, and has just got these as exclusive CPUs.
#[test]
fn a_container_leaves_the_cpus_that_its_pod_has_to_leave() {
    for pod in ["0-1,4-7", "0,4-7"] {
        let mut tree =
            tree(&[("k/poda", pod), ("k/poda/c", "4-5"), ("k/podm", "0,2-7"), ("k/podm/c", "0-7")]);
        let mut goal =
            goal("0,2-3,6-7", &[("k/poda/c", "1"), ("k/podm/c", "4-5")], &["k/poda", "k/podm"]);
        goal.mixed.insert(path("k/podm/c"));
        carry_out(&mut tree, &goal, |_, _| Some(PartitionFiles::default()));
        assert_eq!(tree.effective(&path("k/poda/c")), cpus("1"), "{pod}");
        assert_eq!(tree.effective(&path("k/poda")), cpus("0-3,6-7"), "{pod}");
        assert_eq!(tree.effective(&path("k/podm/c")), cpus("0,2-7"), "{pod}");
    }
}

/// The pool is one CPU, which the pod's exclusive container has still to leave. If its sibling waited
/// for that, it would run on the exclusive CPUs.
#[test]
fn a_container_without_another_cpu_does_not_wait_for_its_sibling() {
    let groups = [("k/poda", "1,4-5"), ("k/poda/c", ""), ("k/poda/side", "2-4")];
    let goal = goal("1", &[("k/poda/c", "4-5")], &["k/poda"]);
    check(&mut tree(&groups), &goal, &["k/poda/side 0-3,6-7"]);
}

/// Another program has put an exclusive container on all CPUs of a class, which is on its CPU. The pod's
/// cgroup cannot be written.
#[test]
fn a_class_that_waits_for_a_container_leaves_the_containers_own_cpu() {
    let groups =
        [("k/poda", ""), ("k/poda/c", "0-7"), ("k/system", "4-7"), ("k/system/podb/c", "")];
    let mut goal = goal("2-3,5-7", &[("k/poda/c", "4")], &["k/system", "k/poda"]);
    goal.pools = [(path("k/system"), cpus("0-1"))].into();
    goal.distrusted = [path("k/poda")].into();
    let expected = ["k/system 5-7", "k/poda/c 4", "k/system 0-1"];
    check(&mut tree(&groups), &goal, &expected);
}

/// Another program keeps a class to the reserved CPU and to an exclusive one.
#[test]
fn a_pod_with_no_cpu_of_its_pool_leaves_an_exclusive_one() {
    let groups = [
        ("k/burstable", "0-1"),
        ("k/burstable/poda", "0,2-7"),
        ("k/burstable/poda/c", ""),
        ("k/burstable/podb", "1"),
        ("k/burstable/podb/c", ""),
        ("k/podg/c", "0,2-4"),
    ];
    let mut goal = goal("5-7", &[("k/podg/c", "0,2-4")], &["k/burstable"]);
    let pools = [("k/burstable", "1,5-7"), ("k/burstable/poda", "5-7"), ("k/burstable/podb", "1")];
    goal.pools = pools.map(|(group, list)| (path(group), cpus(list))).into();
    goal.bounds.insert(path("k/burstable"), cpus("0-1"));
    check(&mut tree(&groups), &goal, &["k/burstable/poda 1", "k/burstable 1"]);
}

/// A container has given up CPUs, one of which is not in the pool, as those that the kernel was booted to
/// isolate.
#[test]
fn a_sibling_does_not_enter_cpus_that_its_pod_is_about_to_lose() {
    let groups = [("k/poda", "0-5,7"), ("k/poda/c", "4"), ("k/poda/side", "0-3,6")];
    let goal = goal("0-3,5", &[("k/poda/c", "4")], &["k/poda"]);
    check(&mut tree(&groups), &goal, &["k/poda/side 0-3,5-6", "k/poda 0-5"]);
}

/// Another program keeps a pod with an own pool out of it, and on CPUs of another own pool.
#[test]
fn a_pod_outside_its_own_pool_leaves_the_own_pools_of_others() {
    let groups = [("k/poda", "3-7"), ("k/poda/c", ""), ("k/podb", "3-4"), ("k/podb/c", "")];
    let mut goal = goal("0,5-7", &[], &["k/poda", "k/podb"]);
    goal.pools =
        [("k/poda", "1-2"), ("k/podb", "3-4")].map(|(pod, list)| (path(pod), cpus(list))).into();
    goal.own_pools = goal.pools.clone();
    goal.bounds.insert(path("k/poda"), cpus("3-7"));
    check(&mut tree(&groups), &goal, &["k/poda 5-7"]);
}

/// With `strict-cpu-reservation`, a class with a pod on the reserved CPU gets a pod on the others.
#[test]
fn pods_keep_to_their_pools_before_their_class_grows() {
    let groups = [("k/burstable", "0"), ("k/burstable/poda/c", ""), ("k/burstable/podb/c", "")];
    let mut goal = goal("1-7", &[], &["k/burstable"]);
    let pools = [("k/burstable", "0-7"), ("k/burstable/poda", "0"), ("k/burstable/podb", "1-7")];
    goal.pools = pools.map(|(group, list)| (path(group), cpus(list))).into();
    let expected = ["k/burstable/poda 0", "k/burstable 0-7", "k/burstable/podb 1-7"];
    check(&mut tree(&groups), &goal, &expected);
}

/// Both were created while nothing assigned CPUs. The runtime sets the CPUs of a container that it has not
/// listed, unless that is in the way.
#[test]
fn a_container_that_the_runtime_has_just_listed_gets_its_cpus_at_once() {
    let groups = [("k/podg", ""), ("k/podg/c", "0-7"), ("k/podg/pause", "")];
    let goal = goal("0-1,4-7", &[("k/podg/c", "2-3")], &["k/podg"]);
    let bound = "k/podg/pause 0-1,4-7";
    check(&mut tree(&groups), &goal, &[bound]);
    let goal = Goal { listed: [path("k/podg/c")].into(), ..goal };
    let mut tree = tree(&groups);
    check(&mut tree, &goal, &[bound, "k/podg/c 2-3"]);
    check(&mut tree, &goal, &[]);
}

/// A pod with a partition of 2-3 and another container.
fn partitioned() -> (CgroupTree, Goal) {
    let mut tree = tree(&[
        ("k/burstable", ""),
        ("k/burstable/podx/c", ""),
        ("k/poda", ""),
        ("k/poda/pause", ""),
        ("k/poda/side", "0-7"),
        ("k/poda/c", "2-3"),
    ]);
    let mut goal = goal("0-1,4-7", &[("k/poda/c", "2-3")], &["k/burstable", "k/poda"]);
    goal.partitions.insert(path("k/poda/c"));
    check(
        &mut tree,
        &goal,
        &[
            "k/poda/side 0-1,4-7",
            "k/poda/pause 0-1,4-7",
            "k/burstable 0-1,4-7",
            "k exclusive 2-3",
            "k/poda exclusive 2-3",
            "k/poda/c exclusive 2-3",
            "k/poda/c root",
        ],
    );
    goal.ours = ["k", "k/poda", "k/poda/c"].map(path).into();
    (tree, goal)
}

#[test]
fn cgroups_keep_others_off_with_and_without_a_partition() {
    let (mut tree, goal) = partitioned();
    check(&mut tree, &goal, &[]);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2-3"));
    // It ends, and nothing else has to be written.
    let goal = Goal { partitions: BTreeSet::new(), ..goal };
    let expected = ["k/poda/c member", "k/poda/c exclusive ", "k/poda exclusive ", "k exclusive "];
    check(&mut tree, &goal, &expected);
    assert_eq!(tree.effective(&path("k/burstable/podx/c")), cpus("0-1,4-7"));
}

/// A partition runs on its CPUs whatever its `cpuset.cpus` say, which count when it ends.
#[test]
fn a_listed_partition_names_its_own_cpus() {
    let (mut tree, goal) = partitioned();
    tree.put(&path("k/poda/c"), cpus("0-7"));
    check(&mut tree, &goal, &[]);
    let goal = Goal { listed: [path("k/poda/c")].into(), ..goal };
    check(&mut tree, &goal, &["k/poda/c 2-3"]);
    check(&mut tree, &goal, &[]);
}

#[test]
fn a_partition_that_has_moved_ends_on_its_new_cpus() {
    let (mut tree, mut goal) = partitioned();
    goal.exclusive = [("k/poda/c", "4-5"), ("k/podb/c", "2")]
        .map(|(leaf, claim)| (path(leaf), cpus(claim)))
        .into();
    goal.pool = cpus("0-1,3,6-7");
    goal.tops.insert(path("k/podb"), CgroupLevel::Pod);
    carry_out_on(&mut tree, &goal);
    tree.put(&path("k/podb/c"), cpus("2"));
    goal.partitions.clear();
    let expected = [
        "k/podb 0-3,6-7",
        "k/poda/c 4-5",
        "k/poda/c member",
        "k/poda/c exclusive ",
        "k/poda exclusive ",
        "k exclusive ",
    ];
    check(&mut tree, &goal, &expected);
}

/// Another program leaves its pod only CPUs of another container.
#[test]
fn a_partition_stays_while_its_end_would_put_its_container_on_exclusive_cpus_of_another() {
    let (mut tree, mut goal) = partitioned();
    goal.exclusive.insert(path("k/podb/c"), cpus("4"));
    goal.tops.insert(path("k/podb"), CgroupLevel::Pod);
    goal.pool = cpus("0-1,5-7");
    tree.put(&path("k/podb/c"), cpus("4"));
    carry_out_on(&mut tree, &goal);
    tree.put(&path("k/poda"), cpus("4"));
    goal.bounds.insert(path("k/poda"), cpus("4"));
    goal.distrusted.insert(path("k/poda"));
    goal.partitions.clear();
    let outcome = carry_out_on(&mut tree, &goal);
    assert_eq!(outcome.withheld, cpus("4"));
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2-3"));
    // A CPU of the shared pool is enough to end it.
    tree.put(&path("k/poda"), cpus("4,7"));
    goal.bounds.insert(path("k/poda"), cpus("4,7"));
    tree.put(&path("k/poda/c"), cpus("4"));
    carry_out_on(&mut tree, &goal);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("7"));
}

/// Its cgroup exists for a moment more: it delays neither its siblings nor its successor.
#[test]
fn the_partition_of_a_container_that_has_ended_ends_first() {
    let (mut tree, mut goal) = partitioned();
    goal.exclusive = [(path("k/poda/d"), cpus("2-3"))].into();
    goal.partitions = [path("k/poda/d")].into();
    let expected = [
        "k/poda/c 0-1,4-7",
        "k/poda/c member",
        "k/poda/c exclusive ",
        "k/poda exclusive ",
        "k exclusive ",
    ];
    check(&mut tree, &goal, &expected);
    tree.put(&path("k/poda/d"), cpus("2-3"));
    let expected =
        ["k exclusive 2-3", "k/poda exclusive 2-3", "k/poda/d exclusive 2-3", "k/poda/d root"];
    check(&mut tree, &goal, &expected);
}

/// The kernel ends a partition when a sibling names a CPU that the partition is about to give up, which
/// may be offline.
#[test]
fn no_sibling_names_an_offline_cpu_that_a_partition_still_has() {
    let (mut tree, mut goal) = partitioned();
    tree.set_online(cpus("0-2,4-7"));
    goal.exclusive = [(path("k/poda/c"), cpus("2,4"))].into();
    goal.pool = cpus("0-1,5-7");
    carry_out_on(&mut tree, &goal);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2,4"));
    assert_eq!(tree.cpus(&path("k/poda/side")), Some(cpus("0-1,5-7")));
}

/// Others leave the new CPUs first, and enter the old ones last.
#[test]
fn a_partition_moves_by_one_write() {
    let (mut tree, mut goal) = partitioned();
    goal.exclusive = [(path("k/poda/c"), cpus("4-5"))].into();
    goal.pool = cpus("0-3,6-7");
    let expected = [
        "k/poda/side 0-1,6-7",
        "k/poda/pause 0-1,6-7",
        "k/burstable 0-1,6-7",
        "k exclusive 2-5",
        "k/poda exclusive 2-5",
        "k/poda/c exclusive 4-5",
        "k/poda exclusive 4-5",
        "k exclusive 4-5",
        "k/poda/side 0-3,6-7",
        "k/poda/pause 0-3,6-7",
        "k/burstable 0-3,6-7",
    ];
    check(&mut tree, &goal, &expected);
    for (group, list) in [("k/poda/c", "4-5"), ("k/poda/side", "0-3,6-7")] {
        assert_eq!(tree.effective(&path(group)), cpus(list), "{group}");
    }
}

#[test]
fn partitions_that_wait_for_each_other_change_places() {
    let (mut tree, mut goal) = partitioned();
    tree.put(&path("k/podb/c"), cpus("4-5"));
    goal.tops.insert(path("k/podb"), CgroupLevel::Pod);
    goal.exclusive.insert(path("k/podb/c"), cpus("4-5"));
    goal.partitions.insert(path("k/podb/c"));
    goal.pool = cpus("0-1,6-7");
    carry_out_on(&mut tree, &goal);
    goal.ours = ["k", "k/poda", "k/poda/c", "k/podb", "k/podb/c"].map(path).into();
    for claims in [["4-5", "2-3"], ["2,4", "3,5"], ["3,5", "2"]] {
        let leaves = ["k/poda/c", "k/podb/c"];
        goal.exclusive = leaves.map(path).into_iter().zip(claims.map(cpus)).collect();
        carry_out_on(&mut tree, &goal);
        for (leaf, claim) in leaves.into_iter().zip(claims) {
            assert!(tree.is_partition(&path(leaf)), "{leaf} {claims:?}");
            assert_eq!(tree.effective(&path(leaf)), cpus(claim));
        }
    }
}

fn carry_out_on(tree: &mut CgroupTree, goal: &Goal) -> PlanOutcome {
    let mut kernel = tree.clone();
    carry_out(tree, goal, |group, write| {
        assert_eq!(hazard(&kernel, group, write), None, "{group} {write:?} {kernel:#?}");
        kernel.write(group, write).ok().map(|()| kernel.partition(group))
    })
}

/// Linux 6.12 lets the last CPU outside partitions go offline.
#[test]
fn partitions_leave_two_cpus_to_others() {
    let (mut tree, mut goal) = partitioned();
    tree.set_online(cpus("0,2-4"));
    assert_eq!(carry_out_on(&mut tree, &goal).refused.len(), 0);
    tree.set_online(cpus("0,2-3"));
    goal.pool = cpus("0");
    let outcome = carry_out_on(&mut tree, &goal);
    let why = "it would leave other cgroups fewer than 2 CPUs".to_owned();
    assert_eq!(outcome.refused, [(path("k/poda/c"), why)].into());
    goal.partitions.clear();
    carry_out_on(&mut tree, &goal);
    assert!(!tree.is_partition(&path("k/poda/c")));
}

/// A hook of the runtime may be about to use them.
#[test]
fn exclusive_cpus_that_other_programs_have_set_stay() {
    let (mut tree, goal) = partitioned();
    let goal = Goal { partitions: BTreeSet::new(), ours: BTreeSet::new(), ..goal };
    check(&mut tree, &goal, &[]);
}

#[test]
fn a_partition_that_the_kernel_refuses_stays_where_it_was_until_the_next_plan() {
    let (mut tree, mut goal) = partitioned();
    goal.exclusive = [(path("k/poda/c"), cpus("4-5"))].into();
    goal.pool = cpus("0-3,6-7");
    let mut kernel = tree.clone();
    let outcome = carry_out(&mut tree, &goal, |group, write| {
        if let Write::Exclusive(cpus) = write
            && group.as_str() == "k/poda"
            && cpus.contains(5)
        {
            return None;
        }
        kernel.write(group, write).ok().map(|()| kernel.partition(group))
    });
    let why = "k/poda cannot have CPUs 4-5 as exclusive CPUs".to_owned();
    assert_eq!(outcome.refused, [(path("k/poda/c"), why)].into());
    // It keeps its CPUs until cgroups keep others off the new ones.
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2-3"));
    goal.partitions.clear();
    carry_out_on(&mut tree, &goal);
    assert_eq!(tree.partition(&path("k/poda/c")), PartitionFiles::default());
    assert_eq!(tree.partition(&path("k")), PartitionFiles::default());
}
