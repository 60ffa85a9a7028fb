//! Drifts: which are confirmed, how each is repaired, and how often that happened.
//!
//! A finding is a drift only if it is no delay ([`Suspects`]). [`Repair::of`] chooses a safe repair,
//! and the owner makes it, one drift after the other, as the kernel can be slow.

use super::log_repeated;
use super::pace::Pace;
use super::suspects::{DriftingContainer, Suspects};
use cpuset::CpuSet;
use exclusivity::verify::{Drift, Figures};
use ledger::Target;
use log::Level;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Instant;
use wording::{Repeats, count, few};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    /// Bring all cgroups to their required values.
    Bind,
    /// Write the CPUs into its cgroup. The next answer may be hours away: until then only the
    /// runtime's record is wrong.
    SetCpus,
    /// Lift or restore the pod's CFS quota, which runtimes do not know.
    PodQuota,
    /// Lift the container's own CFS quota, which the runtime should have done.
    OwnQuota,
    /// Call the runtime again.
    SendAgain,
    /// Let the processes that inherited this mask run on all of the container's CPUs.
    Widen(CpuSet),
    Nothing,
}

impl Repair {
    /// `calls`: whether the runtime can be called without an event.
    pub(super) fn of(target: &Target, drift: &Drift, calls: bool) -> Repair {
        match drift {
            Drift::Partition(_) => Repair::Bind,
            Drift::Effective(_) if target.is_partition() => Repair::Bind,
            Drift::Quota(_) => Repair::PodQuota,
            Drift::OwnQuota(_) => Repair::OwnQuota,
            Drift::Set(_) if calls => Repair::SendAgain,
            Drift::Set(_) => Repair::SetCpus,
            Drift::Inherited(_, mask) => Repair::Widen(*mask),
            Drift::Effective(_) | Drift::Process(..) => Repair::Nothing,
        }
    }
}

/// What was done about a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The container's cgroup was written.
    Written,
    /// The daemon calls the runtime with the update again.
    Sent,
    /// The next answer repeats the update: a call could deadlock this runtime.
    Deferred,
    /// The processes were allowed all of their container's CPUs.
    Widened,
    /// The administrator has to change what starts the processes.
    Inherited,
    /// Nothing would be safe.
    Nothing,
}

impl Action {
    /// The label in metrics, which must not change.
    fn name(self) -> &'static str {
        match self {
            Action::Written => "written",
            Action::Sent => "sent",
            Action::Deferred => "deferred",
            Action::Widened => "widened",
            Action::Inherited | Action::Nothing => "none",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Written => "set again",
            Action::Sent => "sending the update again",
            Action::Deferred => "the next answer to the runtime repeats the update",
            Action::Widened => "widened",
            Action::Inherited => "see CPUAffinity of the runtime's systemd unit",
            Action::Nothing => "no safe repair",
        })
    }
}

#[derive(Debug)]
pub(super) struct DriftWatcher {
    pub(super) suspects: Suspects,
    confirmed: VecDeque<DriftingContainer>,
    /// Confirmed drifts since the start, by kind.
    pub(super) drifts: BTreeMap<&'static str, u64>,
    pub(super) repairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Repairs that the log does not have yet, by kind and action.
    unlogged: BTreeMap<(&'static str, &'static str), UnloggedDrifts>,
    repeats: Repeats,
}

/// The line of the first container, and the names of the others.
#[derive(Debug)]
struct UnloggedDrifts {
    line: String,
    others: Vec<String>,
}

impl DriftWatcher {
    pub(super) fn new() -> DriftWatcher {
        DriftWatcher {
            suspects: Suspects::default(),
            confirmed: VecDeque::new(),
            drifts: Drift::KINDS.map(|kind| (kind, 0)).into(),
            repairs: BTreeMap::new(),
            unlogged: BTreeMap::new(),
            repeats: Repeats::default(),
        }
    }

    /// `orphans`: a further kind of drift, and how many there were.
    pub(super) fn figures(&self, orphans: (&'static str, u64)) -> Figures {
        let drifts = self.drifts.iter().map(|(kind, count)| (*kind, *count));
        Figures {
            drifting: self.suspects.drifting(),
            late: self.suspects.late().len(),
            times_late: self.suspects.times_late,
            drifts: drifts.chain([orphans]).collect(),
            repairs: self.repairs.clone(),
            ..Figures::default()
        }
    }

    /// Records the findings of a check pass. Returns when the next one is due.
    pub(super) fn note(
        &mut self,
        found: Vec<DriftingContainer>,
        pace: &Pace,
        now: Instant,
    ) -> Instant {
        let mut confirmed = self.suspects.note(found, pace, now);
        // Shared containers leave CPUs before others come back to them.
        confirmed.sort_by_key(|finding| finding.target.setting.is_exclusive());
        self.confirmed.extend(confirmed);
        self.suspects.next_check(pace, now)
    }

    pub(super) fn next(&mut self) -> Option<DriftingContainer> {
        self.confirmed.pop_front()
    }

    pub(super) fn has_confirmed(&self) -> bool {
        !self.confirmed.is_empty()
    }

    /// Counts a repair, which [`DriftWatcher::log`] logs with those of other containers. Returns the CPUs that the drift differs from.
    pub(super) fn count(&mut self, target: &Target, drift: &Drift, action: Action) -> CpuSet {
        *self.drifts.entry(drift.kind()).or_default() += 1;
        *self.repairs.entry((drift.kind(), action.name())).or_default() += 1;
        let cpus_of_target = compared(target, drift);
        let cpus = wording::cpus(cpus_of_target);
        let container = target.subject.to_string();
        match self.unlogged.entry((drift.kind(), action.name())) {
            Entry::Occupied(mut first) => first.get_mut().others.push(container),
            Entry::Vacant(entry) => {
                let line = format!("{container}: should have {cpus}, but {drift}: {action}");
                entry.insert(UnloggedDrifts { line, others: Vec::new() });
            }
        }
        cpus_of_target
    }

    /// Logs the repairs since the last call, a line for each kind.
    pub(super) fn log(&mut self, now: Instant) {
        for ((kind, action), UnloggedDrifts { line, others }) in std::mem::take(&mut self.unlogged)
        {
            if others.is_empty() {
                log_repeated(&mut self.repeats, Level::Warn, &line, now);
            } else if let Some(times) = self.repeats.occurred(&format!("{kind} {action}"), now) {
                let containers = count(others.len(), "other container");
                log::warn!("{line}, as well as {containers} ({}){times}", few(others));
            }
        }
    }
}

/// The CPUs that a drift differs from. The CPUs set for a container can include some on which the
/// kernel does not let it run.
fn compared(target: &Target, drift: &Drift) -> CpuSet {
    match drift {
        Drift::Set(_) => target.setting.cpus(),
        _ => target.runs_on,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{ContainerId, CpuSetting, Mechanism, Subject};

    #[test]
    fn a_drift_names_the_cpus_that_the_group_was_compared_with() {
        let [set, runs_on, found] = ["0-15", "0-1,6-15", "3"].map(|list| list.parse().unwrap());
        let target = Target {
            subject: Subject {
                namespace: "ns".into(),
                pod: "web".into(),
                container: "c".into(),
                id: ContainerId("id".into()),
            },
            cgroup: None,
            setting: CpuSetting::shared(set).unwrap(),
            runs_on,
            kept_from_siblings: None,
            enforced_by: Mechanism::Partitions,
            partition: true,
            running: true,
            lifts_pod_quota: false,
        };
        assert_eq!(compared(&target, &Drift::Set(found)), set);
        assert_eq!(compared(&target, &Drift::Effective(found)), runs_on);
    }

    #[test]
    fn the_labels_of_repairs_are_documented() {
        let page = include_str!("../../../docs/metrics.md");
        let mut rows = page.lines().filter(|line| line.contains("drift_repairs_total"));
        let row = rows.next().unwrap();
        let actions =
            [Action::Written, Action::Sent, Action::Deferred, Action::Widened, Action::Nothing];
        let labels = actions.map(Action::name);
        assert_eq!(labels, ["written", "sent", "deferred", "widened", "none"]);
        for label in labels {
            assert!(row.contains(&format!("`{label}`")), "{label}: {row}");
        }
    }
}
