//! Exclusivity by cgroups: a shared container keeps one cpuset for life.

use super::*;
use cpuset::CgroupPath;

impl Node {
    /// A node where this mechanism enforces exclusivity.
    pub(super) fn by(mechanism: Mechanism, settings: Settings) -> Node {
        let mut node = Node::with(settings, Vec::new());
        node.ledger.apply(Event::Mechanism(mechanism));
        node
    }
}

fn groups() -> Node {
    Node::by(Mechanism::Groups, settings())
}

/// The pod with the cgroup that a kubelet gives it.
pub(super) fn with_cgroup(pod: Pod) -> Pod {
    let class = match pod.qos {
        Qos::Burstable => "burstable/",
        Qos::BestEffort => "besteffort/",
        Qos::Guaranteed | Qos::Unknown => "",
    };
    Pod { cgroup: CgroupPath::new(&format!("kubepods/{class}pod{}", pod.name)), ..pod }
}

/// Creates a container with a cgroup. Returns its CPUs.
pub(super) fn create(node: &mut Node, pod: &Pod, id: &str, milli: u64) -> String {
    let cgroup = CgroupPath::new(&format!("{}/{id}", pod.cgroup.as_ref().unwrap()));
    let container = Container { cgroup, ..container(pod, id, id, milli) };
    let pod = pod.clone();
    node.event(Admission::Create { pod, container }).unwrap().unwrap().cpus().to_string()
}

#[test]
fn with_groups_no_container_is_updated() {
    let mut node = groups();
    let a = with_cgroup(guaranteed("a", 4000));
    for name in ["s", "t"] {
        let pod = with_cgroup(pod(name, Qos::Burstable, 100));
        assert_eq!(create(&mut node, &pod, name, 100), "0-15");
    }
    assert_eq!(create(&mut node, &a, "a", 4000), "2-5");
    assert_eq!(node.ledger.bound().to_string(), "0-1,6-15");
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
    let target = node.ledger.target(&ContainerId("s".into())).unwrap();
    assert_eq!(
        (target.setting.cpus().to_string(), target.runs_on.to_string()),
        ("0-15".into(), "0-1,6-15".into())
    );
    node.stop_pod(&a);
    assert_eq!(node.ledger.bound().to_string(), "0-15");
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
}

/// A pod's cgroup includes its exclusive CPUs, so the cpusets of its shared containers have to
/// exclude these. They do not depend on the pool. Under strict reservation they include the
/// reserved CPUs, so that some remain when the pool is exhausted.
#[test]
fn a_shared_container_is_updated_off_the_exclusive_cpus_of_its_pod() {
    let mut strict = settings();
    strict.placement.options.strict_cpu_reservation = true;
    for settings in [settings(), strict] {
        let mut node = Node::by(Mechanism::Groups, settings);
        let a = with_cgroup(guaranteed("a", 6000));
        assert_eq!(create(&mut node, &a, "early", 500), "0-15");
        assert_eq!(create(&mut node, &a, "main", 4000), "2-5");
        node.check("early", "0-1,6-15");
        assert_eq!(create(&mut node, &a, "late", 500), "0-1,6-15");
        create(&mut node, &with_cgroup(guaranteed("b", 9000)), "b", 9000);
        node.check("early", "0-1,6-15");
    }
}

/// The runtime has to update containers that no cgroup binds, whenever the pool changes.
#[test]
fn a_container_that_no_group_binds_is_updated() {
    let mut node = groups();
    create(&mut node, &with_cgroup(pod("s", Qos::Burstable, 100)), "s", 100);
    create(&mut node, &with_cgroup(pod("t", Qos::Burstable, 100)), "t", 100);
    node.ledger.apply(Event::Unbound([PodUid("uid-t".into())].into()));
    create(&mut node, &with_cgroup(guaranteed("a", 4000)), "a", 4000);
    node.check("t", "0-1,6-15");
    assert_eq!(node.set.get("s"), None);
    node.ledger.apply(Event::Unbound(BTreeSet::new()));
    node.send_due();
    node.check("t", "0-1,6-15");
}

/// When exclusivity depends on the runtime again, it needs all updates that cgroups made
/// unnecessary.
#[test]
fn only_a_change_to_the_runtime_mechanism_sends_updates() {
    let mut node = groups();
    create(&mut node, &with_cgroup(pod("s", Qos::Burstable, 100)), "s", 100);
    create(&mut node, &with_cgroup(guaranteed("a", 4000)), "a", 4000);
    node.event(Event::Mechanism(Mechanism::Runtime)).unwrap();
    node.send_due();
    node.check("s", "0-1,6-15");
    assert_eq!(node.set.get("a"), None, "its exclusive CPUs have not changed");
    for mechanism in [Mechanism::Groups, Mechanism::Partitions] {
        node.event(Event::Mechanism(mechanism)).unwrap();
        assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
    }
}

/// The runtime sets these CPUs again with every resize, so they must not depend on the pool.
#[test]
fn a_resized_shared_container_gets_its_permanent_cpuset() {
    let mut node = Node::new();
    let s = with_cgroup(pod("s", Qos::Burstable, 100));
    create(&mut node, &s, "s", 100);
    create(&mut node, &with_cgroup(guaranteed("a", 4000)), "a", 4000);
    node.check("s", "0-1,6-15");
    node.event(Event::Mechanism(Mechanism::Groups)).unwrap();
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), [], "nothing changes for it yet");
    let requested =
        RequestedUpdate { cpus: Some("3".parse().unwrap()), ..RequestedUpdate::default() };
    let container = container(&s, "s", "s", 100);
    node.event(Admission::Update { pod: s, container, requested }).unwrap();
    node.check("s", "0-15");
}

/// Observed: for a container of a pod with an ended init container, the writer set other CPUs than
/// the verifier accepted, every eleven seconds.
#[test]
fn updates_and_checks_agree_on_the_siblings_of_an_ended_container() {
    for mechanism in [Mechanism::Groups, Mechanism::Partitions] {
        for early in [true, false] {
            check_sibling_of_an_ended_container(mechanism, early);
        }
    }
}

/// `early`: the shared container runs before the init container, whose CPUs are then not lent at
/// its end.
fn check_sibling_of_an_ended_container(mechanism: Mechanism, early: bool) {
    let mut node = Node::by(mechanism, settings());
    let a = with_cgroup(guaranteed("a", 2500));
    let run_half = |node: &mut Node| {
        let half = create(node, &a, "half", 500);
        node.set.insert("half".to_owned(), cpus(&half));
        node.start(&a, "half", "half", 500);
    };
    if early {
        run_half(&mut node);
    }
    assert_eq!(create(&mut node, &a, "init", 2000), "2-3");
    node.stop("init");
    assert_eq!(create(&mut node, &a, "main", 1000), "2");
    if !early {
        run_half(&mut node);
    }
    for step in 0..5 {
        // CPU 3 is lent after two quiet periods, and another container of the pod takes it then.
        if step == 3 {
            assert_eq!(create(&mut node, &a, "second", 1000), "3");
        }
        let target = node.ledger.target(&ContainerId("half".into())).unwrap();
        let kept_from_siblings = target.kept_from_siblings.unwrap();
        // The writer of cgroups reads `places`, the verifier `target`.
        let place = node.ledger.places().next().unwrap();
        assert_eq!(place.kept_from_siblings, kept_from_siblings, "step {step}");
        // The verifier accepts the CPUs that the runtime gets, too.
        node.send_due();
        let sent = node.set["half"];
        assert!(
            sent.is_disjoint(&kept_from_siblings),
            "step {step}: {sent} is sent, {kept_from_siblings} are others'"
        );
        node.event(Event::QuietPeriod).unwrap();
    }
}
