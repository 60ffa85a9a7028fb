//! [`Interference`]: what others do to the cgroups that this program writes, and what follows. A value
//! that another program defends is an upper bound. A cgroup that is contested, refuses writes or is
//! cleared under running containers is not relied on.
//!
//! All of it is learnt from the kernel, for one cgroup at a time, and expires. It is not stored: a
//! program that still defends its value after a restart writes it again.

use super::hierarchy::Hierarchy;
use cpuset::{CgroupPath, CpuSet};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How long an occurrence counts.
const MEMORY: Duration = Duration::from_secs(600);
/// How long a cgroup that could not be written is not relied on: until the next check of all cgroups.
const RETRY: Duration = Duration::from_secs(10);
/// A value of fewer than all CPUs is a bound from this number of such writes on. A single write is
/// replaced: it may be manual, or this program's own from before the state directory was lost.
const DEFENDED: usize = 2;
/// After this number of such writes a cgroup is left to the other programs.
const CONTESTED: usize = 6;
/// A cgroup is volatile after it has lost its CPUs this often under running containers.
const CLEARED: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Interference {
    groups: BTreeMap<CgroupPath, Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// Writes of fewer than all CPUs by other programs. A write of all CPUs limits nobody, so it is
    /// replaced however often it occurs.
    limited: Occurrences,
    cleared: Occurrences,
    failed: Option<(String, Instant)>,
    bound: Option<Bound>,
    witness: Option<Witness>,
}

/// The times of the last occurrences, at most [`CONTESTED`].
#[derive(Debug, Default)]
struct Occurrences(VecDeque<Instant>);

/// The CPUs to which another program limits a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// As written: it may contain exclusive CPUs.
    pub cpus: CpuSet,
    pub since: Instant,
}

/// Why a cgroup is not relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Distrust {
    /// It cannot be written, or another program keeps changing it: plans do not write it.
    Untouched(String),
    /// Its CPUs can be cleared at any time: it is written again, and cgroups below it are bound as well.
    Volatile(String),
}

/// A container that ran before a cgroup's CPUs were read. If the same container still runs after the
/// CPUs are gone, the kernel has let them be cleared under it.
///
/// Once the processes in a container's cgroup have ended, the cgroup gets no new ones. So the kernel's
/// number of the cgroup and its `cgroup.events` identify the instance. Processes would not: from
/// another pid namespace they are invisible.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Witness {
    container: CgroupPath,
    id: u64,
}

impl Distrust {
    pub(super) fn why(&self) -> &str {
        match self {
            Distrust::Untouched(why) | Distrust::Volatile(why) => why,
        }
    }
}

impl Interference {
    /// Records a write by another program. Returns the bound that follows, if any.
    pub(super) fn written(
        &mut self,
        group: &CgroupPath,
        cpus: CpuSet,
        online: CpuSet,
        now: Instant,
    ) -> Option<Bound> {
        let record = self.groups.entry(group.clone()).or_default();
        record.bound = None;
        if !online.is_subset(&cpus) {
            record.limited.add(now);
            if record.limited.are(DEFENDED, now) {
                record.bound = Some(Bound { cpus, since: now });
            }
        }
        record.bound
    }

    /// Records that a cgroup has lost its CPUs. Returns whether a container ran in it all the time:
    /// otherwise it is no evidence, as systemd clears slices without processes.
    pub(super) fn cleared(&mut self, on: &Hierarchy, group: &CgroupPath, now: Instant) -> bool {
        let Some(record) = self.groups.get_mut(group) else { return false };
        let ran = record.witness.take().is_some_and(|witness| witness.runs(on));
        if ran {
            record.cleared.add(now);
        }
        ran
    }

    pub(super) fn failed(&mut self, group: &CgroupPath, why: String, now: Instant) {
        self.groups.entry(group.clone()).or_default().failed = Some((why, now));
    }

    /// Finds a container that runs while a cgroup has CPUs from this program. `pods` are the cgroups of
    /// pods in it, `has_cpus` reads whether it has these CPUs now.
    pub(super) fn find_witness<'a>(
        &mut self,
        on: &Hierarchy,
        group: &CgroupPath,
        mut pods: impl Iterator<Item = &'a CgroupPath>,
        has_cpus: impl FnOnce() -> bool,
    ) {
        let record = self.groups.entry(group.clone()).or_default();
        if record.witness.as_ref().is_some_and(|witness| witness.runs(on)) {
            return;
        }
        // In this order: a container that starts after the CPUs are read proves nothing about them.
        let witness = pods.find_map(|pod| Witness::in_pod(on, pod));
        record.witness = if has_cpus() { witness } else { None };
    }

    pub(super) fn bounds(&self) -> impl Iterator<Item = (&CgroupPath, Bound)> {
        self.groups.iter().filter_map(|(group, record)| Some((group, record.bound?)))
    }

    pub(super) fn distrusted(&self, now: Instant) -> impl Iterator<Item = (&CgroupPath, Distrust)> {
        self.groups.iter().filter_map(move |(group, record)| Some((group, record.distrust(now)?)))
    }

    pub(super) fn retain(&mut self, exists: impl Fn(&CgroupPath) -> bool) {
        self.groups.retain(|group, _| exists(group));
    }
}

impl Record {
    fn distrust(&self, now: Instant) -> Option<Distrust> {
        if let Some((why, then)) = &self.failed
            && now.duration_since(*then) < RETRY
        {
            Some(Distrust::Untouched(why.clone()))
        } else if self.limited.are(CONTESTED, now) {
            Some(Distrust::Untouched("other programs keep changing its CPUs".to_owned()))
        } else if self.cleared.are(CLEARED, now) {
            let why = "its CPUs were cleared repeatedly while containers ran in it";
            Some(Distrust::Volatile(why.to_owned()))
        } else {
            None
        }
    }
}

impl Occurrences {
    fn add(&mut self, now: Instant) {
        if self.0.len() >= CONTESTED {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Whether `many` occurred within ten minutes, the last one less than ten minutes ago.
    fn are(&self, many: usize, now: Instant) -> bool {
        let Some(last) = self.0.back() else { return false };
        let close = self.0.iter().filter(|then| last.duration_since(**then) < MEMORY).count();
        close >= many && now.duration_since(*last) < MEMORY
    }
}

impl Witness {
    fn in_pod(on: &Hierarchy, pod: &CgroupPath) -> Option<Witness> {
        on.children(pod).into_iter().find_map(|container| {
            let id = on.id(&container)?;
            if on.is_populated(&container)? { Some(Witness { container, id }) } else { None }
        })
    }

    fn runs(&self, on: &Hierarchy) -> bool {
        on.is_populated(&self.container) == Some(true) && on.id(&self.container) == Some(self.id)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests need some moment to start from")]
mod tests {
    use super::*;

    fn path() -> CgroupPath {
        CgroupPath::new("kubepods/burstable").unwrap()
    }

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn distrust_ends_ten_minutes_after_the_last_evidence_or_ten_seconds_after_a_failure() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut contested = Interference::default();
        for second in 0..6 {
            assert_eq!(contested.distrusted(at(second)).count(), 0);
            contested.written(&path(), cpus("0-3"), cpus("0-7"), at(second));
        }
        let mut cleared = Interference::default();
        for second in [0, 300, 800] {
            cleared.groups.entry(path()).or_default().cleared.add(at(second));
        }
        let mut failed = Interference::default();
        failed.failed(&path(), "no".to_owned(), at(0));
        for (interference, last) in [(contested, 604), (cleared, 1399), (failed, 9)] {
            assert_eq!(interference.distrusted(at(last)).count(), 1);
            assert_eq!(interference.distrusted(at(last + 1)).count(), 0);
        }
    }

    #[test]
    fn occurrences_that_are_ten_minutes_apart_are_no_evidence() {
        let start = Instant::now();
        let mut rare = Interference::default();
        for times in 0..20 {
            let now = start + MEMORY * times;
            assert_eq!(rare.written(&path(), cpus("0-3"), cpus("0-7"), now), None);
            rare.groups.entry(path()).or_default().cleared.add(now);
            assert_eq!(rare.distrusted(now).count(), 0);
        }
    }
}
