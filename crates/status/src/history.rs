//! What happened to containers, for later explanations; bounded.

use super::badge::Badges;
use cpuset::{CpuSet, MAX_CPUS};
use ledger::{ContainerId, LeftAlone, Note, Subject, What};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wording::Moment;

/// There cannot be more containers with exclusive CPUs: one for each CPU.
const MAX_LIVING: usize = MAX_CPUS;
/// The most records of a living container. The first is kept; a new one replaces the second.
const MAX_OF_ONE: usize = 8;
const MAX_REFUSALS: usize = 64;
const MAX_TROUBLES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    pub at: Moment,
    pub subject: Subject,
    pub happened: Happened,
    /// Whether this is a refusal of a container that was admitted later.
    pub settled: bool,
}

impl HistoryRecord {
    fn new(at: Moment, subject: Subject, happened: Happened) -> HistoryRecord {
        HistoryRecord { at, subject, happened, settled: false }
    }

    fn is_of(&self, (namespace, pod, container): &Name) -> bool {
        let of = &self.subject;
        (&of.namespace, &of.pod, &of.container) == (namespace, pod, container)
    }
}

/// What happened to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// The ledger decided something; not `done` if it only observes.
    Decided { what: What, done: bool },
    /// A check pass found a difference from the decision.
    Drifted {
        target: CpuSet,
        /// What the check pass found, in words.
        observed: String,
        /// The repair, in words.
        action: String,
    },
    /// Why the kernel refused a partition for it.
    KernelRefused(String),
}

/// Namespace, pod and container; all instances of a container have the same.
pub(super) type Name = (String, String, String);

#[derive(Debug, Clone, Default)]
pub struct History {
    /// How containers got their exclusive CPUs, and pods theirs, for as long as they have them.
    living: BTreeMap<Name, VecDeque<HistoryRecord>>,
    pub badges: Badges,
    /// Containers whose change the runtime had not made yet at the last check pass.
    pub late: BTreeSet<ContainerId>,
    refusals: VecDeque<HistoryRecord>,
    troubles: VecDeque<HistoryRecord>,
}

impl History {
    /// Records a note of the ledger.
    pub fn note(&mut self, at: Moment, note: &Note) {
        let happened = Happened::Decided { what: note.what.clone(), done: note.done };
        let record = HistoryRecord::new(at, note.subject.clone(), happened);
        match &note.what {
            What::Refused { .. } => push(&mut self.refusals, MAX_REFUSALS, record),
            What::LeftShared(_)
            | What::Contested(_)
            | What::LeftAlone { why: LeftAlone::Unexplained, .. }
            | What::TooMany(_)
            | What::Suggested { .. } => {
                push(&mut self.troubles, MAX_TROUBLES, record);
            }
            What::Released(_) | What::Resized { to: None, .. } => {
                let name = name(&note.subject);
                // A new pod of the same name may have started before the runtime reported the end of
                // the old one: its records stay.
                let last = self.living.get(&name).and_then(VecDeque::back);
                if last.is_some_and(|last| last.subject.id == note.subject.id) {
                    self.living.remove(&name);
                }
            }
            What::SharesOwnPool(_) => {
                let name = name(&note.subject);
                self.settle(&name);
                self.living.remove(&name);
            }
            What::Assigned { .. }
            | What::PodAssigned { .. }
            | What::Kept(_)
            | What::Held(_)
            | What::Outlasts(_)
            | What::Adopted(_)
            | What::Moved { .. }
            | What::Rebalanced { .. }
            | What::Resized { .. }
            | What::Announced { .. } => self.live(record),
            // For the log only: nothing about the container's CPUs.
            What::LeftAlone { .. } | What::NoEffect { .. } | What::LeftToRuntime => {}
        }
    }

    /// Marks the refusals of a container that is admitted.
    fn settle(&mut self, name: &Name) {
        for refusal in &mut self.refusals {
            refusal.settled |= refusal.is_of(name);
        }
    }

    fn live(&mut self, record: HistoryRecord) {
        let name = name(&record.subject);
        self.settle(&name);
        if self.living.len() >= MAX_LIVING && !self.living.contains_key(&name) {
            // Only possible if a container has ended without an event.
            let oldest = self
                .living
                .iter()
                .min_by_key(|(_, records)| records.back().map(|record| record.at));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.living.remove(&oldest);
            }
        }
        let records = self.living.entry(name).or_default();
        let begins = matches!(
            record.happened,
            Happened::Decided { what: What::Assigned { .. } | What::PodAssigned { .. }, .. }
        );
        if begins {
            records.clear();
        }
        if records.len() >= MAX_OF_ONE {
            records.remove(1);
        }
        records.push_back(record);
    }

    pub fn drifted(
        &mut self,
        at: Moment,
        subject: Subject,
        target: CpuSet,
        observed: String,
        action: String,
    ) {
        let happened = Happened::Drifted { target, observed, action };
        push(&mut self.troubles, MAX_TROUBLES, HistoryRecord::new(at, subject, happened));
    }

    pub fn partition_refused(&mut self, at: Moment, subject: Subject, why: String) {
        let happened = Happened::KernelRefused(why);
        push(&mut self.troubles, MAX_TROUBLES, HistoryRecord::new(at, subject, happened));
    }

    /// Refusals, the oldest first.
    pub fn refusals(&self) -> impl Iterator<Item = &HistoryRecord> {
        self.refusals.iter()
    }

    /// Drifts and other troubles, the oldest first.
    pub fn troubles(&self) -> impl Iterator<Item = &HistoryRecord> {
        self.troubles.iter()
    }

    /// How a container got the exclusive CPUs that it has, the oldest first.
    pub(crate) fn of_living(&self, subject: &Subject) -> impl Iterator<Item = &HistoryRecord> {
        self.living.get(&name(subject)).into_iter().flatten()
    }

    /// All records of all containers, the oldest first.
    pub fn all(&self) -> Vec<&HistoryRecord> {
        let living = self.living.values().flatten();
        let mut all: Vec<&HistoryRecord> =
            living.chain(&self.refusals).chain(&self.troubles).collect();
        all.sort_by_key(|record| record.at);
        all
    }
}

fn push(records: &mut VecDeque<HistoryRecord>, most: usize, record: HistoryRecord) {
    if records.len() >= most {
        records.pop_front();
    }
    records.push_back(record);
}

pub fn name(subject: &Subject) -> Name {
    (subject.namespace.clone(), subject.pod.clone(), subject.container.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(pod: &str, id: usize) -> Subject {
        Subject {
            namespace: "ns".into(),
            pod: pod.into(),
            container: "c".into(),
            id: ContainerId(id.to_string().into()),
        }
    }

    fn kept(pod: &str, id: usize) -> Note {
        Note {
            warning: false,
            done: true,
            subject: subject(pod, id),
            what: What::Kept("2-3".parse().unwrap()),
        }
    }

    fn refused(pod: &str) -> Note {
        let what = What::Refused { why: "no room".into(), request: None, devices: Vec::new() };
        Note { warning: true, done: true, subject: subject(pod, 0), what }
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::default();
        for at in 0..5000 {
            let moment = Moment(at as i64);
            history.note(moment, &kept(&format!("pod-{at}"), at));
            history.note(moment, &kept("restarts", at));
            history.note(moment, &refused("waits"));
            history.drifted(moment, subject("d", 0), CpuSet::EMPTY, String::new(), String::new());
        }
        assert_eq!(history.living.len(), MAX_LIVING);
        assert_eq!(history.of_living(&subject("restarts", 0)).count(), MAX_OF_ONE);
        assert_eq!(history.refusals().count(), MAX_REFUSALS);
        assert_eq!(history.troubles().count(), MAX_TROUBLES);
        assert_eq!(history.refusals().last().unwrap().at, Moment(4999));
        let pods = |pod: &str| history.of_living(&subject(pod, 0)).count();
        assert_eq!((pods("pod-0"), pods("pod-4999")), (0, 1), "the oldest go");
    }

    /// docs/security.md has this figure.
    #[test]
    fn the_records_of_a_container_take_at_most_24_kib() {
        let names = 63 + 253 + 63 + 64;
        let most = size_of::<HistoryRecord>() + size_of::<placement::Request>() + names;
        assert!(MAX_OF_ONE * most <= 24 << 10, "{most} bytes a record");
    }

    #[test]
    fn a_refusal_is_settled_when_the_container_is_admitted() {
        let mut history = History::default();
        let settled =
            |history: &History| history.refusals().map(|one| one.settled).collect::<Vec<_>>();
        history.note(Moment(1), &refused("db"));
        history.note(Moment(2), &refused("web"));
        history.note(Moment(3), &kept("db", 1));
        assert_eq!(settled(&history), [true, false]);
        history.note(Moment(4), &refused("db"));
        assert_eq!(settled(&history), [true, false, false]);
    }

    #[test]
    fn the_end_of_an_older_pod_leaves_its_successors_records() {
        let mut history = History::default();
        let released = |id| Note {
            warning: false,
            done: true,
            subject: subject("db", id),
            what: What::Released("2-3".parse().unwrap()),
        };
        history.note(Moment(1), &kept("db", 1));
        history.note(Moment(2), &kept("db", 2));
        history.note(Moment(3), &released(1));
        assert_eq!(history.of_living(&subject("db", 2)).count(), 2);
        history.note(Moment(4), &released(2));
        assert_eq!(history.of_living(&subject("db", 2)).count(), 0);
    }
}
