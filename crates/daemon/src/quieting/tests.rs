//! Passes over a copy of the kernel's files, at the times at which the daemon would make them.

use super::*;
use kernel::Linux;
use quiet::{InterruptMode, Irqbalance, Originals, QuietContainer};
use std::cell::RefCell;
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

    /// Makes the next pass for this goal, as `Quieting::begin` and the executor do.
    fn pass(&mut self, avoided: &str) {
        let outcome = self.begin(avoided).run();
        self.quieting.ended(outcome, self.now);
    }

    fn begin(&mut self, avoided: &str) -> QuietPass {
        self.now += PERIOD;
        let goal = TestNode::goal(avoided);
        self.quieting.begin(goal, self.now).unwrap()
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
    node.quieting.follow(now);
    assert_eq!(node.quieting.due(), None);
    node.quieting.listed(now);
    assert_eq!(node.quieting.due(), Some(now + DEBOUNCE));
    // Further changes do not delay the pass.
    node.quieting.follow(now + DEBOUNCE / 2);
    assert_eq!(node.quieting.due(), Some(now + DEBOUNCE));
}

#[test]
fn nodes_without_pod_options_have_no_passes() {
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    assert!(node.quieting.begin(Goal::default(), node.now).is_none());
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
    node.quieting.follow(node.now);
    assert_eq!(node.quieting.due(), Some(soon));
    assert!(node.quieting.begin(TestNode::goal("2"), soon).is_none());
    assert_eq!(node.quieting.due(), Some(next));
    assert!(node.quieting.begin(TestNode::goal("1-2"), soon).is_some());
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
    assert!(node.quieting.begin(Goal::default(), later).is_none());
    node.quieting.follow(later);
    assert_eq!(node.quieting.due(), None);
    let figures = node.quieting.figures(later);
    assert_eq!(figures.stalled_seconds, Some(LIMIT.as_secs()));
    assert_eq!(figures.troubles().len(), 1);
    node.quieting.ended(pass.run(), later);
    assert_eq!(node.quieting.due(), Some(later + DEBOUNCE));
    assert!(node.quieting.figures(later).troubles().is_empty());
}

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Has the lines that a thread logs.
struct OfThread;

impl log::Log for OfThread {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Plays an hour of passes with these results. Returns what they log.
fn an_hour_of(report: impl Fn(usize) -> Report) -> Vec<String> {
    // Fails from the second call on: the logger is set already.
    let _ = log::set_logger(&OfThread);
    log::set_max_level(log::LevelFilter::Info);
    let mut node = TestNode::new();
    node.quieting.listed(node.now);
    LINES.take();
    for pass in 0..720 {
        let QuietPass { steering, goal, .. } = node.begin("2");
        let result = Ok(report(pass));
        node.quieting.ended(QuietOutcome { steering, goal, result }, node.now);
    }
    LINES.take()
}

fn interrupt(number: u32, chip: &str) -> StrayInterrupt {
    let names = vec![format!("nvme0q{number}")];
    StrayInterrupt { number, names, chip: chip.to_owned(), cpus: "2".parse().unwrap() }
}

#[test]
fn refused_interrupts_are_one_line() {
    let refused = |numbers: std::ops::Range<u32>| -> Vec<RefusedInterrupt> {
        let refused = |n| RefusedInterrupt {
            interrupt: interrupt(n, "PCI-MSIX"),
            why: "Permission denied".to_owned(),
        };
        numbers.map(refused).collect()
    };
    let one = an_hour_of(|_| Report { refused: refused(30..31), ..Report::default() });
    let [line] = &one[..] else { panic!("{one:?}") };
    let stays = "interrupts: interrupt 30 (nvme0q30, PCI-MSIX) on CPU 2 stays: Permission denied. The kernel";
    assert!(line.starts_with(stays), "{line}");
    let all = an_hour_of(|_| Report { refused: refused(0..600), ..Report::default() });
    let [line] = &all[..] else { panic!("{} lines", all.len()) };
    assert!(line.contains(" on CPU 2 and 597 more stay: Permission denied. "), "{line}");
    assert!(line.len() < 500, "{line}");
    // Another container asks for the same, and the kernel refuses other interrupts.
    let later = an_hour_of(|pass| Report {
        refused: refused(0..pass as u32 / 360 + 1),
        ..Report::default()
    });
    assert_eq!(later.len(), 2);
}

#[test]
fn a_program_that_sets_600_interrupts_at_each_pass_is_logged_every_tenth_time() {
    let fought = |pass: usize| {
        let drift = |number| Drift {
            setting: quiet::Setting::Interrupt(number),
            observed: quiet::SettingValue::Cpus("0-3".parse().unwrap()),
            target: quiet::SettingValue::Cpus("0-1,3".parse().unwrap()),
        };
        // Some of them are not back yet at each pass.
        Report { drift: (0..600 - pass as u32 % 5).map(drift).collect(), ..Report::default() }
    };
    let lines = an_hour_of(fought);
    let bytes: usize = lines.iter().map(String::len).sum();
    assert!(bytes < 16 << 10, "{bytes} bytes in {} lines", lines.len());
    assert!(lines[0].starts_with("interrupts: another program has changed 600 values ("));
    assert!(lines[0].ends_with(" from 0-1,3 to 0-3: set again"), "{}", lines[0]);
    assert!(lines[1].ends_with(": set again (13 times)"), "{}", lines[1]);
}

#[test]
fn devices_that_come_and_go_are_logged_every_tenth_time() {
    let flapping = |pass: usize| {
        let is_there = pass.is_multiple_of(2);
        let away = (0..600).filter(|_| is_there).map(|n| (n, "2".parse().unwrap())).collect();
        let errors = (0..600).map(|n| format!("cannot read interrupt {n}: {is_there}")).collect();
        Report { away, errors, ..Report::default() }
    };
    let lines = an_hour_of(flapping);
    let bytes: usize = lines.iter().map(String::len).sum();
    assert!(bytes < 32 << 10, "{bytes} bytes in {} lines", lines.len());
}
