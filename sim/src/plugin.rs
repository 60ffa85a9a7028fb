//! The plugin's process: carries out the core's effects in virtual time. When it dies, everything that it
//! has not written is lost.

use crate::administrator::CHANGE;
use crate::configuration::identity;
use crate::devices::gpus;
use crate::dice::Dice;
use crate::foreseen::Foreseen;
use crate::kernel::{CGROUPS, Errno, PROC, SYS, Watcher, survives};
use crate::pods::{Container, Serial};
use crate::runtime::TIMEOUT;
use crate::trace::take_records;
use crate::world::World;
use cpuset::CpuSet;
use daemon::{CallId, Effect, Input, Machine, NodeAccess, Owner, Paths};
use edge::nri::exchange::{self, Asked, asked};
use edge::nri::reads;
use edge::{self, Refusal};
use kubelet::StateFileReading;
use ledger::{Call, Claim, Event, MemoryClaim};
use nri::{AnswerKind, CallError, Decoded, Exchange};
use protobuf::Message;
use state::checkpoint::{self, SavedClaims, StateError};
use state::disk::Storage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const STATE: &str = "/var/lib/nri-cpu-manager";
/// How long the plugin waits for its disk's thread.
const DISK_PATIENCE: Duration = Duration::from_secs(1);
/// More writes or inputs within a second are a storm.
const MOST_WRITES: u32 = 400;
const MOST_INPUTS: u32 = 2000;

/// The state of one process of the plugin.
#[derive(Default)]
pub struct Running {
    pub owner: Option<Owner>,
    inbox: VecDeque<Input>,
    stalled_until: Duration,
    due: Option<Duration>,
    /// inotify events on their way to it, with new directories.
    events: BTreeMap<Watcher, Vec<PathBuf>>,
    /// Whether it waits for an unsolicited update.
    updating: bool,
    /// The number of effects until it dies.
    pub lives: Option<u64>,
}

#[derive(Default)]
pub struct Plugin {
    pub running: Running,
    /// The container in which it runs.
    own: Option<Serial>,
    /// The number of processes so far.
    pub process: u64,
    storage: StateDirectory,
    /// Whether the state directory was deleted while it had values to put back into files of interrupts.
    pub has_lost_originals: bool,
    state_file: Option<Vec<u8>>,
    writing: Option<Vec<u8>>,
    /// The memory in the last save of the running process; `None` if it has saved nothing yet.
    saved_memory: Option<Vec<MemoryClaim>>,
    /// Calls that the edge has not answered.
    pub pending: BTreeMap<CallId, AnswerKind>,
    is_stepping: bool,
    /// The disk's last fault and its end.
    pub disk: Option<(DiskFault, Duration)>,
    /// The end of the last fault before that in which writes failed.
    failed_until: Option<Duration>,
    /// Whether the last process may have died before it could write a file again.
    left_files: bool,
    pub steps: u64,
    /// How many changes of the configuration were compared with what the plugin had said before.
    pub foreseen: u64,
    /// The number of effects so far, and of saves among them.
    pub effects: u64,
    pub saves: u64,
    /// The number of the last save that is on the disk.
    written: u64,
    /// The number of the save that fails.
    pub failing_save: Option<u64>,
    pub pace: Pace,
    pub last_write: Duration,
    pub dice: Dice,
}

/// A fault of the disk with the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    Slow,
    Full,
    ReadOnly,
    /// Writes are on the disk when it responds again.
    Stalled,
}

impl DiskFault {
    pub const ALL: [DiskFault; 4] =
        [DiskFault::Slow, DiskFault::Full, DiskFault::ReadOnly, DiskFault::Stalled];

    fn error(self) -> Option<ErrorKind> {
        match self {
            DiskFault::Slow => None,
            DiskFault::Full => Some(ErrorKind::StorageFull),
            DiskFault::ReadOnly => Some(ErrorKind::ReadOnlyFilesystem),
            DiskFault::Stalled => Some(ErrorKind::TimedOut),
        }
    }
}

/// The plugin's writes and inputs in one second of virtual time.
#[derive(Default)]
pub struct Pace {
    since: Duration,
    /// Until then writes do not count, as an operation explains them.
    pub explained_until: Duration,
    writes: u32,
    inputs: u32,
}

impl Pace {
    fn at(&mut self, now: Duration) -> &mut Pace {
        if self.since + Duration::from_secs(1) <= now {
            *self = Pace { since: now, explained_until: self.explained_until, ..Pace::default() };
        }
        self
    }
}

impl Plugin {
    pub fn new(dice: Dice) -> Plugin {
        Plugin { dice, ..Plugin::default() }
    }

    pub fn is_alive(&self) -> bool {
        self.running.owner.is_some()
    }

    pub fn is_in(&self, container: Serial) -> bool {
        self.own == Some(container)
    }

    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.storage.clone())
    }

    /// Deletes the state directory.
    pub fn forget(&mut self) {
        self.state_file = None;
        self.storage = StateDirectory::default();
        self.storage.files().has_failed = true;
    }

    /// Whether the plugin may not know which values of cgroups it has written.
    pub fn has_lost_memory(&self) -> bool {
        self.storage.files().has_failed
    }

    /// Applies a crash of the machine to the state file: some file systems lose or tear the last writes.
    pub fn crashed(&mut self, dice: &mut Dice) {
        let Some(content) = &mut self.state_file else { return };
        match dice.below(10) {
            0 => content.truncate(dice.below(content.len())),
            1 => content.fill(0),
            2 => self.state_file = None,
            _ => {}
        }
    }

    fn disk_fault(&self, now: Duration) -> Option<(DiskFault, Duration)> {
        self.disk.filter(|(_, until)| now < *until)
    }

    /// Whether the state file may lack the last claims.
    pub fn may_lack_claims(&self, now: Duration) -> bool {
        self.disk.is_some_and(|(_, until)| now < until + CHANGE)
    }

    /// Whether a file that was to be written may still say what it said before.
    pub fn may_lack_files(&self, now: Duration) -> bool {
        let retry = Duration::from_secs(6);
        let last = self.disk.filter(|(fault, _)| fault.error().is_some()).map(|(_, until)| until);
        let is_retrying = last.max(self.failed_until).is_some_and(|until| now < until + retry);
        is_retrying || self.left_files
    }

    pub fn end_disk_fault(&mut self, now: Duration) {
        let Some((fault, until)) = &mut self.disk else { return };
        *until = now.min(*until);
        if fault.error().is_some() {
            self.failed_until = Some(*until);
        }
    }

    pub fn is_stalled(&self, now: Duration) -> bool {
        now < self.running.stalled_until
    }

    /// The CPUs that the state file has for a container of this name.
    pub fn on_disk(&self, pod: &str, container: &str) -> Option<CpuSet> {
        let claims = self.claims_on_disk()?;
        let is_its = |claim: &Claim| claim.pod_uid.0 == pod.into() && claim.container == container;
        claims.into_iter().find(is_its).map(|claim| claim.cpus)
    }

    pub fn memory_on_disk(&self) -> Option<Vec<MemoryClaim>> {
        let claims = checkpoint::decode(self.state_file.as_deref()?).ok()?;
        Some(claims.memory)
    }

    pub fn claims_on_disk(&self) -> Option<Vec<Claim>> {
        let claims = checkpoint::decode(self.state_file.as_deref()?).ok()?;
        Some(claims.cpus)
    }

    /// The state file, the content that is being written to it, and all other files, as a text.
    pub fn files(&self) -> String {
        let claims = [&self.state_file, &self.writing];
        let claims = claims.map(|file| file.as_deref().map(checkpoint::decode));
        let others = self.storage.files();
        let others =
            others.content.values().map(|content| String::from_utf8_lossy(content).into_owned());
        format!("{claims:?} {:?}", others.collect::<Vec<_>>())
    }
}

impl World {
    /// Starts the plugin in its container, unless another instance runs.
    pub fn start_plugin(&mut self, pid: u32, serial: Serial) {
        if self.plugin.own.is_some() {
            self.say("another instance has locked the state directory");
            return self.after(Duration::from_millis(20), move |world| world.exit(serial));
        }
        self.kernel.lock().plugin = pid;
        self.plugin.own = Some(serial);
        let delay = self.plugin.dice.millis(5, 60);
        self.wake_plugin(delay, World::launch);
    }

    /// Schedules work of the plugin's process, which is dropped if the process ends before.
    pub fn wake_plugin(&mut self, delay: Duration, wake: impl FnOnce(&mut World) + 'static) {
        let process = self.plugin.process;
        self.after(delay, move |world| {
            if world.plugin.process == process {
                wake(world);
            }
        });
    }

    /// The time has come that [`Owner::due`] returned.
    fn is_due(&mut self, at: Duration) {
        let Some(owner) = &self.plugin.running.owner else { return };
        if self.plugin.running.due == Some(at) {
            self.plugin.running.due = None;
            if owner.due().is_some_and(|due| due <= self.base + self.now) {
                self.input(Input::Time);
            } else {
                self.arm();
            }
        }
    }

    fn saved(&mut self, result: Result<(), ErrorKind>) {
        let failed = |kind| StateError::Unusable {
            action: "write",
            path: PathBuf::from(STATE).join(checkpoint::FILE),
            source: io::Error::from(kind),
        };
        self.input(Input::Saved(result.map_err(failed)));
    }

    fn launch(&mut self) {
        if self.begin() {
            self.after(Duration::from_millis(3), |world| world.connect());
        }
    }

    /// Another instance, which was connected as standby, takes over once the first one is idle. The
    /// runtime does not notice it, and does not wait for an answer to the list.
    pub fn replace_plugin(&mut self, dice: Dice, tries: u32) {
        let plugin = &self.plugin;
        if !self.runtime.synchronized || !plugin.is_alive() || plugin.is_stalled(self.now) {
            return;
        }
        // An instance that follows has received the runtime's calls, which the list does not show.
        let is_busy = self.runtime.is_calling()
            || !plugin.pending.is_empty()
            || plugin.running.updating
            || plugin.writing.is_some();
        if is_busy {
            if tries < 100 {
                self.wake_plugin(Duration::from_millis(20), move |world| {
                    world.replace_plugin(dice, tries + 1);
                });
            }
            return;
        }
        self.say("another instance takes over");
        self.kernel.lock().faults.lives = None;
        self.plugin.process += 1;
        self.plugin.running = Running::default();
        self.kernel.lock().watch(Watcher::Groups, &BTreeMap::new());
        self.kernel.lock().watch(Watcher::Quotas, &BTreeMap::new());
        self.take_over(dice);
    }

    fn take_over(&mut self, mut dice: Dice) {
        if let Some((DiskFault::Stalled, until)) = self.plugin.disk_fault(self.now) {
            return self.wake_plugin(until - self.now, move |world| world.take_over(dice));
        }
        let memory = self.lasting_memory();
        self.plugin.saved_memory = None;
        if !self.begin() {
            return;
        }
        // The runtime may have ended during the wait for the disk.
        if !self.runtime.connected {
            return self.connect();
        }
        let capabilities = self.settings.capabilities();
        self.input(Input::Connected { capabilities, answer_within: TIMEOUT });
        let list = self.list(true).write_to_bytes().expect("protobuf");
        let decoded = Exchange::default().decode(reads(false), "Synchronize", &list);
        let Ok(Decoded::Call(call, _)) = decoded else {
            return self.fail("the list was not understood");
        };
        if let Asked::Call(Call::Event(Event::Synchronize { pods, mut containers })) =
            asked(call, false)
        {
            for container in &mut containers {
                // The instance does not know what the first one set for containers that were created
                // while both were connected.
                if dice.percent(50) {
                    (container.cpus, container.mems) = (None, None);
                    container.followed = true;
                }
            }
            let list = Event::Synchronize { pods, containers };
            self.input(Input::Call(CallId(0), list.into()));
        }
        if let Some(saved) = self.plugin.saved_memory.clone() {
            self.check_lasting_memory(&memory, &saved);
        }
        self.oracle.synchronized(self.now);
    }

    /// Starts the core. Returns whether it has started.
    fn begin(&mut self) -> bool {
        match self.plugin.disk_fault(self.now) {
            Some((DiskFault::ReadOnly, _)) => {
                self.plugin_dies("the disk is read-only");
                return false;
            }
            Some((DiskFault::Stalled, until)) => {
                self.wake_plugin(until - self.now, World::launch);
                return false;
            }
            _ => {}
        }
        if !self.configured() {
            self.plugin_dies("the configuration has a mistake");
            return false;
        }
        let is_by_groups = self.usable.is_by_groups() && self.is_static();
        if std::mem::replace(&mut self.by_groups, is_by_groups) != is_by_groups {
            self.oracle.allow("another mechanism", "", self.now + Duration::from_secs(25));
        }
        let wants_partitions = is_by_groups && self.usable.wants_partitions();
        self.by_partitions = wants_partitions && self.settings.privileged;
        let claims = match self.plugin.state_file.as_deref().map(checkpoint::decode) {
            None => None,
            Some(Ok(claims)) => Some(claims),
            Some(Err(why)) => {
                self.say(format!("the state file is put aside: {why}"));
                Some(SavedClaims::default())
            }
        };
        let count = claims.as_ref().map_or(0, |claims| claims.cpus.len());
        self.say(format!("plugin starts with {count} claims"));
        if std::mem::take(&mut self.plugin.left_files) {
            self.plugin.failed_until = Some(self.now);
        }
        let node =
            NodeAccess { kernel: Arc::new(self.kernel.clone()), storage: self.plugin.storage() };
        let now = self.base + self.now;
        let paths = Paths {
            node: identity(),
            config: None,
            state_dir: PathBuf::from(STATE),
            pod_resources: None,
            sysfs_root: PathBuf::from(SYS),
            cgroup_root: PathBuf::from(CGROUPS),
            proc_root: PathBuf::from(PROC),
            host_root: None,
        };
        let config = self.usable.config();
        let reading = config.kubelet_state_dir().map(|_| self.read_kubelet_state());
        let gpus = gpus(&self.settings);
        let owner = survives(|| {
            let machine = Machine::read(&*node.kernel, &paths.sysfs_root, &config)?.with_gpus(gpus);
            Owner::start(&paths, &config, machine, node, claims, reading, now)
        });
        self.note_records();
        self.note_writes();
        match owner {
            Some(Ok(owner)) => self.plugin.running.owner = Some(owner),
            Some(Err(error)) => {
                self.fail(format!("the plugin does not start: {error}"));
                return false;
            }
            None => {
                self.plugin_dies("at a call of the kernel, at its start");
                return false;
            }
        }
        self.arm();
        true
    }

    /// Ends the process. Content that is being written to the state file is lost, or has just reached the
    /// disk.
    pub fn plugin_dies(&mut self, why: &str) {
        self.kernel.lock().faults.lives = None;
        let Some(own) = self.plugin.own.take() else { return };
        self.say(format!("plugin dies: {why}"));
        let plugin = &mut self.plugin;
        plugin.left_files = plugin.may_lack_files(self.now);
        plugin.process += 1;
        plugin.running = Running::default();
        if let Some(content) = plugin.writing.take()
            && plugin.dice.percent(50)
        {
            plugin.state_file = Some(content);
        }
        self.kernel.lock().watch(Watcher::Groups, &BTreeMap::new());
        self.kernel.lock().watch(Watcher::Quotas, &BTreeMap::new());
        self.disconnect();
        self.after(Duration::ZERO, move |world| world.exit(own));
    }

    pub fn stall_plugin(&mut self, time: Duration) {
        if self.plugin.is_alive() {
            self.say(format!("plugin gets no CPU for {} ms", time.as_millis()));
            self.plugin.running.stalled_until = self.now + time;
            let until = self.now + time + Duration::from_secs(1);
            self.oracle.allow("without a CPU", "", until);
            self.wake_plugin(time, World::drive);
        }
    }

    pub fn input(&mut self, input: Input) {
        if self.plugin.is_alive() {
            self.plugin.running.inbox.push_back(input);
            self.drive();
        }
    }

    /// Reports the end of an unsolicited update to the plugin, if it waits for one.
    pub fn updated(&mut self, made: bool) {
        if std::mem::take(&mut self.plugin.running.updating) {
            self.input(Input::Updated(made));
        }
    }

    /// Has the core handle all inputs that wait.
    fn drive(&mut self) {
        if self.plugin.is_stepping || self.plugin.is_stalled(self.now) {
            return;
        }
        self.plugin.is_stepping = true;
        while let Some(input) = self.plugin.running.inbox.pop_front() {
            self.step(input);
        }
        self.plugin.is_stepping = false;
        self.arm();
    }

    fn step(&mut self, input: Input) {
        let effects = self.core(input);
        let pace = self.plugin.pace.at(self.now);
        pace.inputs += 1;
        if pace.inputs > MOST_INPUTS {
            self.fail("a storm: more than 2000 inputs of the plugin within a second");
        }
        if !self.plugin.is_alive() {
            return;
        }
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            if let Some(lives) = &mut self.plugin.running.lives {
                if *lives == 0 {
                    return self.plugin_dies("between two effects");
                }
                *lives -= 1;
            }
            self.plugin.effects += 1;
            let Some(answered) = self.carry_out(effect) else { continue };
            effects.extend(self.core(answered));
            if !self.plugin.is_alive() {
                return;
            }
        }
    }

    fn core(&mut self, input: Input) -> Vec<Effect> {
        let fault = self.plugin.disk_fault(self.now).and_then(|(fault, _)| fault.error());
        self.plugin.storage.files().fault = fault;
        let Some(owner) = &mut self.plugin.running.owner else { return Vec::new() };
        let now = self.base + self.now;
        let before = owner.repairs().clone();
        // The process that dies soon dies at a call of the change, not of the question.
        let lives = self.kernel.lock().faults.lives.take();
        let foreseen = Foreseen::of(owner, &input);
        self.kernel.lock().faults.lives = lives;
        let effects = survives(|| owner.step(input, now));
        let compared = foreseen.filter(|_| effects.is_some()).map(|it| it.compare(owner));
        self.oracle.repaired(&before, owner.repairs());
        self.plugin.steps += 1;
        if let Some(compared) = compared {
            self.plugin.foreseen += 1;
            compared.unwrap_or_else(|why| self.fail(why));
        }
        self.note_records();
        self.note_writes();
        effects.unwrap_or_else(|| {
            self.plugin_dies("at a call of the kernel");
            Vec::new()
        })
    }

    /// Returns the input that the core gets at once in return.
    fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Subscribe(subscriptions) => {
                let offered = self.settings.capabilities().validation;
                self.runtime.validates = subscriptions.validation && offered;
            }
            // The level is that of the process: other histories are played at the same time.
            Effect::Log(_) => {}
            Effect::WatchKubelet(directory) => {
                let reading =
                    directory.map_or(StateFileReading::Missing, |_| self.read_kubelet_state());
                return Some(Input::Kubelet(reading));
            }
            Effect::Answer(id, result) => {
                let is_sent = match self.plugin.pending.remove(&id) {
                    None => false,
                    Some(kind) => {
                        let answer = match result {
                            Ok(response) => kind.encode(exchange::answer(&response, None)),
                            Err(Refusal(why)) => kind.refused(CallError::Refused(why)),
                        };
                        self.answer(id, &kind, answer.map_err(|error| error.to_string()))
                    }
                };
                return Some(Input::Answered(id, is_sent));
            }
            Effect::Validated(id, result) => self.validated(id, result.err().map(|why| why.0)),
            Effect::Save(claims) => {
                let content = checkpoint::encode(&claims).expect("claims that can be written");
                let cpus = claims.cpus.iter();
                let cpus = cpus
                    .map(|claim| format!("{}/{}: {}", claim.pod_uid, claim.container, claim.cpus));
                let memory = claims.memory.iter().map(|claim| {
                    format!("{}/{}: {:?}", claim.pod_uid, claim.container, claim.memory)
                });
                let text: Vec<String> = cpus.chain(memory).collect();
                self.say(format!("  save {}", text.join("; ")));
                self.check_claimed_memory(&claims.memory);
                self.plugin.saved_memory = Some(claims.memory);
                self.save(content);
            }
            Effect::Update(updates) => {
                self.plugin.running.updating = true;
                let updates = edge::nri::updates(&updates);
                self.update_unsolicited(updates.iter().map(Into::into).collect());
            }
            Effect::Check(pass) => {
                let delay = self.plugin.dice.millis(1, 50);
                self.wake_plugin(delay, |world| match survives(|| pass.run()) {
                    Some(found) => world.input(Input::Checked(found)),
                    None => world.plugin_dies("at a call of the kernel, while it checks"),
                });
            }
            Effect::FindDevices => self.find_devices(),
            Effect::Quiet(pass) => {
                let delay = self.plugin.dice.millis(1, 50);
                self.wake_plugin(delay, |world| match survives(|| pass.run()) {
                    Some(outcome) => world.input(Input::Quieted(outcome)),
                    None => world.plugin_dies("at a call of the kernel, while it moves interrupts"),
                });
            }
            Effect::WatchGroups(paths) => self.kernel.lock().watch(Watcher::Groups, &paths),
            Effect::WatchQuotas(paths) => self.kernel.lock().watch(Watcher::Quotas, &paths),
        }
        None
    }

    fn save(&mut self, content: Vec<u8>) {
        let plugin = &mut self.plugin;
        let mut delay = plugin.dice.micros(100, 20_000);
        plugin.saves += 1;
        if plugin.failing_save == Some(plugin.saves) {
            return self.wake_plugin(delay, |world| world.saved(Err(ErrorKind::StorageFull)));
        }
        match plugin.disk_fault(self.now) {
            None => {}
            Some((DiskFault::Slow, _)) => delay = plugin.dice.millis(20, 1500),
            Some((DiskFault::Stalled, until)) => delay += until - self.now,
            Some((fault, _)) => {
                let why = fault.error().unwrap_or(ErrorKind::Other);
                return self.wake_plugin(delay, move |world| world.saved(Err(why)));
            }
        }
        plugin.writing = Some(content.clone());
        let number = plugin.saves;
        self.wake_plugin(delay, move |world| {
            // One thread makes all writes in order: if a later one is done, this one is.
            if world.plugin.written < number {
                world.plugin.written = number;
                world.plugin.state_file = Some(content);
                world.plugin.writing = None;
            }
        });
        if delay > DISK_PATIENCE {
            self.wake_plugin(DISK_PATIENCE, |world| world.saved(Err(ErrorKind::TimedOut)));
        } else {
            self.wake_plugin(delay, |world| world.saved(Ok(())));
        }
    }

    /// Schedules the next time at which the core is due.
    fn arm(&mut self) {
        let Some(owner) = &self.plugin.running.owner else { return };
        let at = owner.due().map(|due| due.saturating_duration_since(self.base));
        let at = at.map(|at| at.max(self.now + Duration::from_micros(10)));
        if at.is_some_and(|at| {
            self.plugin.running.due.is_none_or(|armed| at < armed || armed < self.now)
        }) {
            self.plugin.running.due = at;
            if let Some(at) = at {
                self.wake_plugin(at - self.now, move |world| world.is_due(at));
            }
        }
    }

    /// The edge's own time limit has passed: it answers the call without the core.
    pub fn patience_ends(&mut self, id: CallId) {
        if self.plugin.is_stalled(self.now) {
            return;
        }
        let Some(kind) = self.plugin.pending.remove(&id) else { return };
        self.say(format!("  the edge answers {} without the core", id.0));
        let late = CallError::Unavailable("the CPU manager did not decide in time".to_owned());
        let answer = kind.refused(late).map_err(|error| error.to_string());
        self.answer(id, &kind, answer);
    }

    pub fn deliver_inotify(&mut self) {
        for watcher in [Watcher::Groups, Watcher::Quotas] {
            let (any, new) = self.kernel.lock().take_events(watcher);
            let events = &mut self.plugin.running.events;
            if let Some(groups) = events.get_mut(&watcher) {
                groups.extend(new);
            } else if any && self.plugin.running.owner.is_some() {
                events.insert(watcher, new);
                let delay = self.plugin.dice.micros(10, 5000);
                self.wake_plugin(delay, move |world| {
                    let new = world.plugin.running.events.remove(&watcher).unwrap_or_default();
                    world.input(match watcher {
                        Watcher::Groups => Input::Groups(new),
                        Watcher::Quotas => Input::Quotas,
                    });
                });
            }
        }
    }

    fn note_records(&mut self) {
        for (level, line) in take_records() {
            self.oracle.logged(level, &line);
            self.say(format!("  {level} {line}"));
        }
    }

    /// Records the exclusive CPUs that a write gives a container: by a move, or for a container that was
    /// created while the plugin was away. Only CPUs that the state file has for it count, as it may also be
    /// written to leave CPUs of another one. While the disk fails, CPUs count that are as many as it
    /// requests, and on which no other container runs.
    pub fn notice_exclusive(&mut self, dir: &str, value: &str) {
        let Ok(set) = value.trim().parse::<CpuSet>() else { return };
        let is_here = |c: &&Container| self.dir(c) == dir;
        let Some(container) = self.containers.values().find(is_here) else { return };
        let serial = container.serial;
        let before = container.exclusive;
        let is_all = container.resizing || set.len() as u64 * 1000 == container.request;
        let is_guaranteed = self.pods[&container.pod].is_guaranteed();
        let claim = self.claim_on_disk(container);
        let is_its = match claim {
            Ok(claim) => claim == Some(set),
            // A container that runs on the reserved CPUs can request as many.
            Err(_) => {
                let pod = &self.pods[&container.pod];
                is_all && self.is_alone_on(serial, set) && !self.is_for_reserved(pod)
            }
        };
        let may_share = self.oracle.is_unsteady || container.is_named;
        let is_elsewhere = !is_all && before.is_some_and(|before| !set.is_subset(&before));
        if is_its && is_guaranteed && !container.mixed {
            self.container(serial).exclusive = Some(set);
        } else if may_share && (is_elsewhere || claim == Ok(None)) {
            // It shares CPUs under the new configuration, or since the plugin assigns CPUs again.
            self.container(serial).exclusive = None;
        }
    }

    fn is_alone_on(&self, serial: Serial, cpus: CpuSet) -> bool {
        let mut others = self.processes().filter(|(_, other)| other.serial != serial);
        let kernel = self.kernel.lock();
        others.all(|(pid, _)| kernel.allowed(pid).is_disjoint(&cpus))
    }

    /// Records the exclusive CPUs of containers after the plugin has answered the list: they keep those
    /// that the plugin has found, or share CPUs under a new configuration. While the disk fails, the CPUs
    /// count that both the cgroup and the runtime have, and on which no other container runs.
    pub fn notice_found(&mut self) {
        for serial in self.running_containers() {
            let container = &self.containers[&serial];
            let set = self.read(&self.dir(container), "cpuset.cpus").parse::<CpuSet>().ok();
            let is_all = set.is_some_and(|set| set.len() as u64 * 1000 == container.request);
            let claim = match (self.claim_on_disk(container), set) {
                (Ok(claim), _) => claim,
                (Err(_), Some(set))
                    if container.exclusive.is_some()
                        && is_all
                        && container.cpus == set.to_string()
                        && self.is_alone_on(serial, set) =>
                {
                    Some(set)
                }
                (Err(_), _) => continue,
            };
            let shares = claim.is_none() && !is_all && self.oracle.is_unsteady;
            if shares || claim.is_some() && claim == set && !container.mixed {
                self.container(serial).exclusive = claim;
            }
        }
    }

    /// The CPUs that the state file has for a container; an error if it may lack the last ones.
    fn claim_on_disk(&self, container: &Container) -> Result<Option<CpuSet>, ()> {
        let pod = &self.pods[&container.pod];
        if self.plugin.may_lack_claims(self.now) {
            return Err(());
        }
        Ok(self.plugin.on_disk(&pod.uid(), &pod.slots[container.slot].name))
    }

    pub fn note_writes(&mut self) {
        let log = std::mem::take(&mut self.kernel.lock().log);
        for written in log {
            // A write into a cgroup that is gone has no effect.
            if written.result != Err(Errno::ENOENT) {
                self.plugin.last_write = self.now;
            }
            let pace = self.plugin.pace.at(self.now);
            pace.writes += u32::from(pace.explained_until <= self.now);
            if pace.writes > MOST_WRITES {
                self.fail("a storm: more than 400 writes of the plugin within a second");
            }
            self.oracle.changed = true;
            let dir = written.path.parent().and_then(|dir| dir.strip_prefix(CGROUPS).ok());
            let dir = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
            if written.result.is_err() {
                self.oracle.is_disturbed = true;
                self.oracle.refused = Some(self.now);
                let until = self.now + Duration::from_secs(25);
                self.oracle.allow("refused by the kernel", &dir, until);
            } else if written.path.ends_with("cpuset.cpus") {
                self.notice_exclusive(&dir, &written.value);
            }
            let path = written.path.strip_prefix(CGROUPS).unwrap_or(&written.path).display();
            let result = written.result.err().map_or(String::new(), |errno| format!(": {errno:?}"));
            self.say(format!("  writes {:?} into {path}{result}", written.value.trim()));
        }
    }
}

/// The files of the state directory, except the state file.
#[derive(Clone, Default)]
struct StateDirectory(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    content: BTreeMap<PathBuf, Vec<u8>>,
    /// The error of every write.
    fault: Option<ErrorKind>,
    has_failed: bool,
}

impl Files {
    fn check(&mut self) -> io::Result<()> {
        self.has_failed |= self.fault.is_some();
        self.fault.map_or(Ok(()), |fault| Err(fault.into()))
    }
}

/// Without its files, as the debug text of the plugin has it in several places.
impl fmt::Debug for StateDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateDirectory")
    }
}

impl StateDirectory {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for StateDirectory {
    fn read(&self, path: &Path, _limit: usize) -> io::Result<Vec<u8>> {
        self.files().content.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn replace(&self, path: &Path, _mode: u32, content: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        files.check()?;
        files.content.insert(path.to_owned(), content.to_owned());
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files();
        files.check()?;
        files.content.remove(path);
        Ok(())
    }

    fn create_directory(&self, _path: &Path, _mode: u32) -> io::Result<()> {
        self.files().check()
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<String>> {
        let files = self.files();
        let below =
            files.content.keys().filter_map(|file| file.strip_prefix(path).ok()?.iter().next());
        let names: BTreeSet<String> = below.map(|name| name.display().to_string()).collect();
        Ok(names.into_iter().collect())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files();
        files.check()?;
        files.content.retain(|file, _| !file.starts_with(path));
        Ok(())
    }
}
