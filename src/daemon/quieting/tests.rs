//! Passes over a copy of the kernel's files, at the times at which the daemon would make them.

use super::*;
use kernel::Linux;
use ledger::{
    ContainerId, ContainerView, CpuRequest, Ledger, Mechanism, Pod, PodUid, Qos, SandboxId,
    Settings,
};
use quiet::{Irqbalance, Originals};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use topology::synthetic::Machine;

/// A node of 4 CPUs with an interrupt that may fire anywhere.
struct TestNode {
    root: TempDir,
    quieting: Quieting,
    now: Instant,
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

impl TestNode {
    fn new() -> TestNode {
        let root = tempfile::tempdir().unwrap();
        let listing = "           CPU0       CPU1\n 24:          1          0   PCI-MSIX-0000:00:01.0   0-edge      nic";
        write(root.path(), "proc/interrupts", listing);
        write(root.path(), "proc/irq/24/smp_affinity_list", "0-3");
        write(root.path(), "proc/irq/default_smp_affinity", "f");
        let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
        let now = Instant::now();
        let steering =
            Steering::new(roots.clone(), Originals::default(), Irqbalance::new(Vec::new()));
        let quieting = Quieting::new(Arc::new(Linux), roots, steering);
        TestNode { root, quieting, now }
    }

    fn affinity(&self) -> String {
        let path = self.root.path().join("proc/irq/24/smp_affinity_list");
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Makes the next pass for this goal, as `Quieting::begin` and the executor do.
    fn pass(&mut self, avoided: &str) {
        let outcome = self.begin(avoided).run();
        self.quieting.ended(outcome, self.now);
    }

    fn begin(&mut self, avoided: &str) -> QuietPass {
        self.now += PERIOD;
        let goal = TestNode::goal(avoided);
        self.quieting.begin_for(goal, self.now).unwrap()
    }

    fn goal(avoided: &str) -> Goal {
        let container = QuietContainer {
            name: "ns/pod/c".to_owned(),
            cpus: avoided.parse().unwrap(),
            interrupts: InterruptMode::Away,
            ..QuietContainer::default()
        };
        let containers = if avoided.is_empty() { Vec::new() } else { vec![container] };
        Goal { online: "0-3".parse().unwrap(), containers, ..Goal::default() }
    }
}

#[test]
fn nothing_is_due_before_the_runtime_has_listed_its_containers() {
    let mut node = TestNode::new();
    let now = node.now;
    node.quieting.follow(false, now);
    assert_eq!((node.quieting.due(), node.quieting.changed), (None, None));
    node.quieting.follow(true, now);
    assert_eq!(node.quieting.due(), None);
    node.quieting.listed(now);
    assert_eq!(node.quieting.due(), Some(now + DEBOUNCE));
    // Further changes do not delay the pass.
    node.quieting.follow(true, now + DEBOUNCE / 2);
    assert_eq!(node.quieting.due(), Some(now + DEBOUNCE));
}

#[test]
fn nodes_without_pod_options_have_no_passes() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    assert!(node.quieting.begin_for(Goal::default(), node.now).is_none());
    assert_eq!(node.quieting.due(), None);
}

#[test]
fn passes_repeat_until_everything_is_restored() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    node.pass("2");
    assert_eq!(node.affinity(), "0-1,3");
    assert_eq!(node.quieting.due(), Some(node.now + PERIOD));
    let figures = node.quieting.figures(node.now);
    assert!(figures.report.away.keys().eq(&[24]));
    write(node.root.path(), "proc/irq/24/smp_affinity_list", "0-3");
    node.pass("2");
    assert_eq!(node.affinity(), "0-1,3");
    assert_eq!(node.quieting.figures(node.now).drifts["interrupt"], 1);
    node.pass("");
    assert_eq!((node.affinity(), node.quieting.due()), ("0-3".to_owned(), None));
    let figures = node.quieting.figures(node.now);
    assert!(figures.goal.is_empty() && figures.report.away.is_empty());
    assert_eq!(figures.drifts["interrupt"], 1);
}

#[test]
fn a_change_that_leaves_the_goal_alone_makes_no_early_pass() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    node.pass("2");
    let next = node.now + PERIOD;
    let soon = node.now + DEBOUNCE;
    node.quieting.follow(true, node.now);
    assert_eq!(node.quieting.due(), Some(soon));
    assert!(node.quieting.begin_for(TestNode::goal("2"), soon).is_none());
    assert_eq!(node.quieting.due(), Some(next));
    assert!(node.quieting.begin_for(TestNode::goal("1-2"), soon).is_some());
}

#[test]
fn missing_files_are_one_obstacle() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    fs::remove_file(node.root.path().join("proc/irq/default_smp_affinity")).unwrap();
    node.pass("2");
    assert_eq!(node.affinity(), "0-3");
    let figures = node.quieting.figures(node.now);
    let troubles = figures.troubles();
    let [trouble] = &troubles[..] else { panic!("{figures:?}") };
    assert!(trouble.ends_with("in a container, the overlay quiet is needed"), "{trouble}");
    write(node.root.path(), "proc/irq/default_smp_affinity", "f");
    node.pass("2");
    assert!(node.quieting.figures(node.now).troubles().is_empty());
    assert_eq!(node.affinity(), "0-1,3");
}

#[test]
fn a_pass_that_hangs_is_reported_and_there_is_no_other_one() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    let pass = node.begin("2");
    assert_eq!(node.quieting.due(), Some(node.now + LIMIT));
    let later = node.now + LIMIT;
    assert!(node.quieting.begin_for(Goal::default(), later).is_none());
    node.quieting.follow(true, later);
    assert_eq!(node.quieting.due(), None);
    let figures = node.quieting.figures(later);
    assert_eq!(figures.stalled, Some(LIMIT));
    assert_eq!(figures.troubles().len(), 1);
    node.quieting.ended(pass.run(), later);
    assert_eq!(node.quieting.due(), Some(later + DEBOUNCE));
    assert!(node.quieting.figures(later).troubles().is_empty());
}

#[test]
fn a_refused_interrupt_is_logged_once_until_nothing_is_asked_for() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    let noise = StrayInterrupt {
        number: 30,
        names: vec!["nvme0q3".to_owned()],
        chip: "PCI-MSIX".to_owned(),
        cpus: "2".parse().unwrap(),
    };
    let refused = vec![(noise, "Permission denied".to_owned())];
    let report = Report { refused, ..Report::default() };
    node.quieting.log(&report);
    node.quieting.log(&report);
    assert!(node.quieting.logged.iter().eq(["30 nvme0q3"]));
    node.quieting.reset();
    assert!(node.quieting.logged.is_empty());
}

/// A running container with CPUs 2-3, and CPU 4 idle for it.
fn container(name: &str, interrupts: InterruptMode) -> ContainerView {
    let pod = Pod {
        sandbox: SandboxId(name.to_owned()),
        uid: PodUid(name.to_owned()),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        qos: Qos::Guaranteed,
        budget: None,
        limits: Default::default(),
        own_resources: None,
        pool: Default::default(),
        annotations: Default::default(),
        cgroup: None,
    };
    ContainerView {
        cgroup: None,
        pod: Arc::new(pod),
        name: "c".to_owned(),
        id: ContainerId(name.to_owned()),
        cpu: CpuRequest::default(),
        has_memory_limit: false,
        memory: None,
        asks: None,
        exclusive: Some("2-3".parse().unwrap()),
        leaving: Arc::default(),
        pool: Default::default(),
        shared: Arc::default(),
        own_pool: Arc::default(),
        idle: Arc::new("4".parse().unwrap()),
        margin: Default::default(),
        cpus_pod_option: None,
        interrupts,
        knobs: Knobs::default(),
        runs_on: Arc::new("2-3".parse().unwrap()),
        left_alone: None,
        phase: Phase::Running,
        enforced_by: Mechanism::Groups,
        stays: None,
        devices: Vec::new(),
        created_at: None,
    }
}

#[test]
fn the_goal_has_the_containers_that_run_and_ask_for_something() {
    let topology =
        Machine { nodes: 2, caches: 2, cores: 8, ..Machine::default() }.topology().unwrap();
    let mut view = View::clone(&Ledger::new(topology, Settings::default(), Vec::new()).view());
    let ended = ContainerView { phase: Phase::Ended, ..container("ended", InterruptMode::Away) };
    let shared = ContainerView { exclusive: None, ..container("shared", InterruptMode::Away) };
    let left = container("left", InterruptMode::Leave);
    view.containers = vec![ended, shared, left, container("db", InterruptMode::Housekeeping)];
    let goal = goal_of(&view);
    assert_eq!(goal.online, view.topology.online());
    assert_eq!(goal.nodes.len(), 2);
    // Its idle neighbour keeps no interrupts: the housekeeping core is one that it uses.
    let [own, idle] = &goal.containers[..] else { panic!("{goal:?}") };
    assert_eq!((own.name.as_str(), own.cpus.to_string()), ("ns/db/c", "2-3".to_owned()));
    assert_eq!((idle.name.as_str(), idle.cpus.to_string()), ("ns/db/c", "4".to_owned()));
    assert_eq!(
        (own.interrupts, idle.interrupts),
        (InterruptMode::Housekeeping, InterruptMode::Away)
    );
    view.stance = Stance::Observe;
    assert!(goal_of(&view).is_empty());
}
