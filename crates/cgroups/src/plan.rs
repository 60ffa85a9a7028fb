//! The writes that lead from the observed state of cgroups to their [`Goal`], which also defines
//! *loose* and *tight*. Pure: no files. A *leaf* is a container's cgroup.
//!
//! They are made in stages, so that every state in between is legal, even if no further write follows:
//!
//! 1. *loosen*: cgroups below a loose one get the widest set, as the loose one binds them.
//! 2. *bind and leave*: loose cgroups and containers that share CPUs leave CPUs outside their pool.
//! 3. *tighten and enter*: cgroups above containers with exclusive CPUs get those of these CPUs that
//!    all others have left by now.
//! 4. *partition*: a container's cgroup becomes a partition of its CPUs, moves to others, or becomes an
//!    ordinary cgroup.
//! 5. *move*: a container that is still on another's exclusive CPUs, or on every CPU of a pool, or that
//!    the runtime has just listed, goes to its own CPUs or at least leaves the other's. Then the others
//!    enter.
//!
//! No write puts a container on exclusive CPUs of another, and no write takes from a cgroup the last
//! CPU that it has in common with its parent. A failed write changes nothing, so no other cgroup
//! enters the CPUs that it should have left.
//!
//! A partition is an addition to all this: cgroups keep others off its CPUs in any case. So it can be
//! refused, end and restart while everything else stays as it is.

use super::cgroup_tree::{CgroupTree, PartitionFiles, Write, cut};
use super::goal::{CgroupLevel, Goal};
use super::hazard::{LEFT_TO_OTHERS, hazard};
use cpuset::{CgroupPath, CpuSet, PartitionState};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanOutcome {
    pub written: usize,
    /// Cgroups that could not be written.
    pub failed: Vec<CgroupPath>,
    /// CPUs that some cgroup does not have yet, because others have to leave them first.
    pub withheld: CpuSet,
    /// Containers that cannot be partitions, and why. The goal of the next plan must not have these
    /// partitions.
    pub refused: BTreeMap<CgroupPath, String>,
}

/// The value that a cgroup must have in the end.
#[derive(Debug, Clone)]
struct Aim {
    group: CgroupPath,
    kind: AimKind,
    value: CpuSet,
    /// The CPUs that its parent will have in the end.
    above: CpuSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AimKind {
    Loosen,
    Bind,
    Tighten,
    Move,
}

/// In a pod whose value keeps its containers in the pool: the CPUs that containers without exclusive
/// CPUs must not enter.
#[derive(Debug, Clone, Copy)]
struct PodClaims {
    exclusive: CpuSet,
    /// Other CPUs on which the pod's containers with exclusive CPUs still run.
    lingering: CpuSet,
}

/// Collects the aims of a plan from the top of the tree down.
struct Survey<'a> {
    tree: &'a CgroupTree,
    goal: &'a Goal,
    /// CPUs on which containers with exclusive CPUs still run although these are not theirs.
    lingering: CpuSet,
    /// Exclusive CPUs on which their containers run.
    entered: CpuSet,
    /// Pools of which some cgroup has no CPU yet, because containers with exclusive CPUs have still to
    /// leave them all. These can leave, as each runs on CPUs of its own claim as well.
    cramped: CpuSet,
    aims: Vec<Aim>,
    /// The lowest cgroups that were visited, loose ones and leaves: they decide where processes run.
    frontier: Vec<CgroupPath>,
    withheld: CpuSet,
}

/// Carries out a plan: the writes, and the tree as it is after them.
struct Execution<'a, W> {
    tree: &'a mut CgroupTree,
    goal: &'a Goal,
    write: W,
    /// Cgroups whose `cpuset.cpus.exclusive` this program has set, before this plan or in it.
    ours: BTreeSet<CgroupPath>,
    outcome: PlanOutcome,
}

/// Makes the writes that lead to a goal, and updates `tree` with each.
///
/// `write` makes a write, and returns what the cgroup's partition files say then; `None` if the kernel
/// has refused the write. What it returns after a write of `cpuset.cpus` is ignored.
pub fn carry_out(
    tree: &mut CgroupTree,
    goal: &Goal,
    write: impl FnMut(&CgroupPath, Write) -> Option<PartitionFiles>,
) -> PlanOutcome {
    let ours = goal.ours.clone();
    let mut execution = Execution { tree, goal, write, ours, outcome: PlanOutcome::default() };
    // CPUs that containers have left in one round, others enter in the next. A round without writes ends
    // this. The limit, a few more rounds than the longest chain of moves, only guards against stages that
    // undo each other: after it, the next pass continues.
    for _ in 0..goal.exclusive.len() + 3 {
        let written = execution.outcome.written;
        execution.round();
        if execution.outcome.written == written {
            break;
        }
    }
    execution.outcome
}

impl<W: FnMut(&CgroupPath, Write) -> Option<PartitionFiles>> Execution<'_, W> {
    /// All stages once.
    fn round(&mut self) {
        // First those of containers without exclusive CPUs, most of which have ended: no other cgroup can
        // have their CPUs. No leaf has to be checked: others may enter these CPUs, and `settle_on_claim`
        // takes the container off CPUs of others. A cgroup that refuses that write also refuses the end.
        self.end_partitions(&[], |goal, leaf| !goal.exclusive.contains_key(leaf));
        let Survey { aims, frontier, withheld, .. } = Survey::of(self.tree, self.goal);
        self.outcome.withheld = withheld;
        let claims = self.goal.claims();
        let of = |kind| aims.iter().filter(move |aim| aim.kind == kind);
        // Before the cgroup above narrows, so that they keep CPUs in common with it. Those that it does
        // not bind yet follow below, after it has narrowed.
        of(AimKind::Loosen).for_each(|aim| self.loosen(aim));
        // Lower cgroups first: one above may be about to get CPUs that they must not have. Those that
        // have no CPU of their value before the one above gets it come last.
        let mut bound: Vec<&Aim> = of(AimKind::Bind).rev().collect();
        bound.sort_by_key(|aim| aim.value.is_disjoint(&self.tree.above(&aim.group)));
        for aim in bound {
            let effective = self.tree.effective(&aim.group);
            // A mixed container only leaves CPUs here. The `Move` aims below let it enter others.
            if self.goal.mixed.contains(&aim.group) && effective.is_subset(&aim.value) {
                continue;
            }
            // The cgroup above may still have exclusive CPUs, or others that it is about to lose, which this
            // one must not gain.
            let gains = self.tree.above(&aim.group) - effective;
            let value = aim.value - (gains & claims) - (gains - aim.above);
            if self.tree.cpus(&aim.group) != Some(value) {
                self.put_after_widening(&aims, &aim.group, value);
            }
        }
        of(AimKind::Loosen).for_each(|aim| self.loosen(aim));
        // Those that no container has to enter come first: containers that enter the others may be on
        // CPUs of these.
        let mut tight: Vec<&Aim> = of(AimKind::Tighten).rev().collect();
        tight.sort_by_key(|aim| !self.entering(&aim.group).is_empty());
        for aim in &tight {
            self.tighten(&aims, &frontier, aim);
        }
        // Again, as some of the CPUs that were occupied have been left since.
        for aim in &tight {
            let occupied = self.tighten(&aims, &frontier, aim);
            self.outcome.withheld |= occupied;
        }
        self.end_partitions(&frontier, |goal, leaf| !goal.partitions.contains(leaf));
        self.make_partitions(&frontier);
        for aim in of(AimKind::Move) {
            let own = self.goal.exclusive.get(&aim.group).copied().unwrap_or_default();
            if self.tree.is_partition(&aim.group) {
                // It runs on its CPUs by the partition: this write moves nobody.
                if self.goal.listed.contains(&aim.group) {
                    self.put_if_new(&aim.group, own);
                }
                continue;
            }
            // Containers of a pod can have CPUs in common: those do not count as others.
            let is_other = |other: &&CgroupPath| {
                **other != aim.group
                    && self.goal.exclusive.get(*other).is_none_or(|cpus| cpus.is_disjoint(&own))
            };
            let others = frontier.iter().filter(is_other);
            let others: CpuSet = others.map(|other| self.tree.effective(other)).collect();
            let above = self.tree.above(&aim.group);
            let free = aim.value - (others & claims);
            // While others are on all of its own CPUs, it only leaves theirs: they may wait for that.
            let value = if free.is_disjoint(&above) {
                self.tree.effective(&aim.group) - (claims - own)
            } else {
                free
            };
            if !value.is_disjoint(&above) {
                self.put_if_new(&aim.group, value);
            }
        }
    }

    /// Gives a cgroup its value without the CPUs on which others still run. Returns the CPUs left out.
    fn tighten(&mut self, aims: &[Aim], frontier: &[CgroupPath], aim: &Aim) -> CpuSet {
        let occupied = self.occupied(frontier, aim);
        let value = aim.value - occupied;
        if aim.differs(self.tree, value) {
            self.put_after_widening(aims, &aim.group, value);
        }
        occupied
    }

    /// Gives a cgroup the widest set, unless it would enter CPUs that the cgroup above has still to lose.
    /// A cgroup that has no CPU of those that the one above will have gets the rest of the widest set:
    /// before that, the one above cannot be narrowed.
    fn loosen(&mut self, aim: &Aim) {
        let set = self.tree.cpus(&aim.group).unwrap_or_default();
        let above = self.tree.above(&aim.group);
        let entered = above - self.tree.effective(&aim.group) - aim.above;
        if !entered.is_empty() && !set.is_disjoint(&aim.above) {
            return;
        }
        let value = aim.value - entered;
        if set != value && !value.is_disjoint(&above) {
            self.put(&aim.group, value);
        }
    }

    fn put_if_new(&mut self, group: &CgroupPath, value: CpuSet) {
        if self.tree.cpus(group) != Some(value) {
            self.put(group, value);
        }
    }

    fn put(&mut self, group: &CgroupPath, value: CpuSet) {
        if !self.outcome.failed.contains(group) && !self.write(group, Write::Cpus(value)) {
            self.outcome.failed.push(group.clone());
        }
    }

    /// Makes a write. Returns whether the kernel has accepted it. A hazard is not made, and counts as
    /// refused.
    fn write(&mut self, group: &CgroupPath, write: Write) -> bool {
        if hazard(self.tree, group, write).is_some() {
            return false;
        }
        let Some(files) = (self.write)(group, write) else { return false };
        match write {
            Write::Cpus(value) => self.tree.put(group, value),
            Write::Exclusive(_) | Write::Partition(_) => {
                self.ours.insert(group.clone());
                self.tree.put_partition(group, files);
            }
        }
        self.outcome.written += 1;
        true
    }

    /// Ends this program's partitions that are `over`, unless the container of one of them or of
    /// `leaves` would enter exclusive CPUs of another by that.
    fn end_partitions(&mut self, leaves: &[CgroupPath], over: impl Fn(&Goal, &CgroupPath) -> bool) {
        let goal = self.goal;
        for group in goal.ours.iter().filter(|group| over(goal, group)) {
            let is_leaf = self.tree.children(group).next().is_none();
            let files = self.tree.partition(group);
            if !is_leaf || files == PartitionFiles::default() {
                continue;
            }
            self.settle_on_claim(group);
            let exposed = self.exposed_by_end(leaves, group);
            if exposed.is_empty() {
                self.end_partition(group);
            } else {
                self.outcome.withheld |= exposed;
            }
        }
        self.narrow(goal.ours.iter().rev());
    }

    /// Prepares the end of a partition, from which on its `cpuset.cpus` count: moves of the partition
    /// have changed `cpuset.cpus.exclusive` only, so these may be another container's CPUs by now.
    fn settle_on_claim(&mut self, leaf: &CgroupPath) {
        let claim = self.goal.claims_in(leaf);
        let of_others = self.goal.claims() - claim;
        let set = self.tree.cpus(leaf).unwrap_or_default();
        if set.is_disjoint(&of_others) {
            return;
        }
        // The claim is empty if the container shares CPUs from now on, and outside `above` if another
        // program leaves its pod none of these CPUs.
        let above = self.tree.above_without_partitions(leaf);
        let value = if claim.is_disjoint(&above) { self.goal.widest - of_others } else { claim };
        if !value.is_disjoint(&above) {
            self.put(leaf, value);
        }
    }

    /// The CPUs that would be used twice if a partition ended: CPUs of its container, now or by the goal,
    /// that others of `leaves` would enter, and exclusive CPUs of others that its container would enter.
    fn exposed_by_end(&mut self, leaves: &[CgroupPath], leaf: &CgroupPath) -> CpuSet {
        let files = self.tree.partition(leaf);
        if !files.state.is_valid() {
            return CpuSet::EMPTY;
        }
        let claim = self.goal.claims_in(leaf);
        let of_others = self.goal.claims() - claim;
        self.if_partition(leaf, PartitionFiles::default(), |tree| {
            let now = tree.effective(leaf);
            let own = files.effective | (now & claim);
            let exposed_at = |at: &CgroupPath| {
                if at == leaf {
                    (now - files.effective) & of_others
                } else {
                    tree.effective(at) & own
                }
            };
            leaves.iter().map(exposed_at).collect()
        })
    }

    /// Measures the tree as it would be if a container's cgroup had these partition files.
    fn if_partition<T>(
        &mut self,
        leaf: &CgroupPath,
        files: PartitionFiles,
        measure: impl FnOnce(&CgroupTree) -> T,
    ) -> T {
        let now = self.tree.partition(leaf);
        self.tree.put_partition(leaf, files);
        let measured = measure(self.tree);
        self.tree.put_partition(leaf, now);
        measured
    }

    /// The files of a valid partition of these CPUs.
    fn in_force(&self, cpus: CpuSet) -> PartitionFiles {
        let state = PartitionState::Valid(self.goal.kind);
        PartitionFiles { exclusive: cpus, effective: cpus, state }
    }

    fn end_partition(&mut self, leaf: &CgroupPath) {
        if self.tree.partition(leaf).state != PartitionState::Member {
            self.write(leaf, Write::Partition(None));
        }
        if !self.tree.partition(leaf).exclusive.is_empty() {
            self.write(leaf, Write::Exclusive(CpuSet::EMPTY));
        }
    }

    /// Takes from cgroups above containers the exclusive CPUs that no cgroup below has, as they keep
    /// other pods from having these CPUs. `groups` lists lower cgroups first.
    fn narrow<'g>(&mut self, groups: impl Iterator<Item = &'g CgroupPath>) {
        for group in groups {
            let below: CpuSet = self
                .tree
                .children(group)
                .map(|child| self.tree.partition(child).exclusive)
                .collect();
            let has = self.tree.partition(group).exclusive;
            let is_above = self.tree.children(group).next().is_some();
            if is_above && self.ours.contains(group) && has != below && below.is_subset(&has) {
                self.write(group, Write::Exclusive(below));
            }
        }
    }

    /// Makes the cgroups of containers partitions of their CPUs. Each gets its CPUs when they are
    /// exclusive CPUs of no other cgroup, and its siblings can leave them. If partitions wait for each
    /// other, one gets those of its CPUs that are free, or is an ordinary cgroup until the others have
    /// left if none is free.
    fn make_partitions(&mut self, frontier: &[CgroupPath]) {
        let goal = self.goal;
        self.leave_some_to_others();
        let mut left: BTreeMap<&CgroupPath, CpuSet> = BTreeMap::new();
        for leaf in goal.partitions.iter().filter(|leaf| self.tree.contains(leaf)) {
            let claim = goal.claims_in(leaf);
            if self.tree.partition(leaf) != self.in_force(claim)
                && !self.outcome.refused.contains_key(leaf)
            {
                left.insert(leaf, claim);
            }
        }
        let mut stepped = BTreeSet::new();
        loop {
            let before = left.len();
            let mut blocked = BTreeMap::new();
            left.retain(|leaf, claim| {
                let by = self.make_partition(frontier, leaf, *claim);
                blocked.insert(*leaf, by);
                !by.is_empty()
            });
            if left.len() < before {
                continue;
            }
            let next = left.iter().find(|(leaf, _)| {
                !stepped.contains(*leaf) && !self.tree.partition(leaf).exclusive.is_empty()
            });
            // Any of them will do. One without exclusive CPUs has none for which others wait.
            let Some((&leaf, &claim)) = next else { break };
            stepped.insert(leaf);
            let free = claim - blocked.get(leaf).copied().unwrap_or_default();
            let has_stepped =
                !free.is_empty() && self.make_partition(frontier, leaf, free).is_empty();
            if !has_stepped && !self.held_by_others(leaf).is_disjoint(&claim) {
                // The earlier stages have written the cgroups above, which keep its container off others'
                // exclusive CPUs without a partition.
                self.end_partition(leaf);
                self.narrow(leaf.ancestors().iter().rev());
            }
        }
        self.outcome.withheld |= left.into_values().collect::<CpuSet>();
    }

    /// Refuses partitions that would leave others too few CPUs. Existing partitions take precedence.
    fn leave_some_to_others(&mut self) {
        let goal = self.goal;
        let mut rest = self.tree.online();
        let (made, new): (Vec<_>, Vec<_>) =
            goal.partitions.iter().partition(|leaf| self.tree.is_partition(leaf));
        for leaf in made.into_iter().chain(new) {
            let claim = goal.claims_in(leaf);
            if (rest - claim).len() >= LEFT_TO_OTHERS {
                rest -= claim;
            } else if self.tree.contains(leaf) {
                let why = format!("it would leave other cgroups fewer than {LEFT_TO_OTHERS} CPUs");
                self.refuse(leaf, why);
            }
        }
    }

    /// Exclusive CPUs of cgroups that are neither above nor below this one.
    fn held_by_others(&self, leaf: &CgroupPath) -> CpuSet {
        let others = self
            .tree
            .groups()
            .filter(|other| *other != leaf && !leaf.is_below(other) && !other.is_below(leaf));
        others.map(|other| self.tree.partition(other).exclusive).collect()
    }

    /// Makes a container's cgroup a partition of these CPUs, or moves its partition there, which takes
    /// one write whatever CPUs it had. As `cgroup-v2.rst` says, the cgroups above get the exclusive CPUs
    /// first. Returns the CPUs that others have not left yet; none if it is done, or refused.
    fn make_partition(
        &mut self,
        frontier: &[CgroupPath],
        leaf: &CgroupPath,
        cpus: CpuSet,
    ) -> CpuSet {
        let held = self.held_by_others(leaf) & cpus;
        if !held.is_empty() {
            return held;
        }
        let before = self.tree.partition(leaf);
        let kind = self.goal.kind;
        if let Some(sibling) = self.clear_siblings(leaf, before.held() | cpus) {
            if self.outcome.failed.contains(&sibling) {
                self.refuse(leaf, format!("{sibling} has its CPUs and cannot be written"));
                return CpuSet::EMPTY;
            }
            let named = self.tree.cpus(&sibling).unwrap_or_default() & cpus;
            return if named.is_empty() { cpus } else { named };
        }
        let last = self.last_of_others(frontier, leaf, cpus);
        if !last.is_empty() {
            return last;
        }
        if before.state != PartitionState::Member && before.is_cut() {
            // A cgroup above has lost some of its CPUs: no kernel returns them to an existing partition.
            self.end_partition(leaf);
        }
        for above in &leaf.ancestors() {
            let has = self.tree.partition(above).exclusive;
            if !cpus.is_subset(&has) && !self.write(above, Write::Exclusive(has | cpus)) {
                let cpus = wording::cpus(cpus);
                self.refuse(leaf, format!("{above} cannot have {cpus} as exclusive CPUs"));
                return CpuSet::EMPTY;
            }
        }
        if self.tree.partition(leaf).exclusive != cpus {
            self.write(leaf, Write::Exclusive(cpus));
        }
        let mut state = self.tree.partition(leaf).state;
        if matches!(state, PartitionState::Invalid(_)) {
            self.write(leaf, Write::Partition(None));
            state = self.tree.partition(leaf).state;
        }
        if state != PartitionState::Valid(kind) {
            self.write(leaf, Write::Partition(Some(kind)));
        }
        let files = self.tree.partition(leaf);
        if files == self.in_force(cpus) {
            self.narrow(leaf.ancestors().iter().rev());
        } else {
            let why =
                format!("asked for a {kind} partition of {}, got {files}", wording::cpus(cpus));
            self.refuse(leaf, why);
        }
        CpuSet::EMPTY
    }

    /// Those of these CPUs that a partition cannot take yet: it would leave another container none of
    /// its CPUs, which would then run on all of its parent's, with exclusive ones among them.
    fn last_of_others(
        &mut self,
        frontier: &[CgroupPath],
        leaf: &CgroupPath,
        cpus: CpuSet,
    ) -> CpuSet {
        let effective = |tree: &CgroupTree| -> Vec<CpuSet> {
            frontier.iter().map(|other| tree.effective(other)).collect()
        };
        let before = effective(self.tree);
        let after = self.if_partition(leaf, self.in_force(cpus), effective);
        let claims = self.goal.claims();
        let driven = frontier.iter().zip(before.into_iter().zip(after)).filter(
            |(other, (before, after))| {
                let own = self.goal.claims_in(other);
                !((*after - *before) & (claims - own)).is_empty()
            },
        );
        driven.map(|(_, (before, _))| before & cpus).collect()
    }

    /// Removes these CPUs from the `cpuset.cpus` of a container's siblings, even of those that a cgroup
    /// above keeps off them: the kernel would refuse the partition, or end it. Siblings with exclusive
    /// CPUs may name any. Returns a sibling that still names some.
    fn clear_siblings(&mut self, leaf: &CgroupPath, cpus: CpuSet) -> Option<CgroupPath> {
        // Siblings of a first-level cgroup belong to no pod.
        leaf.parent()?;
        let siblings: Vec<CgroupPath> = self.tree.siblings(leaf).cloned().collect();
        for sibling in siblings {
            let set = self.tree.cpus(&sibling).unwrap_or_default();
            if set.is_disjoint(&cpus) || !self.tree.partition(&sibling).exclusive.is_empty() {
                continue;
            }
            let above = self.tree.above(&sibling);
            let rest = set - cpus;
            let rest =
                if rest.is_disjoint(&above) { self.goal.pool_of(&sibling) - cpus } else { rest };
            let has_other = !rest.is_disjoint(&above);
            // A sibling without any other CPU keeps those on which it runs.
            let stays = set & self.tree.effective(&sibling);
            let rest = if has_other { rest } else { (set - cpus) | stays };
            if rest != set {
                self.put(&sibling, rest);
            }
            if !has_other || self.outcome.failed.contains(&sibling) {
                return Some(sibling);
            }
        }
        None
    }

    /// Gives up a container's partition. A valid partition of other CPUs is ended by the next plan, once
    /// cgroups keep others off its new ones.
    fn refuse(&mut self, leaf: &CgroupPath, why: String) {
        if !self.tree.is_partition(leaf) {
            self.end_partition(leaf);
            self.narrow(leaf.ancestors().iter().rev());
        }
        self.outcome.refused.insert(leaf.clone(), why);
    }

    /// Writes a cgroup's value if that leaves it and all below it a CPU in common with their parents. If
    /// not, first adds to the cgroups above what they will have in the end, without CPUs that others have
    /// still to leave. If that is not enough, adds the value to what the cgroup has.
    fn put_after_widening(&mut self, aims: &[Aim], group: &CgroupPath, value: CpuSet) {
        let above = group.ancestors();
        let mut above =
            above.iter().filter_map(|above| aims.iter().find(|aim| aim.group == *above));
        while !self.empties_no_cut(group, value) {
            let Some(aim) = above.next() else {
                // A container below has to leave first, and may need the new CPUs for that.
                if !value.is_disjoint(&self.tree.above(group)) {
                    self.widen(group, value);
                }
                return;
            };
            self.widen(&aim.group, aim.value - self.entering(&aim.group));
        }
        self.put(group, value);
    }

    fn widen(&mut self, group: &CgroupPath, by: CpuSet) {
        let now = self.tree.cpus(group).unwrap_or_default();
        let wider = now | by;
        if !now.is_empty() && wider != now && self.empties_no_cut(group, wider) {
            self.put(group, wider);
        }
    }

    /// Whether this write leaves a CPU in common with the parent to every cgroup that has one now.
    fn empties_no_cut(&mut self, group: &CgroupPath, value: CpuSet) -> bool {
        let (before, after) = self.before_and_after(group, value, |tree| {
            let all = std::iter::once(group).chain(tree.below(group));
            all.map(|group| tree.is_cut_empty(group)).collect::<Vec<_>>()
        });
        before.into_iter().zip(after).all(|(before, after)| before || !after)
    }

    /// Measures the tree as it is, and as it would be with this value.
    fn before_and_after<T>(
        &mut self,
        group: &CgroupPath,
        value: CpuSet,
        measure: impl Fn(&CgroupTree) -> T,
    ) -> (T, T) {
        let before = measure(self.tree);
        let now = self.tree.cpus(group).unwrap_or_default();
        self.tree.put(group, value);
        let after = measure(self.tree);
        self.tree.put(group, now);
        (before, after)
    }

    /// Exclusive CPUs of a cgroup's containers on which these do not run yet.
    fn entering(&self, group: &CgroupPath) -> CpuSet {
        let claims = self.goal.exclusive_in(group);
        claims
            .map(
                |(leaf, claim)| {
                    if self.tree.contains(leaf) { claim - self.tree.effective(leaf) } else { claim }
                },
            )
            .collect()
    }

    /// The CPUs that containers in a cgroup have still to enter, and that the cgroup must not have yet
    /// because others run on them. If a cgroup in between keeps those containers off these CPUs anyway,
    /// only those others count that this change itself would bring onto the CPUs, or that would be on
    /// CPUs onto which it brings the containers.
    fn occupied(&mut self, frontier: &[CgroupPath], aim: &Aim) -> CpuSet {
        let missing = self.entering(&aim.group);
        if missing.is_empty() {
            return missing;
        }
        let goal = self.goal;
        let (before, after) = self.before_and_after(&aim.group, aim.value, |tree| {
            frontier.iter().map(|leaf| tree.effective(leaf)).collect::<Vec<_>>()
        });
        // If nothing keeps them off, this cgroup's change lets its containers enter at once, so no other
        // container may be there. A cgroup in between that plans write keeps them off until its own turn.
        let nothing_keeps_off = goal.exclusive_in(&aim.group).all(|(leaf, _)| {
            let between = leaf.ancestors().into_iter().filter(|above| above.is_below(&aim.group));
            between.into_iter().all(|above| goal.distrusted.contains(&above))
        });
        let leaves = || frontier.iter().zip(before.iter().zip(&after));
        let own = |leaf: &CgroupPath| {
            if !leaf.is_below(&aim.group) {
                return CpuSet::EMPTY;
            }
            goal.exclusive.get(leaf).copied().unwrap_or_default()
        };
        // Their own CPUs that containers enter by this change alone, as cgroups in between allow it.
        let entered: CpuSet =
            leaves().map(|(leaf, (before, after))| (*after - *before) & own(leaf)).collect();
        let in_the_way: CpuSet = leaves()
            .map(|(leaf, (before, after))| {
                // An owner is about to move itself: only what it enters by this change counts.
                let is_owner = !own(leaf).is_empty();
                let all = nothing_keeps_off && !is_owner;
                let part = if all { *after } else { (*after - *before) | (*after & entered) };
                part - own(leaf)
            })
            .collect();
        missing & in_the_way
    }
}

/// The CPUs on which a container runs, and, of a partition, those that no sibling may name, including
/// offline ones.
fn held(tree: &CgroupTree, leaf: &CgroupPath) -> CpuSet {
    tree.effective(leaf) | tree.partition(leaf).held()
}

impl Aim {
    /// Whether this value would change the CPUs of the cgroup's processes, with the CPUs that its parent
    /// has now or will have in the end.
    fn differs(&self, tree: &CgroupTree, value: CpuSet) -> bool {
        let set = tree.cpus(&self.group).unwrap_or_default();
        let above = tree.above(&self.group) | self.above;
        let is_same =
            if set.is_empty() { above.is_subset(&value) } else { set & above == value & above };
        !is_same && !value.is_disjoint(&above)
    }
}

impl<'a> Survey<'a> {
    fn of(tree: &'a CgroupTree, goal: &'a Goal) -> Survey<'a> {
        let mut survey = Survey {
            tree,
            goal,
            lingering: CpuSet::EMPTY,
            entered: CpuSet::EMPTY,
            cramped: CpuSet::EMPTY,
            aims: Vec::new(),
            frontier: Vec::new(),
            withheld: CpuSet::EMPTY,
        };
        // CPUs of containers that run on none of their own CPUs: these may be unable to leave.
        let mut stuck = CpuSet::EMPTY;
        for (leaf, claim) in goal.exclusive.iter().filter(|(leaf, _)| tree.contains(leaf)) {
            let cpus = tree.effective(leaf);
            if cpus.is_disjoint(claim) {
                stuck |= cpus;
            }
            let mixed = goal.mixed.contains(leaf);
            if !mixed {
                survey.lingering |= held(tree, leaf) - *claim;
            }
            // A container that also runs on CPUs outside its claim has not entered the claim yet: it ran
            // there before the CPUs became exclusive.
            if mixed || cpus.is_subset(claim) {
                survey.entered |= cpus & *claim;
            }
        }
        for group in goal.tops.keys().chain(goal.pools.keys()) {
            let pool = goal.pool_of(group);
            if goal.is_loose(group)
                && tree.contains(group)
                && pool.is_subset(&survey.lingering)
                && pool.is_disjoint(&stuck)
                && tree.effective(group).is_disjoint(&pool)
            {
                survey.cramped |= pool;
            }
        }
        for (top, level) in goal.tops.iter().filter(|(top, _)| tree.contains(top)) {
            // Without partitions, as cgroups must keep others off if these end.
            survey.visit(top, *level, tree.above_without_partitions(top), None);
        }
        survey
    }

    /// `above` are the CPUs that the parent will have in the end. `pod` is `None` if the parent's value
    /// does not bind this cgroup.
    fn visit(
        &mut self,
        group: &CgroupPath,
        level: CgroupLevel,
        above: CpuSet,
        pod: Option<PodClaims>,
    ) {
        if level == CgroupLevel::Leaf {
            self.visit_leaf(group, above, pod);
        } else if self.goal.is_loose(group) {
            self.frontier.push(group.clone());
            let value = self.pool_of(group, above);
            self.bind(AimKind::Bind, group, value, above);
            self.loosen_below(group, value & above);
            let goal = self.goal;
            for pod in goal.narrower_in(group).filter(|pod| self.tree.contains(pod)) {
                self.visit(pod, CgroupLevel::Pod, cut(value, above), None);
            }
        } else {
            self.visit_tight(group, level, above);
        }
    }

    fn visit_tight(&mut self, group: &CgroupPath, level: CgroupLevel, above: CpuSet) {
        let Survey { tree, goal, .. } = *self;
        let (cpus, claims) = if goal.distrusted.contains(group) {
            (cut(tree.cpus(group).unwrap_or_default(), above), None)
        } else {
            let claims = goal.claims_in(group);
            // It keeps the CPUs on which its containers run, unless another container has entered these:
            // the runtime moves its containers, and the first plan after that takes the CPUs away. A mixed
            // container leaves when this value is written.
            let leaves = goal
                .exclusive_in(group)
                .filter(|(leaf, _)| tree.contains(leaf) && !goal.mixed.contains(*leaf));
            let observed: CpuSet = leaves.map(|(leaf, _)| held(tree, leaf)).collect();
            let value = self.pool_of(group, above) | claims | (observed - (self.entered - claims));
            self.aims.push(Aim { group: group.clone(), kind: AimKind::Tighten, value, above });
            if goal.volatile.contains(group) {
                (above, None)
            } else {
                let lingering = observed - claims;
                (cut(value, above), Some(PodClaims { exclusive: claims, lingering }))
            }
        };
        for child in tree.children(group) {
            self.visit(child, level.below(), cpus, claims);
        }
    }

    fn visit_leaf(&mut self, group: &CgroupPath, above: CpuSet, pod: Option<PodClaims>) {
        let Survey { tree, goal, .. } = *self;
        let Some(set) = tree.cpus(group) else { return };
        if goal.apart.contains(group) {
            return;
        }
        self.frontier.push(group.clone());
        let claim = goal.exclusive.get(group);
        if let Some(own) = claim
            && goal.mixed.contains(group)
        {
            let value = match pod {
                Some(claims) => self.value_in_pod(group, above, claims) | *own,
                None => self.pool_of(group, above) | *own,
            };
            // It leaves the CPUs that others get in an early stage, and enters its own in the last.
            self.bind(AimKind::Bind, group, value, above);
            self.bind(AimKind::Move, group, value, above);
        } else if tree.is_partition(group) {
            // `make_partitions` moves it.
            if let Some(claim) = claim.filter(|_| goal.listed.contains(group)) {
                let (group, kind, value) = (group.clone(), AimKind::Move, *claim);
                self.aims.push(Aim { group, kind, value, above });
            }
        } else if let Some(claim) = claim {
            // The runtime sets its CPUs, unless it has just listed the container, or the container is on
            // another's, or on CPUs that the cgroup above cannot leave before it.
            let others = goal.claims() - *claim;
            let stays = !cut(set, above).is_disjoint(&others);
            let effective = tree.effective(group);
            // Without a CPU in common with its parent it runs on all of the parent's CPUs, now or once
            // the parent has its value. Others may wait for it to leave.
            let is_cut_off = set.is_disjoint(&above) || tree.is_cut_empty(group);
            let blocks = is_cut_off && !effective.is_disjoint(&others);
            let cramps = !effective.is_disjoint(&self.cramped);
            // If another program leaves it none of its own CPUs, it at least leaves the others'.
            let left = !claim.is_disjoint(&above);
            if (left && goal.listed.contains(group)) || stays || blocks || cramps {
                let value = if left { *claim } else { goal.widest - others };
                self.aims.push(Aim { group: group.clone(), kind: AimKind::Move, value, above });
            }
        } else if let Some(claims) = pod {
            let value = self.value_in_pod(group, above, claims);
            self.bind(AimKind::Bind, group, value, above);
        } else {
            let pool = self.pool_of(group, above);
            let rest = goal.without_siblings(group, pool);
            let value = if rest.is_empty() { pool } else { rest };
            self.bind(AimKind::Bind, group, value, above);
        }
    }

    /// The value of a container that its pod's value keeps in the pool: all CPUs but its pod's exclusive
    /// ones. It does not depend on the pool, so it is seldom written. CPUs that others of the pod have
    /// still to leave are added later, unless the container has no other CPU.
    fn value_in_pod(&mut self, leaf: &CgroupPath, above: CpuSet, claims: PodClaims) -> CpuSet {
        let all = self.goal.widest - claims.exclusive;
        let withheld = claims.lingering - self.tree.effective(leaf);
        let left = all - withheld;
        if left.is_disjoint(&above) {
            // It must not name the CPUs of a sibling's partition.
            let held = self.tree.siblings(leaf).map(|other| self.tree.partition(other).held());
            return self.goal.without_siblings(leaf, all - held.collect::<CpuSet>());
        }
        self.withheld |= withheld;
        self.goal.without_siblings(leaf, left)
    }

    /// The part of its pool that a cgroup gets now, without CPUs that others have still to leave. If they
    /// have to leave all of it, the cgroup shares the pool with them, as it needs a CPU. Only if all of
    /// them can leave in this plan (`cramped`), it waits for that on its present CPUs, without exclusive
    /// ones: those that leave may go there.
    fn pool_of(&mut self, group: &CgroupPath, above: CpuSet) -> CpuSet {
        let pool = self.goal.pool_within(group, above);
        let withheld = (pool - self.tree.effective(group)) & self.lingering;
        let left = pool - withheld;
        if !left.is_empty() {
            self.withheld |= withheld;
            return left;
        }
        let observed = self.tree.effective(group) - self.goal.claims();
        if !pool.is_subset(&self.cramped) || observed.is_empty() {
            return pool;
        }
        self.withheld |= withheld;
        observed
    }

    fn bind(&mut self, kind: AimKind, group: &CgroupPath, value: CpuSet, above: CpuSet) {
        let set = self.tree.cpus(group).unwrap_or_default();
        // One without a CPU of `above` has the right CPUs in the end, but the cgroup above cannot get there:
        // it would take the last CPU that they have in common.
        let binds = if set.is_empty() { above.is_subset(&value) } else { !set.is_disjoint(&above) };
        let is_bound = binds && cut(set, above) == cut(value, above);
        if !is_bound && !value.is_disjoint(&above) {
            self.aims.push(Aim { group: group.clone(), kind, value, above });
        }
    }

    fn loosen_below(&mut self, group: &CgroupPath, cpus: CpuSet) {
        let Survey { tree, goal, .. } = *self;
        let all = goal.pool_of(group);
        let is_bound =
            |below: &&CgroupPath| goal.pool_of(below) == all && !goal.apart.contains(*below);
        for below in tree.below(group).filter(is_bound) {
            let set = tree.cpus(below).unwrap_or_default();
            // A bound of another program stays as long as it leaves the cgroup any CPU.
            let bound = goal.bounds.contains_key(below) && !set.is_disjoint(&cpus);
            let needed = goal.without_siblings(below, cpus);
            if !set.is_empty() && !needed.is_subset(&set) && !bound {
                let group = below.clone();
                let value = goal.without_siblings(below, goal.widest);
                self.aims.push(Aim { group, kind: AimKind::Loosen, value, above: cpus });
            }
        }
    }
}

#[cfg(test)]
mod tests;
