//! Single cases.

use super::request;
use crate::machines::{Shape, caches, set};
use crate::pod_options::{Smt, Uncore};
use crate::{
    DeviceNodes, Hint, PodDemand, Request, Reuse, Running, Scope, TopologyPolicy, explain, place,
    resize,
};
use cpuset::{CpuSet, NodeSet};
use topology::Topology;

/// Two sockets of two nodes of two caches of four CPUs: 32 CPUs.
fn server() -> Topology {
    let near = |node: usize| -> Vec<u32> {
        (0..4)
            .map(|to| {
                if to == node {
                    10
                } else if to / 2 == node / 2 {
                    12
                } else {
                    32
                }
            })
            .collect()
    };
    let rows: Vec<Vec<u32>> = (0..4).map(near).collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    Shape { sockets: 2, nodes: 2, uncores: 2, cores: 4, threads: 1 }.with_distances(&rows)
}

/// Two caches of four cores: cores 0-7 with siblings 8-15.
fn smt() -> Topology {
    Shape { sockets: 1, nodes: 1, uncores: 2, cores: 4, threads: 2 }.build()
}

fn plain(n: usize, free: &str) -> Request {
    request(n, set(free), CpuSet::EMPTY, TopologyPolicy::None)
}

fn answer(machine: &Topology, request: &Request) -> String {
    match place(machine, request) {
        Ok(placement) => placement.cpus.to_string(),
        Err(rejection) => rejection.to_string(),
    }
}

#[track_caller]
fn check(machine: &Topology, n: usize, free: &str, expect: &str) {
    assert_eq!(answer(machine, &plain(n, free)), expect, "{n} of {free}");
}

#[test]
fn fewer_nodes_come_before_distance_and_distance_before_caches() {
    let machine = server();
    // One node in two caches rather than two nodes.
    check(&machine, 6, "0-2,4-6,8-11,16-19", "0-2,4-6");
    // One cache rather than two, of the same node or of several.
    check(&machine, 3, "0-1,4-5,8-10,16-19", "8-10");
    // Nodes 1 and 2 would fit better, but are on two sockets.
    check(&machine, 10, "0-7,8-13,16-19", "0-7,12-13");
    check(&machine, 10, "8-15,16-23", "8-9,12-19");
}

#[test]
fn sockets_come_before_distance_and_remainders() {
    // Nodes 1 and 2 would fit better, and nobody knows that they are far from each other.
    let flat = Shape { sockets: 2, nodes: 2, uncores: 2, cores: 4, threads: 1 }.build();
    check(&flat, 10, "0-5,8-15,16-19", "0-5,8-11");
    // One node has both sockets: all CPUs come from one of them.
    let mut cpus: Vec<_> = caches(4, 4).cpus().to_vec();
    cpus.iter_mut().for_each(|cpu| cpu.socket = cpu.id / 8);
    let one_node = Topology::build(topology::Facts { cpus, ..Default::default() }).unwrap();
    check(&one_node, 5, "0-3,8,12-15", "8,12-15");
    check(&one_node, 6, "0-2,4-7,8-10", "0-2,4-6");
}

#[test]
fn whole_cores_of_all_chosen_caches_come_before_shared_ones() {
    check(&smt(), 8, "0-3,8-9,4-7,12-13", "0-1,4-5,8-9,12-13");
}

#[test]
fn caches_with_the_smallest_sufficient_remainder_are_used() {
    check(&caches(4, 8), 4, "0-7,8-13,16-20,24-26", "16-19");
    check(&caches(4, 8), 10, "0-7,8-13,16-20,24-25", "0-7,24-25");
    check(&caches(4, 8), 11, "0-7,8-13,16-20", "8-13,16-20");
    check(&caches(4, 8), 18, "0-6,8-13,16-20,24-31", "0-6,8-13,16-20");
}

#[test]
fn an_odd_cpu_comes_from_a_broken_core() {
    let machine = smt();
    check(&machine, 3, "0-3,8-9,11", "0,2,8");
    check(&machine, 1, "0-3,8-9,11", "2");
    // A whole core of a fuller cache rather than parts of cores.
    check(&machine, 2, "0-1,4-5,13", "5,13");
}

#[test]
fn full_pcpus_only_gives_whole_cores_or_refuses() {
    let machine = smt();
    let whole = |n: usize, free: &str| {
        let mut request = plain(n, free);
        request.settings.options.full_pcpus_only = true;
        request.settings.reserved = set("0");
        answer(&machine, &request)
    };
    assert_eq!(whole(4, "0-15"), "1-2,9-10");
    assert_eq!(whole(8, "0-15"), "4-7,12-15");
    assert_eq!(
        whole(3, "0-15"),
        "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    );
    assert_eq!(
        whole(4, "1-3,8-9,15"),
        "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2"
    );
}

#[test]
fn pod_options_choose_caches_and_cores_or_refuse() {
    let with = |machine: &Topology, n, free, uncore, smt| {
        let mut request = plain(n, free);
        request.pod_options.uncore = uncore;
        request.pod_options.smt = smt;
        request.settings = request.pod_options.settings(&request.settings);
        answer(machine, &request)
    };
    let require = Some(Uncore::Require);
    let ignore = Some(Uncore::Ignore);
    let four = caches(4, 8);
    assert_eq!(with(&four, 6, "0-4,8-12,16-22", require, None), "16-21");
    assert_eq!(
        with(&four, 6, "0-4,8-12", require, None),
        "UncoreAlignmentError: Uncore Alignment Error: requested 6 cpus must be in 1 uncore cache, as few as can be on this machine; at most 5 are free in so few"
    );
    assert_eq!(with(&four, 6, "0-4,8-11,16-22", ignore, None), "0-1,8-11");
    // Node 0 has room in three caches; two caches, the fewest possible, have room in two nodes.
    let server = Shape { sockets: 1, nodes: 2, uncores: 4, cores: 4, threads: 1 }.build();
    assert_eq!(with(&server, 8, "0-2,4-6,8-10,12-15,28-31", None, None), "0-1,4-6,8-10");
    assert_eq!(with(&server, 8, "0-2,4-6,8-10,12-15,28-31", require, None), "12-15,28-31");
    assert_eq!(with(&smt(), 3, "0-7,8-14", None, Some(Smt::Isolate)), "4-6");
    assert_eq!(
        with(&smt(), 3, "0-7,8-9", None, Some(Smt::Isolate)),
        "SMTAlignmentError: SMT Alignment Error: smt: isolate takes a whole core for each CPU: requested 3 cpus, free whole cores = 2"
    );
}

#[test]
fn whole_uncore_caches_are_given_or_the_container_is_refused() {
    let with = |machine: &Topology, n, free: &str, smt, policy| {
        let mut request = request(n, set(free), set("0"), policy);
        request.pod_options.uncore = Some(Uncore::Exclusive);
        request.pod_options.smt = smt;
        request.settings = request.pod_options.settings(&request.settings);
        answer(machine, &request)
    };
    let none = TopologyPolicy::None;
    // No container can have the cache of CPU 0, which is reserved.
    assert_eq!(with(&caches(4, 4), 3, "0-15", None, none), "4-6");
    assert_eq!(with(&caches(4, 4), 6, "0-5,7-15", None, none), "8-13");
    assert_eq!(
        with(&caches(4, 4), 5, "0-5,7-10,12-15", None, none),
        "UncoreAlignmentError: Uncore Alignment Error: whole uncore caches required: requested 5 cpus, \
         free whole caches = 1, usable cpus in them = 4, 1 cache has reserved cpus and cannot be taken; request fewer \
         cpus, or wait until other containers leave a cache"
    );
    // One CPU of each core of the only cache without a reserved CPU.
    assert_eq!(with(&smt(), 3, "0-15", Some(Smt::Isolate), none), "4-6");
    // Two whole caches: of one node, otherwise of two if the policy admits that.
    let single = TopologyPolicy::SingleNumaNode;
    assert_eq!(with(&server(), 8, "4-6,8-11,16-23", None, single), "16-23");
    assert_eq!(with(&server(), 8, "4-6,8-11,16-20", None, none), "8-11,16-19");
    assert_eq!(
        with(&server(), 8, "4-6,8-11,16-20", None, single),
        "TopologyAffinityError: Resources cannot be allocated with Topology locality"
    );
}

#[test]
fn a_container_with_whole_caches_grows_in_its_own_first() {
    let to = |free: &str, running: Running, n| {
        let mut request = request(n, set(free), set("0"), TopologyPolicy::None);
        request.pod_options.uncore = Some(Uncore::Exclusive);
        resize(&caches(4, 4), &request, &running).map(|cpus| cpus.to_string()).ok()
    };
    let held = |held: &str| Running::Exclusive(set(held));
    assert_eq!(to("1-15", held("4-5"), 4).as_deref(), Some("4-7"));
    assert_eq!(to("1-8,10-15", held("4-5"), 6).as_deref(), Some("4-7,12-13"));
    assert_eq!(to("1-8,10-14", held("4-5"), 5), None);
    assert_eq!(to("4-11", held("4-9"), 3).as_deref(), Some("4-6"));
    let lost = |left: &str| Running::Reduced { left: set(left), broken: CpuSet::EMPTY };
    assert_eq!(to("1-15", lost("4-5"), 3).as_deref(), Some("4-6"));
    assert_eq!(to("1-8,10-15", lost("4-5"), 5).as_deref(), Some("4-7,12"));
    assert_eq!(to("1-8,10-14", lost("4-5"), 5), None);
}

#[test]
fn a_pod_keeps_its_nodes() {
    let machine = server();
    let in_pod = |n, free: &str, pod: PodDemand| {
        let mut request = plain(n, free);
        request.pod = Some(pod);
        request.settings.topology_manager.policy = TopologyPolicy::Restricted;
        request.settings.topology_manager.scope = Scope::Pod;
        place(&machine, &request)
    };
    let nodes = |list: &[usize]| Some(list.iter().copied().collect::<NodeSet>());
    // Node 0 fits the container, but not its pod.
    let pod = PodDemand { cpus: 6, held: CpuSet::EMPTY, chosen: None };
    let first = in_pod(2, "0-3,8-15", pod).unwrap();
    assert_eq!((first.cpus.to_string().as_str(), first.hint.nodes), ("8-9", nodes(&[1])));
    let chosen = PodDemand { held: first.cpus, chosen: Some(first.hint), ..pod };
    assert_eq!(in_pod(4, "0-3,10-15", chosen).unwrap().cpus.to_string(), "12-15");
    let refused = in_pod(4, "0-3,14-15", chosen).unwrap_err().to_string();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    // The node with its CPUs has to be in the affinity.
    let pod = PodDemand { cpus: 12, held: set("0-1"), chosen: None };
    let second = in_pod(10, "2-7,16-31", pod).unwrap();
    assert_eq!(second.hint.nodes, nodes(&[0, 2]));
}

#[test]
fn cpus_are_near_the_devices() {
    let machine = server();
    let at = |n, free: &str, policy, devices: &[usize]| {
        let mut request = request(n, set(free), CpuSet::EMPTY, policy);
        request.devices = DeviceNodes::on(devices.iter().copied().collect());
        match place(&machine, &request) {
            Ok(placement) => placement.cpus.to_string(),
            Err(rejection) => rejection.reason.to_string(),
        }
    };
    use TopologyPolicy::{BestEffort, Restricted};
    assert_eq!(at(2, "0-31", BestEffort, &[3]), "24-25");
    assert_eq!(at(2, "0-31", Restricted, &[3]), "24-25");
    // Both nodes are equally good: the one with more devices is taken.
    let mostly = |n, most: usize| {
        let mut request = request(n, set("0-31"), CpuSet::EMPTY, BestEffort);
        request.devices = DeviceNodes::mostly([1, 3].into_iter().collect(), NodeSet::of(most));
        place(&machine, &request).unwrap().cpus.to_string()
    };
    assert_eq!(mostly(2, 1), "8-9");
    assert_eq!(mostly(2, 3), "24-25");
    assert_eq!(mostly(12, 3), "8-15,24-27");
    // The node of the devices has no room: the nearest node is taken, or the policy refuses.
    assert_eq!(at(2, "0-1,16-23,24", BestEffort, &[3]), "16-17");
    assert_eq!(at(2, "0-1,16-23,24", Restricted, &[3]), "TopologyAffinityError");
}

#[test]
fn cpus_of_ended_containers_are_used_again() {
    let with = |n, free: &str, ended: &str| {
        let reuse = Reuse { cpus: set(ended), kept: 0 };
        answer(&caches(4, 8), &Request { reuse, ..plain(n, free) })
    };
    // CPUs of ended containers come first although they fit worse.
    assert_eq!(with(2, "2-7,16-17", "0-1"), "0-1");
    assert_eq!(with(4, "0-4,24", "25-27"), "24-27");
    assert_eq!(with(2, "16-19", "0,8,9"), "8-9");
    // They do not lead it into more uncore caches.
    assert_eq!(with(5, "1-4,16-23", "0,8,9"), "0-4");
    assert_eq!(with(5, "16-23", "0,8,9"), "16-20");
}

#[test]
fn growth_adds_the_nearest_cpus_and_shrinking_keeps_the_closest() {
    let change = |machine: &Topology, held: &str, n, free: &str| {
        let running = Running::Exclusive(set(held));
        resize(machine, &plain(n, free), &running).unwrap().to_string()
    };
    let smt = smt();
    // The sibling, then the same cache, then the tightest of the others.
    assert_eq!(change(&smt, "0", 2, "1-15"), "0,8");
    assert_eq!(change(&smt, "0,8", 4, "1-7,9-15"), "0-1,8-9");
    assert_eq!(change(&caches(4, 8), "0-1", 5, "2,8-15,16-18"), "0-2,16-17");
    // Two more cores of another cache rather than parts of cores of both.
    assert_eq!(change(&smt, "0,8", 6, "1,4-5,12-13"), "0,4-5,8,12-13");
    let server = server();
    assert_eq!(change(&server, "0-3", 6, "8-9,16-19"), "0-3,8-9");
    assert_eq!(change(&server, "0-3,8-9", 4, ""), "0-3");
    assert_eq!(change(&smt, "0-1,8,4-5,12-13", 4, ""), "4-5,12-13");
    assert_eq!(change(&server, "0-3", 4, "4-5"), "0-3");
}

#[test]
fn cpus_that_went_offline_are_replaced() {
    let whole = smt();
    let online = whole.cpus().iter().filter(|cpu| cpu.id != 9).copied().collect();
    let facts = topology::Facts { cpus: online, ..Default::default() };
    let machine = Topology::build(facts).unwrap();
    let running = Running::Reduced { left: set("0-1,8"), broken: set("1") };
    let mut request = plain(4, "2-7,10-15");
    assert_eq!(resize(&machine, &request, &running).unwrap().to_string(), "0-2,8");
    request.settings.options.full_pcpus_only = true;
    assert_eq!(resize(&machine, &request, &running).unwrap().to_string(), "0,2,8,10");
    request.free = set("3");
    assert!(resize(&machine, &request, &running).unwrap_err().to_string().contains("available=4"));
}

#[test]
fn a_container_that_becomes_exclusive_is_not_refused_for_its_affinity() {
    let mut request = plain(10, "0-5,16-23");
    request.settings.topology_manager.policy = TopologyPolicy::SingleNumaNode;
    assert!(place(&server(), &request).is_err());
    assert_eq!(resize(&server(), &request, &Running::Shared).unwrap().to_string(), "0-5,16-19");
}

#[test]
fn an_explanation_lists_node_sets_caches_and_costs() {
    let mut request = plain(6, "0-2,4-6,8-11,16-23");
    request.settings.topology_manager.policy = TopologyPolicy::Restricted;
    let placement = place(&server(), &request).unwrap();
    assert_eq!(placement.hint, Hint { nodes: Some(NodeSet::of(0)), preferred: true });
    let weighed = explain(&server(), &request, Some(&placement));
    assert_eq!(
        weighed.reasons,
        [
            "placement compact: fewest NUMA nodes, then fewest sockets, nearest nodes, most room for large requests, fewest uncore caches, fewest shared cores, most CPUs of ended init containers, fewest broken cores, smallest remainders. Chosen: 1 NUMA node, 2 uncore caches, 0 shared cores.",
            "topologyManagerPolicy restricted admits 1 NUMA node.",
        ]
    );
    assert_eq!(weighed.numa_sets, Some((2, 2)));
    let numa: Vec<_> =
        weighed.numa.iter().map(|set| (set.hint.nodes, set.free, set.chosen)).collect();
    assert_eq!(numa, [(Some(NodeSet::of(0)), 6, true), (Some(NodeSet::of(2)), 8, false)]);
    let taken: Vec<usize> = weighed.uncores.iter().map(|cache| cache.taken).collect();
    assert_eq!(taken, [3, 3, 0, 0, 0, 0, 0, 0]);
    request.cpus = 12;
    request.settings.topology_manager.policy = TopologyPolicy::SingleNumaNode;
    assert!(place(&server(), &request).is_err());
    assert_eq!(explain(&server(), &request, None).numa_sets, Some((2, 2)));
}
