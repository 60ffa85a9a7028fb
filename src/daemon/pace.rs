//! How fast the runtime makes updates, and which are under way: a late update is no drift.
//!
//! A runtime makes the updates of an answer in order, and makes its next call only when it has made
//! all of them; it answers the daemon's call when it has made them. From these moments the daemon
//! estimates the time of one update as TCP estimates a round trip (RFC 6298): a smoothed mean and
//! four mean deviations.

use ledger::{ContainerId, Update};
use std::collections::HashMap;
use std::time::Duration;
use std::time::Instant;

/// The allowance for one update before the first measurement, and the least allowance, as in RFC
/// 6298.
const FIRST: Duration = Duration::from_secs(1);
/// The longest allowance, however slow the runtime was.
pub(super) const MOST: Duration = Duration::from_secs(60);

/// The runtime's pace.
#[derive(Debug, Default)]
pub(super) struct Pace {
    each: Option<Estimate>,
    /// The updates of the last answer, until the runtime's next call.
    answer: Option<Batch>,
    /// The updates of the daemon's last call, until the runtime answers it.
    call: Option<Batch>,
}

/// Updates that the runtime got together.
#[derive(Debug)]
struct Batch {
    at: Instant,
    /// Whether the runtime makes its next call as soon as it has made them, so that the call
    /// measures the time.
    prompt: bool,
    overdue: HashMap<ContainerId, Instant>,
}

/// The time of one change, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Estimate {
    mean: f64,
    deviation: f64,
}

impl Pace {
    /// An answer carries these updates. `prompt`: the runtime makes its next call as soon as it has
    /// made them.
    pub(super) fn answered(&mut self, changes: &[Update], prompt: bool, now: Instant) {
        self.answer = self.batch(changes, prompt, now);
    }

    /// The runtime calls again: it has made the updates of the last answer.
    pub(super) fn went_on(&mut self, now: Instant) {
        let done = self.answer.take();
        self.measure(done.filter(|batch| batch.prompt), now);
    }

    pub(super) fn called(&mut self, changes: &[Update], now: Instant) {
        self.call = self.batch(changes, true, now);
    }

    /// The runtime has answered the call: it has made the updates.
    pub(super) fn returned(&mut self, now: Instant) {
        let done = self.call.take();
        self.measure(done, now);
    }

    /// Another runtime has connected, or the same one after a restart: nothing is under way.
    pub(super) fn reconnected(&mut self) {
        (self.answer, self.call) = (None, None);
    }

    /// When the update that is under way for a container becomes overdue; `None` if none is, or it
    /// is overdue by now.
    pub(super) fn overdue(&self, container: &ContainerId, now: Instant) -> Option<Instant> {
        let batches = [&self.answer, &self.call].into_iter().flatten();
        let times = batches.filter_map(|batch| batch.overdue.get(container).copied());
        times.max().filter(|overdue| *overdue > now)
    }

    /// The mean time of an update; `None` before the first measurement.
    pub(super) fn each(&self) -> Option<Duration> {
        self.each.map(|each| Duration::from_secs_f64(each.mean))
    }

    fn batch(&self, changes: &[Update], prompt: bool, now: Instant) -> Option<Batch> {
        let mut overdue = HashMap::new();
        for (before, change) in changes.iter().enumerate() {
            overdue.insert(change.container.clone(), now + self.allows(before + 1));
        }
        (!overdue.is_empty()).then_some(Batch { at: now, prompt, overdue })
    }

    fn allows(&self, changes: usize) -> Duration {
        let each = self.each.map_or(FIRST.as_secs_f64(), |each| each.mean + 4.0 * each.deviation);
        let all = (each * changes as f64).min(MOST.as_secs_f64());
        Duration::from_secs_f64(all).max(FIRST)
    }

    fn measure(&mut self, done: Option<Batch>, now: Instant) {
        let Some(batch) = done else { return };
        // Beyond the longest allowance the exact time does not matter.
        let took = now.saturating_duration_since(batch.at).min(MOST).as_secs_f64();
        let sample = took / batch.overdue.len() as f64;
        self.each = Some(match self.each {
            None => Estimate { mean: sample, deviation: sample / 2.0 },
            Some(Estimate { mean, deviation }) => Estimate {
                deviation: 0.75 * deviation + 0.25 * (mean - sample).abs(),
                mean: 0.875 * mean + 0.125 * sample,
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::CpuSetting;

    fn changes(count: usize) -> Vec<Update> {
        let setting = CpuSetting::shared("0-3".parse().unwrap()).unwrap();
        (0..count).map(|i| Update { container: id(i), setting }).collect()
    }

    fn id(index: usize) -> ContainerId {
        ContainerId(format!("c{index}"))
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Whether a runtime that takes `each` for a change is in time with all of `count`.
    fn is_in_time(pace: &Pace, count: usize, start: Instant, each: Duration) -> bool {
        (0..count).all(|i| {
            let made = start + each * u32::try_from(i + 1).unwrap();
            pace.overdue(&id(i), made - millis(1)).is_some()
        })
    }

    #[test]
    fn a_slow_runtime_is_in_time_from_the_first_change_on() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..20 {
            pace.answered(&changes(50), true, now);
            assert!(is_in_time(&pace, 50, now, millis(400)));
            now += millis(400) * 50;
            pace.went_on(now);
            assert_eq!(pace.overdue(&id(49), now), None, "it says that it is done");
        }
        let each = pace.each().unwrap();
        assert!(each.abs_diff(millis(400)) < millis(1), "{each:?}");
        // What is lost shows soon after the time that it takes.
        pace.answered(&changes(50), false, now);
        assert_eq!(pace.overdue(&id(49), now + millis(25_000)), None);
    }

    #[test]
    fn nothing_is_waited_for_for_long_whatever_was_measured() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for seconds in [0, 3600, 0, 50, 1 << 40] {
            pace.called(&changes(1000), now);
            for i in [0, 500, 999] {
                let overdue = pace.overdue(&id(i), now).unwrap() - now;
                assert!(FIRST <= overdue && overdue <= MOST, "{overdue:?}");
            }
            assert_eq!(pace.overdue(&id(999), now + MOST), None);
            now += Duration::from_secs(seconds);
            pace.returned(now);
        }
    }

    /// The estimate follows the runtime both ways.
    #[test]
    fn it_is_as_fast_as_it_was_of_late() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let mut allowed = Vec::new();
        for each in [20, 2000, 20] {
            for _ in 0..30 {
                pace.called(&changes(10), now);
                now += millis(each) * 10;
                pace.returned(now);
            }
            allowed.push(pace.allows(10).as_millis());
        }
        assert!(allowed[0] == 1000 && allowed[1] > 20_000 && allowed[2] < 10_000, "{allowed:?}");
    }

    /// When the runtime calls next after the end of a container says nothing about how long its
    /// changes took.
    #[test]
    fn an_idle_runtime_is_not_slow() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.answered(&changes(1), false, now);
        pace.went_on(now + Duration::from_secs(3000));
        assert_eq!(pace.each(), None);
    }

    /// A container's changes may be under way both ways at once, and others are not concerned.
    #[test]
    fn ways_are_apart() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.answered(&changes(1), true, now);
        pace.called(&changes(2), now);
        pace.went_on(now);
        assert!(pace.overdue(&id(0), now).is_some() && pace.overdue(&id(1), now).is_some());
        assert_eq!(pace.overdue(&id(2), now), None);
        pace.answered(&changes(1), true, now);
        pace.returned(now);
        assert!(pace.overdue(&id(0), now).is_some() && pace.overdue(&id(1), now).is_none());
        pace.reconnected();
        assert_eq!(pace.overdue(&id(0), now), None);
    }
}
