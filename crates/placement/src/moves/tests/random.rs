//! Plans on random machines with random containers.

use super::super::super::pod_options::{Numa, Smt, Uncore};
use super::super::super::{Hint, PodDemand, place};
use super::*;
use machines::synthetic::Machine;
use proptest::prelude::*;

fn machine() -> impl Strategy<Value = Topology> {
    let shape = (1..3usize, 1..3usize, 1..4usize, 1..4usize, 1..3usize, 0..128usize);
    shape.prop_map(|(sockets, nodes, caches, cores, threads, offline)| {
        let cores = cores * 2 * caches.max(nodes);
        let described = Machine { sockets, nodes, caches, cores, threads, ..Machine::default() };
        // Some machines have an offline CPU.
        let offline = CpuSet::of(offline).unwrap();
        let partly = Machine { offline, ..described.clone() };
        partly.topology().or_else(|_| described.topology()).unwrap()
    })
}

fn settings() -> impl Strategy<Value = PlacementSettings> {
    let policy = prop_oneof![
        3 => Just(TopologyPolicy::None),
        2 => Just(TopologyPolicy::BestEffort),
        1 => Just(TopologyPolicy::Restricted),
        1 => Just(TopologyPolicy::SingleNumaNode),
    ];
    let engine = prop_oneof![Just(EngineKind::Kubelet), Just(EngineKind::Compact)];
    (policy, prop::bool::weighted(0.3), engine).prop_map(|(policy, full_pcpus_only, engine)| {
        let mut settings = PlacementSettings { engine, ..under(policy) };
        settings.options.full_pcpus_only = full_pcpus_only;
        settings
    })
}

fn pod_options() -> impl Strategy<Value = PodOptions> {
    let uncore = prop_oneof![8 => Just(None), 1 => Just(Some(Uncore::Require)), 1 => Just(Some(Uncore::Ignore)), 1 => Just(Some(Uncore::Exclusive))];
    let numa = prop_oneof![12 => Just(None), 1 => Just(Some(Numa::Single))];
    let smt = prop_oneof![8 => Just(None), 1 => Just(Some(Smt::FullCores)), 1 => Just(Some(Smt::Isolate))];
    (uncore, numa, smt).prop_map(|(uncore, numa, smt)| PodOptions {
        uncore,
        numa,
        smt,
        ..PodOptions::NONE
    })
}

/// A container: its size, its pod options, whether it is movable, the start of the window of CPUs where
/// it is placed, whether it stays, and whether its pod has the affinity of its CPUs.
type Arrival = (usize, PodOptions, bool, usize, bool, bool);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let often = || prop::bool::weighted(0.75);
    let one = (1..7usize, pod_options(), often(), 0..64usize, often(), prop::bool::weighted(0.1));
    prop::collection::vec(one, 4..40)
}

/// Places containers one after the other, each in a window of the machine, so that some are placed
/// badly. Then some of them leave.
fn residents(
    machine: &Topology,
    settings: &PlacementSettings,
    arrivals: &[Arrival],
) -> Vec<Resident> {
    let mut free = machine.online();
    let mut all = Vec::new();
    for &(n, pod_options, movable, from, stays, in_pod) in arrivals {
        let mut request = request(settings, pod_options, n);
        let window = free.iter().filter(|cpu| (cpu + 64 - from) % 64 < 24);
        let window: CpuSet = window.flat_map(CpuSet::of).collect();
        if let Ok(placement) = place(machine, &Request { free: window, ..request }) {
            free -= request.footprint(machine, &placement.cpus);
            let nodes = machine.nodes().iter();
            let nodes = nodes.filter(|node| !node.cpus.is_disjoint(&placement.cpus));
            let hint = Hint { nodes: Some(nodes.map(|node| node.id).collect()), preferred: true };
            let pod = PodDemand { cpus: n, held: CpuSet::EMPTY, chosen: Some(hint) };
            request.pod = if in_pod { Some(pod) } else { None };
            all.push((stays, Resident { held: placement.cpus, request, movable }));
        }
    }
    all.into_iter().filter(|(stays, _)| *stays).map(|(_, resident)| resident).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_plan_is_legal_and_gains_what_it_says(
        machine in machine(),
        settings in settings(),
        reserved in 0..3usize,
        arrivals in arrivals(),
        (n, pod_options) in (0..64usize, pod_options()),
        (reuse, promised) in (0..3usize, prop_oneof![5 => Just(0usize), 1 => 1..6usize]),
        limits in (1..4usize, any::<bool>(), 1..4usize),
        most in prop_oneof![3 => Just(MOST_CALLS), 1 => 0..12usize],
    ) {
        let settings = PlacementSettings { reserved: machine.online().lowest(reserved), ..settings };
        let residents = residents(&machine, &settings, &arrivals);
        let held = residents.iter().map(|one| one.request.footprint(&machine, &one.held));
        let mut free = machine.online() - held.collect();
        let (containers, across_numa_nodes, weight_across) = limits;
        let limits = Limits { containers, across_numa_nodes, weight_across };

        let ctx = Ctx { machine: &machine, free, residents: &residents, limits: &limits };
        let mut calls = Calls::at_most(&machine, most);
        if let Some(plan) = departure(&mut calls, &ctx) {
            ctx.check(&plan, None);
            prop_assert_eq!(plan.new_placement, None);
        }

        let reuse = (free - settings.reserved).lowest(reuse);
        free -= reuse;
        // Mostly as many CPUs as are free, or fewer.
        let n = 1 + n % (free - settings.reserved).len().max(1);
        let mut new = request(&settings, pod_options, n);
        new.reuse = Reuse { cpus: reuse, kept: 0 };
        new.promised = promised;
        let ctx = Ctx { free, ..ctx };
        let unmoved = place(&machine, &Request { free, ..new }).ok();
        let mut calls = Calls::at_most(&machine, most);
        let plan = arrival(&mut calls, &ctx, &new, unmoved.as_ref());
        if let Some(plan) = plan {
            ctx.check(&plan, Some((&new, unmoved.as_ref())));
        }
    }
}
