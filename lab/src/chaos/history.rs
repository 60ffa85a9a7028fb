//! Recent events of each container: with them, a finding can be followed in the logs.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Events kept per container.
const EVENTS: usize = 16;

/// Recent events by pod and container.
#[derive(Debug, Default)]
pub(super) struct Histories(BTreeMap<String, VecDeque<String>>);

impl Histories {
    /// Adds an event with the current time.
    pub(super) fn record(&mut self, name: &str, what: &str) {
        let history = self.0.entry(name.to_owned()).or_default();
        if history.len() == EVENTS {
            history.pop_front();
        }
        history.push_back(format!("{} {what}", now()));
    }

    pub(super) fn forget(&mut self, gone: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| !gone(name));
    }

    /// One line per container that has events.
    pub(super) fn of(&self, names: &[&str]) -> String {
        let line = |name: &&str| {
            let history: Vec<&str> = self.0.get(*name)?.iter().map(String::as_str).collect();
            Some(format!("\n  {name}: {}", history.join(", ")))
        };
        names.iter().filter_map(line).collect()
    }
}

/// Time of day in UTC, in the format of both logs: `12:34:56.789`.
pub(super) fn now() -> String {
    clock(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn clock(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, since_epoch.subsec_millis())
}

/// The prefix of a container id that `ctr` accepts.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_that_of_the_logs() {
        assert_eq!(clock(Duration::from_millis(86_400_000 * 3 + 45_296_789)), "12:34:56.789");
        assert_eq!(clock(Duration::ZERO), "00:00:00.000");
    }

    #[test]
    fn the_last_events_are_kept() {
        let mut histories = Histories::default();
        for event in 0..EVENTS + 2 {
            histories.record("a/c0", &format!("event {event}"));
        }
        histories.record("b/c0", "started");
        let text = histories.of(&["a/c0", "nobody"]);
        assert!(text.starts_with("\n  a/c0: "), "{text}");
        assert!(!text.contains("event 1,") && text.contains("event 2,"), "{text}");
        histories.forget(|name| name.starts_with("a/"));
        assert_eq!(histories.of(&["a/c0"]), "");
        assert!(histories.of(&["b/c0"]).ends_with("started"));
    }
}
