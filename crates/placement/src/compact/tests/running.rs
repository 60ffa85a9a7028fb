//! Containers that run: they grow and shrink in the same way with either engine.

use super::request;
use crate::machines::{Shape, set};
use crate::{DeviceNodes, EngineKind, Running, TopologyPolicy, nearest_that_fit, resize};
use cpuset::{CpuSet, NodeSet};
use machines::synthetic::{Machine, Numbering};
use proptest::prelude::*;
use topology::Topology;

/// Two sockets of two nodes of two caches of four cores of two threads: 64 CPUs, siblings adjacent.
fn machine() -> Topology {
    let machine =
        Machine { sockets: 2, nodes: 2, caches: 4, cores: 16, threads: 2, ..Machine::default() };
    machine.topology().unwrap()
}

/// The CPUs of a container with `held` that asks for `n`, with `free` beside it, or the refusal.
fn resized(machine: &Topology, held: &str, free: &str, n: usize, full: bool) -> String {
    let held = set(held);
    let answers = EngineKind::ALL.map(|engine| {
        let mut request =
            request(n, set(free) | held, CpuSet::EMPTY, TopologyPolicy::SingleNumaNode);
        request.settings.engine = engine;
        request.settings.options.full_pcpus_only = full;
        resize(machine, &request, &Running::Exclusive(held))
            .map_or_else(|refused| refused.to_string(), |cpus| cpus.to_string())
    });
    assert_eq!(answers[0], answers[1], "the engines differ");
    answers[0].clone()
}

#[track_caller]
fn grows(held: &str, free: &str, more: usize, expect: &str) {
    let n = set(held).len() + more;
    assert_eq!(resized(&machine(), held, free, n, false), expect, "{held} by {more} of {free}");
}

#[track_caller]
fn shrinks(held: &str, n: usize, expect: &str) {
    assert_eq!(resized(&machine(), held, "", n, false), expect, "{held} to {n}");
}

#[test]
fn growth_takes_siblings_then_the_same_cache_then_the_same_node_then_the_nearest() {
    grows("2", "0-1,3-63", 1, "2-3");
    grows("2-3", "0-1,4-63", 2, "0-3");
    grows("2-3", "8-63", 2, "2-3,8-9");
    // No CPU is free in node 0 and the other node of its socket.
    grows("2-3", "32-63", 2, "2-3,32-33");
    grows("2-3", "16-63", 2, "2-3,16-17");
    // A half-used core before a whole one.
    grows("0-1", "3,6-7", 1, "0-1,3");
}

#[test]
fn growth_enters_the_fewest_caches() {
    // Six CPUs are missing. One of the other caches of the node has them, not two.
    let shape = Shape { sockets: 1, nodes: 1, uncores: 4, cores: 8, threads: 1 };
    assert_eq!(resized(&shape.build(), "0-5", "8-10,16-21,24-26", 12, false), "0-5,16-21");
}

#[test]
fn growth_takes_a_whole_core_rather_than_the_halves_of_two() {
    // Cores 0-7 with siblings 8-15. Of cores 1 and 2 one thread is free.
    let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 8, threads: 2 };
    assert_eq!(resized(&shape.build(), "0,8", "1-3,11", 4, false), "0,3,8,11");
    assert_eq!(resized(&shape.build(), "0,8", "1-3,11", 4, true), "0,3,8,11");
}

#[test]
fn shrinking_keeps_the_cpus_that_are_closest_together() {
    shrinks("0-7", 4, "0-3");
    shrinks("0-7,8-9", 8, "0-7");
    shrinks("6-7,8-15", 8, "8-15");
    shrinks("0-1,16-21", 4, "16-19");
    shrinks("0-2", 2, "0-1");
    shrinks("0-3", 3, "0-2");
}

#[test]
fn a_refused_growth_names_what_is_held() {
    assert_eq!(
        resized(&machine(), "0-3", "4-5", 8, false),
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=8, \
         available=6, which is unexpected (8 requested, 4 held)"
    );
    assert_eq!(
        resized(&machine(), "0-3", "4-5", 5, true),
        "SMTAlignmentError: SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2 (5 requested, 4 held)"
    );
}

#[test]
fn larger_numbers_fit_where_devices_need_more_nodes() {
    // Eight nodes of four CPUs; devices on five of them, so restricted admits what needs five.
    let machine = Shape { sockets: 2, nodes: 4, uncores: 1, cores: 4, threads: 1 }.build();
    for engine in EngineKind::ALL {
        let nearest = |n| {
            let mut request = request(n, set(""), set("0"), TopologyPolicy::Restricted);
            request.settings.engine = engine;
            let nodes: NodeSet = (0..5).collect();
            request.devices = DeviceNodes::on(nodes);
            nearest_that_fit(&machine, &request)
        };
        assert_eq!(nearest(5), Some(vec![17]), "{engine:?}");
        assert_eq!(nearest(18), None, "{engine:?}");
        assert_eq!(nearest(25), Some(vec![19]), "{engine:?}");
    }
}

proptest! {
    #[test]
    fn growth_keeps_all_held_cpus_and_takes_only_free_ones(
        held in prop::collection::btree_set(0..48usize, 1..20),
        free in prop::collection::btree_set(0..48usize, 0..40),
        more in 1..30usize,
        engine in prop::sample::select(EngineKind::ALL.to_vec()),
    ) {
        let machine = Machine {
            sockets: 2,
            nodes: 2,
            caches: 2,
            cores: 12,
            threads: 2,
            numbering: Numbering::Interleaved,
            ..Machine::default()
        };
        let topology = machine.topology().unwrap();
        let collect = |cpus: &std::collections::BTreeSet<usize>| -> CpuSet {
            cpus.iter().map(|&cpu| CpuSet::of(cpu).unwrap()).collect()
        };
        let held = collect(&held);
        let free = collect(&free) | held;
        let sized = |n: usize| {
            let mut request = request(n, free, CpuSet::EMPTY, TopologyPolicy::None);
            request.settings.engine = engine;
            resize(&topology, &request, &Running::Exclusive(held))
        };
        match sized(held.len() + more) {
            Ok(grown) => {
                prop_assert!(held.is_subset(&grown) && grown.is_subset(&free));
                prop_assert_eq!(grown.len(), held.len() + more);
            }
            Err(_) => prop_assert!((free - held).len() < more),
        }
        let fewer = more.min(held.len());
        let shrunk = sized(fewer).unwrap();
        prop_assert!(shrunk.is_subset(&held));
        prop_assert_eq!(shrunk.len(), fewer);
    }
}
