//! [`ContainerEntry`]: what the ledger keeps of a container.

use super::applied::Applied;
use crate::cpuset::CpuSet;
use crate::ledger::cgroup::CgroupPath;
use crate::ledger::claim::Claim;
use crate::ledger::model::{Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Qos};
use crate::ledger::policy::Exclusivity;
use crate::ledger::terms::Terms;
use crate::ledger::wish::Cpus;
use crate::placement::Wishes;
use crate::placement::wishes::Smt;

/// A container that exists, or will be restarted.
#[derive(Debug, Clone)]
pub(crate) struct ContainerEntry {
    /// The runtime's id of the present or last instance.
    pub(super) id: ContainerId,
    /// The instance before this one. Events of it may still come, and are no news.
    pub(crate) before: Option<ContainerId>,
    /// Whether its exclusive CPUs are those of the instance before, and it has not run yet.
    pub(crate) inherited: bool,
    pub(crate) kind: ContainerKind,
    pub(crate) cpu: CpuRequest,
    /// CPUs that are this container's alone for the life of its pod.
    pub(crate) claim: Option<CpuSet>,
    /// Whether the SMT siblings of these are kept idle for it.
    pub(crate) isolated: bool,
    /// What its pod wishes for it.
    pub(crate) terms: Terms,
    pub(crate) phase: Phase,
    /// Whether it was updated before its process ran: the update may have reached the runtime's
    /// books only.
    pub(crate) updated_early: bool,
    /// Whether an earlier instance has ended: this one, too, may be back soon after its end.
    pub(crate) restarted: bool,
    /// What becomes of its exclusive CPUs while it has ended.
    pub(crate) loan: Loan,
    /// Whether its last instance is gone for good, or never came to be. Its name may come back as
    /// long as its pod lives.
    pub(crate) removed: bool,
    pub(crate) applied: Applied,
    /// Whether it gets the rest of its CPUs when others have left them, see
    /// [`order`](crate::ledger::order).
    pub(crate) waits: bool,
    /// When it was created, as the runtime says.
    pub(crate) created_at: Option<i64>,
    /// What keeps other containers off its exclusive CPUs.
    pub(crate) enforced_by: Exclusivity,
    pub(crate) cgroup: Option<CgroupPath>,
    /// Whether CPUs of it went offline, and it has fewer than it asks for since.
    pub(crate) lost: bool,
}

/// How far a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has been created, and its process may not run yet.
    Created,
    /// Its process runs.
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

/// What becomes of the exclusive CPUs of a container that has ended and whose pod lives.
///
/// The shared pool has the use of them until the container is back, but not each time: shared
/// containers would be moved to and fro by every crash. So they are lent at once where that may be
/// the last chance (see [`PodEntry::end`](super::pod::PodEntry::end)), and else when the container
/// has stayed away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Loan {
    /// The container is expected back.
    #[default]
    Awaited,
    /// It has not come back since the last lull.
    Overdue,
    /// The shared pool has them.
    Lent,
}

impl ContainerEntry {
    /// A container as an event tells of it.
    pub(crate) fn new(
        container: &Container,
        phase: Phase,
        enforced_by: Exclusivity,
        terms: Terms,
        applied: Applied,
    ) -> ContainerEntry {
        ContainerEntry {
            id: container.id.clone(),
            before: None,
            inherited: false,
            kind: container.kind,
            cpu: container.cpu,
            claim: None,
            isolated: false,
            terms,
            phase,
            updated_early: false,
            restarted: false,
            loan: Loan::default(),
            removed: false,
            applied,
            waits: false,
            created_at: container.created_at,
            enforced_by,
            cgroup: container.cgroup.clone(),
            lost: false,
        }
    }

    /// A container that has ended and kept its CPUs.
    pub(crate) fn ended(claim: &Claim, isolated: bool) -> ContainerEntry {
        ContainerEntry {
            id: claim.id.clone(),
            before: None,
            inherited: false,
            kind: ContainerKind::Unknown,
            cpu: claim.cpu,
            claim: Some(claim.cpus),
            isolated,
            terms: Terms::default(),
            phase: Phase::Ended,
            updated_early: false,
            restarted: false,
            loan: Loan::default(),
            removed: false,
            applied: Applied::nothing(),
            waits: false,
            created_at: None,
            enforced_by: Exclusivity::Runtime,
            cgroup: None,
            lost: false,
        }
    }

    /// Takes note of the instance that was there before under its name.
    pub(crate) fn follow(&mut self, before: Option<&ContainerEntry>) {
        self.before = before.map(|before| before.id.clone());
        self.restarted = before.is_some_and(|before| !before.is_alive() || before.restarted);
    }

    /// The runtime's id of the present or last instance.
    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    /// Whether it exists: its process runs, or may soon.
    pub(crate) fn is_alive(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// What of its pod's budget is its own. Of one that was found with exclusive CPUs no amount may
    /// be known, because it has ended or has more than shares can tell.
    pub(crate) fn counts(&self) -> Option<MilliCpu> {
        let whole = |claim: CpuSet| MilliCpu(claim.len() as u64 * 1000);
        self.cpu.amount().or_else(|| self.claim.map(whole))
    }

    /// How many exclusive CPUs it asks for; `None` if none.
    pub(crate) fn asks(&self, qos: Qos) -> Option<usize> {
        self.asks_with(qos, &self.cpu)
    }

    /// How many it asks for with this request. One that has some goes on by what it requests,
    /// whatever its pod wishes for by now.
    pub(crate) fn asks_with(&self, qos: Qos, cpu: &CpuRequest) -> Option<usize> {
        let by_claim = self.claim.map(|_| Cpus::Exclusive);
        Terms { cpus: self.terms.cpus.or(by_claim), ..self.terms }.exclusive_cpus(qos, cpu)
    }

    /// What its CPUs were chosen by, and others beside them have to be.
    ///
    /// That may be more or less than its pod wishes: one that found no idle siblings when it was
    /// taken over goes on without.
    pub(crate) fn wishes(&self) -> Wishes {
        let smt = match self.terms.wishes.smt {
            _ if self.isolated => Some(Smt::Isolate),
            Some(Smt::Isolate) if self.claim.is_some() => None,
            smt => smt,
        };
        Wishes { smt, ..self.terms.wishes }
    }

    /// Whether its exclusive CPUs are the shared pool's for the time being.
    pub(crate) fn is_lent(&self) -> bool {
        self.phase == Phase::Ended && self.loan == Loan::Lent
    }

    /// Whether it has to be told something, wherever shared containers run.
    pub(super) fn is_unsettled(&self) -> bool {
        let differs = || match &self.claim {
            Some(claim) => self.applied.differs_from_claim(claim),
            None => self.applied.differs_from_shared(self.cpu.limit),
        };
        self.is_alive() && (self.waits || differs())
    }
}
