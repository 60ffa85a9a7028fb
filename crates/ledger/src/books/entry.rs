//! [`ContainerEntry`]: what the ledger keeps of a container.

use super::applied_setting::AppliedSetting;
use crate::claim::Claim;
use crate::devices::Device;
use crate::model::{Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Qos, SandboxId};
use crate::moves::StayReason;
use crate::policy::Mechanism;
use crate::setting::CpuSetting;
use crate::terms::Terms;
use crate::wish::Cpus;
use core::time::Duration;
use cpuset::{CgroupPath, CpuSet};
use placement::Wishes;
use placement::wishes::{Margin, Smt, Uncore};

/// A container that exists, or will be restarted.
#[derive(Debug, Clone)]
pub(crate) struct ContainerEntry {
    /// The runtime's id of the present or last instance.
    pub(super) id: ContainerId,
    before: Option<Predecessor>,
    life: Life,
    pub(crate) kind: ContainerKind,
    pub(crate) cpu: CpuRequest,
    holding: Option<Holding>,
    /// Whether it has fewer CPUs than it asks for since some went offline, perhaps none.
    pub(crate) lost: bool,
    pub(crate) terms: Terms,
    /// As the runtime has described them.
    pub(crate) devices: Vec<Device>,
    pub(crate) applied: AppliedSetting,
    /// Why it keeps its CPUs as long as it runs, if it has shown a reason.
    fixed_by: Option<StayReason>,
    pub(crate) created_at: Option<i64>,
    pub(crate) enforced_by: Mechanism,
    pub(crate) cgroup: Option<CgroupPath>,
}

/// The instance before a container's present one.
#[derive(Debug, Clone)]
struct Predecessor {
    /// Late events of it change nothing.
    id: ContainerId,
    /// Whether it, or one before it, has ended: after the end of the present one the next may come
    /// soon.
    ended: bool,
}

/// What is known of a container's present or last instance. Only methods of [`ContainerEntry`]
/// change it, and no instance that has ended runs again.
#[derive(Debug, Clone, Copy)]
enum Life {
    /// The runtime waits for the answer to its creation, or the answer was lost: it cannot be
    /// updated.
    Creating {
        /// Whether its exclusive CPUs are those of the instance before it.
        inherited: bool,
    },
    /// It exists, and its process may not run yet.
    Created {
        /// Whether it has been updated: that may have changed only the runtime's own record.
        updated_early: bool,
        /// As when it runs.
        waits: bool,
    },
    Running {
        /// When its process started or it last moved, as
        /// [`Event::Time`](crate::Event::Time) counts; `None` while it is on CPUs that it
        /// is not to keep.
        settled_at: Option<Duration>,
        /// Whether it waits for CPUs that others have yet to leave, see
        /// [`order`](crate::order).
        waits: bool,
    },
    /// Its process has ended, or its creation has failed; its CPUs are kept until its pod ends.
    Ended { loan: Loan, instance: LastInstance },
}

/// What the runtime has of the last instance of a container that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastInstance {
    Stopped,
    /// The runtime has removed it, or could not create it. A new one may come as long as the pod
    /// lives.
    Removed,
    /// The runtime has listed none, and the claim is all that is known. The container may be
    /// between two instances, or its pod may have ended unreported.
    Unlisted,
}

/// Exclusive CPUs, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holding {
    cpus: CpuSet,
    /// What stays idle around them.
    margin: Margin,
    /// Whether it uses shared CPUs beside them.
    mixed: bool,
    /// It has fewer of them soon, and its program has notice of that.
    notice: Option<Notice>,
}

/// An announced loss of exclusive CPUs, after a resize to fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    /// What is left then; none if it shares CPUs.
    pub(crate) to: CpuSet,
    /// As [`Event::Time`](crate::Event::Time) counts.
    pub(crate) at: Duration,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loan {
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
        let holding = Holding { cpus, margin, mixed, notice: None };
        self.holding = if cpus.is_empty() { None } else { Some(holding) };
        self.enforce_by(self.enforced_by);
    }

    /// It gets as many others as it asks for.
    pub(crate) fn move_to(&mut self, cpus: CpuSet, margin: Margin) {
        self.assign(cpus, margin);
        self.lost = false;
        // Only those of the instance before are on disk under its name.
        if let Life::Creating { inherited } = &mut self.life {
            *inherited = false;
        }
    }

    /// It comes back to what the instance before it had.
    pub(crate) fn inherit(&mut self, before: &ContainerEntry) {
        self.holding = before.holding;
        if self.holding.is_some() {
            self.come_back();
        }
    }

    /// Some of its CPUs may have gone offline. Those that it was to leave anyway, it leaves then.
    pub(crate) fn lose(&mut self, online: CpuSet) {
        if let Some(Holding { cpus, margin, notice, .. }) = self.holding
            && !cpus.is_subset(&online)
        {
            let stays = notice.map_or(cpus, |notice| notice.to);
            self.assign(stays & online, margin);
            self.lost = !stays.is_subset(&online);
        }
    }

    /// It has only these of its CPUs from `at` on.
    pub(crate) fn announce(&mut self, to: CpuSet, at: Duration) {
        if let Some(holding) = &mut self.holding {
            holding.notice = Some(Notice { to, at });
        }
    }

    /// What was announced last, as long as its CPUs are the same.
    pub(crate) fn notice(&self) -> Option<Notice> {
        self.holding?.notice
    }

    /// Another container of its pod gets some of its CPUs.
    pub(crate) fn hand_over(&mut self, to_other: CpuSet) {
        if let Some(Holding { cpus, margin, notice, .. }) = self.holding {
            self.assign(cpus - to_other, margin);
            if let Some(notice) = notice {
                self.announce(notice.to - to_other, notice.at);
            }
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
        self.lost = false;
        self.unassign()
    }

    /// Its exclusive CPUs are about to be found anew. Returns those that it had.
    pub(crate) fn unassign(&mut self) -> Option<CpuSet> {
        self.holding.take().map(|held| held.cpus)
    }

    /// It keeps its CPUs: its program knows their numbers.
    pub(crate) fn tell(&mut self) {
        self.fixed_by = Some(StayReason::Environment);
    }

    /// It keeps its CPUs: its threads have chosen among them.
    pub(crate) fn bind_itself(&mut self) {
        self.fixed_by.get_or_insert(StayReason::OwnAffinity);
    }
}

/// The life of an instance: it changes in no other way.
impl ContainerEntry {
    /// The exclusive CPUs that it is created with are those of the instance before it.
    pub(crate) fn come_back(&mut self) {
        if let Life::Creating { inherited } = &mut self.life {
            *inherited = true;
        }
    }

    /// The runtime shows that it exists, whether or not the answer to its creation has gone out.
    pub(crate) fn exist(&mut self) {
        if let Life::Creating { .. } = self.life {
            self.life = Life::Created { updated_early: false, waits: false };
        }
    }

    /// The answer to its creation has gone out, with this setting.
    pub(crate) fn answer(&mut self, setting: Option<&CpuSetting>) {
        self.exist();
        if let Some(setting) = setting {
            self.applied.record(setting);
        }
    }

    /// The runtime has got this update.
    pub(crate) fn update(&mut self, setting: &CpuSetting) {
        self.applied.record(setting);
        if let Life::Created { updated_early, .. } = &mut self.life {
            *updated_early = true;
        }
    }

    /// Whether it waits from now on for CPUs that others have yet to leave.
    pub(crate) fn wait(&mut self, for_others: bool) {
        if let Life::Created { waits, .. } | Life::Running { waits, .. } = &mut self.life {
            *waits = for_others;
        }
    }

    /// Its process runs. The runtime may report the start of a short process after its end.
    pub(crate) fn start(&mut self, now: Duration) {
        let (updated_early, waits) = match self.life {
            Life::Creating { .. } => (false, false),
            Life::Created { updated_early, waits } => (updated_early, waits),
            Life::Running { .. } | Life::Ended { .. } => return,
        };
        // The ledger repeats the update.
        if updated_early {
            self.applied.invalidate();
        }
        self.life = Life::Running { settled_at: Some(now), waits };
    }

    /// It has moved to CPUs that it keeps (`None`: does not keep).
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
    pub(crate) fn remove(&mut self) {
        self.end();
        if let Life::Ended { instance, .. } = &mut self.life {
            *instance = LastInstance::Removed;
        }
    }

    /// The shared pool uses its CPUs until it is back.
    pub(super) fn lend(&mut self) {
        if let Life::Ended { loan, .. } = &mut self.life {
            *loan = Loan::Lent;
        }
    }

    /// A quiet period has ended: after two of them without the container its CPUs are lent.
    pub(super) fn stay_away(&mut self) {
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
            holding: None,
            lost: false,
            terms,
            devices: container.devices.clone(),
            applied,
            fixed_by: None,
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
        let mut entry = ContainerEntry::new(&container, runtime, terms, AppliedSetting::nothing());
        entry.life = Life::Ended { loan: Loan::Awaited, instance: LastInstance::Unlisted };
        entry.assign(claim.cpus, margin);
        entry.mix(claim.mixed);
        entry
    }

    /// It replaces this instance.
    pub(crate) fn follow(&mut self, before: &ContainerEntry) {
        let ended = !before.is_alive() || before.was_restarted();
        self.before = Some(Predecessor { id: before.id.clone(), ended });
    }

    /// Whether it has replaced an instance with this id.
    pub(crate) fn follows(&self, id: &ContainerId) -> bool {
        self.before.as_ref().is_some_and(|before| before.id == *id)
    }

    /// Whether an earlier instance has ended.
    pub(super) fn was_restarted(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.ended)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.life {
            Life::Creating { .. } | Life::Created { .. } => Phase::Created,
            Life::Running { .. } => Phase::Running,
            Life::Ended { .. } => Phase::Ended,
        }
    }

    /// Whether it is being created with the exclusive CPUs of the instance before it.
    pub(crate) fn is_inheriting(&self) -> bool {
        matches!(self.life, Life::Creating { inherited: true })
    }

    /// Whether it waits for CPUs that others have yet to leave.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.life, Life::Created { waits: true, .. } | Life::Running { waits: true, .. })
    }

    /// When its process started or it last moved; `None` if it does not run, or is on CPUs that it
    /// is not to keep.
    pub(crate) fn settled_at(&self) -> Option<Duration> {
        match self.life {
            Life::Running { settled_at, .. } => settled_at,
            Life::Creating { .. } | Life::Created { .. } | Life::Ended { .. } => None,
        }
    }

    /// Whether the runtime has removed its last instance, or could not create it.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self.life, Life::Ended { instance: LastInstance::Removed, .. })
    }

    /// Whether the runtime has listed no instance of it.
    pub(crate) fn is_unlisted(&self) -> bool {
        matches!(self.life, Life::Ended { instance: LastInstance::Unlisted, .. })
    }

    /// Why it keeps its CPUs as long as it runs, if its own program is the reason.
    pub(crate) fn fixed_by(&self) -> Option<StayReason> {
        self.fixed_by
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

    /// Whether the runtime can update it.
    pub(crate) fn is_updatable(&self) -> bool {
        matches!(self.life, Life::Created { .. } | Life::Running { .. })
    }

    /// Whether its process runs, or may soon.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.life, Life::Ended { .. })
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
        matches!(self.life, Life::Ended { loan: Loan::Lent, .. })
    }
}
