//! The kubelet and systemd: pods, their cgroups, and the lives of containers.

use crate::dice::Dice;
use crate::kernel::{CGROUPS, Errno};
use crate::oracle::{Key, STARTING};
use crate::pods::{
    Container, HUGE_PAGES, Kind, MIXED, MemoryLimits, Paths, Pod, PodId, Sandbox, Serial, Slot,
    State, quota,
};
use crate::runtime::{PluginReply, Task};
use crate::settings::Trouble;
use crate::world::World;
use cpuset::CgroupPath;
use nri::wire::Event;
use placement::memory_manager::MemoryKind;
use std::path::PathBuf;
use std::time::Duration;

pub fn group(path: &str) -> CgroupPath {
    CgroupPath::new(path).expect("a cgroup's path")
}

fn file(dir: &str, name: &str) -> PathBuf {
    PathBuf::from(CGROUPS).join(dir).join(name)
}

pub fn cfs(quota: i64) -> String {
    if quota > 0 { format!("{quota} 100000") } else { "max 100000".to_owned() }
}

impl World {
    /// The text of a cgroup's file; empty if there is none.
    pub fn read(&self, dir: &str, name: &str) -> String {
        let text = self.kernel.lock().read_text(&file(dir, name)).unwrap_or_default();
        text.trim().to_owned()
    }

    pub fn write(&self, dir: &str, name: &str, text: &str) -> Result<(), Errno> {
        self.kernel.lock().write(&file(dir, name), text)
    }

    /// Sets the CPUs that the plugin gave a container, as the runtime.
    pub fn set_cpus(&self, dir: &str, cpus: &str) -> Result<(), Errno> {
        let path = file(dir, "cpuset.cpus");
        // In a window the write may come from an answer that is outdated by now.
        if self.oracle.window(dir, self.now, false).is_none() {
            self.kernel.lock().note_hazard(&path, cpus);
        }
        self.kernel.lock().write(&path, cpus)
    }

    /// The kubelet syncs a pod again after some milliseconds.
    fn sync_in(&mut self, id: PodId, first: u64, last: u64) {
        let delay = self.pod(id).dice.millis(first, last);
        self.after(delay, move |world| world.sync_pod(id));
    }

    /// The kubelet's sync loop for one pod: takes the next step, if there is one.
    pub fn sync_pod(&mut self, id: PodId) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        if pod.busy {
            return;
        }
        if self.now < self.kubelet_until {
            // When the kubelet has restarted it syncs every pod.
            return;
        }
        if self.runtime.down {
            return self.sync_in(id, 100, 600);
        }
        if let Some(grace) = pod.deleted {
            return self.end_pod(id, grace);
        }
        match pod.sandbox {
            Sandbox::None => return self.run_sandbox(id),
            Sandbox::Ready if pod.starts_over => return self.remove_containers(id),
            Sandbox::Ready => {}
            _ => return,
        }
        for slot in 0..pod.slots.len() {
            let Slot { kind, done, not_before, instance, .. } = self.pods[&id].slots[slot];
            match instance {
                Some(serial) => match self.containers[&serial].state {
                    // Its start has failed: the kubelet creates a new container.
                    State::Created if self.containers[&serial].never_ran => {
                        return self.exit(serial);
                    }
                    State::Created => return self.start_container(serial),
                    State::Unknown => {
                        return self.after(Duration::from_secs(1), move |world| world.exit(serial));
                    }
                    _ if kind == Kind::Init => return,
                    _ => {}
                },
                None if done => {}
                None if self.now < not_before => {
                    self.after(not_before - self.now, move |world| world.sync_pod(id));
                    if matches!(kind, Kind::Init | Kind::Sidecar) {
                        return;
                    }
                }
                None => return self.create_container(id, slot),
            }
        }
    }

    /// A rule of a container's exit has the kubelet end and remove all containers of the pod, whose
    /// sandbox stays, and create them again, init containers first.
    pub fn start_over(&mut self, id: PodId) {
        let pod = self.pod(id);
        if pod.sandbox == Sandbox::Ready {
            pod.starts_over = true;
            self.after(Duration::ZERO, move |world| world.sync_pod(id));
        }
    }

    /// Takes the next step in the removal of all containers of a pod that starts over.
    fn remove_containers(&mut self, id: PodId) {
        let alive: Vec<Serial> = self.pods[&id].slots.iter().filter_map(|s| s.instance).collect();
        if !alive.is_empty() {
            // Those that were ending have a later turn.
            alive.into_iter().for_each(|serial| self.exit(serial));
            return self.sync_in(id, 100, 600);
        }
        let ended: Vec<Serial> =
            self.containers.values().filter(|one| one.pod == id).map(|one| one.serial).collect();
        if !ended.is_empty() {
            ended.into_iter().for_each(|serial| self.collect(serial));
            return self.sync_in(id, 100, 600);
        }
        let now = self.now;
        let pod = self.pod(id);
        pod.starts_over = false;
        for slot in &mut pod.slots {
            slot.done = slot.kind == Kind::Debug;
            slot.not_before = now;
        }
        self.sync_pod(id);
    }

    pub fn pod(&mut self, id: PodId) -> &mut Pod {
        self.pods.get_mut(&id).expect("a pod that exists")
    }

    pub fn container(&mut self, serial: Serial) -> &mut Container {
        self.containers.get_mut(&serial).expect("a container that exists")
    }

    /// The kubelet makes the pod's cgroup, and the runtime its sandbox with a pause process.
    fn run_sandbox(&mut self, id: PodId) {
        let dir = self.pod_dir(id);
        self.kernel.lock().make_cgroup(&group(&dir));
        self.write_pod_quota(id);
        let pod = self.pod(id);
        pod.busy = true;
        pod.sandbox = Sandbox::Starting;
        pod.sandboxes += 1;
        pod.is_reported = true;
        let delay = pod.dice.millis(1, 30);
        let sandbox = pod.sandbox_id();
        let class = pod.class;
        let uid = pod.uid();
        self.say(format!("pod {uid} ({class:?}): sandbox {sandbox}"));
        let pause = Paths(&self.settings).container(&self.pods[&id], &sandbox);
        self.make_leaf(&pause, "");
        let pid = self.kernel.lock().spawn(&group(&pause));
        self.oracle.changed = true;
        self.pod(id).pause = Some(pid);
        self.oracle.open(Key::Pause(id), "pause container", &dir);
        self.note_unwatched(&dir);
        self.call_in(delay, Task::Pod(Event::RUN_POD_SANDBOX, id));
    }

    pub fn write_pod_quota(&mut self, id: PodId) {
        let quota = cfs(quota(self.pods[&id].limit()));
        // The pod may have ended.
        let _ = self.write(&self.pod_dir(id), "cpu.max", &quota);
    }

    pub fn sandbox_runs(&mut self, id: PodId) {
        self.oracle.close(Key::Pause(id), self.now + Duration::from_millis(50));
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.busy = false;
        pod.sandbox = Sandbox::Ready;
        self.sync_in(id, 1, 20);
    }

    /// Makes a container's cgroup. With systemd, this realises the slices above.
    fn make_leaf(&mut self, dir: &str, cpus: &str) {
        self.kernel.lock().make_cgroup(&group(dir));
        self.realise_slices(dir);
        if !cpus.is_empty() {
            let written = self.set_cpus(dir, cpus);
            debug_assert!(written.is_ok(), "{dir}: {written:?}");
        }
    }

    /// systemd writes an empty list into each slice above; the kernel refuses that where processes
    /// run.
    pub fn realise_slices(&mut self, dir: &str) {
        if !self.settings.systemd {
            return;
        }
        let mut at = dir;
        while let Some((above, _)) = at.rsplit_once('/') {
            at = above;
            // The unit of the system partition has `AllowedCPUs=`, so systemd does not clear it.
            if self.settings.system_partition.is_some() && above == Paths(&self.settings).system() {
                continue;
            }
            let had = self.read(above, "cpuset.cpus");
            if !had.is_empty() && self.write(above, "cpuset.cpus", "").is_ok() {
                self.say(format!("systemd clears {above}, which had {had}"));
                self.disturbed("cleared by systemd", above, Duration::from_millis(100));
            }
        }
    }

    /// Ends a process and removes its cgroup.
    pub fn end_process(&mut self, pid: u32, dir: &str) {
        self.kernel.lock().kill(pid);
        let removed = self.kernel.lock().remove_cgroup(&group(dir));
        debug_assert!(removed.is_ok(), "{dir}: {removed:?}");
        // systemd notices it a moment later.
        let delay = self.dice.micros(10, 20_000);
        let dir = dir.to_owned();
        self.after(delay, move |world| world.realise_slices(&dir));
    }

    /// Makes a cgroup within a container's own, with a process and all CPUs or one, as systemd and
    /// hypervisors do in containers. If the container has such a cgroup, removes it.
    pub fn nest(&mut self, serial: Serial, dice: &mut Dice) {
        let container = &self.containers[&serial];
        if container.inner.is_some() {
            return self.end_inner(serial);
        }
        let Some(pid) = container.pid else { return };
        if container.state != State::Running {
            return;
        }
        let dir = self.inner_dir(container);
        self.kernel.lock().make_cgroup(&group(&dir));
        if dice.percent(50) {
            let cpus: Vec<usize> = self.kernel.lock().allowed(pid).iter().collect();
            let some = dice.below(cpus.len());
            // The kernel accepts any list, and uses its CPUs that the cgroup above has.
            let _ = self.write(&dir, "cpuset.cpus", &cpus[some].to_string());
        }
        let inner = self.kernel.lock().spawn(&group(&dir));
        self.container(serial).inner = Some(inner);
        let text = self.describe(serial);
        self.say(format!("{text} has a process in {dir}"));
    }

    /// Removes the cgroup within a container's own, with its process.
    pub fn end_inner(&mut self, serial: Serial) {
        let Some(inner) = self.container(serial).inner.take() else { return };
        let dir = self.inner_dir(&self.containers[&serial]);
        self.kernel.lock().kill(inner);
        let removed = self.kernel.lock().remove_cgroup(&group(&dir));
        debug_assert!(removed.is_ok(), "{dir}: {removed:?}");
    }

    fn inner_dir(&self, container: &Container) -> String {
        format!("{}/inner", self.dir(container))
    }

    fn create_container(&mut self, id: PodId, slot: usize) {
        let serial = self.next_container;
        self.next_container += 1;
        let (request, limit) = self.pods[&id].of_container(slot);
        let container = Container {
            serial,
            pod: id,
            slot,
            request,
            limit,
            memory: self.pods[&id].slots[slot].memory,
            created_at: self.now.as_nanos() as i64 + 1,
            ..Container::default()
        };
        self.containers.insert(serial, container);
        self.pod_of.insert(serial, id);
        let pod = self.pod(id);
        pod.busy = true;
        pod.slots[slot].instance = Some(serial);
        let delay = pod.dice.millis(1, 20);
        if let Some(cpus) = self.named_by_kubelet(serial) {
            let container = self.container(serial);
            container.cpus = cpus.to_string();
            container.is_named = true;
        } else if self.pods[&id].is_preset(&self.settings) {
            let cpus = self.reserved() & self.kernel.lock().usable();
            let container = self.container(serial);
            container.is_preset = !cpus.is_empty();
            container.cpus = cpus.to_string();
        }
        self.report(delay, Event::CREATE_CONTAINER, serial);
    }

    /// Continues a creation after the runtime has called the plugins.
    pub fn created(&mut self, serial: Serial, reply: PluginReply) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        let id = container.pod;
        // A plugin that was away cannot know that others have set the CPUs.
        container.is_preset &= reply.answered || self.pods[&id].is_in_workload(&self.settings);
        let slot = container.slot;
        let is_crio = self.settings.is_crio();
        let is_peace = self.settings.trouble == Trouble::None;
        if reply.answered && !container.is_set_by_others() {
            self.note_no_cpus_named();
        }
        self.note_created(id, reply.answered);
        if reply.answered {
            self.check_excess(serial, reply.refused.as_deref());
        }
        if reply.adjust.as_ref().is_some_and(|adjust| !adjust.linux.resources.cpu.cpus.is_empty()) {
            self.check_observer(serial);
        }
        let is_moved = container_is_moved(self.containers.get(&serial), &reply);
        if is_moved {
            let text = self.describe(serial);
            return self.fail(format!("{text} has CPUs of another program, and gets others"));
        }
        let Some(container) = self.containers.get_mut(&serial) else { return };
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.busy = false;
        // Another plugin may refuse the container, or the runtime may fail to make it. CRI-O does not
        // report that.
        let fails = !is_peace && !is_crio && pod.dice.percent(4);
        let undone = if fails { Some("undone by the runtime".to_owned()) } else { None };
        if let Some(why) = reply.refused.or(undone) {
            container.state = State::Exited;
            let slot = &mut pod.slots[slot];
            slot.instance = None;
            slot.attempts += 1;
            let more = u64::from(slot.attempts.min(8));
            slot.not_before = self.now + pod.dice.millis(500 * more, 5000 * more);
            let again = slot.not_before - self.now;
            self.say(format!("  {} refused: {why}", crate::pods::id(serial)));
            self.check_refusal(&why);
            self.after(again, move |world| world.sync_pod(id));
            if is_crio {
                self.containers.remove(&serial);
            } else {
                let stopped = self.dice.millis(1, 30);
                let removed = stopped + self.dice.millis(1, 30);
                self.after(stopped, move |world| world.report_stop(serial));
                self.after(removed, move |world| world.collect(serial));
            }
            return;
        }
        container.state = State::Created;
        if let Some(adjust) = reply.adjust.filter(|_| !container.is_preset) {
            let cpu = &adjust.linux.resources.cpu;
            container.cpus.clone_from(&cpu.cpus);
            container.mems.clone_from(&cpu.mems);
            container.quota = cpu.quota.value;
            if cpu.quota.value == -1 {
                container.given(&cpu.cpus, pod.pod_options(slot, MIXED));
            }
        }
        container.created_with = (container.cpus.clone(), container.quota);
        let slowest = if pod.dice.percent(10) { 1500 } else { 30 };
        let reported = pod.dice.millis(1, slowest);
        let delay = reported + pod.dice.millis(1, slowest);
        self.check_kind(serial);
        if is_crio {
            self.make_process(serial);
        }
        self.report(reported, Event::POST_CREATE_CONTAINER, serial);
        self.after(delay, move |world| world.sync_pod(id));
    }

    /// Makes the cgroup and a process in it that will become the container's, as `runc create`.
    fn make_process(&mut self, serial: Serial) {
        let container = &self.containers[&serial];
        let dir = self.dir(container);
        let cpus = container.cpus.clone();
        let pod = container.pod;
        let cpu_max = cfs(container.cfs_quota());
        let mems = container.mems.clone();
        self.make_leaf(&dir, &cpus);
        let _ = self.write(&dir, "cpu.max", &cpu_max);
        let _ = self.write(&dir, "cpuset.mems", &mems);
        let pid = self.kernel.lock().spawn(&group(&dir));
        self.oracle.changed = true;
        self.container(serial).pid = Some(pid);
        let pod = self.pod_dir(pod);
        self.note_unwatched(&pod);
    }

    fn start_container(&mut self, serial: Serial) {
        let id = self.containers[&serial].pod;
        if !self.settings.is_crio() {
            self.make_process(serial);
        }
        let dir = self.dir(&self.containers[&serial]);
        // Until it runs, updates change only its specification.
        self.oracle.open(Key::Starting(serial), STARTING, &dir);
        self.container(serial).state = State::Starting;
        let pod = self.pod(id);
        pod.busy = true;
        let delay = pod.dice.millis(2, 40);
        // A start that fails, as where the program is missing.
        if pod.dice.percent(3) && self.settings.trouble != Trouble::None {
            return self.after(delay, move |world| world.exit(serial));
        }
        self.after(delay, move |world| world.running(serial));
    }

    pub fn running(&mut self, serial: Serial) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        if container.state != State::Starting {
            return;
        }
        container.state = State::Running;
        let id = container.pod;
        let pid = container.pid;
        let text = self.describe(serial);
        self.say(format!("{text} runs"));
        self.oracle.close(Key::Starting(serial), self.now + Duration::from_secs(25));
        self.report(Duration::from_micros(200), Event::POST_START_CONTAINER, serial);
        let kind = self.kind(serial);
        let pod = self.pod(id);
        pod.busy = false;
        let delay = pod.dice.millis(1, 20);
        let lasts = pod.dice.millis(10, 3000);
        let is_plugin = pod.is_plugin;
        self.after(delay, move |world| world.sync_pod(id));
        if matches!(kind, Kind::Init | Kind::Debug) {
            self.after(lasts, move |world| world.exit(serial));
        }
        if let (true, Some(pid)) = (is_plugin, pid) {
            self.start_plugin(pid, serial);
        }
    }

    pub fn kind(&self, serial: Serial) -> Kind {
        let container = &self.containers[&serial];
        self.pods[&container.pod].slots[container.slot].kind
    }

    pub fn describe(&self, serial: Serial) -> String {
        let Some(container) = self.containers.get(&serial) else {
            return crate::pods::id(serial);
        };
        let pod = &self.pods[&container.pod];
        let name = &pod.slots[container.slot].name;
        format!(
            "{} {}/{name} ({}m)",
            crate::pods::id(container.serial),
            pod.uid(),
            container.request
        )
    }

    /// Ends a container's process.
    pub fn exit(&mut self, serial: Serial) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        if matches!(container.state, State::Exited | State::Creating) {
            return;
        }
        let was_starting = container.state == State::Starting;
        container.never_ran = container.state == State::Created;
        container.state = State::Exited;
        (container.exclusive, container.mixed) = (None, false);
        let id = container.pod;
        let slot = container.slot;
        let pid = container.pid.take();
        let text = self.describe(serial);
        self.say(format!("{text} ends"));
        let dir = self.dir(&self.containers[&serial]);
        self.end_inner(serial);
        if let Some(pid) = pid {
            self.end_process(pid, &dir);
        }
        self.oracle.close(Key::Starting(serial), self.now);
        let kind = self.kind(serial);
        let now = self.now;
        let trouble = self.settings.trouble;
        let pod = self.pod(id);
        pod.busy &= !was_starting;
        let fails = kind == Kind::Init && pod.dice.percent(10);
        let back_off = pod.dice.millis(10, if pod.is_plugin { 4000 } else { 10_000 });
        let late = match trouble {
            Trouble::None => pod.dice.millis(1, 100),
            _ if pod.dice.percent(10) => pod.dice.millis(100, 5000),
            _ => pod.dice.millis(1, 50),
        };
        // containerd does not report the ends of some containers.
        let never = trouble == Trouble::All && pod.dice.percent(4);
        let collected = match pod.dice.below(5) {
            0 => pod.dice.millis(20, 2000),
            _ => pod.dice.millis(6000, 60_000),
        };
        let state = &mut pod.slots[slot];
        state.instance = None;
        match kind {
            Kind::Init if !fails => state.done = true,
            Kind::Debug => state.done = true,
            _ => state.not_before = now + back_off,
        }
        let is_plugin = pod.is_plugin;
        let deleted = pod.deleted.is_some();
        if is_plugin && self.plugin.is_in(serial) {
            self.plugin_dies("its process ended");
        }
        if !never {
            self.after(late, move |world| world.report_stop(serial));
        }
        if !deleted {
            self.after(collected, move |world| world.collect(serial));
        }
        self.after(Duration::from_millis(5), move |world| world.sync_pod(id));
    }

    pub fn report_stop(&mut self, serial: Serial) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        if !self.runtime.down && !container.stop_reported {
            container.stop_reported = true;
            self.oracle.last_report = self.now;
            self.report(Duration::ZERO, Event::STOP_CONTAINER, serial);
        }
    }

    /// Removes a container. The runtime reports its end first, if it has not yet.
    pub fn collect(&mut self, serial: Serial) {
        if self.runtime.down {
            return self.after(Duration::from_secs(1), move |world| world.collect(serial));
        }
        self.report_stop(serial);
        self.report(Duration::ZERO, Event::REMOVE_CONTAINER, serial);
    }

    /// Takes the next step in the removal of a deleted pod.
    fn end_pod(&mut self, id: PodId, grace: Duration) {
        let alive: Vec<Serial> = self.pods[&id].slots.iter().filter_map(|s| s.instance).collect();
        if !alive.is_empty() {
            for serial in alive {
                if !std::mem::replace(&mut self.container(serial).is_ending, true) {
                    self.after(grace, move |world| world.exit(serial));
                }
            }
            return;
        }
        match self.pods[&id].sandbox {
            Sandbox::Ready | Sandbox::Starting => {
                self.end_sandbox(id);
                let pod = self.pod(id);
                pod.sandbox = Sandbox::Stopping;
                if pod.is_reported {
                    pod.busy = true;
                    self.call_in(Duration::from_millis(1), Task::Pod(Event::STOP_POD_SANDBOX, id));
                } else {
                    self.sandbox_stopped(id);
                }
            }
            Sandbox::Stopped => {
                self.remove_pod_cgroup(id);
                let gone: Vec<Serial> =
                    self.containers.values().filter(|c| c.pod == id).map(|c| c.serial).collect();
                for serial in gone {
                    self.collect(serial);
                }
                let pod = self.pod(id);
                pod.sandbox = Sandbox::Removed;
                let longest = if pod.dice.percent(30) { 2000 } else { 3 };
                let delay = pod.dice.millis(3, longest);
                self.call_in(delay, Task::Pod(Event::REMOVE_POD_SANDBOX, id));
            }
            Sandbox::None => {
                self.remove_pod_cgroup(id);
                self.forget_pod(id);
            }
            Sandbox::Stopping | Sandbox::Removed => {}
        }
    }

    pub fn end_sandbox(&mut self, id: PodId) {
        let pod = &self.pods[&id];
        let dir = Paths(&self.settings).container(pod, &pod.sandbox_id());
        if let Some(pid) = self.pod(id).pause.take() {
            self.end_process(pid, &dir);
        }
    }

    pub fn sandbox_stopped(&mut self, id: PodId) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.busy = false;
        pod.sandbox = Sandbox::Stopped;
        // Some dead sandboxes are removed later.
        let last = if pod.dice.percent(30) { 5000 } else { 300 };
        self.sync_in(id, 1, last);
    }

    /// With systemd, removes the slice of the class as well after its last pod.
    fn remove_pod_cgroup(&mut self, id: PodId) {
        let dir = self.pod_dir(id);
        let _ = self.kernel.lock().remove_cgroup(&group(&dir));
        self.realise_slices(&dir);
        let pod = &self.pods[&id];
        let class = Paths(&self.settings).class_of(pod);
        if self.settings.systemd && !pod.is_guaranteed() {
            // Fails while it has other pods.
            let _ = self.kernel.lock().remove_cgroup(&group(&class));
        }
    }

    pub fn forget_pod(&mut self, id: PodId) {
        self.oracle.close(Key::Pause(id), self.now);
        self.containers.retain(|_, container| container.pod != id);
        self.pods.remove(&id);
    }

    /// An in-place resize: the kubelet changes the pod's cgroup, then asks the runtime.
    pub fn resize(&mut self, serial: Serial, milli: u64, tries: u32) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        container.resizing = true;
        let id = container.pod;
        let slot = container.slot;
        let pod = self.pods.get_mut(&id).expect("a container's pod");
        if container.state != State::Running || pod.deleted.is_some() {
            container.resizing = false;
            return;
        }
        if pod.busy || self.runtime.down || self.now < self.kubelet_until {
            return self.after(Duration::from_millis(300), move |world| {
                world.resize(serial, milli, tries)
            });
        }
        let before = std::mem::replace(&mut pod.slots[slot].request, milli);
        pod.slots[slot].limit = milli;
        pod.resized = true;
        pod.busy = true;
        let text = self.describe(serial);
        self.say(format!("kubelet resizes {text} to {milli}m"));
        self.resize_pod(id);
        let dir = self.dir(&self.containers[&serial]);
        self.oracle.open(Key::Update(serial), "update under way", &dir);
        self.call_in(Duration::from_millis(2), Task::Update { serial, milli, before, tries });
    }

    fn resize_pod(&mut self, id: PodId) {
        self.write_pod_quota(id);
        if self.settings.reports_pod_updates() {
            self.call_in(Duration::from_millis(1), Task::Pod(Event::UPDATE_POD_SANDBOX, id));
        }
    }

    pub fn resized(
        &mut self,
        serial: Serial,
        milli: u64,
        before: u64,
        tries: u32,
        reply: PluginReply,
    ) {
        self.oracle.close(Key::Update(serial), self.now + Duration::from_millis(2500));
        let Some(container) = self.containers.get_mut(&serial) else { return };
        let id = container.pod;
        let slot = container.slot;
        let is_over = reply.refused.is_none() || tries == 0;
        container.resizing = !is_over;
        let pod = self.pods.get_mut(&id).expect("a container's pod");
        pod.busy = false;
        if let Some(why) = reply.refused {
            (pod.slots[slot].request, pod.slots[slot].limit) = (before, before);
            self.say(format!("  resize refused: {why}"));
            if is_over {
                // The user withdraws the resize.
                self.resize_pod(id);
            } else {
                self.after(Duration::from_secs(1), move |world| {
                    world.resize(serial, milli, tries - 1)
                });
            }
        } else {
            (container.request, container.limit) = (milli, milli);
            if container.mixed {
                let cpus = container.cpus.clone();
                container.given(&cpus, true);
            }
            if !reply.answered {
                // When the plugin connects, it may find that the size does not fit, and keep the old CPUs.
                container.is_uncertain = true;
                container.exclusive = None;
            }
            if !reply.own && container.pid.is_some() {
                container.quota = 0;
                let dir = self.dir(&self.containers[&serial]);
                let _ = self.write(&dir, "cpu.max", &cfs(quota(milli)));
            }
        }
        self.after(Duration::from_millis(5), move |world| world.sync_pod(id));
    }

    /// An in-place resize of memory alone.
    pub fn resize_memory(&mut self, serial: Serial, memory: MemoryLimits) {
        let Some(container) = self.containers.get(&serial) else { return };
        let id = container.pod;
        let slot = container.slot;
        let is_running = container.state == State::Running;
        if !is_running || self.runtime.down || self.now < self.kubelet_until {
            return;
        }
        let pod = self.pod(id);
        if pod.busy || pod.deleted.is_some() {
            return;
        }
        pod.slots[slot].memory = memory;
        pod.busy = true;
        let text = self.describe(serial);
        self.say(format!("kubelet resizes the memory of {text} to {} bytes", memory.memory));
        self.resize_pod(id);
        let dir = self.dir(&self.containers[&serial]);
        self.oracle.open(Key::Update(serial), "update under way", &dir);
        self.call_in(Duration::from_millis(2), Task::ResizeMemory { serial, memory });
    }

    /// The user withdraws a resize that is refused.
    pub fn memory_resized(&mut self, serial: Serial, memory: MemoryLimits, reply: &PluginReply) {
        self.oracle.close(Key::Update(serial), self.now + Duration::from_millis(2500));
        let Some(container) = self.containers.get_mut(&serial) else { return };
        let id = container.pod;
        let slot = container.slot;
        match &reply.refused {
            None => {
                container.memory = memory;
                // The plugin finds a change that it has missed in the next list, and cannot refuse it.
                if !reply.answered {
                    self.note_adopted_memory(id);
                }
            }
            Some(why) => {
                let before = container.memory;
                self.say(format!("  resize of memory refused: {why}"));
                self.pod(id).slots[slot].memory = before;
                self.resize_pod(id);
            }
        }
        self.pod(id).busy = false;
        self.after(Duration::from_millis(5), move |world| world.sync_pod(id));
    }

    /// What the scheduler has not promised to pods; no limit unless it is counted.
    pub fn unpromised_memory(&self) -> MemoryLimits {
        let Some(capacity) = &self.in_force.memory else {
            return MemoryLimits { memory: u64::MAX, huge_pages: u64::MAX };
        };
        let left = |kind: MemoryKind, of: fn(MemoryLimits) -> u64| {
            let nodes = capacity.nodes();
            let all: u64 = nodes.map(|(_, has)| has.get(&kind).copied().unwrap_or(0)).sum();
            all.saturating_sub(self.pods.values().map(|pod| of(pod.memory())).sum())
        };
        MemoryLimits {
            memory: left(MemoryKind::Memory, |limits| limits.memory),
            huge_pages: left(HUGE_PAGES, |limits| limits.huge_pages),
        }
    }

    /// The CPU time that the scheduler has not promised to pods, in thousandths of a CPU.
    pub fn unpromised(&self) -> u64 {
        let cpus = self.assignable() & self.kernel.lock().online;
        let promised: u64 = self.pods.values().map(Pod::request).sum();
        (cpus.len() as u64 * 1000).saturating_sub(promised)
    }
}

/// Whether an answer changes the CPUs that CRI-O has set for a new container.
fn container_is_moved(container: Option<&Container>, reply: &PluginReply) -> bool {
    let is_preset = container.is_some_and(|container| container.is_preset);
    let adjust = reply.adjust.as_ref().map(|adjust| &adjust.linux.resources.cpu.cpus);
    is_preset && adjust.is_some_and(|cpus| !cpus.is_empty())
}
