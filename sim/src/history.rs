//! A history: operations on a node, and their outcome. A history with a violation can be shrunk.

use crate::calls::Calls;
use crate::dice::Dice;
use crate::kernel::{Errno, Faults};
use crate::oracle::{Key, SETTLED};
use crate::plugin::DiskFault;
use crate::pods::{Class, GI, Kind, MemoryLimits, Pod, PodId, Sandbox, Serial, Slot};
use crate::settings::{Settings, Trouble};
use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    CreatePod,
    DeletePod,
    /// Several pods at once.
    Burst,
    Crash,
    /// All containers of a pod start over (KEP-5532, `RestartAllContainers`).
    StartOver,
    Resize,
    Debug,
    /// A container makes a cgroup within its own, or removes it.
    Nest,
    Wait,
    KillPlugin,
    /// Another instance takes over, as in a roll-out.
    Replace,
    /// The plugin dies at some later call of the kernel, or after some effects.
    DieSoon,
    StallPlugin,
    RestartRuntime,
    DropConnection,
    WriteClass,
    WriteContainer,
    Reload,
    FailWrite,
    FailBelow,
    Disk,
    Hotplug,
    Partition,
    Reconfigure,
    RestartKubelet,
    CpuManager,
    Uninstall,
    InstallTwice,
    Reboot,
    /// Another program writes all CPUs into a class, and its pod is replaced.
    RemakeClass,
    /// Pods are created while the plugin is away, and the runtime loses the updates for them.
    CreateWhileAway,
}

/// An operation with separate dice, so that its choices stay the same when another one is left out.
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
    (Action::StartOver, 4),
    (Action::Resize, 8),
    (Action::Debug, 3),
    (Action::Nest, 4),
    (Action::Wait, 4),
];
const RESTARTS: &[(Action, u64)] = &[
    (Action::KillPlugin, 4),
    (Action::Replace, 4),
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
    (Action::Disk, 4),
    (Action::Hotplug, 2),
    (Action::Partition, 2),
    (Action::Reconfigure, 5),
    (Action::RestartKubelet, 2),
    (Action::CpuManager, 1),
    (Action::Uninstall, 1),
    (Action::InstallTwice, 1),
    (Action::Reboot, 1),
];

/// Operations that some histories end with. They are drawn with separate dice, so that what happens before
/// is the same in the other histories.
const LAST: [Action; 2] = [Action::CreateWhileAway, Action::RemakeClass];

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
    /// The number of the core's inputs.
    pub events: u64,
    /// The number of changes that were compared with their preview.
    pub foreseen: u64,
    /// The trace, if it was requested, with the picture at the end.
    pub trace: Vec<String>,
}

impl History {
    pub fn roll(seed: u64) -> History {
        let mut dice = Dice::of(seed, 3);
        let settings = Settings::roll(&mut dice, &mut Dice::of(seed, 4));
        let mut actions = PEACE.to_vec();
        if settings.trouble != Trouble::None {
            actions.extend(RESTARTS);
        }
        if settings.trouble == Trouble::All {
            actions.extend(TROUBLE);
        }
        let length = 5 + dice.below(dice.clone().pick(&[20, 60, 195]));
        let mut ops: Vec<Op> = (0..length).map(|_| Op::roll(&actions, &mut dice)).collect();
        let mut last = Dice::of(seed, 5);
        if last.percent(20) && settings.trouble != Trouble::None {
            let action = if settings.trouble == Trouble::All { last.pick(&LAST) } else { LAST[0] };
            ops.push(Op { after: last.millis(50, 15_000), action, dice: last.seed() });
        }
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
        let hash = world.trace.hash;
        let (events, foreseen) = (world.plugin.steps, world.plugin.foreseen);
        Outcome { hash, violation: world.violation, events, foreseen, trace }
    }

    /// A recording of the runtime's calls and the cgroups of pods, see `calls`.
    pub fn recorded(&self) -> Vec<String> {
        let mut world = World::new(self.settings.clone(), self.ops.clone(), self.seed, false);
        world.trace.calls = Some(Calls::default());
        // Violations and panics are left to other tests.
        let _ = catch_unwind(AssertUnwindSafe(|| world.play()));
        world.trace.calls.map(|calls| calls.lines).unwrap_or_default()
    }

    /// Leaves out operations and settings as long as there is still a violation of the same kind.
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
                // The next operation keeps its time.
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

/// The text of a violation without its numbers.
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
                self.delete_pod(id, Duration::from_millis(grace));
            }
            Action::Crash => {
                let Some(serial) = self.some_container(&mut dice) else { return };
                self.exit(serial);
            }
            Action::StartOver => {
                let Some(id) = self.some_pod(&mut dice) else { return };
                self.start_over(id);
            }
            Action::Resize if self.in_force.memory.is_some() && dice.clone().percent(40) => {
                let counted = |serial: &Serial| {
                    let container = &self.containers[serial];
                    self.pods[&container.pod].is_guaranteed() && container.memory.memory > 0
                };
                let mut counted: Vec<Serial> =
                    self.running_containers().into_iter().filter(counted).collect();
                counted.retain(|serial| !self.containers[serial].resizing);
                let Some(&serial) = counted.get(dice.below(counted.len())) else { return };
                let before = self.containers[&serial].memory;
                let memory = MemoryLimits { memory: dice.between(1, 24) * GI, ..before };
                if memory.memory <= before.memory.saturating_add(self.unpromised_memory().memory) {
                    let resize = move |world: &mut World| world.resize_memory(serial, memory);
                    self.after(Duration::ZERO, resize);
                }
            }
            Action::Resize => {
                let mut exclusive = self.running_containers();
                exclusive.retain(|serial| {
                    let container = &self.containers[serial];
                    container.has_exclusive()
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
            Action::Nest => {
                let Some(serial) = self.some_container(&mut dice) else { return };
                self.nest(serial, &mut dice);
            }
            Action::KillPlugin => self.plugin_dies("killed"),
            Action::Replace => self.replace_plugin(dice, 0),
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
                self.oracle.open(Key::Refused(id), "refused by the kernel", &dir);
                self.after(dice.millis(50, 15_000), move |world| world.mend(id, &dir));
            }
            Action::Disk => {
                let fault = dice.pick(&DiskFault::ALL);
                let until = self.now + dice.millis(1000, 20_000);
                self.say(format!("the disk: {fault:?} until {} ms", until.as_millis()));
                self.plugin.end_disk_fault(self.now);
                self.plugin.disk = Some((fault, until));
            }
            Action::Hotplug => self.hotplug(&mut dice),
            Action::Partition => self.partition(&mut dice),
            Action::Reconfigure => self.reconfigure(&mut dice),
            Action::RestartKubelet => self.restart_kubelet(&mut dice),
            Action::CpuManager => self.switch_cpu_manager(),
            Action::Uninstall => self.uninstall(&mut dice),
            Action::InstallTwice => self.install_twice(&mut dice),
            Action::Reboot => self.reboot(&mut dice),
            Action::RemakeClass => self.remake_class(),
            Action::CreateWhileAway => self.create_while_away(&mut dice),
        }
    }

    fn create_pod(&mut self, dice: Dice) {
        // Like a kubelet, which limits the number of pods.
        if self.pods.len() > 25 || self.now < self.kubelet_until {
            return;
        }
        let id = self.next_pod;
        self.next_pod += 1;
        let pod = Pod::roll(id, &self.settings, dice);
        let asked = pod.memory();
        let left = self.unpromised_memory();
        let has_memory = asked.memory <= left.memory && asked.huge_pages <= left.huge_pages;
        if pod.request() > self.unpromised() || !has_memory {
            return;
        }
        self.pods.insert(id, pod);
        self.after(Duration::ZERO, move |world| world.sync_pod(id));
    }

    /// Adds a debug container to a pod, as `kubectl debug`.
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

    fn play(&mut self) {
        let end = self.last_op + Duration::from_millis(1);
        self.run_until(end);
        self.settle(SETTLED);
    }

    /// Ends all faults, waits for this time without operations, and checks that everything is exact.
    pub fn settle(&mut self, settled: Duration) {
        self.recover();
        let mut last = self.now + Duration::from_secs(15);
        // The end of a plugin that never starts is reported again and again.
        let latest = self.now + Duration::from_secs(3600);
        while self.violation.is_none() && self.now < (last + settled).min(latest) {
            self.run_until(last + settled);
            last = last.max(self.oracle.last_report);
        }
        self.check_settled();
    }

    pub fn mend(&mut self, id: PodId, dir: &str) {
        self.say(format!("the kernel takes writes below {dir} again"));
        self.kernel.lock().faults.below.remove(&crate::node::group(dir));
        self.oracle.close(Key::Refused(id), self.now + Duration::from_secs(25));
    }

    /// Ends all faults.
    fn recover(&mut self) {
        self.kernel.lock().faults = Faults::default();
        self.plugin.running.lives = None;
        self.plugin.end_disk_fault(self.now);
        self.say("== nothing happens any more");
        if let Err(faulty) = self.file {
            self.say(format!("the configuration is not {faulty:?} any more"));
            self.set_file(Ok(self.usable.clone()));
        }
        if self.usable.observes() {
            self.set_file(Ok(self.usable.clone().enforcing()));
        }
        if self.usable.settings(&self.topology()).is_none() {
            // The plugin does not start while reserved CPUs are offline.
            let online = self.kernel.lock().online;
            self.toggle(self.settings.topology().online() - online);
        }
        if self.cpu_manager.is_static() {
            self.switch_cpu_manager();
        }
        if self.oracle.is_unsteady {
            // Without the kubelet's state file, only a new container shows that the kubelet assigns no CPUs.
            let slot = Slot::new("last".to_owned(), Kind::App, 0, 0);
            let id = self.next_pod;
            let dice = Dice::new(self.dice.seed());
            self.next_pod += 1;
            self.pods.insert(id, Pod::bare(id, Class::BestEffort, vec![slot], dice));
            self.after(Duration::from_secs(15), move |world| world.sync_pod(id));
        }
    }
}

/// An error of a write, but not ENODEV, which means that the cgroup is gone.
fn errno(dice: &mut Dice) -> Errno {
    use Errno::{EACCES, EBUSY, EINTR, EIO, ENOMEM, ENOSPC, EPERM};
    dice.pick(&[EIO, EBUSY, EACCES, EPERM, ENOSPC, EINTR, ENOMEM])
}
