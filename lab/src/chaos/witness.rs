//! The witness: asks the processes where they may run, and remembers.
//!
//! A process holds its CPUs exclusively when no reserved CPU is among them: the shared pool always has those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nri_cpu_manager::cpuset::CpuSet;

use super::Summary;
use crate::process;

/// Findings that are told in words.
const TOLD: usize = 20;
/// How long shared containers may take to leave CPUs after all has come to rest.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nothing happens then.
const NUDGE: Duration = Duration::from_secs(5);

pub(super) struct Witness {
    reserved: CpuSet,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// By container id.
    running: BTreeMap<String, Running>,
    /// The exclusive CPUs of a pod's container, over all its restarts.
    held: BTreeMap<String, CpuSet>,
    /// Pairs of containers that met.
    met: BTreeSet<(String, String)>,
    exclusive: u64,
    moved: u64,
    looks: u64,
    longest_repair: Duration,
    findings: Vec<String>,
}

#[derive(Clone)]
struct Running {
    /// Pod and container.
    name: String,
    pid: u32,
    /// Tells a process from a later one with the same id.
    born: u64,
}

impl Running {
    /// Where it may run, if it lives.
    fn allowed(&self) -> Option<CpuSet> {
        let allowed = process::allowed(self.pid).ok()?;
        let alive = process::is_alive(self.pid) && process::born(self.pid) == Some(self.born);
        alive.then_some(allowed)
    }
}

impl Witness {
    pub(super) fn new(reserved: CpuSet) -> Self {
        Self { reserved, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A container runs from now on.
    pub(super) fn watch(&self, id: &str, pod: &str, container: &str, pid: u32) {
        let Some(born) = process::born(pid) else { return };
        let name = format!("{pod}/{container}");
        self.seen().running.insert(id.to_owned(), Running { name, pid, born });
    }

    /// A container has been stopped.
    pub(super) fn forget(&self, id: &str) {
        self.seen().running.remove(id);
    }

    /// A pod is gone, and with it its claims.
    pub(super) fn forget_pod(&self, pod: &str) {
        let prefix = format!("{pod}/");
        self.seen().held.retain(|name, _| !name.starts_with(&prefix));
    }

    /// Looks at everybody, at any moment: exclusive containers must not meet, nor change.
    pub(super) fn look(&self) {
        let running = self.seen().running.clone();
        let allowed: Vec<(&String, &Running, CpuSet)> =
            running.iter().filter_map(|(id, r)| Some((id, r, r.allowed()?))).collect();
        let exclusive: Vec<_> =
            allowed.iter().filter(|(_, _, cpus)| cpus.is_disjoint(&self.reserved)).collect();
        let mut pairs = Vec::new();
        for (index, (a, first, cpus)) in exclusive.iter().enumerate() {
            for (b, second, others) in exclusive.iter().skip(index + 1) {
                // It counts only if the first one still had them after the second one had been read.
                if !cpus.is_disjoint(others) && first.allowed() == Some(*cpus) {
                    let what =
                        format!("{} on {cpus} and {} on {others} met", first.name, second.name);
                    pairs.push((((*a).clone(), (*b).clone()), what));
                }
            }
        }
        let mut seen = self.seen();
        seen.looks += 1;
        for (pair, what) in pairs {
            seen.meet(pair, what);
        }
        for (id, running, cpus) in &allowed {
            // One that was stopped meanwhile may belong to a pod that is gone.
            if seen.running.contains_key(*id) {
                seen.compare(&running.name, *cpus, self.reserved);
            }
        }
    }

    /// Looks at everybody when only `nudge` makes something happen, and the plugin has caught up: nobody at all may be on
    /// exclusive CPUs. Whether that is so.
    ///
    /// containerd swallows changes for containers that it is just starting. The plugin sees that when it verifies, and
    /// repairs it with its next answer to an event: that is what the nudge is for.
    pub(super) fn look_at_rest(&self, nudge: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        self.look();
        let start = Instant::now();
        let mut nudged = start;
        loop {
            let intruders = self.intruders();
            if intruders.is_empty() {
                let mut seen = self.seen();
                seen.longest_repair = seen.longest_repair.max(start.elapsed());
                return Ok(true);
            }
            if nudged.elapsed() > NUDGE {
                nudge()?;
                nudged = Instant::now();
            }
            if start.elapsed() > PATIENCE {
                let mut seen = self.seen();
                for (pair, what) in intruders {
                    seen.meet(pair, what);
                }
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn intruders(&self) -> Vec<((String, String), String)> {
        let running = self.seen().running.clone();
        let allowed: Vec<_> =
            running.iter().filter_map(|(id, r)| Some((id, &r.name, r.allowed()?))).collect();
        let mut found = Vec::new();
        for (a, owner, cpus) in &allowed {
            if !cpus.is_disjoint(&self.reserved) {
                continue;
            }
            for (b, other, others) in &allowed {
                if a != b && !cpus.is_disjoint(others) {
                    let what = format!("at rest, {other} may run on {others}, {owner} has {cpus}");
                    found.push((((*a).clone(), (*b).clone()), what));
                }
            }
        }
        found
    }

    /// Something worth telling that is no broken promise.
    pub(super) fn note(&self, what: String) {
        self.seen().find(what);
    }

    /// Adds what was seen.
    pub(super) fn testify(&self, summary: &mut Summary) {
        let seen = self.seen();
        summary.overlaps = seen.met.len() as u64;
        (summary.exclusive, summary.moved, summary.looks) =
            (seen.exclusive, seen.moved, seen.looks);
        summary.longest_repair = u64::try_from(seen.longest_repair.as_millis()).unwrap_or(u64::MAX);
        summary.findings.clone_from(&seen.findings);
    }
}

impl Seen {
    fn meet(&mut self, (a, b): (String, String), what: String) {
        let pair = if a < b { (a, b) } else { (b, a) };
        if self.met.insert(pair) {
            self.find(what);
        }
    }

    /// The first exclusive CPUs of a pod's container are its own until the pod ends. A container that came while the
    /// plugin was away has none at first.
    fn compare(&mut self, name: &str, cpus: CpuSet, reserved: CpuSet) {
        let exclusive = cpus.is_disjoint(&reserved);
        match self.held.get(name).copied() {
            Some(before) if before != cpus && exclusive => {
                self.held.insert(name.to_owned(), cpus);
                self.moved += 1;
                self.find(format!("{name} had {before}, and now {cpus}"));
            }
            None if exclusive => {
                self.exclusive += 1;
                self.held.insert(name.to_owned(), cpus);
            }
            _ => {}
        }
    }

    fn find(&mut self, what: String) {
        if self.findings.len() < TOLD {
            self.findings.push(what);
        }
    }
}
