//! Devices and memory as further resources of the topology manager (KEP-693): a container's CPUs
//! should be on the NUMA nodes of its devices, and where its memory is.
//!
//! The devices are already chosen, so their hints are exactly their nodes and, as second best, all
//! nodes. Of the many sets that could hold the CPUs, only two can then be best: the nodes of the
//! devices, and the narrowest and nearest set that includes them all. The search finds both without
//! listing the others, and [`merge()`] decides between them as between any hints. The affinity is
//! preferred only if the CPUs need as many nodes as the devices are on, and have room there.

use super::allocate::{self, Supply, cpus_inside};
use super::merge::{ResourceHints, merge};
use crate::devices::DeviceNodes;
use crate::engine::Placement;
use crate::hint::{Hint, NumaNodes};
use crate::memory_manager::MemoryOffer;
use crate::rejection::Rejection;
use crate::request::Request;
use crate::settings::PlacementSettings;
use crate::topology_manager::TopologyPolicy;
use cpuset::NodeSet;
use topology::Topology;

/// What a request asks for beside CPUs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    /// The NUMA nodes of its devices, which have CPUs.
    devices: NodeSet,
    memory: Option<MemoryOffer>,
}

impl Others {
    pub(super) fn of(request: &Request) -> Others {
        Others { devices: request.devices.all(), memory: request.memory }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.memory.is_none()
    }

    /// A list for each type of memory, and one for all devices.
    fn hints(self, numa: &NumaNodes) -> impl Iterator<Item = ResourceHints> {
        let memory = self.memory.into_iter().flat_map(|offer| {
            let hints: Vec<Hint> = offer.hints().collect();
            vec![Some(hints); offer.kinds()]
        });
        let second_best = Hint { nodes: Some(numa.all), preferred: false };
        let devices = vec![Hint { nodes: Some(self.devices), preferred: true }, second_best];
        let devices = if self.devices.is_empty() { None } else { Some(Some(devices)) };
        memory.chain(devices)
    }
}

/// As [`affinity`](allocate::affinity), for a request that asks for more than CPUs.
pub(super) fn affinity(
    topology: &Topology,
    settings: &PlacementSettings,
    supply: &Supply,
    n: usize,
    others: Others,
) -> Result<Hint, Rejection> {
    let manager = &settings.topology_manager;
    let Others { devices, memory } = others;
    if others.is_empty() || manager.policy == TopologyPolicy::None {
        return allocate::affinity(topology, settings, supply, n);
    }
    let demand = supply.demand(topology, settings, n);
    let numa = NumaNodes::of(topology, manager);
    let cpus = match &memory {
        // Sets that have the memory follow no order, so all are listed: with the few nodes on which
        // memory is offered, there are at most 255.
        Some(_) => demand.enumerate(),
        None => {
            let including = demand.clone().including(devices);
            let including = including.best(TopologyPolicy::BestEffort, &numa).hint.nodes;
            let sets = [Some(devices), including].into_iter().flatten();
            let mut cpus: Vec<Hint> = sets.filter_map(|set| demand.of(set)).collect();
            cpus.dedup();
            cpus
        }
    };
    let resources = [Some(cpus)].into_iter().chain(others.hints(&numa)).collect();
    admitted(manager.policy, &numa, resources)
}

/// The NUMA affinity of a container without exclusive CPUs: of its devices and its memory.
///
/// # Errors
/// [`Reason::TopologyAffinity`](crate::Reason::TopologyAffinity) if the policy does not admit it.
pub(crate) fn affinity_without_cpus(
    topology: &Topology,
    settings: &PlacementSettings,
    devices: DeviceNodes,
    memory: Option<MemoryOffer>,
) -> Result<Hint, Rejection> {
    let manager = &settings.topology_manager;
    let others = Others { devices: devices.all(), memory };
    let numa = NumaNodes::of(topology, manager);
    // Shared CPUs have no preference.
    let resources = [None].into_iter().chain(others.hints(&numa)).collect();
    admitted(manager.policy, &numa, resources)
}

fn admitted(
    policy: TopologyPolicy,
    numa: &NumaNodes,
    resources: Vec<ResourceHints>,
) -> Result<Hint, Rejection> {
    let affinity = merge(policy, numa, &resources);
    if affinity.admit { Ok(affinity.hint) } else { Err(Rejection::topology_affinity()) }
}

/// As [`allocate()`](allocate::allocate()) within the affinity. Where the nodes with most of the
/// devices have room for all CPUs, these come from there: the hint is as good with any of its CPUs
/// (kubernetes/kubernetes#136431).
pub(super) fn allocate(
    topology: &Topology,
    settings: &PlacementSettings,
    supply: &Supply,
    n: usize,
    hint: Hint,
    devices: DeviceNodes,
) -> Result<Placement, Rejection> {
    if !settings.options.distribute_cpus_across_numa
        && let (Some(nodes), Some(preferred)) = (hint.nodes, devices.preferred())
    {
        let nodes = nodes.intersection(preferred);
        let free = cpus_inside(topology, nodes, false) & supply.usable(topology, settings);
        if n <= free.len() {
            let narrow = Hint { nodes: Some(nodes), ..hint };
            let chosen = allocate::allocate(topology, settings, supply, n, Some(narrow))?;
            return Ok(Placement { hint, ..chosen });
        }
    }
    allocate::allocate(topology, settings, supply, n, Some(hint))
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::*;
    use crate::TopologyManager;
    use crate::machines::{Shape, set};
    use crate::memory_manager::{
        Amounts, Capacity, MemoryKind, NodeMemory, NodeMemoryClaim, Room, Sharing,
    };
    use cpuset::CpuSet;
    use proptest::prelude::*;

    fn nodes(numbers: &[usize]) -> NodeSet {
        numbers.iter().copied().collect()
    }

    fn settings(policy: TopologyPolicy) -> PlacementSettings {
        let topology_manager = TopologyManager { policy, ..TopologyManager::default() };
        PlacementSettings { topology_manager, ..PlacementSettings::default() }
    }

    fn on(devices: NodeSet) -> Others {
        Others { devices, memory: None }
    }

    /// Compares the affinity on four nodes of 4 CPUs, with `*` if it is preferred, or the refusal.
    #[track_caller]
    fn check(policy: TopologyPolicy, free: &str, n: usize, devices: &[usize], expect: &str) {
        let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 };
        let supply = Supply { free: set(free), reusable: CpuSet::EMPTY };
        let actual = affinity(&shape.build(), &settings(policy), &supply, n, on(nodes(devices)));
        let actual = match actual {
            Ok(Hint { nodes: Some(nodes), preferred }) => {
                format!("{nodes}{}", if preferred { "*" } else { "" })
            }
            Ok(Hint { nodes: None, .. }) => "any".to_owned(),
            Err(rejection) => rejection.reason.to_string(),
        };
        assert_eq!(actual, expect, "{n} CPUs of {free}, devices on {devices:?}, {policy:?}");
    }

    #[test]
    fn cpus_go_where_the_devices_are() {
        use TopologyPolicy::{BestEffort, None, Restricted, SingleNumaNode};
        let refused = "TopologyAffinityError";
        for policy in [BestEffort, Restricted, SingleNumaNode] {
            check(policy, "0-15", 2, &[], "0*");
            check(policy, "0-15", 2, &[2], "2*");
            check(policy, "0-11,12", 1, &[3], "3*");
        }
        check(None, "0-15", 2, &[2], "any");
        // The node of the devices has too little room.
        check(BestEffort, "0-8", 2, &[2], "0,2");
        check(Restricted, "0-8", 2, &[2], refused);
        check(SingleNumaNode, "0-8", 2, &[2], refused);
        // Devices on two nodes.
        check(BestEffort, "0-15", 2, &[1, 3], "1,3");
        check(Restricted, "0-15", 2, &[1, 3], refused);
        check(Restricted, "0-15", 6, &[1, 3], "1,3*");
        // The request exceeds the node of the devices. The kubelet refuses that, too.
        check(BestEffort, "0-15", 6, &[2], "0,2");
        check(Restricted, "0-15", 6, &[2], refused);
    }

    /// Each node has 10 bytes of memory, of which claims take a part.
    #[test]
    fn cpus_go_where_the_memory_is() {
        use TopologyPolicy::{BestEffort, None, Restricted, SingleNumaNode};
        let machine = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 }.build();
        let memory = |bytes| Amounts::from([(MemoryKind::Memory, bytes)]);
        let node =
            |id| NodeMemory { id, total: 10, huge_pages: Amounts::new(), reserved: Amounts::new() };
        let capacity = Capacity::new((0..4).map(node)).unwrap();
        let chosen = |policy, free: &str, n, devices: &[usize], taken: [u64; 4], bytes| {
            let claims: Vec<NodeMemoryClaim> = taken
                .iter()
                .enumerate()
                .filter(|(_, bytes)| **bytes > 0)
                .map(|(id, bytes)| NodeMemoryClaim {
                    nodes: NodeSet::of(id),
                    amounts: memory(*bytes),
                })
                .collect();
            let room = Room::new(&capacity, &claims);
            let offer = MemoryOffer::new(&room, &memory(bytes), &[], Sharing::SameSet);
            let others = Others { devices: nodes(devices), memory: offer };
            let supply = Supply { free: set(free), reusable: CpuSet::EMPTY };
            match affinity(&machine, &settings(policy), &supply, n, others) {
                Ok(hint) => hint.nodes.map_or("any".to_owned(), |nodes| nodes.to_string()),
                Err(rejection) => rejection.reason.to_string(),
            }
        };
        let refused = "TopologyAffinityError";
        for policy in [BestEffort, Restricted, SingleNumaNode] {
            assert_eq!(chosen(policy, "0-15", 2, &[], [0; 4], 8), "0");
            assert_eq!(chosen(policy, "0-15", 2, &[], [5, 5, 0, 0], 8), "2");
            assert_eq!(chosen(policy, "0-15", 2, &[3], [5, 5, 0, 0], 8), "3");
        }
        assert_eq!(chosen(None, "0-15", 2, &[], [5, 5, 0, 0], 8), "any");
        // The only node with the memory has too few CPUs.
        assert_eq!(chosen(BestEffort, "0-8", 2, &[], [5, 5, 0, 5], 8), "2");
        assert_eq!(chosen(Restricted, "0-8", 2, &[], [5, 5, 0, 5], 8), refused);
        // Memory needs two nodes, CPUs one.
        assert_eq!(chosen(Restricted, "0-15", 2, &[], [0; 4], 18), refused);
        assert_eq!(chosen(Restricted, "0-15", 6, &[], [0; 4], 18), "0,1");
    }

    #[test]
    fn of_equally_good_nodes_the_one_with_more_devices_is_taken() {
        let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 };
        let machine = shape.build();
        let settings = settings(TopologyPolicy::BestEffort);
        let chosen = |free: &str, n, most: &[usize]| {
            let supply = Supply { free: set(free), reusable: CpuSet::EMPTY };
            let devices = DeviceNodes::mostly(nodes(&[1, 3]), nodes(most));
            let hint = affinity(&machine, &settings, &supply, n, on(devices.all())).unwrap();
            assert_eq!(hint.nodes, Some(nodes(&[1, 3])));
            allocate(&machine, &settings, &supply, n, hint, devices).unwrap().cpus.to_string()
        };
        assert_eq!(chosen("0-15", 2, &[1]), "4-5");
        assert_eq!(chosen("0-15", 2, &[3]), "12-13");
        assert_eq!(chosen("0-15", 2, &[1, 3]), "4-5");
        // Node 3 has no room for all CPUs: the affinity alone decides.
        assert_eq!(chosen("0-12", 2, &[3]), "4,12");
    }

    proptest! {
        #[test]
        fn two_hints_of_cpus_decide_like_all_hints(
            free in prop::collection::btree_set(0..16usize, 0..16),
            n in 1..10usize,
            devices in prop::collection::btree_set(0..4usize, 1..3),
            policy in prop_oneof![
                Just(TopologyPolicy::BestEffort),
                Just(TopologyPolicy::Restricted),
                Just(TopologyPolicy::SingleNumaNode),
            ],
        ) {
            let topology = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 }.build();
            let free: CpuSet = free.into_iter().map(|cpu| CpuSet::of(cpu).unwrap()).collect();
            prop_assume!(free.len() >= n);
            let supply = Supply { free, reusable: CpuSet::EMPTY };
            let devices: NodeSet = devices.into_iter().collect();
            let settings = settings(policy);
            let short = affinity(&topology, &settings, &supply, n, on(devices));
            let all = Demand::new(&topology, &free, &CpuSet::EMPTY, n, false).enumerate();
            let supersets = (1..16usize).map(|bits| (0..4).filter(|at| bits >> at & 1 == 1).collect());
            let supersets = supersets.filter(|set: &NodeSet| devices.is_subset(*set));
            let theirs: ResourceHints = Some(
                supersets.map(|set| Hint { nodes: Some(set), preferred: set == devices }).collect(),
            );
            let numa = NumaNodes::of(&topology, &settings.topology_manager);
            let long = merge(policy, &numa, &[Some(all), theirs]);
            prop_assert_eq!(short.is_ok(), long.admit);
            if long.hint.preferred {
                prop_assert_eq!(short.ok(), Some(long.hint));
            }
        }
    }
}
