//! [`Settings`]: the machine, the runtime and the configuration that a history plays on.

use crate::dice::Dice;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::edge::{Capabilities, Runtime};
use nri_cpu_manager::topology::synthetic::{Machine, Numbering};

/// Name, version, and the NRI version that it reports.
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

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Pods come and go.
    None,
    /// The plugin and the runtime end and come back.
    Restarts,
    /// Other programs write, systemd clears, the kernel refuses, the disk fails, too.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub machine: Machine,
    pub runtime: Version,
    /// The cgroup driver.
    pub systemd: bool,
    pub exclusivity: &'static str,
    pub reserved: usize,
    pub options: Vec<&'static str>,
    pub topology_policy: &'static str,
    pub pod_scope: bool,
    pub compact: bool,
    pub rebalance: bool,
    pub expose: &'static str,
    /// Another NRI plugin sets CPUs of containers now and then.
    pub other_plugin: bool,
    pub trouble: Trouble,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            machine: Machine { cores: 8, ..Machine::default() },
            runtime: CONTAINERD[1],
            systemd: false,
            exclusivity: "groups",
            reserved: 1,
            options: Vec::new(),
            topology_policy: "none",
            pod_scope: false,
            compact: false,
            rebalance: false,
            expose: "false",
            other_plugin: false,
            trouble: Trouble::All,
        }
    }
}

impl Settings {
    pub fn roll(dice: &mut Dice) -> Settings {
        let sockets = dice.pick(&[1, 1, 2]);
        let threads = dice.pick(&[1, 2]);
        let machine = Machine {
            sockets,
            nodes: dice.pick(&[1, 1, 2]),
            caches: dice.pick(&[1, 2]),
            cores: dice.pick(&[4, 8, 8, 16]) / sockets.min(threads) * 2 / threads.max(1),
            threads,
            numbering: dice.pick(&[Numbering::Adjacent, Numbering::Interleaved]),
            ..Machine::default()
        };
        let machine = Machine { cores: machine.cores.max(6), ..machine };
        let compact = dice.percent(25);
        let mut options = Vec::new();
        if dice.percent(20) && threads > 1 {
            options.push("full-pcpus-only");
        }
        if dice.percent(20) {
            options.push("strict-cpu-reservation");
        }
        if dice.percent(20) {
            options.push("prefer-align-cpus-by-uncorecache");
        } else if dice.percent(15) && !compact {
            options.push("distribute-cpus-across-numa");
        }
        let is_crio = dice.percent(33);
        let runtime = if is_crio { dice.pick(&CRIO) } else { dice.pick(&CONTAINERD) };
        let trouble = dice.pick(&[Trouble::None, Trouble::Restarts, Trouble::All, Trouble::All]);
        Settings {
            machine,
            runtime,
            systemd: dice.percent(60),
            exclusivity: dice.pick(&["auto", "groups", "groups", "runtime"]),
            reserved: dice.pick(&[1, 2, 2, 4]),
            options,
            topology_policy: dice.pick(&["none", "none", "best-effort", "restricted"]),
            pod_scope: dice.percent(30),
            compact,
            rebalance: dice.percent(25),
            expose: dice.pick(&["false", "false", "true", "file"]),
            other_plugin: trouble == Trouble::All && dice.percent(10),
            trouble,
        }
    }

    /// Settings with one thing less each, to find out which of them a violation needs.
    pub fn simpler(&self) -> Vec<Settings> {
        let plain = Settings::default();
        let small = Settings { machine: plain.machine.clone(), ..self.clone() };
        let all = [
            small,
            Settings { runtime: plain.runtime, ..self.clone() },
            Settings { systemd: false, ..self.clone() },
            Settings { exclusivity: "groups", ..self.clone() },
            Settings { reserved: 1, ..self.clone() },
            Settings { options: Vec::new(), ..self.clone() },
            Settings { topology_policy: "none", pod_scope: false, ..self.clone() },
            Settings { compact: false, ..self.clone() },
            Settings { rebalance: false, ..self.clone() },
            Settings { expose: "false", ..self.clone() },
            Settings { other_plugin: false, ..self.clone() },
        ];
        all.into_iter().filter(|simpler| simpler != self).collect()
    }

    pub fn reserved_cpus(&self) -> CpuSet {
        (0..self.reserved).flat_map(CpuSet::of).collect()
    }

    pub fn is_strict_reservation(&self) -> bool {
        self.options.contains(&"strict-cpu-reservation")
    }

    pub fn is_crio(&self) -> bool {
        self.runtime.0 == "cri-o"
    }

    /// Whether cgroups keep others off exclusive CPUs; the runtime's updates do otherwise.
    pub fn by_groups(&self) -> bool {
        self.exclusivity != "runtime"
    }

    pub fn capabilities(&self) -> Capabilities {
        let (name, version, nri) = self.runtime;
        let nri_version = nri.to_owned();
        Capabilities::of(&Runtime { name: name.into(), version: version.into(), nri_version })
    }

    /// Its version of NRI, if it reports one.
    fn nri(&self) -> Option<(u32, u32)> {
        self.capabilities().nri.map(|nri| (nri.major, nri.minor))
    }

    /// A call of its own for every event.
    pub fn has_dedicated_calls(&self) -> bool {
        self.nri() >= Some((0, 12))
    }

    pub fn reports_pod_updates(&self) -> bool {
        self.nri() >= Some(if self.is_crio() { (0, 10) } else { (0, 12) })
    }

    pub fn config(&self) -> String {
        let options = self.options.iter().map(|option| format!("{option}: \"true\""));
        let options = options.collect::<Vec<_>>().join(", ");
        let scope = if self.pod_scope { "pod" } else { "container" };
        let mut text = format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"{}\"\nkubeletStateDir: \"\"\n\
             exclusivity: {}\ncpuManagerPolicyOptions: {{{options}}}\n\
             topologyManagerPolicy: {}\ntopologyManagerScope: {scope}\nexposeCpus: {}\n",
            self.reserved_cpus(),
            self.exclusivity,
            self.topology_policy,
            self.expose,
        );
        if self.compact {
            text.push_str("placement: compact\n");
        }
        if self.rebalance {
            text.push_str("rebalance: {movesPer100Starts: 100, minStay: 1s}\n");
        }
        text
    }
}
