//! A node on this machine with the plugin and the probe.

use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cpuset::CpuSet;
use lab::containerd::Version;
use lab::daemonset::DaemonPod;
use lab::host::Host;
use lab::images::Shipped;
use lab::instance::Instance as _;
use lab::kubelet::RunningPod;
use lab::manifests::Manifests;
use lab::node::{Node, ProbeReport};
use lab::plugin::Plugin;
use lab::pod::{Container, Pod};

use crate::support::binaries;

/// Built once per test binary.
pub(crate) fn shipped() -> &'static Shipped {
    static SHIPPED: OnceLock<Shipped> = OnceLock::new();
    SHIPPED.get_or_init(|| {
        let directory = lab::cache::directory("images").unwrap();
        Shipped::with(binaries().programs.clone(), &directory).unwrap()
    })
}

/// A containerd on this machine, which must have at least two CPUs. The plugin's configuration
/// reserves all but one, so that only one CPU can be exclusive.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) daemon: Option<DaemonPod>,
}

impl Bench {
    pub(crate) fn new(version: Version) -> Self {
        let host = Host::start(version, &binaries().probe);
        let host = host.unwrap_or_else(|error| panic!("{error:#}"));
        let bench = Self { host, daemon: None };
        assert!(bench.online().len() >= 2, "these tests need two CPUs");
        bench
    }

    pub(crate) fn plugin(&self) -> Plugin {
        let reserved = self.reserved();
        let config = format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\n");
        let setup = self.host.node.plugin(&binaries().programs.plugin, &config).unwrap();
        Plugin::start(&setup).unwrap_or_else(|error| panic!("{error:#}"))
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

    /// All CPUs of this machine: those of shared containers while none is exclusive.
    pub(crate) fn online(&self) -> CpuSet {
        lab::kernel::cpus("online").unwrap()
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

    /// Starts a pod with an exclusive CPU and the probe.
    pub(crate) fn run_first(&mut self, name: &str) -> ProbeReport {
        self.host.node.probe_first(&exclusive(name)).unwrap()
    }

    /// Starts a busy shared container and waits until it has run on every CPU.
    pub(crate) fn run_busy(&mut self, name: &str) {
        self.host.node.run_busy(&shared(name)).unwrap();
        let everywhere = || self.online().iter().all(|cpu| self.last_run(cpu) > 0);
        assert!(eventually(everywhere), "the busy container has not reached every CPU");
    }

    /// When the busy container last ran on a CPU, in CLOCK_MONOTONIC's nanoseconds; 0 for never.
    pub(crate) fn last_run(&self, cpu: usize) -> u64 {
        self.host.node.busy()[0].last_run(cpu)
    }
}

/// Removes the plugin's pod before its runtime.
impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = self.uninstall() {
            eprintln!("the plugin's pod was not removed properly: {error:#}");
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
