//! The CPUs that each pod option leads to, and the rejections.

use super::*;
use crate::caches::whole_caches;
use crate::cores::whole_cores;
use crate::machines::{Shape, caches, set};
use crate::pod_options::Numa;
use crate::{DeviceNodes, Options, PlacementSettings, PodOptions, TopologyManager, TopologyPolicy};
use cpuset::NodeSet;
use proptest::prelude::*;

const PREFER: PodOptions = PodOptions { uncore: Some(Uncore::Prefer), ..PodOptions::NONE };
const REQUIRE: PodOptions = PodOptions { uncore: Some(Uncore::Require), ..PodOptions::NONE };
const IGNORE: PodOptions = PodOptions { uncore: Some(Uncore::Ignore), ..PodOptions::NONE };
const EXCLUSIVE: PodOptions = PodOptions { uncore: Some(Uncore::Exclusive), ..PodOptions::NONE };
const SINGLE: PodOptions = PodOptions { numa: Some(Numa::Single), ..PodOptions::NONE };
const CLOSEST: PodOptions = PodOptions { numa: Some(Numa::Closest), ..PodOptions::NONE };
const SPREAD: PodOptions = PodOptions { numa: Some(Numa::Spread), ..PodOptions::NONE };
const FULL_CORES: PodOptions = PodOptions { smt: Some(Smt::FullCores), ..PodOptions::NONE };
const ISOLATE: PodOptions = PodOptions { smt: Some(Smt::Isolate), ..PodOptions::NONE };

fn reserving(reserved: &str) -> PlacementSettings {
    PlacementSettings { reserved: set(reserved), ..PlacementSettings::default() }
}

fn request(node: &PlacementSettings, free: CpuSet, pod_options: PodOptions, n: usize) -> Request {
    Request::new(n, free, pod_options, node)
}

fn answer(topology: &Topology, request: &Request) -> Result<Placement, Rejection> {
    allocate(topology, request, &Supply { free: request.free, ..Supply::default() }, None)
}

/// Makes one request for CPUs of `free`, and compares the CPUs or the rejection.
#[track_caller]
fn check(
    topology: &Topology,
    node: &PlacementSettings,
    free: &str,
    pod_options: PodOptions,
    n: usize,
    expect: &str,
) {
    check_near(topology, node, free, (pod_options, NodeSet::EMPTY), n, expect);
}

/// As [`check`], with devices on these NUMA nodes.
#[track_caller]
fn check_near(
    topology: &Topology,
    node: &PlacementSettings,
    free: &str,
    (pod_options, devices): (PodOptions, NodeSet),
    n: usize,
    expect: &str,
) {
    let devices = DeviceNodes::on(devices);
    let request = Request { devices, ..request(node, set(free), pod_options, n) };
    let answer = match answer(topology, &request) {
        Ok(placement) => placement.cpus.to_string(),
        Err(rejection) => rejection.to_string(),
    };
    assert_eq!(answer, expect, "{n} CPUs of {free}, {pod_options:?}, devices on {devices:?}");
}

#[test]
fn uncore_pod_options_choose_caches() {
    // Four caches of 8; 0-1 are reserved.
    let machine = caches(4, 8);
    let node = reserving("0-1");
    let free = "2-3,8-11,16-23";
    check(&machine, &node, free, PodOptions::NONE, 6, "2-3,8-11");
    check(&machine, &node, free, PREFER, 6, "16-21");
    check(&machine, &node, free, REQUIRE, 6, "16-21");
    check(&machine, &node, free, REQUIRE, 4, "8-11");
    check(&machine, &node, free, REQUIRE, 2, "2-3");
    // Two caches are the fewest possible, even if one of them is not entirely free.
    check(&machine, &node, free, REQUIRE, 12, "8-11,16-23");
    let aligned = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
    let aligned = PlacementSettings { options: aligned, ..node };
    check(&machine, &aligned, free, PodOptions::NONE, 6, "16-21");
    check(&machine, &aligned, free, IGNORE, 6, "2-3,8-11");
}

#[test]
fn uncore_require_is_refused_and_prefer_is_admitted_without_room() {
    let machine = caches(4, 8);
    let node = reserving("0-1");
    let refused = "UncoreAlignmentError: Uncore Alignment Error: requested 6 cpus must be in 1 uncore cache, as few as can be \
                   on this machine; at most 4 are free in so few";
    check(&machine, &node, "2-5,8-11,16-19", PREFER, 6, "2-5,8-9");
    check(&machine, &node, "2-5,8-11,16-19", REQUIRE, 6, refused);
    let refused = "UncoreAlignmentError: Uncore Alignment Error: requested 14 cpus must be in 2 uncore caches, as few as \
                   can be on this machine; at most 12 are free in so few";
    check(&machine, &node, "2-7,8-15,24-27", REQUIRE, 14, "2-15");
    check(&machine, &node, "2-3,8-15,24-27", REQUIRE, 14, refused);
}

#[test]
fn uncore_exclusive_gives_whole_caches_or_refuses() {
    // Four caches of 8; 0-1 are reserved, so no container can have the first cache.
    let machine = caches(4, 8);
    let node = reserving("0-1");
    check(&machine, &node, "0-31", EXCLUSIVE, 3, "8-10");
    check(&machine, &node, "2-8,10-31", EXCLUSIVE, 8, "16-23");
    check(&machine, &node, "2-31", EXCLUSIVE, 12, "8-15,24-27");
    let refused = "UncoreAlignmentError: Uncore Alignment Error: whole uncore caches required: requested \
                   9 cpus, free whole caches = 1, usable cpus in them = 8, 1 cache has reserved cpus and cannot be \
                   taken; request fewer cpus, or wait until other containers leave a cache";
    check(&machine, &node, "2-8,10-16,18-31", EXCLUSIVE, 9, refused);
    let refused = "UncoreAlignmentError: Uncore Alignment Error: whole uncore caches required: requested \
                   1 cpus, free whole caches = 0, usable cpus in them = 0, 1 cache has reserved cpus and cannot be \
                   taken; request fewer cpus, or wait until other containers leave a cache";
    check(&machine, &node, "2-8,10-16,18-30", EXCLUSIVE, 1, refused);
}

#[test]
fn whole_caches_are_chosen_where_the_topology_manager_admits_them() {
    // Two nodes of three caches of two cores of two threads: siblings are 12 apart.
    let shape = Shape { sockets: 1, nodes: 2, uncores: 3, cores: 2, threads: 2 };
    let machine = shape.build();
    let node = reserving("");
    // Node 0 has one entirely free cache, node 1 has two.
    let free = "0-3,5-10,12-15,17-22";
    check(&machine, &node, free, EXCLUSIVE, 4, "0-1,12-13");
    let single = PodOptions { numa: Some(Numa::Single), ..EXCLUSIVE };
    check(&machine, &node, free, single, 8, "0-3,12-15");
    let free = "0-1,5-10,12-13,17-22";
    check(&machine, &node, free, single, 8, "6-9,18-21");
    check(&machine, &node, free, EXCLUSIVE, 12, "0-1,6-9,12-13,18-21");
    let refused = "TopologyAffinityError: Resources cannot be allocated with Topology locality";
    check(&machine, &node, free, single, 12, refused);
    // One CPU of each core.
    let isolate = PodOptions { smt: Some(Smt::Isolate), ..EXCLUSIVE };
    check(&machine, &node, free, isolate, 3, "6-8");
    let refused = "UncoreAlignmentError: Uncore Alignment Error: whole uncore caches required: requested \
                   7 cpus, free whole caches = 3, usable cpus in them = 6; request fewer cpus, or wait until other \
                   containers leave a cache";
    check(&machine, &node, free, isolate, 7, refused);
    let cores = PodOptions { smt: Some(Smt::FullCores), ..EXCLUSIVE };
    check(&machine, &node, "0-1,5-10,12-13,17-22", cores, 2, "0,12");
    let refused =
        "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2";
    check(&machine, &node, free, cores, 3, refused);
}

#[test]
fn a_container_with_whole_caches_grows_in_its_own_first_and_leaves_the_last_first() {
    use crate::{Running, resize};
    let machine = caches(4, 4);
    let node = reserving("0");
    let to = |free: &str, held: &str, n| {
        let request = request(&node, set(free), EXCLUSIVE, n);
        match resize(&machine, &request, &Running::Exclusive(set(held))) {
            Ok(cpus) => cpus.to_string(),
            Err(rejection) => rejection.to_string(),
        }
    };
    assert_eq!(to("1-15", "4-5", 4), "4-7");
    assert_eq!(to("1-8,10-15", "4-5", 6), "4-7,12-13");
    let refused = "UncoreAlignmentError: Uncore Alignment Error: whole uncore caches required: requested \
                   5 cpus, free whole caches = 1, usable cpus in them = 4, 1 cache has reserved cpus and cannot be \
                   taken; request fewer cpus, or wait until other containers leave a cache (5 requested, 2 held)";
    assert_eq!(to("1-8,10-14", "4-5", 5), refused);
    assert_eq!(to("4-11", "4-9", 3), "4-6");
    assert_eq!(to("4-11", "4-9", 4), "4-7");
    // Lost CPUs are replaced from the rest of its cache first, then from another whole one.
    let lost = |free: &str, left: &str, n| {
        let request = request(&node, set(free), EXCLUSIVE, n);
        let broken = CpuSet::EMPTY;
        resize(&machine, &request, &Running::Reduced { left: set(left), broken })
            .map(|cpus| cpus.to_string())
            .ok()
    };
    assert_eq!(lost("1-7,8-15", "4-5", 3).as_deref(), Some("4-6"));
    assert_eq!(lost("1-8,10-15", "4-5", 5).as_deref(), Some("4-7,12"));
    assert_eq!(lost("1-8,10-14", "4-5", 5), None);
}

#[test]
fn a_required_cache_is_chosen_where_the_topology_manager_admits_it() {
    // Two nodes of two caches of 4. Node 0 has room for 3 CPUs, but not in one cache; node 1 has a
    // cache with room.
    let shape = Shape { sockets: 1, nodes: 2, uncores: 2, cores: 4, threads: 1 };
    let topology_manager =
        TopologyManager { policy: TopologyPolicy::Restricted, ..TopologyManager::default() };
    let node = PlacementSettings { topology_manager, ..reserving("0") };
    check(&shape.build(), &node, "1-2,4-5,12-14", PodOptions::NONE, 3, "1-2,4");
    check(&shape.build(), &node, "1-2,4-5,12-14", REQUIRE, 3, "12-14");
    let refused = "UncoreAlignmentError: Uncore Alignment Error: requested 3 cpus must be in 1 uncore cache, as few as can be \
                   on this machine; at most 2 are free in so few";
    check(&shape.build(), &node, "1-2,4-5,12-13", REQUIRE, 3, refused);
}

#[test]
fn numa_pod_options_choose_nodes_or_refuse() {
    // Two sockets of two nodes of 4.
    let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 };
    let machine = shape.build();
    let node = reserving("0");
    let refused = "TopologyAffinityError: Resources cannot be allocated with Topology locality";
    check(&machine, &node, "1-2,4-5,8-9", SINGLE, 3, refused);
    check(&machine, &node, "1-2,4-6,8-9", SINGLE, 3, "4-6");
    check(&machine, &node, "1-15", SINGLE, 5, refused);
    check(&machine, &node, "1-2,8-11", CLOSEST, 3, "8-10");
    check(&machine, &node, "1-2,4-5,8-9", CLOSEST, 3, "1-2,4");
    check(&machine, &node, "4-15", PodOptions::NONE, 6, "4-9");
    check(&machine, &node, "4-15", SPREAD, 6, "4-6,8-10");
    check(&machine, &node, "4-15", SPREAD, 3, "4-6");
}

#[test]
fn smt_pod_options_give_whole_cores_or_refuse() {
    // Cores 0-3 with threads 4-7; half of core 0 is reserved.
    let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 };
    let machine = shape.build();
    let node = reserving("0");
    check(&machine, &node, "1-7", FULL_CORES, 4, "1-2,5-6");
    let refused =
        "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2";
    check(&machine, &node, "1-7", FULL_CORES, 3, refused);
    // Another container has CPU 1, so core 1 is not whole.
    let refused = "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 4, \
                   requested CPUs = 6, CPUs per core = 2";
    check(&machine, &node, "2-7", FULL_CORES, 6, refused);
    check(&machine, &node, "2-7", FULL_CORES, 4, "2-3,6-7");
    check(&machine, &node, "1-7", ISOLATE, 3, "1-3");
    check(&machine, &node, "2-7", ISOLATE, 1, "2");
    let refused = "SMTAlignmentError: SMT Alignment Error: smt: isolate takes a whole core for each CPU: requested 3 cpus, \
                   free whole cores = 2";
    check(&machine, &node, "2-7", ISOLATE, 3, refused);
}

#[test]
fn cores_are_counted_where_siblings_stay_idle() {
    // Two nodes of two caches of two cores of two threads: siblings are 8 apart.
    let shape = Shape { sockets: 1, nodes: 2, uncores: 2, cores: 2, threads: 2 };
    let machine = shape.build();
    let node = reserving("");
    // CPU 0 is taken. Four CPUs would fit the rest of node 0; four cores do not.
    let pod_options = PodOptions { numa: Some(Numa::Single), ..ISOLATE };
    check(&machine, &node, "1-15", pod_options, 4, "4-7");
    let pod_options = PodOptions { uncore: Some(Uncore::Require), ..ISOLATE };
    check(&machine, &node, "1-15", pod_options, 2, "2-3");
    check(&machine, &node, "1-15", pod_options, 3, "1-3");
}

#[test]
fn devices_count_together_with_pod_options() {
    // Four nodes of 4, each an uncore cache.
    let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 };
    let topology_manager =
        TopologyManager { policy: TopologyPolicy::BestEffort, ..TopologyManager::default() };
    let node = PlacementSettings { topology_manager, ..reserving("0") };
    let near = |pod_options: PodOptions, at| (pod_options, NodeSet::of(at));
    check_near(&shape.build(), &node, "1-15", near(PodOptions::NONE, 2), 2, "8-9");
    check_near(&shape.build(), &node, "1-8,12-15", near(PodOptions::NONE, 2), 2, "1,8");
    check_near(&shape.build(), &node, "1-8,12-15", near(REQUIRE, 2), 2, "1-2");
    check_near(&shape.build(), &node, "1-15", near(REQUIRE, 3), 2, "12-13");
    check_near(&shape.build(), &node, "1-15", near(SINGLE, 3), 2, "12-13");
    let refused = "TopologyAffinityError: Resources cannot be allocated with Topology locality";
    check_near(&shape.build(), &node, "1-12", near(SINGLE, 3), 2, refused);
    // Without a policy of the topology manager, devices do not matter.
    check_near(&shape.build(), &reserving("0"), "1-15", near(FULL_CORES, 3), 2, "1-2");
}

fn pod_options() -> impl proptest::strategy::Strategy<Value = PodOptions> {
    let uncore = prop::option::of(prop_oneof![
        Just(Uncore::Prefer),
        Just(Uncore::Require),
        Just(Uncore::Ignore),
        Just(Uncore::Exclusive)
    ]);
    let numa =
        prop::option::of(prop_oneof![Just(Numa::Single), Just(Numa::Closest), Just(Numa::Spread)]);
    let smt = prop::option::of(prop_oneof![Just(Smt::FullCores), Just(Smt::Isolate)]);
    (uncore, numa, smt).prop_map(|(uncore, numa, smt)| PodOptions {
        uncore,
        numa,
        smt,
        ..PodOptions::NONE
    })
}

proptest! {
    #[test]
    fn cpus_are_free_of_the_right_number_and_as_asked(
        pod_options in pod_options(),
        shape in (1..3usize, 1..3usize, 1..3usize, 1..4usize, 1..3usize),
        taken in prop::collection::btree_set(0..48usize, 0..24),
        n in 1..10usize,
    ) {
        let (sockets, nodes, uncores, cores, threads) = shape;
        let machine = Shape { sockets, nodes, uncores, cores, threads }.build();
        let reserved = machine.online().lowest(1);
        let node = PlacementSettings { reserved, ..PlacementSettings::default() };
        let taken: CpuSet = taken.into_iter().map(|cpu| CpuSet::of(cpu).unwrap()).collect();
        let free = machine.online() - taken;
        let answer = answer(&machine, &request(&node, free, pod_options, n));
        prop_assume!(answer.is_ok());
        let cpus = answer.unwrap().cpus;
        prop_assert_eq!(cpus.len(), n);
        prop_assert!(cpus.is_subset(&(free - reserved)));
        let cores = whole_cores(&machine, &cpus);
        match pod_options.smt {
            Some(Smt::FullCores) => prop_assert_eq!(cores, cpus),
            Some(Smt::Isolate) => {
                prop_assert!(cores.is_subset(&(free - reserved)));
                prop_assert_eq!(cores.len(), n * threads);
            }
            None => {}
        }
        if pod_options.uncore == Some(Uncore::Exclusive) {
            let caches = whole_caches(&machine, &cpus);
            prop_assert!(caches.is_subset(&(free - reserved)), "{cpus} is not in whole free caches");
        }
        if pod_options.numa == Some(Numa::Single) {
            let nodes = machine.nodes().iter().filter(|node| !node.cpus.is_disjoint(&cpus));
            prop_assert_eq!(nodes.count(), 1);
        }
        if pod_options.uncore == Some(Uncore::Require) && pod_options.smt.is_none() {
            let caches = machine.uncores().iter().map(|cache| cache.cpus);
            let used = caches.clone().filter(|cache| !cache.is_disjoint(&cpus)).count();
            let sizes = caches.map(|cache| (cache - reserved).len()).collect();
            prop_assert!(used <= crate::caches::fewest(sizes, n));
        }
    }
}
