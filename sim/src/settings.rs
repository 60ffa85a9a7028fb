//! [`Settings`]: the machine, the runtime and the configuration of a history.

use crate::configuration::Configuration;
use crate::dice::Dice;
use crate::kernel::with_memory;
use cpuset::CpuSet;
use machines::synthetic::{Machine, Numbering};
use nri::{Capabilities, Runtime};
use topology::Topology;

/// The name and version of a runtime, and the NRI version that it sends.
pub type Version = (&'static str, &'static str, &'static str);

pub const CONTAINERD: [Version; 6] = [
    ("containerd", "v1.7.24", ""),
    ("containerd", "v2.1.9", ""),
    ("containerd", "v2.2.0", ""),
    ("containerd", "v2.2.1", ""),
    ("containerd", "v2.3.0", "v0.12.0"),
    ("containerd", "v2.4.0", "v0.12.3"),
];
pub const CRIO: [Version; 5] = [
    ("cri-o", "1.31.0", ""),
    ("cri-o", "1.32.0", ""),
    ("cri-o", "1.34.0", ""),
    ("cri-o", "1.36.3", ""),
    ("cri-o", "1.37.0", "v0.12.1"),
];

/// The faults that a history may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Pods are created and deleted.
    None,
    /// In addition, the plugin and the runtime restart.
    Restarts,
    /// In addition, other programs write, systemd clears, the kernel refuses, and the disk fails.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its offline CPUs are offline when it boots.
    pub machine: Machine,
    pub runtime: Version,
    /// Whether the cgroup driver is systemd; otherwise it is cgroupfs.
    pub systemd: bool,
    /// Whether the plugin may make partitions.
    pub privileged: bool,
    /// The configuration at the start.
    pub configuration: Configuration,
    /// The CPUs of the kubelet's system partition, if it has one; empty for all CPUs.
    pub system_partition: Option<&'static str>,
    /// Whether another NRI plugin sometimes sets CPUs of containers.
    pub other_plugin: bool,
    /// Whether CRI-O, for a workload, and another plugin put the containers of some pods on the reserved CPUs.
    pub workload: bool,
    pub trouble: Trouble,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            machine: Machine { cores: 8, ..Machine::default() },
            runtime: CONTAINERD[1],
            systemd: false,
            privileged: false,
            configuration: Configuration::default(),
            system_partition: None,
            other_plugin: false,
            workload: false,
            trouble: Trouble::All,
        }
    }
}

impl Settings {
    pub fn roll(dice: &mut Dice, machine_dice: &mut Dice) -> Settings {
        let sockets = dice.pick(&[1, 1, 2]);
        let threads = dice.pick(&[1, 2]);
        let machine = Machine {
            sockets,
            nodes: dice.pick(&[1, 1, 2]),
            caches: dice.pick(&[1, 2]),
            cores: dice.pick(&[4, 8, 8, 16]) / sockets.min(threads) * 2 / threads.max(1),
            threads,
            numbering: dice.pick(&[
                Numbering::Adjacent,
                Numbering::Interleaved,
                Numbering::RoundRobin,
            ]),
            efficient: dice.pick(&[0, 0, 0, 2]),
            memory_only: dice.pick(&[0, 0, 0, 2]),
            ..Machine::default()
        };
        let machine = Machine { cores: machine.cores.max(6), ..machine };
        let machine =
            if machine_dice.percent(25) { uneven(machine, machine_dice) } else { machine };
        let is_crio = dice.percent(33);
        let runtime = if is_crio { dice.pick(&CRIO) } else { dice.pick(&CONTAINERD) };
        let trouble = dice.pick(&[Trouble::None, Trouble::Restarts, Trouble::All, Trouble::All]);
        let topology = with_memory(machine.topology().expect("a machine that exists"));
        let privileged = dice.percent(40);
        let rolled = Settings {
            machine,
            runtime,
            systemd: dice.percent(60),
            privileged,
            configuration: Configuration::roll(&topology, privileged, dice),
            system_partition: dice.pick(&[None, None, Some(""), Some("0-1")]),
            other_plugin: trouble == Trouble::All && dice.percent(10),
            workload: is_crio && machine_dice.percent(30),
            trouble,
        };
        let isolated =
            if dice.percent(40) { isolated(topology.online(), dice) } else { CpuSet::EMPTY };
        Settings { machine: Machine { isolated, ..rolled.machine.clone() }, ..rolled }
    }

    /// Makes exclusive containers partitions.
    pub fn make_partitions(&mut self) {
        self.privileged = true;
        self.configuration = self.configuration.with("exclusivity", "kernel");
    }

    /// Settings that are each simpler by one part, to find those that a violation needs.
    pub fn simpler(&self) -> Vec<Settings> {
        let plain = Settings::default();
        let small = Settings { machine: plain.machine.clone(), ..self.clone() };
        let isolated = CpuSet::EMPTY;
        let balanced =
            Settings { machine: Machine { isolated, ..self.machine.clone() }, ..self.clone() };
        let whole = Settings { machine: self.whole_machine(), ..self.clone() };
        let machine_and_runtime = [
            small,
            balanced,
            whole,
            Settings { runtime: plain.runtime, ..self.clone() },
            Settings { systemd: false, ..self.clone() },
            Settings { privileged: false, ..self.clone() },
            Settings { system_partition: None, ..self.clone() },
            Settings { other_plugin: false, ..self.clone() },
            Settings { workload: false, ..self.clone() },
        ];
        let configurations = self.configuration.simpler().into_iter();
        let simpler =
            configurations.map(|configuration| Settings { configuration, ..self.clone() });
        let all = machine_and_runtime.into_iter().chain(simpler);
        all.filter(|simpler| simpler != self && simpler.is_valid()).collect()
    }

    fn is_valid(&self) -> bool {
        self.configuration.settings(&self.topology_at_boot()).is_some()
            && (self.privileged || !self.configuration.needs_partitions())
    }

    /// The machine with all CPUs online.
    pub fn whole_machine(&self) -> Machine {
        Machine { offline: CpuSet::EMPTY, ..self.machine.clone() }
    }

    /// With all CPUs online.
    pub fn topology(&self) -> Topology {
        with_memory(self.whole_machine().topology().expect("a machine that exists"))
    }

    pub fn topology_at_boot(&self) -> Topology {
        with_memory(self.machine.topology().expect("a machine that exists"))
    }

    pub fn is_crio(&self) -> bool {
        self.runtime.0 == "cri-o"
    }

    pub fn capabilities(&self) -> Capabilities {
        let (name, version, nri) = self.runtime;
        let nri_version = nri.to_owned();
        Capabilities::of(&Runtime { name: name.into(), version: version.into(), nri_version })
    }

    /// The runtime's NRI version, if known.
    fn nri(&self) -> Option<(u32, u32)> {
        self.capabilities().nri.map(|nri| (nri.major, nri.minor))
    }

    /// Whether the runtime has a separate call for every event.
    pub fn has_dedicated_calls(&self) -> bool {
        self.nri() >= Some((0, 12))
    }

    pub fn reports_pod_updates(&self) -> bool {
        self.nri() >= Some(if self.is_crio() { (0, 10) } else { (0, 12) })
    }
}

/// Makes the cores and uncore caches of a machine unequal: some threads are offline, and 5 caches have
/// different numbers of cores. With SMT, a core has 2, 4 or 8 threads.
fn uneven(machine: Machine, dice: &mut Dice) -> Machine {
    let threads = if machine.threads == 1 { 1 } else { dice.pick(&[2, 2, 4, 8]) };
    let cores = if threads > 2 { 6 } else { machine.cores };
    let caches = dice.pick(&[machine.caches, 5]);
    let machine = Machine { threads, cores, caches, ..machine };
    let chance = dice.pick(&[0, 5, 20, 50]);
    let topology = machine.topology().expect("a machine that exists");
    let rest = topology.online() - lowest();
    let offline = rest.iter().filter(|_| dice.percent(chance)).flat_map(CpuSet::of).collect();
    Machine { offline, ..machine }
}

/// The CPUs that always stay online, as some configuration reserves them.
pub fn lowest() -> CpuSet {
    (0..4).flat_map(CpuSet::of).collect()
}

/// The CPUs that the kernel was booted to isolate: mostly the last ones, so that few of them are
/// reserved. As under Linux, at least one CPU is not isolated.
fn isolated(online: CpuSet, dice: &mut Dice) -> CpuSet {
    let number = online.len();
    let last = dice.pick(&[2, 4, number / 2, number - 4, number - 1]);
    let any = dice.percent(20);
    let is_isolated = |at: usize, dice: &mut Dice| {
        if any { at > 0 && dice.percent(40) } else { at >= number - last }
    };
    let mut isolated = CpuSet::EMPTY;
    for (at, cpu) in online.iter().enumerate() {
        if is_isolated(at, dice) {
            isolated |= CpuSet::of(cpu).unwrap_or_default();
        }
    }
    isolated
}
