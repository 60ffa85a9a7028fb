//! The administrator of the node, and programs other than the plugin and the kubelet: writes into
//! cgroups, partitions, hotplug, the configuration file, removal of the plugin, restarts.

use crate::configuration::{Configuration, FAULTY, read};
use crate::dice::Dice;
use crate::kernel::{CGROUPS, PROC, SYS};
use crate::plugin::STATE;
use crate::pods::{Class, Kind, Paths, Pod, PodId, Sandbox, Serial, Slot};
use crate::settings::lowest;
use crate::world::World;
use cgroups::{Hierarchy, undo};
use cpuset::CpuSet;
use daemon::Input;
use exclusivity::{open_records, open_steering};
use quiet::Roots;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time in which the plugin carries out a change of the machine or of the configuration.
pub const CHANGE: Duration = Duration::from_secs(5);
/// The time in which a check pass corrects a container.
const CHECK: Duration = Duration::from_secs(25);

impl World {
    /// Another program writes into the cgroup of a class or pod, and may do so again.
    pub fn write_above(&mut self, dice: &mut Dice) {
        // Where the runtime's updates bind, the plugin does not restore cgroups above containers.
        if !self.by_groups {
            return;
        }
        let Some((id, dir)) = self.some_level(dice) else { return };
        let cpus = if dice.percent(30) { self.kernel.lock().online } else { self.some_cpus(dice) };
        let times = dice.pick(&[1, 1, 1, 2, 3, 7]);
        self.insist(id, dir, cpus, times);
    }

    fn insist(&mut self, id: PodId, dir: String, cpus: CpuSet, times: u32) {
        let is_here = self.read(&dir, "cpuset.cpus") == cpus.to_string();
        if times == 0 || is_here || !self.pods.contains_key(&id) {
            return;
        }
        self.note_limit(&dir, cpus);
        // Cgroups of a pod in which each container is bound itself are not watched: check passes notice.
        let is_tight = self.containers.values().any(|c| c.pod == id && c.has_exclusive());
        let bound = if is_tight { CHECK } else { Duration::from_millis(100) };
        self.other_writes(&dir, &cpus.to_string(), bound);
        let again = self.dice.millis(150, 3000);
        self.after(again, move |world| world.insist(id, dir, cpus, times - 1));
    }

    /// Records a write of another program into the cgroup of a class or pod. All CPUs limit nobody.
    fn note_limit(&mut self, dir: &str, cpus: CpuSet) {
        if !self.settings.topology().online().is_subset(&cpus) {
            *self.oracle.written.entry(dir.to_owned()).or_default() += 1;
        }
    }

    /// Another program limits a class, and writes all CPUs into it as `status` advises. Its only pod then ends,
    /// and another one makes the class again. With systemd nothing is left of its cgroup in between.
    pub fn remake_class(&mut self) {
        let slot = Slot::new("app0".to_owned(), Kind::App, 0, 0);
        let id = self.make_pod(Class::BestEffort, slot.clone());
        self.after(Duration::from_secs(1), move |world| world.write_class_of(id, lowest()));
        self.after(Duration::from_secs(2), move |world| {
            let online = world.kernel.lock().online;
            world.write_class_of(id, online);
            if world.pods.contains_key(&id) {
                world.delete_pod(id, Duration::ZERO);
            }
        });
        self.after(Duration::from_secs(3), move |world| {
            world.make_pod(Class::BestEffort, slot);
        });
    }

    fn write_class_of(&mut self, id: PodId, cpus: CpuSet) {
        let Some(pod) = self.pods.get(&id).filter(|_| self.by_groups) else { return };
        let dir = Paths(&self.settings).class_of(pod);
        self.note_limit(&dir, cpus);
        self.other_writes(&dir, &cpus.to_string(), Duration::from_millis(100));
    }

    /// The plugin dies, and pods are created before it is back. containerd loses the updates in the answer
    /// to its list.
    pub fn create_while_away(&mut self, dice: &mut Dice) {
        self.plugin_dies("killed");
        // Where its updates bind, only they keep containers apart.
        self.runtime.loses_list = !self.settings.is_crio() && self.by_groups;
        for _ in 0..dice.between(1, 4) {
            let request = dice.between(1, 2) * 1000;
            if request <= self.unpromised() {
                let slot = Slot::new("app0".to_owned(), Kind::App, request, request);
                self.make_pod(Class::Guaranteed, slot);
            }
        }
    }

    fn make_pod(&mut self, class: Class, slot: Slot) -> PodId {
        let id = self.next_pod;
        self.next_pod += 1;
        let dice = Dice::new(self.dice.seed());
        self.pods.insert(id, Pod::bare(id, class, vec![slot], dice));
        self.after(Duration::ZERO, move |world| world.sync_pod(id));
        id
    }

    pub fn other_writes(&mut self, dir: &str, cpus: &str, bound: Duration) {
        let written = self.write(dir, "cpuset.cpus", cpus);
        self.say(format!("a program writes {cpus} into {dir}: {written:?}"));
        // A move that waits for the disk has already given its old CPUs to the pool.
        let disk = self.plugin.disk.map_or(Duration::ZERO, |(_, until)| until + CHANGE);
        let bound = bound.max(disk.saturating_sub(self.now));
        // After a refusal the plugin checks again a second later.
        let refused = self.oracle.refused.map(|at| at + Duration::from_millis(1200));
        let bound = bound.max(refused.unwrap_or_default().saturating_sub(self.now));
        self.disturbed("written by another program", dir, bound);
    }

    pub fn write_container(&mut self, dice: &mut Dice) {
        let Some(serial) = self.some_container(dice) else { return };
        let dir = self.dir(&self.containers[&serial]);
        let cpus = if dice.percent(50) { self.kernel.lock().online } else { self.some_cpus(dice) };
        *self.oracle.written.entry(dir.clone()).or_default() += 1;
        self.other_writes(&dir, &cpus.to_string(), CHECK);
        if self.settings.other_plugin {
            // Another plugin does it by the runtime, which records it.
            self.container(serial).cpus = cpus.to_string();
        }
    }

    /// A random pod, and its cgroup or that of its class.
    pub fn some_level(&self, dice: &mut Dice) -> Option<(PodId, String)> {
        let id = self.some_pod(dice)?;
        let pod = &self.pods[&id];
        if dice.percent(50) {
            return Some((id, self.pod_dir(id)));
        }
        if pod.is_guaranteed() { None } else { Some((id, Paths(&self.settings).class_of(pod))) }
    }

    fn some_cpus(&self, dice: &mut Dice) -> CpuSet {
        let online: Vec<usize> = self.kernel.lock().online.iter().collect();
        let first = dice.below(online.len());
        let number = 1 + dice.below(online.len());
        online.iter().cycle().skip(first).take(number).flat_map(|cpu| CpuSet::of(*cpu)).collect()
    }

    /// Takes a CPU that no configuration reserves offline, or back online.
    pub fn hotplug(&mut self, dice: &mut Dice) {
        let cpus: Vec<usize> = self.never_reserved().iter().collect();
        // All can be reserved.
        let cpu = cpus.get(dice.below(cpus.len()));
        self.toggle(cpu.and_then(|cpu| CpuSet::of(*cpu).ok()).unwrap_or_default());
    }

    pub fn toggle(&mut self, cpu: CpuSet) {
        let mut online = self.kernel.lock().online;
        online = if cpu.is_subset(&online) { online - cpu } else { online | cpu };
        self.say(format!("online {online}"));
        self.kernel.lock().set_online(online);
        // The kubelet gives its cgroup the CPUs that are online when it starts, and none that come online
        // later: an administrator adds them.
        let root = Paths(&self.settings).root().to_owned();
        let set: CpuSet = self.read(&root, "cpuset.cpus").parse().unwrap_or_default();
        if !set.is_empty() && !online.is_subset(&set) {
            let written = self.write(&root, "cpuset.cpus", &(set | online).to_string());
            debug_assert!(written.is_ok(), "{written:?}");
        }
        self.unsettled("hotplug");
    }

    /// Makes another program's partition of some CPUs, or ends it.
    pub fn partition(&mut self, dice: &mut Dice) {
        let mut cpus = CpuSet::EMPTY;
        if self.kernel.lock().foreign().is_empty() {
            let online = self.kernel.lock().online;
            let free: Vec<usize> = (self.never_reserved() & online).iter().collect();
            let first = dice.below(free.len());
            cpus = free
                .iter()
                .skip(first)
                .take(dice.pick(&[1, 1, 2]))
                .flat_map(|c| CpuSet::of(*c))
                .collect();
        }
        self.say(format!("another program's partition has {cpus}"));
        self.kernel.lock().set_foreign(cpus);
        self.unsettled("hotplug");
    }

    fn never_reserved(&self) -> CpuSet {
        self.settings.topology().online() - self.reserved() - lowest()
    }

    /// Records that the CPUs of all containers may change for this reason.
    fn unsettled(&mut self, why: &'static str) {
        self.oracle.is_unsteady = true;
        self.oracle.changed = true;
        self.oracle.allow(why, "", self.now + CHANGE);
        if !self.plugin.is_alive() {
            self.oracle.unwatched("");
        }
    }

    /// Replaces the plugin's configuration file by a valid or a faulty one.
    pub fn reconfigure(&mut self, dice: &mut Dice) {
        if dice.percent(25) {
            let faulty = FAULTY.len() - usize::from(self.settings.privileged);
            self.set_file(Err(dice.pick(&FAULTY[..faulty])));
        } else {
            self.set_file(Ok(self.usable.changed(
                &self.settings.topology(),
                self.settings.privileged,
                dice,
            )));
        }
    }

    pub fn set_file(&mut self, file: Result<Configuration, &'static str>) {
        self.file = file;
        let text = self.file_text();
        self.say(format!("the configuration is {text:?}"));
        // The plugin reads the file every second, and follows it when it has read it twice.
        let delay = self.dice.millis(1000, 2000);
        self.wake_plugin(delay, move |world| {
            if world.file_text() == text {
                world.configured();
                world.input(Input::Config(read(&text)));
            }
        });
    }

    pub fn file_text(&self) -> String {
        self.file.as_ref().map_or_else(|faulty| (*faulty).to_owned(), |file| file.text())
    }

    /// Records what the plugin reads in its file. Returns whether it can use that.
    pub fn configured(&mut self) -> bool {
        let Ok(file) = self.file.clone() else { return false };
        let Some(settings) = file.settings(&self.topology()) else { return false };
        if settings.memory != self.in_force.memory {
            self.note_all_memory_adopted();
        }
        if settings != self.in_force {
            self.unsettled("configuration");
            self.note_unwatched("");
        }
        self.usable = file;
        self.in_force = settings;
        self.note_policy();
        self.note_mode();
        true
    }

    pub fn note_mode(&mut self) {
        let observes = self.usable.observes();
        if observes != self.oracle.observes_since.is_some() {
            self.note_all_memory_adopted();
        }
        self.oracle.follow_mode(observes, self.now, self.now + Duration::from_secs(25));
    }

    /// Checks that a plugin that observes sets no CPUs. Answers may be older than the mode.
    pub fn check_observer(&mut self, serial: Serial) {
        let settled = Duration::from_secs(5);
        if self.oracle.observes_since.is_some_and(|since| since + settled < self.now) {
            let text = self.describe(serial);
            self.fail(format!("{text} gets CPUs from a plugin that observes"));
        }
    }

    /// Removes the plugin from the node and installs it again: with or without `uninstall`, and with or
    /// without its state.
    pub fn uninstall(&mut self, dice: &mut Dice) {
        let is_ready = |pod: &Pod| pod.deleted.is_none() && pod.sandbox == Sandbox::Ready;
        if !self.pods.get(&0).is_some_and(is_ready) {
            return;
        }
        self.say("the plugin is uninstalled");
        // Nothing is checked until it is back.
        self.oracle.unwatched("");
        self.delete_pod(0, Duration::ZERO);
        if dice.percent(70) {
            self.after(Duration::from_secs(3), World::revert);
        }
        if dice.percent(50) {
            self.after(Duration::from_secs(4), World::forget);
        }
        let delay = dice.millis(5000, 20_000);
        self.after(delay, |world| world.install(0));
    }

    /// Removes the state directory.
    fn forget(&mut self) {
        if !self.plugin.is_alive() {
            let has_originals = self.kernel.lock().changed_tunable().is_some();
            self.plugin.has_lost_originals |= has_originals;
            self.plugin.forget();
        }
    }

    /// `nri-cpu-manager uninstall`.
    fn revert(&mut self) {
        if self.plugin.is_alive() {
            // Another instance has locked the state directory.
            return;
        }
        self.kernel.lock().faults.lives = None;
        let kernel = Arc::new(self.kernel.clone());
        let storage = self.plugin.storage();
        let roots = Roots { proc: PathBuf::from(PROC), sys: PathBuf::from(SYS) };
        let nowhere = Some(Path::new("/simulated"));
        let mut steering = open_steering(
            Path::new(STATE),
            storage.clone(),
            &*kernel,
            Path::new(PROC),
            roots,
            nowhere,
        );
        let records = open_records(Path::new(STATE), storage, &*kernel, Path::new(PROC));
        let Some(hierarchy) = Hierarchy::open_on(kernel, Path::new(CGROUPS)) else { return };
        let widest = self.settings.topology().online();
        let undone = undo(&hierarchy, records, widest, None);
        let files = steering.restore(&self.kernel).files;
        self.say(format!(
            "uninstall restores {} cgroups, {} quotas, {files} files of interrupts and CPUs",
            undone.groups, undone.quotas
        ));
        self.note_writes();
        if !undone.errors.is_empty() && !self.pods.contains_key(&0) {
            self.after(Duration::from_secs(1), World::revert);
        }
    }

    /// Makes the pod of the plugin's DaemonSet.
    pub fn install(&mut self, id: PodId) {
        if self.pods.contains_key(&id) {
            // The kubelet has not ended the previous one.
            return self.after(Duration::from_secs(1), move |world| world.install(id));
        }
        let slot = Slot::new("cpu-manager".to_owned(), Kind::App, 100, 0);
        let dice = Dice::new(self.dice.seed());
        let pod = Pod::bare(id, Class::Burstable, vec![slot], dice);
        self.pods.insert(id, Pod { is_plugin: true, ..pod });
        self.after(Duration::ZERO, move |world| world.sync_pod(id));
    }

    /// Installs another DaemonSet with the same state directory for some time.
    pub fn install_twice(&mut self, dice: &mut Dice) {
        if self.pods.values().filter(|pod| pod.is_plugin).count() > 1 {
            return;
        }
        let id = self.next_pod;
        self.next_pod += 1;
        self.install(id);
        let until = dice.millis(2000, 30_000);
        self.after(until, move |world| world.delete_pod(id, Duration::from_millis(10)));
    }

    pub fn delete_pod(&mut self, id: PodId, grace: Duration) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.deleted = Some(grace);
        self.say(format!(
            "pod {} is deleted, grace {} ms",
            self.pods[&id].uid(),
            grace.as_millis()
        ));
        self.after(Duration::ZERO, move |world| world.sync_pod(id));
    }

    /// Restarts the machine. The pods get new containers.
    pub fn reboot(&mut self, dice: &mut Dice) {
        self.say("the machine restarts");
        self.plugin_dies("the machine restarts");
        self.plugin.crashed(dice);
        let away = dice.millis(3000, 10_000);
        self.restart_runtime(away);
        self.runtime.down = true;
        self.kernel.lock().reboot();
        self.take_offline();
        self.oracle.rebooted();
        self.containers.clear();
        self.pods.retain(|_, pod| pod.deleted.is_none());
        for pod in self.pods.values_mut() {
            pod.sandbox = Sandbox::None;
            pod.pause = None;
            pod.busy = false;
            pod.starts_over = false;
            for slot in &mut pod.slots {
                (slot.instance, slot.done) = (None, slot.kind == Kind::Debug);
            }
        }
        self.make_kubelet_cgroups();
        if !self.pods.contains_key(&0) {
            self.install(0);
        }
    }

    /// Restarts the kubelet, which then writes the quotas of pods again.
    pub fn restart_kubelet(&mut self, dice: &mut Dice) {
        self.say("the kubelet restarts");
        let away = dice.millis(200, 8000);
        self.kubelet_until = self.now + away;
        self.after(away, |world| {
            let pods: Vec<PodId> = world.pods.keys().copied().collect();
            for id in pods {
                world.write_pod_quota(id);
                let delay = world.dice.millis(1, 800);
                world.after(delay, move |world| world.sync_pod(id));
            }
        });
    }

    /// `systemctl daemon-reload`: systemd writes again what the runtime has set for scopes, and the quotas
    /// of slices.
    pub fn reload_systemd(&mut self) {
        if !self.settings.systemd {
            return;
        }
        for serial in self.running_containers() {
            let container = &self.containers[&serial];
            let dir = self.dir(container);
            let cpus = container.cpus.clone();
            if !cpus.is_empty() && self.read(&dir, "cpuset.cpus") != cpus {
                self.other_writes(&dir, &cpus, CHECK);
                if self.plugin.is_alive() {
                    // This may return a container to exclusive CPUs that it had left for another one.
                    self.notice_exclusive(&dir, &cpus);
                }
            }
            self.realise_slices(&dir);
        }
        let pods: Vec<PodId> = self.pods.keys().copied().collect();
        pods.into_iter().for_each(|id| self.write_pod_quota(id));
    }

    pub fn some_pod(&self, dice: &mut Dice) -> Option<PodId> {
        let live = self.pods.values().filter(|pod| pod.deleted.is_none() && !pod.is_plugin);
        let live: Vec<PodId> = live.map(|pod| pod.id).collect();
        live.get(dice.below(live.len())).copied()
    }

    pub fn some_container(&self, dice: &mut Dice) -> Option<Serial> {
        let running = self.running_containers();
        running.get(dice.below(running.len())).copied()
    }
}
