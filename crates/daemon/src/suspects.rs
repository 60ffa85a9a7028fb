//! [`Suspects`]: separates containers that have drifted from those that are only late.
//!
//! A drift counts at the second check pass, as the first one may have come during a change. A container
//! with an update under way that is within the runtime's [`Pace`] is late, and no suspect.

use super::pace::{MOST, Pace};
use exclusivity::verify::Drift;
use ledger::{ContainerId, Target};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use std::time::Instant;

/// The time between two check passes.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// The time to the next check pass after one that found something.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// The longest that a container can be late, so that a runtime which never finishes its updates
/// hides no drift.
const LATE: Duration = MOST.saturating_mul(2);
/// How long a repair is remembered: a drift that comes back within this time was not cured by it.
const REMEMBERED: Duration = Duration::from_secs(60);
/// A lasting drift is logged and repaired less and less often, but at least once in this many passes.
const RARELY: u32 = 30;

/// A container that was not as decided at a check pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DriftingContainer {
    pub(super) target: Target,
    pub(super) drift: Vec<Drift>,
}

#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Containers that may have drifted, and how many passes in a row have found the same.
    suspects: HashMap<ContainerId, (DriftingContainer, u32)>,
    /// Containers that are late, and since which pass.
    late: HashMap<ContainerId, Instant>,
    /// How often a container became late.
    pub(super) times_late: u64,
    /// Recent repairs: how many in a row, and when the last one was.
    repaired: HashMap<ContainerId, (u32, Instant)>,
    /// How many containers differ despite repairs. Those that needed several recent repairs count
    /// even while they are as decided: a program that keeps changing them must not stay hidden.
    drifting: usize,
}

impl Suspects {
    /// Records what a pass found, and returns what to repair now.
    pub(super) fn note(
        &mut self,
        findings: Vec<DriftingContainer>,
        pace: &Pace,
        now: Instant,
    ) -> Vec<DriftingContainer> {
        let mut before = std::mem::take(&mut self.suspects);
        let late_before = std::mem::take(&mut self.late);
        let mut confirmed = Vec::new();
        for finding in findings {
            let id = finding.target.subject.id.clone();
            let since = late_before.get(&id).copied();
            let passes = match before.remove(&id) {
                Some((same, passes)) if same == finding => passes,
                _ => 0,
            };
            if pace.overdue(&id, now).is_some() {
                self.times_late += u64::from(since.is_none());
                self.late.insert(id.clone(), since.unwrap_or(now));
                if since.is_none_or(|since| now - since < LATE) {
                    // A drift whose repair is under way keeps its count.
                    if passes > 1 {
                        self.suspects.insert(id, (finding, passes));
                    }
                    continue;
                }
            }
            let passes = passes.saturating_add(1);
            if passes > 1 && (passes.is_power_of_two() || passes % RARELY == 0) {
                confirmed.push(finding.clone());
            }
            self.suspects.insert(id, (finding, passes));
        }
        self.repaired.retain(|_, (_, last)| now - *last < REMEMBERED);
        let in_vain = self
            .suspects
            .iter()
            .filter(|(id, (_, passes))| *passes > 2 || self.repaired.contains_key(*id));
        let again = self.repaired.iter().filter(|(_, (times, _))| *times > 1);
        let drifting = in_vain.map(|(id, _)| id).chain(again.map(|(id, _)| id));
        self.drifting = drifting.collect::<HashSet<_>>().len();
        confirmed
    }

    /// A container's drift has been repaired: the next finding is a new drift, even if it is equal.
    pub(super) fn repaired(&mut self, id: &ContainerId, now: Instant) {
        self.suspects.remove(id);
        let (times, last) = self.repaired.entry(id.clone()).or_insert((0, now));
        *times += 1;
        *last = now;
    }

    /// When to check next: soon if a second pass is due, or when a late container becomes overdue.
    pub(super) fn next_check(&self, pace: &Pace, now: Instant) -> Instant {
        if self.suspects.values().any(|(_, passes)| *passes == 1) {
            return now + AGAIN;
        }
        let overdue = self.late.keys().filter_map(|id| pace.overdue(id, now)).min();
        overdue.unwrap_or(now + PERIOD).clamp(now + AGAIN, now + PERIOD)
    }

    pub(super) fn drifting(&self) -> usize {
        self.drifting
    }

    /// Containers that were late at the last pass.
    pub(super) fn late(&self) -> impl ExactSizeIterator<Item = &ContainerId> {
        self.late.keys()
    }
}

#[cfg(test)]
mod tests;
