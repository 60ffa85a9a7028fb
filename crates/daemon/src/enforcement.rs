//! [`Enforcement`]: keeps exclusive CPUs exclusive, after each event, by what the node can do:
//! partitions, and cgroups where the kernel makes none.

mod writes;

use super::log_repeated;
use cgroups::{
    AFTER_REFUSAL, CgroupRecords, ForeignPartitions, Groups, Hierarchy, ProbeError, Report, Scope,
    Watched, writable,
};
use config::Config;
use cpuset::{CgroupPath, PartitionType};
use exclusivity::verify::Drift;
use exclusivity::{Exclusivity, Figures, GroupBound, Means, NodeLayout, consequence};
use kernel::Kernel;
use ledger::{Call, Event, Ledger, Mechanism, PodUid, Policy, Stance, Target};
use log::Level;
use state::clock::ago;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wording::{Repeats, count, few};

/// The time between two checks for CPUs that a container was about to leave.
const PAUSE: Duration = Duration::from_millis(50);

/// A condition of the log.
const LEFTOVERS: &str = "leftovers";

#[derive(Debug)]
pub(super) struct Enforcement {
    pub(super) means: Means,
    /// Or why cgroups cannot be written.
    hierarchy: Result<Hierarchy, ProbeError>,
    groups: Groups,
    state: Written,
    /// What the last pass found.
    pub(super) report: Report,
    /// Pods that the runtime has to keep in the pool, and why.
    unbound: BTreeMap<PodUid, String>,
    written: u64,
    /// When to check again for CPUs that a container was about to leave.
    due: Option<Instant>,
    /// When the kernel refused a write within the last second.
    refused_at: Option<Instant>,
    refusals: u64,
    errors: u64,
    repeats: Repeats,
}

/// What a pass has changed.
#[derive(Debug, Default)]
pub(super) struct BindOutcome {
    pub(super) events: Vec<Event>,
    /// Containers for which the kernel refuses a partition, and why.
    pub(super) refused: Vec<(Target, String)>,
    /// Containers whose partitions had ended. The pass has tried to make them again.
    pub(super) ended: Vec<(Target, Drift)>,
}

/// Which cgroups have values of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// All that need one: from now on a pass may be limited to those that bind.
    All,
    Nothing,
    /// Some that could not be reverted at the last try.
    Leftovers,
}

/// The mechanism under this policy: the `best` one of the node from the first policy `static` on, and until then the
/// one `in_force`, as nothing is written.
pub(super) fn mechanism_under(policy: Policy, in_force: Mechanism, best: Mechanism) -> Mechanism {
    match policy {
        Policy::None => in_force,
        Policy::Static => best,
    }
}

/// What the configuration asks for under this policy: without exclusive CPUs, nothing is demanded of
/// the kernel.
pub(super) fn configured(config: &Config, policy: Policy) -> Exclusivity {
    match (policy, config.exclusivity()) {
        (Policy::None, Exclusivity::Kernel) => Exclusivity::Auto,
        (_, exclusivity) => exclusivity,
    }
}

impl Enforcement {
    /// Finds out what the node can do.
    ///
    /// # Errors
    /// If the configuration demands partitions and the kernel makes none.
    pub(super) fn start(
        configured: Exclusivity,
        partition: PartitionType,
        kernel: &Arc<dyn Kernel>,
        cgroup_root: &Path,
        records: CgroupRecords,
    ) -> Result<Enforcement, ProbeError> {
        let means = Means::choose(configured, kernel, cgroup_root)?;
        means.log(configured);
        let hierarchy = writable(kernel, cgroup_root);
        if let Err(why) = &hierarchy {
            log::warn!("{}", consequence(why));
        }
        Ok(Enforcement::new(means, hierarchy, partition, records))
    }

    pub(super) fn new(
        means: Means,
        hierarchy: Result<Hierarchy, ProbeError>,
        partition: PartitionType,
        records: CgroupRecords,
    ) -> Enforcement {
        let groups = match &hierarchy {
            Ok(hierarchy) => Groups::new(hierarchy.clone(), records, partition),
            Err(_) => Groups::default(),
        };
        Enforcement {
            means,
            hierarchy,
            groups,
            state: Written::Nothing,
            report: Report::default(),
            unbound: BTreeMap::new(),
            written: 0,
            due: None,
            refused_at: None,
            refusals: 0,
            errors: 0,
            repeats: Repeats::default(),
        }
    }

    /// What to watch for writes of other programs, and for new cgroups.
    pub(super) fn watched(&self) -> BTreeMap<PathBuf, Watched> {
        self.groups.watched()
    }

    /// The best mechanism of this node. The ledger has it from the first settings with policy static
    /// on: under policy none nothing is written.
    pub(super) fn mechanism(&self) -> Mechanism {
        self.means.mechanism
    }

    /// Why cgroups cannot be written; `None` if they can.
    pub(super) fn cannot_write(&self) -> Option<&ProbeError> {
        self.hierarchy.as_ref().err()
    }

    /// `foreign` are other programs' partitions.
    pub(super) fn figures(
        &self,
        policy: Policy,
        foreign: &ForeignPartitions,
        now: Instant,
    ) -> Figures {
        let bounds = self.report.bounds.iter().map(|(cgroup, bound)| GroupBound {
            cgroup: cgroup.clone(),
            cpus: bound.cpus,
            since: ago(now.saturating_duration_since(bound.since)),
            remove_with: self.groups.removal_of_bound(cgroup),
        });
        Figures {
            because: self.means.because.clone().filter(|_| policy == Policy::Static),
            cannot_write: self.cannot_write().map(consequence),
            distrusted_cgroups: self.report.distrusted.clone(),
            unbound_pods: self.unbound.clone(),
            cgroup_bounds: bounds.collect(),
            foreign_partitions: foreign.clone(),
            partition_refusals: self.refusals,
            pool_writes: self.written,
            write_errors: self.errors,
        }
    }

    /// Logs listed containers that an earlier process has made partitions, if cgroups cannot be
    /// written: the partitions stay.
    pub(super) fn note_left(&self, call: &Call) {
        let Call::Event(Event::Synchronize { pods, containers }) = call else { return };
        let Err(why) = &self.hierarchy else { return };
        let mut left = containers.iter().filter(|container| container.partitioned);
        let Some(first) = left.next() else { return };
        let pod = pods.iter().find(|pod| pod.sandbox == first.sandbox);
        let pod = pod.map_or("?/?".to_owned(), |pod| format!("{}/{}", pod.namespace, pod.name));
        log::error!(
            "{pod}/{} and {} others are still cpuset partitions of an earlier configuration: {why}. Delete these pods to have them created again",
            first.name,
            left.count()
        );
    }

    /// Brings all cgroups of this scope to the values that the ledger requires now.
    pub(super) fn bind(&mut self, scope: Scope, ledger: &Ledger, now: Instant) -> BindOutcome {
        self.due = None;
        if ledger.mechanism() == Mechanism::Runtime {
            return BindOutcome::default();
        }
        if ledger.stance() != Stance::Assign {
            // What could not be reverted waits for the next check of all.
            if scope != Scope::Binding || self.state != Written::Leftovers {
                self.revert(ledger, now);
            }
            return BindOutcome::default();
        }
        let layout = NodeLayout::of(ledger);
        let scope = if self.state == Written::All { scope } else { scope.max(Scope::All) };
        self.state = Written::All;
        let report = self.groups.follow(&layout.groups, scope, now);
        let mut unbound = layout.unbound(&report.unbound);
        let before = std::mem::replace(&mut self.report, report);
        let report = &self.report;
        self.written += report.written;
        self.errors += report.errors;
        self.refusals += report.refused.len() as u64;
        let waits = !report.withheld.is_empty() || report.deferred;
        let recently = self.refused_at.filter(|refused| now < *refused + AFTER_REFUSAL);
        self.refused_at = if report.errors > 0 { Some(now) } else { recently };
        let pause = if self.refused_at.is_none() { PAUSE } else { AFTER_REFUSAL };
        self.due = waits.then(|| now + pause);
        if scope == Scope::Binding {
            // Only a check of all cgroups finds missing ones: the pods of the last one still count.
            let known = self.unbound.iter().filter(|(pod, _)| ledger.has_pod(pod));
            unbound.extend(known.map(|(pod, why)| (pod.clone(), why.clone())));
        }
        let unbound_before = std::mem::replace(&mut self.unbound, unbound);
        let mut bound = BindOutcome::default();
        if before.distrusted.keys().ne(report.distrusted.keys()) {
            log_distrusted(&mut self.repeats, &before.distrusted, &report.distrusted, now);
            let distrusted = report.distrusted.keys().cloned().collect();
            bound.events.push(Event::Distrusted(distrusted));
        }
        if unbound_before.keys().ne(self.unbound.keys()) {
            log_unbound(&mut self.repeats, &unbound_before, &self.unbound, now);
            bound.events.push(Event::Unbound(self.unbound.keys().cloned().collect()));
        }
        if !report.refused.is_empty() || !report.ended.is_empty() {
            self.name_partitions(ledger, &mut bound, now);
        }
        self.log_unrecorded(now);
        if !self.report.pinned.is_empty() {
            log::info!(
                "list: exclusive CPUs set for {}, which ran on others",
                count(self.report.pinned.len(), "container")
            );
        }
        if scope == Scope::Listed {
            // The runtime may lose the updates that lift them, as those that set CPUs.
            for target in ledger.targets() {
                self.lift_quota(&target, now);
            }
        }
        bound
    }

    /// Adds the containers whose partitions the last pass could not make, or has found ended.
    fn name_partitions(&mut self, ledger: &Ledger, bound: &mut BindOutcome, now: Instant) {
        for target in ledger.targets() {
            let Some(group) = &target.cgroup else { continue };
            if let Some(state) = self.report.ended.get(group) {
                bound.ended.push((target.clone(), Drift::Partition(state.to_string())));
            }
            if let Some(why) = self.report.refused.get(group) {
                let subject = &target.subject;
                if let Some(times) = self.repeats.occurred(&subject.to_string(), now) {
                    log::warn!(
                        "{subject}: no partition: groups keep others off its CPUs: {why}{times}"
                    );
                }
                bound.events.push(Event::PartitionRefused(subject.id.clone()));
                bound.refused.push((target, why.clone()));
            }
        }
    }

    /// Reverts the writes into cgroups: containers are on their CPUs by other means. What cannot be
    /// reverted is tried again with the next check of all.
    pub(super) fn revert(&mut self, ledger: &Ledger, now: Instant) {
        let all = self.groups.undo(ledger.possible());
        self.state = if all.errors.is_empty() { Written::Nothing } else { Written::Leftovers };
        let undone = all.groups + all.quotas + all.partitions;
        if undone > 0 {
            let partitions = all.partitions;
            log::info!("cgroups restored: {undone} (cpuset partitions ended: {partitions})");
        }
        if !all.errors.is_empty()
            && let Some(times) = self.repeats.occurred(LEFTOVERS, now)
        {
            let errors = few(all.errors);
            log::warn!("cannot restore a cgroup, trying again at the next check: {errors}{times}");
        }
        self.log_unrecorded(now);
    }

    /// Logs that the record of written values could not be saved.
    fn log_unrecorded(&mut self, now: Instant) {
        if let Some(why) = self.groups.unrecorded()
            && let Some(times) = self.repeats.occurred(why, now)
        {
            log::warn!(
                "{why}; after a restart, cgroup CPUs count as set by another program{times}"
            );
        }
    }

    /// When to check again for CPUs that a container was about to leave.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A watched file was written, or these directories are new. Returns whether to check at once.
    /// Directly after the kernel has refused a write, most reports are of this program's own writes:
    /// a check would write again, so it comes later.
    pub(super) fn files_changed(&mut self, created: &[PathBuf], now: Instant) -> bool {
        self.groups.created(created);
        let Some(later) = self.refused_at.map(|refused| refused + AFTER_REFUSAL) else {
            return true;
        };
        if later <= now || !created.is_empty() {
            return true;
        }
        self.due.get_or_insert(later);
        false
    }

    pub(super) fn check_again(&mut self, now: Instant) {
        self.due = Some(now + PAUSE);
    }
}

fn log_distrusted(
    repeats: &mut Repeats,
    before: &BTreeMap<CgroupPath, String>,
    distrusted: &BTreeMap<CgroupPath, String>,
    now: Instant,
) {
    for (group, why) in distrusted.iter().filter(|(group, _)| !before.contains_key(group)) {
        let line = format!("{group}: setting each cgroup below it individually: {why}");
        log_repeated(repeats, Level::Warn, &line, now);
    }
    for group in before.keys().filter(|group| !distrusted.contains_key(group)) {
        let line = format!("{group}: relied on again");
        log_repeated(repeats, Level::Info, &line, now);
    }
}

fn log_unbound(
    repeats: &mut Repeats,
    before: &BTreeMap<PodUid, String>,
    unbound: &BTreeMap<PodUid, String>,
    now: Instant,
) {
    for (pod, why) in unbound.iter().filter(|(pod, _)| !before.contains_key(pod)) {
        let line = format!("pod {pod}: falling back to runtime updates: {why}");
        log_repeated(repeats, Level::Warn, &line, now);
    }
}

#[cfg(test)]
mod tests;
