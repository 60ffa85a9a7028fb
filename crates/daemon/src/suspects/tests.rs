//! Check passes at the times at which the daemon would make them.

use super::*;
use ledger::{CpuSetting, Mechanism, Subject, Update};

fn finding(name: &str, set: &str) -> DriftingContainer {
    let cpus = "4-7".parse().unwrap();
    let subject = Subject {
        namespace: "ns".into(),
        pod: name.into(),
        container: "c".into(),
        id: ContainerId(name.into()),
    };
    let target = Target {
        subject,
        cgroup: None,
        setting: CpuSetting::shared(cpus).unwrap(),
        runs_on: cpus,
        kept_from_siblings: None,
        enforced_by: Mechanism::Runtime,
        partition: false,
        running: true,
        lifts_pod_quota: false,
    };
    DriftingContainer { target, drift: vec![Drift::Set(set.parse().unwrap())] }
}

fn changes(count: usize) -> Vec<Update> {
    let setting = CpuSetting::shared("4-7".parse().unwrap()).unwrap();
    (0..count)
        .map(|i| Update { container: ContainerId(i.to_string().into()), setting: setting.clone() })
        .collect()
}

/// A watcher with its clock.
struct Watcher {
    suspects: Suspects,
    pace: Pace,
    now: Instant,
    start: Instant,
}

impl Watcher {
    fn new() -> Watcher {
        let now = Instant::now();
        Watcher { suspects: Suspects::default(), pace: Pace::default(), now, start: now }
    }

    /// Makes a pass, and waits for the next one. Returns how many drifts were confirmed.
    fn pass(&mut self, found: Vec<DriftingContainer>) -> usize {
        let confirmed = self.suspects.note(found, &self.pace, self.now).len();
        self.now = self.suspects.next_check(&self.pace, self.now);
        confirmed
    }

    fn elapsed(&self) -> Duration {
        self.now - self.start
    }
}

#[test]
fn a_drift_counts_at_the_second_pass_and_is_repaired_less_and_less_often() {
    let mut watcher = Watcher::new();
    assert_eq!(watcher.pass(vec![finding("a", "0-3")]), 0);
    assert_eq!((watcher.elapsed(), watcher.suspects.drifting()), (AGAIN, 0));
    // Another drift: its count begins with this pass.
    assert_eq!(watcher.pass(vec![finding("a", "0-2")]), 0);
    assert_eq!(watcher.pass(vec![finding("a", "0-2")]), 1);
    assert_eq!((watcher.elapsed(), watcher.suspects.drifting()), (AGAIN * 2 + PERIOD, 0));
    let tried: Vec<usize> =
        (3..100).filter(|_| watcher.pass(vec![finding("a", "0-2")]) > 0).collect();
    assert_eq!(tried, [4, 8, 16, 30, 32, 60, 64, 90]);
    assert_eq!(watcher.suspects.drifting(), 1);
    assert_eq!(watcher.pass(vec![]), 0);
    assert_eq!(watcher.suspects.drifting(), 0);
}

/// Another program writes the same again, and the passes between the two have found nothing else.
#[test]
fn a_drift_after_a_repair_is_another_drift() {
    let mut watcher = Watcher::new();
    let found = || vec![finding("a", "0-3")];
    for repairs in 0..3 {
        assert_eq!((watcher.pass(found()), watcher.pass(found())), (0, 1));
        assert_eq!(watcher.suspects.drifting(), usize::from(repairs > 0), "{repairs} repairs");
        watcher.suspects.repaired(&ContainerId("a".into()), watcher.now);
    }
    // It counts while it is right, too, until that has lasted.
    assert_eq!((watcher.pass(vec![]), watcher.suspects.drifting()), (0, 1));
    watcher.now += REMEMBERED;
    assert_eq!((watcher.pass(vec![]), watcher.suspects.drifting()), (0, 0));
    // One repair that holds is none in vain.
    assert_eq!((watcher.pass(found()), watcher.pass(found())), (0, 1));
    watcher.suspects.repaired(&ContainerId("a".into()), watcher.now);
    assert_eq!((watcher.pass(vec![]), watcher.suspects.drifting()), (0, 0));
}

/// 400 ms for each of fifty changes, from the first one on.
#[test]
fn containers_of_a_slow_runtime_are_late_and_have_not_drifted() {
    let mut watcher = Watcher::new();
    for prompt in [true, true, false] {
        watcher.start = watcher.now;
        watcher.pace.answered(&changes(50), prompt, watcher.now);
        let mut passes = 0;
        while watcher.elapsed() < Duration::from_secs(20) {
            let made = usize::try_from(watcher.elapsed().as_millis() / 400).unwrap();
            let found: Vec<DriftingContainer> =
                (made..50).map(|i| finding(&i.to_string(), "0-3")).collect();
            let late = found.len();
            assert_eq!(watcher.pass(found), 0);
            assert_eq!((watcher.suspects.late().len(), watcher.suspects.drifting()), (late, 0));
            passes += 1;
        }
        watcher.pace.went_on(watcher.now);
        assert_eq!((watcher.pass(vec![]), watcher.suspects.late().len()), (0, 0));
        assert!((2..25).contains(&passes), "{passes} passes");
    }
    assert_eq!(watcher.suspects.times_late, 150);
}

#[test]
fn a_change_that_never_comes_is_a_drift_when_its_time_is_over() {
    let mut watcher = Watcher::new();
    // A second for each, as long as nothing was measured.
    watcher.pace.answered(&changes(5), false, watcher.now);
    while watcher.pass(vec![finding("4", "0-3")]) == 0 {}
    let found = watcher.elapsed() - PERIOD;
    assert_eq!(found, Duration::from_secs(5) + AGAIN);
    // The runtime calls again: it has made all of them.
    let mut watcher = Watcher::new();
    watcher.pace.answered(&changes(50), true, watcher.now);
    assert_eq!(watcher.pass(vec![finding("49", "0-3")]), 0);
    watcher.pace.went_on(watcher.now);
    assert_eq!(watcher.pass(vec![finding("49", "0-3")]), 0);
    assert_eq!(watcher.pass(vec![finding("49", "0-3")]), 1);
    assert_eq!(watcher.elapsed(), PERIOD + AGAIN + PERIOD);
}

/// Another program writes a cgroup while the runtime is busy with others.
#[test]
fn a_drift_is_found_in_time_while_other_containers_change() {
    let mut watcher = Watcher::new();
    watcher.pace.answered(&changes(60), false, watcher.now);
    watcher.now += PERIOD;
    let found = || vec![finding("59", "0-3"), finding("by hand", "0-3")];
    assert_eq!(watcher.pass(found()), 0);
    let confirmed = watcher.suspects.note(found(), &watcher.pace, watcher.now);
    assert_eq!(confirmed, [finding("by hand", "0-3")]);
    assert!(watcher.elapsed() < Duration::from_secs(15));
}

/// It changes a container again and again, and never makes the change.
#[test]
fn a_busy_runtime_does_not_hide_a_drift_for_ever() {
    let mut watcher = Watcher::new();
    loop {
        watcher.pace.answered(&changes(20), false, watcher.now);
        if watcher.pass(vec![finding("19", "0-3")]) > 0 {
            break;
        }
        assert!(watcher.elapsed() < LATE + PERIOD * 3, "still hidden");
    }
    assert!(watcher.elapsed() >= LATE);
    assert_eq!(watcher.suspects.times_late, 1);
}

/// A drift that the runtime is asked to repair is late until the runtime has had its time.
#[test]
fn a_drift_keeps_its_count_while_the_runtime_repairs_it() {
    let mut watcher = Watcher::new();
    let found = || vec![finding("0", "0-3")];
    assert_eq!((watcher.pass(found()), watcher.pass(found())), (0, 1));
    watcher.now -= PERIOD;
    watcher.pace.called(&changes(1), watcher.now);
    assert_eq!(watcher.pass(found()), 0);
    assert_eq!((watcher.suspects.drifting(), watcher.suspects.late().len()), (0, 1));
    watcher.pace.returned(watcher.now);
    assert_eq!((watcher.pass(found()), watcher.pass(found())), (0, 1));
}
