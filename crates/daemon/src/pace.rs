//! Which updates of the runtime are under way: a late one is no drift.
//!
//! A runtime makes the updates of an answer in order, and makes its next call only when it has made
//! all of them; it answers the daemon's call when it has made them.

use ledger::{ContainerId, Update};
use std::collections::HashMap;
use std::time::Duration;
use std::time::Instant;

/// The allowance for one update. Runtimes take some hundredths of a second. A runtime that shows
/// that it has made the updates ends the wait at once.
const EACH: Duration = Duration::from_secs(1);
/// The most allowance for updates that the runtime got together, however many they are.
pub(super) const MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The moving average of the time that an update takes, in seconds.
    each: Option<f64>,
    /// The updates of the last answer, until the runtime's next call.
    answer: Option<Batch>,
    /// The updates of the daemon's last call, until the runtime answers it.
    call: Option<Batch>,
}
#[derive(Debug)]
struct Batch {
    at: Instant,
    /// Whether the runtime makes its next call as soon as it has made them, so that the call
    /// measures the time.
    prompt: bool,
    overdue: HashMap<ContainerId, Instant>,
}

impl Pace {
    /// An answer carries these updates. `prompt`: the runtime makes its next call as soon as it has
    /// made them.
    pub(super) fn answered(&mut self, changes: &[Update], prompt: bool, now: Instant) {
        self.answer = Batch::of(changes, prompt, now);
    }

    /// The runtime calls again: it has made the updates of the last answer.
    pub(super) fn went_on(&mut self, now: Instant) {
        let done = self.answer.take();
        self.measure(done.filter(|batch| batch.prompt), now);
    }

    pub(super) fn called(&mut self, changes: &[Update], now: Instant) {
        self.call = Batch::of(changes, true, now);
    }

    /// The runtime has answered the call: it has made the updates.
    pub(super) fn returned(&mut self, now: Instant) {
        let done = self.call.take();
        self.measure(done, now);
    }

    /// Another runtime has connected, or the same one after a restart: nothing is under way.
    pub(super) fn reconnected(&mut self) {
        self.answer = None;
        self.call = None;
    }

    /// When the update that is under way for a container becomes overdue; `None` if none is, or it
    /// is overdue by now.
    pub(super) fn overdue(&self, container: &ContainerId, now: Instant) -> Option<Instant> {
        let batches = [&self.answer, &self.call].into_iter().flatten();
        let times = batches.filter_map(|batch| batch.overdue.get(container).copied());
        times.max().filter(|overdue| *overdue > now)
    }

    /// The moving average of the time that an update takes; `None` before the first measurement.
    pub(super) fn each(&self) -> Option<Duration> {
        self.each.map(Duration::from_secs_f64)
    }

    fn measure(&mut self, done: Option<Batch>, now: Instant) {
        let Some(batch) = done else { return };
        let took = now.saturating_duration_since(batch.at).min(MOST).as_secs_f64();
        let sample = took / batch.overdue.len() as f64;
        // The weights of TCP's average of round trips (RFC 6298).
        self.each = Some(self.each.map_or(sample, |mean| 0.875 * mean + 0.125 * sample));
    }
}

impl Batch {
    fn of(updates: &[Update], prompt: bool, now: Instant) -> Option<Batch> {
        let allowance = (1..).map(|number| EACH.saturating_mul(number).min(MOST));
        let overdue: HashMap<_, _> = updates
            .iter()
            .zip(allowance)
            .map(|(update, allowance)| (update.container.clone(), now + allowance))
            .collect();
        (!overdue.is_empty()).then_some(Batch { at: now, prompt, overdue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::CpuSetting;

    fn changes(count: usize) -> Vec<Update> {
        let setting = CpuSetting::shared("0-3".parse().unwrap()).unwrap();
        (0..count).map(|i| Update { container: id(i), setting: setting.clone() }).collect()
    }

    fn id(index: usize) -> ContainerId {
        ContainerId(format!("c{index}").into())
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
    }

    #[test]
    fn each_update_has_a_second_and_no_batch_more_than_a_minute() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.called(&changes(1000), now);
        for (i, seconds) in [(0, 1), (9, 10), (59, 60), (999, 60)] {
            assert_eq!(pace.overdue(&id(i), now), Some(now + Duration::from_secs(seconds)), "{i}");
        }
        assert_eq!(pace.overdue(&id(999), now + MOST), None);
    }

    /// After the report of an end the runtime may have nothing to call about for long.
    #[test]
    fn an_idle_runtime_does_not_count_as_slow() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.answered(&changes(1), false, now);
        pace.went_on(now + Duration::from_secs(3000));
        assert_eq!(pace.each(), None);
    }

    #[test]
    fn updates_of_an_answer_and_of_a_call_are_overdue_separately() {
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
