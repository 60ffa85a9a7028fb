//! What there is to see of a container from outside, for people.

use super::entry::{Entry, Life};
use super::hands_off::Stance;
use super::model::{ContainerId, CpuRequest, Pod};
use super::pods::PodEntry;
use super::wishes::Cpus;
use super::{Exclusivity, Ledger};
use crate::cpuset::CpuSet;

/// A container that exists, or has ended and keeps its CPUs.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// Its name in the pod.
    pub name: &'a str,
    /// The runtime's id of the present or last instance.
    pub id: &'a ContainerId,
    /// What it asks for.
    pub cpu: CpuRequest,
    /// How many exclusive CPUs it asks for, by the kubelet's rule or as its pod wishes; `None` if none.
    pub asks: Option<usize>,
    /// Its exclusive CPUs, if it has any.
    pub exclusive: Option<CpuSet>,
    /// SMT siblings of these that stay idle for it.
    pub idle: CpuSet,
    /// Whether it is to have exclusive CPUs, where the kubelet's rule does not decide that.
    pub cpus_wish: Option<Cpus>,
    /// Where its processes may run.
    pub runs_on: CpuSet,
    /// How far it is in its life.
    pub state: State,
    /// Who keeps others off its exclusive CPUs.
    pub kept_by: Exclusivity,
    /// When it was created, in nanoseconds since 1970, as the runtime says.
    pub created_at: Option<i64>,
}

/// How far a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has been created, and its process may not run yet.
    Created,
    /// Its process runs.
    Running,
    /// Its process has ended; its CPUs are kept until its pod ends.
    Ended,
}

impl State {
    /// A short name that stays.
    pub fn name(self) -> &'static str {
        match self {
            State::Created => "created",
            State::Running => "running",
            State::Ended => "ended",
        }
    }
}

impl Ledger {
    /// All containers, in order of pod uid and container name.
    pub fn seen(&self) -> impl Iterator<Item = Seen<'_>> {
        self.pods.values().flat_map(move |pod| {
            pod.containers.iter().map(move |(name, entry)| Seen {
                pod: &pod.pod,
                name,
                id: &entry.id,
                cpu: entry.cpu,
                asks: entry.asks(pod.pod.qos),
                exclusive: entry.claim,
                idle: self.taken(entry) - entry.claim.unwrap_or_default(),
                cpus_wish: entry.terms.cpus,
                runs_on: entry
                    .claim
                    .or_else(|| self.shares(pod, entry))
                    .or(entry.told())
                    .unwrap_or(self.topology.online()),
                state: match entry.life {
                    Life::Created { .. } => State::Created,
                    Life::Running => State::Running,
                    Life::Stopped => State::Ended,
                },
                kept_by: entry.kept_by,
                created_at: entry.created_at,
            })
        })
    }

    /// Where a shared container runs; `None` while nobody decides that, or somebody else.
    fn shares(&self, pod: &PodEntry, entry: &Entry) -> Option<CpuSet> {
        let pin = self.wish(pod, entry).filter(|_| self.stance == Stance::Assign)?;
        Some(self.left_of(pin.cpus()))
    }
}
