//! [`Oracle`]: what must hold on the node, by what the runtime was told and what the simulated
//! kernel lets processes do. It knows nothing of the plugin's books.
//!
//! An overlap is allowed in the windows of this list, and nowhere else:
//!
//! | window | where | ends |
//! |---|---|---|
//! | pause container | its pod | 50 ms after the answer to `RunPodSandbox` |
//! | starting | a container that updates cannot reach before it runs (1) | 25 s after its start |
//! | update under way, from the call that asks for it | the container | 2.5 s after the runtime has made it |
//! | failed update | the container (1) | 25 s later |
//! | cleared by systemd | a slice that had emptied | 100 ms later |
//! | written by another program | a class or pod; a container | 100 ms; 25 s later |
//! | refused by the kernel | all: nobody enters what another cannot leave | 25 s after the last refusal |
//! | hotplug | all | 5 s later |
//! | without a CPU | all, while the plugin's process gets none | 1 s later |
//! | while the plugin was away | what came or was changed in that time | 3 s after it is back |
//!
//! In every second without an operation the plugin makes at most 200 writes, and it never gets more
//! than 2,000 inputs in a second.
//!
//! (1) Where the runtime's updates bind, or its pod has exclusive CPUs. Otherwise the cgroups above
//! bind it, and no update has to reach it.

use crate::pods::{Container, Paths, PodId, Serial, State};
use crate::settings::Trouble;
use crate::world::World;
use log::Level;
use nri_cpu_manager::cpuset::CpuSet;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long after the last operation, fault and report of an end everything is exact.
pub const SETTLED: Duration = Duration::from_secs(180);
/// For how long the plugin writes nothing by then.
const QUIET: Duration = Duration::from_secs(25);

/// Windows of containers that only updates bind.
pub const STARTING: &str = "starting";
pub const FAILED_UPDATE: &str = "failed update";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Pause(PodId),
    Starting(Serial),
    Update(Serial),
    /// Writes below a cgroup are refused. Others cannot have what is not left there.
    Refused(PodId),
}

#[derive(Debug)]
struct Window {
    name: &'static str,
    /// This cgroup and all below it; empty for all.
    dir: String,
    /// `None` while it is open.
    until: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Oracle {
    keyed: BTreeMap<Key, Window>,
    timed: Vec<Window>,
    /// What has come or was changed while the plugin was away.
    unwatched: BTreeSet<String>,
    pub hotplugged: bool,
    /// Cgroups of classes and pods that another program has written, and how often.
    pub written: BTreeMap<String, u32>,
    /// When the end of a container was reported last.
    pub last_report: Duration,
    /// Something may run elsewhere since the last look.
    pub changed: bool,
    /// The last look saw an overlap that was allowed.
    overlaps: bool,
    /// A warning or error in the log.
    complaint: Option<String>,
}

impl Oracle {
    pub fn open(&mut self, key: Key, name: &'static str, dir: &str) {
        self.keyed.insert(key, Window { name, dir: dir.to_owned(), until: None });
    }

    pub fn close(&mut self, key: Key, until: Duration) {
        if let Some(window) = self.keyed.get_mut(&key) {
            window.until = Some(until);
        }
    }

    pub fn allow(&mut self, name: &'static str, dir: &str, until: Duration) {
        self.timed.push(Window { name, dir: dir.to_owned(), until: Some(until) });
    }

    pub fn unwatched(&mut self, dir: &str) {
        self.unwatched.insert(dir.to_owned());
    }

    /// What was allowed for now stays so until the plugin is back: it learns that from the list.
    pub fn disconnected(&mut self, now: Duration) {
        let all = self.keyed.values().chain(&self.timed);
        let active = all.filter(|window| window.until.is_none_or(|until| now <= until));
        self.unwatched.extend(active.map(|window| window.dir.clone()));
        self.keyed.retain(|key, window| !matches!(key, Key::Update(_)) || window.until.is_some());
    }

    /// The plugin has answered with what it changes.
    pub fn synchronized(&mut self, now: Duration) {
        for dir in std::mem::take(&mut self.unwatched) {
            self.allow("while the plugin was away", &dir, now + Duration::from_secs(3));
        }
    }

    pub fn logged(&mut self, level: Level, line: &str) {
        let is_expected = line.contains("refused") || line.starts_with("sim");
        if level <= Level::Warn && !is_expected && self.complaint.is_none() {
            self.complaint = Some(format!("{level} {line}"));
        }
    }

    /// Which window covers this cgroup now. `is_bound`: cgroups above bind it.
    fn window(&self, dir: &str, now: Duration, is_bound: bool) -> Option<&'static str> {
        let covers = |above: &str| {
            above.is_empty()
                || dir.strip_prefix(above).is_some_and(|r| r.is_empty() || r.starts_with('/'))
        };
        if self.unwatched.iter().any(|above| covers(above)) {
            return Some("while the plugin is away");
        }
        let applies = |w: &&Window| {
            let needs_update = [STARTING, FAILED_UPDATE].contains(&w.name);
            w.until.is_none_or(|until| now <= until)
                && covers(&w.dir)
                && !(needs_update && is_bound)
        };
        self.keyed.values().chain(&self.timed).find(applies).map(|window| window.name)
    }
}

/// A process and where it may run.
struct Occupant {
    pod: PodId,
    /// `None` is the container that pauses.
    container: Option<Serial>,
    allowed: CpuSet,
    /// Where it runs of the CPUs that the runtime was told are its alone.
    exclusive: Option<CpuSet>,
}

impl World {
    fn occupants(&self) -> Vec<Occupant> {
        let mut all: Vec<Occupant> = self
            .processes()
            .map(|(pid, container)| {
                let allowed = self.kernel.lock().allowed(pid);
                let exclusive = container.exclusive.map(|cpus| cpus & allowed);
                let serial = Some(container.serial);
                Occupant { pod: container.pod, container: serial, allowed, exclusive }
            })
            .collect();
        // No runtime updates the containers that pause.
        if self.settings.by_groups() {
            let pauses = self.pods.values().filter_map(|pod| Some((pod.id, pod.pause?)));
            all.extend(pauses.map(|(pod, pid)| Occupant {
                pod,
                container: None,
                allowed: self.kernel.lock().allowed(pid),
                exclusive: None,
            }));
        }
        all
    }

    fn name_of(&self, one: &Occupant) -> String {
        let pause = || format!("the pause container of u{}", one.pod);
        one.container.map_or_else(pause, |serial| self.describe(serial))
    }

    /// Whether cgroups above keep a pod's processes off exclusive CPUs: it has none itself.
    fn is_bound_above(&self, pod: PodId) -> bool {
        let is_exclusive = |c: &Container| c.exclusive.is_some() || c.created_with.1 == -1;
        let mut siblings = self.containers.values().filter(|c| c.pod == pod);
        self.settings.by_groups() && !siblings.any(is_exclusive)
    }

    fn window_of(&self, one: &Occupant, is_bound: bool) -> Option<&'static str> {
        let dir = match one.container {
            Some(serial) => self.dir(&self.containers[&serial]),
            None => self.pod_dir(one.pod),
        };
        self.oracle.window(&dir, self.now, is_bound)
    }

    /// After every event: nobody else runs on exclusive CPUs.
    pub fn check_now(&mut self) {
        if self.violation.is_some() {
            return;
        }
        if self.settings.trouble == Trouble::None
            && let Some(complaint) = self.oracle.complaint.take()
        {
            return self.fail(format!("a warning in a world without trouble: {complaint}"));
        }
        // What has not changed needs another look only when a window may have closed.
        if !std::mem::take(&mut self.oracle.changed) && !self.oracle.overlaps {
            return;
        }
        let now = self.now;
        self.oracle.overlaps = false;
        self.oracle.timed.retain(|window| window.until.is_none_or(|until| now <= until));
        let all = self.occupants();
        for (at, owner) in all.iter().enumerate() {
            let Some(exclusive) = owner.exclusive else { continue };
            for (other_at, other) in all.iter().enumerate() {
                let cpus = other.allowed & exclusive;
                if at == other_at || cpus.is_empty() {
                    continue;
                }
                self.oracle.overlaps = true;
                let is_bound = self.is_bound_above(other.pod);
                let window = self.window_of(owner, is_bound);
                if window.or(self.window_of(other, is_bound)).is_none() {
                    let (name, of) = (self.name_of(other), self.name_of(owner));
                    return self.fail(format!("{name} may run on {cpus}, exclusive to {of}"));
                }
            }
        }
        let reserved = self.settings.reserved_cpus();
        let on_reserved = self
            .containers
            .values()
            .find(|container| container.exclusive.is_some_and(|cpus| !cpus.is_disjoint(&reserved)));
        if let Some(container) = on_reserved {
            let text = self.describe(container.serial);
            self.fail(format!("{text} has reserved CPUs exclusively"));
        }
    }

    /// Long after the last operation and fault: everything is exact.
    pub fn check_settled(&mut self) {
        if self.violation.is_some() {
            return;
        }
        if !self.runtime.synchronized {
            return self.fail("at the end the plugin is not connected");
        }
        if self.now - self.plugin.last_write < QUIET {
            return self.fail("at the end the plugin still writes cgroups");
        }
        let alone: CpuSet =
            self.occupants().iter().filter(|o| o.exclusive.is_some()).map(|o| o.allowed).collect();
        let mut pool = self.kernel.lock().online - alone;
        let reserved = self.settings.reserved_cpus();
        // Where nothing else is left, shared containers have the reserved CPUs.
        if self.settings.is_strict_reservation() && !pool.is_subset(&reserved) {
            pool -= reserved;
        }
        let running = self.processes().filter(|(_, container)| container.state == State::Running);
        let wrong = running.into_iter().find_map(|(pid, container)| {
            let allowed = self.kernel.lock().allowed(pid);
            Some((container.serial, self.wrong(container, allowed)?))
        });
        if let Some((serial, why)) = wrong {
            let text = self.describe(serial);
            return self.fail(format!("at the end {text} {why}"));
        }
        if self.processes().any(|(_, container)| container.resized_unheard) {
            return;
        }
        for occupant in self.occupants() {
            let Occupant { pod, allowed, exclusive, .. } = occupant;
            if exclusive.is_none() && allowed != pool && !self.is_bounded(pod) {
                let name = self.name_of(&occupant);
                return self
                    .fail(format!("at the end {name} runs on {allowed}, the pool is {pool}"));
            }
        }
    }

    /// Whether another program has insisted on its own CPUs for a pod or above.
    fn is_bounded(&self, pod: PodId) -> bool {
        let dir = self.pod_dir(pod);
        self.oracle.written.iter().any(|(above, times)| *times > 1 && dir.starts_with(above))
    }

    fn wrong(&self, container: &Container, allowed: CpuSet) -> Option<String> {
        let number = (container.request / 1000) as usize;
        let Some(granted) = container.exclusive else {
            let may_lose = self.oracle.hotplugged || container.resized_unheard;
            if container.created_with.1 == -1 && !may_lose {
                return Some("has lost its exclusive CPUs".to_owned());
            }
            return None;
        };
        let moves = self.settings.rebalance || self.oracle.hotplugged;
        if allowed != granted && !moves {
            return Some(format!("runs on {allowed}, and was given {granted}"));
        }
        if allowed.len() != number && !self.oracle.hotplugged && !container.resized_unheard {
            return Some(format!("runs on {allowed}, and asks for {number} CPUs"));
        }
        if !self.read(&self.dir(container), "cpu.max").starts_with("max") {
            return Some("is throttled by its own CFS quota".to_owned());
        }
        let pod_quota = self.read(&self.pod_dir(container.pod), "cpu.max");
        // A pod with resources of its own keeps its quota for containers that share CPUs.
        // One container that asks for as much as the pod looks like that.
        let pod = &self.pods[&container.pod];
        let looks_so = pod.slots.len() > 1 && pod.slots.iter().any(|s| s.request == pod.request());
        let is_plain = pod.resources.is_none() && !pod.resized && !looks_so;
        let is_lifted = self.settings.by_groups() && is_plain;
        if is_lifted && !pod_quota.starts_with("max") {
            return Some(format!("is throttled by its pod's CFS quota {pod_quota}"));
        }
        None
    }

    /// Who runs where, for a person.
    pub fn picture(&self) -> Vec<String> {
        let mut lines = vec![format!("online {}", self.kernel.lock().online)];
        for (pid, container) in self.processes() {
            let dir = self.dir(container);
            let (name, set) = (self.describe(container.serial), self.read(&dir, "cpuset.cpus"));
            let (state, allowed) = (container.state, self.kernel.lock().allowed(pid));
            let exclusive = container.exclusive.map(|c| format!(" exclusive {c}"));
            let exclusive = exclusive.unwrap_or_default();
            lines.push(format!("{name} {state:?}: set {set:?}, runs on {allowed}{exclusive}"));
        }
        let pods = self.pods.values();
        let above: BTreeSet<String> = pods
            .flat_map(|pod| [Paths(&self.settings).class(pod.class), self.pod_dir(pod.id)])
            .collect();
        for dir in above {
            lines.push(format!("{dir}: set {:?}", self.read(&dir, "cpuset.cpus")));
        }
        lines
    }
}
