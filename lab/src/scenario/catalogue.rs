//! All scenarios by name. Each defines the machines to which it applies.

use super::script::Script;
use super::shape::Shape;
use super::{classes, drift, expose, foreign, hotplug, isolated, life, machine, uninstall};

#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// What it proves, in one line.
    pub about: &'static str,
    /// None on machines to which it does not apply.
    script: fn(&Shape) -> Option<Script>,
}

impl Scenario {
    pub fn script(&self, shape: &Shape) -> Option<Script> {
        // All others expect shared containers on every CPU that is exclusive to none.
        let expects_isolated = ["machine", isolated::NAME].contains(&self.name);
        if !shape.isolated().is_empty() && !expects_isolated {
            return None;
        }
        (self.script)(shape).map(Script::closed)
    }

    /// Whether a full run plays it on this machine. What does not depend on the topology runs on the
    /// machines with one uncore cache, which boot fastest.
    pub fn is_in_full_run(&self, shape: &Shape) -> bool {
        let depends_on_topology = ["machine", "churn"].contains(&self.name);
        depends_on_topology || shape.caches() == 1
    }
}

pub fn all() -> Vec<Scenario> {
    let scenario = |name, about, script| Scenario { name, about, script };
    vec![
        scenario("machine", "Linux reports the machine as described", machine::machine),
        scenario(
            isolated::NAME,
            "isolcpus=: never shared, and exclusive to containers that wish for them",
            isolated::isolated_cpus,
        ),
        scenario(
            "churn",
            "fill and empty the node: no exclusive CPU is shared or lost",
            life::churn,
        ),
        scenario(
            "ordinary",
            "starts, resizes, deletions, daemon-reloads and restarts: no warning in the log",
            life::ordinary,
        ),
        scenario(
            "plugin-restart",
            "plugin killed: no container moves, and a restarted one gets the same CPUs",
            life::plugin_restart,
        ),
        scenario("runtime-restart", "containerd killed: no container moves", life::runtime_restart),
        scenario(
            "launched",
            "plugin launched by containerd, which is killed: no container moves",
            life::launched,
        ),
        scenario(
            "drift",
            "containers' CPUs written by another program: repaired within seconds",
            drift::by_hand,
        ),
        scenario(
            "nested-cgroups",
            "cgroups that containers make within their own are no drift",
            drift::nested,
        ),
        scenario("kernel", "exclusivity: kernel, also while the plugin is dead", life::kernel),
        scenario(
            "mechanisms",
            "the exclusivity mechanism changes: no container moves",
            life::mechanisms,
        ),
        scenario(
            "classes",
            "class cgroups empty, refill and are rewritten by systemd: no exclusive CPU is shared",
            classes::emptied,
        ),
        scenario(
            "bounds",
            "values that other programs, a hand or a release write into a class's cgroup",
            classes::bounds,
        ),
        scenario(
            "new-pods",
            "no process of a new pod runs on exclusive CPUs, not even its pause container",
            classes::new_pods,
        ),
        scenario(
            "first-instruction",
            "as a container starts among 50 busy pods, no thread may run on its CPUs",
            classes::first_instruction,
        ),
        scenario(
            "uninstall",
            "plugin removed and released: all cgroups are as before it",
            uninstall::uninstall,
        ),
        scenario(
            "hotplug-exclusive",
            "an exclusive CPU goes offline and online",
            hotplug::exclusive,
        ),
        scenario(
            "exposed-file",
            "a program that ends on a CPU which its file does not name survives resizes",
            expose::resizes,
        ),
        scenario(
            "exposed-notice",
            "the same program has notice of CPUs that a resize takes away, through restarts",
            expose::notice,
        ),
        scenario(
            "foreign-partitions",
            "cpuset partitions of other programs, before the plugin and next to containers",
            foreign::partitions,
        ),
    ]
}
