//! [`Groups`]: keeps a node's cgroups at their [`Goal`]: reads them, plans, writes.
//!
//! Every pass starts from what the files say. What lasts between two passes is what was written
//! ([`Memory`]), and what others do to these cgroups ([`Interference`]). Nothing is given up
//! permanently: what failed is tried again.

use super::affinity;
use super::cgroup_tree::{CgroupTree, PartitionFiles, Write};
use super::files::{Scope, end_partition, read, undo, write};
use super::goal::{CgroupLevel, Goal};
use super::hierarchy::{CPUS, FileError, Hierarchy, PARTITION, unless_gone};
use super::interference::{Bound, Distrust, Interference};
use super::layout::Layout;
use super::memory::{CgroupRecord, Memory};
use super::names::level_of;
use super::plan::carry_out;
use super::quota::{self, QuotaChange};
use cpuset::{CgroupPath, CpuSet, PartitionState, PartitionType};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a value that the kernel has refused for a container is not written again: each call of
/// the runtime makes a pass.
pub const AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// Plans in one pass: each finds out which cgroups cannot be written, and the next does without.
const ROUNDS: usize = 4;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub written: u64,
    pub errors: u64,
    /// CPUs that containers have still to leave before others get them.
    pub withheld: CpuSet,
    /// Whether cgroups were left alone for a moment, as the kernel has just refused the same.
    pub deferred: bool,
    /// Containers of which the kernel makes no partitions, and why.
    pub refused: BTreeMap<CgroupPath, String>,
    /// Containers whose partitions another program, or the kernel, has ended since the last pass, and
    /// what they were then.
    pub ended: BTreeMap<CgroupPath, PartitionState>,
    /// Pods whose containers cgroups cannot keep in the pool, and why: other means have to.
    pub unbound: BTreeMap<CgroupPath, String>,
    /// Cgroups that are not relied on, and why: those below are bound as well.
    pub distrusted: BTreeMap<CgroupPath, String>,
    /// What other programs allow a cgroup.
    pub bounds: BTreeMap<CgroupPath, Bound>,
}

impl Report {
    /// A container's cgroup cannot be written, so other means have to keep its pod in the pool.
    fn unbind_pods_with(&mut self, layout: &Layout, leaf: &CgroupPath, why: &str) {
        for pod in layout.pods.iter().filter(|pod| leaf.is_below(&pod.group)) {
            self.unbound.insert(pod.group.clone(), why.to_owned());
        }
    }
}

/// What to watch, as inotify(7) can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Writes into a file.
    File,
    /// New directories in a directory.
    Directory,
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
    interference: Interference,
    /// Classes of this process's life, and pods' cgroups that no event has named yet: there may be
    /// containers in them that are not known.
    unnamed: BTreeMap<CgroupPath, CgroupLevel>,
    /// Cgroups that decide where containers run, to be watched for writes of other programs.
    binding: BTreeSet<CgroupPath>,
    /// The type of partitions, if there are any.
    kind: PartitionType,
    /// Containers that were partitions after the last pass.
    partitions: BTreeSet<CgroupPath>,
    /// Pods whose cgroup was missing at the last check of all.
    missing: BTreeSet<CgroupPath>,
    /// Containers whose cgroups the kernel has just refused to write.
    refused: BTreeMap<CgroupPath, Refusal>,
    /// Exclusive CPUs that the kernel has not let a cgroup give up: those of another program's partition
    /// may be in its `cpuset.cpus`. They harm nobody, and are given up with the next ones.
    stuck: BTreeMap<CgroupPath, CpuSet>,
    /// This program's own container, if it cannot write that, and its threads' affinity.
    own: Option<(CgroupPath, CpuSet)>,
}

#[derive(Debug)]
struct Refusal {
    write: Write,
    at: Instant,
    why: String,
}

impl Groups {
    /// `kind` is the type of partitions to make, where any are to be made.
    pub fn new(on: Hierarchy, memory: Memory, kind: PartitionType) -> Groups {
        Groups { on: Some(on), memory, kind, ..Groups::default() }
    }

    /// `now` is the moment of this pass: what is observed of other programs counts from then on.
    pub fn follow(&mut self, layout: &Layout, scope: Scope, now: Instant) -> Report {
        let mut report = Report::default();
        let Some(on) = self.on.clone() else { return report };
        self.refused.retain(|_, refusal| now < refusal.at + AFTER_REFUSAL);
        let tops = &layout.goal.tops;
        let classes = tops.iter().filter(|(_, level)| **level == CgroupLevel::Class);
        self.unnamed.extend(classes.map(|(class, level)| (class.clone(), *level)));
        self.unnamed.retain(|group, level| {
            on.has(group) && (*level == CgroupLevel::Class || !tops.contains_key(group))
        });
        if scope == Scope::All {
            self.find_classes(&on, layout);
            self.memory.retain(|group| on.has(group));
            self.stuck.retain(|group, _| on.has(group));
            self.interference.retain(|group| on.has(group));
            self.find_missing(&on, layout, &mut report);
        }
        for _ in 0..ROUNDS {
            let mut goal = layout.goal.clone();
            goal.tops.extend(self.unnamed.clone());
            goal.kind = self.kind;
            goal.partitions.retain(|leaf| !report.refused.contains_key(leaf));
            let ours = self.memory.groups().filter(|(_, record)| record.exclusive);
            goal.ours = ours.map(|(group, _)| group.clone()).collect();
            let mut tree = loop {
                self.restrict(&mut goal, now);
                let tree = read(&on, &goal, scope);
                // What is below a cgroup that is not relied on any more has to be read as well.
                if !self.observe(&on, &tree, &goal, now) {
                    break tree;
                }
            };
            self.adopt_partitions(&tree, &mut goal);
            goal.ours
                .retain(|group| self.stuck.get(group) != Some(&tree.partition(group).exclusive));
            self.find_ended(&goal, &tree, &mut report);
            let writes = self.remember(&tree, &goal);
            let mut has_learnt = false;
            let mut written = BTreeSet::new();
            if writes {
                // What the kernel has said to single cgroups.
                let mut replies = BTreeMap::new();
                let outcome = carry_out(&mut tree, &goal, |group, wanted| {
                    let refusal = self.refused.get(group).filter(|one| one.write == wanted);
                    if let Some(refusal) = refusal {
                        report.deferred = true;
                        report.unbind_pods_with(layout, group, &refusal.why);
                        return None;
                    }
                    // Where a write has failed, the rest of the plan is another one.
                    self.remember_write(group, wanted);
                    self.memory.save();
                    match unless_gone(write(&on, group, wanted)) {
                        Ok(files) => {
                            written.insert(group.clone());
                            let files = files.unwrap_or_default();
                            if let (PartitionState::Invalid(_), Ok(text)) =
                                (files.state, on.read(group, PARTITION))
                            {
                                replies.insert(group.clone(), text);
                            }
                            Some(files)
                        }
                        Err(error) => {
                            replies.insert(group.clone(), error.to_string());
                            match wanted {
                                Write::Cpus(_) => {
                                    let failed = (group, wanted, &error);
                                    has_learnt |=
                                        self.failed(layout, &goal, failed, now, &mut report);
                                }
                                Write::Exclusive(cpus) => {
                                    let has = on.partition(group).exclusive;
                                    if cpus.is_subset(&has) && error.is_invalid() {
                                        self.stuck.insert(group.clone(), has);
                                    }
                                }
                                Write::Partition(_) => {}
                            }
                            None
                        }
                    }
                });
                report.written += outcome.written as u64;
                report.withheld = outcome.withheld;
                has_learnt |= !outcome.refused.is_empty();
                for (leaf, why) in outcome.refused.into_iter().filter(|(leaf, _)| on.has(leaf)) {
                    let mut groups = leaf.ancestors().into_iter().chain([leaf.clone()]).rev();
                    let reply = groups.find_map(|group| replies.get(&group));
                    let reply = reply.map(|reply| format!(": {reply}")).unwrap_or_default();
                    report.refused.insert(leaf, format!("{why}{reply}"));
                }
            }
            self.settle(&goal, &tree);
            let renewed = |group: &CgroupPath| scope == Scope::All || written.contains(group);
            self.find_witnesses(&on, layout, &goal, &tree, renewed);
            if !has_learnt {
                break;
            }
        }
        self.memory.save();
        self.confine_self(&on, &layout.goal);
        report.distrusted = self.distrusted(now);
        report.bounds = self.interference.bounds().map(|(g, bound)| (g.clone(), bound)).collect();
        report
    }

    /// What containers that are to be partitions have, and cgroups above them for that, is this
    /// program's also after it has lost its memory.
    fn adopt_partitions(&mut self, tree: &CgroupTree, goal: &mut Goal) {
        for leaf in goal.partitions.iter().filter(|leaf| tree.is_partition(leaf)) {
            for group in leaf.ancestors().into_iter().chain([leaf.clone()]) {
                if goal.ours.insert(group.clone()) {
                    self.memory.change(&group, |record| record.exclusive = true);
                }
            }
        }
    }

    /// Partitions that are none any more, or without their CPUs.
    fn find_ended(&mut self, goal: &Goal, tree: &CgroupTree, report: &mut Report) {
        for leaf in std::mem::take(&mut self.partitions) {
            if goal.partitions.contains(&leaf) && tree.contains(&leaf) && !tree.is_partition(&leaf)
            {
                report.ended.insert(leaf.clone(), tree.partition(&leaf).state);
            }
        }
    }

    /// Classes that exist and have no pod yet: with the cgroupfs driver they are there from the
    /// kubelet's start on.
    fn find_classes(&mut self, on: &Hierarchy, layout: &Layout) {
        let kubelets = layout.goal.tops.keys().filter(|top| level_of(top).is_some());
        let above: BTreeSet<CgroupPath> = kubelets.filter_map(CgroupPath::parent).collect();
        let below = above.iter().flat_map(|above| on.children(above));
        let classes = below.filter(|group| level_of(group) == Some(CgroupLevel::Class));
        self.unnamed.extend(classes.map(|class| (class, CgroupLevel::Class)));
    }

    /// Pods that run, and whose cgroup is not where the runtime says it is. If a cgroup above it
    /// exists, the pod has ended without a report. Otherwise the view of the hierarchy is wrong,
    /// which counts at the second check.
    fn find_missing(&mut self, on: &Hierarchy, layout: &Layout, report: &mut Report) {
        let is_missing = |group: &CgroupPath| {
            !on.has(group) && !group.ancestors().iter().any(|above| on.has(above))
        };
        let missing = layout.pods.iter().filter(|pod| pod.running && is_missing(&pod.group));
        let before = std::mem::take(&mut self.missing);
        for pod in missing {
            if before.contains(&pod.group) {
                let why = format!("cgroup {} does not exist", on.directory(&pod.group).display());
                report.unbound.insert(pod.group.clone(), why);
            }
            self.missing.insert(pod.group.clone());
        }
    }

    /// Learns from values that were not written here. Returns whether there were any.
    fn observe(&mut self, on: &Hierarchy, tree: &CgroupTree, goal: &Goal, now: Instant) -> bool {
        let mut has_learnt = false;
        for group in tree.groups().filter(|group| is_binder(goal, group)) {
            let Some(set) = tree.cpus(group) else { continue };
            let CgroupRecord { before, ours, .. } =
                self.memory.get(group).cloned().unwrap_or_default();
            if ours.contains(&set) || (ours.is_empty() && before == set) {
                continue;
            }
            if set.is_empty() {
                if self.interference.cleared(on, group, now) {
                    has_learnt = true;
                    log::info!("{group}: its CPUs were cleared while a container ran in it");
                }
            } else if self.memory.get(group).is_none() && set == expected(goal, group) {
                self.memory.change(group, |record| record.ours = vec![set]);
            } else {
                self.memory.change(group, |record| (record.before, record.ours) = (set, vec![]));
                self.note_written(on, group, set, now);
                has_learnt = true;
            }
        }
        has_learnt
    }

    fn note_written(&mut self, on: &Hierarchy, group: &CgroupPath, set: CpuSet, now: Instant) {
        let cpus = wording::cpus(set);
        let online = on.free();
        if self.interference.written(group, set, online, now).is_some() {
            log::warn!(
                "{group}: another program set {cpus} again: its containers are limited to the shared ones of these, until {:?} is run",
                on.removal_of_bound(group)
            );
        } else if online.is_subset(&set) {
            log::info!("{group}: another program set {cpus}: replaced");
        } else {
            log::warn!("{group}: another program set {cpus}: replaced, unless it sets them again");
        }
    }

    fn distrusted(&self, now: Instant) -> BTreeMap<CgroupPath, String> {
        let groups = self.interference.distrusted(now);
        groups.map(|(group, distrust)| (group.clone(), distrust.why().to_owned())).collect()
    }

    /// Adds what is known of single cgroups.
    fn restrict(&self, goal: &mut Goal, now: Instant) {
        let bounds = self.interference.bounds();
        goal.bounds = bounds.map(|(group, bound)| (group.clone(), bound.cpus)).collect();
        for (group, distrust) in self.interference.distrusted(now) {
            match distrust {
                Distrust::Untouched(_) => goal.distrusted.insert(group.clone()),
                Distrust::Volatile(_) => goal.volatile.insert(group.clone()),
            };
        }
        goal.apart.extend(self.own.iter().map(|(group, _)| group.clone()));
    }

    /// Remembers, before the first write, all that a plan is going to write. Says whether there is
    /// anything to do or to report.
    fn remember(&mut self, tree: &CgroupTree, goal: &Goal) -> bool {
        let mut kernel = tree.clone();
        let outcome = carry_out(&mut tree.clone(), goal, |group, write| {
            self.remember_write(group, write);
            kernel.write(group, write).ok().map(|()| kernel.partition(group))
        });
        self.memory.save();
        outcome.written > 0 || !outcome.refused.is_empty()
    }

    fn remember_write(&mut self, group: &CgroupPath, write: Write) {
        self.memory.change(group, |record| match write {
            Write::Cpus(cpus) if !record.ours.contains(&cpus) => record.ours.push(cpus),
            Write::Cpus(_) => {}
            Write::Exclusive(_) | Write::Partition(_) => record.exclusive = true,
        });
    }

    /// After the writes: one value of each cgroup is left, and none of a container that has exactly
    /// its exclusive CPUs. The runtime sets these too, so a release leaves them, as it leaves all
    /// that the runtime has set.
    fn settle(&mut self, goal: &Goal, tree: &CgroupTree) {
        self.binding.retain(|group| !tree.contains(group));
        for group in tree.groups() {
            let Some(set) = tree.cpus(group) else { continue };
            let files = tree.partition(group);
            if files.state.is_valid() && goal.partitions.contains(group) {
                self.partitions.insert(group.clone());
            }
            let Some(record) = self.memory.get(group) else { continue };
            if record.exclusive && files == PartitionFiles::default() {
                self.memory.change(group, |record| record.exclusive = false);
            }
            let Some(record) = self.memory.get(group) else { continue };
            if goal.exclusive.get(group) == Some(&set) && !goal.mixed.contains(group) {
                if record.exclusive {
                    let own = CgroupRecord { exclusive: true, ..CgroupRecord::default() };
                    self.memory.change(group, |record| *record = own);
                } else {
                    self.memory.forget(group);
                }
            } else if record.ours.contains(&set) {
                self.memory.change(group, |record| record.ours = vec![set]);
            } else if record.before == set && !record.ours.is_empty() {
                // Nothing was written here: the value is the one that was found, and no news.
                self.memory.change(group, |record| record.ours = vec![]);
            }
            if goal.binds(group) {
                self.binding.insert(group.clone());
            }
        }
    }

    /// Has containers witness that the cgroups which bind them have CPUs now.
    fn find_witnesses(
        &mut self,
        on: &Hierarchy,
        layout: &Layout,
        goal: &Goal,
        tree: &CgroupTree,
        is_due: impl Fn(&CgroupPath) -> bool,
    ) {
        let binders = self.binding.iter().filter(|group| is_due(group) && is_binder(goal, group));
        for group in binders {
            let pods = layout.pods.iter().map(|pod| &pod.group);
            let pods = pods.filter(|pod| *pod == group || pod.is_below(group));
            let has_cpus = || on.cpus(group, CPUS).ok() == tree.cpus(group);
            self.interference.observe(on, group, pods, has_cpus);
        }
    }

    /// A cgroup cannot be written: those below it are bound instead, and a container is left to the
    /// runtime. Returns whether another plan follows from that.
    fn failed(
        &mut self,
        layout: &Layout,
        goal: &Goal,
        (group, write, error): (&CgroupPath, Write, &FileError),
        now: Instant,
        report: &mut Report,
    ) -> bool {
        report.errors += 1;
        let is_own = || self.on.as_ref().is_some_and(|on| on.is_own(group));
        if is_binder(goal, group) {
            self.interference.failed(group, error.to_string(), now);
        } else if error.is_forbidden() && is_own() {
            self.own = Some((group.clone(), CpuSet::EMPTY));
        } else {
            let why = error.to_string();
            report.unbind_pods_with(layout, group, &why);
            self.refused.insert(group.clone(), Refusal { write, at: now, why });
            return false;
        }
        true
    }

    /// Where this program's own container cannot be written, its threads keep to its pool.
    fn confine_self(&mut self, on: &Hierarchy, goal: &Goal) {
        let Some((group, cpus)) = &mut self.own else { return };
        let pool = goal.pool_of(group);
        if *cpus == pool {
            return;
        }
        match affinity::confine_self(on.kernel(), pool) {
            Ok(()) => *cpus = pool,
            Err(error) => log::warn!("{group}: the plugin cannot leave exclusive CPUs: {error}"),
        }
    }

    /// Undoes all writes: partitions, a cgroup's CPUs, and the lifted quotas of pods. Containers stay
    /// on their exclusive CPUs. What failed stays remembered.
    pub fn release(&mut self, widest: CpuSet) -> Undone {
        let mut undone = Undone::default();
        let Some(on) = self.on.clone() else { return undone };
        // A refused write would be reported like any other, and lead to the next one.
        self.binding.clear();
        self.partitions.clear();
        self.refused.clear();
        // What is restored for another program is not its next write.
        self.interference = Interference::default();
        let groups: Vec<_> = self.memory.groups().map(|(g, r)| (g.clone(), r.clone())).collect();
        // First of all: what is beside a partition cannot have its CPUs.
        let mut partitions = BTreeSet::new();
        for (group, _) in groups.iter().rev().filter(|(_, record)| record.exclusive) {
            let has = on.partition(group).exclusive;
            if self.stuck.get(group) == Some(&has) {
                partitions.insert(group.clone());
                continue;
            }
            match unless_gone(end_partition(&on, group)) {
                Ok(ended) => undone.partitions += u64::from(ended == Some(true)),
                Err(error) => {
                    partitions.insert(group.clone());
                    if error.is_invalid() {
                        self.stuck.insert(group.clone(), has);
                    }
                    undone.errors.push(error);
                }
            }
        }
        for (group, record) in groups.into_iter().rev() {
            let exclusive = partitions.contains(&group);
            let mut left = CgroupRecord { exclusive, ..CgroupRecord::default() };
            match unless_gone(quota::restore(&on, &mut self.memory, &group)) {
                Ok(restored) => undone.quotas += u64::from(restored.flatten().is_some()),
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
                    left = CgroupRecord { quota: left.quota, exclusive, ..record };
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

    /// Lifts a pod's CFS quota, or puts a lifted one back; `None` if there was nothing to do.
    pub fn settle_quota(
        &mut self,
        pod: &CgroupPath,
        is_lifted: bool,
    ) -> Result<Option<QuotaChange>, FileError> {
        let Some(on) = &self.on else { return Ok(None) };
        let change = if is_lifted {
            quota::lift_and_remember(on, &mut self.memory, pod)
        } else {
            quota::restore(on, &mut self.memory, pod)
        };
        Ok(unless_gone(change)?.flatten())
    }

    /// The file with a cgroup's CFS quota.
    pub fn quota_file(&self, group: &CgroupPath) -> Option<PathBuf> {
        Some(quota::path(self.on.as_ref()?, group))
    }

    /// The shell command that removes another program's bound.
    pub fn removal_of_bound(&self, group: &CgroupPath) -> String {
        self.on.as_ref().map(|on| on.removal_of_bound(group)).unwrap_or_default()
    }

    /// The files that bind, to be watched for writes of other programs, and the directories in which
    /// a kubelet makes the cgroups of classes and Guaranteed pods.
    pub fn watched(&self) -> BTreeMap<PathBuf, Watched> {
        let Some(on) = &self.on else { return BTreeMap::new() };
        let files = self.binding.iter().map(|group| on.directory(group).join(CPUS));
        let kubelets = self.binding.iter().filter(|group| level_of(group).is_some());
        let above = kubelets.filter_map(CgroupPath::parent);
        // What is in a class is bound by the class.
        let above = above.filter(|above| self.unnamed.get(above) != Some(&CgroupLevel::Class));
        let directories = above.map(|above| (on.directory(&above), Watched::Directory));
        files.map(|file| (file, Watched::File)).chain(directories).collect()
    }

    /// A kubelet makes a pod's cgroup before it has the runtime start the pod's sandbox, whose
    /// process would run on all CPUs until the runtime reports it.
    pub fn created(&mut self, directories: &[PathBuf]) {
        let Some(on) = &self.on else { return };
        let groups = directories.iter().filter_map(|directory| on.group(directory));
        self.unnamed.extend(groups.filter_map(|group| Some((group.clone(), level_of(&group)?))));
    }
}

/// Whether a cgroup is a class's or a pod's, so that its value binds what is below.
fn is_binder(goal: &Goal, group: &CgroupPath) -> bool {
    matches!(goal.tops.get(group), Some(CgroupLevel::Class | CgroupLevel::Pod))
        || group.parent().is_some_and(|parent| goal.tops.get(&parent) == Some(&CgroupLevel::Class))
}

/// What a cgroup would be set to without a bound, if all is at rest.
fn expected(goal: &Goal, group: &CgroupPath) -> CpuSet {
    goal.pool_of(group) | goal.claims_in(group)
}

#[cfg(test)]
mod tests;
