//! The writes that lead from what cgroups are to their [`Goal`]. Pure: no files.
//!
//! Stages, so that every state in between is legal, also if no further write follows:
//!
//! 1. *loosen*: cgroups below a loose one get the widest set; what is above binds them.
//! 2. *bind and leave*: loose cgroups and containers that share CPUs leave what is not theirs.
//! 3. *tighten and enter*: cgroups above containers with exclusive CPUs get these, as far as all
//!    others have left them by now.
//! 4. *partition*: a container's cgroup becomes a partition of its CPUs, gets others, or is none any
//!    more.
//! 5. *move*: a container with exclusive CPUs that is still where another is to be, or on all that is
//!    to be the pool, goes to its own, or at least leaves the other's. Then the others enter.
//!
//! After each write no container runs on exclusive CPUs of another that did not before, and no
//! cgroup loses the last CPU that it has in common with its parent. A failed write changes nothing,
//! so the CPUs that it was to leave are not entered by any other cgroup.
//!
//! A partition is an addition to all this: cgroups keep others off its CPUs, whether it is in force or
//! not. So it can be refused, end and come back without anything else having to change.

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
    /// Containers that cannot be partitions, and why. The next plan has to do without them.
    pub refused: BTreeMap<CgroupPath, String>,
}

/// What one cgroup has to be.
#[derive(Debug, Clone)]
struct Aim {
    group: CgroupPath,
    kind: Kind,
    value: CpuSet,
    /// What the cgroup above it will have in the end.
    above: CpuSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Loosen,
    Bind,
    Tighten,
    Move,
}

/// The CPUs of a pod's containers that others in the pod must not enter, where the pod's value binds
/// these.
#[derive(Debug, Clone, Copy)]
struct PodClaims {
    exclusive: CpuSet,
    /// Where containers with exclusive CPUs still are beside these.
    lingering: CpuSet,
}

/// Goes through a tree, from the top down.
struct Survey<'a> {
    tree: &'a CgroupTree,
    goal: &'a Goal,
    /// CPUs on which containers with exclusive CPUs run beside these: where they still are.
    lingering: CpuSet,
    /// Exclusive CPUs that their containers run on.
    entered: CpuSet,
    /// Pools that consist of CPUs which containers with exclusive CPUs have still to leave, and of
    /// which some cgroup has none yet. They can leave: they have others of their own.
    cramped: CpuSet,
    aims: Vec<Aim>,
    /// Cgroups that decide where processes run, as far as is known here: loose ones and leaves.
    frontier: Vec<CgroupPath>,
    withheld: CpuSet,
}

/// The writing of a plan.
struct Work<'a, W> {
    tree: &'a mut CgroupTree,
    goal: &'a Goal,
    write: W,
    /// Cgroups whose `cpuset.cpus.exclusive` this program has set, before this plan or in it.
    ours: BTreeSet<CgroupPath>,
    outcome: PlanOutcome,
}

/// Makes the cgroups of `tree` what they have to be. The tree follows.
///
/// `write` makes a write, and returns what the cgroup's files for partitions say then; `None` if the
/// kernel has refused the write. After one of `cpuset.cpus` they say what they said before.
pub fn carry_out(
    tree: &mut CgroupTree,
    goal: &Goal,
    write: impl FnMut(&CgroupPath, Write) -> Option<PartitionFiles>,
) -> PlanOutcome {
    let ours = goal.ours.clone();
    let mut work = Work { tree, goal, write, ours, outcome: PlanOutcome::default() };
    // What one round has changed may let others enter. A chain of moves has at most as many links as
    // there are containers to move.
    for _ in 0..goal.exclusive.len() + 3 {
        let written = work.outcome.written;
        work.round();
        if work.outcome.written == written {
            break;
        }
    }
    work.outcome
}

impl<W: FnMut(&CgroupPath, Write) -> Option<PartitionFiles>> Work<'_, W> {
    /// All stages once.
    fn round(&mut self) {
        // Those of containers that have ended are in the way of all others.
        self.end_partitions(&[], |goal, leaf| !goal.exclusive.contains_key(leaf));
        let Survey { aims, frontier, withheld, .. } = Survey::of(self.tree, self.goal);
        self.outcome.withheld = withheld;
        let claims = self.goal.claims();
        let of = |kind| aims.iter().filter(move |aim| aim.kind == kind);
        // Before the cgroup above narrows, so that they keep CPUs in common with it; or after it, where
        // it does not bind them yet.
        of(Kind::Loosen).for_each(|aim| self.loosen(aim));
        // Those below first: what is above may be about to get CPUs that they must not have. Those for
        // which it has to get some come last.
        let mut bound: Vec<&Aim> = of(Kind::Bind).rev().collect();
        bound.sort_by_key(|aim| aim.value.is_disjoint(&self.tree.above(&aim.group)));
        for aim in bound {
            let effective = self.tree.effective(&aim.group);
            // A mixed container only leaves here, and enters below.
            if self.goal.mixed.contains(&aim.group) && effective.is_subset(&aim.value) {
                continue;
            }
            // What is above may not keep it off exclusive CPUs yet.
            let gains = self.tree.above(&aim.group) - effective;
            let value = aim.value - (gains & claims);
            if self.tree.cpus(&aim.group) != Some(value) {
                self.put_in_room(&aims, &aim.group, value);
            }
        }
        of(Kind::Loosen).for_each(|aim| self.loosen(aim));
        // Those that nothing enters first: what enters the others may be in their way.
        let mut tight: Vec<&Aim> = of(Kind::Tighten).rev().collect();
        tight.sort_by_key(|aim| !self.entering(&aim.group).is_empty());
        for aim in &tight {
            self.tighten(&aims, &frontier, aim);
        }
        // What was in the way may have left since.
        for aim in &tight {
            let occupied = self.tighten(&aims, &frontier, aim);
            self.outcome.withheld |= occupied;
        }
        self.end_partitions(&frontier, |goal, leaf| !goal.partitions.contains(leaf));
        self.make_partitions(&frontier);
        for aim in of(Kind::Move) {
            let own = self.goal.exclusive.get(&aim.group).copied().unwrap_or_default();
            // The containers of a pod can have CPUs in common.
            let is_other = |other: &&CgroupPath| {
                **other != aim.group
                    && self.goal.exclusive.get(*other).is_none_or(|cpus| cpus.is_disjoint(&own))
            };
            let others = frontier.iter().filter(is_other);
            let others: CpuSet = others.map(|other| self.tree.effective(other)).collect();
            let above = self.tree.above(&aim.group);
            let free = aim.value - (others & claims);
            // While others are on its own CPUs, it leaves theirs: they may wait for just that.
            let value = if free.is_disjoint(&above) {
                self.tree.effective(&aim.group) - (claims - own)
            } else {
                free
            };
            if !value.is_disjoint(&above) && self.tree.cpus(&aim.group) != Some(value) {
                self.put(&aim.group, value);
            }
        }
    }

    /// Gives a cgroup its value without the CPUs that others still run on, and returns these.
    fn tighten(&mut self, aims: &[Aim], frontier: &[CgroupPath], aim: &Aim) -> CpuSet {
        let occupied = self.occupied(frontier, aim);
        let value = aim.value - occupied;
        if aim.differs(self.tree, value) {
            self.put_in_room(aims, &aim.group, value);
        }
        occupied
    }

    /// Gives a cgroup the widest set, unless it would come onto CPUs by that which it is not to have,
    /// as the cgroup above it is still to lose them. One that has nothing in common with what is to be
    /// above it gets the rest of the widest set before: until then, the cgroup above cannot be written,
    /// and cannot keep it off these.
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

    fn put(&mut self, group: &CgroupPath, value: CpuSet) {
        if !self.outcome.failed.contains(group) && !self.write(group, Write::Cpus(value)) {
            self.outcome.failed.push(group.clone());
        }
    }

    /// Makes a write that harms no kernel. Returns whether it was accepted.
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

    /// Makes partitions ordinary cgroups that this program has made and that are `over`, unless one of
    /// these containers would come onto exclusive CPUs of another.
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

    /// Only `cpuset.cpus.exclusive` moves a partition. Its `cpuset.cpus`, which count when it ends, may
    /// be another container's since.
    fn settle_on_claim(&mut self, leaf: &CgroupPath) {
        let claim = self.goal.claims_in(leaf);
        let of_others = self.goal.claims() - claim;
        let set = self.tree.cpus(leaf).unwrap_or_default();
        if set.is_disjoint(&of_others) {
            return;
        }
        // It may share CPUs from now on, or another program leaves it none of its own.
        let above = self.tree.above_without_partitions(leaf);
        let value = if claim.is_disjoint(&above) { self.goal.widest - of_others } else { claim };
        if !value.is_disjoint(&above) {
            self.put(leaf, value);
        }
    }

    /// CPUs on which others would run beside the container of a partition if that ended: its own, or
    /// those that are to be its own. And others' exclusive CPUs which it would enter.
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

    /// Measures the tree as it would be with these files of a container's cgroup.
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

    /// What a partition of these CPUs that is in force shows.
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

    /// Leaves cgroups above containers no more exclusive CPUs than those below need: what is left over
    /// keeps these CPUs from other pods. Cgroups come before those above them.
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

    /// Makes the cgroups of containers partitions of their CPUs. Each gets its CPUs when no other
    /// cgroup has exclusive ones among them, and those beside it can leave them. If they wait for each
    /// other, one gets those that are free; if there are none, it is an ordinary cgroup until the
    /// others have left.
    fn make_partitions(&mut self, others: &[CgroupPath]) {
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
                let by = self.make_partition(others, leaf, *claim);
                blocked.insert(*leaf, by);
                !by.is_empty()
            });
            if left.len() < before {
                continue;
            }
            let next = left.iter().find(|(leaf, _)| {
                !stepped.contains(*leaf) && !self.tree.partition(leaf).exclusive.is_empty()
            });
            let Some((&leaf, &claim)) = next else { break };
            stepped.insert(leaf);
            let free = claim - blocked.get(leaf).copied().unwrap_or_default();
            let has_stepped =
                !free.is_empty() && self.make_partition(others, leaf, free).is_empty();
            if !has_stepped && !self.held_by_others(leaf).is_disjoint(&claim) {
                self.end_partition(leaf);
                self.narrow(leaf.ancestors().iter().rev());
            }
        }
        self.outcome.withheld |= left.into_values().collect::<CpuSet>();
    }

    /// Refuses partitions that would leave others too few CPUs. Those in force come first.
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

    /// Exclusive CPUs of cgroups that are neither above this one nor below.
    fn held_by_others(&self, leaf: &CgroupPath) -> CpuSet {
        let others = self
            .tree
            .groups()
            .filter(|other| *other != leaf && !leaf.is_below(other) && !other.is_below(leaf));
        others.map(|other| self.tree.partition(other).exclusive).collect()
    }

    /// Gives a container's cgroup these CPUs, and makes it a partition. The order is that of the
    /// kernel's document: cgroups above first, so that nothing is cut. One write moves a valid
    /// partition, whatever CPUs it had. Returns the CPUs that others have not left yet; none if it is
    /// done, or refused.
    fn make_partition(&mut self, others: &[CgroupPath], leaf: &CgroupPath, cpus: CpuSet) -> CpuSet {
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
        let last = self.last_of_others(others, leaf, cpus);
        if !last.is_empty() {
            return last;
        }
        if before.state != PartitionState::Member && before.is_cut() {
            // Something above has cut it: no kernel grows it again.
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

    /// Those of these CPUs that a partition cannot take yet: others would have none of theirs left, and
    /// come onto exclusive ones. Their own cgroup, or one above, gets others first.
    fn last_of_others(&mut self, others: &[CgroupPath], leaf: &CgroupPath, cpus: CpuSet) -> CpuSet {
        let effective = |tree: &CgroupTree| -> Vec<CpuSet> {
            others.iter().map(|other| tree.effective(other)).collect()
        };
        let before = effective(self.tree);
        let after = self.if_partition(leaf, self.in_force(cpus), effective);
        let claims = self.goal.claims();
        let driven =
            others.iter().zip(before.into_iter().zip(after)).filter(|(other, (before, after))| {
                let own = self.goal.claims_in(other);
                !((*after - *before) & (claims - own)).is_empty()
            });
        driven.map(|(_, (before, _))| before & cpus).collect()
    }

    /// Has cgroups beside a container's name none of these CPUs, also where a cgroup above keeps them
    /// off: the kernel would make no partition, or end it. Those with exclusive CPUs of their own may
    /// name any. Returns one that still names some.
    fn clear_siblings(&mut self, leaf: &CgroupPath, cpus: CpuSet) -> Option<CgroupPath> {
        // Cgroups beside a first-level one are not the pods'.
        leaf.parent()?;
        let siblings: Vec<CgroupPath> = self.tree.siblings(leaf).cloned().collect();
        for sibling in siblings {
            let set = self.tree.cpus(&sibling).unwrap_or_default();
            if set.is_disjoint(&cpus) || !self.tree.partition(&sibling).exclusive.is_empty() {
                continue;
            }
            let (above, rest) = (self.tree.above(&sibling), set - cpus);
            let rest =
                if rest.is_disjoint(&above) { self.goal.pool_of(&sibling) - cpus } else { rest };
            let has_room = !rest.is_disjoint(&above);
            // One that has nowhere else to go stays where it is.
            let stays = set & self.tree.effective(&sibling);
            let rest = if has_room { rest } else { (set - cpus) | stays };
            if rest != set {
                self.put(&sibling, rest);
            }
            if !has_room || self.outcome.failed.contains(&sibling) {
                return Some(sibling);
            }
        }
        None
    }

    /// The container is to be an ordinary one. A valid partition of other CPUs is ended by the next
    /// plan, when others are kept off these.
    fn refuse(&mut self, leaf: &CgroupPath, why: String) {
        if !self.tree.is_partition(leaf) {
            self.end_partition(leaf);
            self.narrow(leaf.ancestors().iter().rev());
        }
        self.outcome.refused.insert(leaf.clone(), why);
    }

    /// Writes a cgroup's value if that leaves it and all below it a CPU in common with the cgroups
    /// above; if not, these get what they are to have in the end first, but nothing that others have
    /// still to leave. If that is not enough, the cgroup gets the value in addition to what it has.
    fn put_in_room(&mut self, aims: &[Aim], group: &CgroupPath, value: CpuSet) {
        let above = group.ancestors();
        let mut above =
            above.iter().filter_map(|above| aims.iter().find(|aim| aim.group == *above));
        while !self.has_room(group, value) {
            let Some(aim) = above.next() else {
                // A container below has to leave first, and may need what is new for that.
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
        if !now.is_empty() && wider != now && self.has_room(group, wider) {
            self.put(group, wider);
        }
    }

    fn has_room(&mut self, group: &CgroupPath, value: CpuSet) -> bool {
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

    /// Exclusive CPUs of a cgroup's containers that these do not run on yet.
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

    /// The CPUs that containers in a cgroup are to enter and the cgroup must not have yet, because
    /// others run on them. Where a cgroup below it keeps the containers off, only those count that
    /// would come onto others' CPUs, or meet others on their own, by this cgroup's change.
    fn occupied(&mut self, frontier: &[CgroupPath], aim: &Aim) -> CpuSet {
        let missing = self.entering(&aim.group);
        if missing.is_empty() {
            return missing;
        }
        let goal = self.goal;
        let (before, after) = self.before_and_after(&aim.group, aim.value, |tree| {
            frontier.iter().map(|leaf| tree.effective(leaf)).collect::<Vec<_>>()
        });
        let nothing_keeps_off = goal.exclusive_in(&aim.group).all(|(leaf, _)| {
            let between = leaf.ancestors().into_iter().filter(|above| above.is_below(&aim.group));
            between.into_iter().all(|above| goal.distrusted.contains(&above))
        });
        let leaves = || frontier.iter().zip(before.iter().zip(&after));
        let own = |leaf: &CgroupPath| {
            let inside = goal.exclusive.get(leaf).filter(|_| leaf.is_below(&aim.group));
            inside.copied().unwrap_or_default()
        };
        // What they come onto by this change alone, because the cgroups between let them.
        let entered: CpuSet =
            leaves().map(|(leaf, (before, after))| (*after - *before) & own(leaf)).collect();
        let in_the_way: CpuSet = leaves()
            .map(|(leaf, (before, after))| {
                let is_owner = !own(leaf).is_empty();
                let all = nothing_keeps_off && !is_owner;
                let part = if all { *after } else { (*after - *before) | (*after & entered) };
                part - own(leaf)
            })
            .collect();
        missing & in_the_way
    }
}

/// The CPUs that a container runs on, or that no other may name, offline ones too, while it is a
/// partition.
fn held(tree: &CgroupTree, leaf: &CgroupPath) -> CpuSet {
    tree.effective(leaf) | tree.partition(leaf).held()
}

impl Aim {
    /// Whether the cgroup's processes could run on other CPUs than with this value, before the cgroup
    /// above it is what it has to be or after that.
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
            // One that ran there before these became its pod's own has not entered them yet.
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
            // Also where partitions take the CPUs for now: cgroups have to keep others off without them.
            survey.visit(top, *level, tree.above_without_partitions(top), None);
        }
        survey
    }

    /// `above` are the CPUs that the cgroup above will have in the end, `pod` is `None` if its value
    /// does not bind what is in it.
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
            self.bind(Kind::Bind, group, value, above);
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
            // Where its containers are stays theirs until they have left, unless another is there.
            // A mixed one leaves by this value.
            let leaves = goal
                .exclusive_in(group)
                .filter(|(leaf, _)| tree.contains(leaf) && !goal.mixed.contains(*leaf));
            let present: CpuSet = leaves.map(|(leaf, _)| held(tree, leaf)).collect();
            let value = self.pool_of(group, above) | claims | (present - (self.entered - claims));
            self.aims.push(Aim { group: group.clone(), kind: Kind::Tighten, value, above });
            if goal.volatile.contains(group) {
                (above, None)
            } else {
                let lingering = present - claims;
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
        if let Some(own) = claim.filter(|_| goal.mixed.contains(group)) {
            let value = match pod {
                Some(claims) => self.beside_claims(group, above, claims) | *own,
                None => self.pool_of(group, above) | *own,
            };
            // It leaves what others get, and enters its own when these have left that.
            self.bind(Kind::Bind, group, value, above);
            self.bind(Kind::Move, group, value, above);
        } else if tree.is_partition(group) {
            // It moves as one.
        } else if let Some(claim) = claim {
            // Its CPUs are the runtime's to set, unless they are another's: also if the cgroup above is
            // to leave just these, because it cannot before this container has.
            let others = goal.claims() - *claim;
            let stays = !cut(set, above).is_disjoint(&others);
            let effective = tree.effective(group);
            // It runs on all that there is above, or will: others may wait for that to end.
            let is_cut_off = set.is_disjoint(&above) || tree.is_cut_empty(group);
            let blocks = is_cut_off && !effective.is_disjoint(&others);
            let cramps = !effective.is_disjoint(&self.cramped);
            if stays || blocks || cramps {
                // Where another program leaves it none of its CPUs, it is kept off the others' at least.
                let left = !claim.is_disjoint(&above);
                let value = if left { *claim } else { goal.widest - others };
                self.aims.push(Aim { group: group.clone(), kind: Kind::Move, value, above });
            }
        } else if let Some(claims) = pod {
            let value = self.beside_claims(group, above, claims);
            self.bind(Kind::Bind, group, value, above);
        } else {
            let pool = self.pool_of(group, above);
            let beside = goal.beside_siblings(group, pool);
            let value = if beside.is_empty() { pool } else { beside };
            self.bind(Kind::Bind, group, value, above);
        }
    }

    /// What a container is to have that its pod's value keeps in the pool: itself it has to keep off
    /// its pod's exclusive CPUs. That does not depend on the pool, so it is seldom written. CPUs that
    /// others of the pod have still to leave come later, unless it would have no others until then.
    fn beside_claims(&mut self, leaf: &CgroupPath, above: CpuSet, claims: PodClaims) -> CpuSet {
        let all = self.goal.widest - claims.exclusive;
        let withheld = claims.lingering - self.tree.effective(leaf);
        let left = all - withheld;
        if left.is_disjoint(&above) {
            // None may name the CPUs of a partition beside it.
            let held = self.tree.siblings(leaf).map(|other| self.tree.partition(other).held());
            return self.goal.beside_siblings(leaf, all - held.collect::<CpuSet>());
        }
        self.withheld |= withheld;
        self.goal.beside_siblings(leaf, left)
    }

    /// What a cgroup gets of the pool: CPUs that others have still to leave come later.
    fn pool_of(&mut self, group: &CgroupPath, above: CpuSet) -> CpuSet {
        let pool = self.goal.pool_within(group, above);
        let withheld = (pool - self.tree.effective(group)) & self.lingering;
        let left = pool - withheld;
        if !left.is_empty() {
            self.withheld |= withheld;
            return left;
        }
        if !pool.is_subset(&self.cramped) {
            return pool;
        }
        self.withheld |= withheld;
        self.tree.effective(group)
    }

    fn bind(&mut self, kind: Kind, group: &CgroupPath, value: CpuSet, above: CpuSet) {
        let set = self.tree.cpus(group).unwrap_or_default();
        let binds = !set.is_empty() || above.is_subset(&value);
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
            // Others may keep it on fewer CPUs, as long as any of them are left.
            let bound = goal.bounds.contains_key(below) && !set.is_disjoint(&cpus);
            let needed = goal.beside_siblings(below, cpus);
            if !set.is_empty() && !needed.is_subset(&set) && !bound {
                let (group, value) = (below.clone(), goal.beside_siblings(below, goal.widest));
                self.aims.push(Aim { group, kind: Kind::Loosen, value, above: cpus });
            }
        }
    }
}

#[cfg(test)]
mod tests;
