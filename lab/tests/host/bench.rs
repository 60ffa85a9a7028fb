//! A node on this machine, the plugin on it, and what the probe reports.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lab::containerd::Version;
use lab::daemonset::DaemonPod;
use lab::host::Host;
use lab::image::shipped::Shipped;
use lab::instance::Instance as _;
use lab::kubelet::RunningPod;
use lab::manifests::Manifests;
use lab::node::{Node, ProbeReport};
use lab::plugin::{Plugin, PluginSetup};
use lab::pod::{Container, Pod};
use nri_cpu_manager::cpuset::CpuSet;

use crate::support::binaries;

/// Built once per test binary.
pub(crate) fn shipped() -> &'static Shipped {
    static SHIPPED: OnceLock<Shipped> = OnceLock::new();
    SHIPPED.get_or_init(|| {
        let directory = lab::cache::directory("images").unwrap();
        Shipped::with(&binaries().plugin, &directory).unwrap()
    })
}

const OUT: &str = "/out";

/// A containerd on this machine, which may have any number of CPUs from two on. The plugin's
/// configuration reserves all but one of them, so that a second exclusive CPU cannot be had.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) daemon: Option<DaemonPod>,
}

impl Bench {
    pub(crate) fn new(version: Version) -> Self {
        let host = Host::start(version, binaries()).unwrap_or_else(|error| panic!("{error:#}"));
        let bench = Self { host, daemon: None };
        assert!(bench.online().len() >= 2, "these tests need two CPUs");
        bench
    }

    pub(crate) fn plugin(&self) -> Plugin {
        self.plugin_setup().1
    }

    /// With the setup that can start it again.
    pub(crate) fn plugin_setup(&self) -> (PluginSetup, Plugin) {
        let setup = self.host.node.plugin(&binaries().plugin, &self.config()).unwrap();
        let plugin = Plugin::start(&setup).unwrap_or_else(|error| panic!("{error:#}"));
        (setup, plugin)
    }

    /// Installs the plugin, in place of one that is there. Does not wait for what it does.
    pub(crate) fn install(&mut self, manifests: &Manifests) -> anyhow::Result<()> {
        self.uninstall()?;
        self.daemon = Some(DaemonPod::install(&mut self.host.node, &shipped().image, manifests)?);
        Ok(())
    }

    pub(crate) fn uninstall(&mut self) -> anyhow::Result<()> {
        self.daemon.take().map_or(Ok(()), |mut daemon| daemon.remove(&mut self.host.node))
    }

    pub(crate) fn daemon(&mut self) -> (&mut DaemonPod, &mut Node) {
        (self.daemon.as_mut().unwrap(), &mut self.host.node)
    }

    pub(crate) fn config(&self) -> String {
        let reserved = self.reserved();
        format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\n")
    }

    /// All CPUs of this machine: those of shared containers while none is exclusive.
    pub(crate) fn online(&self) -> CpuSet {
        fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap()
    }

    /// The only CPU that can be exclusive: the last one.
    pub(crate) fn assignable(&self) -> CpuSet {
        CpuSet::of(self.online().iter().last().unwrap()).unwrap()
    }

    /// All others: those of shared containers while the last one is exclusive.
    pub(crate) fn reserved(&self) -> CpuSet {
        self.online() - self.assignable()
    }

    pub(crate) fn run(&mut self, pod: &Pod) -> RunningPod {
        self.host.node.run(pod).unwrap_or_else(|error| panic!("{error:#}"))
    }

    pub(crate) fn allowed(&self, pod: &str) -> CpuSet {
        self.host.node.allowed(pod, "main").unwrap()
    }

    /// Runs the probe as an exclusive container's first process; it also looks at the threads of
    /// `other`.
    pub(crate) fn run_first(&mut self, name: &str, other: u32) -> ProbeReport {
        let reports = self.host.node.reports().unwrap();
        let path = reports.join(name);
        lab::cache::remove(&path).unwrap();
        let container = Container::guaranteed("main", 1000)
            .running(["/bin/probe", "first", &format!("{OUT}/{name}"), &other.to_string()])
            .mounting(reports.display().to_string(), OUT);
        self.run(&Pod::new(name, [container]).with_host_pid());
        ProbeReport::wait_for(&path).unwrap()
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

pub(crate) fn shared(name: &str) -> Pod {
    Pod::new(name, [Container::burstable("main", 100)])
}

/// A pod with one exclusive CPU.
pub(crate) fn exclusive(name: &str) -> Pod {
    Pod::new(name, [Container::guaranteed("main", 1000)])
}

/// Sets the affinity of all threads, as far as their cgroup allows.
pub(crate) fn set_affinity(pid: u32, cpus: CpuSet) {
    let (cpus, pid) = (cpus.to_string(), pid.to_string());
    let done = Command::new("taskset").args(["-apc", &cpus, &pid]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A busy shared container that records when it last ran on each CPU.
pub(crate) struct Spinner {
    pub(crate) pid: u32,
    record: PathBuf,
}

impl Spinner {
    /// Waits until it has run on every CPU.
    pub(crate) fn start(bench: &mut Bench, name: &str) -> Self {
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

    /// CLOCK_MONOTONIC, in nanoseconds; 0 for never.
    pub(crate) fn last_run(&self, cpu: usize) -> u64 {
        let content = fs::read(&self.record).unwrap_or_default();
        let bytes = content.get(cpu * 8..cpu * 8 + 8).and_then(|slice| slice.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }
}

/// The only CPU of an exclusive container.
pub(crate) fn own_cpu(report: &ProbeReport) -> usize {
    assert_eq!(report.own.len(), 1, "the exclusive container may run on {}", report.own);
    report.own.iter().next().unwrap()
}

/// Whether the condition becomes true within a minute.
pub(crate) fn eventually(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
