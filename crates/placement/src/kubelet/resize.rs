//! [`resize()`]: the CPUs of a running container. [`grow`] keeps every CPU and adds the nearest
//! ones; [`shrink`] keeps those that are closest together.
//!
//! The kubelet has no such algorithm: it refuses to resize exclusive CPUs in place. Nearness is as
//! in its packed algorithm: core before uncore cache before NUMA node before distance.
//!
//! The NUMA affinity is no reason to refuse: the topology manager's policy decides where a
//! container may start (KEP-693), and a resize is no start.

use super::allocate::{Supply, check_whole_cores};
use super::attempt;
use super::wished::required::{fewest, growth, is_met};
use crate::rejection::{NotEnough, Rejection};
use crate::request::{Request, Running};
use crate::topology_manager::TopologyPolicy;
use crate::wishes::Uncore;
use cpuset::CpuSet;
use std::cmp::Reverse;
use topology::{Place, Tally, Topology};

pub(super) fn resize(
    machine: &Topology,
    request: &Request,
    running: &Running,
) -> Result<CpuSet, Rejection> {
    match running {
        Running::Shared => become_exclusive(machine, *request),
        Running::Exclusive(held) => change(machine, request, held),
        Running::Reduced { left, broken } => Ok(complete(machine, request, left, broken)?),
    }
}

/// Places a container that shared CPUs like one that starts, under a policy that admits every
/// affinity.
fn become_exclusive(machine: &Topology, mut request: Request) -> Result<CpuSet, Rejection> {
    let policy = &mut request.settings.topology_manager.policy;
    if *policy != TopologyPolicy::None {
        *policy = TopologyPolicy::BestEffort;
    }
    Ok(attempt::place(machine, &request)?.cpus)
}

/// A container that grows keeps its CPUs and gets the nearest free ones. One that shrinks keeps
/// those that are closest together.
fn change(machine: &Topology, request: &Request, held: &CpuSet) -> Result<CpuSet, Rejection> {
    let Request { settings, wishes, cpus: n, .. } = request;
    let near = growable(machine, request, held);
    let supply = Supply { free: near | *held, reusable: CpuSet::EMPTY };
    if wishes.takes_caches() && supply.free.len() < *n {
        let usable = (request.free & machine.online()) - settings.reserved;
        return Err(request.too_few_caches(machine, &usable, held));
    }
    if !wishes.isolates() {
        check_whole_cores(machine, settings, &supply, *n)?;
    }
    let Some(more) = n.checked_sub(held.len()) else {
        return Ok(shrink(machine, held, *n));
    };
    let grown = grow(machine, held, &nearest(request, machine, held, &near, more), more)?;
    let all = request.footprint(machine, &grown);
    let reserved = &settings.reserved;
    if wishes.uncore == Some(Uncore::Require) && !is_met(machine, reserved, &all) {
        let caches = machine.uncores().iter().map(|cache| cache.cpus);
        let own: CpuSet = caches.filter(|cache| !cache.is_disjoint(held)).collect();
        let fewest = fewest(machine, reserved, all.len());
        return Err(Rejection::uncore_alignment(*n, fewest, (own & (near | *held)).len()));
    }
    Ok(grown)
}

/// Replaces the CPUs that a container lost by the nearest free ones, whole cores or not. The
/// container did not ask for a change, so rules about requests do not refuse it.
fn complete(
    machine: &Topology,
    request: &Request,
    left: &CpuSet,
    broken: &CpuSet,
) -> Result<CpuSet, NotEnough> {
    // With `full-pcpus-only`, first try to replace cores that lost a thread by whole ones.
    let whole = if request.settings.options.full_pcpus_only { *left - *broken } else { *left };
    let completed = [whole, *left].into_iter().find_map(|base| {
        let more = request.cpus.checked_sub(base.len())?;
        let near = growable(machine, request, &base);
        grow(machine, &base, &nearest(request, machine, &base, &near, more), more).ok()
    });
    let available = (request.free | *left).len();
    completed.ok_or(NotEnough { requested: request.cpus, available })
}

/// The part of the free CPUs that may be added to `held`. With `full-pcpus-only` (KEP-2625) these
/// are whole cores, so that no other container runs on their siblings; with `smt: isolate`, one CPU
/// of each whole core. With `uncore: exclusive` they are in caches that are entirely free or the
/// container's already.
///
/// As in the kubelet, `full-pcpus-only` has no effect if cores have one CPU on average.
fn growable(machine: &Topology, request: &Request, held: &CpuSet) -> CpuSet {
    let wishes = &request.wishes;
    let mut free = request.free;
    if wishes.takes_caches() {
        free = wishes.in_its_caches(machine, &(free - request.settings.reserved), held);
    }
    if wishes.isolates() {
        return wishes.offered(machine, &free, held) - *held;
    }
    if !request.settings.options.full_pcpus_only || machine.cpus_per_core() < 2 {
        return free;
    }
    let free_or_held = free | *held;
    let cores = machine.cores().iter().map(|core| core.cpus);
    cores.filter(|core| core.is_subset(&free_or_held)).collect::<CpuSet>() & free
}

/// The part of `near` from which `more` CPUs may be added: with whole caches, the fewest of these.
fn nearest(
    request: &Request,
    machine: &Topology,
    held: &CpuSet,
    near: &CpuSet,
    more: usize,
) -> CpuSet {
    if !request.wishes.takes_caches() {
        return *near;
    }
    growth(machine, &(*near - *held), held, more, request.settings.options.uncore_order)
}

/// `held` and the `more` CPUs of `free` that are nearest to it.
///
/// CPUs are added one by one: one with siblings in the set, else in its uncore caches, else in its
/// NUMA nodes, else in the nearest node. The domain with the most CPUs of the set comes first, then
/// the one with the fewest free CPUs, so that whole cores and caches stay free for others.
fn grow(
    topology: &Topology,
    held: &CpuSet,
    free: &CpuSet,
    more: usize,
) -> Result<CpuSet, NotEnough> {
    let mut free = *free & topology.online();
    free -= *held;
    if free.len() < more {
        return Err(NotEnough { requested: more, available: free.len() });
    }
    let mut set = *held;
    let mut in_set = topology.tally(&set);
    let mut in_free = topology.tally(&free);
    for _ in 0..more {
        let places = free.iter().filter_map(|cpu| Some((cpu, topology.place(cpu)?)));
        let nearest = places.min_by_key(|&(cpu, place)| {
            let near = (
                Reverse(in_set.cores[place.core()]),
                Reverse(in_set.uncores[place.uncore()]),
                Reverse(in_set.nodes[place.node()]),
                distance(topology, &in_set, place),
                Reverse(in_set.sockets[place.socket()]),
            );
            let emptiest_last = (
                in_free.nodes[place.node()],
                in_free.uncores[place.uncore()],
                in_free.cores[place.core()],
            );
            (near, emptiest_last, cpu)
        });
        let Some((cpu, place)) = nearest else { break };
        free.remove(cpu);
        in_free.remove(place);
        in_set.add(place);
        set |= CpuSet::of(cpu).unwrap_or_default();
    }
    Ok(set)
}

/// The `n` CPUs of `held` that are closest together; all of `held` if it has no more.
///
/// CPUs are removed one by one: from the NUMA node with the fewest CPUs of the set, there from the
/// uncore cache with the fewest, there from the core with the fewest; on ties the highest number.
fn shrink(topology: &Topology, held: &CpuSet, n: usize) -> CpuSet {
    let mut set = *held;
    let mut in_set = topology.tally(&set);
    for _ in n..held.len() {
        let places = set.iter().filter_map(|cpu| Some((cpu, topology.place(cpu)?)));
        let loosest = places.min_by_key(|&(cpu, place)| {
            (
                in_set.nodes[place.node()],
                in_set.uncores[place.uncore()],
                in_set.cores[place.core()],
                Reverse(cpu),
            )
        });
        let Some((cpu, place)) = loosest else { break };
        set.remove(cpu);
        in_set.remove(place);
    }
    set
}

/// The sum of distances from the node of `place` to every CPU of the set; 0 if the machine reports
/// no distances.
fn distance(topology: &Topology, in_set: &Tally, place: Place) -> u64 {
    let to = topology.nodes()[place.node()].distances.iter().zip(&in_set.nodes);
    to.map(|(&distance, &cpus)| u64::from(distance) * cpus as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use topology::synthetic::{Machine, Numbering};

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// Two sockets of two nodes of two caches of four cores of two threads: 64 CPUs, siblings
    /// adjacent.
    fn machine() -> Topology {
        let machine = Machine {
            sockets: 2,
            nodes: 2,
            caches: 4,
            cores: 16,
            threads: 2,
            ..Machine::default()
        };
        machine.topology().unwrap()
    }

    #[track_caller]
    fn grows(held: &str, free: &str, more: usize, expect: &str) {
        let grown = grow(&machine(), &set(held), &set(free), more).unwrap();
        assert_eq!(grown.to_string(), expect, "{held} by {more} of {free}");
    }

    #[track_caller]
    fn shrinks(held: &str, n: usize, expect: &str) {
        assert_eq!(shrink(&machine(), &set(held), n).to_string(), expect, "{held} to {n}");
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
    fn shrinking_keeps_the_cpus_that_are_closest_together() {
        shrinks("0-7", 4, "0-3");
        shrinks("0-7,8-9", 8, "0-7");
        shrinks("6-7,8-15", 8, "8-15");
        shrinks("0-1,16-21", 4, "16-19");
        shrinks("0-2", 2, "0-1");
        shrinks("0-3", 4, "0-3");
        shrinks("0-3", 0, "");
    }

    #[test]
    fn growth_beyond_the_free_cpus_is_refused() {
        let error = grow(&machine(), &set("0-3"), &set("0-5"), 4).unwrap_err();
        assert_eq!(error, NotEnough { requested: 4, available: 2 });
    }

    proptest! {
        #[test]
        fn growth_keeps_all_held_cpus_and_takes_only_free_ones(
            held in prop::collection::btree_set(0..48usize, 0..20),
            free in prop::collection::btree_set(0..48usize, 0..40),
            more in 0..30usize,
        ) {
            let machine = Machine { sockets: 2, nodes: 2, caches: 2, cores: 12, threads: 2, numbering: Numbering::Interleaved, ..Machine::default() };
            let topology = machine.topology().unwrap();
            let collect = |cpus: &std::collections::BTreeSet<usize>| -> CpuSet {
                cpus.iter().map(|&cpu| CpuSet::of(cpu).unwrap()).collect()
            };
            let held = collect(&held);
            let free = collect(&free);
            match grow(&topology, &held, &free, more) {
                Ok(grown) => {
                    prop_assert!(held.is_subset(&grown));
                    prop_assert!((grown - held).is_subset(&free));
                    prop_assert_eq!(grown.len(), held.len() + more);
                }
                Err(_) => prop_assert!((free - held).len() < more),
            }
            let shrunk = shrink(&topology, &held, more);
            prop_assert!(shrunk.is_subset(&held));
            prop_assert_eq!(shrunk.len(), more.min(held.len()));
        }
    }
}
