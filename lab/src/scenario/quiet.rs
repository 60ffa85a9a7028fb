//! Quiet CPUs: device interrupts leave exclusive CPUs and stay away, whatever else happens, and
//! everything is as before the plugin once it is gone.
//!
//! Kernel-managed interrupts cannot be moved. They only fire for I/O of their CPU, and are reported.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cpuset::CpuSet;
use noise::{CpuNoise, Kind, NoiseReport, Verdict};

use super::exclusive;
use super::shape::Shape;
use crate::command::{command, poll, run};
use crate::daemonset::Confinement;
use crate::devices::{self, Running, Unbound};
use crate::files;
use crate::interrupts::{self, Growth, Interrupt, Settings};
use crate::invariants::parse;
use crate::process;
use crate::testbed::{Testbed, says};

pub(super) const NAME: &str = "quiet";

/// For interrupts to leave: a check pass ten seconds after the one that has just begun.
const LEAVE: Duration = Duration::from_secs(15);

/// For interrupts of a device that was plugged in, from the moment that Linux has it.
const NEW: Duration = Duration::from_secs(10);

/// For Linux to find a device.
const FOUND: Duration = Duration::from_secs(20);

/// Seconds under load before interrupts are counted: each has to fire once after it was moved.
const WARM_UP: u64 = 5;

/// Seconds of an observation with `nri-cpu-manager noise`.
const NOISE: u64 = 10;

/// For the plugin's own minute of observation to have passed: its samples are ten seconds apart.
const MINUTE: Duration = Duration::from_secs(90);

/// The disk and the network interfaces must have fired so often elsewhere.
const LOAD: u64 = 1000;

/// Exclusive containers to time, with all interrupts and with few.
const SAMPLES: usize = 7;

/// Before each: the pass over the interrupts that follows the end of the one before takes a second of
/// emulated CPUs, which are more than the host has.
const REST: Duration = Duration::from_secs(4);

/// How much slower a start with all interrupts may be than with few. Starts on emulated CPUs vary
/// by a quarter.
const SLOWER: f64 = 1.5;

/// The fewest interrupts with which a comparison says anything.
const MANY: usize = 600;

/// CRI-O's annotations, with a value of the idle states that no CPU has at first.
const CRIO: [(&str, &str); 2] =
    [("irq-load-balancing.crio.io", "disable"), ("cpu-c-states.crio.io", "disable")];

/// Pods of the default namespace may ask for what the annotations mean.
const CRIO_CONFIG: &str = "compatibility: [crio]
exposeCPUs: environment
namespaces:
- names: [default]
  allow: {interrupts: [away, housekeeping], c-states: [disable]}";

/// Pods of the default namespace ask for everything that has a file.
const ALL: &str = "namespaces:
- names: [default]
  allow: {interrupts: [away], c-states: [disable]}
  defaults: {interrupts: away, c-states: disable}";

pub(super) fn quiet(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.begin("connect the network interfaces with each other");
    devices::connect()?;
    mounts(testbed, shape)?;
    away(testbed, shape)?;
    crio(testbed, shape)?;
    named(testbed, shape)?;
    beside_irqbalance(testbed, shape)?;
    starts(testbed, shape)?;
    testbed.begin("unplug the device");
    devices::unplug()
}

/// Seconds of an observation under load.
fn seconds(shape: &Shape) -> u64 {
    if shape.short { 30 } else { 60 }
}

/// With the strongest mechanism nothing is left on the CPUs but the tick and threads of the CPU.
fn away(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let before = settings(testbed)?;
    let isolated = shape.with("kernel").config("cpusetPartition: isolated\ninterrupts: away");
    testbed.start_quiet_plugin(&isolated)?;
    let cpus = start(testbed, "db", 3)?;
    leave(testbed, cpus)?;
    let mut loads = Running::loads(shape.online - cpus)?;
    stay_away(testbed, cpus, seconds(shape))?;
    is_quiet(&testbed.noise(NOISE)?)?;
    testbed.begin("wait until the plugin has seen nothing on them for a minute");
    observe(testbed, is_quiet)?;
    let isolated = format!("isolated partitions: isolated: {cpus} (no load balancing); ");
    says(&testbed.status()?, &[&isolated, "keeps unbound kernel workers off them"])?;
    plugged_in(testbed, cpus)?;
    put_back(testbed, cpus)?;

    // What was there before is recorded outside of the process.
    testbed.end_plugin()?;
    busiest()?.put_on(cpus)?;
    testbed.restart_plugin()?;
    leave(testbed, cpus)?;
    stay_away(testbed, cpus, 2 * WARM_UP)?;
    loads.still_run()?;
    drop(loads);
    ensure!(before.check(&settings(testbed)?).is_err(), "nothing was changed: this proves nothing");
    undo(testbed)?;
    is_restored(testbed, &before)
}

/// A container asks for the same in CRI-O's words, and for CPUs that do not idle.
fn crio(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let before = settings(testbed)?;
    testbed.start_quiet_plugin(&shape.config(CRIO_CONFIG))?;
    let mut pod = exclusive("dpdk", 2);
    pod.annotations.extend(CRIO.map(|(key, value)| (key.to_owned(), value.to_owned())));
    testbed.start(&pod)?;
    let cpus = cpus_of(testbed, "dpdk")?;
    leave(testbed, cpus)?;
    for cpu in cpus.iter() {
        let path = interrupts::latency(u32::try_from(cpu)?);
        let text = files::read_value(&path)?;
        ensure!(text == "n/a", "{} has {text:?}, expected n/a", path.display());
    }
    let mut loads = Running::loads(shape.online - cpus)?;
    stay_away(testbed, cpus, seconds(shape) / 2)?;
    loads.still_run()?;
    drop(loads);
    // The last container that asks for it is gone.
    testbed.remove("dpdk")?;
    testbed.begin("wait until everything is as before the container");
    become_equal(&before)?;
    housekeeping(testbed)?;
    testbed.uninstall()?;
    is_restored(testbed, &before)
}

/// Interrupts stay on the first core of the container only, which its environment names.
fn housekeeping(testbed: &mut Testbed<'_>) -> Result<()> {
    let mut pod = exclusive("vran", 2);
    let pod_option = ("irq-load-balancing.crio.io".to_owned(), "housekeeping".to_owned());
    pod.annotations.extend([pod_option]);
    testbed.start(&pod)?;
    let cpus = cpus_of(testbed, "vran")?;
    let first = cpus.lowest(1);
    leave(testbed, cpus - first)?;
    ensure!(interrupts::are_away(first, Duration::ZERO).is_err(), "none is on CPU {first}");
    let variables = testbed.environment("vran", "OPENSHIFT_HOUSEKEEPING_CPUS=")?;
    let expected = format!("OPENSHIFT_HOUSEKEEPING_CPUS={first}");
    ensure!(variables == [expected.as_str()], "{variables:?}, expected {expected}");
    testbed.remove("vran")
}

/// What is put on exclusive CPUs on purpose is named, each with its kind. Only `groups` lets host
/// processes come there.
fn named(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let before = settings(testbed)?;
    let mut manifests = testbed.quiet_manifests(&shape.with("groups").config(""))?;
    // With the overlay host-pid.
    manifests.pod_mut().host_pid = true;
    testbed.apply(&manifests)?;
    let cpus = start(testbed, "db", 2)?;
    testbed.run_busy_on_host("service")?;
    let service = testbed.busy_pid("service")?;
    let thread = kernel_thread()?;
    let loads = Running::loads(shape.online - cpus)?;
    let interrupt = busiest()?;
    testbed.begin(format!("put a host process, a kernel thread and {interrupt} on CPUs {cpus}"));
    pin(service, cpus)?;
    // A thread with one CPU would be a thread of that CPU.
    pin(thread, cpus)?;
    interrupt.put_on(cpus)?;
    let names_all = |noise: &NoiseReport| {
        for (kind, number) in [
            (Kind::HostProcess, service),
            (Kind::KernelThread, thread),
            (Kind::DeviceInterrupt, interrupt.number),
        ] {
            let mut findings = by_cpu(noise).flat_map(|one| &one.findings);
            let is_named = findings.any(|one| one.kind == kind && one.number == Some(number));
            ensure!(is_named, "no {} {number} in\n{}", kind.name(), noise.text(false));
        }
        Ok(())
    };
    names_all(&testbed.noise(NOISE)?)?;
    testbed.begin("wait until the plugin's status names them");
    observe(testbed, names_all)?;
    says(
        &testbed.status()?,
        &["on exclusive CPUs in ", &format!(": host process pid {service} ")],
    )?;
    pin(thread, shape.online)?;
    drop(loads);
    before.restore_affinities()?;
    testbed.clear()
}

/// What the plugin has seen in the last minute becomes like this.
fn observe(
    testbed: &mut Testbed<'_>,
    is_expected: impl Fn(&NoiseReport) -> Result<()>,
) -> Result<()> {
    succeeds(MINUTE, || {
        let noise = testbed.recent_noise()?;
        Ok(noise.as_ref().context("the status has no noise").and_then(&is_expected))
    })
}

/// The pod has no capability, and something is missing without any one of the overlay's mounts.
fn mounts(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let before = settings(testbed)?;
    let config = shape.with("groups").config(ALL);
    let irqbalance = Running::irqbalance()?;
    let workers = Path::new("/sys/devices/virtual/workqueue/cpumask");
    let all_workers = files::read_value(workers)?;
    for (volume, log) in [
        ("", "irqbalance: keeps interrupts off exclusive CPUs"),
        ("proc-irq", "cannot write /host/proc/irq/default_smp_affinity"),
        ("proc-interrupts", "cannot read the interrupts in /host/proc"),
        ("cpus", "this node has no pm_qos_resume_latency_us"),
        ("workqueues", "interrupts: moved off exclusive CPUs"),
        ("irqbalance", "interrupts: moved off exclusive CPUs"),
    ] {
        let mut manifests = testbed.quiet_manifests(&config)?;
        let pod = manifests.pod_mut();
        for container in pod.init_containers.iter_mut().chain(&mut pod.containers) {
            container.volume_mounts.retain(|mount| mount.name != volume);
        }
        testbed.apply(&manifests)?;
        let Confinement { capabilities, bounding, .. } = testbed.confinement()?;
        ensure!((capabilities, bounding) == (0, 0), "capabilities {capabilities:x}, {bounding:x}");
        testbed.exclusive("db", 2)?;
        testbed.wait_for(log, 1)?;
        let are_all = files::read_value(workers)? == all_workers;
        let may_move_workers = !["proc-irq", "workqueues"].contains(&volume);
        ensure!(
            are_all != may_move_workers,
            "without {volume}: workers on {}",
            files::read_value(workers)?
        );
        if volume == "irqbalance" {
            says(&testbed.status()?, &["no irqbalance"])?;
        }
        testbed.uninstall()?;
        testbed.revert_quiet()?;
        testbed.clear()?;
    }
    drop(irqbalance);
    before.restore_affinities()?;
    is_restored(testbed, &before)
}

/// irqbalance, started after the container, does not bring interrupts back.
fn beside_irqbalance(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let before = settings(testbed)?;
    testbed.start_quiet_plugin(&shape.config("interrupts: away"))?;
    let cpus = start(testbed, "db", 3)?;
    leave(testbed, cpus)?;
    let mut loads = Running::loads(shape.online - cpus)?;
    let mut irqbalance = Running::irqbalance()?;
    // It may move interrupts before it is asked to ban CPUs.
    testbed.wait(LEAVE.as_secs());
    leave(testbed, cpus)?;
    stay_away(testbed, cpus, seconds(shape) / 2)?;
    irqbalance.still_run()?;
    loads.still_run()?;
    drop(irqbalance);
    drop(loads);
    undo(testbed)?;
    // Where irqbalance put interrupts on other CPUs, they stayed.
    before.restore_affinities()?;
    is_restored(testbed, &before)
}

/// The start of a container with hundreds of interrupts takes no longer than with few, which are
/// what is left without the driver of the serial devices.
fn starts(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_quiet_plugin(&shape.config("interrupts: away"))?;
    let many = interrupts::all()?.len();
    let with_many = testbed.start_time(SAMPLES, REST)?;
    let unbound = Unbound::serial_devices()?;
    let few = interrupts::all()?.len();
    let with_few = testbed.start_time(SAMPLES, REST)?;
    drop(unbound);
    let ratio = with_many / with_few;
    let text = format!(
        "a start takes {with_many:.0} ms with {many} interrupts, {with_few:.0} ms with {few}: \
         ratio {ratio:.2}"
    );
    testbed.begin(text.as_str());
    ensure!(many >= MANY && few < many / 4, "too few interrupts to compare: {text}");
    ensure!(ratio < SLOWER, "{text}");
    undo(testbed)
}

fn settings(testbed: &mut Testbed<'_>) -> Result<Settings> {
    testbed.begin("read the settings of interrupts and idle states");
    Settings::read()
}

/// Removes the plugin, then what it has changed.
fn undo(testbed: &mut Testbed<'_>) -> Result<()> {
    testbed.uninstall()?;
    testbed.revert_quiet()?;
    Ok(())
}

fn is_restored(testbed: &mut Testbed<'_>, before: &Settings) -> Result<()> {
    testbed.begin("wait until everything is as before the plugin");
    become_equal(before)?;
    testbed.clear()
}

fn become_equal(before: &Settings) -> Result<()> {
    succeeds(LEAVE, || Ok(before.check(&Settings::read()?)))
}

/// Reads and judges again and again, until the judgement is good. The last one counts after `patience`; an
/// error in reading counts at once.
fn succeeds(patience: Duration, mut check: impl FnMut() -> Result<Result<()>>) -> Result<()> {
    let start = Instant::now();
    loop {
        let result = check()?;
        if result.is_ok() || start.elapsed() > patience {
            return result;
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// Starts an exclusive container, and returns its CPUs.
fn start(testbed: &mut Testbed<'_>, name: &str, cpus: usize) -> Result<CpuSet> {
    testbed.exclusive(name, cpus)?;
    cpus_of(testbed, name)
}

fn cpus_of(testbed: &mut Testbed<'_>, name: &str) -> Result<CpuSet> {
    Ok(parse(testbed.view()?.allowed(name)))
}

fn leave(testbed: &mut Testbed<'_>, cpus: CpuSet) -> Result<()> {
    testbed.begin(format!("wait until interrupts leave CPUs {cpus}"));
    interrupts::are_away(cpus, LEAVE)
}

/// No interrupt that can be moved fires on these CPUs for so many seconds, while devices are busy.
fn stay_away(testbed: &mut Testbed<'_>, cpus: CpuSet, seconds: u64) -> Result<()> {
    testbed.wait(WARM_UP);
    testbed.begin(format!("count interrupts on CPUs {cpus} for {seconds} s"));
    let before = interrupts::all()?;
    thread::sleep(Duration::from_secs(seconds));
    let Growth { movable, managed, elsewhere } =
        interrupts::growth(cpus, &before, &interrupts::all()?);
    testbed.begin(format!(
        "{elsewhere} interrupts elsewhere; kernel-managed ones on CPUs {cpus}: {managed:?}"
    ));
    ensure!(movable.is_empty(), "on CPUs {cpus} within {seconds} s: {}", movable.join("; "));
    ensure!(elsewhere >= LOAD, "only {elsewhere} interrupts: the devices were not busy");
    Ok(())
}

/// The interrupts of a device that was plugged in, which its driver spreads over all CPUs, leave.
fn plugged_in(testbed: &mut Testbed<'_>, cpus: CpuSet) -> Result<()> {
    testbed.begin("plug in a network interface");
    let before = interrupts::all()?;
    devices::plug_in()?;
    let is_new = || {
        let is_there = interrupts::all()?.iter().any(|(number, one)| {
            !before.contains_key(number) && !one.is_managed && one.description.contains("virtio")
        });
        Ok(if is_there { Some(()) } else { None })
    };
    poll(FOUND, is_new)?.context("Linux does not find the device")?;
    testbed.begin(format!("wait until its interrupts leave CPUs {cpus}"));
    interrupts::are_away(cpus, NEW)
}

/// An affinity that was changed by hand is put right.
fn put_back(testbed: &mut Testbed<'_>, cpus: CpuSet) -> Result<()> {
    let interrupt = busiest()?;
    testbed.begin(format!("put {interrupt} on CPUs {cpus}"));
    interrupt.put_on(cpus)?;
    ensure!(interrupts::are_away(cpus, Duration::ZERO).is_err(), "the write had no effect");
    leave(testbed, cpus)
}

/// The interrupt that has fired most often, of those that can be moved.
fn busiest() -> Result<Interrupt> {
    let movable = interrupts::all()?.into_values().filter(|one| !one.is_managed);
    movable.max_by_key(Interrupt::total).context("no interrupt can be moved")
}

/// Nothing but the tick and threads of the CPU on any of the CPUs.
fn is_quiet(noise: &NoiseReport) -> Result<()> {
    let are_quiet = by_cpu(noise).all(|one| one.verdict == Verdict::Quiet);
    ensure!(by_cpu(noise).count() > 0 && are_quiet, "{}", noise.text(false));
    Ok(())
}

fn by_cpu(noise: &NoiseReport) -> impl Iterator<Item = &CpuNoise> {
    noise.containers.iter().flat_map(|container| &container.by_cpu)
}

/// A kernel thread that often runs and may be moved.
fn kernel_thread() -> Result<u32> {
    let names = ["rcu_preempt", "rcu_sched"];
    for pid in process::all() {
        if process::status_field(pid, "Name").is_some_and(|name| names.contains(&&*name)) {
            return Ok(pid);
        }
    }
    bail!("no kernel thread {}", names.join(" or "))
}

/// All threads of a process.
fn pin(pid: u32, cpus: CpuSet) -> Result<()> {
    let words = ["--all-tasks", "--cpu-list", "--pid", &cpus.to_string(), &pid.to_string()];
    run(&mut command("taskset", words))?;
    Ok(())
}
