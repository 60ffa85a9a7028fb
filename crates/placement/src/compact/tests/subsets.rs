//! Compares the engine with all subsets of CPUs of small machines.

use super::{cpus, request};
use crate::pod_options::{Smt, Uncore};
use crate::{Options, Request, Running, TopologyPolicy, place, resize};
use cpuset::CpuSet;
use proptest::prelude::*;
use topology::model::NodeFacts;
use topology::{Cpu, Facts, Topology};

/// Cores in any node and any cache, so that some caches span nodes, with random distances.
fn machines() -> impl Strategy<Value = Topology> {
    let shapes =
        prop_oneof![(1..=10usize, Just(1usize)), (1..=5usize, Just(2)), (1..=2usize, Just(4))];
    let distances = prop::collection::vec(11..40u32, 16);
    shapes.prop_flat_map(move |(cores, threads)| {
        let places = prop::collection::vec((0..4usize, 0..4usize, any::<bool>()), cores);
        (Just(threads), places, distances.clone())
            .prop_map(|(threads, places, distances)| build(threads, &places, &distances))
    })
}

fn build(threads: usize, places: &[(usize, usize, bool)], distances: &[u32]) -> Topology {
    let cores = places.len();
    let cpus = (0..cores * threads).map(|id| {
        let core = id % cores;
        let (node, cache, inside) = places[core];
        // Most caches are inside a node.
        let uncore = if inside { 10 * (node + 1) + cache % 2 } else { cache };
        Cpu { id, core, uncore, numa: node, socket: node / 2, die: None, kind: None }
    });
    let row = |id: usize| {
        let row = (0..4).map(|to| if to == id { 10 } else { distances[id * 4 + to] });
        NodeFacts { id, distances: row.collect(), memoryless: false }
    };
    let facts =
        Facts { cpus: cpus.collect(), nodes: (0..4).map(row).collect(), ..Facts::default() };
    Topology::build(facts).unwrap()
}

fn policies() -> impl Strategy<Value = TopologyPolicy> {
    prop::sample::select(TopologyPolicy::ALL.to_vec())
}

/// The number of nodes and of sockets, the sum of the nodes' distances, and the number of caches.
type SetCost = (usize, usize, u64, usize);

fn cost(machine: &Topology, cpus: &CpuSet) -> SetCost {
    let nodes = machine.nodes().iter().enumerate();
    let used: Vec<usize> =
        nodes.filter(|(_, node)| !node.cpus.is_disjoint(cpus)).map(|(at, _)| at).collect();
    let mut distance = 0;
    for &one in &used {
        for &other in used.iter().filter(|&&other| other != one) {
            distance += u64::from(machine.nodes()[one].distances[other]);
        }
    }
    let touched = |domains: &[topology::Domain]| {
        domains.iter().filter(|domain| !domain.cpus.is_disjoint(cpus)).count()
    };
    (used.len(), touched(machine.sockets()), distance, touched(machine.uncores()))
}

fn subsets(of: CpuSet, n: usize) -> impl Iterator<Item = CpuSet> {
    let list: Vec<usize> = of.iter().collect();
    let sets = (0..1u64 << list.len()).filter(move |bits| bits.count_ones() as usize == n);
    sets.map(move |bits| {
        let chosen = list.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
        chosen.map(|(_, &cpu)| CpuSet::of(cpu).unwrap()).collect()
    })
}

/// How many of these sizes are needed at least for a sum of `n`.
fn fewest(mut sizes: Vec<usize>, n: usize) -> usize {
    sizes.sort_unstable();
    let mut sum = 0;
    sizes
        .iter()
        .rev()
        .take_while(|size| {
            let more = sum < n;
            sum += **size;
            more
        })
        .count()
}

/// The least cost of all legal answers.
fn best(machine: &Topology, request: &Request) -> Option<SetCost> {
    let n = request.cpus;
    let reserved = request.settings.reserved;
    let mut usable = request.free - reserved;
    let takes_caches = request.pod_options.takes_caches();
    if takes_caches {
        let caches = machine.uncores().iter().map(|cache| cache.cpus);
        usable = caches.filter(|cache| cache.is_subset(&usable)).collect();
    }
    let isolates = request.pod_options.isolates();
    let mut offered = usable;
    if request.settings.options.full_pcpus_only || isolates {
        let cores = machine.cores().iter().map(|core| core.cpus);
        let whole = cores.filter(|core| core.is_subset(&usable));
        offered = whole.map(|core| if isolates { core.lowest(1) } else { core }).collect();
    }
    let threads = if isolates { machine.threads_per_core() } else { 1 };
    let sizes = machine.nodes().iter().map(|node| node.cpus.len() / threads).collect();
    let width = match request.settings.topology_manager.policy {
        TopologyPolicy::None | TopologyPolicy::BestEffort => usize::MAX,
        TopologyPolicy::Restricted => fewest(sizes, n),
        TopologyPolicy::SingleNumaNode => 1,
    };
    let clean = |core: &&topology::Domain| core.cpus.is_disjoint(&reserved);
    let clean: CpuSet = machine.cores().iter().filter(clean).map(|core| core.cpus).collect();
    let size = |cache: &topology::Domain| {
        if request.settings.options.full_pcpus_only || isolates {
            (cache.cpus & clean).len() / threads
        } else {
            (cache.cpus - reserved).len()
        }
    };
    let most = if request.pod_options.uncore == Some(Uncore::Require) {
        fewest(machine.uncores().iter().map(size).collect(), n)
    } else {
        usize::MAX
    };
    let whole = |set: &CpuSet| {
        let mut cores = machine.cores().iter().map(|core| core.cpus & *set);
        let full = |part: CpuSet| part.is_empty() || part.len() == machine.threads_per_core();
        !request.settings.options.full_pcpus_only || isolates || cores.all(full)
    };
    let legal = subsets(offered, n).filter(whole);
    let costs = legal.map(|set| cost(machine, &set));
    let costs = costs.filter(|(nodes, .., caches)| *nodes <= width && *caches <= most);
    if takes_caches {
        return costs
            .min_by_key(|&(nodes, sockets, distance, caches)| (caches, nodes, sockets, distance));
    }
    costs.min()
}

proptest! {
    #[test]
    fn no_subset_is_better(
        machine in machines(),
        free in any::<u64>(),
        reserved in any::<u64>(),
        another in any::<u64>(),
        n in 1..9usize,
        policy in policies(),
        full in any::<bool>(),
        pod_options in (0..4usize, 0..3usize),
    ) {
        let free = cpus(free) & machine.online();
        // One CPU in eight is reserved.
        let reserved = cpus(reserved & another & another.rotate_left(7)) & machine.online();
        let mut request = request(n, free, reserved, policy);
        request.pod_options.uncore = [None, Some(Uncore::Require), Some(Uncore::Prefer), Some(Uncore::Exclusive)][pod_options.0];
        request.pod_options.smt = [None, Some(Smt::Isolate), Some(Smt::FullCores)][pod_options.1];
        request.settings.options = Options { full_pcpus_only: full, ..Options::default() };
        request.settings = request.pod_options.settings(&request.settings);
        let actual = place(&machine, &request);
        let actual = actual.as_ref().map(|placement| cost(&machine, &placement.cpus)).ok();
        // Where requests must fit one node, room for others there comes before caches.
        let counts_room = matches!(policy, TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode);
        let is_checked = request.pod_options.takes_caches() || !counts_room;
        let rank = |(nodes, sockets, distance, caches)| {
            (nodes, sockets, distance, if is_checked { caches } else { 0 })
        };
        prop_assert_eq!(actual.map(rank), best(&machine, &request).map(rank));
    }

    #[test]
    fn growth_is_never_worse_than_another(
        machine in machines(),
        free in any::<u64>(),
        held in any::<u64>(),
        another in any::<u64>(),
        more in 0..6usize,
    ) {
        let held = cpus(held & another) & machine.online();
        let free = (cpus(free) & machine.online()) | held;
        let request = request(held.len() + more, free, CpuSet::EMPTY, TopologyPolicy::Restricted);
        let actual = resize(&machine, &request, &Running::Exclusive(held)).ok();
        let all = subsets(free - held, more);
        let best = all.map(|set| cost(&machine, &(set | held))).min();
        prop_assert!(actual.is_none_or(|actual| held.is_subset(&actual)));
        prop_assert_eq!(actual.map(|actual| cost(&machine, &actual)), best);
    }

    #[test]
    fn shrinking_keeps_the_cheapest_part(
        machine in machines(),
        held in any::<u64>(),
        fewer in 1..6usize,
    ) {
        let held = cpus(held) & machine.online();
        let n = held.len().saturating_sub(fewer);
        let request = request(n, held, CpuSet::EMPTY, TopologyPolicy::None);
        let actual = resize(&machine, &request, &Running::Exclusive(held)).unwrap();
        prop_assert!(actual.is_subset(&held) && actual.len() == n);
        let all = subsets(held, n);
        prop_assert_eq!(Some(cost(&machine, &actual)), all.map(|set| cost(&machine, &set)).min());
    }
}
