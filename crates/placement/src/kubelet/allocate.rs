//! [`allocate()`]: the kubelet's whole decision for one container, and [`affinity`], the part that
//! pod scope needs only once.
//!
//! 1. Find the topology manager's best NUMA affinity ([`super::demand`]); the policy may refuse it.
//! 2. With `full-pcpus-only`, check that whole cores can meet the request.
//! 3. Take as many CPUs as possible inside the affinity. With `align-by-socket` (KEP-3327) all
//!    sockets that the affinity touches count as inside.
//! 4. Take the rest from the whole machine. As in the kubelet, this choice does not consider the
//!    CPUs of step 3.

use super::demand::Demand;
use super::take::{take, take_cores};
use crate::cores::{CoreSizes, only_whole_cores};
use crate::engine::Placement;
use crate::hint::{Hint, NumaNodes};
use crate::rejection::Rejection;
use crate::settings::PlacementSettings;
use crate::sizes::no_sum;
use crate::topology_manager::TopologyPolicy;
use cpuset::{CpuSet, NodeSet};
use topology::Topology;

/// The CPUs that a container can get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Supply {
    /// CPUs that are exclusive to no container. Reserved and offline CPUs may be among them: an
    /// allocation never uses those.
    pub free: CpuSet,
    /// CPUs that init containers of the same pod no longer need.
    pub reusable: CpuSet,
}

impl Supply {
    /// The CPUs that a container can get: those that are online and not reserved and, with
    /// `full-pcpus-only` (KEP-2625), only whole cores. The kubelet counts half-used cores, too, and
    /// splits them.
    pub(super) fn usable(&self, topology: &Topology, settings: &PlacementSettings) -> CpuSet {
        let usable = self.assignable(topology, settings);
        if settings.options.full_pcpus_only { only_whole_cores(topology, &usable) } else { usable }
    }

    fn assignable(&self, topology: &Topology, settings: &PlacementSettings) -> CpuSet {
        let mut assignable = (self.free | self.reusable) & topology.online();
        assignable -= settings.reserved;
        assignable
    }

    /// A request for `n` of these CPUs, by NUMA node. With `full-pcpus-only` a node gives what its
    /// whole cores add up to. Where those of the whole machine do not, all CPUs count, as in the
    /// kubelet: [`allocate()`] then refuses the request for its cores.
    pub(super) fn demand(
        &self,
        topology: &Topology,
        settings: &PlacementSettings,
        n: usize,
    ) -> Demand {
        let align_by_socket = settings.options.align_by_socket;
        let demand = |free: &CpuSet, reusable: &CpuSet| {
            Demand::new(topology, free, reusable, n, align_by_socket)
        };
        if settings.options.full_pcpus_only {
            let usable = self.usable(topology, settings);
            if CoreSizes::of(topology, &usable).add_up_to(n) {
                let demand = demand(&(usable - self.reusable), &(usable & self.reusable));
                return if topology.cores_are_equal() {
                    demand
                } else {
                    demand.in_whole_cores(topology, &usable)
                };
            }
        }
        // `Demand` ignores offline CPUs. Reserved CPUs are never exclusive, so none is among those
        // to reuse, which are separate because the affinity must include their nodes.
        demand(&(self.free - settings.reserved), &self.reusable)
    }
}

/// The NUMA affinity of a request for `n` CPUs, of a container or, in pod scope, of a pod.
///
/// # Errors
/// [`Reason::TopologyAffinity`](crate::Reason::TopologyAffinity) if the policy does not admit it.
pub fn affinity(
    topology: &Topology,
    settings: &PlacementSettings,
    supply: &Supply,
    n: usize,
) -> Result<Hint, Rejection> {
    let manager = &settings.topology_manager;
    if manager.policy == TopologyPolicy::None {
        return Ok(Hint::ANY);
    }
    let demand = supply.demand(topology, settings, n);
    let affinity = demand.best(manager.policy, &NumaNodes::of(topology, manager));
    if affinity.admit { Ok(affinity.hint) } else { Err(Rejection::topology_affinity()) }
}

/// Chooses `n` exclusive CPUs for a container.
///
/// `within` is the affinity of the pod in pod scope; if `None`, the container gets its own.
///
/// # Errors
/// A [`Rejection`] with the kubelet's reason and text: the affinity is not admitted, whole cores
/// cannot meet the request, or too few CPUs are free.
pub fn allocate(
    topology: &Topology,
    settings: &PlacementSettings,
    supply: &Supply,
    n: usize,
    within: Option<Hint>,
) -> Result<Placement, Rejection> {
    // As in the kubelet, the topology manager decides before whole cores are checked, which in pod
    // scope happens for each container. If both refuse, its reason is the one reported.
    let hint = match within {
        Some(hint) => hint,
        None => affinity(topology, settings, supply, n)?,
    };
    let usable = supply.assignable(topology, settings);
    let options = &settings.options;
    let inside = match hint.nodes {
        Some(nodes) => cpus_inside(topology, nodes, options.align_by_socket) & usable,
        None => CpuSet::EMPTY,
    };
    let strategy = options.strategy(topology, hint.nodes.unwrap_or_default().len());
    let outside = options.strategy(topology, 0);
    let cpus = if options.full_pcpus_only {
        let whole = only_whole_cores(topology, &usable);
        let cores = CoreSizes::of(topology, &whole);
        if !cores.add_up_to(n) {
            return Err(no_sum(topology, settings, &usable, n));
        }
        let most = most_inside(topology, &only_whole_cores(topology, &inside), &whole, n);
        let near = take_cores(topology, &inside, most, strategy)?;
        near | take_cores(topology, &(usable - near), n - most, outside)?
    } else {
        let near = take(topology, &inside, n.min(inside.len()), strategy)?;
        near | take(topology, &(usable - near), n - near.len(), outside)?
    };
    // If the hint has nodes, CPUs outside are used only with best-effort, or if other containers
    // took CPUs since `within` was chosen. As in the kubelet, the container then leaves its
    // affinity.
    Ok(Placement { cpus, hint })
}

/// The largest number of CPUs, up to `n`, that whole cores `inside` add up to, where the other
/// cores of `usable` add up to the rest.
fn most_inside(topology: &Topology, inside: &CpuSet, usable: &CpuSet, n: usize) -> usize {
    let most = n.min(inside.len());
    let near = CoreSizes::of(topology, inside);
    if most == n && near.add_up_to(n) {
        return n;
    }
    let far = CoreSizes::of(topology, &(*usable - *inside));
    let fits = |&part: &usize| near.add_up_to(part) && far.add_up_to(n - part);
    (0..=most).rev().find(fits).unwrap_or(0)
}

/// All CPUs of these NUMA nodes or, with `align_by_socket`, of all sockets that these nodes touch.
/// The policy `single-numa-node` excludes that option ([`Options::check_machine`]).
///
/// [`Options::check_machine`]: crate::Options::check_machine
pub(super) fn cpus_inside(topology: &Topology, nodes: NodeSet, align_by_socket: bool) -> CpuSet {
    let chosen = topology.nodes().iter().filter(|node| nodes.contains(node.id));
    let cpus: CpuSet = chosen.map(|node| node.cpus).collect();
    // As in the kubelet, the hint itself is not widened to sockets.
    if !align_by_socket {
        return cpus;
    }
    let touched = topology.sockets().iter().filter(|socket| !socket.cpus.is_disjoint(&cpus));
    touched.map(|socket| socket.cpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Shape, caches, set};
    use crate::{Options, Reason, TopologyManager};

    fn settings(options: Options, policy: TopologyPolicy, reserved: &str) -> PlacementSettings {
        let topology_manager = TopologyManager { policy, ..TopologyManager::default() };
        PlacementSettings {
            options,
            topology_manager,
            reserved: set(reserved),
            ..PlacementSettings::default()
        }
    }

    /// Makes requests one after the other on an empty machine, and compares the CPUs or rejections.
    #[track_caller]
    fn check(topology: &Topology, settings: &PlacementSettings, requests: &[(usize, &str)]) {
        let mut supply = Supply { free: topology.online(), reusable: CpuSet::EMPTY };
        for &(n, expect) in requests {
            match allocate(topology, settings, &supply, n, None) {
                Ok(allocation) => {
                    assert_eq!(allocation.cpus.to_string(), expect, "{n} CPUs");
                    supply.free -= allocation.cpus;
                }
                Err(rejection) => assert_eq!(rejection.to_string(), expect, "{n} CPUs"),
            }
        }
    }

    #[test]
    fn kep_2625_five_cpus_are_refused_as_no_whole_cores() {
        let options = Options { full_pcpus_only: true, ..Options::default() };
        let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        let refused = "SMTAlignmentError: SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2";
        let settings = settings(options, TopologyPolicy::None, "0");
        check(&shape.build(), &settings, &[(5, refused), (4, "1-2,5-6")]);
    }

    #[test]
    fn cores_with_a_reserved_cpu_are_not_given_out_whole() {
        let options = Options { full_pcpus_only: true, ..Options::default() };
        let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        let refused = "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2";
        let settings = settings(options, TopologyPolicy::None, "0");
        check(&shape.build(), &settings, &[(4, "1-2,5-6"), (4, refused), (2, "3,7")]);
    }

    #[test]
    fn kep_3327_two_pods_of_almost_a_socket_stay_in_one_socket_each() {
        // Two requests of the KEP's "4 * CPUs per NUMA node - 8" on two sockets with eight nodes.
        let shape = Shape { sockets: 2, nodes: 4, uncores: 1, cores: 16, threads: 1 };
        let options = Options { align_by_socket: true, ..Options::default() };
        let settings = settings(options, TopologyPolicy::BestEffort, "0-1");
        check(&shape.build(), &settings, &[(56, "2-9,16-63"), (56, "64-119")]);
    }

    #[test]
    fn cpus_come_from_the_affinity_first_and_then_from_anywhere() {
        // Nodes of 4 CPUs, of which requests for 3 leave one CPU each.
        let shape = Shape { sockets: 1, nodes: 4, uncores: 1, cores: 4, threads: 1 };
        let restricted = settings(Options::default(), TopologyPolicy::Restricted, "0");
        let refused = "TopologyAffinityError: Resources cannot be allocated with Topology locality";
        let requests = [(3, "1-3"), (3, "4-6"), (3, "8-10"), (3, "12-14"), (3, refused)];
        check(&shape.build(), &restricted, &requests);
        let best_effort = settings(Options::default(), TopologyPolicy::BestEffort, "0");
        let requests = [(3, "1-3"), (3, "4-6"), (3, "8-10"), (3, "12-14"), (3, "7,11,15")];
        check(&shape.build(), &best_effort, &requests);
    }

    #[test]
    fn r139456_every_node_of_the_affinity_gives_an_equal_share() {
        let shape = Shape { sockets: 1, nodes: 4, uncores: 1, cores: 4, threads: 1 };
        let topology = shape.build();
        let options = Options { distribute_cpus_across_numa: true, ..Options::default() };
        let settings = settings(options, TopologyPolicy::BestEffort, "");
        let supply = Supply { free: topology.online(), reusable: CpuSet::EMPTY };
        let nodes = |count: usize| Hint { nodes: Some((0..count).collect()), preferred: true };
        for (hint, expect) in [(nodes(4), "0-1,4-5,8-9,12-13"), (nodes(3), "0-2,4-6,8-9")] {
            let allocation = allocate(&topology, &settings, &supply, 8, Some(hint)).unwrap();
            assert_eq!(allocation.cpus, set(expect));
        }
    }

    #[test]
    fn single_numa_node_refuses_what_one_node_cannot_hold() {
        let shape = Shape { sockets: 1, nodes: 2, uncores: 1, cores: 4, threads: 1 };
        let refused = "TopologyAffinityError: Resources cannot be allocated with Topology locality";
        // The last request lacks CPUs, which the topology manager notices first.
        let settings = settings(Options::default(), TopologyPolicy::SingleNumaNode, "0");
        check(&shape.build(), &settings, &[(5, refused), (4, "4-7"), (3, "1-3"), (1, refused)]);
    }

    #[test]
    fn too_large_a_request_is_refused_without_a_topology_policy() {
        let refused = "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=8, available=6, which is unexpected";
        let settings = settings(Options::default(), TopologyPolicy::None, "0-1");
        check(&caches(1, 8), &settings, &[(8, refused), (6, "2-7")]);
    }

    #[test]
    fn a_pod_uses_its_init_containers_cpus_again() {
        let settings = settings(Options::default(), TopologyPolicy::None, "0");
        let supply = Supply { free: set("0,4-7"), reusable: set("2-3") };
        let allocation = allocate(&caches(1, 8), &settings, &supply, 3, None).unwrap();
        assert_eq!(allocation.cpus, set("2-4"));
    }

    #[test]
    fn pod_scope_gives_every_container_the_pods_affinity() {
        let shape = Shape { sockets: 1, nodes: 2, uncores: 1, cores: 4, threads: 1 };
        let topology = shape.build();
        let settings = settings(Options::default(), TopologyPolicy::Restricted, "0");
        let mut supply = Supply { free: topology.online(), reusable: CpuSet::EMPTY };
        let pod = affinity(&topology, &settings, &supply, 4).unwrap();
        for expect in ["4-5", "6-7"] {
            let allocation = allocate(&topology, &settings, &supply, 2, Some(pod)).unwrap();
            assert_eq!(allocation.cpus, set(expect));
            supply.free -= allocation.cpus;
        }
        let refused = affinity(&topology, &settings, &supply, 4).unwrap_err();
        assert_eq!(refused.reason, Reason::TopologyAffinity);
    }
}
