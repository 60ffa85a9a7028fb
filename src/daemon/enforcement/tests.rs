//! What becomes of a container for which the kernel has no CPUs, with files like the kernel's.

use super::*;
use crate::cpuset::CpuSet;
use crate::ledger::{
    Admission, Channel, Container, CpuRequest, Due, MilliCpu, Pod, Qos, SandboxId, Settings,
    Update, Wanted,
};
use crate::partition::PartitionType;
use crate::placement;
use crate::topology::synthetic::Machine;
use std::fs;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

/// A node with a pod and a group beside all pods, of which CPUs 1-2 are no pod's at present.
struct Node {
    root: TempDir,
    enforcement: Enforcement,
    ledger: Ledger,
    refused: Vec<String>,
}

fn write(root: &Path, group: &str, files: [(&str, &str); 4]) {
    fs::create_dir_all(root.join(group)).unwrap();
    for (file, text) in files {
        fs::write(root.join(group).join(format!("cpuset.cpus{file}")), format!("{text}\n"))
            .unwrap();
    }
}

impl Node {
    fn new() -> Node {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset\n").unwrap();
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
            placement: placement::Settings {
                reserved: "0".parse().unwrap(),
                ..placement::Settings::default()
            },
            ..Settings::default()
        };
        let topology = crate::topology::Topology::build(machine.facts().unwrap()).unwrap();
        let mut ledger = Ledger::new(topology, settings, Vec::new());
        ledger.apply(Event::Mechanism(Mechanism::Partitions));
        Node { root, enforcement, ledger, refused: Vec::new() }
    }

    /// Creates a container of two CPUs: what the ledger decides and the kernel says to that.
    fn create(&mut self, id: &str) -> (Option<CpuSet>, Result<(), KernelRefusal>) {
        let decision = self.ledger.admit(create(id)).unwrap();
        let reserved = self.reserve(id);
        let setting = decision.setting();
        self.ledger.apply(Event::Answered(decision));
        (setting.map(|setting| setting.cpus()), reserved)
    }

    fn reserve(&mut self, id: &str) -> Result<(), KernelRefusal> {
        let step = CgroupStep::Reserve(ContainerId(id.to_owned()));
        let refused = self.enforcement.follow(step, &self.ledger).map_err(|(_, why)| why)?;
        refused.into_iter().for_each(|refused| self.fall_back(refused));
        Ok(())
    }

    fn settle(&mut self, id: &str) {
        let step = CgroupStep::Settle(ContainerId(id.to_owned()));
        let refused = self.enforcement.follow(step, &self.ledger).unwrap();
        refused.into_iter().for_each(|refused| self.fall_back(refused));
    }

    fn fall_back(&mut self, refused: RefusedTarget) {
        if let Some(event) = self.enforcement.fall_back(&refused) {
            self.ledger.apply(event);
            self.refused.push(refused.1.to_string());
        }
    }

    /// The updates that the runtime gets after the kernel's answer.
    fn due(&mut self, channel: &Channel) -> Due {
        let mut due = self.ledger.due(channel);
        let early = self.enforcement.too_early(&due.updates, &self.ledger);
        due.hold_back(|id| early.contains(id));
        due
    }

    /// Gives a container two more CPUs; returns the updates that the runtime gets.
    fn grow(&mut self, id: &str) -> Vec<String> {
        let Admission::Create { pod, container } = create(id) else { unreachable!() };
        let amount = Some(MilliCpu(4000));
        let cpu = CpuRequest { request: amount, limit: amount };
        let wanted = Wanted { cpu, ..Wanted::default() };
        let pod = Pod { budget: amount, ..pod };
        self.ledger.apply(Event::UpdatePod(pod.clone()));
        self.ledger.admit(Admission::Update { pod, container, wanted }).unwrap();
        self.settle(id);
        let due = self.due(&Channel::Update(ContainerId(id.to_owned())));
        let text = |update: &Update| format!("{} {}", update.container, update.setting.cpus());
        due.updates.iter().map(text).collect()
    }
}

fn by(mechanism: Mechanism, hierarchy: Result<Hierarchy, ProbeError>) -> Enforcement {
    let means = Means { mechanism, because: None };
    Enforcement::new(means, hierarchy, PartitionType::Root, Memory::default())
}

fn create(id: &str) -> Admission {
    let sandbox = SandboxId("sandbox".to_owned());
    let amount = Some(MilliCpu(2000));
    Admission::Create {
        pod: Pod {
            sandbox: sandbox.clone(),
            uid: PodUid("pod".to_owned()),
            namespace: "ns".to_owned(),
            name: "pod".to_owned(),
            qos: Qos::Guaranteed,
            budget: amount,
            annotations: Default::default(),
            cgroup: None,
        },
        container: Container {
            cgroup: CgroupPath::new(&format!("kubepods/pod/{id}")),
            ..Container::new(
                ContainerId(id.to_owned()),
                sandbox,
                "c",
                CpuRequest { request: amount, limit: amount },
            )
        },
    }
}

/// Given to the runtime they would damage the kernel: not even the runtime's way is one.
#[test]
fn cpus_of_a_group_that_is_gone_are_not_taken_and_stay_its_own() {
    let mut node = Node::new();
    let (first, followed) = node.create("first");
    assert_eq!(first, Some("1-2".parse().unwrap()));
    assert_eq!(
        followed.unwrap_err().to_string(),
        "the kernel still holds CPUs 1-2 for a removed cgroup"
    );
    assert_eq!(node.enforcement.refusals, 0);
    fs::write(node.root.path().join("kubepods/cpuset.cpus.effective"), "0-7\n").unwrap();
    let (second, followed) = node.create("second");
    assert_eq!((second, followed.unwrap()), (first, ()));
    let placed = node.ledger.target(&ContainerId("second".to_owned())).unwrap();
    assert_eq!(placed.enforced_by, Mechanism::Partitions);
}

/// They do not come back: the kernel says what it has to say when it is asked for them, and groups
/// keep others off them.
#[test]
fn cpus_of_somebody_elses_partition_are_not_waited_for() {
    let mut node = Node::new();
    fs::write(node.root.path().join("other/cpuset.cpus.exclusive"), "1-2\n").unwrap();
    write(
        node.root.path(),
        "other/one",
        [("", ""), (".exclusive", "1-2"), (".exclusive.effective", "1-2"), (".partition", "root")],
    );
    // A kernel would refuse it: here a file that cannot be written.
    fs::remove_file(node.root.path().join("kubepods/pod/cpuset.cpus.exclusive")).unwrap();
    fs::create_dir(node.root.path().join("kubepods/pod/cpuset.cpus.exclusive")).unwrap();
    let (_, followed) = node.create("first");
    followed.unwrap();
    let [why] = &node.refused[..] else { panic!("not refused by the kernel") };
    assert!(why.starts_with("cannot read ") && why.contains("cpuset.cpus.exclusive"), "{why}");
    let placed = node.ledger.target(&ContainerId("first".to_owned())).unwrap();
    assert_eq!(placed.enforced_by, Mechanism::Groups);
}

/// The runtime would write them beside a partition that is going: the container waits for them with
/// what it has, at every request.
#[test]
fn a_growth_waits_for_cpus_of_a_group_that_is_gone() {
    let mut node = Node::new();
    let effective = node.root.path().join("kubepods/cpuset.cpus.effective");
    fs::write(&effective, "0-7\n").unwrap();
    let (cpus, followed) = node.create("c");
    assert_eq!((cpus, followed.unwrap()), (Some("1-2".parse().unwrap()), ()));
    let files = |cpus, state| {
        [("", cpus), (".exclusive", cpus), (".effective", cpus), (".partition", state)]
    };
    write(node.root.path(), "kubepods/pod/c", files("1-2", "root"));
    // A removed group had 3-4.
    fs::write(&effective, "0,5-7\n").unwrap();
    let (told, id) = (node.grow("c"), ContainerId("c".to_owned()));
    assert_eq!(told, [""; 0]);
    let placed = node.ledger.target(&id).unwrap();
    assert!(placed.is_partition() && placed.setting.cpus().to_string() == "1-4");
    let group = node.root.path().join("kubepods/pod/c");
    let text = |file: &str| fs::read_to_string(group.join(file)).unwrap();
    assert_eq!([text("cpuset.cpus"), text("cpuset.cpus.partition")], ["1-2\n", "root\n"]);
    assert!(!node.enforcement.set_cpus(&placed, Instant::now()));
    // It is not for ever that the kernel is waited for, but the runtime must not write them either.
    assert_eq!(node.enforcement.next_unsettled().as_ref(), Some(&id));
    let refused = node.enforcement.settle(&id, &node.ledger).unwrap_err();
    node.fall_back(refused);
    assert!(!node.ledger.target(&id).unwrap().is_partition());
    assert_eq!(node.ledger.due(&Channel::Runtime).updates.len(), 1);
    assert_eq!(node.due(&Channel::Runtime).updates, []);
    fs::write(&effective, "0,3-7\n").unwrap();
    let due = node.due(&Channel::Runtime).updates;
    let due: Vec<String> = due.iter().map(|update| update.setting.cpus().to_string()).collect();
    assert_eq!(due, ["1-4"]);
}

/// CPUs that one container of a pod has left may not be written into the group of another one
/// before they are free; what partitions of other pods have is no reason to wait.
#[test]
fn a_shared_container_waits_for_cpus_of_one_of_its_pod_that_is_gone() {
    let mut node = Node::new();
    let (root, mut tried) = (node.root.path().to_owned(), Vec::new());
    fs::write(root.join("kubepods/cpuset.cpus.effective"), "0-7\n").unwrap();
    node.create("c").1.unwrap();
    let shared = |id: &str| {
        let Admission::Create { pod, container } = create(id) else { unreachable!() };
        let amount = Some(MilliCpu(500));
        let cpu = CpuRequest { request: amount, limit: amount };
        Admission::Create { pod, container: Container { name: id.to_owned(), cpu, ..container } }
    };
    let decision = node.ledger.admit(shared("s")).unwrap();
    let setting = decision.setting().unwrap();
    assert_eq!(setting.cpus().to_string(), "0,3-7");
    node.ledger.apply(Event::Answered(decision));
    let files =
        [("", "0,3-7"), (".exclusive", ""), (".effective", "0,3-7"), (".partition", "member")];
    write(&root, "kubepods/pod/s", files);
    // It came back without CPUs of its own, and has gone.
    node.ledger.admit(shared("c")).unwrap();
    node.ledger.apply(Event::Remove(ContainerId("c".to_owned())));
    let kept = |group: &str, cpus: &str| {
        let files = [
            ("", ""),
            (".exclusive", cpus),
            (".exclusive.effective", cpus),
            (".partition", "root"),
        ];
        write(&root, &format!("{group}/c"), files);
        fs::write(root.join("kubepods/cpuset.cpus.exclusive"), "1-2\n").unwrap();
        fs::write(root.join(group).join("cpuset.cpus.exclusive"), format!("{cpus}\n")).unwrap();
        fs::write(root.join(group).join("cpuset.cpus.partition"), "member\n").unwrap();
    };
    for (effective, dying, elsewhere) in
        [("0,3-7", 1, ""), ("0,3-7", 0, ""), ("0,3-7", 1, "1-2"), ("0,3-7", 1, "1"), ("0-7", 1, "")]
    {
        fs::write(root.join("kubepods/cpuset.cpus.effective"), format!("{effective}\n")).unwrap();
        let stat = format!("nr_descendants 1\nnr_dying_descendants {dying}\n");
        fs::write(root.join("kubepods/pod/cgroup.stat"), stat).unwrap();
        kept("kubepods/another", elsewhere);
        node.ledger.apply(Event::Drifted(vec![ContainerId("s".to_owned())]));
        assert_eq!(node.ledger.due(&Channel::Runtime).updates.len(), 1);
        let sent = node.due(&Channel::Runtime).updates;
        node.ledger.admit(shared("new")).unwrap();
        let made = node.reserve("new");
        node.ledger.apply(Event::Remove(ContainerId("new".to_owned())));
        tried.push((sent.len(), made.is_ok()));
    }
    assert_eq!(tried, [(0, false), (1, true), (1, true), (0, false), (1, true)]);
}

/// The kernel kept exclusivity in an earlier life and does not now: its partitions stay until others
/// are kept off by other means. To end them needs no privilege.
#[test]
fn partitions_of_an_earlier_life_end_when_others_are_kept_off() {
    let mut node = Node::new();
    let root = node.root.path().to_owned();
    let files = |cpus, state| {
        [("", cpus), (".exclusive", cpus), (".effective", cpus), (".partition", state)]
    };
    let Admission::Create { pod, container } = create("c") else { unreachable!() };
    let container = Container { partitioned: true, ..container };
    let list = Call::from(Event::Synchronize { pods: vec![pod], containers: vec![container] });
    let hierarchy = || Ok(Hierarchy::open(&root).unwrap());
    for (mechanism, ended) in
        [(Mechanism::Partitions, false), (Mechanism::Runtime, true), (Mechanism::Groups, true)]
    {
        write(&root, "kubepods/pod/c", files("1-2", "root"));
        fs::write(root.join("kubepods/cpuset.cpus.exclusive"), "1-2\n").unwrap();
        let text = || {
            let files = ["pod/c/cpuset.cpus.exclusive", "pod/c/cpuset.cpus.partition"];
            files.map(|file| fs::read_to_string(root.join("kubepods").join(file)).unwrap())
        };
        let mut enforcement = by(mechanism, hierarchy());
        node.ledger.apply(Event::Mechanism(mechanism));
        enforcement.note_left(&list);
        assert_eq!(text(), ["1-2\n", "root\n"], "{mechanism}");
        if mechanism == Mechanism::Runtime {
            enforcement.let_go(&node.ledger);
        } else {
            enforcement.bind(Scope::All, &node.ledger, Instant::now());
        }
        let left = if ended { ["\n", "member\n"] } else { ["1-2\n", "root\n"] };
        assert_eq!(text(), left, "{mechanism}");
    }
}

/// Longer than one of them no answer may take.
#[test]
fn all_changes_of_an_answer_wait_together() {
    let mut node = Node::new();
    let mut updates = Vec::new();
    for index in 0..6 {
        let Admission::Create { mut pod, mut container } = create(&format!("c{index}")) else {
            unreachable!()
        };
        let amount = Some(MilliCpu(1000));
        pod.uid = PodUid(format!("pod{index}"));
        pod.sandbox = SandboxId(format!("sandbox{index}"));
        pod.budget = amount;
        container.sandbox = pod.sandbox.clone();
        container.cpu = CpuRequest { request: amount, limit: amount };
        let id = container.id.clone();
        let decision = node.ledger.admit(Admission::Create { pod, container }).unwrap();
        let setting = decision.setting().unwrap();
        updates.push(Update { container: id, setting });
    }
    fs::write(node.root.path().join("kubepods/cpuset.cpus.effective"), "0,7\n").unwrap();
    let start = Instant::now();
    assert_eq!(node.enforcement.too_early(&updates, &node.ledger).len(), 6);
    let waited = start.elapsed().as_millis();
    assert!(waited < 1500, "{waited} ms");
}

/// What the kernel refuses is counted; a cgroup that is gone is no failure.
#[test]
fn a_write_that_fails_is_counted() {
    let mut node = Node::new();
    fs::write(node.root.path().join("kubepods/cpuset.cpus.effective"), "0-7\n").unwrap();
    node.create("c").1.unwrap();
    let target = node.ledger.target(&ContainerId("c".to_owned())).unwrap();
    let cpus = node.root.path().join("kubepods/pod/c/cpuset.cpus");
    let mut tried = Vec::new();
    let mut write = |node: &mut Node| {
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
