//! Records where processes may run, and finds violations.
//!
//! A process is exclusive if none of its CPUs is reserved: the shared pool always has those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nri_cpu_manager::cpuset::CpuSet;

use super::history::{Histories, now, short};
use super::summary::{NAMESPACE, Summary};
use crate::{command, process};

const SHOWN: usize = 20;
/// Time for shared containers to leave exclusive CPUs once all activity has stopped.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before an event is triggered.
const NUDGE: Duration = Duration::from_secs(5);

/// In the plugin's log for each step of a plan that moves containers to better CPUs.
pub(super) const MOVED: &str = ": moved from exclusive CPU";

pub(super) struct Witness {
    reserved: CpuSet,
    /// Whether the plugin moves running containers to better CPUs.
    rebalance: bool,
    /// Whether the plugin is always alive, so that shared containers never run on exclusive CPUs of
    /// other pods.
    always: bool,
    observed: Mutex<Observations>,
}

#[derive(Default)]
struct Observations {
    /// By container id.
    running: BTreeMap<String, Running>,
    /// Exclusive CPUs by container of a pod, over all its restarts.
    held: BTreeMap<String, CpuSet>,
    /// Pairs of containers that met.
    met: BTreeSet<(String, String)>,
    exclusive: u64,
    moved: u64,
    /// Containers that have got as many other CPUs, by pod and name, and these CPUs: the plugin has
    /// to have logged each.
    rebalanced: Vec<(String, CpuSet)>,
    checks: u64,
    longest_repair: Duration,
    histories: Histories,
    /// Number and time of the last kill.
    killed: Option<(u64, String)>,
    /// Violations.
    findings: Vec<String>,
    /// Other observations.
    notes: Vec<String>,
}

#[derive(Clone)]
struct Running {
    name: String,
    pid: u32,
    /// Start time: distinguishes it from a later process with the same pid.
    born: u64,
}

impl Running {
    /// None once the process has ended.
    fn allowed(&self) -> Option<CpuSet> {
        let allowed = process::allowed(self.pid).ok()?;
        let alive = process::is_alive(self.pid) && process::born(self.pid) == Some(self.born);
        alive.then_some(allowed)
    }
}

impl Witness {
    pub(super) fn new(reserved: CpuSet, rebalance: bool, always: bool) -> Self {
        Self { reserved, rebalance, always, observed: Mutex::default() }
    }

    fn observed(&self) -> MutexGuard<'_, Observations> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, id: &str, pod: &str, container: &str, pid: u32) {
        let Some(born) = process::born(pid) else { return };
        let name = format!("{pod}/{container}");
        let mut observed = self.observed();
        observed.histories.record(&name, &format!("{} started", short(id)));
        observed.running.insert(id.to_owned(), Running { name, pid, born });
    }

    pub(super) fn forget(&self, id: &str) {
        let mut observed = self.observed();
        if let Some(running) = observed.running.remove(id) {
            observed.histories.record(&running.name, &format!("{} stopped", short(id)));
        }
    }

    /// The pod and its claims are gone.
    pub(super) fn forget_pod(&self, pod: &str) {
        let prefix = format!("{pod}/");
        let mut observed = self.observed();
        observed.held.retain(|name, _| !name.starts_with(&prefix));
        observed.histories.forget(|name| name.starts_with(&prefix));
    }

    /// Records an event that may explain a later finding.
    pub(super) fn record(&self, pod: &str, container: &str, what: &str) {
        self.observed().histories.record(&format!("{pod}/{container}"), what);
    }

    pub(super) fn killed(&self, kill: u64) {
        self.observed().killed = Some((kill, now()));
    }

    /// Whether the container has, or had before it ended, exclusive CPUs.
    pub(super) fn has_held(&self, pod: &str, container: &str) -> bool {
        self.observed().held.contains_key(&format!("{pod}/{container}"))
    }

    /// At any time: exclusive containers must neither meet nor move.
    pub(super) fn check(&self) {
        self.look(self.rebalance);
    }

    /// `moves`: containers may be on their way to better CPUs.
    fn look(&self, moves: bool) {
        let running = self.observed().running.clone();
        let allowed: Vec<(&String, &Running, CpuSet)> =
            running.iter().filter_map(|(id, r)| Some((id, r, r.allowed()?))).collect();
        let exclusive: Vec<_> =
            allowed.iter().filter(|(_, _, cpus)| cpus.is_disjoint(&self.reserved)).collect();
        let mut pairs = Vec::new();
        for (index, (a, first, cpus)) in exclusive.iter().enumerate() {
            for (b, second, others) in exclusive.iter().skip(index + 1) {
                // Counts only if the first still has them after the second was read.
                if !cpus.is_disjoint(others) && first.allowed() == Some(*cpus) {
                    let what = format!("{} on {cpus} met {} on {others}", first.name, second.name);
                    pairs.push(Meeting::new((a, &first.name), (b, &second.name), what));
                }
            }
        }
        let shared = allowed.iter().filter(|(_, _, cpus)| !cpus.is_disjoint(&self.reserved));
        for (b, second, others) in shared.filter(|_| self.always) {
            for (a, first, cpus) in &exclusive {
                // What the runtime loses may leave a container on CPUs of its own pod for a moment.
                let is_beside = pod_of(&first.name) == pod_of(&second.name);
                if !is_beside
                    && !cpus.is_disjoint(others)
                    && first.allowed() == Some(*cpus)
                    && second.allowed() == Some(*others)
                {
                    let what = format!("{} on {cpus} met {} on {others}", first.name, second.name);
                    pairs.push(Meeting::new((a, &first.name), (b, &second.name), what));
                }
            }
        }
        let mut observed = self.observed();
        observed.checks += 1;
        pairs.into_iter().for_each(|pair| observed.meet(pair));
        for (id, running, cpus) in &allowed {
            // A container stopped meanwhile may belong to a removed pod.
            if observed.running.contains_key(*id) {
                let held = observed.held.get(&running.name);
                // A partition has both sets for a moment.
                let is_midway = moves && held.is_some_and(|held| held.is_subset(cpus));
                if !is_midway || held == Some(cpus) {
                    observed.compare(&running.name, *cpus, self.reserved, self.rebalance);
                }
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
            let (intruders, deprived) = (self.intruders(), self.deprived());
            let midway = self.midway();
            if intruders.is_empty() && deprived.is_empty() && midway.is_empty() {
                let mut observed = self.observed();
                observed.longest_repair = observed.longest_repair.max(start.elapsed());
                return Ok(true);
            }
            if nudged.elapsed() > NUDGE {
                nudge()?;
                nudged = Instant::now();
            }
            if start.elapsed() > PATIENCE {
                let mut observed = self.observed();
                intruders.into_iter().for_each(|pair| observed.meet(pair));
                deprived.into_iter().for_each(|(name, cpus)| observed.deprive(&name, cpus));
                drop(observed);
                self.look(false);
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn intruders(&self) -> Vec<Meeting> {
        let running = self.observed().running.clone();
        let allowed: Vec<_> =
            running.iter().filter_map(|(id, r)| Some((id, &r.name, r.allowed()?))).collect();
        let mut meetings = Vec::new();
        for (a, owner, cpus) in &allowed {
            if !cpus.is_disjoint(&self.reserved) {
                continue;
            }
            for (b, other, others) in &allowed {
                if a != b && !cpus.is_disjoint(others) {
                    let what = format!(
                        "at rest: {other} may run on {others}, exclusive to {owner}: {cpus}"
                    );
                    meetings.push(Meeting::new((a, owner), (b, other), what));
                }
            }
        }
        meetings
    }

    /// Exclusive containers with more CPUs than they had: a move has stopped halfway.
    fn midway(&self) -> Vec<String> {
        let running = self.observed().running.clone();
        let held = self.observed().held.clone();
        let is_midway = |running: &&Running| {
            let Some(held) = held.get(&running.name) else { return false };
            let Some(cpus) = running.allowed() else { return false };
            cpus.is_disjoint(&self.reserved) && held.is_subset(&cpus) && *held != cpus
        };
        running.values().filter(is_midway).map(|running| running.name.clone()).collect()
    }

    /// Containers on shared CPUs that were exclusive before their restart.
    fn deprived(&self) -> Vec<(String, CpuSet)> {
        let running = self.observed().running.clone();
        let held = self.observed().held.clone();
        let shares = |running: &Running| -> Option<(String, CpuSet)> {
            held.get(&running.name)?;
            let cpus = running.allowed()?;
            (!cpus.is_disjoint(&self.reserved)).then(|| (running.name.clone(), cpus))
        };
        running.values().filter_map(shares).collect()
    }

    /// Records something that is not a violation.
    pub(super) fn note(&self, what: &str) {
        let mut observed = self.observed();
        if observed.notes.len() < SHOWN {
            observed.notes.push(format!("{} {what}", now()));
        }
    }

    /// Every move to better CPUs must be in the plugin's log over all its starts.
    pub(super) fn compare_with(&self, log: &str) {
        let mut observed = self.observed();
        let moves: Vec<&str> = log.lines().filter(|line| line.contains(MOVED)).collect();
        let is_logged = |(name, cpus): &(String, CpuSet)| {
            let (name, to) = (format!("{NAMESPACE}/{name}: "), format!(" to {cpus}: "));
            moves.iter().any(|line| line.contains(&name) && line.contains(&to))
        };
        let rebalanced = std::mem::take(&mut observed.rebalanced);
        let (logged, unlogged): (Vec<_>, Vec<_>) = rebalanced.into_iter().partition(is_logged);
        observed.rebalanced = logged;
        for (name, cpus) in unlogged {
            observed.moved += 1;
            observed.find(&format!("{name} moved to {cpus}, which nobody logged"), &[&name]);
        }
    }

    /// Adds the observations to the summary.
    pub(super) fn testify(&self, summary: &mut Summary) {
        let observed = self.observed();
        summary.rebalanced = self.rebalance.then_some(observed.rebalanced.len() as u64);
        summary.overlaps = observed.met.len() as u64;
        summary.exclusive = observed.exclusive;
        summary.moved = observed.moved;
        summary.checks = observed.checks;
        summary.longest_repair = command::millis(observed.longest_repair);
        summary.findings = observed.findings.iter().chain(&observed.notes).cloned().collect();
    }
}

impl Observations {
    fn meet(&mut self, Meeting { ids, names, what }: Meeting) {
        if self.met.insert(ids) {
            self.find(&what, &names.each_ref().map(String::as_str));
        }
    }

    /// A container keeps its first exclusive CPUs until its pod ends, or gets as many others if
    /// `rebalance` is configured. Without the plugin, it has none at first.
    fn compare(&mut self, name: &str, cpus: CpuSet, reserved: CpuSet, rebalance: bool) {
        let exclusive = cpus.is_disjoint(&reserved);
        match self.held.get(name).copied() {
            Some(before)
                if before != cpus && exclusive && rebalance && before.len() == cpus.len() =>
            {
                self.held.insert(name.to_owned(), cpus);
                self.rebalanced.push((name.to_owned(), cpus));
                self.histories.record(name, &format!("moved from {before} to {cpus}"));
            }
            Some(before) if before != cpus && exclusive => {
                self.held.insert(name.to_owned(), cpus);
                self.moved += 1;
                self.find(&format!("{name} moved from {before} to {cpus}"), &[name]);
            }
            None if exclusive => {
                self.exclusive += 1;
                self.held.insert(name.to_owned(), cpus);
            }
            _ => {}
        }
    }

    /// Exclusive CPUs that went to others without a replacement count as a move.
    fn deprive(&mut self, name: &str, cpus: CpuSet) {
        if let Some(before) = self.held.remove(name) {
            self.moved += 1;
            self.find(&format!("at rest: {name} lost {before} and shares {cpus}"), &[name]);
        }
    }

    /// `names` are the containers concerned.
    fn find(&mut self, what: &str, names: &[&str]) {
        if self.findings.len() < SHOWN {
            let after = self.killed.as_ref();
            let after = after.map(|(kill, when)| format!(" (after kill {kill} at {when})"));
            let histories = self.histories.of(names);
            self.findings.push(format!("{}{} {what}{histories}", now(), after.unwrap_or_default()));
        }
    }
}

fn pod_of(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

struct Meeting {
    /// Each pair counts once.
    ids: (String, String),
    names: [String; 2],
    what: String,
}

impl Meeting {
    /// Two containers, each by id and name.
    fn new(a: (&str, &str), b: (&str, &str), what: String) -> Self {
        let (first, second) = if a < b { (a, b) } else { (b, a) };
        Self {
            ids: (first.0.to_owned(), second.0.to_owned()),
            names: [first.1.to_owned(), second.1.to_owned()],
            what,
        }
    }
}

#[cfg(test)]
mod tests;
