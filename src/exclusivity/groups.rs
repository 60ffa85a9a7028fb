//! [`Groups`]: keeps a node's cgroups at their [`Goal`]: reads them, plans, writes.
//!
//! Every pass starts from what the files say. What lasts between two passes is what other programs
//! allow ([`Memory`]), and which cgroups cannot be relied on at present. Nothing is given up
//! permanently: what failed is tried again.

use super::affinity;
use super::cgroup_tree::CgroupTree;
use super::files::{Scope, goal_now, is_early, read, undo, write};
use super::goal::{CgroupLevel, Goal, Layout};
use super::hierarchy::{CPUS, FileError, Hierarchy, unless_gone};
use super::memory::{CgroupRecord, Memory};
use super::plan::{PlanOutcome, carry_out};
use super::quota;
use crate::cpuset::CpuSet;
use crate::ledger::{CgroupPath, PodUid, Target};
use crate::wording;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often another program may write into a cgroup before the cgroups below it are bound instead.
const FIGHTS: usize = 5;
/// How long a fight is remembered, and a cgroup not relied on after one.
const PEACE: Duration = Duration::from_secs(600);
/// How long a cgroup that could not be written is not relied on: until the next check of all.
const RETRY: Duration = Duration::from_secs(10);
/// Plans in one pass: each finds out which cgroups cannot be written, and the next does without.
const ROUNDS: usize = 4;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub written: u64,
    pub errors: u64,
    /// CPUs that containers have still to leave before others get them.
    pub withheld: CpuSet,
    /// Whether cgroups were left alone for a moment, as the kernel is still removing a partition
    /// beside them.
    pub deferred: bool,
    /// Pods that the runtime has to keep in the pool, and why.
    pub unbound: BTreeMap<PodUid, String>,
    /// Cgroups that are not relied on, and why: those below are bound instead.
    pub distrusted: Vec<(String, String)>,
    pub bounds: Vec<(String, CpuSet)>,
}

#[derive(Debug, Default)]
pub struct Undone {
    /// Cgroups with the CPUs that another program had set before, or all.
    pub groups: u64,
    pub partitions: u64,
    /// CFS quotas of pods and containers that are in force again.
    pub quotas: u64,
    /// Containers that have all CPUs again.
    pub containers: u64,
    /// What the kernel refused. Everything else was undone all the same.
    pub errors: Vec<FileError>,
}

#[derive(Debug, Default)]
pub struct Groups {
    on: Option<Hierarchy>,
    memory: Memory,
    distrusted: BTreeMap<CgroupPath, Distrust>,
    fights: BTreeMap<CgroupPath, Vec<Instant>>,
    /// Classes of this process's life: there may be pods in them whose containers are not known.
    classes: BTreeSet<CgroupPath>,
    /// A pod that ran below a cgroup when that was written last.
    witnesses: BTreeMap<CgroupPath, PodUid>,
    /// Whether this kernel has let a cgroup with processes be emptied.
    empties_populated: bool,
    pub partitions: bool,
    /// Pods whose cgroup was missing at the last check of all.
    missing: BTreeSet<PodUid>,
    /// This program's own container, if it cannot write that, and its threads' affinity.
    own: Option<(CgroupPath, CpuSet)>,
}

#[derive(Debug)]
struct Distrust {
    why: String,
    until: Instant,
}

impl Groups {
    pub fn new(on: Hierarchy, memory: Memory) -> Groups {
        Groups { on: Some(on), memory, ..Groups::default() }
    }

    pub fn follow(&mut self, layout: &Layout, scope: Scope) -> Report {
        let mut report = Report { unbound: layout.nowhere.clone(), ..Report::default() };
        let Some(on) = self.on.clone() else { return report };
        let now = Instant::now();
        self.distrusted.retain(|_, distrust| now < distrust.until);
        let tops = layout.goal.tops.iter();
        let classes = tops.filter(|(_, level)| **level == CgroupLevel::Class);
        self.classes.extend(classes.map(|(class, _)| class.clone()));
        if scope == Scope::All {
            self.memory.retain(|group| on.has(group));
            self.witnesses.retain(|group, _| on.has(group));
            self.find_missing(&on, layout, &mut report);
        }
        for _ in 0..ROUNDS {
            let mut goal = goal_now(&on, layout);
            let classes = self.classes.iter().filter(|class| on.has(class));
            goal.tops.extend(classes.map(|class| (class.clone(), CgroupLevel::Class)));
            let mut tree = read(&on, &goal, scope);
            self.observe(&tree, layout, now);
            self.restrict(&mut goal, layout);
            if !self.remember(&tree, &goal) {
                break;
            }
            let before = report.errors;
            let outcome = carry_out(&mut tree, &goal, |group, cpus| {
                if self.partitions && is_early(&on, layout, group, cpus) {
                    report.deferred = true;
                    return false;
                }
                match unless_gone(write(&on, group, cpus)) {
                    Ok(_) => true,
                    Err(error) => {
                        self.failed(&on, layout, group, &error, &mut report);
                        false
                    }
                }
            });
            let PlanOutcome { written, withheld, .. } = outcome;
            report.written += written as u64;
            report.withheld = withheld;
            self.settle(layout, &tree);
            if report.errors == before {
                break;
            }
        }
        self.memory.save();
        self.confine_self(layout.goal.pool);
        let groups = self.distrusted.iter();
        report.distrusted = groups.map(|(group, d)| (group.to_string(), d.why.clone())).collect();
        report.bounds = self.bounds().map(|(group, bound)| (group.to_string(), bound)).collect();
        report
    }

    /// Pods of which no cgroup is where the runtime says it is: the view of the hierarchy is wrong.
    /// A pod may have ended without a report yet, so it counts at the second check.
    fn find_missing(&mut self, on: &Hierarchy, layout: &Layout, report: &mut Report) {
        let missing = layout.pods.iter().filter(|pod| pod.running && !on.has(&pod.group));
        let before = std::mem::take(&mut self.missing);
        for pod in missing {
            if before.contains(&pod.uid) {
                let why = format!("cgroup {} does not exist", on.directory(&pod.group).display());
                report.unbound.insert(pod.uid.clone(), why);
            }
            self.missing.insert(pod.uid.clone());
        }
    }

    /// Learns from values that were not written here.
    fn observe(&mut self, tree: &CgroupTree, layout: &Layout, now: Instant) {
        for group in tree.groups().filter(|group| is_binder(&layout.goal, group)) {
            let Some(set) = tree.cpus(group) else { continue };
            let record = self.memory.get(group).cloned().unwrap_or_default();
            if record.ours.contains(&set) || (record.ours.is_empty() && record.before == set) {
                continue;
            }
            if set.is_empty() {
                self.note_emptied(layout, group);
            } else if record.ours.is_empty() && set == expected(&layout.goal, group) {
                self.memory.change(group, |record| record.ours = vec![set]);
            } else {
                let others = layout.goal.claims() - layout.goal.claims_in(group);
                log::warn!(
                    "{group}: another program set {}: its containers are limited to the shared ones of these",
                    wording::cpus(set)
                );
                self.memory.change(group, |record| {
                    *record = CgroupRecord {
                        before: set,
                        bound: set - others,
                        ours: Vec::new(),
                        quota: record.quota.take(),
                    }
                });
                if !record.ours.is_empty() {
                    self.note_fight(group, now);
                }
            }
        }
    }

    fn note_fight(&mut self, group: &CgroupPath, now: Instant) {
        let fights = self.fights.entry(group.clone()).or_default();
        fights.retain(|then| now - *then < PEACE);
        fights.push(now);
        if fights.len() > FIGHTS {
            self.distrust(group, "another program keeps changing its CPUs".to_owned(), PEACE);
        }
    }

    /// A cgroup has lost its CPUs. systemd clears those of slices without processes, which says
    /// nothing; if a pod ran in it all the time, the kernel lets it clear the others as well.
    fn note_emptied(&mut self, layout: &Layout, group: &CgroupPath) {
        let Some(witness) = self.witnesses.get(group) else { return };
        let ran = layout.pods.iter().any(|pod| pod.uid == *witness && pod.running);
        if ran && !self.empties_populated {
            log::info!(
                "{group}: CPUs cleared while a pod ran in it, as this kernel allows: binding each container"
            );
            self.empties_populated = true;
        }
    }

    fn distrust(&mut self, group: &CgroupPath, why: String, period: Duration) {
        let until = Instant::now() + period;
        let known = self.distrusted.insert(group.clone(), Distrust { why: why.clone(), until });
        if known.is_none_or(|known| known.why != why) {
            log::warn!("{group}: binding the cgroups below it instead: {why}");
        }
    }

    fn bounds(&self) -> impl Iterator<Item = (&CgroupPath, CpuSet)> {
        let bounds = self.memory.groups().map(|(group, record)| (group, record.bound));
        bounds.filter(|(_, bound)| !bound.is_empty())
    }

    /// Adds what is known of single cgroups.
    fn restrict(&self, goal: &mut Goal, layout: &Layout) {
        goal.bounds = self.bounds().map(|(group, bound)| (group.clone(), bound)).collect();
        goal.distrusted = self.distrusted.keys().cloned().collect();
        if self.empties_populated {
            let groups = goal.tops.iter().filter(|(_, level)| **level != CgroupLevel::Leaf);
            goal.distrusted.extend(groups.map(|(group, _)| group.clone()));
            goal.distrusted.extend(layout.pods.iter().map(|pod| pod.group.clone()));
        }
        goal.apart.extend(self.own.iter().map(|(group, _)| group.clone()));
    }

    /// Remembers, before the first write, all that a plan is going to write. Says whether there is
    /// anything.
    fn remember(&mut self, tree: &CgroupTree, goal: &Goal) -> bool {
        let outcome = carry_out(&mut tree.clone(), goal, |group, cpus| {
            self.memory.change(group, |record| {
                if !record.ours.contains(&cpus) {
                    record.ours.push(cpus);
                }
            });
            true
        });
        self.memory.save();
        outcome.written > 0
    }

    /// After the writes: one value of each cgroup is left.
    fn settle(&mut self, layout: &Layout, tree: &CgroupTree) {
        for group in tree.groups() {
            let Some(set) = tree.cpus(group) else { continue };
            if !self.memory.get(group).is_some_and(|record| record.ours.contains(&set)) {
                continue;
            }
            self.memory.change(group, |record| record.ours = vec![set]);
            let mut running = layout.pods.iter().filter(|pod| pod.running);
            let witness = running.find(|pod| pod.group == *group || pod.group.is_below(group));
            match witness {
                Some(pod) if is_binder(&layout.goal, group) => {
                    self.witnesses.insert(group.clone(), pod.uid.clone());
                }
                _ => drop(self.witnesses.remove(group)),
            }
        }
    }

    /// A cgroup cannot be written: those below it are bound instead, and a container is left to the
    /// runtime.
    fn failed(
        &mut self,
        on: &Hierarchy,
        layout: &Layout,
        group: &CgroupPath,
        error: &FileError,
        report: &mut Report,
    ) {
        report.errors += 1;
        if is_binder(&layout.goal, group) {
            self.distrust(group, error.to_string(), RETRY);
        } else if error.is_forbidden() && on.is_own(group) {
            self.own = Some((group.clone(), CpuSet::EMPTY));
        } else {
            for pod in layout.pods.iter().filter(|pod| group.is_below(&pod.group)) {
                report.unbound.insert(pod.uid.clone(), error.to_string());
            }
        }
    }

    /// Where this program's own container cannot be written, its threads keep to the pool.
    fn confine_self(&mut self, pool: CpuSet) {
        let Some((group, cpus)) = &mut self.own else { return };
        if *cpus == pool {
            return;
        }
        match affinity::confine_self(pool) {
            Ok(()) => *cpus = pool,
            Err(error) => log::warn!("{group}: the plugin cannot leave exclusive CPUs: {error}"),
        }
    }

    /// Undoes all writes: a cgroup's CPUs, and the lifted quotas of pods. What failed stays
    /// remembered.
    pub fn release(&mut self, widest: CpuSet) -> Undone {
        let mut undone = Undone::default();
        let Some(on) = self.on.clone() else { return undone };
        let groups: Vec<_> = self.memory.groups().map(|(g, r)| (g.clone(), r.clone())).collect();
        for (group, record) in groups.into_iter().rev() {
            let mut left = CgroupRecord::default();
            match unless_gone(quota::restore(&on, &mut self.memory, &group)) {
                Ok(restored) => undone.quotas += u64::from(restored == Some(true)),
                Err(error) => {
                    left.quota = record.quota.clone();
                    undone.errors.push(error);
                }
            }
            let cpus = match on.cpus(&group, CPUS) {
                Ok(set) if record.ours.contains(&set) => undo(&on, &group, record.before, widest),
                other => other.map(drop),
            };
            match unless_gone(cpus) {
                Ok(exists) => {
                    undone.groups += u64::from(exists.is_some() && !record.ours.is_empty());
                }
                Err(error) => {
                    left = CgroupRecord { quota: left.quota, ..record };
                    undone.errors.push(error);
                }
            }
            if left == CgroupRecord::default() {
                self.memory.forget(&group);
            } else {
                self.memory.change(&group, |record| *record = left);
            }
        }
        self.memory.save();
        undone
    }

    /// Lifts the CFS quota of a container's pod or puts it back, as decided.
    ///
    /// # Errors
    /// If the kernel refuses, which is no reason to refuse the container.
    pub fn settle_pod_quota(&mut self, target: &Target) -> Result<(), FileError> {
        let Some(on) = &self.on else { return Ok(()) };
        let Some(pod) = target.cgroup.as_ref().and_then(CgroupPath::parent) else { return Ok(()) };
        let (done, result) = if target.lifts_pod_quota {
            ("lifted", quota::lift(on, &mut self.memory, &pod))
        } else {
            ("restored", quota::restore(on, &mut self.memory, &pod))
        };
        if unless_gone(result)? == Some(true) {
            log::info!("{}: CFS quota of its pod {done}", target.subject);
        }
        Ok(())
    }

    /// The files that bind, to be watched for writes of other programs.
    pub fn binding_files(&self) -> Vec<std::path::PathBuf> {
        let Some(on) = &self.on else { return Vec::new() };
        self.witnesses.keys().map(|group| on.directory(group).join(CPUS)).collect()
    }
}

/// Whether a cgroup is a class's or a pod's, so that its value binds what is below.
fn is_binder(goal: &Goal, group: &CgroupPath) -> bool {
    matches!(goal.tops.get(group), Some(CgroupLevel::Class | CgroupLevel::Pod))
        || group.parent().is_some_and(|parent| goal.tops.get(&parent) == Some(&CgroupLevel::Class))
}

/// What a cgroup would be set to without a bound, if all is at rest.
fn expected(goal: &Goal, group: &CgroupPath) -> CpuSet {
    goal.pool | goal.claims_in(group)
}

#[cfg(test)]
mod tests;
