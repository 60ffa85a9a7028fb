//! All scenarios by name. Each is written for any machine and says on which it makes sense.

use super::script::Script;
use super::shape::Shape;
use super::{classes, drift, hotplug, life, options, pods, reconfigure, uninstall, wishes, worked};

#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// What it proves, in one line.
    pub about: &'static str,
    /// None on machines to which it does not apply.
    script: fn(&Shape) -> Option<Script>,
}

impl Scenario {
    #[must_use]
    pub fn script(&self, shape: &Shape) -> Option<Script> {
        (self.script)(shape).map(Script::closed)
    }
}

#[must_use]
pub fn all() -> Vec<Scenario> {
    let scenario = |name, about, script| Scenario { name, about, script };
    vec![
        scenario("machine", "Linux sees the machine as it is described", worked::machine),
        scenario(
            "kep-4800",
            "the KEP's examples: whole containers in an uncore cache, numerically",
            worked::uncore,
        ),
        scenario(
            "kep-4800-kubelet",
            "the same in the kubelet's order, fewest free CPUs first",
            worked::uncore_kubelet,
        ),
        scenario(
            "uncore",
            "prefer-align-cpus-by-uncorecache: what fits into one uncore cache is in one",
            options::uncore,
        ),
        scenario(
            "kep-2625",
            "full-pcpus-only: no core is shared, half cores are refused",
            worked::whole_cores,
        ),
        scenario(
            "kep-2902",
            "distribute-cpus-across-numa: even parts on several NUMA nodes",
            options::distributed,
        ),
        scenario(
            "kep-3327",
            "align-by-socket: what no NUMA node has room for is in one socket",
            options::one_socket,
        ),
        scenario(
            "kep-3545",
            "prefer-closest-numa-nodes: the nearest ones with room",
            options::closest,
        ),
        scenario(
            "kep-4540",
            "strict-cpu-reservation: shared containers keep off reserved CPUs",
            worked::strict,
        ),
        scenario("kep-693", "single-numa-node: in one NUMA node or refused", worked::single_node),
        scenario(
            "wishes",
            "annotations: one uncore cache or none, idle siblings, memory and environment",
            wishes::wishes,
        ),
        scenario("churn", "to full and back to empty: nothing shared, nothing lost", life::churn),
        scenario(
            "together",
            "pods that start at the same time: within seconds exclusive CPUs are exclusive",
            life::together,
        ),
        scenario(
            "init-sidecar",
            "init containers' CPUs are used again, sidecars' are not",
            pods::init_and_sidecar,
        ),
        scenario("pod-budget", "a container with the pod's own resources shares", pods::budget),
        scenario("resize", "in place to more, to fewer, to none", pods::resize),
        scenario(
            "plugin-restart",
            "killed: no container moves, and a restarted one gets the same CPUs",
            life::plugin_restart,
        ),
        scenario("runtime-restart", "containerd killed: no container moves", life::runtime_restart),
        scenario(
            "launched",
            "launched by containerd, which is then killed: no container moves",
            life::launched,
        ),
        scenario("both-restart", "both killed: no container moves", life::both_restart),
        scenario(
            "config-swap",
            "the ConfigMap is tightened, then wrong: followed live, no exclusive container moves",
            reconfigure::live,
        ),
        scenario(
            "config-swap-restart",
            "the ConfigMap changes, the plugin is restarted: no exclusive container moves",
            reconfigure::restart,
        ),
        scenario(
            "reserved-change",
            "an exclusive container's CPUs become reserved: it leaves before others come",
            reconfigure::reserved,
        ),
        scenario(
            "drift",
            "containers' CPUs are changed by hand: within seconds they are as decided",
            drift::by_hand,
        ),
        scenario(
            "lost-update",
            "the runtime loses a change of a container that it is starting: it is made up for",
            drift::lost_update,
        ),
        scenario(
            "quota",
            "no quota for exclusive CPUs: of before the plugin, or set by hand",
            drift::quota,
        ),
        scenario(
            "containers-first",
            "containers that were there before the plugin are sorted out",
            life::containers_first,
        ),
        scenario(
            "kernel",
            "exclusivity kept by the kernel, also while the plugin is dead",
            life::kernel,
        ),
        scenario(
            "mechanisms",
            "what keeps exclusivity changes while everything runs: no container moves",
            life::mechanisms,
        ),
        scenario(
            "classes",
            "classes' groups empty, fill again and are written by systemd: nothing is shared",
            classes::emptied,
        ),
        scenario(
            "first-instruction",
            "among 50 busy pods no thread may be on exclusive CPUs as their container begins",
            classes::first_instruction,
        ),
        scenario(
            "uninstall",
            "removed and released: all cgroups are as before the plugin",
            uninstall::uninstall,
        ),
        scenario("hotplug-shared", "a shared CPU goes offline and comes back", hotplug::shared),
        scenario(
            "hotplug-exclusive",
            "an exclusive CPU goes offline and comes back",
            hotplug::exclusive,
        ),
    ]
}
