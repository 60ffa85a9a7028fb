//! The order of the updates in one message.
//!
//! A container leaves CPUs before another one gets them exclusively, or the other way round: at no
//! moment are exclusive CPUs in the sets of two containers. One message changes a container only
//! once. So a container that leaves CPUs and gets some that another one has yet to leave needs two
//! steps; the second one is in the next message.

use super::books::ContainerEntry;
use super::model::ContainerId;
use super::policy::Mechanism;
use super::setting::{CpuSetting, Reach, Update};
use cpuset::CpuSet;

#[derive(Debug, Clone)]
pub(super) struct CpuChange<'a> {
    pub(super) entry: &'a ContainerEntry,
    /// The target setting. A step of one message may lead only to a part of it.
    pub(super) to: CpuSetting,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OrderedUpdates {
    pub(super) updates: Vec<Update>,
    /// Containers that get some of their CPUs only with a later message.
    pub(super) waiting: Vec<ContainerId>,
}

struct OrderedUpdate {
    update: Update,
    waits: bool,
}

impl CpuChange<'_> {
    fn before(&self) -> Option<CpuSet> {
        self.entry.applied.cpus()
    }

    /// The CPUs that it gets and does not have yet. A container without a cpuset has all CPUs.
    fn gains(&self) -> CpuSet {
        self.before().map_or(CpuSet::EMPTY, |before| self.to.cpus() - before)
    }

    /// The exclusive CPUs that it has to leave; `None` if there are none. A container that becomes
    /// a shared one may keep using them with others. From a partition the kernel takes them without
    /// an update.
    pub(super) fn leaves(&self) -> Option<CpuSet> {
        if self.entry.enforced_by == Mechanism::Partitions {
            return None;
        }
        let own = self.entry.applied.exclusive()?;
        let kept = if self.to.is_exclusive() { self.to.exclusive_cpus() } else { self.to.cpus() };
        let left = own - kept;
        (!left.is_empty()).then_some(left)
    }

    pub(super) fn update(&self) -> Update {
        Update { container: self.entry.id().clone(), setting: self.to.clone() }
    }

    /// The CPUs of `claimed` that it has and leaves, exclusive or not.
    fn leaves_of(&self, claimed: &CpuSet) -> CpuSet {
        self.before().map_or(*claimed, |before| before & *claimed) - self.to.cpus()
    }

    fn step(&self) -> OrderedUpdate {
        OrderedUpdate { update: self.update(), waits: false }
    }

    fn step_to(&self, to: CpuSetting) -> OrderedUpdate {
        let waits = to != self.to;
        let update = Update { container: self.entry.id().clone(), setting: to };
        OrderedUpdate { update, waits }
    }

    /// A step to all of its new CPUs except these; `None` if none are left.
    fn step_without(&self, cpus: &CpuSet) -> Option<OrderedUpdate> {
        Some(self.step_to(self.to.on(self.to.cpus() - *cpus)?))
    }

    /// A step to the part of its present exclusive CPUs that no other container gets; `None` if
    /// that is none of them, or all.
    fn step_within(&self, gained_by_others: &CpuSet) -> Option<OrderedUpdate> {
        let own = self.entry.applied.exclusive()?;
        let rest = own - *gained_by_others;
        if rest == own { None } else { Some(self.step_to(self.to.on(rest)?)) }
    }

    /// A step of a container that shares its present CPUs: it keeps sharing those that no other
    /// container gets. `None` if that is none of them, or all.
    fn step_sharing(&self, gained_by_others: &CpuSet) -> Option<OrderedUpdate> {
        if self.entry.applied.is_exclusive() {
            return None;
        }
        let before = self.before()?;
        let rest = before - *gained_by_others;
        if rest == before {
            None
        } else {
            Some(self.step_to(self.to.reaching(Reach::shared(rest))?))
        }
    }

    /// Whether this step changes its CPUs.
    fn is_moved_by(&self, step: &OrderedUpdate) -> bool {
        self.before() != Some(step.update.setting.cpus())
    }

    /// A step of a container that shares CPUs, if others have yet to leave all of its new CPUs: it
    /// leaves `claimed` and keeps the rest of its present ones.
    fn step_out_of(&self, claimed: &CpuSet) -> OrderedUpdate {
        let before = self.before().unwrap_or_default();
        let rest = before - *claimed;
        // A cpuset cannot be empty.
        let rest = if rest.is_empty() { before.lowest(1) } else { rest };
        self.to.on(rest).map_or_else(|| self.step(), |to| self.step_to(to))
    }
}

/// The steps of one message, in order. The runtime changes the container `last` after all others,
/// not in this order. `bound`: cgroups keep shared containers in the pool, so their own cpusets may
/// name CPUs of exclusive containers.
pub(super) fn in_order(
    changes: Vec<CpuChange<'_>>,
    last: Option<&ContainerId>,
    bound: bool,
) -> OrderedUpdates {
    let (exclusive, shared): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| change.to.is_exclusive());
    let all = || shared.iter().chain(&exclusive);
    let left: CpuSet = all().filter_map(CpuChange::leaves).collect();
    let claimed: CpuSet = exclusive.iter().map(|change| change.to.exclusive_cpus()).collect();
    let late = all().filter(|change| Some(change.entry.id()) == last);
    // Its shared CPUs count, too, unless cgroups have already taken them from it.
    let late = late.map(|change| {
        let shared = if bound { CpuSet::EMPTY } else { change.leaves_of(&claimed) };
        change.leaves().unwrap_or_default() | shared
    });
    // CPUs that are still in use when all updates but the last one are made.
    let late: CpuSet = late.collect();
    let mut steps = Vec::with_capacity(shared.len() + exclusive.len());
    let mut widened = Vec::new();
    // Whether a step leaves CPUs, so that a later message can complete others.
    let mut leave = false;
    for change in &shared {
        // A container that only gets CPUs is updated last, when others have left these.
        if change.before().is_some_and(|cpus| cpus.is_subset(&change.to.cpus())) {
            widened.push(change);
        } else {
            let step = change.step_without(&left).unwrap_or_else(|| change.step_out_of(&claimed));
            leave |= change.is_moved_by(&step);
            steps.push(step);
        }
    }
    let shared_now: CpuSet = if bound {
        CpuSet::EMPTY
    } else {
        steps.iter().map(|step| step.update.setting.cpus()).collect()
    };
    let (exclusive, mut waiting) = exclusive_in_order(exclusive, &(shared_now | late), leave);
    steps.extend(exclusive);
    let widen =
        |change: &&CpuChange<'_>| change.step_without(&late).unwrap_or_else(|| change.step());
    steps.extend(widened.iter().map(widen));
    let in_part = steps.iter().filter(|step| step.waits);
    waiting.extend(in_part.map(|step| step.update.container.clone()));
    OrderedUpdates { waiting, updates: steps.into_iter().map(|step| step.update).collect() }
}

/// The steps of the containers that get exclusive CPUs, and the containers that have to wait. Each
/// step comes after those that leave its CPUs, and without CPUs that are still `taken` then. If the
/// rest wait for each other, this makes the first step that is possible, and continues:
///
/// 1. to the part of a container's new CPUs that is free;
/// 2. to the part of its present exclusive CPUs that no other one gets;
/// 3. none, if a step of this message lets containers `leave` CPUs: the rest wait for a later
///    message;
/// 4. to the part of its present shared CPUs that no other one gets;
/// 5. to all of its new CPUs, so that two containers overlap for a moment.
fn exclusive_in_order<'a>(
    mut waiting: Vec<CpuChange<'a>>,
    taken: &CpuSet,
    mut leave: bool,
) -> (Vec<OrderedUpdate>, Vec<ContainerId>) {
    let mut steps = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let blocked = |(at, change): (usize, &CpuChange<'a>)| -> CpuSet {
            let others = waiting.iter().enumerate().filter(|(other, _)| *other != at);
            let others: CpuSet = others.filter_map(|(_, other)| other.before()).collect();
            (others | *taken) & change.gains()
        };
        let blocked: Vec<CpuSet> = waiting.iter().enumerate().map(blocked).collect();
        let whole = blocked.iter().position(CpuSet::is_empty);
        let in_part = || {
            let mut parts = waiting.iter().zip(&blocked).enumerate();
            parts.find_map(|(at, (change, cpus))| Some((at, change.step_without(cpus)?)))
        };
        let step_back = |step: fn(&CpuChange<'a>, &CpuSet) -> Option<OrderedUpdate>| {
            let gains = |at: usize| -> CpuSet {
                let others = waiting.iter().enumerate().filter(|(other, _)| *other != at);
                others.map(|(_, other)| other.gains()).collect()
            };
            let mut all = waiting.iter().enumerate();
            all.find_map(|(at, change)| Some((at, step(change, &gains(at))?)))
        };
        let next = whole.and_then(|at| Some((at, waiting.get(at)?.step())));
        let next = next.or_else(in_part).or_else(|| step_back(CpuChange::step_within));
        if next.is_none() && leave {
            break;
        }
        let next = next.or_else(|| step_back(CpuChange::step_sharing));
        // The loop's condition: `waiting` is not empty.
        let (at, step) = next.unwrap_or_else(|| (0, waiting[0].step()));
        leave |= waiting[at].is_moved_by(&step);
        steps.push(step);
        waiting.remove(at);
    }
    (steps, waiting.iter().map(|change| change.entry.id().clone()).collect())
}
