//! What the tests with real containerd share: a node on this machine, a plugin, and the probe's reports.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "a module of several test files, each using its own part"
)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lab::binaries::Binaries;
use lab::containerd::Version;
use lab::daemonset::DaemonPod;
use lab::host::Host;
use lab::image::shipped::Shipped;
use lab::instance::Instance as _;
use lab::kubelet::RunningPod;
use lab::manifests::Manifests;
use lab::node::Node;
use lab::plugin::{Plugin, Setup};
use lab::pod::{Container, Pod};
use lab::step::{Outcome, Step};
use lab::vm::{self, Machine, Software};
use nri_cpu_manager::cpuset::CpuSet;

/// Every test named, for each generation of containerd.
#[allow(unused_macros, reason = "not every test file runs with both")]
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod containerd_1_7 { $(#[test] fn $test() { super::$test(super::Version::V1_7); })* }
        mod containerd_2_1 { $(#[test] fn $test() { super::$test(super::Version::V2_1); })* }
    };
}

/// The static programs, built once a test binary.
pub fn binaries() -> &'static Binaries {
    static BINARIES: OnceLock<Binaries> = OnceLock::new();
    BINARIES.get_or_init(|| Binaries::build().unwrap())
}

/// What ships, made once a test binary.
pub fn shipped() -> &'static Shipped {
    static SHIPPED: OnceLock<Shipped> = OnceLock::new();
    SHIPPED.get_or_init(|| {
        let directory = lab::cache::directory("images").unwrap();
        Shipped::with(&binaries().plugin, &directory).unwrap()
    })
}

/// Where containers find the directory for their reports.
const OUT: &str = "/out";

/// A containerd on this machine, which may have any number of CPUs from two on. The plugin's configuration reserves all but
/// one of them, so that a second exclusive CPU cannot be had.
pub struct Bench {
    pub host: Host,
    /// The plugin as it is installed, once it was.
    pub daemon: Option<DaemonPod>,
}

impl Bench {
    pub fn new(version: Version) -> Self {
        let host = Host::start(version, binaries()).unwrap_or_else(|error| panic!("{error:#}"));
        let bench = Self { host, daemon: None };
        assert!(bench.online().len() >= 2, "these tests need two CPUs");
        bench
    }

    /// Starts the plugin.
    pub fn plugin(&self) -> Plugin {
        self.plugin_setup().1
    }

    /// As [`plugin`](Self::plugin), with what is needed to start it again.
    pub fn plugin_setup(&self) -> (Setup, Plugin) {
        let setup = self.host.node.plugin(&binaries().plugin, &self.config()).unwrap();
        let plugin = Plugin::start(&setup).unwrap_or_else(|error| panic!("{error:#}"));
        (setup, plugin)
    }

    /// Installs the plugin, in place of one that is there. Does not wait for what it does.
    pub fn install(&mut self, manifests: &Manifests) -> anyhow::Result<()> {
        self.uninstall()?;
        self.daemon = Some(self.host.node.install(&shipped().image, manifests)?);
        Ok(())
    }

    /// Removes the plugin's pod, if there is one.
    pub fn uninstall(&mut self) -> anyhow::Result<()> {
        self.daemon.take().map_or(Ok(()), |mut daemon| daemon.remove(&mut self.host.node))
    }

    /// The plugin's pod, and the node it is on.
    pub fn daemon(&mut self) -> (&mut DaemonPod, &mut Node) {
        (self.daemon.as_mut().unwrap(), &mut self.host.node)
    }

    /// The plugin's configuration.
    pub fn config(&self) -> String {
        let reserved = self.reserved();
        format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\n")
    }

    /// All CPUs of this machine: what shared containers have while nobody has an exclusive CPU.
    pub fn online(&self) -> CpuSet {
        fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap()
    }

    /// The CPU that can be exclusive, the last one.
    pub fn assignable(&self) -> CpuSet {
        CpuSet::of(self.online().iter().last().unwrap()).unwrap()
    }

    /// The CPUs that cannot: what shared containers have while somebody has the other one.
    pub fn reserved(&self) -> CpuSet {
        self.online() - self.assignable()
    }

    pub fn run(&mut self, pod: &Pod) -> RunningPod {
        self.host.node.run(pod).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Where the process of a pod's container `main` may run.
    pub fn allowed(&self, pod: &str) -> CpuSet {
        self.host.node.allowed(pod, "main").unwrap()
    }

    /// Runs the probe as an exclusive container's first process; it also looks at the threads of `other`.
    pub fn run_first(&mut self, name: &str, other: u32) -> First {
        let reports = self.host.node.reports().unwrap();
        let path = reports.join(name);
        lab::cache::remove(&path).unwrap();
        let container = Container::guaranteed("main", 1000)
            .running(["/bin/probe", "first", &format!("{OUT}/{name}"), &other.to_string()])
            .mounting(reports.display().to_string(), OUT);
        self.run(&Pod::new(name, [container]).with_host_pid());
        First::read(&wait_for(&path))
    }
}

/// The plugin's pod goes before the runtime that has it.
impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = self.uninstall() {
            eprintln!("the plugin's pod was not removed in order: {error:#}");
        }
    }
}

/// What a virtual server is to do, from an empty node on, and what must come of it.
pub struct Part {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Panics if it is not so.
    pub check: fn(&[Outcome]),
}

/// Plays parts on one server: a boot takes as long as a part. One that fails hides no other.
#[track_caller]
pub fn play_parts(machine: &Machine, software: impl Into<Software>, parts: &[Part]) {
    let steps: Vec<_> = parts.iter().map(|part| part.steps.clone()).collect();
    let mut failed = Vec::new();
    let mut judge = |at: usize, played: vm::Played, _| {
        let Part { name, check, .. } = &parts[at];
        match played.map(|outcomes| std::panic::catch_unwind(|| check(&outcomes))) {
            Ok(Ok(())) => println!("passed: {name}"),
            // The panic has told why.
            Ok(Err(_)) => failed.push((*name).to_owned()),
            Err(why) => failed.push(format!("{name}: {why}")),
        }
    };
    let patience = Duration::from_secs(600);
    vm::play(machine, software, &steps, binaries(), patience, &mut judge)
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert!(failed.is_empty(), "failed: {}", failed.join("\n"));
}

/// A pod that shares.
pub fn shared(name: &str) -> Pod {
    Pod::new(name, [Container::burstable("main", 100)])
}

/// A pod with one CPU for itself.
pub fn exclusive(name: &str) -> Pod {
    Pod::new(name, [Container::guaranteed("main", 1000)])
}

/// Lets all threads of a process run on these CPUs only, as far as its group allows.
pub fn set_affinity(pid: u32, cpus: CpuSet) {
    let (cpus, pid) = (cpus.to_string(), pid.to_string());
    let done = Command::new("taskset").args(["-apc", &cpus, &pid]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A shared container that is always busy, and records for each CPU when it last ran there.
pub struct Spinner {
    pub pid: u32,
    record: PathBuf,
}

impl Spinner {
    /// Starts it, and waits until it has been on every CPU.
    pub fn start(bench: &mut Bench, name: &str) -> Self {
        let reports = bench.host.node.reports().unwrap();
        let record = reports.join(name);
        lab::cache::remove(&record).unwrap();
        let container = Container::burstable("main", 100)
            .running(["/bin/probe", "spin", &format!("{OUT}/{name}")])
            .mounting(reports.display().to_string(), OUT);
        let running = bench.run(&Pod::new(name, [container]));
        let spinner = Self { pid: running.containers[0].pid, record };
        let everywhere = || bench.online().iter().all(|cpu| spinner.last_run(cpu) > 0);
        assert!(eventually(everywhere), "the busy container has not reached every CPU");
        spinner
    }

    /// When it last ran on a CPU, in CLOCK_MONOTONIC's nanoseconds; 0 for never.
    pub fn last_run(&self, cpu: usize) -> u64 {
        let content = fs::read(&self.record).unwrap_or_default();
        let bytes = content.get(cpu * 8..cpu * 8 + 8).and_then(|slice| slice.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }
}

/// What a container's first process saw as its very first act.
#[derive(Debug)]
pub struct First {
    /// CLOCK_MONOTONIC's nanoseconds.
    pub start: u64,
    /// Where it may run.
    pub own: CpuSet,
    /// Where the threads of the other process may run.
    pub threads: Vec<(String, CpuSet)>,
}

impl First {
    fn read(report: &str) -> Self {
        let mut first = Self { start: 0, own: CpuSet::default(), threads: Vec::new() };
        for line in report.lines() {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["start_ns", start] => first.start = start.parse().unwrap(),
                ["own", cpus] => first.own = cpus.parse().unwrap(),
                ["thread", _, thread, cpus] => {
                    first.threads.push(((*thread).to_owned(), cpus.parse().unwrap()))
                }
                other => panic!("strange line in the probe's report: {other:?}"),
            }
        }
        first
    }

    /// The one CPU it has for itself.
    pub fn own_cpu(&self) -> usize {
        assert_eq!(self.own.len(), 1, "the exclusive container may run on {}", self.own);
        self.own.iter().next().unwrap()
    }
}

fn wait_for(path: &std::path::Path) -> String {
    assert!(eventually(|| path.exists()), "no report {}", path.display());
    fs::read_to_string(path).unwrap()
}

/// Whether something becomes true within ten seconds.
pub fn eventually(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
