//! Small worlds: every order of a few events on a node with four CPUs and two pods. Most defects need only
//! a few events, and here none of their orders is left to chance.
//!
//! An event comes 20 ms after the previous one, which is still being handled, or 15 s after it. The search
//! is breadth first, and explores states with the same `fingerprint` once. For each order that leads to a
//! new state, one fault is injected at each possible place while its last event is handled: the plugin
//! dies, a write is refused, or a save fails. Then everything must settle.

use crate::configuration::Configuration;
use crate::dice::Dice;
use crate::history::kind_of;
use crate::kernel::Errno;
use crate::node::group;
use crate::oracle::Key;
use crate::plugin::DiskFault;
use crate::pods::{Class, Container, Kind, Paths, Pod, PodId, Sandbox, Serial, Slot, State};
use crate::settings::{CONTAINERD, CRIO, Settings, Trouble};
use crate::world::World;
use clap::ValueEnum;
use cpuset::CpuSet;
use machines::synthetic::Machine;
use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const SEED: u64 = 1;
const BOOT: Duration = Duration::from_secs(20);
const QUICK: Duration = Duration::from_millis(20);
const QUIET: Duration = Duration::from_secs(15);
/// How long the handling of an event lasts at most: a killed plugin has restarted by then.
const HANDLING: Duration = Duration::from_secs(5);
/// The longest windows, and the time without writes after them: long enough for two pods.
const SETTLED: Duration = Duration::from_secs(60);
/// The CPU that goes offline and online: the first that pod A gets.
const CPU: usize = 1;

/// Plays all orders of a few events on a node with four CPUs and two pods, with one fault at each
/// place.
///
/// The last lines, one for each mechanism: kinds=N orders=N states=N faults=N violations=N
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The most events in an order.
    #[arg(long, default_value_t = 5)]
    depth: usize,
    /// The most events in an order that is played with faults.
    #[arg(long, default_value_t = 3)]
    faults: usize,
    #[arg(long, value_enum, default_value_t = Mechanism::All)]
    mechanism: Mechanism,
    /// Ends each search after this time: what it prints is not reproducible then.
    #[arg(long)]
    seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mechanism {
    Groups,
    Runtime,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Happening {
    CreateA,
    CreateB,
    DeleteA,
    DeleteB,
    CrashA,
    CrashB,
    GrowA,
    ShrinkA,
    DebugA,
    KillPlugin,
    KillRuntime,
    Disconnect,
    WriteClass,
    WriteA,
    Reload,
    RefuseBelowA,
    SlowDisk,
    CpuOff,
    CpuOn,
}

use Happening::*;

/// An event, and the time until the next one.
type Step = (Happening, Duration);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The plugin dies at this call of the kernel.
    DieAtCall(u64),
    DieAtEffect(u64),
    Refuse(u64, Errno),
    FailSave(u64),
}

/// A new state: an order that leads to it, and the events that are possible in it.
struct Reached {
    order: Vec<Step>,
    possible: Vec<Happening>,
}

#[derive(Default)]
struct Tally {
    kinds: BTreeSet<Happening>,
    orders: u64,
    states: u64,
    faults: u64,
    violations: u64,
    /// Kinds of violations whose trace was printed.
    shown: BTreeSet<String>,
}

/// Prints violations. Returns whether there are none.
pub fn search(arguments: &Arguments) -> bool {
    let mut lines = Vec::new();
    let mut is_clean = true;
    for (mechanism, name) in [(Mechanism::Groups, "groups"), (Mechanism::Runtime, "runtime")] {
        if ![mechanism, Mechanism::All].contains(&arguments.mechanism) {
            continue;
        }
        let mut tally = Tally::default();
        for (runtime, systemd) in [(CONTAINERD[1], false), (CRIO[2], true)] {
            let settings = Settings {
                machine: Machine { cores: 4, ..Machine::default() },
                runtime,
                systemd,
                configuration: Configuration::default().with("exclusivity", name),
                trouble: Trouble::Restarts,
                ..Settings::default()
            };
            println!("{name}: {} {}, systemd {systemd}", runtime.0, runtime.1);
            Search { settings, explored: HashSet::new(), next: Vec::new() }
                .run(arguments, &mut tally);
        }
        let Tally { kinds, orders, states, faults, violations, .. } = tally;
        is_clean &= violations == 0;
        lines.push(format!(
            "{name}: kinds={} orders={orders} states={states} faults={faults} violations={violations}",
            kinds.len()
        ));
    }
    lines.iter().for_each(|line| println!("{line}"));
    is_clean
}

struct Search {
    settings: Settings,
    /// Fingerprints of states.
    explored: HashSet<u64>,
    /// New states with the present number of events.
    next: Vec<Reached>,
}

impl Search {
    fn run(mut self, arguments: &Arguments, tally: &mut Tally) {
        let started = Instant::now();
        let world = self.play(&[], false);
        self.explored.insert(world.fingerprint());
        let mut front = vec![Reached { order: Vec::new(), possible: world.possible() }];
        for depth in 1..=arguments.depth {
            let is_last = depth == arguments.depth;
            for Reached { order, possible } in &front {
                for &what in possible {
                    if arguments.seconds.is_some_and(|s| s < started.elapsed().as_secs()) {
                        println!("  out of time with orders of {depth} events");
                        return;
                    }
                    let faults = self.extend(order, what, is_last, tally);
                    if depth <= arguments.faults {
                        self.play_faults(order, what, &faults, tally);
                    }
                }
            }
            front = std::mem::take(&mut self.next);
            eprintln!(
                "  {depth} events: {} orders, {} states, {} faults, {} violations, {} s",
                tally.orders,
                tally.states,
                tally.faults,
                tally.violations,
                started.elapsed().as_secs()
            );
        }
    }

    /// A world after these events.
    fn play(&self, order: &[Step], keeps_trace: bool) -> World {
        drop(crate::trace::take_records());
        let mut world = World::new(self.settings.clone(), Vec::new(), SEED, keeps_trace);
        world.guarded(|world| {
            world.run_until(BOOT);
            for &(what, pace) in order {
                world.happen(what, Fault::None);
                world.run_until(world.now + pace);
            }
        });
        world
    }

    /// Plays an order with one more event, in both paces. If that leads to a new state, returns the faults
    /// that are possible while the event is handled.
    fn extend(
        &mut self,
        order: &[Step],
        what: Happening,
        is_last: bool,
        tally: &mut Tally,
    ) -> Vec<Fault> {
        tally.kinds.insert(what);
        let mut world = self.play(order, false);
        let mut before = world.counts();
        let at = world.now;
        world.guarded(|world| {
            world.happen(what, Fault::None);
            if what == KillPlugin {
                before = world.counts();
            }
            world.run_until(at + QUICK);
        });
        let mut is_new = self.record_state(&world, order, (what, QUICK), tally);
        let mut faults = Vec::new();
        world.guarded(|world| {
            world.run_until(at + HANDLING);
            faults = world.faults_since(before);
        });
        // After the last event of the deepest orders, the world settles in any case.
        let pace = if is_last { QUICK } else { QUIET };
        if !is_last {
            world.guarded(|world| world.run_until(at + QUIET));
            is_new |= self.record_state(&world, order, (what, QUIET), tally);
        }
        if is_new {
            world.guarded(|world| world.settle(SETTLED));
        }
        if let Some(why) = world.violation {
            self.report(order, (what, pace), Fault::None, &why, tally);
        }
        if is_new { faults } else { Vec::new() }
    }

    /// Returns whether this state is new.
    fn record_state(
        &mut self,
        world: &World,
        order: &[Step],
        last: Step,
        tally: &mut Tally,
    ) -> bool {
        tally.orders += 1;
        let is_new = world.violation.is_none() && self.explored.insert(world.fingerprint());
        if is_new {
            tally.states += 1;
            let order = order.iter().copied().chain([last]).collect();
            self.next.push(Reached { order, possible: world.possible() });
        }
        is_new
    }

    /// Plays an order whose last event comes with a fault.
    fn play_fault(&self, order: &[Step], last: Step, fault: Fault, keeps_trace: bool) -> World {
        let mut world = self.play(order, keeps_trace);
        world.guarded(|world| {
            let at = world.now;
            world.happen(last.0, fault);
            world.run_until(at + last.1.max(HANDLING));
            world.settle(SETTLED);
        });
        world
    }

    fn play_faults(&self, order: &[Step], what: Happening, faults: &[Fault], tally: &mut Tally) {
        for &fault in faults {
            tally.faults += 1;
            let world = self.play_fault(order, (what, QUICK), fault, false);
            if let Some(why) = world.violation {
                self.report(order, (what, QUICK), fault, &why, tally);
            }
        }
    }

    fn report(&self, order: &[Step], last: Step, fault: Fault, why: &str, tally: &mut Tally) {
        tally.violations += 1;
        let order_text: Vec<String> = order.iter().chain([&last]).map(describe).collect();
        println!("VIOLATION {}; {fault:?}: {why}", order_text.join(", "));
        if tally.shown.insert(kind_of(why)) {
            let mut world = self.play_fault(order, last, fault, true);
            println!("  {:?}", world.settings);
            let lines = world.trace.lines.take().unwrap_or_default();
            lines.iter().chain(&world.picture()).for_each(|line| println!("  {line}"));
        }
    }
}

fn describe((what, pace): &Step) -> String {
    let quiet = if *pace == QUIET { " quiet" } else { "" };
    format!("{what:?}{quiet}")
}

/// Counts of the plugin's actions so far.
#[derive(Clone, Copy)]
struct Counts {
    calls: u64,
    writes: usize,
    effects: u64,
    saves: u64,
}

impl World {
    /// Turns a panic into a violation.
    fn guarded(&mut self, play: impl FnOnce(&mut World)) {
        if catch_unwind(AssertUnwindSafe(|| play(self))).is_err() {
            self.fail(format!("panic: {}", crate::trace::take_panic()));
        }
    }

    fn counts(&self) -> Counts {
        let calls = self.kernel.calls();
        let writes = calls.writes as usize;
        let calls = calls.reads + calls.writes;
        Counts { calls, writes, effects: self.plugin.effects, saves: self.plugin.saves }
    }

    /// The faults that are possible in what the plugin has done since `before`. It does not die at reads,
    /// as that has the same result as to die at the next write or effect.
    fn faults_since(&self, before: Counts) -> Vec<Fault> {
        let after = self.counts();
        let calls = self.kernel.lock().before_writes[before.writes..].to_vec();
        let mut faults = Vec::new();
        for (write, call) in (0..).zip(calls) {
            let errno = if write % 2 == 0 { Errno::EIO } else { Errno::EBUSY };
            faults.push(Fault::DieAtCall(call - before.calls));
            faults.push(Fault::Refuse(write, errno));
        }
        faults.extend((0..after.effects - before.effects).map(Fault::DieAtEffect));
        faults.extend((1..=after.saves - before.saves).map(Fault::FailSave));
        faults
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::None => {}
            Fault::DieAtCall(call) => self.kernel.lock().faults.lives = Some(call),
            Fault::DieAtEffect(effect) => self.plugin.running.lives = Some(effect),
            Fault::Refuse(write, errno) => self.kernel.lock().fail_write(write, errno),
            Fault::FailSave(save) => {
                self.plugin.failing_save = Some(self.plugin.saves + save);
            }
        }
    }

    /// The pod of this class that is not being deleted, except the plugin's.
    fn small_pod(&self, class: Class) -> Option<&Pod> {
        let mut pods = self.pods.values().filter(|pod| !pod.is_plugin && pod.class == class);
        pods.find(|pod| pod.deleted.is_none())
    }

    fn pod_a(&self) -> Option<&Pod> {
        self.small_pod(Class::Guaranteed)
    }

    fn pod_b(&self) -> Option<&Pod> {
        self.small_pod(Class::Burstable)
    }

    /// A pod's first container, if it runs.
    fn runs(&self, pod: Option<&Pod>) -> Option<&Container> {
        let container = self.containers.get(&pod?.slots[0].instance?)?;
        if container.state == State::Running { Some(container) } else { None }
    }

    fn possible(&self) -> Vec<Happening> {
        let all = Happening::value_variants().iter().copied();
        all.filter(|what| self.is_possible(*what)).collect()
    }

    fn is_possible(&self, what: Happening) -> bool {
        let a = self.pod_a();
        let b = self.pod_b();
        let runs_a = self.runs(a);
        let runs_b = self.runs(b);
        let size = |milli| {
            runs_a.is_some_and(|c| c.exclusive.is_some() && !c.resizing && c.request == milli)
        };
        match what {
            CreateA => a.is_none() && self.unpromised() >= 1000,
            CreateB => b.is_none(),
            DeleteA => a.is_some(),
            DeleteB => b.is_some(),
            CrashA | WriteA => runs_a.is_some(),
            CrashB => runs_b.is_some(),
            GrowA => size(1000) && self.unpromised() >= 1000,
            ShrinkA => size(2000),
            DebugA => a.is_some_and(|pod| pod.sandbox == Sandbox::Ready && pod.slots.len() == 1),
            KillPlugin => self.plugin.is_alive(),
            KillRuntime => !self.runtime.down,
            Disconnect => self.runtime.connected,
            // Where the runtime's updates bind, the plugin does not restore cgroups above containers.
            WriteClass => self.by_groups,
            Reload => self.settings.systemd && (runs_a.is_some() || runs_b.is_some()),
            RefuseBelowA => a.is_some() && self.kernel.lock().faults.below.is_empty(),
            SlowDisk => self.plugin.disk.is_none_or(|(_, until)| until <= self.now),
            CpuOff => self.kernel.lock().online.contains(CPU),
            CpuOn => !self.kernel.lock().online.contains(CPU),
        }
    }

    fn happen(&mut self, what: Happening, fault: Fault) {
        self.say(format!("== {what:?} {fault:?}"));
        self.plugin.pace.explained_until = self.now + Duration::from_secs(1);
        let id_of = |pod: Option<&Pod>| pod.map_or(0, |pod| pod.id);
        let a = id_of(self.pod_a());
        let b = id_of(self.pod_b());
        // A fault of the process that is killed would be gone with it.
        if what != KillPlugin {
            self.inject(fault);
        }
        match what {
            CreateA => self.create_small(Class::Guaranteed, 1000, 1000),
            CreateB => self.create_small(Class::Burstable, 100, 0),
            DeleteA => self.delete_small(a),
            DeleteB => self.delete_small(b),
            CrashA => self.exit(self.first_container(a)),
            CrashB => self.exit(self.first_container(b)),
            GrowA => self.resize(self.first_container(a), 2000, 4),
            ShrinkA => self.resize(self.first_container(a), 1000, 4),
            DebugA => {
                self.pod(a).slots.push(Slot::new("debug".to_owned(), Kind::Debug, 0, 0));
                self.sync_pod(a);
            }
            KillPlugin => {
                self.plugin_dies("killed");
                // Ends its container.
                self.run_until(self.now);
                self.inject(fault);
            }
            KillRuntime => self.restart_runtime(Duration::from_millis(500)),
            Disconnect => {
                self.disconnect();
                self.after(Duration::from_millis(200), |world| world.connect());
            }
            WriteClass => {
                let dir = Paths(&self.settings).class(Class::Burstable);
                self.all_cpus_into(&dir, Duration::from_millis(100));
            }
            WriteA => {
                let dir = self.dir(&self.containers[&self.first_container(a)]);
                self.all_cpus_into(&dir, Duration::from_secs(25));
            }
            Reload => self.reload_systemd(),
            RefuseBelowA => {
                let dir = self.pod_dir(a);
                self.kernel.lock().faults.below.insert(group(&dir), Errno::EIO);
                self.oracle.open(Key::Refused(a), "refused by the kernel", &dir);
                self.after(Duration::from_secs(5), move |world| world.mend(a, &dir));
            }
            SlowDisk => {
                self.plugin.disk = Some((DiskFault::Slow, self.now + Duration::from_secs(5)));
            }
            CpuOff | CpuOn => self.toggle(CpuSet::of(CPU).unwrap_or_default()),
        }
        // As after any other event.
        self.deliver_inotify();
        self.check_now();
    }

    fn first_container(&self, pod: PodId) -> Serial {
        self.pods[&pod].slots[0].instance.expect("a container that runs")
    }

    /// Pods A are u101, u102 and so on, and pods B u201 and so on. Sorted by ids, states with the same pods
    /// are equal in whatever order these were created.
    fn create_small(&mut self, class: Class, request: u64, limit: u64) {
        let hundreds = if class == Class::Guaranteed { 100 } else { 200 };
        let id = hundreds + self.next_pod;
        self.next_pod += 1;
        let slots = vec![Slot::new("app".to_owned(), Kind::App, request, limit)];
        self.pods.insert(id, Pod::bare(id, class, slots, Dice::of(SEED, hundreds.into())));
        self.sync_pod(id);
    }

    fn delete_small(&mut self, id: PodId) {
        self.pod(id).deleted = Some(Duration::from_millis(10));
        self.sync_pod(id);
    }

    fn all_cpus_into(&mut self, dir: &str, bound: Duration) {
        let cpus = self.kernel.lock().online.to_string();
        self.other_writes(dir, &cpus, bound);
    }
}
