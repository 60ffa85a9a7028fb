//! Whole cores on machines that are not regular: offline threads, cores of 1 to 8 threads, unequal
//! caches and nodes, missing distances. Every answer is whole cores, and a refusal is necessary: on
//! these small machines all sets of cores are tried.
//!
//! Other cases: `PROPTEST_RNG_SEED=$RANDOM PROPTEST_CASES=100000 cargo test --release -p placement --test irregular`

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use cpuset::CpuSet;
use placement::cores::whole_cores;
use placement::pod_options::{Smt, Uncore};
use placement::{
    EngineKind, OddSizes, Options, PlacementSettings, PodOptions, Reason, Request, Running,
    TopologyManager, TopologyPolicy, place, resize,
};
use proptest::prelude::*;
use topology::model::NodeFacts;
use topology::{Cpu, Facts, Topology};

const NODES: usize = 4;

/// A core: its threads, which of them are offline (one bit each; the first stays online), its NUMA
/// node, and its cache within the node.
type CoreShape = (usize, u8, usize, usize);

fn machines() -> impl Strategy<Value = Topology> {
    let threads = prop_oneof![3 => Just(2usize), 2 => Just(1), 1 => Just(4), 1 => Just(8)];
    // Most threads are online.
    let offline = (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| a & b & c);
    let core = (threads, offline, 0..NODES, 0..2usize);
    let distances = prop::option::of(prop::collection::vec(11..40u32, NODES * NODES));
    (prop::collection::vec(core, 1..=10), any::<bool>(), distances)
        .prop_map(|(cores, adjacent, distances)| build(&cores, adjacent, distances.as_deref()))
}

fn build(cores: &[CoreShape], adjacent: bool, distances: Option<&[u32]>) -> Topology {
    let mut numbered: Vec<(usize, usize)> = Vec::new();
    for (core, &(threads, ..)) in cores.iter().enumerate() {
        numbered.extend((0..threads).map(|thread| (core, thread)));
    }
    if !adjacent {
        numbered.sort_by_key(|&(core, thread)| (thread, core));
    }
    let mut first = vec![None; cores.len()];
    let mut cpus = Vec::new();
    for (id, &(core, thread)) in numbered.iter().enumerate() {
        let (_, offline, numa, cache) = cores[core];
        if thread > 0 && offline >> thread & 1 == 1 {
            continue;
        }
        let core = *first[core].get_or_insert(id);
        let uncore = 10 * numa + cache;
        cpus.push(Cpu { id, core, uncore, numa, socket: numa / 2, die: None, kind: None });
    }
    let row = |id: usize| match distances {
        None => Vec::new(),
        Some(rows) => {
            (0..NODES).map(|to| if to == id { 10 } else { rows[id * NODES + to] }).collect()
        }
    };
    let nodes = (0..NODES).map(|id| NodeFacts { id, distances: row(id), memoryless: false });
    Topology::build(Facts { cpus, nodes: nodes.collect(), ..Facts::default() }).unwrap()
}

fn settings() -> impl Strategy<Value = PlacementSettings> {
    let policy = prop::sample::select(TopologyPolicy::ALL.to_vec());
    let engine = prop::sample::select(EngineKind::ALL.to_vec());
    let flags = (any::<bool>(), any::<bool>());
    (policy, engine, 0..3usize, flags).prop_map(|(policy, engine, order, (closest, align))| {
        let is_kubelet = engine == EngineKind::Kubelet;
        let distributes = order == 2 && is_kubelet;
        let options = Options {
            full_pcpus_only: true,
            prefer_align_cpus_by_uncorecache: order == 1,
            distribute_cpus_across_numa: distributes,
            align_by_socket: align && is_kubelet && policy != TopologyPolicy::SingleNumaNode,
            ..Options::default()
        };
        let topology_manager = TopologyManager {
            policy,
            prefer_closest_numa_nodes: closest,
            ..TopologyManager::default()
        };
        PlacementSettings { engine, options, topology_manager, ..PlacementSettings::default() }
    })
}

fn bits(bits: u128, of: CpuSet) -> CpuSet {
    of.iter()
        .enumerate()
        .filter(|(at, _)| bits >> at & 1 == 1)
        .map(|(_, cpu)| CpuSet::of(cpu).unwrap())
        .collect()
}

fn request(
    n: usize,
    free: CpuSet,
    settings: PlacementSettings,
    pod_options: PodOptions,
) -> Request {
    Request::new(n, free, pod_options, &settings)
}

/// All sets of cores of the machine that are entirely in `cpus` and have `n` CPUs together.
fn sums<'a>(machine: &Topology, cpus: &'a CpuSet, n: usize) -> impl Iterator<Item = CpuSet> + 'a {
    let cores = machine.cores().iter().map(|core| core.cpus);
    let cores: Vec<CpuSet> = cores.filter(|core| core.is_subset(cpus)).collect();
    let sets = (0..1u32 << cores.len()).map(move |bits| -> CpuSet {
        cores
            .iter()
            .enumerate()
            .filter(|(at, _)| bits >> at & 1 == 1)
            .map(|(_, core)| *core)
            .collect()
    });
    sets.filter(move |set| set.len() == n)
}

fn nodes(machine: &Topology, cpus: &CpuSet) -> usize {
    machine.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus)).count()
}

fn caches(machine: &Topology, cpus: &CpuSet) -> usize {
    machine.uncores().iter().filter(|cache| !cache.cpus.is_disjoint(cpus)).count()
}

/// The most NUMA nodes that the policy admits for `n` CPUs.
fn width(machine: &Topology, policy: TopologyPolicy, n: usize) -> usize {
    match policy {
        TopologyPolicy::None | TopologyPolicy::BestEffort => NODES,
        TopologyPolicy::SingleNumaNode => 1,
        TopologyPolicy::Restricted => sums(machine, &machine.online(), n)
            .map(|set| nodes(machine, &set))
            .min()
            .unwrap_or(NODES),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn grants_are_whole_cores_and_refusals_are_necessary(
        machine in machines(),
        settings in settings(),
        busy in (any::<u128>(), any::<u128>()),
        reserved in (any::<u128>(), any::<u128>(), any::<u128>()),
        pod_options in (0..3usize, any::<bool>()),
        requests in prop::collection::vec(1..9usize, 1..5),
    ) {
        let reserved = bits(reserved.0 & reserved.1 & reserved.2, machine.online());
        let mut free = machine.online() - bits(busy.0 & busy.1, machine.online());
        // The pod option must do what the node's option does.
        let (mut settings, mut pod_options) = (
            PlacementSettings { reserved, ..settings },
            PodOptions {
                uncore: [None, Some(Uncore::Require), Some(Uncore::Prefer)][pod_options.0],
                smt: pod_options.1.then_some(Smt::FullCores),
                ..PodOptions::NONE
            },
        );
        settings.options.full_pcpus_only = pod_options.smt.is_none();
        if settings.options.distribute_cpus_across_numa {
            pod_options.uncore = None;
        }
        let policy = settings.topology_manager.policy;
        for n in requests {
            let request = request(n, free, settings, pod_options);
            let usable = free - reserved;
            // Nodes of a socket are as good as the fewest nodes.
            let aligns = settings.options.align_by_socket && policy == TopologyPolicy::Restricted;
            let most = if aligns { NODES } else { width(&machine, policy, n) };
            let few_caches = match pod_options.uncore {
                Some(Uncore::Require) => sums(&machine, &(machine.online() - whole_cores(&machine, &reserved)), n)
                    .map(|set| caches(&machine, &set))
                    .min()
                    .unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            match place(&machine, &request) {
                Ok(placement) => {
                    let cpus = placement.cpus;
                    prop_assert_eq!(cpus.len(), n);
                    prop_assert_eq!(whole_cores(&machine, &cpus), cpus);
                    prop_assert!(cpus.is_subset(&usable), "{cpus} of {usable}");
                    prop_assert!(nodes(&machine, &cpus) <= most, "{cpus} of {usable} under {policy:?}: {:?}", placement.hint);
                    prop_assert!(caches(&machine, &cpus) <= few_caches, "{cpus} in too many caches");
                    free -= cpus;
                }
                Err(_) if aligns => {}
                Err(refused) => {
                    let fits = |set: &CpuSet| {
                        nodes(&machine, set) <= most && caches(&machine, set) <= few_caches
                    };
                    let better = sums(&machine, &usable, n).find(fits);
                    prop_assert_eq!(better, None, "{} CPUs of {}: {}", n, usable, refused);
                    if policy == TopologyPolicy::None && pod_options.uncore != Some(Uncore::Require) {
                        prop_assert_eq!(refused.reason, Reason::SmtAlignment);
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_said_to_fit_or_never_to_fit_do_so(
        machine in machines(),
        settings in settings(),
        busy in (any::<u128>(), any::<u128>()),
        reserved in (any::<u128>(), any::<u128>(), any::<u128>()),
        n in 1..30usize,
    ) {
        let reserved = bits(reserved.0 & reserved.1 & reserved.2, machine.online());
        let mut settings = PlacementSettings { reserved, ..settings };
        settings.options.align_by_socket = false;
        let placed = |n: usize, free: CpuSet| place(&machine, &request(n, free, settings, PodOptions::NONE));
        let unit = if machine.cores_are_equal() { machine.threads_per_core() } else { 1 };
        let sizes = OddSizes::of(&machine, &settings);
        for n in (unit..=(machine.online() - reserved).len()).step_by(unit) {
            let listed = sizes.never_fit.iter().any(|range| range.contains(&n));
            prop_assert_eq!(listed, placed(n, machine.online()).is_err(), "{} CPUs: {}", n, sizes);
        }
        let free = machine.online() - bits(busy.0 & busy.1, machine.online());
        if let Err(refused) = placed(n, free)
            && let Some((_, fits)) = refused.message.split_once("would fit now: ")
            && fits != "none"
        {
            for other in fits.split(" or ") {
                let other: usize = other.parse().unwrap();
                prop_assert!(placed(other, free).is_ok(), "{other} does not fit: {refused}");
            }
        }
    }

    #[test]
    fn running_containers_keep_whole_cores(
        machine in machines(),
        settings in settings(),
        busy in (any::<u128>(), any::<u128>()),
        held in any::<u128>(),
        n in 1..13usize,
    ) {
        let held = whole_cores(&machine, &bits(held & busy.0 & busy.1, machine.online()));
        prop_assume!(!held.is_empty() && n != held.len());
        let free = (machine.online() - bits(busy.0, machine.online())) | held;
        let request = request(n, free, settings, PodOptions::NONE);
        let of = if n < held.len() { held } else { free };
        let fits = |set: &CpuSet| set.is_subset(&held) || held.is_subset(set);
        match resize(&machine, &request, &Running::Exclusive(held)) {
            Ok(cpus) => {
                prop_assert_eq!(cpus.len(), n);
                prop_assert_eq!(whole_cores(&machine, &cpus), cpus);
                prop_assert!(cpus.is_subset(&free) && fits(&cpus), "{held} to {cpus}");
            }
            Err(refused) => {
                let better = sums(&machine, &of, n).find(fits);
                prop_assert_eq!(better, None, "{} to {} CPUs: {}", held, n, refused);
            }
        }
    }
}
