use super::*;
use crate::process;

const REBALANCE: Changes = Changes { rebalance: true, resizes: false, hotplug: false };

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn own() -> CpuSet {
    process::allowed(std::process::id()).unwrap()
}

fn witness_of(held: &str) -> Witness {
    let witness = Witness::new(own(), Changes::default(), false);
    witness.observed().held.insert("pod/c0".to_owned(), cpus(held));
    witness.watch("0123456789abcdef", "pod", "c0", std::process::id());
    witness
}

#[test]
fn exclusive_cpus_are_remembered_until_the_pod_ends() {
    let witness = Witness::new(cpus("0"), Changes::default(), false);
    let look = |list: &str| {
        let mut observed = witness.observed();
        witness.compare(&mut observed, "pod/c0", cpus(list), false);
        (observed.exclusive, observed.moved)
    };
    assert_eq!(look("15"), (1, 0));
    // Restarted without the plugin, it gets its CPUs later.
    assert_eq!(look("0-15"), (1, 0));
    assert_eq!(look("15"), (1, 0));
    // Or others.
    assert_eq!(look("0-15"), (1, 0));
    assert_eq!(look("11"), (1, 1));
    witness.forget_pod("pod");
    assert_eq!(look("7"), (2, 1));
}

#[test]
fn a_finding_has_the_history_of_its_container() {
    let witness = Witness::new(cpus("0"), Changes::default(), false);
    witness.watch("0123456789abcdef", "pod", "c0", std::process::id());
    witness.forget("0123456789abcdef");
    witness.record("pod", "c0", "creation refused");
    witness.record("pod", "c1", "unrelated");
    witness.killed(3);
    {
        let mut observed = witness.observed();
        for list in ["15", "11"] {
            witness.compare(&mut observed, "pod/c0", cpus(list), false);
        }
    }
    let mut summary = Summary::default();
    witness.testify(&mut summary);
    let [finding] = &summary.findings[..] else { panic!("{:?}", summary.findings) };
    for part in [
        "(after kill 3 at ",
        "pod/c0 moved from 15 to 11\n",
        "0123456789ab started",
        "0123456789ab stopped",
        "creation refused",
    ] {
        assert!(finding.contains(part), "{part} is not in\n{finding}");
    }
    assert!(!finding.contains("unrelated"), "{finding}");
}

#[test]
fn an_exclusive_container_that_shares_at_rest_has_moved() {
    let witness = witness_of("15");
    let deprived = witness.deprived();
    assert_eq!(deprived, [("pod/c0".to_owned(), own())]);
    witness.observed().deprive("pod/c0", own());
    assert_eq!(witness.observed().moved, 1);
    // It counts once.
    assert_eq!(witness.deprived(), []);
    // Others never had any, and an ended container has nothing to lose.
    witness.watch("another", "pod", "c1", std::process::id());
    witness.observed().held.insert("pod/c2".to_owned(), cpus("3"));
    assert_eq!(witness.deprived(), []);
}

#[test]
fn moves_to_as_many_cpus_count_apart_if_the_plugin_logged_them() {
    let witness = Witness::new(cpus("0"), REBALANCE, false);
    let look = |list: &str| {
        let mut observed = witness.observed();
        witness.compare(&mut observed, "pod/c0", cpus(list), false);
        (observed.rebalanced.len(), observed.moved)
    };
    assert_eq!(look("4-5"), (0, 0));
    assert_eq!(look("8-9"), (1, 0));
    assert_eq!(look("9-10"), (2, 0));
    // No move changes the number.
    assert_eq!(look("10"), (2, 1));
    witness.compare_with("storm/pod/c0: moved from exclusive CPUs 4-5 to 8-9: pod/d fits");
    let mut summary = Summary::default();
    witness.testify(&mut summary);
    assert_eq!((summary.rebalanced, summary.moved), (Some(1), 2));
}

#[test]
fn a_container_with_two_sets_at_rest_is_midway() {
    let all = own();
    let witness = Witness::new(CpuSet::EMPTY, REBALANCE, false);
    witness.watch("0123456789abcdef", "pod", "c0", std::process::id());
    witness.observed().held.insert("pod/c0".to_owned(), all);
    assert_eq!(witness.midway(), Vec::<String>::new());
    witness.observed().held.insert("pod/c0".to_owned(), all - all.lowest(1));
    assert_eq!(witness.midway(), ["pod/c0"]);
    witness.check();
    assert_eq!(witness.observed().moved, 0);
    witness.look(true);
    assert_eq!(witness.observed().moved, 1);
}

#[test]
fn a_resize_is_known_until_a_pass_has_seen_it() {
    let resizes = Changes { resizes: true, ..Changes::default() };
    let witness = Witness::new(cpus("0"), resizes, false);
    let look = |list: &str| {
        let mut observed = witness.observed();
        let asked = observed.asked();
        witness.compare(&mut observed, "pod/c0", cpus(list), false);
        observed.forget_requests(&asked);
        (observed.resized, observed.moved)
    };
    witness.requests("pod", "c0", 2);
    // Not its number of CPUs yet.
    assert_eq!(look("4"), (0, 0));
    assert_eq!(look("4-5"), (0, 0));
    witness.requests("pod", "c0", 3);
    assert_eq!(look("4-5"), (0, 0));
    assert_eq!(look("4-6"), (1, 0));
    // Refused.
    witness.requests("pod", "c0", 4);
    witness.requests("pod", "c0", 3);
    assert_eq!(look("4-6"), (1, 0));
    assert_eq!(look("4-7"), (1, 1));
}

#[test]
fn an_offline_cpu_may_be_replaced_once() {
    let hotplug = Changes { hotplug: true, ..Changes::default() };
    let witness = Witness::new(cpus("0"), hotplug, false);
    let look = |list: &str| {
        witness.compare(&mut witness.observed(), "pod/c0", cpus(list), false);
        witness.observed().moved
    };
    assert_eq!(look("4-5"), 0);
    witness.loses(cpus("5"));
    assert_eq!(look("4"), 0);
    assert_eq!(look("4,6"), 0);
    witness.regains(cpus("5"));
    assert_eq!(look("4-5"), 1);
    // It got this one just before.
    witness.loses(cpus("7"));
    assert_eq!(look("5,7"), 2);
    assert_eq!(look("5-6"), 2);
}
