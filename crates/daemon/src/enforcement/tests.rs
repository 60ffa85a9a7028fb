//! Cgroups that the kernel refuses to change, or that are gone, with files like the kernel's.

use super::*;
use cpuset::PartitionType;
use ledger::{
    Admission, Container, ContainerId, CpuRequest, MilliCpu, Pod, Qos, SandboxId, Settings,
};
use machines::synthetic::Machine;
use std::fs;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

/// A node with a pod, and a cgroup outside of all pods. No cgroup has CPUs 1-2 at present.
struct TestNode {
    root: TempDir,
    enforcement: Enforcement,
    ledger: Ledger,
}

fn write(root: &Path, group: &str, files: [(&str, &str); 4]) {
    fs::create_dir_all(root.join(group)).unwrap();
    for (file, text) in files {
        fs::write(root.join(group).join(format!("cpuset.cpus{file}")), format!("{text}\n"))
            .unwrap();
    }
}

impl TestNode {
    fn new() -> TestNode {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        fs::write(root.path().join("cpuset.cpus.effective"), "0-7\n").unwrap();
        let files = |effective, state| {
            [("", ""), (".exclusive", ""), (".effective", effective), (".partition", state)]
        };
        for group in ["kubepods", "kubepods/pod", "other"] {
            write(root.path(), group, files("0,3-7", "member"));
        }
        let hierarchy = Hierarchy::open(root.path()).unwrap();
        let enforcement = by(Mechanism::Partitions, Ok(hierarchy));
        let machine = Machine { caches: 1, cores: 8, ..Machine::default() };
        let settings = Settings {
            policy: Policy::Static,
            placement: placement::PlacementSettings {
                reserved: "0".parse().unwrap(),
                ..placement::PlacementSettings::default()
            },
            ..Settings::default()
        };
        let topology = topology::Topology::build(machine.facts().unwrap()).unwrap();
        let mut ledger = Ledger::new(topology, settings, Vec::new());
        ledger.apply(Event::Mechanism(Mechanism::Partitions));
        TestNode { root, enforcement, ledger }
    }

    /// Creates a container of two CPUs.
    fn create(&mut self, id: &str) -> Target {
        let decision = self.ledger.admit(create(id)).unwrap();
        self.ledger.apply(Event::Answered(decision));
        self.ledger.target(&ContainerId(id.into())).unwrap()
    }
}

fn by(mechanism: Mechanism, hierarchy: Result<Hierarchy, ProbeError>) -> Enforcement {
    let means = Means { mechanism, because: None };
    Enforcement::new(means, hierarchy, PartitionType::Root, CgroupRecords::default())
}

fn create(id: &str) -> Admission {
    let sandbox = SandboxId("sandbox".into());
    let amount = Some(MilliCpu(2000));
    Admission::Create {
        pod: Pod {
            sandbox: sandbox.clone(),
            uid: PodUid("pod".into()),
            namespace: "ns".to_owned(),
            name: "pod".to_owned(),
            qos: Qos::Guaranteed,
            budget: amount,
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        },
        container: Container {
            cgroup: CgroupPath::new(&format!("kubepods/pod/{id}")),
            ..Container::new(
                ContainerId(id.into()),
                sandbox,
                "c",
                CpuRequest { request: amount, limit: amount },
            )
        },
    }
}

/// A write into one of these files changes no other, as if the kernel had refused it.
#[test]
fn a_container_whose_partition_the_kernel_refuses_is_isolated_by_cgroups() {
    let mut node = TestNode::new();
    node.create("c");
    let files = [("", "1-2"), (".exclusive", ""), (".effective", "1-2"), (".partition", "member")];
    write(node.root.path(), "kubepods/pod/c", files);
    let BindOutcome { events, refused, ended } =
        node.enforcement.bind(Scope::All, &node.ledger, Instant::now());
    let [(target, why)] = &refused[..] else { panic!("{refused:?}") };
    assert!(target.is_partition() && ended.is_empty());
    assert_eq!(why, "asked for a root partition of CPUs 1-2, got root invalid with no CPUs: root");
    for event in events {
        node.ledger.apply(event);
    }
    let target = node.ledger.target(&target.subject.id).unwrap();
    assert_eq!((target.enforced_by, node.enforcement.refusals), (Mechanism::Groups, 1));
    let text = |file: &str| fs::read_to_string(node.root.path().join("kubepods").join(file));
    let files = ["pod/c/cpuset.cpus.partition", "pod/c/cpuset.cpus.exclusive"];
    assert_eq!(files.map(|file| text(file).unwrap()), ["member\n", "\n"]);
}

/// The cgroup counts as missing from the second check on.
#[test]
fn a_pod_whose_cgroup_is_missing_is_reported_to_the_ledger() {
    let mut node = TestNode::new();
    let target = node.create("c");
    let Admission::Create { pod, container } = create("c") else { unreachable!() };
    node.ledger.apply(Event::Started { pod, container });
    fs::remove_dir_all(node.root.path().join("kubepods")).unwrap();
    let mut unbound = Vec::new();
    for _ in 0..2 {
        let bound = node.enforcement.bind(Scope::All, &node.ledger, Instant::now());
        unbound.extend(bound.events);
    }
    assert_eq!(unbound, [Event::Unbound([PodUid("pod".into())].into())]);
    let directory = node.root.path().join("kubepods/pod");
    let why = format!("cgroup {} does not exist", directory.display());
    let figures = node.enforcement.figures(Policy::Static, &Default::default(), Instant::now());
    assert_eq!(figures.unbound_pods, [(PodUid("pod".into()), why)].into());
    let BindOutcome { events, .. } =
        node.enforcement.bind(Scope::Binding, &node.ledger, Instant::now());
    assert_eq!((events, target.pod_group()), (vec![], CgroupPath::new("kubepods/pod")));
}

#[test]
fn a_refused_write_counts_as_an_error_and_a_missing_cgroup_does_not() {
    let mut node = TestNode::new();
    let target = node.create("c");
    let cpus = node.root.path().join("kubepods/pod/c/cpuset.cpus");
    let mut tried = Vec::new();
    let mut write = |node: &mut TestNode| {
        let written = node.enforcement.set_cpus(&target, Instant::now());
        tried.push((node.enforcement.errors, written));
    };
    write(&mut node);
    // A kernel would refuse the value: here a file that cannot be written.
    fs::create_dir_all(&cpus).unwrap();
    write(&mut node);
    fs::remove_dir(&cpus).unwrap();
    fs::write(&cpus, "").unwrap();
    write(&mut node);
    assert_eq!(fs::read_to_string(&cpus).unwrap(), "1-2\n");
    assert_eq!(tried, [(0, false), (1, false), (1, true)]);
}
