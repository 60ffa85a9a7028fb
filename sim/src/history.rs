//! A history: operations on a node, and what came of them. A history that fails is made short.

use crate::calls::Calls;
use crate::dice::Dice;
use crate::kernel::{Errno, Faults};
use crate::oracle::{Key, SETTLED};
use crate::pods::{Class, Kind, Paths, Pod, PodId, Sandbox, Serial, Slot};
use crate::settings::{Settings, Trouble};
use crate::world::World;
use nri_cpu_manager::cpuset::CpuSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    CreatePod,
    DeletePod,
    /// Several pods at once.
    Burst,
    Crash,
    Resize,
    Debug,
    Wait,
    KillPlugin,
    /// Dies at some later call of the kernel, or after some effects.
    DieSoon,
    StallPlugin,
    RestartRuntime,
    DropConnection,
    WriteClass,
    WriteContainer,
    Reload,
    FailWrite,
    FailBelow,
    SlowDisk,
    FailDisk,
    Hotplug,
}

/// An operation, with dice of its own: to leave out another one changes none of its choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub after: Duration,
    pub action: Action,
    pub dice: u64,
}

const PEACE: &[(Action, u64)] = &[
    (Action::CreatePod, 30),
    (Action::DeletePod, 18),
    (Action::Burst, 4),
    (Action::Crash, 8),
    (Action::Resize, 8),
    (Action::Debug, 3),
    (Action::Wait, 4),
];
const RESTARTS: &[(Action, u64)] = &[
    (Action::KillPlugin, 4),
    (Action::DieSoon, 5),
    (Action::RestartRuntime, 4),
    (Action::DropConnection, 2),
    (Action::StallPlugin, 2),
];
const TROUBLE: &[(Action, u64)] = &[
    (Action::WriteClass, 4),
    (Action::WriteContainer, 3),
    (Action::Reload, 3),
    (Action::FailWrite, 4),
    (Action::FailBelow, 2),
    (Action::SlowDisk, 2),
    (Action::FailDisk, 2),
    (Action::Hotplug, 2),
];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    pub seed: u64,
    pub settings: Settings,
    pub ops: Vec<Op>,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub hash: u64,
    pub violation: Option<String>,
    /// Inputs of the core.
    pub events: u64,
    /// If it was to be kept, with the picture at the end.
    pub trace: Vec<String>,
}

impl History {
    pub fn roll(seed: u64) -> History {
        let mut dice = Dice::of(seed, 3);
        let settings = Settings::roll(&mut dice);
        let mut actions = PEACE.to_vec();
        if settings.trouble != Trouble::None {
            actions.extend(RESTARTS);
        }
        if settings.trouble == Trouble::All {
            actions.extend(TROUBLE);
        }
        let length = 5 + dice.below(dice.clone().pick(&[20, 60, 195]));
        let ops = (0..length).map(|_| Op::roll(&actions, &mut dice)).collect();
        History { seed, settings, ops }
    }

    pub fn run(&self, keeps_trace: bool) -> Outcome {
        drop(crate::trace::take_records());
        let mut world = World::new(self.settings.clone(), self.ops.clone(), self.seed, keeps_trace);
        let played = catch_unwind(AssertUnwindSafe(|| world.play()));
        if played.is_err() {
            world.fail(format!("panic: {}", crate::trace::take_panic()));
        }
        let mut trace = world.trace.lines.take().unwrap_or_default();
        if keeps_trace {
            trace.extend(world.picture());
        }
        let (hash, events) = (world.trace.hash, world.plugin.steps);
        Outcome { hash, violation: world.violation, events, trace }
    }

    /// What the runtime sends to the plugin, and the cgroups of pods, as `calls` records them.
    pub fn recorded(&self) -> Vec<String> {
        let mut world = World::new(self.settings.clone(), self.ops.clone(), self.seed, false);
        world.trace.calls = Some(Calls::default());
        // A violation is for another test to find.
        let _ = catch_unwind(AssertUnwindSafe(|| world.play()));
        world.trace.calls.map(|calls| calls.lines).unwrap_or_default()
    }

    /// The shortest history with a violation of this kind that is found by leaving things out.
    pub fn shrunk(&self) -> History {
        let mut best = self.clone();
        let Some(why) = best.run(false).violation else { return best };
        let kind = kind_of(&why);
        let fails = |history: &History| {
            history.run(false).violation.is_some_and(|why| kind_of(&why) == kind)
        };
        let mut size = best.ops.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            let mut shrank = false;
            while at < best.ops.len() {
                let mut shorter = best.clone();
                let end = (at + size).min(best.ops.len());
                // What comes after keeps its moment.
                let gap: Duration = shorter.ops.drain(at..end).map(|op| op.after).sum();
                if let Some(next) = shorter.ops.get_mut(at) {
                    next.after += gap;
                }
                if fails(&shorter) {
                    (best, shrank) = (shorter, true);
                } else {
                    at += size;
                }
            }
            if size == 1 && !shrank {
                break;
            }
            size = if size == 1 { 1 } else { size / 2 };
        }
        loop {
            let simpler = best.settings.simpler().into_iter();
            let simpler = simpler.map(|settings| History { settings, ..best.clone() });
            let Some(found) = simpler.into_iter().find(|history| fails(history)) else { break };
            best = found;
        }
        best
    }
}

/// A violation without its numbers.
pub fn kind_of(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit() && !",-".contains(*c)).collect()
}

impl Op {
    fn roll(actions: &[(Action, u64)], dice: &mut Dice) -> Op {
        let all: u64 = actions.iter().map(|(_, weight)| weight).sum();
        let mut at = dice.between(0, all - 1);
        let mut chosen = Action::Wait;
        for (action, weight) in actions {
            if at < *weight {
                chosen = *action;
                break;
            }
            at -= weight;
        }
        let after = match dice.below(10) {
            0..=4 => dice.millis(0, 60),
            5..=7 => dice.millis(50, 2000),
            _ => dice.millis(1000, 15_000),
        };
        Op { after, action: chosen, dice: dice.seed() }
    }
}

impl World {
    pub fn operate(&mut self, index: usize) {
        let Op { action, dice, .. } = self.ops[index].clone();
        let mut dice = Dice::new(dice);
        self.say(format!("== {action:?}"));
        self.plugin.pace.explained_until = self.now + Duration::from_secs(1);
        match action {
            Action::Wait => {}
            Action::CreatePod => self.create_pod(dice),
            Action::Burst => {
                for _ in 0..dice.between(2, 5) {
                    let dice = Dice::new(dice.seed());
                    self.create_pod(dice);
                }
            }
            Action::DeletePod => {
                let Some(id) = self.some_pod(&mut dice) else { return };
                let grace = dice.pick(&[0, 0, 10, 500, 3000]);
                self.pod(id).deleted = Some(Duration::from_millis(grace));
                self.say(format!("pod u{id} is deleted, grace {grace} ms"));
                self.after(Duration::ZERO, move |world| world.sync_pod(id));
            }
            Action::Crash => {
                let Some(serial) = self.some_container(&mut dice) else { return };
                self.exit(serial);
            }
            Action::Resize => {
                let mut exclusive = self.running_containers();
                exclusive.retain(|serial| {
                    let container = &self.containers[serial];
                    container.exclusive.is_some()
                        && !container.resizing
                        && self.pods[&container.pod].resources.is_none()
                });
                if let Some(&serial) = exclusive.get(dice.below(exclusive.len())) {
                    let milli = dice.between(1, 6) * 1000;
                    if milli > self.containers[&serial].request + self.unpromised() {
                        return;
                    }
                    self.after(Duration::ZERO, move |world| world.resize(serial, milli, 4));
                }
            }
            Action::Debug => self.debug_pod(&mut dice),
            Action::KillPlugin => self.plugin_dies("killed"),
            Action::DieSoon if dice.percent(50) => {
                self.kernel.lock().faults.lives = Some(dice.between(0, 60))
            }
            Action::DieSoon => self.plugin.running.lives = Some(dice.between(0, 8)),
            Action::StallPlugin => self.stall_plugin(dice.millis(300, 4000)),
            Action::RestartRuntime => self.restart_runtime(dice.millis(500, 3000)),
            Action::DropConnection => {
                if self.runtime.connected {
                    self.say("the connection ends");
                    self.disconnect();
                    self.after(dice.millis(200, 1500), |world| world.connect());
                }
            }
            Action::WriteClass => self.write_above(&mut dice),
            Action::WriteContainer => self.write_container(&mut dice),
            Action::Reload => self.reload_systemd(),
            Action::FailWrite => {
                let errno = errno(&mut dice);
                self.kernel.lock().fail_write(dice.between(0, 6), errno);
            }
            Action::FailBelow => {
                let Some((id, dir)) = self.some_level(&mut dice) else { return };
                let errno = errno(&mut dice);
                self.say(format!("the kernel refuses writes below {dir}: {errno:?}"));
                self.kernel.lock().faults.below.insert(crate::node::group(&dir), errno);
                self.oracle.open(Key::Refused(id), "refused by the kernel", "");
                self.after(dice.millis(50, 15_000), move |world| world.mend(id, &dir));
            }
            Action::SlowDisk => self.plugin.disk_slow_until = self.now + dice.millis(1000, 20_000),
            Action::FailDisk => self.plugin.disk_fails_until = self.now + dice.millis(1000, 20_000),
            Action::Hotplug => self.hotplug(&mut dice),
        }
    }

    fn create_pod(&mut self, dice: Dice) {
        // Like a kubelet: at most so many pods.
        if self.pods.len() > 25 {
            return;
        }
        let id = self.next_pod;
        self.next_pod += 1;
        let pod = Pod::roll(id, &self.settings, dice);
        if pod.request() > self.unpromised() {
            return;
        }
        self.pods.insert(id, pod);
        self.after(Duration::ZERO, move |world| world.sync_pod(id));
    }

    fn some_pod(&self, dice: &mut Dice) -> Option<PodId> {
        let live = self.pods.values().filter(|pod| pod.deleted.is_none() && !pod.is_plugin());
        let live: Vec<PodId> = live.map(|pod| pod.id).collect();
        live.get(dice.below(live.len())).copied()
    }

    /// The cgroup of a pod or of its class.
    fn some_level(&self, dice: &mut Dice) -> Option<(PodId, String)> {
        let id = self.some_pod(dice)?;
        let class = self.pods[&id].class;
        if dice.percent(50) {
            return Some((id, self.pod_dir(id)));
        }
        let is_root = class == Class::Guaranteed;
        if is_root { None } else { Some((id, Paths(&self.settings).class(class))) }
    }

    fn some_container(&self, dice: &mut Dice) -> Option<Serial> {
        let running = self.running_containers();
        running.get(dice.below(running.len())).copied()
    }

    /// `kubectl debug`.
    fn debug_pod(&mut self, dice: &mut Dice) {
        let Some(id) = self.some_pod(dice) else { return };
        let pod = self.pod(id);
        if pod.sandbox != Sandbox::Ready {
            return;
        }
        let name = format!("debug{}", pod.slots.len());
        pod.slots.push(Slot::new(name, Kind::Debug, 0, 0));
        self.after(Duration::ZERO, move |world| world.sync_pod(id));
    }

    fn some_cpus(&self, dice: &mut Dice) -> CpuSet {
        let online: Vec<usize> = self.kernel.lock().online.iter().collect();
        let first = dice.below(online.len());
        let number = 1 + dice.below(online.len());
        online.iter().cycle().skip(first).take(number).flat_map(|cpu| CpuSet::of(*cpu)).collect()
    }

    /// Another program writes into the cgroup of a class or pod.
    fn write_above(&mut self, dice: &mut Dice) {
        // Where the runtime's updates bind, nobody restores what is above.
        if !self.settings.by_groups() {
            return;
        }
        let Some((id, dir)) = self.some_level(dice) else { return };
        *self.oracle.written.entry(dir.clone()).or_default() += 1;
        let cpus = if dice.percent(30) { self.kernel.lock().online } else { self.some_cpus(dice) };
        // A pod in which each container is bound by itself is looked at with the check passes.
        let is_tight = self.containers.values().any(|c| c.pod == id && c.exclusive.is_some());
        let bound = if is_tight { Duration::from_secs(25) } else { Duration::from_millis(100) };
        self.other_writes(&dir, &cpus.to_string(), bound);
    }

    fn other_writes(&mut self, dir: &str, cpus: &str, bound: Duration) {
        let written = self.write(dir, "cpuset.cpus", cpus);
        self.say(format!("a program writes {cpus} into {dir}: {written:?}"));
        self.disturbed("written by another program", dir, bound);
    }

    fn write_container(&mut self, dice: &mut Dice) {
        let Some(serial) = self.some_container(dice) else { return };
        let dir = self.dir(&self.containers[&serial]);
        let cpus = if dice.percent(50) { self.kernel.lock().online } else { self.some_cpus(dice) };
        self.other_writes(&dir, &cpus.to_string(), Duration::from_secs(25));
        if self.settings.other_plugin {
            // A plugin has the runtime do it.
            self.container(serial).cpus = cpus.to_string();
        }
    }

    /// `systemctl daemon-reload`: scopes get what the runtime set, slices nothing.
    fn reload_systemd(&mut self) {
        if !self.settings.systemd {
            return;
        }
        for serial in self.running_containers() {
            let container = &self.containers[&serial];
            let (dir, cpus) = (self.dir(container), container.cpus.clone());
            if !cpus.is_empty() && self.read(&dir, "cpuset.cpus") != cpus {
                self.other_writes(&dir, &cpus, Duration::from_secs(25));
            }
            self.realise_slices(&dir);
        }
    }

    fn hotplug(&mut self, dice: &mut Dice) {
        let whole: CpuSet =
            self.settings.machine.topology().map(|t| t.online()).unwrap_or_default();
        let cpus: Vec<usize> = (whole - self.settings.reserved_cpus()).iter().collect();
        let mut online = self.kernel.lock().online;
        let cpu = CpuSet::of(cpus[dice.below(cpus.len())]).unwrap_or_default();
        online = if cpu.is_subset(&online) { online - cpu } else { online | cpu };
        self.say(format!("online {online}"));
        self.kernel.lock().set_online(online);
        self.oracle.hotplugged = true;
        self.oracle.changed = true;
        self.oracle.allow("hotplug", "", self.now + Duration::from_secs(5));
    }

    fn play(&mut self) {
        let end = self.last_op + Duration::from_millis(1);
        self.run_until(end);
        self.recover();
        let mut last = end + Duration::from_secs(15);
        while self.violation.is_none() && self.now < last + SETTLED {
            self.run_until(last + SETTLED);
            last = last.max(self.oracle.last_report);
        }
        self.check_settled();
    }

    pub fn mend(&mut self, id: PodId, dir: &str) {
        self.say(format!("the kernel takes writes below {dir} again"));
        self.kernel.lock().faults.below.remove(&crate::node::group(dir));
        self.oracle.close(Key::Refused(id), self.now + Duration::from_secs(25));
    }

    /// Nothing fails any more, but for writes that are refused for some seconds yet.
    fn recover(&mut self) {
        self.kernel.lock().faults = Faults::default();
        self.plugin.running.lives = None;
        self.plugin.disk_fails_until = Duration::ZERO;
        self.plugin.disk_slow_until = Duration::ZERO;
        self.say("== nothing happens any more");
    }
}

/// Without ENODEV, which says that the cgroup is gone.
fn errno(dice: &mut Dice) -> Errno {
    use Errno::{EACCES, EBUSY, EINTR, EIO, ENOMEM, ENOSPC, EPERM};
    dice.pick(&[EIO, EBUSY, EACCES, EPERM, ENOSPC, EINTR, ENOMEM])
}
