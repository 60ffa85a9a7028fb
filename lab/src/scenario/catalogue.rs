//! All scenarios by name. Each defines the machines to which it applies.

use super::script::Script;
use super::shape::Shape;
use super::{
    classes, drift, expose, foreign, hotplug, isolated, life, mixed, options, podresources, pods,
    rebalance, reconfigure, reserved, uninstall, wishes, worked,
};

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
}

/// Scenarios that take too long for `all`: they run by name only.
pub fn long() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "exposed-file-long",
            about: "exposed-file with 1000 resizes and 20 moves",
            script: expose::long,
        },
        Scenario {
            name: "ordinary-long",
            about: "ordinary, for half an hour",
            script: life::ordinary_long,
        },
    ]
}

pub fn all() -> Vec<Scenario> {
    let scenario = |name, about, script| Scenario { name, about, script };
    vec![
        scenario("machine", "Linux reports the machine as described", worked::machine),
        scenario("kep-4800", "KEP-4800's examples in numerical order", worked::uncore),
        scenario(
            "kep-4800-kubelet",
            "the same in the kubelet's order: fewest free CPUs first",
            worked::uncore_kubelet,
        ),
        scenario(
            "uncore",
            "prefer-align-cpus-by-uncorecache: containers that fit into one uncore cache are in one",
            options::uncore,
        ),
        scenario(
            "kep-2625",
            "full-pcpus-only: no core is shared, partial cores are refused",
            worked::whole_cores,
        ),
        scenario(
            "kep-2902",
            "distribute-cpus-across-numa: equal parts on several NUMA nodes",
            options::distributed,
        ),
        scenario(
            "kep-3327",
            "align-by-socket: containers larger than any NUMA node's free CPUs are in one socket",
            options::one_socket,
        ),
        scenario(
            "kep-3545",
            "prefer-closest-numa-nodes: the closest nodes with room",
            options::closest,
        ),
        scenario(
            "kep-4540",
            "strict-cpu-reservation: shared containers stay off reserved CPUs",
            worked::strict,
        ),
        scenario("kep-693", "single-numa-node: one NUMA node, or refused", worked::single_node),
        scenario(
            "wishes",
            "annotations: required uncore cache, idle siblings, memory nodes, environment",
            wishes::wishes,
        ),
        scenario(
            "uncore-exclusive",
            "annotation uncore: exclusive: whole uncore caches, whose rest stays idle",
            wishes::uncore_exclusive,
        ),
        scenario(
            isolated::NAME,
            "isolcpus=: never shared, and exclusive to containers that wish for them",
            isolated::isolated_cpus,
        ),
        scenario(
            "mixed",
            "annotation cpus: exclusive+shared: exclusive CPUs and the shared pool",
            mixed::mixed,
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
            "together",
            "pods start at the same time: CPUs are exclusive within seconds",
            life::together,
        ),
        scenario(
            "init-sidecar",
            "CPUs of init containers are reused, those of sidecars are not",
            pods::init_and_sidecar,
        ),
        scenario(
            "pod-budget",
            "a container that gets its pod's resources takes nothing from others",
            pods::budget,
        ),
        scenario("resize", "in-place resize to more, fewer and no exclusive CPUs", pods::resize),
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
            "both-restart",
            "plugin and containerd killed: no container moves",
            life::both_restart,
        ),
        scenario(
            "config-swap",
            "stricter, then invalid ConfigMap: followed without restart, no exclusive container moves",
            reconfigure::live,
        ),
        scenario(
            "config-swap-restart",
            "ConfigMap changed, plugin restarted: no exclusive container moves",
            reconfigure::restart,
        ),
        scenario(
            "reserved-change",
            "CPUs of an exclusive container become reserved: it leaves before others come",
            reconfigure::reserved,
        ),
        scenario(
            "reserved-namespaces",
            "containers of system namespaces run on the reserved CPUs only, and follow the ConfigMap",
            reserved::namespaces,
        ),
        scenario(
            "rebalance",
            "a busy container moves for a starting one, another one after a pod's end: no CPU is shared",
            rebalance::aligned,
        ),
        scenario("rebalance-compact", "the same with placement: compact", rebalance::compact),
        scenario(
            "rebalance-ring",
            "two running containers change places for a third one",
            rebalance::ring,
        ),
        scenario(
            "rebalance-stays",
            "unmovable, self-bound and young containers do not move, nor any with mode: suggest",
            rebalance::stays,
        ),
        scenario(
            "rebalance-young",
            "a container moves when it has stayed for minStay, and not before",
            rebalance::young,
        ),
        scenario(
            "drift",
            "containers' CPUs written by another program: repaired within seconds",
            drift::by_hand,
        ),
        scenario(
            "nested-cgroups",
            "cgroups that containers make within their own are no drift, and in nobody's way",
            drift::nested,
        ),
        scenario(
            "lost-update",
            "the runtime loses an update of a container that it is starting: repaired",
            drift::lost_update,
        ),
        scenario(
            "quota",
            "a quota from before the plugin, or written by another program: lifted",
            drift::quota,
        ),
        scenario(
            "containers-first",
            "containers that started before the plugin are pinned",
            life::containers_first,
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
        scenario("hotplug-shared", "a shared CPU goes offline and online", hotplug::shared),
        scenario(
            "hotplug-exclusive",
            "an exclusive CPU goes offline and online",
            hotplug::exclusive,
        ),
        scenario(
            "exposed-file",
            "a program that ends on a CPU which its file does not name survives resizes and moves",
            expose::short,
        ),
        scenario(
            "exposed-notice",
            "the same program has notice of CPUs that a resize takes away, through restarts",
            expose::notice,
        ),
        scenario(
            "podresources",
            "gRPC's own library gets the CPUs of status from the podresources socket",
            podresources::answers,
        ),
        scenario(
            "foreign-partitions",
            "cpuset partitions of other programs, before the plugin and beside containers",
            foreign::partitions,
        ),
    ]
}
