//! [`Kubelet`]: the engine that answers as the kubelet's static policy and topology manager do, and
//! as close to them as possible under wishes that they do not know.
//!
//! ```text
//! request ── attempts ── best NUMA affinity ── admitted? ── whole cores? ── CPUs inside ── the rest
//!           (this file)  (hints, best, merge)   (decide)     (allocate)       (packed, uncore,
//!                                                                           spread, distributed)
//! ```

pub mod allocate;
mod balance;
mod best;
mod closest;
mod combinations;
mod distributed;
mod free;
pub mod hints;
pub mod merge;
mod order;
mod packed;
pub mod reserve;
pub mod resize;
mod spread;
pub mod strategy;
pub mod take;
mod uncore;

use super::answer::{Placement, Supply};
use super::preferences::devices::affinity;
use super::preferences::required::{fewest, is_met};
use super::preferences::{self, narrowed};
use super::rejection::Rejection;
use super::request::{CacheCandidate, Engine, NumaCandidate, Request, Reuse, Weighed};
use super::topology_manager::TopologyPolicy;
use super::wishes::{Uncore, Wishes};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;
use crate::topology::{Domain, Topology};
use allocate::{allocate, check_whole_cores, inside};
use hints::{Demand, Hint};
use resize::{grow, shrink};
use std::borrow::Cow;
use strategy::UncoreOrder;

/// The most sets of NUMA nodes that an explanation names; their number doubles with each node.
const MAX_SETS: usize = 8;
/// On machines with more nodes than this, an explanation lists no sets of them.
const MAX_NODES: usize = 8;

/// The kubelet's answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kubelet;

/// One way to meet a request; the first that works is taken.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    /// CPUs that the answer includes in any case.
    all_of: CpuSet,
    supply: Supply,
}

impl Attempt {
    fn of(free: CpuSet, reusable: CpuSet) -> Attempt {
        Attempt { all_of: CpuSet::EMPTY, supply: Supply { free, reusable } }
    }

    /// What the NUMA affinity follows from.
    fn whole(&self) -> Supply {
        Supply { reusable: self.supply.reusable | self.all_of, ..self.supply }
    }

    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
        let Request { settings, wishes, cpus: n, pod, .. } = request;
        if *wishes != Wishes::NONE {
            // A container's affinity depends on the CPUs that its wishes leave; a pod's does not.
            let within = pod.map(|_| request.affinity(machine, &self.whole())).transpose()?;
            return preferences::allocate(machine, settings, wishes, &self.supply, *n, within);
        }
        let hint = match self.all_of.is_empty() {
            true => request.affinity(machine, &self.supply)?,
            false => request.affinity(machine, &self.whole())?,
        };
        let more = n - self.all_of.len();
        let chosen = allocate(machine, settings, &self.supply, more, Some(hint))?;
        Ok(Placement { cpus: chosen.cpus | self.all_of, hint })
    }
}

/// The ways to meet a request, in order. CPUs that the pod has to use again come first, as
/// otherwise they would be idle until the pod ends. Their bad alignment is no reason to refuse: the
/// pod would wait for ever.
fn attempts(request: &Request) -> Vec<Attempt> {
    let free = request.free;
    match request.reuse {
        Reuse::Beside(reusable) => vec![Attempt::of(free, reusable)],
        Reuse::First(ended) => {
            let all = Attempt::of(free | ended, CpuSet::EMPTY);
            match request.cpus.checked_sub(ended.len()) {
                None | Some(0) => vec![Attempt::of(ended, CpuSet::EMPTY), all],
                // The wishes decide which CPUs go with each other.
                Some(_) if request.wishes != Wishes::NONE => vec![all],
                Some(_) => {
                    let first = Attempt { all_of: ended, ..Attempt::of(free, CpuSet::EMPTY) };
                    vec![first, all]
                }
            }
        }
    }
}

impl Request {
    /// The NUMA affinity of the container; in pod scope that of its pod.
    ///
    /// The engine chooses a pod's affinity with its first container that has exclusive CPUs, and
    /// with the devices of that container. It includes all NUMA nodes on which the pod has CPUs.
    fn affinity(&self, machine: &Topology, supply: &Supply) -> Result<Hint, Rejection> {
        let devices = self.wishes.devices;
        match &self.pod {
            None => affinity(machine, &self.settings, supply, self.cpus, devices),
            Some(pod) => match pod.chosen {
                Some(hint) => Ok(hint),
                None => {
                    affinity(machine, &self.settings, &self.pod_supply(pod.held), pod.cpus, devices)
                }
            },
        }
    }

    /// What the affinity of a pod that holds these CPUs follows from.
    fn pod_supply(&self, held: CpuSet) -> Supply {
        Supply { free: self.free - held, reusable: held }
    }

    /// The part of `free` that may be added to `held`: with `full-pcpus-only` (KEP-2625) whole
    /// cores, so that no other container runs on their siblings; with `smt: isolate` one CPU of
    /// each whole core.
    ///
    /// On a machine with one CPU per core on average that option has no effect.
    fn growable(&self, machine: &Topology, held: &CpuSet) -> CpuSet {
        if self.wishes.isolates() {
            return self.wishes.offered(machine, &self.free, held) - *held;
        }
        if !self.settings.options.full_pcpus_only || machine.cpus_per_core() < 2 {
            return self.free;
        }
        let ours = self.free | *held;
        let cores = machine.cores().iter().map(|core| core.cpus);
        cores.filter(|core| core.is_subset(&ours)).collect::<CpuSet>() & self.free
    }
}

impl Engine for Kubelet {
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
        if let Reuse::Beside(reusable) = request.reuse {
            return Attempt::of(request.free, reusable).place(machine, request);
        }
        let mut result = Err(Rejection::topology_affinity());
        for attempt in attempts(request) {
            result = attempt.place(machine, request);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The NUMA affinity is no reason to refuse a resize: the topology manager's policy decides
    /// where a container may start (KEP-693). A running one keeps its CPUs and gets the nearest
    /// free ones.
    fn resize(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
    ) -> Result<CpuSet, Rejection> {
        let Request { settings, wishes, cpus: n, .. } = request;
        let near = request.growable(machine, held);
        let supply = Supply { free: near | *held, reusable: CpuSet::EMPTY };
        if !wishes.isolates() {
            check_whole_cores(machine, settings, &supply, *n)?;
        }
        let Some(more) = n.checked_sub(held.len()) else {
            return Ok(shrink(machine, held, *n));
        };
        let grown = grow(machine, held, &near, more)?;
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

    fn complete(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
        broken: &CpuSet,
    ) -> Option<CpuSet> {
        // The rest of a broken core is no whole core.
        let whole = if request.settings.options.full_pcpus_only { *held - *broken } else { *held };
        [whole, *held].into_iter().find_map(|keep| {
            let more = request.cpus.checked_sub(keep.len())?;
            grow(machine, &keep, &request.growable(machine, &keep), more).ok()
        })
    }

    fn explain(
        &self,
        machine: &Topology,
        request: &Request,
        placement: Option<&Placement>,
    ) -> Weighed {
        let tried = attempts(request);
        let decisive = |attempt: &Attempt| match placement {
            Some(placement) => attempt.place(machine, request).as_ref() == Ok(placement),
            None => false,
        };
        let attempt = tried.iter().copied().find(decisive).or(tried.last().copied());
        let Some(attempt) = attempt else { return Weighed::default() };
        let (numa, supply) = numa_sets(machine, request, &attempt.whole());
        let inside = |hint: &Hint| inside(machine, hint.nodes.unwrap_or_default(), false);
        let chosen = placement.map(|placement| placement.hint);
        let is_chosen = |hint: &Hint| chosen.is_some_and(|chosen| chosen.nodes == hint.nodes);
        let listed = numa.iter().flatten().enumerate();
        let listed = listed.filter(|(at, hint)| *at < MAX_SETS || is_chosen(hint));
        let listed = listed.map(|(_, hint)| NumaCandidate {
            hint: *hint,
            free: (inside(hint) & supply).len(),
            chosen: is_chosen(hint),
        });
        let preferred = |sets: &Vec<Hint>| sets.iter().filter(|hint| hint.preferred).count();
        Weighed {
            reasons: placement.map_or_else(Vec::new, |placement| reasons(request, placement.hint)),
            numa: listed.collect(),
            numa_sets: numa.as_ref().map(|sets| (sets.len(), preferred(sets))),
            uncores: caches(machine, request, &attempt, placement),
        }
    }
}

/// Sets of NUMA nodes that have room, the narrowest first, and the CPUs that they follow from; no
/// sets if nodes do not matter or the sets are too many to list.
fn numa_sets(
    machine: &Topology,
    request: &Request,
    supply: &Supply,
) -> (Option<Vec<Hint>>, CpuSet) {
    let settings = &request.settings;
    let (machine, supply, n) = match &request.pod {
        Some(pod) => (Cow::Borrowed(machine), request.pod_supply(pod.held), pod.cpus),
        None => {
            let (machine, supply) = narrowed(machine, settings, &request.wishes, supply);
            (machine, supply, request.cpus)
        }
    };
    let available = supply.free - settings.reserved;
    let listed = settings.topology_manager.policy != TopologyPolicy::None
        && machine.nodes().len() <= MAX_NODES;
    let align = settings.options.align_by_socket;
    let sets =
        listed.then(|| Demand::new(&machine, &available, &supply.reusable, n, align).enumerate());
    (sets, available | supply.reusable)
}

fn caches(
    machine: &Topology,
    request: &Request,
    attempt: &Attempt,
    placement: Option<&Placement>,
) -> Vec<CacheCandidate> {
    let supply = attempt.whole();
    let free = (supply.free | supply.reusable) - request.settings.reserved;
    let taken = placement.map(|placement| placement.cpus).unwrap_or_default();
    let offered = request.wishes.offered(machine, &free, &CpuSet::EMPTY);
    let uncores = machine.uncores().iter();
    let candidate = |uncore: &Domain| CacheCandidate {
        id: uncore.id,
        free: uncore.cpus & free,
        // With idle siblings each CPU needs a whole core.
        fits: (uncore.cpus & offered).len() >= request.cpus,
        taken: (uncore.cpus & taken).len(),
    };
    uncores.map(candidate).collect()
}

fn named(nodes: NodeSet) -> String {
    format!("NUMA node{} {nodes}", if nodes.len() == 1 { "" } else { "s" })
}

fn reasons(request: &Request, hint: Hint) -> Vec<String> {
    let Request { settings, wishes, pod, .. } = request;
    let manager = &settings.topology_manager;
    let policy = manager.policy.name();
    let mut why = vec![match hint.nodes {
        _ if manager.policy == TopologyPolicy::None => {
            format!("topologyManagerPolicy {policy}: NUMA nodes had no say.")
        }
        None => format!("topologyManagerPolicy {policy}: any NUMA node was as good."),
        Some(nodes) => {
            let of = match pod {
                Some(pod) => format!(" for the {} CPUs of its pod", pod.cpus),
                None => String::new(),
            };
            let fit = match hint.preferred {
                true => "as good as any could be",
                false => "the best there was; on an empty machine there would be better ones",
            };
            format!("topologyManagerPolicy {policy}: {}{of}, {fit}.", named(nodes))
        }
    }];
    if !wishes.devices.is_empty() && manager.policy != TopologyPolicy::None {
        why.push(format!("Its devices are on {}.", named(wishes.devices)));
    }
    if settings.options.prefer_align_cpus_by_uncorecache {
        let order = match settings.options.uncore_order {
            UncoreOrder::FewestFree => "the one with the fewest free CPUs first",
            UncoreOrder::Numerical => "by number",
        };
        let by = match wishes.uncore {
            Some(Uncore::Prefer) => "uncore: prefer",
            Some(Uncore::Require) => "uncore: require",
            Some(Uncore::Ignore) => "uncore: ignore",
            None => "prefer-align-cpus-by-uncorecache",
        };
        why.push(format!(
            "{by}: whole uncore caches first, then one that can hold the rest, {order}."
        ));
    }
    why
}
