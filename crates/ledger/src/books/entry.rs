//! [`ContainerEntry`]: what the books have of a container.

use super::applied_setting::AppliedSetting;
use crate::claim::Claim;
use crate::device::Device;
use crate::model::{
    Container, ContainerId, ContainerKind, CpuRequest, LeftAlone, MilliCpu, PodUid, Qos, SandboxId,
};
use crate::moves::StayReason;
use crate::pod_option::Cpus;
use crate::policy::Mechanism;
use crate::setting::CpuSetting;
use crate::terms::Terms;
use core::time::Duration;
use cpuset::{CgroupPath, CpuSet};
use placement::PodOptions;
use placement::memory_manager::{Amounts, NodeMemoryClaim};
use placement::pod_options::{Margin, Smt, Uncore};
use serde::{Deserialize, Serialize};

/// A container that exists, or may be restarted.
#[derive(Debug, Clone)]
pub(crate) struct ContainerEntry {
    /// The runtime's id of the present or last instance.
    pub(super) id: ContainerId,
    before: Option<Predecessor>,
    life: Life,
    pub(crate) kind: ContainerKind,
    pub(crate) cpu: CpuRequest,
    /// Its memory limit and its huge pages.
    pub(crate) limits: Amounts,
    /// Its counted memory; `None` if its memory is not counted.
    pub(crate) memory: Option<NodeMemoryClaim>,
    /// On the heap: most containers have none.
    holding: Option<Box<Holding>>,
    /// Whether it has fewer CPUs than it asks for, or none, because some went offline.
    pub(crate) lacks_cpus: bool,
    pub(crate) terms: Terms,
    /// The devices that the runtime described.
    pub(crate) devices: Vec<Device>,
    pub(crate) applied: AppliedSetting,
    /// Why it stays on the CPUs that another program has set; `None` if it does not. Then it has no
    /// claim and no target.
    pub(crate) left_alone: Option<LeftAlone>,
    /// Why its program must not be moved as long as it runs; `None` if it may.
    fixed_by: Option<StayReason>,
    pub(crate) created_at: Option<i64>,
    pub(crate) enforced_by: Mechanism,
    pub(crate) cgroup: Option<CgroupPath>,
}

/// The instance before a container's present one.
#[derive(Debug, Clone)]
struct Predecessor {
    /// Late events with this id must change nothing.
    id: ContainerId,
    /// Whether this instance or an earlier one has ended, so that the container has been restarted.
    /// When the present instance ends, another restart is likely.
    ended: bool,
}

/// The state of a container's present or last instance. Only methods of [`ContainerEntry`] change
/// it, and no instance that has ended runs again.
#[derive(Debug, Clone, Copy)]
enum Life {
    /// The runtime waits for the answer to its creation, or the answer was lost: no updates yet.
    Creating {
        /// Whether its exclusive CPUs are those of its predecessor, which the state file has.
        inherited: bool,
    },
    /// The runtime has created it, and its process may not run yet.
    Created {
        /// Whether it has been updated. The update may have changed only the runtime's record.
        updated_early: bool,
        /// As in `Running`.
        waits: bool,
    },
    Running {
        /// When its process started or it last moved, as [`Event::Time`](crate::Event::Time)
        /// counts; `None` after a staged move, which a later step completes.
        settled_at: Option<Duration>,
        /// Whether it waits for CPUs that others have yet to leave ([`order`](crate::order)).
        waits: bool,
    },
    /// Its process has ended, or its creation has failed; it keeps its CPUs until its pod ends.
    Ended { loan: Loan, instance: LastInstance },
}

/// What the runtime still has of an ended container's last instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastInstance {
    /// The instance, stopped.
    Stopped,
    /// Nothing: it has removed the instance, or could not create it. The pod may get a new one as
    /// long as it lives.
    Removed,
    /// Nothing, as of all other containers of the pod: all of them start over.
    AllRemoved,
    /// Nothing that it listed: only the claim is known. The container may be between two instances,
    /// or its pod may have ended without an event.
    Unlisted,
}

/// A container's exclusive CPUs and their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holding {
    /// At least one.
    cpus: CpuSet,
    /// Which of their neighbours stay idle.
    margin: Margin,
    /// Whether the container also uses shared CPUs (`cpus: exclusive+shared`).
    mixed: bool,
    notice: Option<Notice>,
}

/// A resize to fewer exclusive CPUs that the program knows of and that takes effect later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The exclusive CPUs that remain; empty if the container shares CPUs then.
    pub(crate) to: CpuSet,
    /// When, as [`Event::Time`](crate::Event::Time) counts.
    pub(crate) at: Duration,
}

/// How far the life of a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its process may not run yet.
    Created,
    Running,
    /// It keeps its exclusive CPUs until its pod ends.
    Ended,
}

impl Phase {
    /// A stable name, for the status.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Created => "created",
            Phase::Running => "running",
            Phase::Ended => "ended",
        }
    }
}

/// Whether the shared pool uses the exclusive CPUs of an ended container until its restart.
///
/// Lending them after every crash would move all shared containers twice. So the ledger lends them
/// at once only if that may be the last chance (see [`PodEntry::end`](super::pod::PodEntry::end)),
/// and otherwise if the container has not been restarted after two quiet periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loan {
    /// Not lent: a restart is expected.
    Awaited,
    /// Not lent: one quiet period has ended without a restart.
    Overdue,
    Lent,
}

/// Changes of a container's exclusive CPUs. Only these methods change them.
impl ContainerEntry {
    /// Gives it these exclusive CPUs with this margin; an empty set takes all of them away.
    pub(crate) fn assign(&mut self, cpus: CpuSet, margin: Margin) {
        let mixed = match &self.holding {
            Some(holding) => holding.mixed,
            None => self.terms.cpus == Some(Cpus::Mixed),
        };
        let holding = Holding { cpus, margin, mixed, notice: None };
        self.holding = if cpus.is_empty() { None } else { Some(Box::new(holding)) };
        self.enforce_by(self.enforced_by);
    }

    /// Gives it other exclusive CPUs, as many as it asks for.
    pub(crate) fn move_to(&mut self, cpus: CpuSet, margin: Margin) {
        self.assign(cpus, margin);
        self.lacks_cpus = false;
        // The state file has those of the predecessor, not these.
        if let Life::Creating { inherited } = &mut self.life {
            *inherited = false;
        }
    }

    /// Gives it the exclusive CPUs of its predecessor.
    pub(crate) fn inherit(&mut self, before: &ContainerEntry) {
        self.holding.clone_from(&before.holding);
        if self.holding.is_some() {
            self.mark_inherited();
        }
    }

    /// Takes its offline CPUs away, if there are any. Then a notice takes effect at once.
    pub(crate) fn drop_offline(&mut self, online: CpuSet) {
        if let Some(Holding { cpus, margin, notice, .. }) = self.holding.as_deref().copied()
            && !cpus.is_subset(&online)
        {
            let stays = notice.map_or(cpus, |notice| notice.to);
            self.assign(stays & online, margin);
            self.lacks_cpus = !stays.is_subset(&online);
        }
    }

    /// From the time `at` on it has only the CPUs `to`.
    pub(crate) fn announce(&mut self, to: CpuSet, at: Duration) {
        if let Some(holding) = &mut self.holding {
            holding.notice = Some(Notice { to, at });
        }
    }

    /// The pending notice. Any other change of its CPUs ends it.
    pub(crate) fn notice(&self) -> Option<Notice> {
        self.holding.as_ref()?.notice
    }

    /// Takes away CPUs that another container of its pod gets.
    pub(crate) fn hand_over(&mut self, to_other: CpuSet) {
        if let Some(Holding { cpus, margin, notice, .. }) = self.holding.as_deref().copied() {
            self.assign(cpus - to_other, margin);
            if let Some(notice) = notice {
                self.announce(notice.to - to_other, notice.at);
            }
        }
    }

    pub(crate) fn keep_idle(&mut self, margin: Margin) {
        if let Some(holding) = &mut self.holding {
            holding.margin = margin;
            self.enforce_by(self.enforced_by);
        }
    }

    /// Sets whether it also uses shared CPUs, by an earlier decision instead of its pod option.
    pub(crate) fn mix(&mut self, mixed: bool) {
        if let Some(holding) = &mut self.holding {
            holding.mixed = mixed;
            self.enforce_by(self.enforced_by);
        }
    }

    /// Takes all exclusive CPUs away, and returns them. It no longer lacks any.
    pub(crate) fn release(&mut self) -> Option<CpuSet> {
        self.lacks_cpus = false;
        self.unassign()
    }

    /// Takes all exclusive CPUs away before an adoption decides about them again, and returns them.
    pub(crate) fn unassign(&mut self) -> Option<CpuSet> {
        self.holding.take().map(|held| held.cpus)
    }

    /// It must keep its CPUs: its program read their numbers from the environment.
    pub(crate) fn fix_by_environment(&mut self) {
        self.fixed_by = Some(StayReason::Environment);
    }

    /// It must keep its CPUs: its threads have set affinities to some of them.
    pub(crate) fn fix_by_own_affinity(&mut self) {
        self.fixed_by.get_or_insert(StayReason::OwnAffinity);
    }
}

/// Changes of an instance's [`Life`]. Only these methods change it.
impl ContainerEntry {
    /// Records that a new instance is created with the exclusive CPUs of its predecessor.
    pub(crate) fn mark_inherited(&mut self) {
        if let Life::Creating { inherited } = &mut self.life {
            *inherited = true;
        }
    }

    /// An event shows that the runtime has created it, even if the answer to its creation was lost.
    pub(crate) fn mark_created(&mut self) {
        if let Life::Creating { .. } = self.life {
            self.life = Life::Created { updated_early: false, waits: false };
        }
    }

    /// The answer to its creation has been sent, with this setting.
    pub(crate) fn record_answer(&mut self, setting: Option<&CpuSetting>) {
        self.mark_created();
        if let Some(setting) = setting {
            self.applied.record(setting);
        }
    }

    /// This update has been sent to the runtime.
    pub(crate) fn record_update(&mut self, setting: &CpuSetting) {
        self.applied.record(setting);
        if let Life::Created { updated_early, .. } = &mut self.life {
            *updated_early = true;
        }
    }

    pub(crate) fn set_waiting(&mut self, for_others: bool) {
        if let Life::Created { waits, .. } | Life::Running { waits, .. } = &mut self.life {
            *waits = for_others;
        }
    }

    /// Its process runs. After its end this changes nothing: the runtime may report the start of a
    /// short process late.
    pub(crate) fn start(&mut self, now: Duration) {
        let (updated_early, waits) = match self.life {
            Life::Creating { .. } => (false, false),
            Life::Created { updated_early, waits } => (updated_early, waits),
            Life::Running { .. } | Life::Ended { .. } => return,
        };
        // Before its start the update may have changed only the runtime's record, so it is due
        // again.
        if updated_early {
            self.applied.invalidate();
        }
        self.life = Life::Running { settled_at: Some(now), waits };
    }

    /// It has moved at this time; `None` for a staged move.
    pub(crate) fn settle(&mut self, at: Option<Duration>) {
        if let Life::Running { settled_at, .. } = &mut self.life {
            *settled_at = at;
        }
    }

    pub(super) fn end(&mut self) {
        if self.is_alive() {
            self.life = Life::Ended { loan: Loan::Awaited, instance: LastInstance::Stopped };
        }
    }

    /// The runtime has removed it, or could not create it.
    pub(super) fn remove(&mut self) {
        self.end();
        if let Life::Ended { instance, .. } = &mut self.life {
            *instance = LastInstance::Removed;
        }
    }

    /// Its pod starts over, so its next instance is no restart.
    pub(super) fn start_over(&mut self) {
        if let Life::Ended { instance, .. } = &mut self.life {
            *instance = LastInstance::AllRemoved;
        }
        if let Some(before) = &mut self.before {
            before.ended = false;
        }
    }

    pub(super) fn lend(&mut self) {
        if let Life::Ended { loan, .. } = &mut self.life {
            *loan = Loan::Lent;
        }
    }

    /// A quiet period has ended: after two of them without a restart its CPUs are lent.
    pub(super) fn end_quiet_period(&mut self) {
        if let Life::Ended { loan, .. } = &mut self.life {
            *loan = match loan {
                Loan::Awaited => Loan::Overdue,
                Loan::Overdue | Loan::Lent => Loan::Lent,
            };
        }
    }
}

impl ContainerEntry {
    /// A container that is being created, with shared CPUs.
    pub(crate) fn new(
        container: &Container,
        enforced_by: Mechanism,
        terms: Terms,
        applied: AppliedSetting,
    ) -> ContainerEntry {
        ContainerEntry {
            id: container.id.clone(),
            before: None,
            life: Life::Creating { inherited: false },
            kind: container.kind,
            cpu: container.cpu,
            limits: container.limits.clone(),
            memory: None,
            holding: None,
            lacks_cpus: false,
            terms,
            devices: container.devices.clone(),
            applied,
            left_alone: container.left_alone,
            fixed_by: None,
            created_at: container.created_at,
            enforced_by,
            cgroup: container.cgroup.clone(),
        }
    }

    /// From now on this mechanism keeps others off its exclusive CPUs.
    pub(crate) fn enforce_by(&mut self, mechanism: Mechanism) {
        self.enforced_by = match mechanism {
            // Processes in a cpuset partition cannot run on CPUs outside it, so not on shared ones.
            Mechanism::Partitions if self.is_mixed() => Mechanism::Groups,
            mechanism => mechanism,
        };
    }

    /// An ended container of which only the claim is known.
    pub(crate) fn ended(claim: &Claim, margin: Margin) -> ContainerEntry {
        let mut entry = ContainerEntry::with_id(claim.id.clone(), &claim.container, claim.cpu);
        entry.assign(claim.cpus, margin);
        entry.mix(claim.mixed);
        if claim.lent {
            entry.lend();
        }
        entry
    }

    /// An ended container of which not even the id is known.
    pub(crate) fn unlisted(pod: &PodUid, name: &str) -> ContainerEntry {
        ContainerEntry::with_id(ContainerId::made_up(pod, name), name, CpuRequest::default())
    }

    fn with_id(id: ContainerId, name: &str, cpu: CpuRequest) -> ContainerEntry {
        let container = Container::new(id, SandboxId(String::new().into()), name, cpu);
        let terms = Terms::default();
        let applied = AppliedSetting::nothing();
        let mut entry = ContainerEntry::new(&container, Mechanism::Runtime, terms, applied);
        entry.life = Life::Ended { loan: Loan::Awaited, instance: LastInstance::Unlisted };
        entry
    }

    pub(crate) fn set_predecessor(&mut self, before: &ContainerEntry) {
        let ended = match before.life {
            Life::Ended { instance, .. } => instance != LastInstance::AllRemoved,
            Life::Creating { .. } | Life::Created { .. } | Life::Running { .. } => {
                before.was_restarted()
            }
        };
        self.before = Some(Predecessor { id: before.id.clone(), ended });
    }

    /// Whether it has directly replaced the instance with this id.
    pub(crate) fn has_replaced(&self, id: &ContainerId) -> bool {
        self.before.as_ref().is_some_and(|before| before.id == *id)
    }

    pub(crate) fn was_restarted(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.ended)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.life {
            Life::Creating { .. } | Life::Created { .. } => Phase::Created,
            Life::Running { .. } => Phase::Running,
            Life::Ended { .. } => Phase::Ended,
        }
    }

    /// Whether it is being created with the exclusive CPUs of its predecessor.
    pub(crate) fn is_inheriting(&self) -> bool {
        matches!(self.life, Life::Creating { inherited: true })
    }

    /// Whether it waits for CPUs that others have yet to leave.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.life, Life::Created { waits: true, .. } | Life::Running { waits: true, .. })
    }

    /// When its process started or it last moved; `None` if it does not run, or after a staged
    /// move.
    pub(crate) fn settled_at(&self) -> Option<Duration> {
        match self.life {
            Life::Running { settled_at, .. } => settled_at,
            Life::Creating { .. } | Life::Created { .. } | Life::Ended { .. } => None,
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        match self.life {
            Life::Ended { instance, .. } => {
                matches!(instance, LastInstance::Removed | LastInstance::AllRemoved)
            }
            Life::Creating { .. } | Life::Created { .. } | Life::Running { .. } => false,
        }
    }

    pub(crate) fn is_unlisted(&self) -> bool {
        matches!(self.life, Life::Ended { instance: LastInstance::Unlisted, .. })
    }

    pub(crate) fn fixed_by(&self) -> Option<StayReason> {
        self.fixed_by
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(crate) fn claim(&self) -> Option<CpuSet> {
        self.exclusive().copied()
    }

    /// [`ContainerEntry::claim`], without a copy.
    pub(crate) fn exclusive(&self) -> Option<&CpuSet> {
        self.holding.as_ref().map(|held| &held.cpus)
    }

    /// [`ContainerEntry::claim`], or the empty set.
    pub(crate) fn held(&self) -> CpuSet {
        self.holding.as_ref().map_or(CpuSet::EMPTY, |held| held.cpus)
    }

    /// Whether it uses shared CPUs in addition to its exclusive ones; then it cannot be a
    /// partition.
    pub(crate) fn is_mixed(&self) -> bool {
        self.holding.as_ref().is_some_and(|holding| holding.mixed)
    }

    pub(crate) fn margin(&self) -> Margin {
        self.holding.as_ref().map_or(Margin::NONE, |held| held.margin)
    }

    /// Whether it shares CPUs and has the target, and the applied setting, of another container of its
    /// pod.
    pub(crate) fn shares_target_with(&self, other: &ContainerEntry) -> bool {
        self.holding.is_none()
            && other.holding.is_none()
            && self.left_alone == other.left_alone
            && self.cpu.limit == other.cpu.limit
            && self.applied == other.applied
            && self.memory == other.memory
    }

    /// Whether the runtime can update it.
    pub(crate) fn is_updatable(&self) -> bool {
        matches!(self.life, Life::Created { .. } | Life::Running { .. })
    }

    /// Whether its process runs, or may soon.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.life, Life::Ended { .. })
    }

    /// Its part of its pod's budget. With exclusive CPUs the amount may be unknown, because the
    /// container has ended or requests more than shares can show: then the number of CPUs counts.
    pub(crate) fn budget_share(&self) -> Option<MilliCpu> {
        let whole = |claim: CpuSet| MilliCpu(claim.len() as u64 * 1000);
        self.cpu.amount().or_else(|| self.claim().map(whole))
    }

    /// How many exclusive CPUs it asks for; `None` if it asks for none.
    pub(crate) fn asks(&self, qos: Qos) -> Option<usize> {
        self.asks_with(qos, &self.cpu)
    }

    /// How many exclusive CPUs it asks for with this request. If it has some, the request alone
    /// decides: in a Burstable pod the pod option for them may no longer be allowed.
    pub(crate) fn asks_with(&self, qos: Qos, cpu: &CpuRequest) -> Option<usize> {
        let by_claim = self.claim().map(|_| Cpus::Exclusive);
        let cpus = self.terms.cpus.or(by_claim);
        Terms { cpus, ..Terms::default() }.exclusive_cpus(qos, cpu)
    }

    /// The pod options for further CPUs: those of its pod, but with the margin that its present CPUs
    /// have. If the ledger adopted it without idle CPUs, it stays without.
    pub(crate) fn pod_options(&self) -> PodOptions {
        let Some(Holding { margin, .. }) = self.holding.as_deref() else {
            return self.terms.pod_options;
        };
        let smt = match self.terms.pod_options.smt {
            _ if margin.siblings => Some(Smt::Isolate),
            Some(Smt::Isolate) => None,
            smt => smt,
        };
        let uncore = match self.terms.pod_options.uncore {
            _ if margin.caches => Some(Uncore::Exclusive),
            Some(Uncore::Exclusive) => None,
            uncore => uncore,
        };
        PodOptions { smt, uncore, ..self.terms.pod_options }
    }

    /// Whether it has ended and no restart is expected soon: the shared pool uses its exclusive
    /// CPUs, if it has any.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.life, Life::Ended { loan: Loan::Lent, .. })
    }
}
