//! Passes over a copy of the kernel's files, at the times at which the daemon would make them.

use super::*;
use kernel::Linux;
use quiet::{Irqbalance, Originals};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

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

    /// Makes the pass for this goal, as `Quieting::begin` and the executor do.
    fn pass(&mut self, avoided: &str) {
        let outcome = self.begin(avoided).run();
        self.quieting.ended(outcome, self.now);
    }

    fn begin(&mut self, avoided: &str) -> QuietPass {
        let container = QuietContainer {
            name: "ns/pod/c".to_owned(),
            cpus: avoided.parse().unwrap(),
            interrupts: InterruptMode::Away,
            ..QuietContainer::default()
        };
        let containers = if avoided.is_empty() { Vec::new() } else { vec![container] };
        let goal = Goal { online: "0-3".parse().unwrap(), containers, ..Goal::default() };
        self.quieting.begin_for(goal, self.now).unwrap()
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
fn nodes_without_wishes_have_no_passes() {
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
    let noise = Noise {
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
