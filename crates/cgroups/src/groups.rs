//! [`Groups`]: keeps a node's cgroups at their [`Goal`]: reads them, plans, writes.
//!
//! Every pass starts from the files. Between two passes only the values that were written
//! ([`CgroupRecords`]) and what others do to these cgroups ([`Interference`]) are remembered.
//! Nothing is given up permanently: failed writes are tried again.

use super::affinity;
use super::cgroup_tree::{CgroupTree, PartitionFiles, Write};
use super::files::{Scope, end_partition, read, undo, write};
use super::goal::{CgroupLevel, Goal};
use super::hierarchy::{CPUS, FileError, Hierarchy, PARTITION, unless_gone};
use super::interference::{Bound, Distrust, Interference};
use super::layout::Layout;
use super::names::level_of;
use super::plan::carry_out;
use super::quota::{self, QuotaChange};
use super::records::{CgroupRecord, CgroupRecords};
use cpuset::{CgroupPath, CpuSet, PartitionState, PartitionType};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wording::Repeats;

/// How long a value that the kernel has refused for a container is not written again. Without this
/// limit, each call of the runtime would try it, as each makes a pass.
pub const AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// Plans in one pass, at most: each finds cgroups that cannot be written, and the next one leaves them
/// out.
const ROUNDS: usize = 4;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub written: u64,
    pub errors: u64,
    /// CPUs that containers have still to leave before others get them.
    pub withheld: CpuSet,
    /// Whether a write was put off because the kernel has just refused the same one.
    pub deferred: bool,
    /// Listed containers that had other CPUs than their exclusive ones, and have these now.
    pub pinned: BTreeSet<CgroupPath>,
    /// Containers that cannot be partitions, and why.
    pub refused: BTreeMap<CgroupPath, String>,
    /// Containers whose partitions another program, or the kernel, has ended since the last pass, and
    /// their state now.
    pub ended: BTreeMap<CgroupPath, PartitionState>,
    /// Pods whose containers no cgroup keeps in the pool, and why: the caller has to use other means.
    pub unbound: BTreeMap<CgroupPath, String>,
    /// Cgroups that are not relied on, and why: those below are bound as well.
    pub distrusted: BTreeMap<CgroupPath, String>,
    /// The limits that other programs set.
    pub bounds: BTreeMap<CgroupPath, Bound>,
}

impl Report {
    /// Reports the pod of a container whose cgroup cannot be written.
    fn unbind_pods_with(&mut self, layout: &Layout, leaf: &CgroupPath, why: &str) {
        for pod in layout.pods.iter().filter(|pod| leaf.is_below(&pod.group)) {
            self.unbound.insert(pod.group.clone(), why.to_owned());
        }
    }
}

/// What to watch with inotify(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Writes into a file.
    File,
    /// New directories in a directory.
    Directory,
}

#[derive(Debug, Default)]
pub struct Undone {
    /// Cgroups that got back the CPUs that another program had set before, or all.
    pub groups: u64,
    pub partitions: u64,
    /// Restored CFS quotas of pods and containers.
    pub quotas: u64,
    /// Containers that got back all CPUs.
    pub containers: u64,
    /// What the kernel refused. Everything else was undone nevertheless.
    pub errors: Vec<FileError>,
}

#[derive(Debug, Default)]
pub struct Groups {
    on: Option<Hierarchy>,
    records: CgroupRecords,
    interference: Interference,
    /// All classes since this process started, and cgroups of pods that no event has named yet: they may
    /// contain containers that are not known.
    unnamed: BTreeMap<CgroupPath, CgroupLevel>,
    /// Cgroups that decide where containers run. They are watched for writes of other programs.
    binding: BTreeSet<CgroupPath>,
    /// The type of partitions, if there are any.
    kind: PartitionType,
    /// Containers with exclusive CPUs since the runtime's last list that have not been seen with these.
    listed: BTreeSet<CgroupPath>,
    /// Containers that were partitions after the last pass.
    partitions: BTreeSet<CgroupPath>,
    /// Pods whose cgroup was missing at the last check of all cgroups.
    missing: BTreeSet<CgroupPath>,
    /// Writes into containers' cgroups that the kernel has just refused.
    refused: BTreeMap<CgroupPath, RefusedWrite>,
    /// The `cpuset.cpus.exclusive` of cgroups from which the kernel does not let them be removed, as
    /// the cgroup's `cpuset.cpus` may have CPUs of another program's partition. They do no harm, and go
    /// with the next change.
    stuck: BTreeMap<CgroupPath, CpuSet>,
    /// This program's own container, if it cannot write its cgroup, and the affinity of its threads.
    own: Option<(CgroupPath, CpuSet)>,
    repeats: Repeats,
}

#[derive(Debug)]
struct RefusedWrite {
    write: Write,
    at: Instant,
    why: String,
}

impl Groups {
    /// `kind` is the type of all partitions that this makes.
    pub fn new(on: Hierarchy, records: CgroupRecords, kind: PartitionType) -> Groups {
        Groups { on: Some(on), records, kind, ..Groups::default() }
    }

    /// One pass: makes the writes that lead to this layout. Observations of other programs get the time
    /// `now`.
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
        if scope == Scope::Listed {
            self.listed = layout.goal.exclusive.keys().cloned().collect();
        }
        if scope != Scope::Binding {
            self.find_classes(&on, layout);
            self.records.retain(|group| on.has(group));
            self.stuck.retain(|group, _| on.has(group));
            self.interference.retain(|group| on.has(group));
            self.find_missing(&on, layout, &mut report);
        }
        for _ in 0..ROUNDS {
            let mut goal = layout.goal.clone();
            goal.tops.extend(self.unnamed.clone());
            goal.kind = self.kind;
            goal.listed = self.listed.clone();
            goal.partitions.retain(|leaf| !report.refused.contains_key(leaf));
            let ours = self.records.groups().filter(|(_, record)| record.exclusive);
            goal.ours = ours.map(|(group, _)| group.clone()).collect();
            let mut tree = loop {
                self.restrict(&mut goal, now);
                let tree = read(&on, &goal, scope);
                // What it learns may be that a cgroup is not relied on any more: then the cgroups below
                // have to be read as well.
                if !self.observe(&on, &tree, &goal, now) {
                    break tree;
                }
            };
            self.adopt_partitions(layout, &tree, &mut goal);
            goal.ours
                .retain(|group| self.stuck.get(group) != Some(&tree.partition(group).exclusive));
            self.find_ended(&goal, &tree, &mut report);
            let writes = self.remember(&tree, &goal);
            let mut has_learnt = false;
            let mut written = BTreeSet::new();
            if writes {
                // Errors, and texts of invalid partitions, which say why.
                let mut replies = BTreeMap::new();
                let outcome = carry_out(&mut tree, &goal, |group, planned| {
                    let refusal = self.refused.get(group).filter(|one| one.write == planned);
                    if let Some(refusal) = refusal {
                        report.deferred = true;
                        report.unbind_pods_with(layout, group, &refusal.why);
                        return None;
                    }
                    // After a failed write the plan differs from the one that `remember` recorded.
                    self.remember_write(group, planned);
                    self.records.save();
                    match unless_gone(write(&on, group, planned)) {
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
                            match planned {
                                Write::Cpus(_) => {
                                    let failed = (group, planned, &error);
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
            let renewed = |group: &CgroupPath| scope != Scope::Binding || written.contains(group);
            self.find_witnesses(&on, layout, &goal, &tree, renewed);
            self.find_pinned(&goal, &tree, &written, &mut report);
            if !has_learnt {
                break;
            }
        }
        self.records.save();
        self.confine_self(&on, &layout.goal, now);
        report.distrusted = self.distrusted(now);
        report.bounds = self.interference.bounds().map(|(g, bound)| (g.clone(), bound)).collect();
        report
    }

    /// After a loss of the records, the exclusive CPUs of containers that must be partitions, or
    /// share CPUs by now, and of cgroups above them, still count as this program's.
    fn adopt_partitions(&mut self, layout: &Layout, tree: &CgroupTree, goal: &mut Goal) {
        let shares = |leaf: &CgroupPath| {
            !goal.exclusive.contains_key(leaf)
                && layout.pods.iter().any(|pod| leaf.parent().as_ref() == Some(&pod.group))
        };
        let is_ours = |leaf: &CgroupPath| goal.partitions.contains(leaf) || shares(leaf);
        let partitions = tree.groups().filter(|group| tree.is_partition(group));
        let leaves: Vec<CgroupPath> = partitions.filter(|leaf| is_ours(leaf)).cloned().collect();
        for leaf in leaves {
            for group in leaf.ancestors().into_iter().chain([leaf.clone()]) {
                if goal.ours.insert(group.clone()) {
                    self.records.change(&group, |record| record.exclusive = true);
                }
            }
        }
    }

    /// Finds partitions that have become invalid or ordinary cgroups.
    fn find_ended(&mut self, goal: &Goal, tree: &CgroupTree, report: &mut Report) {
        for leaf in std::mem::take(&mut self.partitions) {
            if goal.partitions.contains(&leaf) && tree.contains(&leaf) && !tree.is_partition(&leaf)
            {
                report.ended.insert(leaf.clone(), tree.partition(&leaf).state);
            }
        }
    }

    /// Finds classes that have no pod yet: with the cgroupfs driver they exist from the kubelet's start
    /// on.
    fn find_classes(&mut self, on: &Hierarchy, layout: &Layout) {
        let kubelets = layout.goal.tops.keys().filter(|top| level_of(top).is_some());
        let above: BTreeSet<CgroupPath> = kubelets.filter_map(CgroupPath::parent).collect();
        let below = above.iter().flat_map(|above| on.children(above));
        let classes = below.filter(|group| level_of(group) == Some(CgroupLevel::Class));
        self.unnamed.extend(classes.map(|class| (class, CgroupLevel::Class)));
    }

    /// Finds running pods whose cgroup is not where the runtime says it is. If a cgroup above it exists,
    /// the pod has ended and the runtime has not reported that. Otherwise this hierarchy is not the
    /// runtime's, which is reported at the second check.
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

    /// Learns from values that this program has not written. Returns whether there were any.
    fn observe(&mut self, on: &Hierarchy, tree: &CgroupTree, goal: &Goal, now: Instant) -> bool {
        let mut has_learnt = false;
        for group in tree.groups().filter(|group| is_binder(goal, group)) {
            let Some(set) = tree.cpus(group) else { continue };
            let CgroupRecord { before, ours, .. } =
                self.records.get(group).cloned().unwrap_or_default();
            if ours.contains(&set) || (ours.is_empty() && before == set) {
                continue;
            }
            if set.is_empty() {
                // From now on the cgroup has no value of anybody: one that stays empty, as it needs no
                // value, was cleared once.
                self.records.change(group, |record| (record.before, record.ours) = (set, vec![]));
                if self.interference.cleared(on, group, now) {
                    has_learnt = true;
                    let condition = format!("{group}: cleared");
                    if let Some(times) = self.repeats.occurred(&condition, now) {
                        log::info!(
                            "{group}: its CPUs were cleared while a container ran in it{times}"
                        );
                    }
                }
            } else if self.records.get(group).is_none() && set == expected(goal, group) {
                self.records.change(group, |record| record.ours = vec![set]);
            } else {
                self.records.change(group, |record| (record.before, record.ours) = (set, vec![]));
                self.note_written(on, group, set, now);
                has_learnt = true;
            }
        }
        has_learnt
    }

    fn note_written(&mut self, on: &Hierarchy, group: &CgroupPath, set: CpuSet, now: Instant) {
        let cpus = wording::cpus(set);
        let online = on.free();
        let is_bound = self.interference.written(group, set, online, now).is_some();
        let condition = format!("{group}: {is_bound}");
        let Some(times) = self.repeats.occurred(&condition, now) else { return };
        if is_bound {
            log::warn!(
                "{group}: another program set {cpus} again: its containers are limited to the shared ones of these, until {:?} is run{times}",
                on.removal_of_bound(group)
            );
        } else if online.is_subset(&set) {
            log::info!("{group}: another program set {cpus}: replaced{times}");
        } else {
            log::warn!(
                "{group}: another program set {cpus}: replaced, unless it sets them again{times}"
            );
        }
    }

    /// Why the record of written values is not on disk, if the last write of it has failed.
    pub fn unrecorded(&self) -> Option<&str> {
        self.records.failure.as_deref()
    }

    fn distrusted(&self, now: Instant) -> BTreeMap<CgroupPath, String> {
        let groups = self.interference.distrusted(now);
        groups.map(|(group, distrust)| (group.clone(), distrust.why().to_owned())).collect()
    }

    /// Adds to a goal what is known of single cgroups.
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

    /// Records, before the first write, all writes of a plan. Returns whether there is anything to write
    /// or to report.
    fn remember(&mut self, tree: &CgroupTree, goal: &Goal) -> bool {
        let mut kernel = tree.clone();
        let outcome = carry_out(&mut tree.clone(), goal, |group, write| {
            self.remember_write(group, write);
            kernel.write(group, write).ok().map(|()| kernel.partition(group))
        });
        self.records.save();
        outcome.written > 0 || !outcome.refused.is_empty()
    }

    fn remember_write(&mut self, group: &CgroupPath, write: Write) {
        self.records.change(group, |record| match write {
            Write::Cpus(cpus) if !record.ours.contains(&cpus) => record.ours.push(cpus),
            Write::Cpus(_) => {}
            Write::Exclusive(_) | Write::Partition(_) => record.exclusive = true,
        });
    }

    /// After the writes: keeps one value of each cgroup in the records, and none of a container that
    /// has exactly its exclusive CPUs. The runtime sets these, too, and an uninstall reverts
    /// nothing that the runtime has set.
    fn settle(&mut self, goal: &Goal, tree: &CgroupTree) {
        self.binding.retain(|group| !tree.contains(group));
        for group in tree.groups() {
            let Some(set) = tree.cpus(group) else { continue };
            let files = tree.partition(group);
            if files.state.is_valid() && goal.partitions.contains(group) {
                self.partitions.insert(group.clone());
            }
            // A class or pod with no value of this program is included: a value that another one writes
            // there can exclude all CPUs of a cgroup below.
            if goal.binds(group) && (is_binder(goal, group) || self.records.get(group).is_some()) {
                self.binding.insert(group.clone());
            }
            let Some(record) = self.records.get(group) else { continue };
            if record.exclusive && files == PartitionFiles::default() {
                self.records.change(group, |record| record.exclusive = false);
            }
            let Some(record) = self.records.get(group) else { continue };
            if goal.exclusive.get(group) == Some(&set) && !goal.mixed.contains(group) {
                if record.exclusive {
                    let own = CgroupRecord { exclusive: true, ..CgroupRecord::default() };
                    self.records.change(group, |record| *record = own);
                } else {
                    self.records.forget(group);
                }
            } else if record.ours.contains(&set) {
                self.records.change(group, |record| record.ours = vec![set]);
            } else if record.before == set && !record.ours.is_empty() {
                // The planned write was not made. Without this, the next pass would take the old value
                // for another program's new one.
                self.records.change(group, |record| record.ours = vec![]);
            }
        }
    }

    /// Finds containers that run while the cgroups that bind them have CPUs.
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
            let set = tree.cpus(group).filter(|set| !set.is_empty());
            let has_cpus = || set.is_some() && on.cpus(group, CPUS).ok() == set;
            self.interference.find_witness(on, group, pods, has_cpus);
        }
    }

    /// Finds listed containers that have their exclusive CPUs by now: from then on the runtime sets these.
    fn find_pinned(
        &mut self,
        goal: &Goal,
        tree: &CgroupTree,
        written: &BTreeSet<CgroupPath>,
        report: &mut Report,
    ) {
        self.listed.retain(|leaf| {
            let Some(claim) = goal.exclusive.get(leaf) else { return false };
            // One that is created and has no cgroup yet gets its CPUs when it starts.
            let Some(set) = tree.cpus(leaf) else { return true };
            let has_own =
                if goal.mixed.contains(leaf) { claim.is_subset(&set) } else { set == *claim };
            if has_own && written.contains(leaf) {
                report.pinned.insert(leaf.clone());
            }
            !has_own
        });
    }

    /// Handles a refused write: if the cgroup is a container's, the caller has to use other means for
    /// its pod, otherwise the cgroups below it are bound. Returns whether that changes the plan.
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
            self.refused.insert(group.clone(), RefusedWrite { write, at: now, why });
            return false;
        }
        true
    }

    /// If this program cannot write its own container's cgroup, keeps its threads in the pool.
    fn confine_self(&mut self, on: &Hierarchy, goal: &Goal, now: Instant) {
        let Some((group, cpus)) = &mut self.own else { return };
        let pool = goal.pool_of(group);
        if *cpus == pool {
            return;
        }
        match affinity::confine_self(on.kernel(), pool) {
            Ok(()) => *cpus = pool,
            Err(error) => {
                if let Some(times) = self.repeats.occurred(&format!("{group}: {error}"), now) {
                    log::warn!("{group}: the plugin cannot leave exclusive CPUs: {error}{times}");
                }
            }
        }
    }

    /// Reverts partitions, the CPUs of cgroups and the lifted quotas of pods. Containers stay on their
    /// exclusive CPUs. The records keep what failed.
    pub fn undo(&mut self, widest: CpuSet) -> Undone {
        let mut undone = Undone::default();
        let Some(on) = self.on.clone() else { return undone };
        // A watch would report these writes, and so lead to the next pass.
        self.binding.clear();
        self.listed.clear();
        self.partitions.clear();
        self.refused.clear();
        // A value that is restored for another program must not count as its next write.
        self.interference = Interference::default();
        let groups: Vec<_> = self.records.groups().map(|(g, r)| (g.clone(), r.clone())).collect();
        // Partitions first: while one exists, its siblings cannot have its CPUs.
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
            match unless_gone(quota::restore(&on, &mut self.records, &group)) {
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
                self.records.forget(&group);
            } else {
                self.records.change(&group, |record| *record = left);
            }
        }
        self.records.save();
        undone
    }

    /// Lifts a pod's CFS quota, or restores a lifted one; `None` if there was nothing to do.
    pub fn settle_quota(
        &mut self,
        pod: &CgroupPath,
        is_lifted: bool,
    ) -> Result<Option<QuotaChange>, FileError> {
        let Some(on) = &self.on else { return Ok(None) };
        let change = if is_lifted {
            quota::record_and_lift(on, &mut self.records, pod)
        } else {
            quota::restore(on, &mut self.records, pod)
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

    /// The files to watch for writes of other programs, and the directories in which a kubelet makes
    /// the cgroups of classes and Guaranteed pods.
    pub fn watched(&self) -> BTreeMap<PathBuf, Watched> {
        let Some(on) = &self.on else { return BTreeMap::new() };
        let files = self.binding.iter().map(|group| on.directory(group).join(CPUS));
        let kubelets = self.binding.iter().filter(|group| level_of(group).is_some());
        let above = kubelets.filter_map(CgroupPath::parent);
        // A class binds the pods that are created in it.
        let above = above.filter(|above| self.unnamed.get(above) != Some(&CgroupLevel::Class));
        let directories = above.map(|above| (on.directory(&above), Watched::Directory));
        files.map(|file| (file, Watched::File)).chain(directories).collect()
    }

    /// Records new cgroups, so that the next pass binds them. A kubelet makes a pod's cgroup before the
    /// runtime starts the pod's sandbox, whose process would otherwise run on all CPUs until the runtime
    /// reports it.
    pub fn created(&mut self, directories: &[PathBuf]) {
        let Some(on) = &self.on else { return };
        let groups = directories.iter().filter_map(|directory| on.group(directory));
        self.unnamed.extend(groups.filter_map(|group| Some((group.clone(), level_of(&group)?))));
    }
}

/// Whether a cgroup is a class's or a pod's, so that its value binds the cgroups below it.
fn is_binder(goal: &Goal, group: &CgroupPath) -> bool {
    matches!(goal.tops.get(group), Some(CgroupLevel::Class | CgroupLevel::Pod))
        || group.parent().is_some_and(|parent| goal.tops.get(&parent) == Some(&CgroupLevel::Class))
}

/// The value that a cgroup would have without a bound, once no container has still to leave CPUs.
fn expected(goal: &Goal, group: &CgroupPath) -> CpuSet {
    goal.pool_of(group) | goal.claims_in(group)
}

#[cfg(test)]
mod tests;
