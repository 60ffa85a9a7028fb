use super::super::cgroup_tree::Write;
use super::*;
use cpuset::PartitionType;

fn path(path: &str) -> CgroupPath {
    CgroupPath::new(path).unwrap()
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Groups and their CPUs, on a machine with eight of them; leaves have processes.
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

/// The writes of a plan, in order.
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

/// And no write for its containers, or for other pods.
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
    // The pod is one like all others.
    two.pools.insert(path("k/burstable/poda"), cpus("0-1,6-7"));
    check(&mut tree, &two, &["k/burstable/poda 0-7"]);
    assert_eq!(tree.effective(&path("k/burstable/poda/c")), cpus("0-1,6-7"));
}

/// Under strict reservation the class has what its pods have together, and binds none of them.
#[test]
fn a_class_with_two_pools_has_both_after_its_pods_have_one_each() {
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
fn a_pod_whose_cpus_are_not_there_stays_on_the_rest() {
    let mut tree = tree(&[("k/system", "4-7"), ("k/system/poda/c", "")]);
    let mut goal = goal("0-1,6-7", &[("k/podg/c", "4-5")], &["k/system/poda"]);
    goal.pools.insert(path("k/system/poda"), cpus("0-1"));
    check(&mut tree, &goal, &["k/system/poda 6-7"]);
    check(&mut tree, &goal, &[]);
}

#[test]
fn siblings_are_written_once_and_the_pod_cuts_them_down() {
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

/// A container's own file is no claim.
#[test]
fn a_wide_file_takes_nothing_from_others() {
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
fn what_was_not_left_is_not_entered() {
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

/// The container has a smaller claim, and the runtime has not changed it yet.
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
/// runs on all that its pod has, and each pod waits for what the other one's container runs on.
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
fn others_exclusive_cpus_are_no_bound() {
    let mut tree = tree(&[("k/burstable", "2-3"), ("k/burstable/poda/c", ""), ("k/podg/c", "2-3")]);
    let mut goal = goal("0-1,4-7", &[("k/podg/c", "2-3")], &["k/burstable"]);
    goal.bounds.insert(path("k/burstable"), cpus("2-3"));
    check(&mut tree, &goal, &["k/burstable 0-1,4-7"]);
    goal.bounds.insert(path("k/burstable"), cpus("0-4"));
    check(&mut tree, &goal, &["k/burstable 0-1,4"]);
}

/// Where a class cannot be relied on, pods are bound; where a pod cannot, its containers.
#[test]
fn below_what_cannot_be_relied_on_each_is_bound_by_itself() {
    let mut tree = tree(&[
        ("k/burstable", "0-7"),
        ("k/burstable/poda/c", "0-7"),
        ("k/burstable/podb/c", "0-7"),
    ]);
    let mut goal = goal("0-1,4-7", &[("k/podg/c", "2-3")], &["k/burstable"]);
    goal.distrusted = [path("k/burstable"), path("k/burstable/poda")].into();
    check(&mut tree, &goal, &["k/burstable/podb 0-1,4-7", "k/burstable/poda/c 0-1,4-7"]);
}

/// The pool moves to other CPUs altogether.
#[test]
fn no_cut_is_ever_empty() {
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

/// Nothing in its class is kept by groups, so that the class is loose; but its CPUs are its own.
#[test]
fn a_partition_is_not_loosened() {
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

/// Containers that get CPUs for their pods alone, and run on all CPUs so far. The rest is the
/// runtime's to set.
#[test]
fn two_on_each_others_cpus_leave_these_first() {
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

/// The runtime has not moved the first one to its new claim yet. The second one uses the pool, where
/// the first one's CPUs were meanwhile, and has got just these.
#[test]
fn a_container_leaves_what_its_pod_is_to_leave() {
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

/// The pool is one CPU, which the pod's exclusive container has still to leave: the one beside it
/// would be on that container's own until then.
#[test]
fn a_container_without_another_cpu_does_not_wait_for_its_sibling() {
    let groups = [("k/poda", "1,4-5"), ("k/poda/c", ""), ("k/poda/side", "2-4")];
    let goal = goal("1", &[("k/poda/c", "4-5")], &["k/poda"]);
    check(&mut tree(&groups), &goal, &["k/poda/side 0-3,6-7"]);
}

/// A class with a pod for the reserved CPU gets one for the others, with `strict-cpu-reservation`.
#[test]
fn pods_keep_to_their_pools_before_their_class_grows() {
    let groups = [("k/burstable", "0"), ("k/burstable/poda/c", ""), ("k/burstable/podb/c", "")];
    let mut goal = goal("1-7", &[], &["k/burstable"]);
    let pools = [("k/burstable", "0-7"), ("k/burstable/poda", "0"), ("k/burstable/podb", "1-7")];
    goal.pools = pools.map(|(group, list)| (path(group), cpus(list))).into();
    let expected = ["k/burstable/poda 0", "k/burstable 0-7", "k/burstable/podb 1-7"];
    check(&mut tree(&groups), &goal, &expected);
}

/// A pod with a partition of 2-3 and a container beside it.
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
fn a_partition_is_added_to_what_keeps_others_off() {
    let (mut tree, goal) = partitioned();
    check(&mut tree, &goal, &[]);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2-3"));
    // It ends, and nothing else has to be written.
    let goal = Goal { partitions: BTreeSet::new(), ..goal };
    let expected = ["k/poda/c member", "k/poda/c exclusive ", "k/poda exclusive ", "k exclusive "];
    check(&mut tree, &goal, &expected);
    assert_eq!(tree.effective(&path("k/burstable/podx/c")), cpus("0-1,4-7"));
}

#[test]
fn a_partition_that_has_moved_ends_where_it_is() {
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
fn a_partition_stays_whose_container_would_run_on_exclusive_cpus_of_another() {
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
    // One of the shared pool is enough to end it.
    tree.put(&path("k/poda"), cpus("4,7"));
    goal.bounds.insert(path("k/poda"), cpus("4,7"));
    tree.put(&path("k/poda/c"), cpus("4"));
    carry_out_on(&mut tree, &goal);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("7"));
}

/// Its cgroup stays for a moment: it holds up neither the containers beside it nor the next one.
#[test]
fn the_partition_of_a_container_that_has_ended_goes_first() {
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

/// The kernel ends a partition when a cgroup beside it names a CPU that it is about to give up, which
/// may be offline.
#[test]
fn an_offline_cpu_that_a_partition_still_has_is_named_by_none_beside_it() {
    let (mut tree, mut goal) = partitioned();
    tree.set_online(cpus("0-2,4-7"));
    goal.exclusive = [(path("k/poda/c"), cpus("2,4"))].into();
    goal.pool = cpus("0-1,5-7");
    carry_out_on(&mut tree, &goal);
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2,4"));
    assert_eq!(tree.cpus(&path("k/poda/side")), Some(cpus("0-1,5-7")));
}

/// Others leave the new CPUs first, and come to the old ones last.
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

/// Linux 6.12 lets the last CPU of all others go offline.
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

/// What other programs have set stays: a hook of the runtime may be about to use it.
#[test]
fn exclusive_cpus_of_others_stay() {
    let (mut tree, goal) = partitioned();
    let goal = Goal { partitions: BTreeSet::new(), ours: BTreeSet::new(), ..goal };
    check(&mut tree, &goal, &[]);
}

#[test]
fn a_partition_that_the_kernel_does_not_make_is_none() {
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
    // It is where it was, until others are kept off by other means.
    assert_eq!(tree.effective(&path("k/poda/c")), cpus("2-3"));
    goal.partitions.clear();
    carry_out_on(&mut tree, &goal);
    assert_eq!(tree.partition(&path("k/poda/c")), PartitionFiles::default());
    assert_eq!(tree.partition(&path("k")), PartitionFiles::default());
}
