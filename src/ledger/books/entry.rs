//! [`ContainerEntry`]: what the ledger keeps of a container.

use super::applied::Applied;
use crate::cpuset::CpuSet;
use crate::ledger::adjustment::Adjustment;
use crate::ledger::cgroup::CgroupPath;
use crate::ledger::claim::Claim;
use crate::ledger::model::{
    Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Qos, SandboxId,
};
use crate::ledger::moves::StayReason;
use crate::ledger::policy::Mechanism;
use crate::ledger::terms::Terms;
use crate::ledger::wish::Cpus;
use crate::placement::Wishes;
use crate::placement::wishes::{Margin, Smt, Uncore};
use core::time::Duration;

/// A container that exists, or will be restarted.
#[derive(Debug, Clone)]
pub(crate) struct ContainerEntry {
    /// The runtime's id of the present or last instance.
    pub(super) id: ContainerId,
    /// The instance before this one. Late events of it change nothing.
    pub(crate) before: Option<ContainerId>,
    /// Whether it has the exclusive CPUs of the instance before and has not run yet.
    pub(crate) inherited: bool,
    pub(crate) kind: ContainerKind,
    pub(crate) cpu: CpuRequest,
    holding: Option<Holding>,
    /// Whether it has fewer CPUs than it asks for since some went offline.
    pub(crate) lost: bool,
    loan: Loan,
    pub(crate) terms: Terms,
    pub(crate) phase: Phase,
    /// Whether the runtime has the answer to its creation, or shows otherwise that it exists. A
    /// container cannot be updated before.
    pub(crate) answered: bool,
    /// Whether it was updated before its process ran: the update may have changed only the
    /// runtime's own record.
    pub(crate) updated_early: bool,
    /// Whether an earlier instance has ended: after this one's end the next may come soon.
    pub(crate) restarted: bool,
    /// Whether the runtime has removed its last instance, or could not create it. A new one may
    /// come as long as its pod lives.
    pub(crate) removed: bool,
    /// Whether the runtime has listed no instance of it, and its claim is all that is known. It may
    /// be between two instances, or its pod may have ended unreported.
    pub(crate) unlisted: bool,
    pub(crate) applied: Applied,
    /// Whether it waits for CPUs that others have yet to leave, see
    /// [`order`](crate::ledger::order).
    pub(crate) waits: bool,
    /// When its process started or it last moved, as [`Event::Time`](crate::ledger::Event::Time)
    /// counts; `None` while it is on CPUs that it is not to keep.
    settled_at: Option<Duration>,
    /// Whether it was given the numbers of its CPUs when it was created: they cannot follow.
    told: bool,
    /// Whether its threads have affinities of their own.
    has_own_affinity: bool,
    pub(crate) created_at: Option<i64>,
    pub(crate) enforced_by: Mechanism,
    pub(crate) cgroup: Option<CgroupPath>,
}

/// Exclusive CPUs, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holding {
    cpus: CpuSet,
    /// What stays idle around them.
    margin: Margin,
    /// Whether it uses shared CPUs beside them.
    mixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has been created, and its process may not run yet.
    Created,
    Running,
    /// Its process has ended; its CPUs are kept until its pod ends.
    Ended,
}

impl Phase {
    /// A short name that stays.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Created => "created",
            Phase::Running => "running",
            Phase::Ended => "ended",
        }
    }
}

/// The use of the exclusive CPUs of an ended container whose pod lives.
///
/// The shared pool uses them until the container is back, but not at once after every crash, which
/// would move all shared containers twice. The ledger lends them at once if that may be the last
/// chance (see [`PodEntry::end`](super::pod::PodEntry::end)), and otherwise if the container has
/// not come back after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Loan {
    #[default]
    Awaited,
    /// It had not come back at the end of the last quiet period.
    Overdue,
    /// The shared pool has them.
    Lent,
}

/// How a container's exclusive CPUs change: in no other way.
impl ContainerEntry {
    /// It gets exclusive CPUs, with this margin. No CPUs are none.
    pub(crate) fn assign(&mut self, cpus: CpuSet, margin: Margin) {
        let mixed = match &self.holding {
            Some(holding) => holding.mixed,
            None => self.terms.cpus == Some(Cpus::Mixed),
        };
        let holding = Holding { cpus, margin, mixed };
        self.holding = if cpus.is_empty() { None } else { Some(holding) };
        self.enforce_by(self.enforced_by);
    }

    /// It gets as many others as it asks for.
    pub(crate) fn move_to(&mut self, cpus: CpuSet, margin: Margin) {
        self.assign(cpus, margin);
        self.lost = false;
    }

    /// It comes back to what the instance before it had.
    pub(crate) fn inherit(&mut self, before: &ContainerEntry) {
        self.holding = before.holding;
    }

    /// Some of its CPUs may have gone offline.
    pub(crate) fn lose(&mut self, online: CpuSet) {
        if let Some(Holding { cpus, margin, .. }) = self.holding
            && !cpus.is_subset(&online)
        {
            self.assign(cpus & online, margin);
            self.lost = true;
        }
    }

    /// Another container of its pod gets some of its CPUs.
    pub(crate) fn hand_over(&mut self, to_other: CpuSet) {
        if let Some(Holding { cpus, margin, .. }) = self.holding {
            self.assign(cpus - to_other, margin);
        }
    }

    /// This margin of its CPUs stays idle from now on.
    pub(crate) fn keep_idle(&mut self, margin: Margin) {
        if let Some(holding) = &mut self.holding {
            holding.margin = margin;
            self.enforce_by(self.enforced_by);
        }
    }

    /// Whether it uses shared CPUs beside its exclusive ones, as was decided earlier.
    pub(crate) fn mix(&mut self, mixed: bool) {
        if let Some(holding) = &mut self.holding {
            holding.mixed = mixed;
            self.enforce_by(self.enforced_by);
        }
    }

    /// It has no exclusive CPUs any more. Returns those that it had.
    pub(crate) fn release(&mut self) -> Option<CpuSet> {
        self.inherited = false;
        self.lost = false;
        self.unassign()
    }

    /// Its exclusive CPUs are about to be found anew. Returns those that it had.
    pub(crate) fn unassign(&mut self) -> Option<CpuSet> {
        self.holding.take().map(|held| held.cpus)
    }

    /// It has started, or moved to CPUs that it keeps (`None`: does not keep).
    pub(crate) fn settle(&mut self, at: Option<Duration>) {
        self.settled_at = at;
    }

    /// It keeps its CPUs: its program knows their numbers.
    pub(crate) fn tell(&mut self) {
        self.told = true;
    }

    /// It keeps its CPUs: its threads have chosen among them.
    pub(crate) fn bind_itself(&mut self) {
        self.has_own_affinity = true;
    }

    pub(super) fn end(&mut self) {
        if self.is_alive() {
            self.phase = Phase::Ended;
            self.loan = Loan::Awaited;
        }
    }

    /// The shared pool uses its CPUs until it is back.
    pub(super) fn lend(&mut self) {
        self.loan = Loan::Lent;
    }

    /// A quiet period has ended: after two of them without the container its CPUs are lent.
    pub(super) fn stay_away(&mut self) {
        self.loan = match self.loan {
            Loan::Awaited => Loan::Overdue,
            Loan::Overdue | Loan::Lent => Loan::Lent,
        };
    }
}

impl ContainerEntry {
    /// A container that exists, or will once the answer to its creation is there (`answered`).
    pub(crate) fn new(
        container: &Container,
        phase: Phase,
        enforced_by: Mechanism,
        terms: Terms,
        applied: Applied,
    ) -> ContainerEntry {
        ContainerEntry {
            id: container.id.clone(),
            before: None,
            inherited: false,
            kind: container.kind,
            cpu: container.cpu,
            holding: None,
            lost: false,
            loan: Loan::default(),
            terms,
            phase,
            answered: phase != Phase::Created,
            updated_early: false,
            restarted: false,
            removed: false,
            unlisted: false,
            applied,
            waits: false,
            settled_at: None,
            told: false,
            has_own_affinity: false,
            created_at: container.created_at,
            enforced_by,
            cgroup: container.cgroup.clone(),
        }
    }

    /// Something else keeps others off its exclusive CPUs from now on.
    pub(crate) fn enforce_by(&mut self, mechanism: Mechanism) {
        self.enforced_by = match mechanism {
            // Nothing in a cpuset partition can run on shared CPUs.
            Mechanism::Partitions if self.is_mixed() => Mechanism::Groups,
            mechanism => mechanism,
        };
    }

    /// A container of which only the claim is known.
    pub(crate) fn ended(claim: &Claim, margin: Margin) -> ContainerEntry {
        let container = Container::new(
            claim.id.clone(),
            SandboxId(String::new()),
            claim.container.clone(),
            claim.cpu,
        );
        let (runtime, terms) = (Mechanism::Runtime, Terms::default());
        let mut entry =
            ContainerEntry::new(&container, Phase::Ended, runtime, terms, Applied::nothing());
        entry.unlisted = true;
        entry.assign(claim.cpus, margin);
        entry.mix(claim.mixed);
        entry
    }

    pub(crate) fn follow(&mut self, before: Option<&ContainerEntry>) {
        self.before = before.map(|before| before.id.clone());
        self.restarted = before.is_some_and(|before| !before.is_alive() || before.restarted);
    }

    pub(crate) fn settled_at(&self) -> Option<Duration> {
        self.settled_at
    }

    /// Why it never moves to other CPUs, as far as its own history and wishes go.
    pub(crate) fn stays(&self) -> Option<StayReason> {
        if self.terms.movable == Some(false) {
            Some(StayReason::Wish)
        } else if self.told {
            Some(StayReason::Environment)
        } else if self.has_own_affinity {
            Some(StayReason::OwnAffinity)
        } else if self.applied.keeps_mems() {
            Some(StayReason::MemoryNodes)
        } else {
            None
        }
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(crate) fn claim(&self) -> Option<CpuSet> {
        self.holding.map(|held| held.cpus)
    }

    /// Its exclusive CPUs; empty without any.
    pub(crate) fn held(&self) -> CpuSet {
        self.holding.map_or(CpuSet::EMPTY, |held| held.cpus)
    }

    /// Whether it uses shared CPUs beside its exclusive ones; then it is no partition.
    pub(crate) fn is_mixed(&self) -> bool {
        self.holding.as_ref().is_some_and(|holding| holding.mixed)
    }

    /// What stays idle around its exclusive CPUs.
    pub(crate) fn margin(&self) -> Margin {
        self.holding.as_ref().map_or(Margin::NONE, |held| held.margin)
    }

    pub(super) fn has_margin(&self) -> bool {
        self.margin() != Margin::NONE
    }

    /// The answer to its creation has gone out, with this adjustment.
    pub(crate) fn answer(&mut self, adjustment: Option<&Adjustment>) {
        self.answered = true;
        if let Some(adjustment) = adjustment {
            self.applied.record(adjustment);
        }
    }

    /// Whether the runtime can update it.
    pub(crate) fn is_updatable(&self) -> bool {
        self.is_alive() && self.answered
    }

    /// Whether its process runs, or may soon.
    pub(crate) fn is_alive(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// Its part of its pod's budget. The amount of one with exclusive CPUs may be unknown, because
    /// it has ended or asks for more than shares can show.
    pub(crate) fn counts(&self) -> Option<MilliCpu> {
        let whole = |claim: CpuSet| MilliCpu(claim.len() as u64 * 1000);
        self.cpu.amount().or_else(|| self.claim().map(whole))
    }

    /// How many exclusive CPUs it asks for; `None` if none.
    pub(crate) fn asks(&self, qos: Qos) -> Option<usize> {
        self.asks_with(qos, &self.cpu)
    }

    /// How many it asks for with this request. For one that has some the request alone decides,
    /// whatever its pod wishes for by now.
    pub(crate) fn asks_with(&self, qos: Qos, cpu: &CpuRequest) -> Option<usize> {
        let by_claim = self.claim().map(|_| Cpus::Exclusive);
        Terms { cpus: self.terms.cpus.or(by_claim), ..self.terms }.exclusive_cpus(qos, cpu)
    }

    /// The wishes that its CPUs were chosen by, and that further ones follow.
    ///
    /// They may differ from its pod's wishes: one that had no idle CPUs when the ledger adopted it
    /// goes on without.
    pub(crate) fn wishes(&self) -> Wishes {
        let Some(Holding { margin, .. }) = self.holding else { return self.terms.wishes };
        let smt = match self.terms.wishes.smt {
            _ if margin.siblings => Some(Smt::Isolate),
            Some(Smt::Isolate) => None,
            smt => smt,
        };
        let uncore = match self.terms.wishes.uncore {
            _ if margin.caches => Some(Uncore::Exclusive),
            Some(Uncore::Exclusive) => None,
            uncore => uncore,
        };
        Wishes { smt, uncore, ..self.terms.wishes }
    }

    /// Whether the shared pool uses its exclusive CPUs.
    pub(crate) fn is_lent(&self) -> bool {
        self.stays_away()
    }

    /// Whether it has ended and is not expected back soon.
    pub(crate) fn stays_away(&self) -> bool {
        self.phase == Phase::Ended && self.loan == Loan::Lent
    }

    /// Whether an update is due, wherever shared containers run.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_updatable()
            && (self.waits
                || match &self.holding {
                    Some(held) => self.applied.differs_from_claim(&held.cpus, self.is_mixed()),
                    None => self.applied.differs_from_shared(self.cpu.limit),
                })
    }
}
