//! [`Suspects`]: which of the containers that are not as decided are only late, and which have
//! drifted.
//!
//! A drift counts at the second look, as the first one may have come during a change. A container
//! with an update under way that is within the runtime's [`Pace`] is late, and no suspect.

use super::pace::{MOST, Pace};
use crate::ledger::{ContainerId, Target};
use crate::verify::Drift;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two looks.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// The time to the next look after one that found something.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// The longest that a container can be late, so that a runtime which never finishes its updates
/// hides no drift.
const LATE: Duration = MOST.saturating_mul(2);
/// The daemon logs and repairs a lasting drift less and less often, but at least once in so many
/// looks.
const PATIENCE: u32 = 30;

/// A container that was not as decided at a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) placed: Target,
    pub(super) drift: Vec<Drift>,
}

#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Containers that may have drifted, and how many looks in a row have found the same.
    suspects: HashMap<ContainerId, (Finding, u32)>,
    /// Containers that are late, and since which look.
    late: HashMap<ContainerId, Instant>,
    /// How often a container was found to be late.
    pub(super) times_late: u64,
    /// How many containers were not as decided at the last two looks. A repair changes that with the
    /// next look, so that a program which drifts them again and again does not stay unseen.
    drifting: usize,
}

impl Suspects {
    /// Records what a look found, and returns what to repair now.
    pub(super) fn note(&mut self, found: Vec<Finding>, pace: &Pace, now: Instant) -> Vec<Finding> {
        let mut before = std::mem::take(&mut self.suspects);
        let late_before = std::mem::take(&mut self.late);
        let mut confirmed = Vec::new();
        for finding in found {
            let id = finding.placed.subject.id.clone();
            let since = late_before.get(&id).copied();
            let looks = match before.remove(&id) {
                Some((same, looks)) if same == finding => looks,
                _ => 0,
            };
            if pace.overdue(&id, now).is_some() {
                self.times_late += u64::from(since.is_none());
                self.late.insert(id.clone(), since.unwrap_or(now));
                if since.is_none_or(|since| now - since < LATE) {
                    // A drift whose repair is under way keeps its count.
                    if looks > 1 {
                        self.suspects.insert(id, (finding, looks));
                    }
                    continue;
                }
            }
            let looks = looks.saturating_add(1);
            if looks > 1 && (looks.is_power_of_two() || looks % PATIENCE == 0) {
                confirmed.push(finding.clone());
            }
            self.suspects.insert(id, (finding, looks));
        }
        self.drifting = self.suspects.values().filter(|(_, looks)| *looks > 1).count();
        confirmed
    }

    /// A container's drift has been repaired: the next one is another drift, even if it looks the
    /// same.
    pub(super) fn repaired(&mut self, id: &ContainerId) {
        self.suspects.remove(id);
    }

    /// When to look next: soon if a second look is due, or when a late container becomes overdue.
    pub(super) fn next_look(&self, pace: &Pace, now: Instant) -> Instant {
        if self.suspects.values().any(|(_, looks)| *looks == 1) {
            return now + AGAIN;
        }
        let overdue = self.late.keys().filter_map(|id| pace.overdue(id, now)).min();
        overdue.unwrap_or(now + PERIOD).clamp(now + AGAIN, now + PERIOD)
    }

    pub(super) fn drifting(&self) -> usize {
        self.drifting
    }

    /// Containers that were late at the last look.
    pub(super) fn late(&self) -> impl ExactSizeIterator<Item = &ContainerId> {
        self.late.keys()
    }
}

#[cfg(test)]
mod tests;
