//! Records where processes may run, and finds violations.
//!
//! A process is exclusive if none of its CPUs is reserved: the shared pool always has those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use cpuset::CpuSet;

use super::history::{Histories, now, short};
use super::summary::{Changes, Summary};
use crate::{command, process};

mod judgement;
mod log;

use judgement::{Claim, Verdict};
use log::Log;

const SHOWN: usize = 20;
/// Time for shared containers to leave exclusive CPUs once all activity has stopped.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before an event is triggered.
const NUDGE: Duration = Duration::from_secs(5);

/// In the plugin's log for each step of a plan that moves containers to better CPUs.
pub(super) const MOVED: &str = ": moved from exclusive CPU";

pub(super) struct Witness {
    reserved: CpuSet,
    changes: Changes,
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
    /// Numbers of CPUs that a container of a pod has asked for since the last pass, the last one is
    /// what it asks for now.
    requests: BTreeMap<String, Vec<usize>>,
    offline: CpuSet,
    /// Exclusive CPUs that have been offline since a container of a pod got them: it may have
    /// others in their place.
    lost: BTreeMap<String, CpuSet>,
    /// Pairs of containers that met.
    met: BTreeSet<(String, String)>,
    exclusive: u64,
    moved: u64,
    resized: u64,
    leaks: u64,
    /// The plugin has to have logged each.
    rebalanced: Vec<Move>,
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

/// A container of a pod that has got other CPUs.
struct Move {
    name: String,
    from: CpuSet,
    to: CpuSet,
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
    pub(super) fn new(reserved: CpuSet, changes: Changes, always: bool) -> Self {
        Self { reserved, changes, always, observed: Mutex::default() }
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
        observed.requests.retain(|name, _| !name.starts_with(&prefix));
        observed.lost.retain(|name, _| !name.starts_with(&prefix));
        observed.histories.forget(|name| name.starts_with(&prefix));
    }

    /// Records an event that may explain a later finding.
    pub(super) fn record(&self, pod: &str, container: &str, what: &str) {
        self.observed().histories.record(&format!("{pod}/{container}"), what);
    }

    /// From now on the container asks for so many CPUs.
    pub(super) fn requests(&self, pod: &str, container: &str, cpus: usize) {
        self.observed().requests.entry(format!("{pod}/{container}")).or_default().push(cpus);
    }

    /// The CPU is about to go offline.
    pub(super) fn loses(&self, cpu: CpuSet) {
        let mut observed = self.observed();
        observed.offline |= cpu;
        let Observations { held, lost, .. } = &mut *observed;
        for (name, _) in held.iter().filter(|(_, held)| cpu.is_subset(held)) {
            *lost.entry(name.clone()).or_default() |= cpu;
        }
    }

    /// The CPU is online again.
    pub(super) fn regains(&self, cpu: CpuSet) {
        self.observed().offline -= cpu;
    }

    /// The root cgroup has CPUs of a partition.
    pub(super) fn leaks(&self, what: &str) {
        let mut observed = self.observed();
        observed.leaks += 1;
        observed.find(what, &[]);
    }

    /// The CPUs of all pods that have not ended.
    pub(super) fn exclusive(&self) -> CpuSet {
        self.observed().held.values().copied().collect()
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
        self.look(false);
    }

    /// `at_rest`: no container is on its way to other CPUs.
    fn look(&self, at_rest: bool) {
        let (running, asked) = {
            let observed = self.observed();
            (observed.running.clone(), observed.asked())
        };
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
                self.compare(&mut observed, &running.name, *cpus, at_rest);
            }
        }
        observed.forget_requests(&asked);
    }

    /// Shared CPUs are no claim, whatever the container had before.
    fn compare(&self, observed: &mut Observations, name: &str, cpus: CpuSet, at_rest: bool) {
        if cpus.is_disjoint(&self.reserved) {
            observed.compare(name, cpus, self.changes, at_rest);
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
                observed.recover();
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
                self.look(true);
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

    /// Exclusive containers that may not stay on their CPUs: a move or a resize has stopped halfway.
    fn midway(&self) -> Vec<String> {
        let running = self.observed().running.clone();
        let is_midway = |running: &&Running| {
            let Some(cpus) = running.allowed() else { return false };
            let observed = self.observed();
            let Some(claim) = observed.claim(&running.name) else { return false };
            cpus.is_disjoint(&self.reserved)
                && claim.verdict(cpus, self.changes, true) == Verdict::Violation
        };
        running.values().filter(is_midway).map(|running| running.name.clone()).collect()
    }

    /// Containers on shared CPUs that were exclusive before their restart. Not those whose CPUs all
    /// went offline: others may have them by now.
    fn deprived(&self) -> Vec<(String, CpuSet)> {
        let running = self.observed().running.clone();
        let shares = |running: &Running| -> Option<(String, CpuSet)> {
            let cpus = running.allowed()?;
            let observed = self.observed();
            let Claim { held, lost, .. } = observed.claim(&running.name)?;
            let has_lost_all = !lost.is_empty() && held.is_subset(&lost);
            let is_deprived = !cpus.is_disjoint(&self.reserved) && !has_lost_all;
            if is_deprived { Some((running.name.clone(), cpus)) } else { None }
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
        let log = Log::of(log);
        let rebalanced = std::mem::take(&mut observed.rebalanced);
        let (logged, unlogged): (Vec<_>, Vec<_>) =
            rebalanced.into_iter().partition(|Move { name, from, to }| log.leads(name, *from, *to));
        observed.rebalanced = logged;
        for Move { name, from, to } in unlogged {
            observed.moved += 1;
            let what = format!("{name} moved from {from} to {to}, which nobody logged");
            observed.find(&what, &[&name]);
        }
    }

    /// Adds the observations to the summary.
    pub(super) fn testify(&self, summary: &mut Summary) {
        let observed = self.observed();
        let Changes { rebalance, resizes, .. } = self.changes;
        summary.rebalanced = rebalance.then_some(observed.rebalanced.len() as u64);
        summary.resized = resizes.then_some(observed.resized);
        summary.leaks = observed.leaks;
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

    /// None without exclusive CPUs.
    fn claim(&self, name: &str) -> Option<Claim<'_>> {
        Some(Claim {
            held: *self.held.get(name)?,
            requests: self.requests.get(name).map_or(&[], Vec::as_slice),
            lost: self.lost.get(name).copied().unwrap_or_default(),
        })
    }

    /// A container keeps its first exclusive CPUs until its pod ends, except for the changes that
    /// the storm makes. Without the plugin, it has none at first.
    fn compare(&mut self, name: &str, cpus: CpuSet, changes: Changes, at_rest: bool) {
        let Some(claim) = self.claim(name) else {
            let requests = self.requests.get(name);
            if requests.is_none_or(|requests| requests.contains(&cpus.len())) {
                self.exclusive += 1;
                self.hold(name, cpus);
            }
            return;
        };
        let before = claim.held;
        match claim.verdict(cpus, changes, at_rest) {
            Verdict::Unchanged | Verdict::Underway => return,
            Verdict::Resized => self.resized += 1,
            Verdict::Replaced => {}
            Verdict::Rebalanced => {
                self.rebalanced.push(Move { name: name.to_owned(), from: before, to: cpus });
            }
            Verdict::Violation => {
                self.moved += 1;
                self.find(&format!("{name} moved from {before} to {cpus}"), &[name]);
            }
        }
        self.hold(name, cpus);
        self.histories.record(name, &format!("went from {before} to {cpus}"));
    }

    fn hold(&mut self, name: &str, cpus: CpuSet) {
        self.held.insert(name.to_owned(), cpus);
        let lost = self.lost.remove(name).unwrap_or_default();
        let lost = (lost | self.offline) & cpus;
        if !lost.is_empty() {
            self.lost.insert(name.to_owned(), lost);
        }
    }

    /// How many requests of each container are known.
    fn asked(&self) -> BTreeMap<String, usize> {
        self.requests.iter().map(|(name, requests)| (name.clone(), requests.len())).collect()
    }

    /// A pass has seen what came of all requests before these last ones.
    fn forget_requests(&mut self, asked: &BTreeMap<String, usize>) {
        for (name, requests) in &mut self.requests {
            let seen = asked.get(name).copied().unwrap_or_default();
            requests.drain(..seen.min(requests.len()).saturating_sub(1));
        }
    }

    /// While all CPUs are online: containers that have theirs again keep them.
    fn recover(&mut self) {
        let running = self.running.values();
        for Running { name, .. } in
            running.filter(|one| one.allowed() == self.held.get(&one.name).copied())
        {
            self.lost.remove(name);
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
