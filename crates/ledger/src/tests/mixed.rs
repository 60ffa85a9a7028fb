//! Containers that use shared CPUs in addition to their exclusive ones (`cpus: exclusive+shared`).

use super::pod_options::{allowing, asking, node, node_with, resize};
use super::*;
use cpuset::CgroupPath;

const MIXED: &[(&str, &str)] = &[("cpus", "exclusive+shared")];

fn reach(node: &Node, id: &str) -> (String, String) {
    let reach = node.ledger.reach(&ContainerId(id.into())).unwrap();
    (reach.exclusive.to_string(), reach.shared.to_string())
}

#[test]
fn a_mixed_container_has_its_own_cpus_and_follows_the_pool() {
    let mut node = node();
    let a = asking(guaranteed("a", 2000), MIXED);
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "0-15");
    assert_eq!(reach(&node, "a"), ("2-3".to_owned(), "0-1,4-15".to_owned()));
    assert_eq!(node.ledger.pool().to_string(), "0-1,4-15");
    node.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap();
    node.check("a", "0-3,8-15");
    let shared = pod("s", Qos::Burstable, 100);
    assert_eq!(node.create(&shared, "c", "s", 100).unwrap(), "0-1,8-15");
    resize(&mut node, &a, 2000, 3000).unwrap();
    node.check("a", "0-3,8-15");
    node.check("s", "0-1,9-15");
    assert_eq!(reach(&node, "a"), ("2-3,8".to_owned(), "0-1,9-15".to_owned()));
    node.stop_pod(&guaranteed("b", 4000));
    let mut due = deliver(&mut node.ledger, Channel::Runtime);
    due.sort_by(|one, other| one.container.cmp(&other.container));
    let due = due.iter().map(|update| (&*update.container.0, update.setting.cpus()));
    let due: Vec<_> = due.map(|(id, cpus)| (id, cpus.to_string())).collect();
    assert_eq!(due, [("a", "0-15".to_owned()), ("s", "0-1,4-7,9-15".to_owned())]);
}

#[test]
fn only_the_state_file_shows_which_cpus_of_a_mixed_container_are_exclusive() {
    let mut before = node();
    let a = asking(guaranteed("a", 2000), MIXED);
    before.create(&a, "c", "a", 2000).unwrap();
    before.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap();
    let claims: Vec<Claim> = before.ledger.claims().collect();
    let running = before.running(&[(&a, "c", "a", 2000), (&guaranteed("b", 4000), "c", "b", 4000)]);
    let mut again = node_with(allowing(&[]), claims);
    again.event(running.clone()).unwrap();
    assert_eq!(reach(&again, "a"), ("2-3".to_owned(), "0-1,8-15".to_owned()));
    let none = again.ledger.due(&Channel::Runtime).updates;
    assert!(none.is_empty(), "{none:?}");
    // Without it, the container gets new ones, and no other container moves.
    let mut lost = node_with(allowing(&[]), Vec::new());
    lost.event(running).unwrap();
    assert_eq!(reach(&lost, "b").0, "4-7");
    assert_eq!(reach(&lost, "a").0.parse::<CpuSet>().unwrap().len(), 2);
}

#[test]
fn the_cpuset_of_a_mixed_container_under_groups_does_not_depend_on_the_pool() {
    let mut node = node();
    node.ledger.apply(Event::Mechanism(Mechanism::Groups));
    let mut a = guaranteed("a", 4000);
    let mixed = ("cpus.cpu-manager.nri.io/container.m", "exclusive+shared");
    a.annotations = [mixed].into_iter().collect();
    assert_eq!(node.create(&a, "m", "a-m", 2000).unwrap(), "0-15");
    assert_eq!(node.create(&a, "e", "a-e", 2000).unwrap(), "4-5");
    // It leaves the exclusive CPUs of its sibling, and no update is due when the pool changes.
    node.check("a-m", "0-3,6-15");
    node.create(&guaranteed("b", 2000), "c", "b", 2000).unwrap();
    node.check("a-m", "0-3,6-15");
    let target = node.ledger.target(&ContainerId("a-m".into())).unwrap();
    assert_eq!(target.runs_on.to_string(), "0-3,8-15");
    assert_eq!(target.setting.exclusive_cpus().to_string(), "2-3");
}

#[test]
fn a_mixed_container_is_no_partition() {
    let mut node = node();
    node.ledger.apply(Event::Mechanism(Mechanism::Partitions));
    node.create(&asking(guaranteed("a", 2000), MIXED), "c", "a", 2000).unwrap();
    let target = node.ledger.target(&ContainerId("a".into())).unwrap();
    assert_eq!(target.enforced_by, Mechanism::Groups);
    assert!(!target.is_partition());
}

#[test]
fn a_mixed_container_in_a_distrusted_class_follows_the_pool() {
    let mut node = node();
    node.ledger.apply(Event::Mechanism(Mechanism::Groups));
    let mut a = asking(guaranteed("a", 2000), MIXED);
    a.cgroup = CgroupPath::new("kubepods/poda");
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "0-15");
    let class = CgroupPath::new("kubepods").unwrap();
    node.ledger.apply(Event::Distrusted([class].into_iter().collect()));
    node.send_due();
    node.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap();
    node.send_due();
    node.check("a", "0-3,8-15");
}

/// Found by random histories: under policy `none` the container keeps the CPUs that the kubelet has
/// set, and their number is the one that it asks for under the next policy.
#[test]
fn a_change_of_settings_adopts_no_more_cpus_of_a_mixed_container_than_a_restart() {
    let a = asking(guaranteed("a", 2000), MIXED);
    let mut node = node_with(Settings { policy: Policy::None, ..allowing(&[]) }, Vec::new());
    node.ledger.apply(Event::Mechanism(Mechanism::Groups));
    node.set.insert("a".to_owned(), cpus("14-15"));
    let listed = node.running(&[(&a, "c", "a", 2000)]);
    node.event(listed.clone()).unwrap();
    node.check("a", "14-15");
    let mut restarted = node_with(allowing(&[]), node.ledger.claims().collect());
    restarted.ledger.apply(Event::Mechanism(Mechanism::Groups));
    restarted.event(listed).unwrap();
    node.event(Event::Settings(allowing(&[]))).unwrap();
    assert_eq!(reach(&restarted, "a").0, "2-3");
    assert_eq!(reach(&node, "a").0, "2-3");
}

/// Found by random histories: a mixed container without a claim is pinned, though no CPU is known
/// to be exclusive to it.
#[test]
fn a_mixed_container_beyond_its_pods_budget_gets_no_cpus_of_one_that_has_just_ended() {
    let p = asking(pod("p", Qos::Burstable, 2000), MIXED);
    let mut node = node();
    node.create(&p, "c", "p0", 2000).unwrap();
    // The plugin was down when it was created.
    let both = node.running(&[(&p, "c", "p0", 2000), (&p, "d", "p1", 2000)]);
    node.event(both).unwrap();
    node.check("p1", "0-1,4-15");
    node.stop("p0");
    let claims: Vec<Claim> = node.ledger.claims().collect();
    node.event(Event::Settings(allowing(&[]))).unwrap();
    assert!(node.ledger.claims().eq(claims.clone()));
    let mut restarted = node_with(allowing(&[]), claims.clone());
    restarted.event(node.running(&[(&p, "d", "p1", 2000)])).unwrap();
    let ids = |claims: Vec<Claim>| claims.into_iter().map(|claim| claim.id.0).collect::<Vec<_>>();
    assert_eq!(ids(restarted.ledger.claims().collect()), ids(claims));
}

/// Found by random histories: the update with its exclusive CPUs still had its old shared ones. The
/// next update was due only after that, and was not sent.
#[test]
fn a_container_that_becomes_a_mixed_one_follows_the_pool_with_the_first_update() {
    let mut a = asking(guaranteed("a", 2000), MIXED);
    a.cgroup = CgroupPath::new("kubepods/poda");
    let mut node = node_with(Settings { policy: Policy::None, ..allowing(&[]) }, Vec::new());
    node.ledger.apply(Event::Mechanism(Mechanism::Groups));
    node.set.insert("a".to_owned(), cpus("14-15"));
    node.event(node.running(&[(&a, "c", "a", 2000)])).unwrap();
    node.ledger.apply(Event::Distrusted([a.cgroup.clone().unwrap()].into_iter().collect()));
    node.event(Event::Settings(allowing(&[]))).unwrap();
    node.send_due();
    assert_eq!(reach(&node, "a").0, "2-3");
    node.check("a", "0-15");
    assert!(!node.ledger.owes());
}
