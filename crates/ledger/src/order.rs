//! The order of the updates in one message.
//!
//! If one of two containers has CPUs for itself, the other leaves them before it gets them, or the
//! other way round: at no moment are they in the sets of both. One message changes a container only
//! once. So a container that leaves CPUs and gets some that another one has yet to leave needs two
//! steps; the second one is in the next message.

use super::books::ContainerEntry;
use super::model::ContainerId;
use super::policy::Mechanism;
use super::setting::{CpuSetting, Reach, Update};
use cpuset::CpuSet;

#[derive(Debug, Clone, Copy)]
pub(super) struct CpuChange<'a> {
    pub(super) entry: &'a ContainerEntry,
    /// Where it is to run in the end.
    pub(super) to: CpuSetting,
}

/// The updates of one message, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OrderedUpdates {
    pub(super) updates: Vec<Update>,
    /// Containers that get the rest of their CPUs, or all, with a later message.
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

    /// The CPUs that it gets and does not have. A container without a cpuset has all of them.
    fn gains(&self) -> CpuSet {
        self.before().map_or(CpuSet::EMPTY, |before| self.to.cpus() - before)
    }

    /// The exclusive CPUs that it has to leave, if any; one without any from now on may go on using
    /// them together with others. Of a partition the kernel takes them by itself.
    pub(super) fn leaves(&self) -> Option<CpuSet> {
        let itself = self.entry.enforced_by != Mechanism::Partitions;
        let own = self.entry.applied.exclusive().filter(|_| itself)?;
        let left =
            own - if self.to.is_exclusive() { self.to.exclusive_cpus() } else { self.to.cpus() };
        (!left.is_empty()).then_some(left)
    }

    pub(super) fn update(&self) -> Update {
        Update { container: self.entry.id().clone(), setting: self.to }
    }

    /// Of `wanted`, the CPUs that it has and leaves, exclusive or not.
    fn gives_way(&self, wanted: &CpuSet) -> CpuSet {
        self.before().map_or(*wanted, |before| before & *wanted) - self.to.cpus()
    }

    fn step(&self) -> OrderedUpdate {
        OrderedUpdate { update: self.update(), waits: false }
    }

    fn step_to(&self, to: CpuSetting) -> OrderedUpdate {
        let update = Update { container: self.entry.id().clone(), setting: to };
        OrderedUpdate { update, waits: to != self.to }
    }

    /// A step to all of its CPUs but these. `None` if none are left.
    fn step_without(&self, cpus: &CpuSet) -> Option<OrderedUpdate> {
        Some(self.step_to(self.to.on(self.to.cpus() - *cpus)?))
    }

    /// A step of a container to those of its exclusive CPUs that others do not get. `None` if there
    /// are none, or these are all.
    fn step_within(&self, gained_by_others: &CpuSet) -> Option<OrderedUpdate> {
        let own = self.entry.applied.exclusive()?;
        let rest = own - *gained_by_others;
        if rest == own { None } else { Some(self.step_to(self.to.on(rest)?)) }
    }

    /// The same for one that has shared its CPUs until now: it goes on sharing the rest.
    fn step_sharing(&self, gained_by_others: &CpuSet) -> Option<OrderedUpdate> {
        let before = self.before().filter(|_| !self.entry.applied.is_exclusive())?;
        let rest = before - *gained_by_others;
        if rest == before {
            None
        } else {
            Some(self.step_to(self.to.reaching(Reach::shared(rest))?))
        }
    }

    /// Whether this step changes where the container runs.
    fn is_moved_by(&self, step: &OrderedUpdate) -> bool {
        self.before() != Some(step.update.setting.cpus())
    }

    /// A step of a container that shares CPUs, if others have yet to leave all that it gets: it
    /// leaves `wanted` and keeps the rest, at least one CPU.
    fn step_aside(&self, wanted: &CpuSet) -> OrderedUpdate {
        let before = self.before().unwrap_or_default();
        let rest = before - *wanted;
        let rest = if rest.is_empty() { before.lowest(1) } else { rest };
        self.to.on(rest).map_or_else(|| self.step(), |to| self.step_to(to))
    }
}

/// The steps of one message, in order. The runtime changes the container `last` after all others,
/// wherever its update stands. `bound`: cgroups keep shared containers in the pool, whatever they
/// are told.
pub(super) fn in_order(
    changes: Vec<CpuChange<'_>>,
    last: Option<&ContainerId>,
    bound: bool,
) -> OrderedUpdates {
    let (exclusive, shared): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| change.to.is_exclusive());
    let all = || shared.iter().chain(&exclusive);
    let left: CpuSet = all().filter_map(CpuChange::leaves).collect();
    let wanted: CpuSet = exclusive.iter().map(|change| change.to.exclusive_cpus()).collect();
    let late = all().filter(|change| Some(change.entry.id()) == last);
    // Also shared CPUs, unless cgroups have taken them from it by now.
    let late = late.map(|change| {
        let given = if bound { CpuSet::EMPTY } else { change.gives_way(&wanted) };
        change.leaves().unwrap_or_default() | given
    });
    let late: CpuSet = late.collect();
    let mut steps = Vec::with_capacity(shared.len() + exclusive.len());
    let mut widened = Vec::new();
    // Whether a container leaves CPUs, so that the next message can bring others further.
    let mut leave = false;
    for change in &shared {
        if change.before().is_some_and(|cpus| cpus.is_subset(&change.to.cpus())) {
            widened.push(change);
        } else {
            let step = change.step_without(&left).unwrap_or_else(|| change.step_aside(&wanted));
            leave |= change.is_moved_by(&step);
            steps.push(step);
        }
    }
    let in_the_way = steps.iter().filter(|_| !bound);
    let shared_now: CpuSet = in_the_way.map(|step| step.update.setting.cpus()).collect();
    let (exclusive, mut waiting) = exclusive_in_order(exclusive, &(shared_now | late), leave);
    steps.extend(exclusive);
    let widen =
        |change: &&CpuChange<'_>| change.step_without(&late).unwrap_or_else(|| change.step());
    steps.extend(widened.iter().map(widen));
    let in_part = steps.iter().filter(|step| step.waits);
    waiting.extend(in_part.map(|step| step.update.container.clone()));
    OrderedUpdates { waiting, updates: steps.into_iter().map(|step| step.update).collect() }
}

/// Containers with exclusive CPUs: each after those that leave CPUs which it gets, and without those
/// that are still `taken` by then. In a cycle one goes first, with the CPUs that are free by then, or
/// with those of its own that no other one gets. If there are neither, the rest waits for a later
/// message, as long as others `leave` CPUs with this one; if none does, one that shares CPUs leaves
/// what others get; only if there is none do two containers overlap for a moment. Returns the steps,
/// and the containers that wait.
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
        let aside = |step: fn(&CpuChange<'a>, &CpuSet) -> Option<OrderedUpdate>| {
            let gains = |at: usize| -> CpuSet {
                let others = waiting.iter().enumerate().filter(|(other, _)| *other != at);
                others.map(|(_, other)| other.gains()).collect()
            };
            let mut all = waiting.iter().enumerate();
            all.find_map(|(at, change)| Some((at, step(change, &gains(at))?)))
        };
        let next = whole.and_then(|at| Some((at, waiting.get(at)?.step())));
        let next = next.or_else(in_part).or_else(|| aside(CpuChange::step_within));
        if next.is_none() && leave {
            break;
        }
        let next = next.or_else(|| aside(CpuChange::step_sharing));
        let (at, step) = next.unwrap_or_else(|| (0, waiting[0].step()));
        leave |= waiting[at].is_moved_by(&step);
        steps.push(step);
        waiting.remove(at);
    }
    (steps, waiting.iter().map(|change| change.entry.id().clone()).collect())
}
