//! The groups above containers keep exclusivity: shared containers are told one thing for life.

use super::*;
use crate::ledger::{CgroupPath, LayoutError};

fn groups() -> Node {
    Node::with(Settings { exclusivity: Exclusivity::Groups, ..settings() }, Vec::new())
}

/// The same pod where a kubelet puts it.
fn placed(pod: Pod) -> Pod {
    let class = match pod.qos {
        Qos::Burstable => "burstable/",
        Qos::BestEffort => "besteffort/",
        Qos::Guaranteed | Qos::Unknown => "",
    };
    Pod { cgroup: CgroupPath::new(&format!("kubepods/{class}pod{}", pod.name)), ..pod }
}

/// Creates a container with a control group; returns where it was put.
fn create(node: &mut Node, pod: &Pod, id: &str, milli: u64) -> String {
    let cgroup = CgroupPath::new(&format!("{}/{id}", pod.cgroup.as_ref().unwrap()));
    let container = Container { cgroup, ..container(pod, id, id, milli) };
    let pod = pod.clone();
    node.event(Event::Create { pod, container }).unwrap().unwrap().cpus().to_string()
}

/// Each group with the CPUs that containers in it have beside the pool.
fn layout(node: &Node) -> (String, Vec<String>) {
    let layout = node.ledger.layout().unwrap();
    let groups = layout.groups.iter().map(|target| {
        let own: CpuSet = target.exclusive.iter().map(|occupant| occupant.cpus).collect();
        format!("{} {own}", target.group).trim_end().to_owned()
    });
    (layout.pool.to_string(), groups.collect())
}

#[test]
fn a_class_is_one_group() {
    let mut node = groups();
    let a = placed(guaranteed("a", 4000));
    for name in ["s", "t"] {
        let pod = placed(pod(name, Qos::Burstable, 100));
        assert_eq!(create(&mut node, &pod, name, 100), "0-15");
    }
    create(&mut node, &placed(pod("b", Qos::BestEffort, 0)), "b", 0);
    let shared = placed(guaranteed("g", 500));
    create(&mut node, &shared, "g", 500);
    assert_eq!(create(&mut node, &a, "a", 4000), "2-5");
    let expected =
        ["kubepods/besteffort", "kubepods/burstable", "kubepods/poda 2-5", "kubepods/podg"];
    assert_eq!(layout(&node), ("0-1,6-15".to_owned(), expected.map(str::to_owned).to_vec()));
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), [], "no container is told anything");
    let target = node.ledger.target(&ContainerId("s".into())).unwrap();
    assert_eq!(
        (target.adjustment.cpus().to_string(), target.runs_on.to_string()),
        ("0-15".into(), "0-1,6-15".into())
    );
    node.stop_pod(&a);
    assert_eq!(layout(&node).0, "0-15");
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
}

/// The others of a pod are in its group, which has its exclusive CPUs: they must not name these.
#[test]
fn beside_exclusive_cpus_of_the_same_pod() {
    let mut node = groups();
    let a = placed(guaranteed("a", 6000));
    assert_eq!(create(&mut node, &a, "early", 500), "0-15");
    assert_eq!(create(&mut node, &a, "main", 4000), "2-5");
    node.check("early", "0-1,6-15");
    assert_eq!(create(&mut node, &a, "late", 500), "0-1,6-15");
    assert_eq!(layout(&node).1, ["kubepods/poda 2-5"]);
}

/// A pod that wishes for exclusive CPUs can be in a class: the class is open for them, and its
/// other pods are bound one by one.
#[test]
fn a_class_with_exclusive_cpus_in_it() {
    let by_groups = Settings { exclusivity: Exclusivity::Groups, ..wishes::allowing(&[]) };
    let mut node = wishes::node_with(by_groups, Vec::new());
    let wishes = wishes::wishing(placed(pod("w", Qos::Burstable, 2000)), &[("cpus", "exclusive")]);
    create(&mut node, &placed(pod("s", Qos::Burstable, 100)), "s", 100);
    assert_eq!(create(&mut node, &wishes, "w", 2000), "2-3");
    let expected =
        ["kubepods/burstable 2-3", "kubepods/burstable/pods", "kubepods/burstable/podw 2-3"];
    assert_eq!(layout(&node).1, expected);
}

#[test]
fn pods_elsewhere() {
    let mut node = groups();
    let pod = Pod { cgroup: CgroupPath::new("system.slice"), ..pod("x", Qos::Unknown, 100) };
    assert!(node.ledger.layout().is_ok());
    create(&mut node, &pod, "x", 100);
    let error = node.ledger.layout().unwrap_err();
    assert!(matches!(error, LayoutError::Unknown { .. }));
    assert_eq!(
        error.to_string(),
        "default/x is in the control group system.slice, which is none that a kubelet makes for a pod"
    );
}

/// The runtime has to keep exclusivity from now on, and has to be told all that it was not.
#[test]
fn from_groups_to_the_runtime_and_back() {
    let mut node = groups();
    create(&mut node, &placed(pod("s", Qos::Burstable, 100)), "s", 100);
    create(&mut node, &placed(guaranteed("a", 4000)), "a", 4000);
    let by = |exclusivity| Settings { exclusivity, ..settings() };
    node.event(Event::Settings(by(Exclusivity::Runtime))).unwrap();
    node.tell();
    node.check("s", "0-1,6-15");
    assert_eq!(node.set.get("a"), None, "its own have not changed");
    node.event(Event::Settings(by(Exclusivity::Groups))).unwrap();
    node.tell();
    node.check("s", "0-15");
}
