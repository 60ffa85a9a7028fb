//! [`Repeats`]: which occurrences of a condition the log has.
//!
//! A full disk, a program that defends its values or a runtime that lists a dead pod lasts for days, and is found
//! again at each pass. Each line about such a condition asks here whether it is written: the log has the first
//! occurrence of a row, and then one in [`EVERY`], but not more often than once in [`PAUSE`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

const EVERY: u64 = 10;
const PAUSE: Duration = Duration::from_secs(60);
/// An occurrence after this time without one begins a new row.
const QUIET_PERIOD: Duration = Duration::from_secs(120);
/// Conditions with a row of their own. All others share one, so that a thousand objects in the same condition
/// cost no more lines than this, and whoever chooses their names no memory.
const MOST: usize = 8;

/// Occurrences of conditions, for one writer of log lines.
#[derive(Debug, Clone, Default)]
pub struct Repeats {
    rows: BTreeMap<String, Row>,
    others: Option<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    times: u64,
    last: Instant,
    /// How many of these the last line counted, and when it was written.
    logged: (u64, Instant),
}

/// For the end of a line: nothing for a first occurrence, then ` (20 times)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub times: u64,
    /// Whether these are occurrences of several conditions that share a row.
    pub shared: bool,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Times { times: 1, shared: false } => Ok(()),
            Times { times, shared: false } => write!(f, " ({times} times)"),
            Times { times: 1, shared: true } => {
                write!(f, " (more lines like the last {MOST} are only counted from here on)")
            }
            Times { times, shared: true } => {
                write!(f, " (one of {times} such lines, about several)")
            }
        }
    }
}

impl Row {
    fn new(now: Instant) -> Row {
        Row { times: 1, last: now, logged: (1, now) }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= QUIET_PERIOD
    }

    /// Counts an occurrence. Returns how many there are if the log gets this one.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.times += 1;
        self.last = now;
        let (times, at) = self.logged;
        if self.times - times < EVERY || now.saturating_duration_since(at) < PAUSE {
            return None;
        }
        self.logged = (self.times, now);
        Some(self.times)
    }
}

impl Repeats {
    /// Counts an occurrence of a condition. Returns the end of its line if the log gets one.
    ///
    /// `condition` names it, without what differs from one occurrence to the next.
    pub fn occurred(&mut self, condition: &str, now: Instant) -> Option<Times> {
        self.rows.retain(|_, row| !row.is_over(now));
        if let Some(row) = self.rows.get_mut(condition) {
            return row.count(now).map(|times| Times { times, shared: false });
        }
        if self.rows.len() < MOST {
            self.rows.insert(condition.to_owned(), Row::new(now));
            return Some(Times { times: 1, shared: false });
        }
        match &mut self.others {
            Some(row) if !row.is_over(now) => {
                row.count(now).map(|times| Times { times, shared: true })
            }
            others => {
                *others = Some(Row::new(now));
                Some(Times { times: 1, shared: true })
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests need some moment to start from")]
mod tests {
    use super::*;

    /// How often the log has a condition that occurs at these seconds.
    fn logged(repeats: &mut Repeats, seconds: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let start = Instant::now();
        let mut lines = Vec::new();
        for second in seconds {
            let now = start + Duration::from_secs(second);
            lines.extend(repeats.occurred("disk", now).map(|times| (second, times.times)));
        }
        lines
    }

    #[test]
    fn the_first_occurrence_is_logged_and_then_one_in_ten_at_most_once_a_minute() {
        let mut repeats = Repeats::default();
        assert_eq!(logged(&mut repeats, 0..=130), [(0, 1), (60, 61), (120, 121)]);
        let every_ten = (0..=210).step_by(10);
        assert_eq!(logged(&mut Repeats::default(), every_ten), [(0, 1), (100, 11), (200, 21)]);
        let after_pauses = [0, 100, 230, 350];
        assert_eq!(
            logged(&mut Repeats::default(), after_pauses),
            [(0, 1), (230, 1), (350, 1)],
            "after two minutes without one it is new"
        );
    }

    #[test]
    fn many_conditions_share_a_row() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        let lines = (0..1000).filter_map(|n| repeats.occurred(&format!("pod {n}"), now)).count();
        assert_eq!(lines, MOST + 1);
        assert_eq!(repeats.rows.len(), MOST);
        let later = now + PAUSE;
        let line = repeats.occurred("pod 1000", later).unwrap().to_string();
        assert_eq!(line, " (one of 993 such lines, about several)");
        assert_eq!(repeats.occurred("pod 0", later), None);
        let new = repeats.occurred("pod 1000", later + QUIET_PERIOD).unwrap();
        assert_eq!(new.to_string(), "");
    }
}
