//! Single cases.

use super::super::super::machines::{Shape, caches, set};
use super::super::super::pod_options::Uncore;
use super::super::super::{Hint, PodDemand};
use super::*;

/// Two sockets of one node of two caches of four cores, without SMT.
fn two_nodes() -> Topology {
    Shape { sockets: 2, nodes: 1, uncores: 2, cores: 4, threads: 1 }.build()
}

fn resident(settings: &PlacementSettings, held: &str) -> Resident {
    let held = set(held);
    Resident { held, request: request(settings, PodOptions::NONE, held.len()), movable: true }
}

fn free(machine: &Topology, residents: &[Resident]) -> CpuSet {
    machine.online() - residents.iter().map(|resident| resident.held).collect()
}

/// The plan for a new container, as moves `index: CPUs` and its own CPUs. Checks the plan's
/// guarantees.
fn arrival(machine: &Topology, residents: &[Resident], new: &Request, limits: &Limits) -> String {
    let free = free(machine, residents);
    let unmoved = place(machine, &Request { free, ..*new }).ok();
    let plan = for_arrival(machine, free, residents, new, unmoved.as_ref(), limits);
    let Some(plan) = plan else { return "none".to_owned() };
    Ctx { machine, free, residents, limits }.check(&plan, Some((new, unmoved.as_ref())));
    let moves = plan.moves.iter().map(|one| format!("{}: {}", one.resident, one.to));
    let all: Vec<String> =
        moves.chain([format!("new: {}", plan.new_placement.unwrap().cpus)]).collect();
    all.join("; ")
}

fn departure(machine: &Topology, residents: &[Resident], limits: &Limits) -> String {
    let free = free(machine, residents);
    let Some(plan) = for_departure(machine, free, residents, limits) else {
        return "none".to_owned();
    };
    Ctx { machine, free, residents, limits }.check(&plan, None);
    let moves = plan.moves.iter().map(|one| format!("{}: {}", one.resident, one.to));
    moves.collect::<Vec<String>>().join("; ")
}

fn residents(settings: &PlacementSettings, held: &[&str]) -> Vec<Resident> {
    held.iter().map(|held| resident(settings, held)).collect()
}

#[test]
fn badness_counts_excess_nodes_and_caches() {
    let machine = two_nodes();
    let of = |pod_options, cpus: &str| {
        let request = request(&aligned(), pod_options, set(cpus).len());
        badness(&machine, &request, &set(cpus))
    };
    assert_eq!(of(PodOptions::NONE, "0-3"), 0);
    assert_eq!(of(PodOptions::NONE, "0-1,4-5"), 2);
    assert_eq!(of(PodOptions::NONE, "0-1,8-9"), 5);
    assert_eq!(of(PodOptions::NONE, "0-4"), 0, "five need two caches");
    assert_eq!(of(PodOptions::NONE, "0-3,8"), 3);
    assert_eq!(of(PodOptions { uncore: Some(Uncore::Ignore), ..PodOptions::NONE }, "0-1,4-5"), 0);
    let near = Request {
        devices: DeviceNodes::on(NodeSet::of(1)),
        ..request(&aligned(), PodOptions::NONE, 4)
    };
    assert_eq!(badness(&machine, &near, &set("0-3")), 3);
    assert_eq!(badness(&machine, &near, &set("8-11")), 0);
}

#[test]
fn one_container_moves_for_a_new_one() {
    let settings = aligned();
    let machine = caches(3, 4);
    let all = residents(&settings, &["0-2", "4-5", "8-9"]);
    let new = request(&settings, PodOptions::NONE, 4);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "1: 10-11; new: 4-7");
    // A new container that is placed well anyway moves no other.
    let new = request(&settings, PodOptions::NONE, 2);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "none");
}

#[test]
fn a_move_that_places_another_container_worse_is_not_planned() {
    let settings = aligned();
    let machine = caches(2, 4);
    let all = residents(&settings, &["0-2", "4-6"]);
    let new = request(&settings, PodOptions::NONE, 2);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "none");
}

#[test]
fn two_containers_move_for_a_new_one() {
    let settings = aligned();
    let machine = caches(4, 4);
    let all = residents(&settings, &["0", "1", "4-6", "8-10", "12-13"]);
    let new = request(&settings, PodOptions::NONE, 4);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "4: 2-3; new: 12-15");
    let pinned: Vec<Resident> =
        all.iter().map(|one| Resident { movable: one.held.len() == 1, ..*one }).collect();
    assert_eq!(arrival(&machine, &pinned, &new, &ANYWHERE), "0: 7; 1: 11; new: 0-3");
    let one = Limits { containers: 1, ..ANYWHERE };
    assert_eq!(arrival(&machine, &pinned, &new, &one), "0: 11; new: 0,2-3,7");
    let none: Vec<Resident> = all.iter().map(|one| Resident { movable: false, ..*one }).collect();
    assert_eq!(arrival(&machine, &none, &new, &ANYWHERE), "none");
}

#[test]
fn three_containers_move_for_a_new_one() {
    let settings = PlacementSettings { engine: EngineKind::Compact, ..aligned() };
    let machine = caches(4, 6);
    let mut all = residents(&settings, &["0", "1", "2", "6-10", "12-16", "18-22"]);
    all[3..].iter_mut().for_each(|pinned| pinned.movable = false);
    let new = request(&settings, PodOptions::NONE, 6);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "0: 11; 1: 17; 2: 23; new: 0-5");
}

#[test]
fn a_container_stays_in_the_affinity_of_its_pod() {
    let settings = aligned();
    let machine = two_nodes();
    let mut all = residents(&settings, &["0-1", "4-7", "8-11", "12-13"]);
    all[3].movable = false;
    let new = request(&settings, PodOptions::NONE, 4);
    for (node, expect) in [(0, "none"), (1, "0: 14-15; new: 0-3")] {
        let hint = Hint { nodes: Some(NodeSet::of(node)), preferred: true };
        let pod = PodDemand { cpus: 2, held: CpuSet::EMPTY, chosen: Some(hint) };
        all[0].request.pod = Some(pod);
        assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), expect, "node {node}");
    }
}

#[test]
fn moves_stay_inside_a_node_if_configured() {
    let settings = aligned();
    let machine = two_nodes();
    // The new container has room in node 0 if the first one leaves the node.
    let all = residents(&settings, &["0-1", "4-7", "8-11", "12-13"]);
    let new = request(&settings, PodOptions::NONE, 4);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "0: 14-15; new: 0-3");
    let inside = Limits { across_numa_nodes: false, ..ANYWHERE };
    assert_eq!(arrival(&machine, &all, &new, &inside), "none");
    let all = residents(&settings, &["0-1", "4-5", "8-11", "12-15"]);
    assert_eq!(arrival(&machine, &all, &new, &inside), "0: 6-7; new: 0-3");
}

#[test]
fn a_new_container_that_was_refused_is_admitted_after_moves() {
    let settings = under(TopologyPolicy::SingleNumaNode);
    let machine = two_nodes();
    let all = residents(&settings, &["0-3", "4-6", "8-11"]);
    let new = request(&settings, PodOptions::NONE, 6);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "none", "not enough anywhere");
    let all = residents(&settings, &["0-3", "4", "8-10"]);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "2: 5-7; new: 8-13");
    // As many CPUs are promised to other pods as are left over after the plan.
    let promised = Request { promised: 2, ..new };
    assert_eq!(arrival(&machine, &all, &promised, &ANYWHERE), "2: 5-7; new: 8-13");
    let promised = Request { promised: 3, ..new };
    assert_eq!(arrival(&machine, &all, &promised, &ANYWHERE), "none");
    let never = request(&settings, PodOptions::NONE, 9);
    assert_eq!(arrival(&machine, &residents(&settings, &["0"]), &never, &ANYWHERE), "none");

    let require = PodOptions { uncore: Some(Uncore::Require), ..PodOptions::NONE };
    let new = request(&aligned(), require, 3);
    let all = residents(&aligned(), &["0-1", "4-5", "8-9", "12-13"]);
    assert_eq!(arrival(&machine, &all, &new, &ANYWHERE), "0: 6-7; new: 0-2");
}

#[test]
fn after_a_departure_the_worst_placed_container_moves() {
    let settings = aligned();
    let machine = two_nodes();
    let all = residents(&settings, &["0-1,4-5", "2-3,8-9", "12-13"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "1: 8-11");
    let all = residents(&settings, &["0-1,4-5", "2-3", "8-11", "12-15"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 4-7");
    // The worst placed container has room alone, and then only if another one moves.
    let all = residents(&settings, &["0-2,12", "4-6", "8-11", "13"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 0-3");
    let all = residents(&settings, &["0-2,12", "4-6", "8-10", "13,15", "3"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 0-3; 4: 7");
    let one = Limits { containers: 1, ..ANYWHERE };
    assert_eq!(departure(&machine, &all, &one), "none");
    let all = residents(&settings, &["0-3", "4-5"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "none");
}

/// The steps of moves, each from the first to the second list of CPUs.
fn order(machine: &Topology, moves: &[(&str, &str)], taken: &str, limits: &Limits) -> String {
    let all: Vec<Resident> = moves.iter().map(|(from, _)| resident(&aligned(), from)).collect();
    let moves = moves.iter().enumerate();
    let moves: Vec<Move> =
        moves.map(|(resident, (_, to))| Move { resident, to: set(to) }).collect();
    let ctx = Ctx { machine, free: free(machine, &all), residents: &all, limits };
    let mut calls = Calls::at_most(machine, MOST_CALLS);
    let Some(steps) = steps::steps(&mut calls, &ctx, &moves, &set(taken)) else {
        return "none".to_owned();
    };
    let step = |step: &Step| {
        format!("{}{}: {}", if step.staged { "stage " } else { "" }, step.resident, step.to)
    };
    steps.iter().map(step).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_chain_of_moves_starts_at_its_end() {
    let chain = [("0-1", "2-3"), ("2-3", "4-5"), ("4-5", "6-7")];
    assert_eq!(order(&caches(2, 4), &chain, "0-1", &ANYWHERE), "2: 6-7; 1: 4-5; 0: 2-3");
    // Old and new CPUs may overlap.
    let shift = [("0-2", "1-3"), ("3-4", "4-5")];
    assert_eq!(order(&caches(2, 4), &shift, "0", &ANYWHERE), "1: 4-5; 0: 1-3");
}

#[test]
fn the_smallest_container_opens_a_ring() {
    let swap = [("0-2", "4-6"), ("4-5", "0-1")];
    assert_eq!(order(&caches(3, 4), &swap, "", &ANYWHERE), "stage 1: 8-9; 0: 4-6; 1: 0-1");
    let ring = [("0-3", "4-7"), ("4-7", "8-11"), ("8-10", "0-2")];
    let expect = "stage 2: 12-14; 1: 8-11; 0: 4-7; 2: 0-2";
    assert_eq!(order(&caches(4, 4), &ring, "", &ANYWHERE), expect);
    assert_eq!(order(&caches(3, 4), &ring, "", &ANYWHERE), "none", "no room to stage it");
    assert_eq!(
        order(&caches(4, 4), &ring, "12-14", &ANYWHERE),
        "none",
        "these are the new container's"
    );
    let inside = Limits { across_numa_nodes: false, ..ANYWHERE };
    let swap = [("0-2", "4-6"), ("4-5", "0-1")];
    assert_eq!(order(&two_nodes(), &swap, "3", &ANYWHERE), "stage 1: 8-9; 0: 4-6; 1: 0-1");
    assert_eq!(order(&two_nodes(), &swap, "3", &inside), "none");
}

/// Both containers are larger than a NUMA node, and each has CPUs that the other one needs. One
/// waits on scattered free CPUs, for which the engine compares many sets of nodes.
#[test]
fn large_containers_change_places_on_a_machine_with_many_nodes() {
    let machine = Shape { sockets: 1, nodes: 8, uncores: 1, cores: 2, threads: 1 }.build();
    let mut all = residents(&aligned(), &["0-2,4", "3,5-7", "9", "11", "13", "15"]);
    all.iter_mut().skip(2).for_each(|resident| resident.movable = false);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 0-3; 1: 4-7");
}
