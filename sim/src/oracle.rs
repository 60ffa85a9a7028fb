//! [`Oracle`]: what must hold on the node, judged by the answers that the runtime got and by the CPUs on
//! which the simulated kernel lets processes run. It does not use the plugin's state.
//!
//! An overlap is allowed in these windows, and not otherwise:
//!
//! | window | where | ends |
//! |---|---|---|
//! | pause container | its pod | 50 ms after the answer to `RunPodSandbox` |
//! | starting | a container that updates cannot reach before it runs (1) | 25 s after its start |
//! | update under way, from the call that asks for it | the container | 2.5 s after the runtime has made it |
//! | failed update | the container (1) | 25 s later |
//! | cleared by systemd | a slice without processes | 100 ms later |
//! | written by another program | a class or pod; a container | 100 ms, 1.2 s after a refusal; 25 s later (2) |
//! | refused by the kernel | the cgroup, and containers that run on none of their CPUs | 25 s after the last refusal |
//! | hotplug, another program's partition, a configuration | all | 5 s later |
//! | another mechanism, after a restart of the plugin | all | 25 s later |
//! | left to another program, after its sixth write (3) | all | never |
//! | assigned by the kubelet's own CPU manager | all | 25 s after the plugin can know that it is off |
//! | without a CPU | all, while the plugin's process gets none | 1 s later |
//! | while the plugin was away | cgroups that were made or changed in that time | 3 s after it has reconnected |
//!
//! Except in these windows, pods for the reserved CPUs run on no other CPUs, unless they were given
//! exclusive ones.
//!
//! Except in these windows, no process of another pod runs on CPUs of an own pool (`podLevelResources:
//! own-pool`) on which a container of its pod runs. Which pods have one is in the state file. At the end,
//! containers that share an own pool run on exactly its CPUs.
//!
//! Except in these windows, a shared container runs on CPUs that the kernel was booted to isolate only if
//! no other CPU is left, or if the plugin has not answered the list and may be about to give it these. A
//! container has such CPUs exclusively only as the configuration or its own pod option says.
//!
//! A container that was created while the plugin was away has its exclusive CPUs, without a CFS quota, 200 ms
//! after the answer to the list, even if the runtime loses the updates in it, and no drift of it is
//! logged.
//!
//! The plugin distrusts no cgroup as cleared under containers, which this kernel refuses, and none as
//! contested before another program has written fewer than all CPUs into it five times (3).
//!
//! A container of a pod with too many annotations is refused with that text, and one with too many devices gets
//! no exclusive CPUs next to some of them. No other container is refused with these texts.
//!
//! When a container first gets exclusive CPUs by an answer, the state file has them. Under
//! `full-pcpus-only` or `smt: full-cores` they are then all online CPUs of their cores. Where only restarts
//! happen and cgroups bind, the plugin finds no container on other CPUs than decided.
//!
//! The memory claims that the plugin saves can be met at once, and survive another instance of the
//! plugin. At the end, containers are bound to the nodes of their claims, and claims are those of existing
//! pods.
//!
//! In every second without an operation the plugin makes at most 400 writes, and it never gets more
//! than 2,000 inputs in a second.
//!
//! (1) Where the runtime's updates bind, or its pod has exclusive CPUs. Otherwise the cgroups above
//! bind it, and no update has to reach it.
//!
//! (2) Later while the disk fails, never where the runtime's updates bind.
//!
//! (3) A value from before the plugin's start can count as the first write.

use crate::node::cfs;
use crate::plugin::STATE;
use crate::pods::{Class, Container, MIXED, Paths, Pod, PodId, Sandbox, Serial, State, quota};
use crate::refusals::pod_options_more;
use crate::settings::Trouble;
use crate::world::World;
use cpuset::{CpuSet, NodeSet};
use ledger::{MemoryClaim, PodLevelResources};
use log::Level;
use nri::wire::LinuxCPU;
use placement::memory_manager::Room;
use quiet::InterruptMode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The time after the last operation, fault and report of an end after which everything is exact.
pub const SETTLED: Duration = Duration::from_secs(180);
/// For how long the plugin must have written nothing by then.
const QUIET: Duration = Duration::from_secs(25);

/// Windows that apply only to containers that updates bind.
pub const STARTING: &str = "starting";
pub const FAILED_UPDATE: &str = "failed update";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Pause(PodId),
    Starting(Serial),
    Update(Serial),
    /// The kubelet's own CPU manager assigns CPUs, as far as the plugin knows.
    Kubelet,
    /// The plugin observes, or takes over what it has observed.
    Observer,
    /// Writes below a cgroup are refused, so CPUs in use there cannot become free for others.
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

/// The kind of a drift, and what the plugin did about it, as in its metrics.
type Repair = (&'static str, &'static str);

#[derive(Debug, Default)]
pub struct Oracle {
    keyed: BTreeMap<Key, Window>,
    timed: Vec<Window>,
    /// Cgroups that were made or changed while the plugin was away.
    unwatched: BTreeSet<String>,
    /// Whether another program has changed cgroups, or a change of the plugin was not made.
    pub is_disturbed: bool,
    /// Whether the machine, the configuration or the kubelet's policy has changed: containers may have
    /// other CPUs than those in their answers.
    pub is_unsteady: bool,
    /// Uids of pods whose memory may be counted where it is instead of where it fits: they are older than the
    /// settings of memory, or the plugin has not decided about a container or its resize.
    adopted_memory: BTreeSet<String>,
    /// Since when the configuration in force says to observe.
    pub observes_since: Option<Duration>,
    /// Whether the kubelet has reported wrong NUMA nodes of devices.
    pub kubelet_lies: bool,
    /// Containers that have had exclusive CPUs.
    pub assigned: BTreeSet<(PodId, usize)>,
    /// When the kernel last refused a write of the plugin.
    pub refused: Option<Duration>,
    /// Cgroups of classes and pods that another program has written, and how often.
    pub written: BTreeMap<String, u32>,
    /// When the end of a container was reported last.
    pub last_report: Duration,
    /// Whether processes may run on other CPUs than at the last check.
    pub changed: bool,
    /// Whether the last check found an overlap that was allowed.
    overlaps: bool,
    /// The first unexpected warning or error in the log.
    complaint: Option<String>,
    /// Repairs that were not judged yet.
    repairs: Vec<Repair>,
    /// The first cgroup that is distrusted without a cause.
    distrust: Option<String>,
    /// Whether the kernel has refused a partition, which holds for the life of the container.
    has_refused_partition: bool,
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

    /// Records that the plugin can know that the kubelet assigns no CPUs. Only the first time counts:
    /// later signs do not give the plugin more time.
    pub fn kubelet_ended(&mut self, until: Duration) {
        if let Some(window) = self.keyed.get_mut(&Key::Kubelet) {
            window.until.get_or_insert(until);
        }
    }

    /// Whether the plugin assigns no CPUs: the kubelet's own CPU manager does, as far as the plugin knows, or it
    /// only observes.
    pub fn is_kubelets(&self, now: Duration) -> bool {
        let windows = [Key::Kubelet, Key::Observer].map(|key| self.keyed.get(&key));
        let is_open = |window: &Window| window.until.is_none_or(|until| now <= until);
        windows.into_iter().flatten().any(is_open)
    }

    /// Records whether the configuration in force says to observe.
    pub fn follow_mode(&mut self, observes: bool, now: Duration, until: Duration) {
        if observes == self.observes_since.is_some() {
            return;
        }
        self.is_unsteady = true;
        self.changed = true;
        self.observes_since = observes.then_some(now);
        if observes {
            self.open(Key::Observer, "observed", "");
        } else {
            self.close(Key::Observer, until);
        }
    }

    fn has_adopted_memory_of(&self, claim: &MemoryClaim) -> bool {
        self.adopted_memory.contains(&*claim.pod_uid.0)
    }

    pub fn allow(&mut self, name: &'static str, dir: &str, until: Duration) {
        self.timed.push(Window { name, dir: dir.to_owned(), until: Some(until) });
    }

    pub fn unwatched(&mut self, dir: &str) {
        self.unwatched.insert(dir.to_owned());
    }

    /// After a reboot nothing runs, and new containers count as created while the plugin is away.
    pub fn rebooted(&mut self) {
        self.keyed.retain(|key, _| matches!(key, Key::Kubelet | Key::Observer));
        self.changed = true;
        self.unwatched("");
    }

    /// Extends open windows until the plugin has reconnected, as it learns of changes from the list.
    pub fn disconnected(&mut self, now: Duration) {
        let all = self.keyed.values().chain(&self.timed);
        let active = all.filter(|window| window.until.is_none_or(|until| now <= until));
        self.unwatched.extend(active.map(|window| window.dir.clone()));
        self.keyed.retain(|key, window| !matches!(key, Key::Update(_)) || window.until.is_some());
    }

    /// The plugin has answered the list, and is about to correct what it found.
    pub fn synchronized(&mut self, now: Duration) {
        for dir in std::mem::take(&mut self.unwatched) {
            self.allow("while the plugin was away", &dir, now + Duration::from_secs(3));
        }
    }

    /// Records the repairs of a step, by what the plugin has counted before and after it: the log does not have
    /// each of them.
    pub fn repaired(&mut self, before: &BTreeMap<Repair, u64>, after: &BTreeMap<Repair, u64>) {
        let new = after.iter().filter(|(repair, times)| before.get(repair) != Some(times));
        self.repairs.extend(new.map(|(repair, _)| *repair));
    }

    /// Whether containers may be found elsewhere than decided, and the plugin may do this about it.
    fn may_repair(&self, (drift, action): Repair, trouble: Trouble, by_groups: bool) -> bool {
        match trouble {
            // The runtime may make the updates of an answer after later writes of the plugin.
            Trouble::None => !by_groups && action == "written",
            Trouble::Restarts => !by_groups || self.is_disturbed || drift.ends_with("_quota"),
            Trouble::All => true,
        }
    }

    pub fn logged(&mut self, level: Level, line: &str) {
        let is_expected = line.contains("refused")
            || line.contains("strict: true")
            || line.contains(": should have CPU")
            || line.contains(": too many ")
            || line.starts_with("pods wait for CPUs after several refusals")
            || line.contains(", so none is left to assign: ")
            // What was to be refused has begun while the plugin observed.
            || (self.keyed.contains_key(&Key::Observer) && line.contains(": runs in the shared pool: "))
            || line.starts_with("sim");
        if self.distrust.is_none() && self.is_groundless(line) {
            self.distrust = Some(line.to_owned());
        }
        self.has_refused_partition |= line.contains(": no partition: ");
        if level <= Level::Warn && !is_expected && self.complaint.is_none() {
            self.complaint = Some(format!("{level} {line}"));
        }
    }

    /// Whether a line says that a cgroup is not relied on for something that has not happened.
    fn is_groundless(&self, line: &str) -> bool {
        let Some((group, why)) = line.split_once(": ") else { return false };
        let times = self.written.get(group.trim_start_matches('/')).copied().unwrap_or_default();
        why.contains("its CPUs were cleared")
            || why.ends_with("other programs keep changing its CPUs") && times < 5
    }

    /// Whether the plugin has left a cgroup to another program.
    fn is_contested(&self) -> bool {
        self.written.values().any(|times| *times >= 5)
    }

    /// The window that covers this cgroup now. `is_bound` says whether cgroups above bind it.
    pub fn window(&self, dir: &str, now: Duration, is_bound: bool) -> Option<&'static str> {
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

/// A process and its CPUs.
struct Occupant {
    pod: PodId,
    /// `None` is the pause container.
    container: Option<Serial>,
    allowed: CpuSet,
    /// The CPUs of `allowed` that are exclusive to it.
    exclusive: Option<CpuSet>,
}

impl World {
    /// Records that the plugin has not decided where the memory of a pod is.
    pub fn note_adopted_memory(&mut self, id: PodId) {
        if let Some(pod) = self.pods.get(&id).filter(|pod| pod.is_guaranteed()) {
            self.oracle.adopted_memory.insert(pod.uid());
        }
    }

    pub fn note_all_memory_adopted(&mut self) {
        let pods: Vec<PodId> = self.pods.keys().copied().collect();
        pods.into_iter().for_each(|id| self.note_adopted_memory(id));
    }

    /// Records the creation of a container. While the kubelet's CPU manager is active the plugin decides
    /// nothing.
    pub fn note_created(&mut self, id: PodId, is_answered: bool) {
        if !is_answered || self.oracle.is_kubelets(self.now) {
            self.note_adopted_memory(id);
        }
    }

    fn occupants(&self) -> Vec<Occupant> {
        let mut all: Vec<Occupant> = self
            .processes()
            .map(|(pid, container)| {
                let allowed = self.kernel.lock().allowed(pid);
                // The plugin lends the CPUs of a container that has never started.
                let exclusive = if container.state == State::Unknown {
                    None
                } else {
                    container.exclusive.map(|cpus| cpus & allowed)
                };
                let serial = Some(container.serial);
                Occupant { pod: container.pod, container: serial, allowed, exclusive }
            })
            .collect();
        // Runtimes do not update pause containers, so only cgroups keep them off exclusive CPUs.
        if self.by_groups {
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

    fn container_of(&self, one: &Occupant) -> Option<&Container> {
        self.containers.get(&one.container?)
    }

    fn name_of(&self, one: &Occupant) -> String {
        let pause = || format!("the pause container of u{}", one.pod);
        one.container.map_or_else(pause, |serial| self.describe(serial))
    }

    /// Whether cgroups above keep a pod's processes off exclusive CPUs, as it has none itself.
    fn is_bound_above(&self, pod: PodId) -> bool {
        let is_exclusive = |c: &Container| c.has_exclusive() || c.created_with.1 == -1;
        let mut siblings = self.containers.values().filter(|c| c.pod == pod);
        self.by_groups && !siblings.any(is_exclusive)
    }

    /// Whether the kernel has refused a write of the plugin since the last two check passes.
    fn has_refused(&self) -> bool {
        self.oracle.refused.is_some_and(|at| self.now < at + Duration::from_secs(25))
    }

    fn window_of(&self, one: &Occupant, is_bound: bool) -> Option<&'static str> {
        if self.is_bounded(one.pod, self.container_of(one)) && !self.by_groups {
            return Some("written by another program");
        }
        // The plugin does not write that cgroup any more, so it cannot keep anything in it off any CPU.
        if self.oracle.is_contested() {
            return Some("left to another program");
        }
        // Others cannot leave its CPUs, so the cgroups above it do not have these yet.
        let own = self.container_of(one).and_then(|container| container.exclusive);
        if self.has_refused() && own.is_some_and(|own| own.is_disjoint(&one.allowed)) {
            return Some("refused by the kernel");
        }
        let dir = match one.container {
            Some(serial) => self.dir(&self.containers[&serial]),
            None => self.pod_dir(one.pod),
        };
        self.oracle.window(&dir, self.now, is_bound)
    }

    /// Checks after every event that no other process runs on exclusive CPUs.
    pub fn check_now(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let damage = self.kernel.lock().damage.take();
        if let Some(damage) = damage {
            return self.fail(format!("a write that breaks kernels: {damage}"));
        }
        if let Some(distrust) = self.oracle.distrust.take() {
            return self.fail(format!("a cgroup is distrusted without a cause: {distrust}"));
        }
        if self.settings.trouble == Trouble::None
            && let Some(complaint) = self.oracle.complaint.take()
        {
            return self.fail(format!("a warning in a world without trouble: {complaint}"));
        }
        for (drift, action) in std::mem::take(&mut self.oracle.repairs) {
            if !self.oracle.may_repair((drift, action), self.settings.trouble, self.by_groups) {
                let drift = format!("a drift in a world where nobody drifts: {drift}, {action}");
                return self.fail(drift);
            }
        }
        // If nothing has changed, only the end of a window can make an overlap illegal.
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
                if at == other_at || cpus.is_empty() || self.is_off_reserved(other) {
                    continue;
                }
                // A pod's own CPUs are also where its pause container is kept.
                let is_own_pause = other.container.is_none() && other.pod == owner.pod;
                if is_own_pause && self.has_own_cpus(owner.pod) {
                    continue;
                }
                self.oracle.overlaps = true;
                let is_bound = self.is_bound_above(other.pod);
                let window = self.window_of(owner, is_bound);
                if window.or(self.window_of(other, is_bound)).is_none() {
                    let name = self.name_of(other);
                    let of = self.name_of(owner);
                    return self.fail(format!("{name} may run on {cpus}, exclusive to {of}"));
                }
            }
        }
        if let Some(why) = self.on_own_pool(&all).or_else(|| self.off_reserved(&all)) {
            return self.fail(why);
        }
        self.check_shared(&all);
        self.check_files(&all);
        let reserved = self.reserved();
        let has_reserved =
            |c: &&Container| c.exclusive.is_some_and(|cpus| !cpus.is_disjoint(&reserved));
        let on_reserved = self.containers.values().find(has_reserved);
        // After a refusal it may wait for a container that cannot leave its new CPUs.
        if let Some(container) = on_reserved
            && !self.has_refused()
            && self.oracle.window("", now, false).is_none()
        {
            let text = self.describe(container.serial);
            self.fail(format!("{text} has reserved CPUs exclusively"));
        }
    }

    /// Checks a container whose exclusive CPUs the runtime has lost.
    pub fn check_pinned(&mut self, serial: Serial, cpus: &str) {
        let Some(container) = self.containers.get(&serial) else { return };
        let is_steady = self.runtime.synchronized
            && container.state == State::Running
            && !container.resizing
            && !container.mixed;
        let Some(pid) = container.pid.filter(|_| is_steady) else { return };
        // Another program may have taken them, or the kernel refuses them.
        let is_contended = !self.oracle.written.is_empty() || self.settings.other_plugin;
        if is_contended || self.has_refused() || self.oracle.is_unsteady {
            return;
        }
        let allowed = self.kernel.lock().allowed(pid).to_string();
        let is_throttled = !self.read(&self.dir(container), "cpu.max").starts_with("max");
        if allowed != cpus || is_throttled {
            let text = self.describe(serial);
            self.fail(format!(
                "{text} runs on {allowed} (throttled: {is_throttled}), and the list's answer says {cpus}"
            ));
        }
    }

    /// Whether CRI-O has set CPUs for a container that are not reserved any more. It stays on them.
    fn is_off_reserved(&self, one: &Occupant) -> bool {
        let Some(container) = self.container_of(one) else { return false };
        let cpus: CpuSet = container.cpus.parse().unwrap_or_default();
        container.is_preset && !cpus.is_subset(&self.reserved())
    }

    /// Whether the CPUs of a pod are its own, by the state file.
    fn has_own_cpus(&self, pod: PodId) -> bool {
        let Some(uid) = self.pods.get(&pod).map(Pod::uid) else { return false };
        let claims = self.plugin.claims_on_disk().unwrap_or_default();
        claims.iter().any(|claim| claim.container.is_empty() && *claim.pod_uid.0 == *uid)
    }

    /// The own pools in the state file that have CPUs.
    fn own_pools(&self) -> BTreeMap<PodId, CpuSet> {
        if self.in_force.pod_level_resources != PodLevelResources::OwnPool {
            return BTreeMap::new();
        }
        let mut claims = self.plugin.claims_on_disk().unwrap_or_default();
        claims.retain(|claim| claim.container.is_empty() && !claim.cpus.is_empty());
        let by_uid: BTreeMap<String, CpuSet> =
            claims.into_iter().map(|claim| (claim.pod_uid.to_string(), claim.cpus)).collect();
        let pods = self.pods.values();
        pods.filter_map(|pod| Some((pod.id, *by_uid.get(&pod.uid())?))).collect()
    }

    /// A process of another pod on CPUs of an own pool on which a container of the pod runs.
    fn on_own_pool(&mut self, all: &[Occupant]) -> Option<String> {
        // The state file may be older than what is in force.
        let is_uncertain = self.oracle.is_unsteady
            || self.plugin.may_lack_claims(self.now)
            || self.plugin.has_lost_memory()
            || self.has_refused();
        let pools = if is_uncertain { BTreeMap::new() } else { self.own_pools() };
        let shares = |one: &&Occupant| {
            self.container_of(one).is_some_and(|c| c.state == State::Running && !c.mixed)
                && one.exclusive.is_none()
                && pools.get(&one.pod).is_some_and(|pool| one.allowed.is_subset(pool))
        };
        let mut overlaps = false;
        let mut wrong = None;
        for owner in all.iter().filter(shares) {
            for other in all.iter().filter(|other| other.pod != owner.pod) {
                let cpus = other.allowed & owner.allowed;
                if cpus.is_empty() {
                    continue;
                }
                overlaps = true;
                let is_bound = self.is_bound_above(other.pod);
                let window = self.window_of(owner, is_bound);
                if window.or(self.window_of(other, is_bound)).is_none() {
                    let name = self.name_of(other);
                    let of = owner.pod;
                    wrong = Some(format!("{name} may run on {cpus}, in the own pool of u{of}"));
                }
            }
        }
        self.oracle.overlaps |= overlaps;
        wrong
    }

    /// Whether the containers of a pod are for the reserved CPUs.
    pub fn is_for_reserved(&self, pod: &Pod) -> bool {
        let is_named = self.in_force.reserved_namespaces.match_name(pod.namespace);
        self.is_static() && (is_named || pod.is_system)
    }

    /// The reserved CPUs for a pod: in the kubelet's system partition, those that the partition has.
    fn reserved_for(&self, pod: &Pod) -> CpuSet {
        let all = self.reserved() & self.kernel.lock().usable();
        let rest = all - self.isolated();
        let reserved = if rest.is_empty() { all } else { rest };
        let bound = if pod.is_system { self.settings.system_partition } else { None };
        let bound: CpuSet = bound.and_then(|cpus| cpus.parse().ok()).unwrap_or_default();
        if bound.is_empty() { reserved } else { reserved & bound }
    }

    /// Processes that must run on the reserved CPUs, with these CPUs. Not those that have exclusive CPUs,
    /// or for which the kubelet or another program has set CPUs.
    fn of_system<'a>(
        &'a self,
        all: &'a [Occupant],
    ) -> impl Iterator<Item = (&'a Occupant, CpuSet)> {
        let is_plain = |one: &&Occupant| {
            let has_own = |c: &Container| c.has_exclusive() || c.created_with.1 == -1;
            let is_plain = |c: &Container| !has_own(c) && !c.is_set_by_others() && !c.is_uncertain;
            self.container_of(one).is_none_or(is_plain)
                && !self.is_bounded(one.pod, self.container_of(one))
        };
        let all = all.iter().filter(|one| self.is_for_reserved(&self.pods[&one.pod]));
        all.filter(is_plain).map(|one| (one, self.reserved_for(&self.pods[&one.pod])))
    }

    /// A process that must run on the reserved CPUs and runs on others.
    fn off_reserved(&mut self, all: &[Occupant]) -> Option<String> {
        let wrong: Vec<(&Occupant, CpuSet)> = self
            .of_system(all)
            .filter(|(one, reserved)| !one.allowed.is_subset(reserved))
            .collect();
        let not_allowed = wrong
            .iter()
            .find(|(one, _)| self.window_of(one, self.is_bound_above(one.pod)).is_none());
        let why = not_allowed.map(|(one, reserved)| {
            let name = self.name_of(one);
            format!("{name} runs on {}, and is for the reserved CPUs {reserved}", one.allowed)
        });
        let overlaps = !wrong.is_empty();
        self.oracle.overlaps |= overlaps;
        why
    }

    /// Checks that shared containers run on no isolated CPUs, if others are left.
    fn check_shared(&mut self, all: &[Occupant]) {
        let isolated = self.isolated();
        if isolated.is_empty() {
            return;
        }
        let usable = self.kernel.lock().usable();
        let has_others = !((self.reserved() & usable) - isolated).is_empty();
        let own_pools = self.own_pools();
        for one in all.iter().filter(|one| !own_pools.contains_key(&one.pod)) {
            let cpus = one.allowed & isolated;
            self.oracle.overlaps |= !cpus.is_empty();
            let container = self.container_of(one);
            let shares = one.exclusive.is_none()
                && container.is_none_or(|c| !c.mixed && !c.is_set_by_others() && !c.is_uncertain);
            if !shares || cpus.is_empty() || !has_others {
                continue;
            }
            // It has the CPUs of its partition alone, also if no update has set them yet.
            let is_partition = |container: &Container| {
                let group = crate::node::group(&self.dir(container));
                self.kernel.lock().is_partition_of(&group, one.allowed)
            };
            if container.is_some_and(is_partition) {
                continue;
            }
            // Its pod has CPUs that an exclusive sibling has still to leave.
            let siblings = all.iter().filter(|other| other.pod == one.pod);
            let mut lingering = siblings.filter(|other| other.exclusive.is_some());
            let is_bound = self.is_bound_above(one.pod);
            // The runtime updates no pause container in the kernel's place.
            let is_refused = one.container.is_none() && self.has_refused();
            // Before the answer to the list, cgroups above a running container may already have exclusive
            // CPUs that it is about to get, also if the plugin dies.
            let may_get_them = !self.runtime.synchronized
                && container.is_some()
                && may_have_exclusive(&self.pods[&one.pod]);
            if self.window_of(one, is_bound).is_none()
                && !is_refused
                && !may_get_them
                && lingering.all(|other| self.window_of(other, false).is_none())
                && !self.is_bounded(one.pod, container)
            {
                let name = self.name_of(one);
                return self.fail(format!("{name} shares CPUs and may run on isolated {cpus}"));
            }
        }
    }

    /// The CPUs that can be exclusive to containers without pod options.
    pub fn assignable(&self) -> CpuSet {
        let topology = self.settings.topology();
        let placement = &self.in_force.placement;
        placement.isolated.allowed(&topology, &(topology.online() - self.reserved()))
    }

    pub fn pod_options_isolated(&self, pod: &Pod) -> bool {
        !self.isolated().is_empty()
            && (0..pod.slots.len()).any(|slot| !pod.isolated_pod_options(slot).is_empty())
    }

    /// Why the exclusive CPUs of a container are wrong: isolated ones that it must not have, or others
    /// although it requires isolated ones.
    fn wrong_kind(&self, container: &Container) -> Option<String> {
        let isolated = self.isolated();
        let given = container.exclusive?;
        // It keeps CPUs from another configuration or from the kubelet. The pod options of a
        // container that was adopted while it ran count only if they would be granted.
        let is_answered = container.created_with.1 == -1;
        let may_keep = self.oracle.is_unsteady || container.is_named || container.is_uncertain;
        if !is_answered || may_keep {
            return None;
        }
        let pod = &self.pods[&container.pod];
        let option = match pod.isolated_pod_options(container.slot)[..] {
            [] => self.in_force.placement.isolated.name(),
            [pod_option] => pod_option,
            _ => return None,
        };
        match option {
            "exclude" if !given.is_disjoint(&isolated) => {
                Some(format!("has isolated CPUs, of {given}"))
            }
            "require" if !given.is_subset(&isolated) => {
                Some(format!("requires isolated CPUs, and has {given}"))
            }
            _ => None,
        }
    }

    /// Checks the exclusive CPUs of a new container.
    pub fn check_kind(&mut self, serial: Serial) {
        let Some(container) = self.containers.get(&serial) else { return };
        if let Some(why) = self.wrong_kind(container) {
            let text = self.describe(serial);
            self.fail(format!("{text} {why}"));
        }
    }

    /// Checks that the state file has the exclusive CPUs of an answer before the container gets them:
    /// otherwise a crash would lose them.
    pub fn check_saved(&mut self, serial: Serial, given: &LinuxCPU) {
        let Some(container) = self.containers.get(&serial) else { return };
        // Only the first time is checked. CPUs that it got otherwise, such as those of a container that was
        // adopted while it ran, are found by a restart.
        if given.quota.value != -1 || !self.oracle.assigned.insert((container.pod, container.slot))
        {
            return;
        }
        let given: CpuSet = given.cpus.parse().unwrap_or_default();
        if let Some(why) = self.wrong_cores(container, given) {
            let text = self.describe(serial);
            return self.fail(format!("{text} {why}"));
        }
        // On a disk that fails, a container that restarts may have other CPUs.
        if self.plugin.has_lost_memory() || self.oracle.is_unsteady {
            return;
        }
        let container = &self.containers[&serial];
        let pod = &self.pods[&container.pod];
        let on_disk = self.plugin.on_disk(&pod.uid(), &pod.slots[container.slot].name);
        if on_disk.is_none_or(|cpus| !cpus.is_subset(&given)) {
            let text = self.describe(serial);
            let on_disk = on_disk.unwrap_or_default();
            self.fail(format!("{text} gets {given}, and the state file has {on_disk}"));
        }
        if let Some(why) = self.wrong_devices(&self.containers[&serial], given) {
            let text = self.describe(serial);
            self.fail(format!("{text} {why}"));
        }
    }

    /// Why the first exclusive CPUs of a container are not whole cores, if it must have these.
    fn wrong_cores(&self, container: &Container, given: CpuSet) -> Option<String> {
        let pod = &self.pods[&container.pod];
        let pod_options = |pod_option| pod.pod_options(container.slot, pod_option);
        let options = &self.in_force.placement.options;
        let must_be_whole = options.full_pcpus_only || pod_options(("smt", "full-cores"));
        // CPUs may be those of an earlier decision: for an instance that ended before the answer, under other
        // settings or on another machine; of the kubelet; or by a resize.
        let is_first = self.pod_of.values().filter(|of| **of == pod.id).count() == 1;
        let may_keep = self.oracle.is_unsteady && !is_first
            || self.oracle.keyed.contains_key(&Key::Kubelet)
            || pod.resized;
        if !must_be_whole
            || pod_options(("smt", "isolate"))
            || pod_options(MIXED)
            || may_keep
            || self.has_own_cpus(pod.id)
            || self.oracle.window("", self.now, false).is_some()
        {
            return None;
        }
        let usable = self.kernel.lock().usable();
        let topology = self.topology();
        let cores = topology.cores().iter().map(|core| core.cpus & usable);
        let touched: CpuSet = cores.filter(|core| !core.is_disjoint(&given)).collect();
        if touched == given {
            None
        } else {
            Some(format!("gets {given}, and must have whole cores: {touched}"))
        }
    }

    /// Checks, long after the last operation and fault, that everything is exact.
    pub fn check_settled(&mut self) {
        let is_open = |key| self.oracle.keyed.get(key).is_some_and(|window| window.until.is_none());
        let is_kubelets = [Key::Kubelet, Key::Observer].iter().any(is_open);
        if self.violation.is_some() || is_kubelets {
            return;
        }
        if !self.runtime.synchronized {
            return self.fail("at the end the plugin is not connected");
        }
        // With `rebalance`, a container may move whenever it has stayed for `minStay`.
        let moves = self.in_force.rebalance.is_some();
        if self.now - self.plugin.last_write < QUIET && !moves {
            return self.fail("at the end the plugin still writes cgroups");
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
        if let Some(why) = self.wrong_state_file().or_else(|| self.wrong_quota()) {
            return self.fail(format!("at the end {why}"));
        }
        if let Some(why) = self.wrong_directories() {
            return self.fail(format!("at the end {why}"));
        }
        if let Some(why) = self.wrong_counted_memory() {
            return self.fail(format!("at the end {why}"));
        }
        if let Some(why) = self.wrong_interrupts().or_else(|| self.wrong_snapshot()) {
            return self.fail(format!("at the end {why}"));
        }
        if self.oracle.is_contested()
            || self.processes().any(|(_, container)| container.is_uncertain)
        {
            return;
        }
        if let Some(why) = self.wrong_pool() {
            self.fail(format!("at the end {why}"));
        }
    }

    /// An interrupt on exclusive CPUs of containers that have none by the configuration, or a file that
    /// was not put back after the last exclusive container.
    fn wrong_interrupts(&self) -> Option<String> {
        if self.oracle.is_disturbed {
            return None;
        }
        let kernel = self.kernel.lock();
        let is_exclusive = |container: &&Container| container.has_exclusive();
        if !self.containers.values().any(|container| is_exclusive(&container)) {
            if self.plugin.has_lost_originals {
                return None;
            }
            let (path, text) = kernel.changed_tunable()?;
            return Some(format!("{} still says {text}", path.display()));
        }
        if self.in_force.interrupts != InterruptMode::Away || self.oracle.is_unsteady {
            return None;
        }
        // Annotations may say otherwise.
        let follows = |container: &&Container| {
            container.state == State::Running
                && self.pods.get(&container.pod).is_some_and(|pod| pod.annotations.is_empty())
        };
        let exclusive = self.containers.values().filter(follows).filter_map(|one| one.exclusive);
        let exclusive: CpuSet = exclusive.collect();
        let elsewhere = kernel.online - exclusive;
        let on = kernel.interrupt_affinities().find(|cpus| !cpus.is_disjoint(&exclusive))?;
        if elsewhere.is_empty() { None } else { Some(format!("an interrupt may fire on {on}")) }
    }

    /// Checks that all processes without exclusive CPUs run on all CPUs that are left.
    ///
    /// The CPUs of a container that is created and does not run yet are not lent: where the runtime
    /// keeps exclusivity, no call could take them back before it starts. The kubelet's own CPU manager,
    /// too, keeps the CPUs of an admitted pod out of the pool, whether its containers run or not.
    fn wrong_pool(&self) -> Option<String> {
        let all = self.occupants();
        let created = self.containers.values().filter(|one| one.state == State::Created);
        let waiting = created.filter_map(|one| one.exclusive);
        let own_pools = self.own_pools();
        let alone = all.iter().filter_map(|one| one.exclusive).chain(waiting);
        let alone: CpuSet = alone.chain(own_pools.values().copied()).collect();
        let usable = self.kernel.lock().usable();
        let reserved = self.reserved();
        let isolated = self.isolated();
        let mut left = usable - alone;
        if self.in_force.placement.options.strict_cpu_reservation {
            left -= reserved;
        }
        // The pool is the first of these that is not empty: shared containers have isolated CPUs only if
        // there are no others.
        let places = [left - isolated, (reserved & usable) - isolated, reserved & usable, left];
        let mut pool = places.into_iter().find(|place| !place.is_empty()).unwrap_or_default();
        if let Some((one, reserved)) =
            self.of_system(&all).find(|(one, reserved)| one.allowed != *reserved)
        {
            let name = self.name_of(one);
            let allowed = one.allowed;
            return Some(format!("{name} runs on {allowed}, and the reserved CPUs are {reserved}"));
        }
        let is_mixed = |one: &Occupant| self.container_of(one).is_some_and(|one| one.mixed);
        // CPUs that the kubelet's CPU manager or CRI-O has set stay, and may be exclusive or shared.
        let is_named =
            |one: &Occupant| self.container_of(one).is_some_and(Container::is_set_by_others);
        let is_bounded = |one: &Occupant| self.is_bounded(one.pod, self.container_of(one));
        // Its pod has the reserved CPUs as well, which the pool lacks under strict reservation.
        let of_others =
            |pod| self.processes().any(|(_, one)| one.pod == pod && one.is_set_by_others());
        let has_preset =
            |one: &Occupant| self.pods[&one.pod].is_preset(&self.settings) || of_others(one.pod);
        let is_general = |one: &Occupant| {
            let pod = &self.pods[&one.pod];
            !self.is_for_reserved(pod) && !pod.is_system
        };
        let shares = |one: &&Occupant| {
            one.exclusive.is_none()
                && !own_pools.contains_key(&one.pod)
                && is_general(one)
                && !is_mixed(one)
                && !is_named(one)
                && !has_preset(one)
                && !is_bounded(one)
        };
        let mut shared = all.iter().filter(shares);
        // The plugin's own container keeps its CPUs if its cgroup could once not be written. Siblings of a
        // partition do not get its CPUs even while these are lent.
        let has_partitions =
            |one: &Occupant| self.by_partitions && may_have_exclusive(&self.pods[&one.pod]);
        let may_have_less = |one: &Occupant| self.pods[&one.pod].is_plugin || has_partitions(one);
        // Some CPUs are idle, or exclusive to a mixed container: then the pool is smaller, but the same
        // for all.
        if self.processes().any(|(_, container)| self.takes_more(container)) {
            let less = shared.clone().find(|one| !may_have_less(one))?.allowed;
            if !less.is_subset(&(pool | reserved)) {
                return Some(format!("the pool {less} is not in {pool}"));
            }
            pool = less;
        }
        let is_right = |one: &Occupant| {
            one.allowed == pool || (may_have_less(one) && one.allowed.is_subset(&pool))
        };
        if let Some(one) = shared.find(|one| !is_right(one)) {
            let name = self.name_of(one);
            let allowed = one.allowed;
            return Some(format!("{name} runs on {allowed}, the pool is {pool}"));
        }
        let lacks = |one: &&Occupant| {
            let number = self.container_of(one)?.request / 1000;
            let own = one.allowed - pool;
            let has_pool = pool.is_subset(&one.allowed) || has_partitions(one);
            if has_pool && own.len() as u64 >= number { None } else { Some(own) }
        };
        let is_ours = |one: &&Occupant| {
            is_mixed(one)
                && !own_pools.contains_key(&one.pod)
                && !is_named(one)
                && !is_bounded(one)
                && is_general(one)
        };
        let mut mixed = all.iter().filter(is_ours);
        let (one, own) = mixed.find_map(|one| Some((one, lacks(&one)?)))?;
        let name = self.name_of(one);
        Some(format!("{name} has {own} of its own on {}, the pool is {pool}", one.allowed))
    }

    /// Whether a container may keep others off more CPUs than those in `exclusive`: by a pod
    /// option, or because the kubelet or another program has set its CPUs.
    fn takes_more(&self, container: &Container) -> bool {
        let pod = &self.pods[&container.pod];
        let is_exclusive = container.exclusive.is_some();
        let is_written = || {
            self.oracle.written.contains_key(&self.dir(container))
                || self.is_bounded(container.pod, Some(container))
        };
        container.is_named
            || container.mixed
            || is_exclusive && (pod_options_more(pod, container.slot) || is_written())
    }

    /// A container whose exclusive CPUs are not in the state file, so that a restart would not find them.
    fn wrong_state_file(&self) -> Option<String> {
        let mut all = self.processes().filter(|(_, container)| {
            container.exclusive.is_some() && !self.is_bounded(container.pod, Some(container))
        });
        all.find_map(|(pid, container)| {
            let pod = &self.pods[&container.pod];
            let name = &pod.slots[container.slot].name;
            let on_disk = self.plugin.on_disk(&pod.uid(), name).unwrap_or_default();
            let allowed = self.kernel.lock().allowed(pid);
            // After a change of the configuration it may share CPUs.
            if on_disk == allowed || allowed.len() as u64 * 1000 != container.request {
                return None;
            }
            let text = self.describe(container.serial);
            Some(format!("{text} runs on {allowed}, and the state file has {on_disk}"))
        })
    }

    /// Checks that pods whose containers only share CPUs have the kubelet's quota.
    fn wrong_quota(&self) -> Option<String> {
        if !self.by_groups || self.plugin.has_lost_memory() || self.oracle.is_unsteady {
            return None;
        }
        let shares = |pod: &&Pod| {
            let mut all = self.processes().filter(|(_, container)| container.pod == pod.id);
            !pod.resized
                && all.next().is_some_and(|(_, first)| !first.has_exclusive())
                && all.all(|(_, container)| !container.has_exclusive())
        };
        self.pods.values().filter(shares).find_map(|pod| {
            let found = self.read(&self.pod_dir(pod.id), "cpu.max");
            let given = cfs(quota(pod.limit()));
            if found == given {
                None
            } else {
                Some(format!("u{} has only shared CPUs, and the CFS quota {found:?}", pod.id))
            }
        })
    }

    /// The CPUs that the file of a container names; `None` without a file.
    fn exposed_cpus(&self, name: &str) -> Option<String> {
        let file = Path::new(STATE).join("exposed").join(name).join("cpus");
        let content = self.plugin.storage().read(&file, 1 << 10).ok()?;
        Some(String::from_utf8_lossy(&content).trim().to_owned())
    }

    /// No program runs on exclusive CPUs that its file does not name.
    fn check_files(&mut self, all: &[Occupant]) {
        if self.plugin.may_lack_files(self.now) {
            return;
        }
        for one in all {
            let Some(container) = self.container_of(one).filter(|c| c.exclusive.is_some()) else {
                continue;
            };
            let name = crate::pods::id(container.serial);
            let Some(content) = self.exposed_cpus(&name) else { continue };
            let named: CpuSet = content.parse().unwrap_or_default();
            let allowed = if container.mixed { one.exclusive } else { Some(one.allowed) };
            let is_allowed = allowed.is_none_or(|allowed| allowed.is_subset(&named))
                || self.window_of(one, false).is_some()
                || self.is_bounded(one.pod, Some(container))
                // It shares them from now on with others of its pod, and keeps them.
                || (named.is_empty() && self.has_own_cpus(one.pod));
            if !is_allowed {
                let (text, allowed) = (self.describe(container.serial), one.allowed);
                return self.fail(format!("{text} runs on {allowed}, and its file says {named}"));
            }
        }
    }

    /// Checks the files by which programs learn the CPUs of their container.
    fn wrong_directories(&self) -> Option<String> {
        let root = Path::new(STATE).join("exposed");
        for name in self.plugin.storage().entries(&root).unwrap_or_default() {
            let serial = crate::pods::serial(&name)?;
            let live = self.containers.get(&serial).filter(|container| container.pid.is_some());
            let Some(container) = live else {
                // If the plugin has missed its end, the directory goes with its pod.
                if self.settings.trouble == Trouble::None
                    || !self.pods.contains_key(&self.pod_of[&serial])
                {
                    return Some(format!("{name} has ended, and has a directory"));
                }
                continue;
            };
            let content = self.exposed_cpus(&name)?;
            let allowed = self.kernel.lock().allowed(container.pid?);
            let is_bounded = self.is_bounded(container.pod, Some(container));
            if container.exclusive.is_some() && !is_bounded && content != allowed.to_string() {
                let text = self.describe(container.serial);
                return Some(format!("{text} runs on {allowed}, and its file says {content}"));
            }
        }
        None
    }

    /// Whether another program limits the CPUs of a container or of a cgroup above it. One write is
    /// enough if the plugin does not bind these cgroups.
    fn is_bounded(&self, pod: PodId, container: Option<&Container>) -> bool {
        let dir = container.map_or_else(|| self.pod_dir(pod), |container| self.dir(container));
        let remembers = !self.plugin.has_lost_memory();
        if !self.by_groups && !remembers {
            return true;
        }
        let most = u32::from(self.by_groups && self.is_static() && remembers);
        self.oracle.written.iter().any(|(above, times)| *times > most && dir.starts_with(above))
    }

    fn wrong(&self, container: &Container, allowed: CpuSet) -> Option<String> {
        let number = (container.request / 1000) as usize;
        if container.mixed || self.is_bounded(container.pod, Some(container)) {
            return None;
        }
        if let Some(why) = self.wrong_kind(container) {
            return Some(why);
        }
        let Some(granted) = container.exclusive else {
            let may_lose = self.oracle.is_unsteady || container.is_uncertain;
            if let Some(own_pool) = self.own_pools().get(&container.pod) {
                // A container with all CPUs of its pod returns them when another one starts.
                let is_certain =
                    !may_lose && !container.is_set_by_others() && !self.oracle.is_contested();
                if is_certain && allowed != *own_pool {
                    return Some(format!(
                        "runs on {allowed}, and the own pool of its pod is {own_pool}"
                    ));
                }
                return None;
            }
            if container.created_with.1 == -1 && !may_lose {
                return Some("has lost its exclusive CPUs".to_owned());
            }
            return None;
        };
        let moves = self.in_force.rebalance.is_some() || self.oracle.is_unsteady;
        // If others cannot be kept off some of its CPUs, it has the rest.
        if self.oracle.is_contested() && allowed.is_subset(&granted) {
            return None;
        }
        if allowed != granted && !moves {
            return Some(format!("runs on {allowed}, and was given {granted}"));
        }
        if allowed.len() != number && !self.oracle.is_unsteady && !container.is_uncertain {
            return Some(format!("runs on {allowed}, and asks for {number} CPUs"));
        }
        let group = crate::node::group(&self.dir(container));
        if self.by_partitions
            && self.is_static()
            && !self.oracle.has_refused_partition
            && !self.kernel.lock().is_partition_of(&group, allowed)
        {
            return Some(format!("runs on {allowed}, and is no partition of these"));
        }
        if let Some(why) = self.wrong_memory(container, allowed) {
            return Some(why);
        }
        if !self.read(&self.dir(container), "cpu.max").starts_with("max") {
            return Some("is throttled by its own CFS quota".to_owned());
        }
        let pod_quota = self.read(&self.pod_dir(container.pod), "cpu.max");
        // A pod with pod-level resources keeps its quota for containers that share CPUs. The plugin takes a
        // pod for one of these if one of its containers requests as much as the pod.
        let pod = &self.pods[&container.pod];
        let looks_so = pod.slots.len() > 1 && pod.slots.iter().any(|s| s.request == pod.request());
        let is_plain = pod.resources.is_none() && !pod.resized && !looks_so;
        let is_lifted = self.by_groups && is_plain;
        if is_lifted && !pod_quota.starts_with("max") {
            return Some(format!("is throttled by its pod's CFS quota {pod_quota}"));
        }
        None
    }

    /// Why a container's memory nodes are wrong under `exclusiveMemoryNodes: follow-cpus`.
    fn wrong_memory(&self, container: &Container, allowed: CpuSet) -> Option<String> {
        let is_certain = container.created_with.1 == -1 && !self.oracle.is_unsteady;
        // Where memory is counted, claims decide about its nodes.
        let follows = self.in_force.mems_follow_cpus && self.in_force.memory.is_none();
        if !follows || !is_certain || container.is_uncertain {
            return None;
        }
        let set: CpuSet = self.read(&self.dir(container), "cpuset.mems").parse().ok()?;
        let topology = self.settings.topology();
        let near = topology.nodes().iter().filter(|node| !node.cpus.is_disjoint(&allowed));
        let near: CpuSet = near.flat_map(|node| CpuSet::of(node.id)).collect();
        // After a move, and after a notice, memory follows with the next message to the runtime. A notice
        // ends with fewer CPUs, so that the container has only too many nodes before.
        let follows_later = !self.settings.capabilities().unsolicited_updates;
        let has_moved = follows_later && self.in_force.rebalance.is_some();
        let has_left = follows_later && !self.in_force.shrink_notice().is_zero();
        let is_right = has_moved
            || near.is_subset(&set) && (has_left || (set - near).iter().all(|node| node > 1));
        if is_right { None } else { Some(format!("runs on {allowed}, and has memory on {set}")) }
    }

    /// Checks that memory claims can be met at once: no set of nodes has more than it has room for.
    pub fn check_claimed_memory(&mut self, claims: &[MemoryClaim]) {
        let Some(capacity) = &self.in_force.memory else { return };
        let is_adopted = |claim: &MemoryClaim| self.oracle.has_adopted_memory_of(claim);
        let memory = claims.iter().map(|claim| &claim.memory);
        let is_allowed = claims.iter().any(is_adopted) || Room::new(capacity, memory).is_legal();
        if !is_allowed {
            self.fail(format!("memory is promised twice: {claims:?}"));
        }
    }

    /// The claims on disk that another instance of the plugin must take over as they are: those of pods
    /// that exist.
    pub fn lasting_memory(&self) -> Vec<MemoryClaim> {
        let uncertain = self.oracle.is_disturbed
            || self.settings.other_plugin
            || self.plugin.may_lack_claims(self.now)
            || self.plugin.has_lost_memory()
            || self.in_force.memory.is_none();
        if uncertain {
            return Vec::new();
        }
        let is_ready = |pod: &&Pod| pod.sandbox == Sandbox::Ready;
        let ready: BTreeSet<String> = self.pods.values().filter(is_ready).map(Pod::uid).collect();
        let mut claims = self.plugin.memory_on_disk().unwrap_or_default();
        claims.retain(|claim| ready.contains(&*claim.pod_uid.0));
        claims
    }

    /// Checks that no claim of these is lost, and that no memory has moved.
    pub fn check_lasting_memory(&mut self, before: &[MemoryClaim], now: &[MemoryClaim]) {
        let is_kept = |claim: &MemoryClaim| {
            let is_it = |other: &&MemoryClaim| {
                other.pod_uid == claim.pod_uid && other.container == claim.container
            };
            let found = now.iter().find(is_it);
            found.is_some_and(|found| found.memory.nodes == claim.memory.nodes)
                || self.oracle.has_adopted_memory_of(claim)
        };
        let lost = before.iter().find(|claim| !is_kept(claim)).cloned();
        if let Some(lost) = lost {
            self.fail(format!("another instance has lost {lost:?}, and has {now:?}"));
        }
    }

    /// Why counted memory is wrong, where nothing has disturbed it and no update is due.
    fn wrong_counted_memory(&self) -> Option<String> {
        let capacity = self.in_force.memory.as_ref()?;
        let may_differ = self.oracle.is_disturbed
            || self.oracle.is_unsteady
            || self.settings.other_plugin
            || self.in_force.rebalance.is_some()
            || self.plugin.has_lost_memory();
        if may_differ {
            return None;
        }
        let claims = self.plugin.memory_on_disk()?;
        let uids: BTreeSet<String> = self.pods.values().map(Pod::uid).collect();
        if let Some(claim) = claims.iter().find(|claim| !uids.contains(&*claim.pod_uid.0)) {
            return Some(format!("a pod that is gone has memory: {claim:?}"));
        }
        let running = self.processes().filter(|(_, one)| one.state == State::Running);
        running.into_iter().find_map(|(_, container)| {
            let why = self.wrong_claim(container, &claims, capacity.all())?;
            Some(format!("{} {why}", self.describe(container.serial)))
        })
    }

    fn wrong_claim(
        &self,
        container: &Container,
        claims: &[MemoryClaim],
        all: NodeSet,
    ) -> Option<String> {
        let pod = &self.pods[&container.pod];
        let uid = pod.uid();
        if self.oracle.adopted_memory.contains(&uid) || container.is_uncertain {
            return None;
        }
        let name = &pod.slots[container.slot].name;
        let is_its = |claim: &&MemoryClaim| *claim.pod_uid.0 == *uid && claim.container == *name;
        let claim = claims.iter().find(is_its);
        // In other pods a container may use the memory of an init container again.
        let is_alone = pod.slots.len() == 1 && pod.is_guaranteed();
        let asked = container.memory.amounts();
        let held = claim.map(|claim| claim.memory.amounts.clone()).unwrap_or_default();
        if is_alone && held != asked {
            return Some(format!("asks for {asked:?} of memory, and is counted with {held:?}"));
        }
        let nodes = claim?.memory.nodes;
        let text = self.read(&self.dir(container), "cpuset.mems");
        let set: NodeSet = text.parse::<CpuSet>().unwrap_or_default().iter().collect();
        let is_unbound = set.is_empty() && nodes == all;
        // An update during its start has changed only the runtime's record, and these runtimes get the
        // next one with the answer to a call.
        let waits = !self.settings.capabilities().unsolicited_updates
            && container.mems == nodes.to_string();
        if set == nodes || is_unbound || waits {
            None
        } else {
            Some(format!("has memory on {nodes}, and its cgroup says {text:?}"))
        }
    }

    /// Containers and cgroups with their CPUs, for a trace.
    pub fn picture(&self) -> Vec<String> {
        let mut lines = vec![format!("online {}", self.kernel.lock().online)];
        for (pid, container) in self.processes() {
            let dir = self.dir(container);
            let name = self.describe(container.serial);
            let set = self.read(&dir, "cpuset.cpus");
            let state = container.state;
            let allowed = self.kernel.lock().allowed(pid);
            let exclusive = container.exclusive.map(|c| format!(" exclusive {c}"));
            let exclusive = exclusive.unwrap_or_default();
            lines.push(format!("{name} {state:?}: set {set:?}, runs on {allowed}{exclusive}"));
        }
        let pods = self.pods.values();
        let above: BTreeSet<String> = pods
            .flat_map(|pod| [Paths(&self.settings).class_of(pod), self.pod_dir(pod.id)])
            .collect();
        for dir in above {
            lines.push(format!("{dir}: set {:?}", self.read(&dir, "cpuset.cpus")));
        }
        lines
    }
}

/// Whether one of a pod's containers can have exclusive CPUs: by its class, or by a pod option.
fn may_have_exclusive(pod: &Pod) -> bool {
    let mut slots = 0..pod.slots.len();
    pod.class == Class::Guaranteed
        || slots.any(|slot| {
            pod.pod_options(slot, ("cpus", "exclusive")) || pod.pod_options(slot, MIXED)
        })
}

#[cfg(test)]
mod tests;
