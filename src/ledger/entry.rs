//! What the ledger remembers of a container.

use super::Claim;
use super::cgroup::CgroupPath;
use super::event::Pin;
use super::model::{Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Qos};
use super::settings::Exclusivity;
use super::wishes::{Cpus, Terms};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;
use crate::placement::Wishes;
use crate::placement::wishes::Smt;

/// A container that exists, or will be restarted.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The runtime's id of the present or last instance.
    pub(super) id: ContainerId,
    /// The instance before this one. Events of it may still come, and are no news.
    pub(super) before: Option<ContainerId>,
    /// Whether its exclusive CPUs are those of the instance before, and it has not run yet.
    pub(super) inherited: bool,
    pub(super) kind: ContainerKind,
    pub(super) cpu: CpuRequest,
    /// CPUs that are this container's alone for the life of its pod.
    pub(super) claim: Option<CpuSet>,
    /// Whether the SMT siblings of these are kept idle for it.
    pub(super) isolated: bool,
    /// What its pod wishes for it.
    pub(super) terms: Terms,
    pub(super) life: Life,
    /// Whether an earlier instance has ended: this one, too, may be back soon after its end.
    pub(super) restarted: bool,
    /// What becomes of its exclusive CPUs while it has ended.
    pub(super) loan: Loan,
    /// Whether its last instance is gone for good, or never came to be. Its name may come back as long as its pod lives.
    pub(super) removed: bool,
    /// What was set for it last; `None` if nothing was, by anybody.
    pub(super) applied: Option<Applied>,
    /// The exclusive CPUs that it had before and left with that, should it turn out that it has not.
    pub(super) left: Option<Box<CpuSet>>,
    /// Whether it gets the rest of its CPUs when others have left them, see [`order`](super::order).
    pub(super) waits: bool,
    /// The NUMA nodes that are set for its memory; `None` if none are.
    pub(super) mems: Option<NodeSet>,
    /// Whether somebody else set those, the kubelet's memory manager for one: they are left alone.
    pub(super) mems_are_others: bool,
    /// When it was created, as the runtime says.
    pub(super) created_at: Option<i64>,
    /// Who keeps others off its exclusive CPUs.
    pub(super) kept_by: Exclusivity,
    pub(super) cgroup: Option<CgroupPath>,
    /// Whether CPUs of it went offline, and it has fewer than it asks for since.
    pub(super) lost: bool,
    /// Whether its CFS quota was lifted, and nobody else has set one since: while it shares CPUs it is told its limit.
    pub(super) lifted: bool,
}

/// Where a container is in its life, as far as it matters for CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Created; its process may not run yet. An update at this point may reach only the runtime's books.
    Created {
        /// Whether an update was sent since it was created, see above: it is sent again once the process runs.
        updated: bool,
    },
    /// Its process runs.
    Running,
    /// Its process has ended.
    Stopped,
}

/// What becomes of the exclusive CPUs of a container that has ended and whose pod lives.
///
/// The shared pool has the use of them until the container is back, but not each time: shared containers would be moved
/// to and fro by every crash. So they are lent at once where that may be the last chance (see [`PodEntry::end`](super::pods::PodEntry::end)), and
/// else when the container has stayed away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Loan {
    /// The container is expected back.
    #[default]
    Awaited,
    /// It has not come back since the last lull.
    Overdue,
    /// The shared pool has them.
    Lent,
}

/// CPUs that were set for a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) cpus: CpuSet,
    /// Whether no other container was to run on them.
    pub(super) exclusive: bool,
    /// How far that can be relied on.
    pub(super) certainty: Certainty,
}

/// How far it can be relied on that CPUs are set which were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Certainty {
    /// They may have been lost, or changed since: whatever is decided has to be told.
    Doubtful,
    /// They were written into the container's group; the runtime believes something else.
    Written,
    /// The runtime has set them, as far as is known.
    Told,
}

impl Applied {
    /// As the runtime has set it.
    pub(super) fn told(cpus: CpuSet, exclusive: bool) -> Applied {
        Applied { cpus, exclusive, certainty: Certainty::Told }
    }
}

impl Entry {
    pub(super) fn new(container: &Container, life: Life, kept_by: Exclusivity) -> Entry {
        Entry {
            id: container.id.clone(),
            before: None,
            inherited: false,
            kind: container.kind,
            cpu: container.cpu,
            claim: None,
            isolated: false,
            terms: Terms::default(),
            life,
            restarted: false,
            loan: Loan::default(),
            removed: false,
            applied: container.cpus.map(|cpus| Applied::told(cpus, false)),
            left: None,
            waits: false,
            mems: container.mems,
            mems_are_others: container.mems.is_some(),
            created_at: container.created_at,
            kept_by,
            cgroup: container.cgroup.clone(),
            lost: false,
            lifted: false,
        }
    }

    /// A container that has ended and kept its CPUs.
    pub(super) fn ended(claim: &Claim, isolated: bool) -> Entry {
        Entry {
            id: claim.id.clone(),
            before: None,
            inherited: false,
            kind: ContainerKind::Unknown,
            cpu: claim.cpu,
            claim: Some(claim.cpus),
            isolated,
            terms: Terms::default(),
            life: Life::Stopped,
            restarted: false,
            loan: Loan::default(),
            removed: false,
            applied: None,
            left: None,
            waits: false,
            mems: None,
            mems_are_others: false,
            created_at: None,
            kept_by: Exclusivity::Runtime,
            cgroup: None,
            lost: false,
            lifted: false,
        }
    }

    /// What of its pod's budget is its own. Of one that was found with exclusive CPUs no amount may be known, because it
    /// has ended or has more than shares can tell.
    pub(super) fn counts(&self) -> Option<MilliCpu> {
        let whole = |claim: CpuSet| MilliCpu(claim.len() as u64 * 1000);
        self.cpu.amount().or_else(|| self.claim.map(whole))
    }

    /// How many exclusive CPUs it asks for; `None` if none.
    pub(super) fn asks(&self, qos: Qos) -> Option<usize> {
        self.asks_with(qos, &self.cpu)
    }

    /// How many it asks for with this request. Who has some goes on by what it requests, whatever its pod may wish for by
    /// now.
    pub(super) fn asks_with(&self, qos: Qos, cpu: &CpuRequest) -> Option<usize> {
        let by_claim = self.claim.map(|_| Cpus::Exclusive);
        Terms { cpus: self.terms.cpus.or(by_claim), ..self.terms }.exclusive_cpus(qos, cpu)
    }

    /// What its CPUs were chosen by, and others beside them have to be.
    ///
    /// That may be more or less than is wished: who found no idle siblings when it was taken over goes on without.
    pub(super) fn wishes(&self) -> Wishes {
        let smt = match self.terms.wishes.smt {
            _ if self.isolated => Some(Smt::Isolate),
            Some(Smt::Isolate) if self.claim.is_some() => None,
            smt => smt,
        };
        Wishes { smt, ..self.terms.wishes }
    }

    /// Takes note of what the runtime is told to set.
    pub(super) fn hear(&mut self, pin: &Pin) {
        self.apply(pin, Certainty::Told);
        self.mems = pin.mems().or(self.mems);
        self.lifted |= pin.is_exclusive();
    }

    /// The same of a container that exists.
    pub(super) fn hear_again(&mut self, pin: &Pin) {
        self.hear(pin);
        if let Life::Created { updated } = &mut self.life {
            *updated = true;
        }
    }

    /// Takes note of what is set now.
    pub(super) fn apply(&mut self, pin: &Pin, certainty: Certainty) {
        let left = self.applied.as_ref().filter(|before| before.exclusive);
        self.left = left.filter(|before| before.cpus != pin.cpus()).map(|b| Box::new(b.cpus));
        let exclusive = pin.is_exclusive();
        self.applied = Some(Applied { cpus: pin.cpus(), exclusive, certainty });
    }

    /// What was told or written last was not: what was set before may still be so.
    pub(super) fn unapply(&mut self) {
        self.doubt();
        if let (Some(now), Some(left)) = (&mut self.applied, self.left.take()) {
            (now.cpus, now.exclusive) = (now.cpus | *left, true);
        }
    }

    /// What is set may be something else than what was told: it has to be told again. Where nothing is there is nothing to
    /// repeat.
    pub(super) fn doubt(&mut self) {
        if let Some(applied) = &mut self.applied {
            applied.certainty = Certainty::Doubtful;
        }
    }

    /// The CPUs that the runtime has set, where they are known.
    pub(super) fn told(&self) -> Option<CpuSet> {
        let told = self.applied.as_ref().filter(|applied| applied.certainty == Certainty::Told);
        told.map(|applied| applied.cpus)
    }

    /// Whether just these are set, with this certainty or a greater one.
    pub(super) fn is_on(&self, cpus: &CpuSet, certainty: Certainty) -> bool {
        let applied = self.applied.as_ref();
        applied.is_some_and(|applied| applied.certainty >= certainty && applied.cpus == *cpus)
    }

    /// Whether its exclusive CPUs are the shared pool's for the time being.
    pub(super) fn is_lent(&self) -> bool {
        self.life == Life::Stopped && self.loan == Loan::Lent
    }
}

impl CpuRequest {
    /// What it is after a change that names only what changes.
    ///
    /// Shares cannot tell requests from 256 CPUs on: beside such a limit none means as much as that, not the old one.
    pub(super) fn changed_by(self, wanted: CpuRequest) -> CpuRequest {
        let untold = wanted.limit.is_some_and(|limit| limit >= MilliCpu::SHARES_END);
        CpuRequest {
            request: if untold { wanted.request } else { wanted.request.or(self.request) },
            limit: wanted.limit.or(self.limit),
        }
    }

    /// The amount asked for, where request and limit do not differ.
    ///
    /// One of them suffices: without CFS quotas the kubelet sends no limit, and the limit of an exclusive container has
    /// been lifted.
    pub(super) fn amount(&self) -> Option<MilliCpu> {
        match (self.request, self.limit) {
            (Some(request), Some(limit)) => (request == limit).then_some(limit),
            (request, limit) => limit.or(request),
        }
    }
}
