//! [`resize()`]: the CPUs of a container that runs. [`grow`] keeps every CPU and adds the nearest
//! ones, [`shrink`] gives back those that leave the tightest rest.
//!
//! The kubelet has no such algorithm (it refuses to resize exclusive CPUs in place). Near and tight
//! are as in its packed algorithm: core before uncore cache before NUMA node before distance.
//!
//! The NUMA affinity is no reason to refuse: the topology manager's policy decides where a container
//! may start (KEP-693), and this one runs already.

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

/// As for a container that starts, under a topology manager that admits every affinity.
fn become_exclusive(machine: &Topology, mut request: Request) -> Result<CpuSet, Rejection> {
    let policy = &mut request.settings.topology_manager.policy;
    if *policy != TopologyPolicy::None {
        *policy = TopologyPolicy::BestEffort;
    }
    Ok(attempt::place(machine, &request)?.cpus)
}

/// A container that asks for another number of CPUs keeps those that it holds and gets the nearest
/// free ones, or gives some back.
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
        let around: CpuSet = caches.filter(|cache| !cache.is_disjoint(held)).collect();
        let fewest = fewest(machine, reserved, all.len());
        return Err(Rejection::uncore_alignment(*n, fewest, (around & (near | *held)).len()));
    }
    Ok(grown)
}

/// A container that lost CPUs gets the nearest free ones instead, whole cores or not: it did not
/// ask for a change, so no rule about the start of containers refuses it.
fn complete(
    machine: &Topology,
    request: &Request,
    left: &CpuSet,
    broken: &CpuSet,
) -> Result<CpuSet, NotEnough> {
    // The rest of a broken core is no whole core.
    let whole = if request.settings.options.full_pcpus_only { *left - *broken } else { *left };
    let completed = [whole, *left].into_iter().find_map(|kept| {
        let more = request.cpus.checked_sub(kept.len())?;
        let near = growable(machine, request, &kept);
        grow(machine, &kept, &nearest(request, machine, &kept, &near, more), more).ok()
    });
    let available = (request.free | *left).len();
    completed.ok_or(NotEnough { requested: request.cpus, available })
}

/// The part of the free CPUs that may be added to `held`: with `full-pcpus-only` (KEP-2625) whole
/// cores, so that no other container runs on their siblings; with `smt: isolate` one CPU of each
/// whole core. With `uncore: exclusive` these are in caches that are free as a whole or its own.
///
/// On a machine with one CPU per core on average that option has no effect.
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
    let ours = free | *held;
    let cores = machine.cores().iter().map(|core| core.cpus);
    cores.filter(|core| core.is_subset(&ours)).collect::<CpuSet>() & free
}

/// The part of these CPUs in which it grows by `more`.
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
/// It adds one CPU after the other: one with siblings in the set, else one that shares its uncore
/// caches, else its NUMA nodes, else one of the nearest node; among these the one in the fullest
/// domain. On ties used domains come first, so that whole cores and caches stay free for others.
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
    let mut ours = topology.tally(&set);
    let mut theirs = topology.tally(&free);
    for _ in 0..more {
        let places = free.iter().filter_map(|cpu| Some((cpu, topology.place(cpu)?)));
        let nearest = places.min_by_key(|&(cpu, place)| {
            let near = (
                Reverse(ours.cores[place.core()]),
                Reverse(ours.uncores[place.uncore()]),
                Reverse(ours.nodes[place.node()]),
                distance(topology, &ours, place),
                Reverse(ours.sockets[place.socket()]),
            );
            let used_up = (
                theirs.nodes[place.node()],
                theirs.uncores[place.uncore()],
                theirs.cores[place.core()],
            );
            (near, used_up, cpu)
        });
        let Some((cpu, place)) = nearest else { break };
        free.remove(cpu);
        theirs.remove(place);
        ours.add(place);
        set |= CpuSet::of(cpu).unwrap_or_default();
    }
    Ok(set)
}

/// The `n` CPUs of `held` that are closest together; all of it if it has no more.
///
/// It takes one CPU after the other out: from the NUMA node with the fewest of the set, in it from
/// the uncore cache with the fewest, in it from the core with the fewest; the highest number on
/// ties.
fn shrink(topology: &Topology, held: &CpuSet, n: usize) -> CpuSet {
    let mut set = *held;
    let mut ours = topology.tally(&set);
    for _ in n..held.len() {
        let places = set.iter().filter_map(|cpu| Some((cpu, topology.place(cpu)?)));
        let loosest = places.min_by_key(|&(cpu, place)| {
            (
                ours.nodes[place.node()],
                ours.uncores[place.uncore()],
                ours.cores[place.core()],
                Reverse(cpu),
            )
        });
        let Some((cpu, place)) = loosest else { break };
        set.remove(cpu);
        ours.remove(place);
    }
    set
}

/// The sum of distances from the node of `place` to every CPU of the set; 0 if the machine reports
/// no distances.
fn distance(topology: &Topology, ours: &Tally, place: Place) -> u64 {
    let to = topology.nodes()[place.node()].distances.iter().zip(&ours.nodes);
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

    /// Two sockets of two nodes, each with two caches of four cores with two threads: 64 CPUs,
    /// siblings adjacent.
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
    fn growth_is_core_then_cache_then_node_then_distance() {
        grows("2", "0-1,3-63", 1, "2-3");
        grows("2-3", "0-1,4-63", 2, "0-3");
        grows("2-3", "8-63", 2, "2-3,8-9");
        // Node 0 and its neighbour on the same socket are full: the nearest of the rest.
        grows("2-3", "32-63", 2, "2-3,32-33");
        grows("2-3", "16-63", 2, "2-3,16-17");
        // A half-used core before a whole one.
        grows("0-1", "3,6-7", 1, "0-1,3");
    }

    #[test]
    fn shrinking_leaves_the_tightest_rest() {
        shrinks("0-7", 4, "0-3");
        shrinks("0-7,8-9", 8, "0-7");
        shrinks("6-7,8-15", 8, "8-15");
        shrinks("0-1,16-21", 4, "16-19");
        shrinks("0-2", 2, "0-1");
        shrinks("0-3", 4, "0-3");
        shrinks("0-3", 0, "");
    }

    #[test]
    fn no_room_to_grow() {
        let error = grow(&machine(), &set("0-3"), &set("0-5"), 4).unwrap_err();
        assert_eq!(error, NotEnough { requested: 4, available: 2 });
    }

    proptest! {
        #[test]
        fn nothing_held_is_lost_and_nothing_taken_is_not_free(
            held in prop::collection::btree_set(0..48usize, 0..20),
            free in prop::collection::btree_set(0..48usize, 0..40),
            more in 0..30usize,
        ) {
            let machine = Machine { sockets: 2, nodes: 2, caches: 2, cores: 12, threads: 2, numbering: Numbering::Interleaved, ..Machine::default() };
            let topology = machine.topology().unwrap();
            let collect = |cpus: &std::collections::BTreeSet<usize>| -> CpuSet {
                cpus.iter().map(|&cpu| CpuSet::of(cpu).unwrap()).collect()
            };
            let (held, free) = (collect(&held), collect(&free));
            match grow(&topology, &held, &free, more) {
                Ok(grown) => {
                    prop_assert!(held.is_subset(&grown));
                    prop_assert!((grown - held).is_subset(&free));
                    prop_assert_eq!(grown.len(), held.len() + more);
                }
                Err(_) => prop_assert!((free - held).len() < more),
            }
            let kept = shrink(&topology, &held, more);
            prop_assert!(kept.is_subset(&held));
            prop_assert_eq!(kept.len(), more.min(held.len()));
        }
    }
}
