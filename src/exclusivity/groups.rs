//! [`Groups`]: keeps a node's cgroups as they have to be: reads them, plans, writes.
//!
//! Every look starts from what the files say. What lasts between two looks is what other programs
//! allow ([`Memory`]), and which groups cannot be relied on at present. Nothing is given up for
//! good: what failed is tried again.

use super::affinity;
use super::cgroup_tree::Tree;
use super::files::{CPUS, Scope, is_early, read, undo, wanted_now, write};
use super::hierarchy::{FileError, Hierarchy};
use super::memory::{Memory, Record};
use super::plan::{Outcome, carry_out};
use super::quota;
use super::wanted::{Layout, Level, Wanted};
use crate::cpuset::CpuSet;
use crate::ledger::{CgroupPath, PodUid, Target};
use crate::wording;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often another program may write into a group before the groups below it are bound instead.
const FIGHTS: usize = 5;
/// How long a fight is remembered, and a group not relied on after one.
const PEACE: Duration = Duration::from_secs(600);
/// Plans in one look: each finds out which groups cannot be written, and the next does without.
const ROUNDS: usize = 4;

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub written: u64,
    pub errors: u64,
    /// CPUs that containers have still to leave before others get them.
    pub withheld: CpuSet,
    /// Whether groups were left alone for a moment, as the kernel is still removing a partition
    /// beside them.
    pub deferred: bool,
    /// Pods that the runtime has to keep in the pool, and why.
    pub unbound: BTreeMap<PodUid, String>,
    /// Groups that are not relied on, and why: the groups below are bound instead.
    pub distrusted: Vec<(String, String)>,
    /// What other programs allow groups.
    pub bounds: Vec<(String, CpuSet)>,
}

/// What [`Groups::release`] has undone.
#[derive(Debug, Default)]
pub struct Released {
    /// Groups that have the CPUs again which others had set, or all.
    pub groups: u64,
    /// Pods that have their CFS quota again.
    pub quotas: u64,
    /// What the kernel refused. Everything else was undone all the same.
    pub errors: Vec<FileError>,
}

#[derive(Debug, Default)]
pub struct Groups {
    on: Option<Hierarchy>,
    memory: Memory,
    distrusted: BTreeMap<CgroupPath, Distrust>,
    fights: BTreeMap<CgroupPath, Vec<Instant>>,
    /// Groups of classes that were seen: there may be pods in them whose containers are not known.
    classes: BTreeSet<CgroupPath>,
    /// A pod that ran below a group when that was written last.
    witnesses: BTreeMap<CgroupPath, PodUid>,
    /// Whether this kernel lets groups with processes be emptied, as was seen once.
    empties_populated: bool,
    /// Whether partitions are made beside the groups.
    pub partitions: bool,
    /// Pods whose group was missing at the last look at all groups.
    missing: BTreeSet<PodUid>,
    /// This program's own container, which it cannot write, and where its threads were put.
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

    /// Makes all groups what they have to be.
    pub fn follow(&mut self, layout: &Layout, scope: Scope) -> Report {
        let mut report = Report { unbound: layout.nowhere.clone(), ..Report::default() };
        let Some(on) = self.on.clone() else { return report };
        let now = Instant::now();
        self.distrusted.retain(|_, distrust| now < distrust.until);
        let tops = layout.wanted.tops.iter();
        let classes = tops.filter(|(_, level)| **level == Level::Class);
        self.classes.extend(classes.map(|(class, _)| class.clone()));
        if scope == Scope::All {
            self.memory.retain(|group| on.has(group));
            self.witnesses.retain(|group, _| on.has(group));
            self.find_missing(&on, layout, &mut report);
        }
        for _ in 0..ROUNDS {
            let mut wanted = wanted_now(&on, layout);
            let classes = self.classes.iter().filter(|class| on.has(class));
            wanted.tops.extend(classes.map(|class| (class.clone(), Level::Class)));
            let mut tree = read(&on, &wanted, scope);
            self.observe(&tree, layout, now);
            self.restrict(&mut wanted, layout);
            if !self.remember(&tree, &wanted) {
                break;
            }
            let before = report.errors;
            let Outcome { written, withheld, .. } = carry_out(&mut tree, &wanted, |group, cpus| {
                if self.partitions && is_early(&on, group, cpus) {
                    report.deferred = true;
                    return false;
                }
                match write(&on, group, cpus) {
                    Err(error) if !error.is_gone() => {
                        report.errors += 1;
                        self.failed(&on, layout, group, &error, &mut report.unbound);
                        false
                    }
                    _ => true,
                }
            });
            report.written += written as u64;
            report.withheld = withheld;
            self.settle(layout, &tree);
            if report.errors == before {
                break;
            }
        }
        self.memory.save();
        self.confine_self(layout.wanted.pool);
        let groups = self.distrusted.iter();
        report.distrusted = groups.map(|(group, d)| (group.to_string(), d.why.clone())).collect();
        let bounds = self.memory.groups().filter(|(_, record)| !record.bound.is_empty());
        report.bounds = bounds.map(|(group, record)| (group.to_string(), record.bound)).collect();
        report
    }

    /// Pods of which no group is where the runtime says it is: the view of the hierarchy is wrong.
    /// A pod may have ended without a report yet, so it counts at the second look.
    fn find_missing(&mut self, on: &Hierarchy, layout: &Layout, report: &mut Report) {
        let missing = layout.pods.iter().filter(|pod| pod.running && !on.has(&pod.group));
        let before = std::mem::take(&mut self.missing);
        for pod in missing {
            if before.contains(&pod.uid) {
                let why = format!("{} is not there", on.directory(&pod.group).display());
                report.unbound.insert(pod.uid.clone(), why);
            }
            self.missing.insert(pod.uid.clone());
        }
    }

    /// Learns from values that were not written here.
    fn observe(&mut self, tree: &Tree, layout: &Layout, now: Instant) {
        for group in tree.groups() {
            let Some(set) = tree.cpus(group).filter(|_| is_binder(&layout.wanted, group)) else {
                continue;
            };
            let record = self.memory.get(group).cloned().unwrap_or_default();
            if record.ours.contains(&set) || (record.ours.is_empty() && record.before == set) {
                continue;
            }
            if set.is_empty() {
                self.note_emptied(layout, group);
            } else if record.ours.is_empty() && set == expected(&layout.wanted, group) {
                self.memory.change(group, |record| record.ours = vec![set]);
            } else {
                let others = layout.wanted.claims() - layout.wanted.claims_in(group);
                log::warn!(
                    "{group}: another program has set {}: its containers keep to these, as far as they are shared",
                    wording::cpus(set)
                );
                self.memory.change(group, |record| {
                    *record = Record {
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
            let why = "another program sets other CPUs again and again".to_owned();
            self.distrust(group, why, PEACE);
        }
    }

    /// A group has lost its CPUs. systemd clears those of slices without processes, which says
    /// nothing; if a pod ran in it all the time, the kernel lets it clear the others as well.
    fn note_emptied(&mut self, layout: &Layout, group: &CgroupPath) {
        let Some(witness) = self.witnesses.get(group) else { return };
        let ran = layout.pods.iter().any(|pod| pod.uid == *witness && pod.running);
        if ran && !self.empties_populated {
            log::info!(
                "{group}: its CPUs were cleared while a pod ran in it: on this kernel containers are bound one by one"
            );
            self.empties_populated = true;
        }
    }

    fn distrust(&mut self, group: &CgroupPath, why: String, period: Duration) {
        let until = Instant::now() + period;
        let known = self.distrusted.insert(group.clone(), Distrust { why: why.clone(), until });
        if known.is_none_or(|known| known.why != why) {
            log::warn!("{group}: the groups below it are bound instead: {why}");
        }
    }

    /// Adds what is known of single groups.
    fn restrict(&self, wanted: &mut Wanted, layout: &Layout) {
        let bounds = self.memory.groups().filter(|(_, record)| !record.bound.is_empty());
        wanted.bounds = bounds.map(|(group, record)| (group.clone(), record.bound)).collect();
        wanted.distrusted = self.distrusted.keys().cloned().collect();
        if self.empties_populated {
            let groups = wanted.tops.iter().filter(|(_, level)| **level != Level::Leaf);
            wanted.distrusted.extend(groups.map(|(group, _)| group.clone()));
            wanted.distrusted.extend(layout.pods.iter().map(|pod| pod.group.clone()));
        }
        wanted.apart.extend(self.own.iter().map(|(group, _)| group.clone()));
    }

    /// Remembers, before the first write, all that a plan is going to write. Says whether there is
    /// anything.
    fn remember(&mut self, tree: &Tree, wanted: &Wanted) -> bool {
        let mut writes: Vec<(CgroupPath, CpuSet)> = Vec::new();
        carry_out(&mut tree.clone(), wanted, |group, cpus| {
            writes.push((group.clone(), cpus));
            true
        });
        for (group, cpus) in &writes {
            self.memory.change(group, |record| {
                if !record.ours.contains(cpus) {
                    record.ours.push(*cpus);
                }
            });
        }
        self.memory.save();
        !writes.is_empty()
    }

    /// After the writes: one value of each group is left.
    fn settle(&mut self, layout: &Layout, tree: &Tree) {
        for group in tree.groups() {
            let Some(set) = tree.cpus(group) else { continue };
            if self.memory.get(group).is_some_and(|record| record.ours.contains(&set)) {
                self.memory.change(group, |record| record.ours = vec![set]);
                let running = layout
                    .pods
                    .iter()
                    .find(|pod| pod.running && (pod.group == *group || pod.group.is_below(group)));
                match running.filter(|_| is_binder(&layout.wanted, group)) {
                    Some(pod) => drop(self.witnesses.insert(group.clone(), pod.uid.clone())),
                    None => drop(self.witnesses.remove(group)),
                }
            }
        }
    }

    /// A group cannot be written: those below it are bound instead, and a container is left to the
    /// runtime.
    fn failed(
        &mut self,
        on: &Hierarchy,
        layout: &Layout,
        group: &CgroupPath,
        error: &FileError,
        unbound: &mut BTreeMap<PodUid, String>,
    ) {
        if is_binder(&layout.wanted, group) {
            // Until the next look at all groups.
            return self.distrust(group, error.to_string(), Duration::from_secs(10));
        }
        if error.is_forbidden() && on.is_own(group) {
            self.own = Some((group.clone(), CpuSet::EMPTY));
            return;
        }
        for pod in layout.pods.iter().filter(|pod| group.is_below(&pod.group)) {
            unbound.insert(pod.uid.clone(), error.to_string());
        }
    }

    /// Where this program's own container cannot be written, its threads keep to the pool.
    fn confine_self(&mut self, pool: CpuSet) {
        let Some((group, cpus)) = self.own.as_mut().filter(|(_, cpus)| *cpus != pool) else {
            return;
        };
        match affinity::confine_self(pool) {
            Ok(()) => *cpus = pool,
            Err(error) => log::warn!("{group}: this program cannot leave exclusive CPUs: {error}"),
        }
    }

    /// Undoes all writes: a group's CPUs, and the lifted quotas of pods. What failed stays
    /// remembered.
    pub fn release(&mut self, widest: CpuSet) -> Released {
        let mut released = Released::default();
        let Some(on) = self.on.clone() else { return released };
        let groups: Vec<_> = self.memory.groups().map(|(g, r)| (g.clone(), r.clone())).collect();
        for (group, record) in groups.into_iter().rev() {
            let mut left = Record::default();
            match quota::restore(&on, &mut self.memory, &group) {
                Ok(done) => released.quotas += u64::from(done),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    left.quota = record.quota.clone();
                    released.errors.push(error);
                }
            }
            let cpus = match on.cpus(&group, CPUS) {
                Ok(set) if record.ours.contains(&set) => undo(&on, &group, record.before, widest),
                other => other.map(drop),
            };
            match cpus {
                Ok(()) => released.groups += u64::from(!record.ours.is_empty()),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    left = Record { quota: left.quota, ..record };
                    released.errors.push(error);
                }
            }
            if left == Record::default() {
                self.memory.forget(&group);
            } else {
                self.memory.change(&group, |known| *known = left);
            }
        }
        self.memory.save();
        released
    }

    /// Lifts the CFS quota of a container's pod or puts it back, as decided.
    ///
    /// # Errors
    /// If the kernel refuses, which is no reason to refuse the container.
    pub fn settle_pod_quota(&mut self, placed: &Target) -> Result<(), FileError> {
        let pod = placed.cgroup.as_ref().and_then(CgroupPath::parent);
        let (Some(on), Some(pod)) = (self.on.clone(), pod) else { return Ok(()) };
        let (done, result) = if placed.lifts_pod_quota {
            ("lifted", quota::lift(&on, &mut self.memory, &pod))
        } else {
            ("put back", quota::restore(&on, &mut self.memory, &pod))
        };
        match result {
            Ok(true) => log::info!("{}: the CFS quota of its pod is {done}", placed.subject),
            Ok(false) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The files that bind, to be watched for writes of other programs.
    pub fn binding_files(&self) -> Vec<std::path::PathBuf> {
        let Some(on) = &self.on else { return Vec::new() };
        self.witnesses.keys().map(|group| on.directory(group).join(CPUS)).collect()
    }
}

/// Whether a group is a class's or a pod's, so that its value binds what is below.
fn is_binder(wanted: &Wanted, group: &CgroupPath) -> bool {
    let is = |level| wanted.tops.get(group) == Some(&level);
    let in_class = || group.parent().is_some_and(|p| wanted.tops.get(&p) == Some(&Level::Class));
    is(Level::Class) || is(Level::Pod) || in_class()
}

/// What a group would be set to without a bound, if all is at rest.
fn expected(wanted: &Wanted, group: &CgroupPath) -> CpuSet {
    wanted.pool | wanted.claims_in(group)
}

#[cfg(test)]
mod tests;
