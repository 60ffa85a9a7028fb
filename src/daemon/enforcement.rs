//! [`Enforcement`]: has exclusivity kept, event by event, by what the node can do: partitions, and
//! cgroups where the kernel makes none.

mod writes;

use crate::config::Config;
use crate::exclusivity::{
    AFTER_REFUSAL, Exclusivity, Groups, Hierarchy, KernelRefusal, Layout, Means, Memory,
    ProbeError, Report, Scope, Watched, Writer, writable,
};
use crate::kernel::Kernel;
use crate::ledger::{
    Call, CgroupPath, ContainerId, Event, Ledger, Mechanism, PodUid, Policy, Stance, Target,
};
use crate::partition::PartitionType;
use crate::view::GroupBound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The kubelet's groups for all pods, with either cgroup driver. They are tidied even if no pod is
/// left that names them.
const KUBEPODS: [&str; 2] = ["kubepods", "kubepods.slice"];
/// The time between two checks for CPUs that a container was about to leave.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Enforcement {
    pub(super) means: Means,
    /// Or why cgroups cannot be written.
    writer: Result<Writer, ProbeError>,
    groups: Groups,
    /// Whether all groups were made what they have to be; later only those that bind are read.
    followed: bool,
    /// What the last pass found.
    pub(super) report: Report,
    pub(super) written: u64,
    /// When to check again for CPUs that a container was about to leave.
    due: Option<Instant>,
    /// When the kernel refused a write within the last second.
    refused_at: Option<Instant>,
    /// Partitions of an earlier life, with the containers' names.
    left: Vec<(String, CgroupPath)>,
    /// Containers whose partitions and quotas the main loop settles when it is idle.
    unsettled: VecDeque<ContainerId>,
    /// Whether something could not be undone at the last try.
    has_unreleased: bool,
    /// Whether ended containers may have left something in the groups above them.
    untidy: bool,
    /// The topmost groups that containers are or were in.
    tops: BTreeSet<CgroupPath>,
    pub(super) refusals: u64,
    pub(super) errors: u64,
}

/// What an event or a request means for cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum CgroupStep {
    #[default]
    None,
    /// Have CPUs ready for this container, which is about to be created.
    Reserve(ContainerId),
    /// Settle this container's cgroup now.
    Settle(ContainerId),
    /// Settle this container's cgroup later, in case it did not exist before.
    Later(ContainerId),
    All,
    Tidy,
}

impl CgroupStep {
    pub(super) fn of(event: &Event) -> CgroupStep {
        match event {
            Event::Starting { container, .. } => CgroupStep::Settle(container.id.clone()),
            Event::Started { container, .. } => CgroupStep::Later(container.id.clone()),
            Event::Synchronize { .. } => CgroupStep::All,
            Event::StopPod(_) | Event::RemovePod(_) | Event::Remove(_) => CgroupStep::Tidy,
            _ => CgroupStep::None,
        }
    }
}

/// A container for which the kernel refused something.
pub(super) type RefusedTarget = (Target, KernelRefusal);

/// What shall keep others off exclusive CPUs, as the configuration says.
pub(super) fn wanted(config: &Config) -> Exclusivity {
    match config.policy() {
        Policy::None => Exclusivity::Runtime,
        Policy::Static => config.exclusivity(),
    }
}

impl Enforcement {
    /// Finds out what the node can do.
    ///
    /// # Errors
    /// If the configuration demands partitions and the kernel makes none.
    pub(super) fn start(
        wanted: Exclusivity,
        partition: PartitionType,
        kernel: &Arc<dyn Kernel>,
        cgroup_root: &Path,
        memory: Memory,
    ) -> Result<Enforcement, ProbeError> {
        let means = Means::choose(wanted, kernel, cgroup_root)?;
        means.log(wanted);
        let writer = writable(kernel, cgroup_root);
        if let Err(why) = &writer {
            log::warn!("{}", why.consequence());
        }
        Ok(Enforcement::new(means, writer, partition, memory))
    }

    pub(super) fn new(
        means: Means,
        hierarchy: Result<Hierarchy, ProbeError>,
        partition: PartitionType,
        memory: Memory,
    ) -> Enforcement {
        let mut groups = match &hierarchy {
            Ok(hierarchy) => Groups::new(hierarchy.clone(), memory),
            Err(_) => Groups::default(),
        };
        groups.partitions = means.mechanism == Mechanism::Partitions;
        Enforcement {
            means,
            writer: hierarchy.map(|hierarchy| Writer::new(hierarchy, partition)),
            groups,
            followed: false,
            report: Report::default(),
            written: 0,
            due: None,
            refused_at: None,
            left: Vec::new(),
            unsettled: VecDeque::new(),
            has_unreleased: false,
            untidy: false,
            tops: KUBEPODS.iter().filter_map(|name| CgroupPath::new(name)).collect(),
            refusals: 0,
            errors: 0,
        }
    }

    /// What to watch for writes of other programs, and for new cgroups.
    pub(super) fn watched(&self) -> BTreeMap<PathBuf, Watched> {
        self.groups.watched()
    }

    pub(super) fn mechanism(&self) -> Mechanism {
        self.means.mechanism
    }

    /// Why cgroups cannot be written; `None` if they can.
    pub(super) fn cannot_write(&self) -> Option<&ProbeError> {
        self.writer.as_ref().err()
    }

    /// Pods that the runtime keeps off exclusive CPUs though groups do so elsewhere, and why.
    pub(super) fn unbound(&self) -> Vec<(String, String)> {
        let unbound = self.report.unbound.iter();
        unbound.map(|(pod, why)| (pod.to_string(), why.clone())).collect()
    }

    /// What other programs allow cgroups.
    pub(super) fn bounds(&self, now: Instant) -> impl Iterator<Item = GroupBound> {
        self.report.bounds.iter().map(move |(group, bound)| GroupBound {
            group: group.to_string(),
            cpus: bound.cpus,
            since: (SystemTime::now() - now.saturating_duration_since(bound.since)).into(),
            removal: self.groups.removal_of_bound(group),
        })
    }

    fn partitions(&self) -> Option<Writer> {
        if self.mechanism() == Mechanism::Partitions { self.writer.clone().ok() } else { None }
    }

    /// Records which listed containers are partitions of an earlier life, where the kernel does not
    /// keep exclusivity now.
    pub(super) fn note_left(&mut self, call: &Call) {
        let Call::Event(Event::Synchronize { pods, containers }) = call else { return };
        if self.mechanism() == Mechanism::Partitions {
            return;
        }
        let left = containers.iter().filter(|container| container.partitioned);
        let named = left.filter_map(|container| {
            let pod = pods.iter().find(|pod| pod.sandbox == container.sandbox);
            let pod = pod.map_or("?/?".to_owned(), |pod| format!("{}/{}", pod.namespace, pod.name));
            Some((format!("{pod}/{}", container.name), container.cgroup.clone()?))
        });
        self.left = named.collect();
        if let (Err(why), [(first, _), ..]) = (&self.writer, &self.left[..]) {
            log::error!(
                "{first} and {} others are still cpuset partitions of an earlier configuration: {why}. Delete these pods to have them created again",
                self.left.len() - 1
            );
            self.left.clear();
        }
    }

    /// Takes a step before the call is answered. Returns what the kernel refused.
    ///
    /// # Errors
    /// If the container must not be created yet, because the kernel still withholds its CPUs.
    /// Nothing could keep others off them.
    pub(super) fn follow(
        &mut self,
        step: CgroupStep,
        ledger: &Ledger,
    ) -> Result<Option<RefusedTarget>, RefusedTarget> {
        match step {
            CgroupStep::None => {}
            CgroupStep::All => {
                self.settle_all(ledger);
                self.untidy = true;
                self.followed = false;
            }
            CgroupStep::Later(id) => self.unsettled.push_back(id),
            CgroupStep::Tidy => self.untidy = true,
            CgroupStep::Reserve(id) => {
                let Some(writer) = self.partitions() else { return Ok(None) };
                match self.ask(&id, ledger, |target| writer.reserve(target)) {
                    Err(withheld @ (_, KernelRefusal::Withheld(_))) => return Err(withheld),
                    Err(refused) => return Ok(Some(refused)),
                    Ok(()) => {}
                }
            }
            CgroupStep::Settle(id) => match self.settle(&id, ledger) {
                // It keeps what it has. Its update waits with the others that are too early.
                Err((_, KernelRefusal::Withheld(_))) => self.unsettled.push_back(id),
                Err(refused) => return Ok(Some(refused)),
                Ok(()) => {}
            },
        }
        Ok(None)
    }

    /// Makes all groups what they have to be by now. Returns which of them, and which pods'
    /// cgroups, do not keep containers in the pool from now on, if that has changed.
    pub(super) fn bind(&mut self, scope: Scope, ledger: &Ledger, now: Instant) -> Vec<Event> {
        self.due = None;
        if self.mechanism() == Mechanism::Runtime {
            return Vec::new();
        }
        if ledger.stance() != Stance::Assign {
            // What could not be undone waits for the next check of all.
            if scope == Scope::All || !self.has_unreleased {
                self.let_go(ledger);
            }
            return Vec::new();
        }
        self.has_unreleased = false;
        let layout = Layout::of(ledger);
        let scope = if self.followed { scope } else { Scope::All };
        let report = self.groups.follow(&layout, scope, now);
        let before = std::mem::replace(&mut self.report, report);
        let report = &self.report;
        self.written += report.written;
        self.errors += report.errors;
        let waits = !report.withheld.is_empty() || report.deferred;
        let recently = self.refused_at.filter(|refused| now < *refused + AFTER_REFUSAL);
        self.refused_at = if report.errors > 0 { Some(now) } else { recently };
        let pause = if self.refused_at.is_none() { PAUSE } else { AFTER_REFUSAL };
        self.due = waits.then(|| now + pause);
        self.followed = true;
        if scope != Scope::All {
            // Only a check of all groups finds those that are missing.
            let known = before.unbound.iter().filter(|(pod, _)| ledger.has_pod(pod));
            self.report.unbound.extend(known.map(|(pod, why)| (pod.clone(), why.clone())));
        }
        if self.report.errors == 0 {
            self.end_left();
        }
        let report = &self.report;
        let mut events = Vec::new();
        if before.distrusted.keys().ne(report.distrusted.keys()) {
            log_distrusted(&before.distrusted, &report.distrusted);
            events.push(Event::Distrusted(report.distrusted.keys().cloned().collect()));
        }
        if before.unbound.keys().ne(report.unbound.keys()) {
            log_unbound(&before.unbound, &report.unbound);
            events.push(Event::Unbound(report.unbound.keys().cloned().collect()));
        }
        events
    }

    /// All containers are where they have to be by other means: takes out of groups what was left
    /// there. What cannot be undone is tried again with the next check of all.
    pub(super) fn let_go(&mut self, ledger: &Ledger) {
        self.end_left();
        let released = self.groups.release(ledger.possible());
        self.followed = false;
        self.has_unreleased = !released.errors.is_empty();
        let undone = released.groups + released.quotas;
        if undone > 0 {
            log::info!("cgroups restored: {undone}");
        }
        for error in released.errors {
            log::warn!("cannot restore a cgroup, trying again at the next check: {error}");
        }
    }

    fn end_left(&mut self) {
        let left = std::mem::take(&mut self.left);
        if !left.is_empty()
            && let Ok(writer) = self.writer.clone()
        {
            self.errors += writer.release(&left);
        }
    }

    /// When to check again for CPUs that a container was about to leave.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A watched file was written, or these directories are new. Returns whether to check at once:
    /// directly after the kernel has refused writes, what is seen are mostly this program's own, and
    /// the check comes later.
    pub(super) fn noticed(&mut self, created: &[PathBuf], now: Instant) -> bool {
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

    /// Has all containers' groups settled when the main loop is idle.
    pub(super) fn settle_all(&mut self, ledger: &Ledger) {
        if self.mechanism() != Mechanism::Runtime {
            let groups = ledger.targets().filter(|target| target.cgroup.is_some());
            self.unsettled = groups.map(|target| target.subject.id).collect();
        }
    }

    pub(super) fn next_unsettled(&mut self) -> Option<ContainerId> {
        self.unsettled.pop_front()
    }

    pub(super) fn has_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    pub(super) fn is_untidy(&self) -> bool {
        self.untidy
    }

    /// Removes what ended containers have left in the groups above them. Nothing waits for this:
    /// settling a group tidies the groups that it needs.
    pub(super) fn tidy(&mut self) {
        self.untidy = false;
        let Some(writer) = self.partitions() else { return };
        self.tops.iter().for_each(|top| writer.tidy(top));
    }

    /// Whether groups may bind less now that partitions are in force: once for all that are settled
    /// in a row.
    pub(super) fn is_settled(&self) -> bool {
        self.mechanism() == Mechanism::Partitions && self.unsettled.is_empty()
    }

    /// Writes what a container's group has to be, and its pod's quota. A failure of the latter does
    /// not count.
    pub(super) fn settle(
        &mut self,
        id: &ContainerId,
        ledger: &Ledger,
    ) -> Result<(), RefusedTarget> {
        let settled = match self.partitions() {
            Some(writer) => self.ask(id, ledger, |target| writer.settle(target)),
            None => Ok(()),
        };
        if self.mechanism() != Mechanism::Runtime
            && let Some(target) = ledger.target(id)
        {
            self.settle_pod_quota(&target);
        }
        settled
    }
}

fn log_distrusted(before: &BTreeMap<CgroupPath, String>, now: &BTreeMap<CgroupPath, String>) {
    for (group, why) in now.iter().filter(|(group, _)| !before.contains_key(group)) {
        log::warn!("{group}: setting each cgroup below it individually: {why}");
    }
    for group in before.keys().filter(|group| !now.contains_key(group)) {
        log::info!("{group}: relied on again");
    }
}

fn log_unbound(before: &BTreeMap<PodUid, String>, now: &BTreeMap<PodUid, String>) {
    for (pod, why) in now.iter().filter(|(pod, _)| !before.contains_key(pod)) {
        log::warn!("pod {pod}: falling back to runtime updates: {why}");
    }
}

#[cfg(test)]
mod tests;
