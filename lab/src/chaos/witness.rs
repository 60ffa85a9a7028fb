//! Records where processes may run, and finds violations.
//!
//! A process is exclusive if none of its CPUs is reserved: the shared pool always has those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use cpuset::CpuSet;

use super::summary::{Changes, StormSettings, Summary};
use crate::{command, process};

/// Findings and notes that are kept.
const SHOWN: usize = 20;
/// Time for shared containers to leave exclusive CPUs once all activity has stopped.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before an event is triggered.
const NUDGE: Duration = Duration::from_secs(5);

pub(super) struct Witness {
    reserved: CpuSet,
    changes: Changes,
    /// Whether the plugin is always alive, so that shared containers never run on exclusive CPUs of
    /// other pods.
    always: bool,
    observed: Mutex<Observations>,
}

#[derive(Default)]
pub(super) struct Observations {
    /// By container id.
    running: BTreeMap<String, Running>,
    /// Exclusive CPUs by container of a pod, over all its restarts.
    held: BTreeMap<String, CpuSet>,
    /// Pairs of containers that met.
    met: BTreeSet<[String; 2]>,
    /// Number and time of the last kill.
    killed: Option<(u64, String)>,
    /// Observations that are no violations.
    notes: Vec<String>,
    /// All counts, and the violations.
    pub(super) summary: Summary,
}

#[derive(Clone)]
struct Running {
    /// Pod and container.
    name: String,
    pid: u32,
    /// Start time: distinguishes it from a later process with the same pid.
    born: u64,
}

/// A running container, by its id, and where it may run.
struct Seen {
    id: String,
    running: Running,
    cpus: CpuSet,
}

impl Running {
    /// None once the process has ended.
    fn allowed(&self) -> Option<CpuSet> {
        let allowed = process::allowed(self.pid).ok()?;
        let alive = process::is_alive(self.pid) && process::born(self.pid) == Some(self.born);
        alive.then_some(allowed)
    }
}

impl Seen {
    fn pod(&self) -> &str {
        self.running.name.split('/').next().unwrap_or_default()
    }

    fn still(&self) -> bool {
        self.running.allowed() == Some(self.cpus)
    }
}

impl Witness {
    pub(super) fn new(reserved: CpuSet, settings: &StormSettings) -> Self {
        let StormSettings { changes, only_runtime: always, .. } = *settings;
        let changed = if changes.any() { Some(0) } else { None };
        let summary = Summary { changed, ..Summary::default() };
        let observed = Mutex::new(Observations { summary, ..Observations::default() });
        Self { reserved, changes, always, observed }
    }

    pub(super) fn observed(&self) -> MutexGuard<'_, Observations> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, id: &str, pod: &str, container: &str, pid: u32) {
        let Some(born) = process::born(pid) else { return };
        let running = Running { name: format!("{pod}/{container}"), pid, born };
        self.observed().running.insert(id.to_owned(), running);
    }

    pub(super) fn forget(&self, id: &str) {
        self.observed().running.remove(id);
    }

    /// The pod and its claims are gone.
    pub(super) fn forget_pod(&self, pod: &str) {
        let prefix = format!("{pod}/");
        self.observed().held.retain(|name, _| !name.starts_with(&prefix));
    }

    pub(super) fn killed(&self, kill: u64) {
        self.observed().killed = Some((kill, now()));
    }

    /// Running containers: those with exclusive CPUs, and those that share.
    fn observe(&self) -> [Vec<Seen>; 2] {
        let running = self.observed().running.clone();
        let all = running.into_iter().filter_map(|(id, running)| {
            let cpus = running.allowed()?;
            Some(Seen { id, running, cpus })
        });
        let (exclusive, shared) = all.partition(|one| one.cpus.is_disjoint(&self.reserved));
        [exclusive, shared]
    }

    /// At any time: exclusive containers must neither meet nor move.
    pub(super) fn check(&self) {
        let [exclusive, shared] = self.observe();
        let mut meetings = Vec::new();
        for (index, first) in exclusive.iter().enumerate() {
            for second in exclusive.iter().skip(index + 1) {
                // Counts only if the first still has them after the second was read.
                if !first.cpus.is_disjoint(&second.cpus) && first.still() {
                    meetings.push((first, second));
                }
            }
            for second in shared.iter().filter(|_| self.always) {
                // What the runtime loses may leave a container on CPUs of its own pod for a moment.
                let is_of_pod = first.pod() == second.pod();
                if !is_of_pod
                    && !first.cpus.is_disjoint(&second.cpus)
                    && first.still()
                    && second.still()
                {
                    meetings.push((first, second));
                }
            }
        }
        let mut observed = self.observed();
        observed.summary.checks += 1;
        for (first, second) in meetings {
            observed.meet(first, second, "");
        }
        for Seen { id, running, cpus } in &exclusive {
            // A container stopped meanwhile may belong to a removed pod.
            if observed.running.contains_key(id) {
                observed.compare(&running.name, *cpus);
            }
        }
    }

    /// Checks all containers while all activity has stopped and the plugin has caught up: none may
    /// be on exclusive CPUs of others, and those that had some must have them again.
    ///
    /// containerd loses updates of containers that are being started. The plugin finds that in a
    /// check pass and repairs it with its next answer to an event, which `nudge` triggers.
    pub(super) fn check_at_rest(&self, nudge: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        self.check();
        let start = Instant::now();
        let mut nudged = start;
        loop {
            let [exclusive, shared] = self.observe();
            let mut intruders = Vec::new();
            for owner in &exclusive {
                let others = exclusive.iter().chain(&shared).filter(|one| one.id != owner.id);
                intruders.extend(
                    others.filter(|one| !one.cpus.is_disjoint(&owner.cpus)).map(|one| (owner, one)),
                );
            }
            let deprived = self.deprived(&shared);
            let mut observed = self.observed();
            if intruders.is_empty() && deprived.is_empty() {
                let longest = &mut observed.summary.longest_repair;
                *longest = command::millis(start.elapsed()).max(*longest);
                return Ok(true);
            }
            if start.elapsed() > PATIENCE {
                for (owner, other) in intruders {
                    observed.meet(owner, other, "at rest: ");
                }
                for Seen { running, cpus, .. } in deprived {
                    observed.deprive(&running.name, *cpus);
                }
                return Ok(false);
            }
            drop(observed);
            if nudged.elapsed() > NUDGE {
                nudge()?;
                nudged = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Containers on shared CPUs that were exclusive before. Not where CPUs go offline: others may
    /// have theirs by now.
    fn deprived<'a>(&self, shared: &'a [Seen]) -> Vec<&'a Seen> {
        if self.changes.hotplug {
            return Vec::new();
        }
        let observed = self.observed();
        shared.iter().filter(|one| observed.held.contains_key(&one.running.name)).collect()
    }

    /// Records something that is not a violation.
    pub(super) fn note(&self, what: &str) {
        let mut observed = self.observed();
        if observed.notes.len() < SHOWN {
            observed.notes.push(format!("{} {what}", now()));
        }
    }

    /// With the notes after the violations.
    pub(super) fn summary(&self) -> Summary {
        let observed = self.observed();
        let mut summary = observed.summary.clone();
        summary.findings.extend(observed.notes.iter().cloned());
        summary
    }
}

impl Observations {
    /// Each pair counts once.
    fn meet(&mut self, owner: &Seen, other: &Seen, when: &str) {
        let mut ids = [owner.id.clone(), other.id.clone()];
        ids.sort();
        if self.met.insert(ids) {
            self.summary.overlaps += 1;
            self.find(&format!("{when}{owner} met {other}"));
        }
    }

    /// A container keeps its first exclusive CPUs until its pod ends. If something changes them on
    /// purpose, each change counts apart; whether it was right is what the simulation checks.
    /// Without the plugin, a container has none at first.
    fn compare(&mut self, name: &str, cpus: CpuSet) {
        let before = self.held.insert(name.to_owned(), cpus);
        let Some(before) = before else {
            self.summary.exclusive += 1;
            return;
        };
        if before == cpus {
            return;
        }
        if let Some(changed) = &mut self.summary.changed {
            *changed += 1;
        } else {
            self.summary.moved += 1;
            self.find(&format!("{name} moved from {before} to {cpus}"));
        }
    }

    /// Exclusive CPUs that went to others without a replacement count as a move.
    fn deprive(&mut self, name: &str, cpus: CpuSet) {
        if let Some(before) = self.held.remove(name) {
            self.summary.moved += 1;
            self.find(&format!("at rest: {name} lost {before} and shares {cpus}"));
        }
    }

    fn find(&mut self, what: &str) {
        if self.summary.findings.len() < SHOWN {
            let after = self.killed.as_ref();
            let after = after.map(|(kill, when)| format!(" (after kill {kill} at {when})"));
            self.summary.findings.push(format!("{}{} {what}", now(), after.unwrap_or_default()));
        }
    }
}

/// With the part of the id that `ctr` accepts and the runtime logs.
impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, running, cpus } = self;
        write!(f, "{} ({}) on {cpus}", running.name, id.get(..12).unwrap_or(id))
    }
}

/// Time of day in UTC, in the format of both logs: `12:34:56.789`.
fn now() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since_epoch.as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, since_epoch.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn witness(resizes: bool) -> Witness {
        let settings = StormSettings {
            kills: 3,
            creations_per_kill: 1,
            workers: 1,
            seed: 1,
            reserved: "0".to_owned(),
            changes: Changes { resizes, ..Changes::default() },
            only_runtime: false,
        };
        Witness::new(cpus("0"), &settings)
    }

    /// Overlaps, moves and changes, as counted after these readings of one container.
    fn counted(witness: &Witness, readings: &[&str]) -> (u64, u64, Option<u64>) {
        for list in readings {
            witness.observed().compare("pod/c0", cpus(list));
        }
        let Summary { overlaps, moved, changed, .. } = witness.summary();
        (overlaps, moved, changed)
    }

    #[test]
    fn a_move_counts_until_the_pod_ends_unless_it_is_on_purpose() {
        let strict = witness(false);
        assert_eq!(counted(&strict, &["15", "15", "11"]), (0, 1, None));
        strict.forget_pod("pod");
        assert_eq!(counted(&strict, &["7"]), (0, 1, None));
        let resized = witness(true);
        assert_eq!(counted(&resized, &["4-5", "4-6", "4-6"]), (0, 0, Some(1)));
    }

    #[test]
    fn containers_that_meet_or_lose_their_cpus_count_once() {
        let witness = witness(false);
        let pid = std::process::id();
        let [first, second] = ["pod/c0", "other/c0"].map(|name| {
            let running = Running { name: name.to_owned(), pid, born: process::born(pid).unwrap() };
            Seen { id: format!("id of {name}"), running, cpus: process::allowed(pid).unwrap() }
        });
        assert!(first.still() && first.pod() == "pod");
        witness.killed(3);
        witness.observed().meet(&first, &second, "");
        witness.observed().meet(&second, &first, "at rest: ");
        let shared = [first, second];
        assert!(witness.deprived(&shared).is_empty(), "it never had any");
        assert_eq!(counted(&witness, &["15"]), (1, 0, None));
        let deprived = witness.deprived(&shared);
        assert_eq!(deprived.len(), 1);
        witness.observed().deprive(&deprived[0].running.name, deprived[0].cpus);
        assert!(witness.deprived(&shared).is_empty());
        assert_eq!(counted(&witness, &[]), (1, 1, None));
        let findings = witness.summary().findings;
        assert!(findings[0].contains("(after kill 3 at "), "{findings:?}");
    }
}
