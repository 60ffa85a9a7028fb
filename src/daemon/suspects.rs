//! Containers that are not as decided: which of them are only late, and which have drifted.
//!
//! A drift counts at the second look, as the first one may have come in the middle of a change. A
//! container with a change under way that is within the runtime's [`Pace`] is late, and no suspect.

use super::pace::{MOST, Pace};
use crate::enforce::Drift;
use crate::ledger::{ContainerId, Target};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long after a look the next one is.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// How long after a look that found something the next one is.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// The longest that a container can be late, look after look: a runtime that is always busy with
/// changes of a container and never makes them hides nothing for longer.
const LATE: Duration = MOST.saturating_mul(2);
/// A drift that nothing helps against is said and tried again less and less often, but at each so
/// many looks.
const PATIENCE: u32 = 30;

/// A container that is not as it was decided, at the time of the look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What was decided.
    pub(super) placed: Target,
    /// What was found.
    pub(super) drift: Vec<Drift>,
}

/// What the last look found.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Containers that may have drifted, and how many looks in a row have found the same.
    suspects: HashMap<ContainerId, (Finding, u32)>,
    /// Containers that are late, and since which look.
    late: HashMap<ContainerId, Instant>,
    /// How often a container was found to be late.
    pub(super) times_late: u64,
}

impl Suspects {
    /// Takes note of what a look found: what is to be acted on now.
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
                    // One that was told again stays what it was until it has had its time.
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
        confirmed
    }

    /// When to look next: soon if a second look is missing, or a container that is late is overdue
    /// then.
    pub(super) fn next_look(&self, pace: &Pace, now: Instant) -> Instant {
        if self.suspects.values().any(|(_, looks)| *looks == 1) {
            return now + AGAIN;
        }
        let overdue = self.late.keys().filter_map(|id| pace.overdue(id, now)).min();
        overdue.unwrap_or(now + PERIOD).clamp(now + AGAIN, now + PERIOD)
    }

    /// Containers that were not as decided at the last look, nor at the one before.
    pub(super) fn drifting(&self) -> usize {
        self.suspects.values().filter(|(_, looks)| *looks > 1).count()
    }

    /// Containers that the last look found to be late.
    pub(super) fn late(&self) -> impl ExactSizeIterator<Item = &ContainerId> {
        self.late.keys()
    }
}

#[cfg(test)]
mod tests;
