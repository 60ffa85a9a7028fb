//! The writes that lead from what groups are to what they have to be.
//!
//! Stages, so that every state in between is legal, also if no further write follows:
//!
//! 1. *loosen*: groups below a loose one get the widest set; what is above binds them.
//! 2. *bind and leave*: loose groups and containers that share CPUs leave what is not theirs.
//! 3. *tighten and enter*: groups above containers with exclusive CPUs get these, as far as all
//!    others have left them by now.
//! 4. *move*: a container with exclusive CPUs that is still where another is to be goes to its own.
//!    Then the others enter.
//!
//! After each write no container runs on exclusive CPUs of another that did not before, and no group
//! loses the last CPU that it has in common with its parent. A failed write changes nothing, so the
//! CPUs that it was to leave are not entered by any other group.

use super::cgroup_tree::{Tree, cut};
use super::wanted::{Level, Wanted};
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;

/// What a plan came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// How many writes were made.
    pub written: usize,
    /// Groups that could not be written.
    pub failed: Vec<CgroupPath>,
    /// CPUs that some group does not have yet, because others have to leave them first.
    pub withheld: CpuSet,
}

/// What a group has to be.
#[derive(Debug, Clone)]
struct Aim {
    group: CgroupPath,
    kind: Kind,
    value: CpuSet,
    /// What the group above it will have in the end.
    above: CpuSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Loosen,
    Bind,
    Tighten,
    Move,
}

/// Goes through a tree, from the top down.
struct Survey<'a> {
    tree: &'a Tree,
    wanted: &'a Wanted,
    /// CPUs on which containers with exclusive CPUs run beside these: where they still are.
    lingering: CpuSet,
    /// Exclusive CPUs that their containers run on.
    entered: CpuSet,
    aims: Vec<Aim>,
    /// Groups that decide where processes run, as far as is known here: loose ones and leaves.
    frontier: Vec<CgroupPath>,
    withheld: CpuSet,
}

/// The writing of a plan.
struct Work<'a, W> {
    tree: &'a mut Tree,
    wanted: &'a Wanted,
    write: W,
    outcome: Outcome,
}

/// Makes the groups of `tree` what they have to be, by `write`, which says whether the kernel has
/// accepted the value. The tree follows.
pub fn carry_out(
    tree: &mut Tree,
    wanted: &Wanted,
    write: impl FnMut(&CgroupPath, CpuSet) -> bool,
) -> Outcome {
    let mut work = Work { tree, wanted, write, outcome: Outcome::default() };
    // What one round has changed may let others enter. A chain of moves has at most as many links as
    // there are containers to move.
    for _ in 0..wanted.exclusive.len() + 3 {
        let written = work.outcome.written;
        work.round();
        if work.outcome.written == written {
            break;
        }
    }
    work.outcome
}

impl<W: FnMut(&CgroupPath, CpuSet) -> bool> Work<'_, W> {
    /// All stages once.
    fn round(&mut self) {
        let Survey { aims, frontier, withheld, .. } = Survey::of(self.tree, self.wanted);
        self.outcome.withheld = withheld;
        let of = |kind| aims.iter().filter(move |aim| aim.kind == kind);
        // Before the group above narrows, so that they keep CPUs in common with it; or after it, where
        // it does not bind them yet.
        of(Kind::Loosen).for_each(|aim| self.loosen(aim));
        // Those below first: what is above may be about to get CPUs that they must not have.
        for aim in of(Kind::Bind).rev() {
            // What is above may not keep it off exclusive CPUs yet.
            let gains = self.tree.above(&aim.group) - self.tree.effective(&aim.group);
            let value = aim.value - (gains & self.wanted.claims());
            if self.tree.cpus(&aim.group) != Some(value) {
                self.put_in_room(&aims, &aim.group, value);
            }
        }
        of(Kind::Loosen).for_each(|aim| self.loosen(aim));
        // Those that nothing enters first: what enters the others may be in their way.
        let mut tight: Vec<&Aim> = of(Kind::Tighten).rev().collect();
        tight.sort_by_key(|aim| !self.entering(&aim.group).is_empty());
        for aim in &tight {
            let value = aim.value - self.occupied(&frontier, aim);
            if aim.differs(self.tree, value) {
                self.put_in_room(&aims, &aim.group, value);
            }
        }
        // What was in the way may have left since.
        for aim in &tight {
            let occupied = self.occupied(&frontier, aim);
            self.outcome.withheld |= occupied;
            let value = aim.value - occupied;
            if aim.differs(self.tree, value) {
                self.put_in_room(&aims, &aim.group, value);
            }
        }
        for aim in of(Kind::Move) {
            let others = frontier.iter().filter(|other| **other != aim.group);
            let others: CpuSet = others.map(|other| self.tree.effective(other)).collect();
            let value = aim.value - others;
            if !value.is_disjoint(&self.tree.above(&aim.group)) {
                self.put(&aim.group, value);
            }
        }
    }

    /// Gives a group the widest set, unless it would come onto exclusive CPUs by that.
    fn loosen(&mut self, aim: &Aim) {
        let gains = self.tree.above(&aim.group) - self.tree.effective(&aim.group);
        if self.tree.cpus(&aim.group) != Some(aim.value) && gains.is_disjoint(&self.wanted.claims())
        {
            self.put(&aim.group, aim.value);
        }
    }

    fn put(&mut self, group: &CgroupPath, value: CpuSet) {
        if self.outcome.failed.contains(group) {
            return;
        }
        if (self.write)(group, value) {
            self.tree.put(group, value);
            self.outcome.written += 1;
        } else {
            self.outcome.failed.push(group.clone());
        }
    }

    /// Writes a group's value if that leaves it and all below it a CPU in common with the groups
    /// above; if not, these get what they are to have in the end first, but nothing that others have
    /// still to leave.
    fn put_in_room(&mut self, aims: &[Aim], group: &CgroupPath, value: CpuSet) {
        let above = group.ancestors();
        let mut above =
            above.iter().filter_map(|above| aims.iter().find(|aim| aim.group == *above));
        while !self.has_room(group, value) {
            let Some(aim) = above.next() else { return };
            let now = self.tree.cpus(&aim.group).unwrap_or_default();
            let wider = now | (aim.value - self.entering(&aim.group));
            if !now.is_empty() && wider != now {
                self.put(&aim.group, wider);
            }
        }
        self.put(group, value);
    }

    fn has_room(&mut self, group: &CgroupPath, value: CpuSet) -> bool {
        let cuts = |tree: &Tree| -> Vec<bool> {
            let all = std::iter::once(group).chain(tree.below(group));
            all.map(|group| tree.is_cut_empty(group)).collect()
        };
        let before = cuts(self.tree);
        let now = self.tree.cpus(group).unwrap_or_default();
        self.tree.put(group, value);
        let after = cuts(self.tree);
        self.tree.put(group, now);
        before.into_iter().zip(after).all(|(before, after)| before || !after)
    }

    /// Exclusive CPUs of a group's containers that these do not run on yet.
    fn entering(&self, group: &CgroupPath) -> CpuSet {
        let missing = |(leaf, claim): (&CgroupPath, CpuSet)| {
            if self.tree.contains(leaf) { claim - self.tree.effective(leaf) } else { claim }
        };
        self.wanted.exclusive_in(group).map(missing).collect()
    }

    /// The CPUs that containers in a group are to enter and the group must not have yet, because
    /// others run on them. Where a group below it keeps the containers off, those count that would
    /// come onto them by the group's own change.
    fn occupied(&mut self, frontier: &[CgroupPath], aim: &Aim) -> CpuSet {
        let missing = self.entering(&aim.group);
        if missing.is_empty() {
            return missing;
        }
        let wanted = self.wanted;
        let own =
            |leaf: &CgroupPath| wanted.exclusive.contains_key(leaf) && leaf.is_below(&aim.group);
        let others: Vec<_> = frontier.iter().filter(|other| !own(other)).collect();
        let runs_on =
            |tree: &Tree| others.iter().map(|other| tree.effective(other)).collect::<Vec<_>>();
        let before = runs_on(self.tree);
        let now = self.tree.cpus(&aim.group).unwrap_or_default();
        self.tree.put(&aim.group, aim.value);
        let after = runs_on(self.tree);
        self.tree.put(&aim.group, now);
        let last = wanted.exclusive_in(&aim.group).all(|(leaf, _)| {
            let between = leaf.ancestors().into_iter().filter(|above| above.is_below(&aim.group));
            between.into_iter().all(|above| wanted.distrusted.contains(&above))
        });
        let in_the_way = before.into_iter().zip(after);
        let in_the_way =
            in_the_way.map(|(before, after)| if last { after } else { after - before });
        missing & in_the_way.collect::<CpuSet>()
    }
}

impl Aim {
    /// Whether the group's processes could run on other CPUs than with this value, before the group
    /// above it is what it has to be or after that.
    fn differs(&self, tree: &Tree, value: CpuSet) -> bool {
        let set = tree.cpus(&self.group).unwrap_or_default();
        let above = tree.above(&self.group) | self.above;
        let same =
            if set.is_empty() { above.is_subset(&value) } else { set & above == value & above };
        !same && !value.is_disjoint(&above)
    }
}

impl<'a> Survey<'a> {
    fn of(tree: &'a Tree, wanted: &'a Wanted) -> Survey<'a> {
        let mut survey = Survey {
            tree,
            wanted,
            lingering: CpuSet::EMPTY,
            entered: CpuSet::EMPTY,
            aims: Vec::new(),
            frontier: Vec::new(),
            withheld: CpuSet::EMPTY,
        };
        for (leaf, claim) in wanted.exclusive.iter().filter(|(leaf, _)| tree.contains(leaf)) {
            let cpus = tree.effective(leaf);
            survey.lingering |= cpus - *claim;
            survey.entered |= cpus & *claim;
        }
        for (top, level) in wanted.tops.iter().filter(|(top, _)| tree.contains(top)) {
            survey.visit(top, *level, tree.above(top), None);
        }
        survey
    }

    /// `above` are the CPUs that the group above will have in the end, `pod` the exclusive CPUs in
    /// it if its value binds what is in it.
    fn visit(&mut self, group: &CgroupPath, level: Level, above: CpuSet, pod: Option<CpuSet>) {
        if level == Level::Leaf {
            self.visit_leaf(group, above, pod);
        } else if self.wanted.is_loose(group) {
            self.frontier.push(group.clone());
            let value = self.pool_of(group, above);
            self.bind(group, value, above);
            self.loosen_below(group, value & above);
        } else {
            self.visit_tight(group, level, above);
        }
    }

    fn visit_tight(&mut self, group: &CgroupPath, level: Level, above: CpuSet) {
        let Survey { tree, wanted, .. } = *self;
        let (cpus, own) = if wanted.distrusted.contains(group) {
            (cut(tree.cpus(group).unwrap_or_default(), above), None)
        } else {
            let claims = wanted.claims_in(group);
            // Where its containers are stays theirs until they have left, unless another is there.
            let there = wanted.exclusive_in(group).filter(|(leaf, _)| tree.contains(leaf));
            let there = there.map(|(leaf, _)| tree.effective(leaf)).collect::<CpuSet>();
            let value = self.pool_of(group, above) | claims | (there - (self.entered - claims));
            self.aims.push(Aim { group: group.clone(), kind: Kind::Tighten, value, above });
            (cut(value, above), Some(claims))
        };
        for child in tree.children(group) {
            self.visit(child, level.below(), cpus, own);
        }
    }

    fn visit_leaf(&mut self, group: &CgroupPath, above: CpuSet, pod: Option<CpuSet>) {
        let Survey { tree, wanted, .. } = *self;
        let set = tree.cpus(group).filter(|_| !wanted.apart.contains(group));
        let Some(set) = set else { return };
        self.frontier.push(group.clone());
        if let Some(claim) = wanted.exclusive.get(group) {
            // Its CPUs are the runtime's to set, unless they are another's.
            let others = wanted.claims() - *claim;
            if !cut(set, above).is_disjoint(&others) {
                let group = group.clone();
                self.aims.push(Aim { group, kind: Kind::Move, value: *claim, above });
            }
        } else if let Some(claims) = pod {
            // The pod's value keeps it in the pool; itself it has to keep off its pod's exclusive
            // CPUs. That does not depend on the pool, so it is seldom written.
            self.bind(group, wanted.widest - claims, above);
        } else {
            let value = self.pool_of(group, above);
            self.bind(group, value, above);
        }
    }

    /// What a group gets of the pool: CPUs that others have still to leave come later.
    fn pool_of(&mut self, group: &CgroupPath, above: CpuSet) -> CpuSet {
        let pool = self.wanted.pool_within(group, above);
        let withheld = (pool - self.tree.effective(group)) & self.lingering;
        let left = pool - withheld;
        if left.is_empty() {
            return pool;
        }
        self.withheld |= withheld;
        left
    }

    fn bind(&mut self, group: &CgroupPath, value: CpuSet, above: CpuSet) {
        let set = self.tree.cpus(group).unwrap_or_default();
        let binds = !set.is_empty() || above.is_subset(&value);
        let can = !value.is_disjoint(&above);
        if can && !(binds && cut(set, above) == cut(value, above)) {
            self.aims.push(Aim { group: group.clone(), kind: Kind::Bind, value, above });
        }
    }

    fn loosen_below(&mut self, group: &CgroupPath, cpus: CpuSet) {
        let Survey { tree, wanted, .. } = *self;
        for below in tree.below(group).filter(|below| !wanted.apart.contains(*below)) {
            let set = tree.cpus(below).unwrap_or_default();
            // Others may keep it on fewer CPUs, as long as any of them are left.
            let bound = wanted.bounds.contains_key(below) && !set.is_disjoint(&cpus);
            if !set.is_empty() && !cpus.is_subset(&set) && !bound {
                let (group, value) = (below.clone(), wanted.widest);
                self.aims.push(Aim { group, kind: Kind::Loosen, value, above: cpus });
            }
        }
    }
}

#[cfg(test)]
mod tests;
