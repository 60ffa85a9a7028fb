//! Scenarios on any machine. Each defines the machines to which it applies.

mod classes;
mod drift;
mod expose;
mod first_day;
mod isolated;
mod life;
mod machine;
mod memory;
mod partitions;
mod pod_pool;
mod privileges;
mod quiet;
pub mod shape;
mod uninstall;

use anyhow::{Context, Result};

use crate::invariants::Invariants;
use crate::pod::{Container, Pod};
use crate::testbed::Testbed;
use shape::Shape;

pub(crate) use classes::DISTRUSTED;

#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// What it proves, in one line.
    pub about: &'static str,
    applies: fn(&Shape) -> bool,
    play: fn(&mut Testbed<'_>, &Shape) -> Result<()>,
}

impl Scenario {
    pub fn named(name: &str) -> Result<Self> {
        let known = || ALL.map(|scenario| scenario.name).join(", ");
        let scenario = ALL.into_iter().find(|scenario| scenario.name == name);
        scenario
            .with_context(|| format!("unknown scenario {name:?}: use one of {}, or all", known()))
    }

    pub fn applies(&self, shape: &Shape) -> bool {
        // All others expect shared containers on every CPU that is exclusive to none.
        let expects_isolated = ["machine", isolated::NAME].contains(&self.name);
        (shape.isolated.is_empty() || expects_isolated) && (self.applies)(shape)
    }

    /// Whether a full run plays it on this machine. What does not depend on the topology runs on the
    /// machines with one uncore cache, which boot fastest.
    pub fn is_in_full_run(&self, shape: &Shape) -> bool {
        if shape.devices {
            // All others run on the same machine without devices.
            return ["machine", quiet::NAME].contains(&self.name);
        }
        let depends_on_topology = ["machine", "churn", "memory"].contains(&self.name);
        self.applies(shape) && (depends_on_topology || shape.caches == 1)
    }

    /// On an empty node, which must be possible to empty again.
    pub fn play(&self, testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
        testbed.keep(Invariants {
            reserved: shape.reserved,
            isolated: shape.isolated,
            ..Invariants::default()
        });
        (self.play)(testbed, shape)?;
        testbed.state_was_written()?;
        testbed.begin("empty the node");
        testbed.clear()?;
        testbed.kernel_is_sound()
    }
}

pub const ALL: [Scenario; 23] = [
    Scenario {
        name: "machine",
        about: "Linux reports the machine as described",
        applies: |_| true,
        play: machine::machine,
    },
    Scenario {
        name: isolated::NAME,
        about: "isolcpus=: never shared, and exclusive to containers that ask for them",
        applies: |shape| shape.isolated.len() > 1 && shape.room() > shape.isolated.len() + 2,
        play: isolated::isolated_cpus,
    },
    Scenario {
        name: "churn",
        about: "fill and empty the node: no exclusive CPU is shared or lost",
        applies: |_| true,
        play: life::churn,
    },
    Scenario {
        name: "ordinary",
        about: "starts, resizes, deletions, daemon-reloads and restarts: no warning in the log",
        applies: |shape| shape.room() > 2,
        play: life::ordinary,
    },
    Scenario {
        name: "restarts",
        about: "plugin and runtime killed: no container moves, and a restarted one gets the same CPUs",
        applies: |shape| shape.room() > 2,
        play: life::restarts,
    },
    Scenario {
        name: "away",
        about: "pods created while the plugin is away: pinned together when it is back",
        applies: |shape| shape.room() > 2,
        play: life::created_while_away,
    },
    Scenario {
        name: "launched",
        about: "plugin launched by containerd, which is killed: no container moves",
        applies: |shape| shape.room() > 2,
        play: life::launched,
    },
    Scenario {
        name: "drift",
        about: "containers' CPUs written by another program: repaired within seconds",
        applies: |shape| shape.room() > 2,
        play: drift::drift,
    },
    Scenario {
        name: "mechanisms",
        about: "the exclusivity mechanism changes: no container moves",
        applies: |shape| shape.room() > 2,
        play: life::mechanisms,
    },
    Scenario {
        name: "classes",
        about: "class cgroups empty, refill and are rewritten by systemd: no exclusive CPU is shared",
        applies: |_| true,
        play: classes::emptied,
    },
    Scenario {
        name: "idle-class",
        about: "nothing exclusive, a class written by another program and made again: it stays reliable",
        applies: |shape| shape.exclusivity != "runtime",
        play: classes::idle,
    },
    Scenario {
        name: "new-pods",
        about: "no process of a new pod runs on exclusive CPUs, not even its pause container",
        applies: |shape| shape.exclusivity != "runtime",
        play: classes::new_pods,
    },
    Scenario {
        name: "first-instruction",
        about: "as a container starts among 50 busy pods, no thread may run on its CPUs",
        applies: |_| true,
        play: classes::first_instruction,
    },
    Scenario {
        name: "first-day",
        about: "observe, enforce, a change, uninstall: each as it was previewed",
        applies: |shape| shape.room() > 2,
        play: first_day::first_day,
    },
    Scenario {
        name: "uninstall",
        about: "plugin removed, its changes reverted: all cgroups are as before it",
        // It takes long and does not depend on the topology.
        applies: |shape| shape.room() > 2 && shape.caches == 1,
        play: uninstall::uninstall,
    },
    Scenario {
        name: "exposed-file",
        about: "a program that ends on a CPU which its file does not name survives resizes",
        applies: |shape| shape.room() > 4,
        play: expose::resizes,
    },
    Scenario {
        name: "memory",
        about: "memory and huge pages: on the nodes that the plugin chose, and pods wait for them",
        applies: memory::applies,
        play: memory::memory,
    },
    Scenario {
        name: "pod-pool",
        about: "podLevelResources: own-pool: containers of a pod share CPUs that no other pod has",
        // The pod's four CPUs, two pods with one, and the shared pod.
        applies: |shape| shape.room() > 6,
        play: pod_pool::pod_pool,
    },
    Scenario {
        name: "partitions",
        about: "exclusivity: kernel: every process leaves exclusive CPUs, also while the plugin is dead",
        applies: is_for_partitions,
        play: partitions::partitions,
    },
    Scenario {
        name: "partition-writes",
        about: "partitions that other programs write or the configuration changes",
        applies: is_for_partitions,
        play: partitions::writes,
    },
    Scenario {
        name: "foreign-partitions",
        about: "cpuset partitions of other programs: containers leave their CPUs to them",
        applies: is_for_partitions,
        play: partitions::foreign,
    },
    Scenario {
        name: "privileges",
        about: "kernel-exclusivity without one of its privileges: another mechanism, and why",
        applies: is_for_partitions,
        play: privileges::privileges,
    },
    Scenario {
        name: quiet::NAME,
        about: "interrupts: away: devices, irqbalance and crashes do not disturb exclusive CPUs",
        applies: |shape| shape.devices,
        play: quiet::quiet,
    },
];

/// Their CPU numbers are those of a machine with eight CPUs without SMT in one uncore cache.
fn is_for_partitions(shape: &Shape) -> bool {
    shape.caches == 1 && shape.room() == 7 && ["", "kernel"].contains(&shape.exclusivity.as_str())
}

pub fn guaranteed(name: &str, cpus: usize) -> Container {
    Container::guaranteed(name, milli(cpus))
}

pub fn milli(cpus: usize) -> i64 {
    i64::try_from(cpus).unwrap_or(i64::MAX / 1000) * 1000
}

pub fn exclusive(name: &str, cpus: usize) -> Pod {
    Pod::new(name, [guaranteed("main", cpus)])
}

/// A Burstable pod with one container.
pub fn shared(name: &str) -> Pod {
    Pod::new(name, [Container::burstable("main", 500)])
}

/// An exclusivity mechanism; CPU 0 is reserved.
pub fn exclusivity(mode: &str) -> String {
    format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nexclusivity: {mode}\n")
}
