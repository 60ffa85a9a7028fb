//! Worked examples.

use super::super::super::machines::{Shape, caches, set};
use super::super::super::wishes::Uncore;
use super::super::super::{Hint, PodDemand};
use super::*;

/// Two sockets of one node, each with two caches of four cores, without SMT.
fn two_nodes() -> Topology {
    Shape { sockets: 2, nodes: 1, uncores: 2, cores: 4, threads: 1 }.build()
}

fn resident(settings: &Settings, held: &str) -> Resident {
    let held = set(held);
    Resident { held, request: request(settings, Wishes::NONE, held.len()), movable: true }
}

fn free(machine: &Topology, residents: &[Resident]) -> CpuSet {
    machine.online() - residents.iter().map(|resident| resident.held).collect()
}

/// A newcomer: the moves as `index: CPUs`, and its own CPUs; checked against the promises of a plan.
fn arrival(
    machine: &Topology,
    residents: &[Resident],
    newcomer: &Request,
    limits: &Limits,
) -> String {
    let free = free(machine, residents);
    let placed = place(machine, &Request { free, ..*newcomer }).ok();
    let plan = for_arrival(machine, free, residents, newcomer, placed.as_ref(), limits);
    let Some(plan) = plan else { return "none".to_owned() };
    Ctx { machine, free, residents, limits }.check(&plan, Some((newcomer, placed.as_ref())));
    let moves = plan.moves.iter().map(|one| format!("{}: {}", one.resident, one.to));
    let all: Vec<String> = moves.chain([format!("new: {}", plan.newcomer.unwrap().cpus)]).collect();
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

fn residents(settings: &Settings, held: &[&str]) -> Vec<Resident> {
    held.iter().map(|held| resident(settings, held)).collect()
}

#[test]
fn badness_counts_what_is_too_much() {
    let machine = two_nodes();
    let of = |wishes, cpus: &str| {
        let request = request(&aligned(), wishes, set(cpus).len());
        badness(&machine, &request, &set(cpus))
    };
    assert_eq!(of(Wishes::NONE, "0-3"), 0);
    assert_eq!(of(Wishes::NONE, "0-1,4-5"), 2);
    assert_eq!(of(Wishes::NONE, "0-1,8-9"), 5);
    assert_eq!(of(Wishes::NONE, "0-4"), 0, "five need two caches");
    assert_eq!(of(Wishes::NONE, "0-3,8"), 3);
    assert_eq!(of(Wishes { uncore: Some(Uncore::Ignore), ..Wishes::NONE }, "0-1,4-5"), 0);
    let near = Request {
        devices: DeviceNodes::on(NodeSet::of(1)),
        ..request(&aligned(), Wishes::NONE, 4)
    };
    assert_eq!(badness(&machine, &near, &set("0-3")), 3);
    assert_eq!(badness(&machine, &near, &set("8-11")), 0);
}

#[test]
fn one_makes_room_for_a_newcomer() {
    let settings = aligned();
    let machine = caches(3, 4);
    let all = residents(&settings, &["0-2", "4-5", "8-9"]);
    let newcomer = request(&settings, Wishes::NONE, 4);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "1: 10-11; new: 4-7");
    // A newcomer that is well placed moves nobody.
    let newcomer = request(&settings, Wishes::NONE, 2);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "none");
}

#[test]
fn displacing_others_is_no_gain() {
    let settings = aligned();
    let machine = caches(2, 4);
    let all = residents(&settings, &["0-2", "4-6"]);
    let newcomer = request(&settings, Wishes::NONE, 2);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "none");
}

#[test]
fn two_make_room_for_a_newcomer() {
    let settings = aligned();
    let machine = caches(4, 4);
    let all = residents(&settings, &["0", "1", "4-6", "8-10", "12-13"]);
    let newcomer = request(&settings, Wishes::NONE, 4);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "4: 2-3; new: 12-15");
    let pinned: Vec<Resident> =
        all.iter().map(|one| Resident { movable: one.held.len() == 1, ..*one }).collect();
    assert_eq!(arrival(&machine, &pinned, &newcomer, &ANYWHERE), "0: 7; 1: 11; new: 0-3");
    let one = Limits { containers: 1, ..ANYWHERE };
    assert_eq!(arrival(&machine, &pinned, &newcomer, &one), "0: 11; new: 0,2-3,7");
    let none: Vec<Resident> = all.iter().map(|one| Resident { movable: false, ..*one }).collect();
    assert_eq!(arrival(&machine, &none, &newcomer, &ANYWHERE), "none");
}

#[test]
fn three_make_room_for_a_newcomer() {
    let settings = Settings { engine: EngineKind::Compact, ..aligned() };
    let machine = caches(4, 6);
    let mut all = residents(&settings, &["0", "1", "2", "6-10", "12-16", "18-22"]);
    all[3..].iter_mut().for_each(|pinned| pinned.movable = false);
    let newcomer = request(&settings, Wishes::NONE, 6);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "0: 11; 1: 17; 2: 23; new: 0-5");
}

#[test]
fn a_container_stays_in_the_affinity_of_its_pod() {
    let settings = aligned();
    let machine = two_nodes();
    let mut all = residents(&settings, &["0-1", "4-7", "8-11", "12-13"]);
    all[3].movable = false;
    let newcomer = request(&settings, Wishes::NONE, 4);
    for (node, expect) in [(0, "none"), (1, "0: 14-15; new: 0-3")] {
        let hint = Hint { nodes: Some(NodeSet::of(node)), preferred: true };
        let pod = PodDemand { cpus: 2, held: CpuSet::EMPTY, chosen: Some(hint) };
        all[0].request.pod = Some(pod);
        assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), expect, "node {node}");
    }
}

#[test]
fn moves_inside_a_node() {
    let settings = aligned();
    let machine = two_nodes();
    // The newcomer has room in node 0 if the first one leaves it.
    let all = residents(&settings, &["0-1", "4-7", "8-11", "12-13"]);
    let newcomer = request(&settings, Wishes::NONE, 4);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "0: 14-15; new: 0-3");
    let inside = Limits { across_numa_nodes: false, ..ANYWHERE };
    assert_eq!(arrival(&machine, &all, &newcomer, &inside), "none");
    let all = residents(&settings, &["0-1", "4-5", "8-11", "12-15"]);
    assert_eq!(arrival(&machine, &all, &newcomer, &inside), "0: 6-7; new: 0-3");
}

#[test]
fn refused_newcomers_are_admitted() {
    let settings = under(TopologyPolicy::SingleNumaNode);
    let machine = two_nodes();
    let all = residents(&settings, &["0-3", "4-6", "8-11"]);
    let newcomer = request(&settings, Wishes::NONE, 6);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "none", "not enough anywhere");
    let all = residents(&settings, &["0-3", "4", "8-10"]);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "2: 5-7; new: 8-13");
    // As many CPUs are promised to other pods as are left over.
    let promised = Request { promised: 2, ..newcomer };
    assert_eq!(arrival(&machine, &all, &promised, &ANYWHERE), "2: 5-7; new: 8-13");
    let promised = Request { promised: 3, ..newcomer };
    assert_eq!(arrival(&machine, &all, &promised, &ANYWHERE), "none");
    let never = request(&settings, Wishes::NONE, 9);
    assert_eq!(arrival(&machine, &residents(&settings, &["0"]), &never, &ANYWHERE), "none");

    let require = Wishes { uncore: Some(Uncore::Require), ..Wishes::NONE };
    let newcomer = request(&aligned(), require, 3);
    let all = residents(&aligned(), &["0-1", "4-5", "8-9", "12-13"]);
    assert_eq!(arrival(&machine, &all, &newcomer, &ANYWHERE), "0: 6-7; new: 0-2");
}

#[test]
fn after_a_departure_the_worst_moves() {
    let settings = aligned();
    let machine = two_nodes();
    let all = residents(&settings, &["0-1,4-5", "2-3,8-9", "12-13"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "1: 8-11");
    let all = residents(&settings, &["0-1,4-5", "2-3", "8-11", "12-15"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 4-7");
    // It only has room if another one moves.
    let all = residents(&settings, &["0-2,12", "4-6", "8-11", "13"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 0-3");
    let all = residents(&settings, &["0-2,12", "4-6", "8-10", "13,15", "3"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 0-3; 4: 7");
    let one = Limits { containers: 1, ..ANYWHERE };
    assert_eq!(departure(&machine, &all, &one), "none");
    let all = residents(&settings, &["0-3", "4-5"]);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "none");
}

/// The steps of moves from one list of CPUs to the other.
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
fn a_chain_starts_at_its_end() {
    let chain = [("0-1", "2-3"), ("2-3", "4-5"), ("4-5", "6-7")];
    assert_eq!(order(&caches(2, 4), &chain, "0-1", &ANYWHERE), "2: 6-7; 1: 4-5; 0: 2-3");
    // Old and new CPUs may overlap.
    let shift = [("0-2", "1-3"), ("3-4", "4-5")];
    assert_eq!(order(&caches(2, 4), &shift, "0", &ANYWHERE), "1: 4-5; 0: 1-3");
}

#[test]
fn a_ring_is_opened_by_the_smallest() {
    let swap = [("0-2", "4-6"), ("4-5", "0-1")];
    assert_eq!(order(&caches(3, 4), &swap, "", &ANYWHERE), "stage 1: 8-9; 0: 4-6; 1: 0-1");
    let ring = [("0-3", "4-7"), ("4-7", "8-11"), ("8-10", "0-2")];
    let expect = "stage 2: 12-14; 1: 8-11; 0: 4-7; 2: 0-2";
    assert_eq!(order(&caches(4, 4), &ring, "", &ANYWHERE), expect);
    assert_eq!(order(&caches(3, 4), &ring, "", &ANYWHERE), "none", "no room to stage it");
    assert_eq!(order(&caches(4, 4), &ring, "12-14", &ANYWHERE), "none", "that is the newcomer's");
    let inside = Limits { across_numa_nodes: false, ..ANYWHERE };
    let swap = [("0-2", "4-6"), ("4-5", "0-1")];
    assert_eq!(order(&two_nodes(), &swap, "3", &ANYWHERE), "stage 1: 8-9; 0: 4-6; 1: 0-1");
    assert_eq!(order(&two_nodes(), &swap, "3", &inside), "none");
}

/// Each has CPUs that the other one needs, and both are larger than a NUMA node. One waits on the
/// scattered free CPUs meanwhile, which a machine with many nodes makes an expensive answer.
#[test]
fn large_containers_change_places_on_a_machine_with_many_nodes() {
    let machine = Shape { sockets: 1, nodes: 8, uncores: 1, cores: 2, threads: 1 }.build();
    let mut all = residents(&aligned(), &["0-2,4", "3,5-7", "9", "11", "13", "15"]);
    all.iter_mut().skip(2).for_each(|resident| resident.movable = false);
    assert_eq!(departure(&machine, &all, &ANYWHERE), "0: 0-3; 1: 4-7");
}
