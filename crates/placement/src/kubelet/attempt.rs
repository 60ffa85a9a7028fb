//! [`Attempt`]: one way to meet a request. The best answer is taken, and among equally good ones
//! the kubelet's.
//!
//! The kubelet gives CPUs of ended init containers out again without a preference for them, and
//! its NUMA affinity must include their nodes. So it can leave a pod with more CPUs than it
//! requests (kubernetes/kubernetes#112228), in more nodes than it needs, or refuse it for that
//! (kubernetes/kubernetes#123816). Here its answer is compared with those that do not depend on
//! where the ended containers were, and with those that use their CPUs first.

use super::allocate::{Supply, affinity, allocate};
use super::devices::{self, Others};
use super::with_options;
use crate::cores::whole_cores;
use crate::engine::Placement;
use crate::hint::{Hint, NumaNodes};
use crate::rejection::Rejection;
use crate::request::{PodDemand, Request};
use crate::strategy::Strategy;
use cpuset::{CpuSet, NodeSet};
use topology::Topology;

#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// CPUs that the answer includes in any case.
    all_of: CpuSet,
    supply: Supply,
}

/// Returns the best placement, or the kubelet's rejection.
pub(super) fn place(machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
    let kubelet = Attempt::of_kubelet(request).place(machine, request);
    if request.reuse.cpus.is_empty() {
        return kubelet;
    }
    let others = alternatives(machine, request);
    let others = others.iter().filter_map(|attempt| attempt.place(machine, request).ok());
    let placements = kubelet.iter().copied().chain(others);
    // The first one of equally good ones.
    let best = placements.min_by_key(|placement| Worth::of(machine, request, placement));
    best.map_or(kubelet, Ok)
}

/// All ways to meet a request, the kubelet's first.
pub(super) fn attempts(machine: &Topology, request: &Request) -> Vec<Attempt> {
    let mut attempts = vec![Attempt::of_kubelet(request)];
    if !request.reuse.cpus.is_empty() {
        attempts.extend(alternatives(machine, request));
    }
    attempts
}

fn alternatives(machine: &Topology, request: &Request) -> Vec<Attempt> {
    let reusable = request.reuse.cpus & machine.online();
    let reusable = reusable - request.settings.reserved;
    let mut attempts = vec![Attempt::of(request.free | reusable, CpuSet::EMPTY)];
    // A distribution over NUMA nodes or cores depends on all CPUs that are free.
    let Strategy::Packed { .. } = request.settings.options.strategy(machine, 0) else {
        return attempts;
    };
    if request.cpus <= reusable.len() {
        attempts.push(Attempt::of(reusable, CpuSet::EMPTY));
    } else if !is_more_than_cpus(request) {
        // Pod options, devices and memory decide which CPUs fit together, so there no CPU is chosen in
        // advance.
        let free = request.free - reusable;
        attempts.push(Attempt { all_of: reusable, ..Attempt::of(free, CpuSet::EMPTY) });
    }
    attempts
}

/// What makes one placement of a request better than another. The order of the fields is the order
/// of comparison; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    /// Whether devices or memory would be nearer elsewhere. Of CPUs alone their nodes show that: an
    /// affinity that includes those of ended containers may have none of their CPUs.
    is_far: bool,
    /// The NUMA nodes of the CPUs, which matter under policy `none`, too.
    nodes: usize,
    /// The sum of these nodes' distances, with `prefer-closest-numa-nodes`.
    distance: u64,
    /// The uncore caches, if their alignment is asked for.
    caches: usize,
    /// The cores of which other containers can get CPUs.
    split_cores: usize,
    /// CPUs that the pod gives up for others, which its budget does not cover.
    freed: usize,
}

impl Worth {
    fn of(machine: &Topology, request: &Request, placement: &Placement) -> Worth {
        let Request { settings, pod_options, reuse, .. } = request;
        let Placement { cpus, hint } = placement;
        let numa = NumaNodes::of(machine, &settings.topology_manager);
        let on = machine.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus));
        let on: NodeSet = on.map(|node| node.id).collect();
        let aligns =
            settings.options.prefer_align_cpus_by_uncorecache || pod_options.uncore.is_some();
        let tally = machine.tally(cpus);
        let split = machine.tally(&(whole_cores(machine, cpus) - *cpus));
        Worth {
            is_far: !hint.preferred && is_more_than_cpus(request),
            nodes: on.len(),
            distance: numa.distances.map_or(0, |distances| distances.total(on)),
            caches: if aligns { touched(&tally.uncores) } else { 0 },
            split_cores: touched(&split.cores),
            freed: (reuse.cpus - *cpus).len().saturating_sub(reuse.kept),
        }
    }
}

fn touched(counts: &[usize]) -> usize {
    counts.iter().filter(|count| **count > 0).count()
}

/// Whether the plain allocation of the kubelet is not enough.
fn is_more_than_cpus(request: &Request) -> bool {
    !request.pod_options.are_default_for_engines() || !Others::of(request).is_empty()
}

impl Attempt {
    fn of(free: CpuSet, reusable: CpuSet) -> Attempt {
        Attempt { all_of: CpuSet::EMPTY, supply: Supply { free, reusable } }
    }

    fn of_kubelet(request: &Request) -> Attempt {
        Attempt::of(request.free - request.reuse.cpus, request.reuse.cpus)
    }

    /// The supply for the NUMA affinity, which must include the nodes of all CPUs of the answer.
    pub(super) fn affinity_supply(&self) -> Supply {
        Supply { reusable: self.supply.reusable | self.all_of, ..self.supply }
    }

    pub(super) fn place(
        &self,
        machine: &Topology,
        request: &Request,
    ) -> Result<Placement, Rejection> {
        let Request { settings, cpus: n, pod, .. } = request;
        if is_more_than_cpus(request) {
            // Without a pod's affinity, `with_options` chooses one from the CPUs that the pod
            // options allow.
            let within = pod.map(|pod| pod_affinity(machine, request, &pod)).transpose()?;
            return with_options::allocate(machine, request, &self.supply, within);
        }
        let hint = match pod {
            Some(pod) => pod_affinity(machine, request, pod)?,
            None if self.all_of.is_empty() => affinity(machine, settings, &self.supply, *n)?,
            None => affinity(machine, settings, &self.affinity_supply(), *n)?,
        };
        let more = n - self.all_of.len();
        let chosen = allocate(machine, settings, &self.supply, more, Some(hint))?;
        Ok(Placement { cpus: chosen.cpus | self.all_of, hint })
    }
}

/// The NUMA affinity of a pod, chosen with its first container that has exclusive CPUs, and with
/// the devices of that container. It includes all NUMA nodes on which the pod holds CPUs.
fn pod_affinity(machine: &Topology, request: &Request, pod: &PodDemand) -> Result<Hint, Rejection> {
    match pod.chosen {
        Some(hint) => Ok(hint),
        None => {
            let supply = pod_supply(request, pod);
            devices::affinity(machine, &request.settings, &supply, pod.cpus, Others::of(request))
        }
    }
}

/// The supply for the NUMA affinity of a pod.
pub(super) fn pod_supply(request: &Request, pod: &PodDemand) -> Supply {
    Supply { free: (request.free | request.reuse.cpus) - pod.held, reusable: pod.held }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Shape, caches, set};
    use crate::request::Reuse;
    use crate::{
        DeviceNodes, Options, PlacementSettings, PodOptions, TopologyManager, TopologyPolicy,
        explain, place,
    };

    fn request(cpus: usize, free: &str, ended: &str, kept: usize) -> Request {
        Request {
            cpus,
            free: set(free),
            reuse: Reuse { cpus: set(ended), kept },
            promised: 0,
            pod: None,
            pod_options: PodOptions::NONE,
            devices: DeviceNodes::NONE,
            memory: None,
            settings: PlacementSettings { reserved: set("0"), ..PlacementSettings::default() },
        }
    }

    #[track_caller]
    fn check(machine: &Topology, request: &Request, expect: &str) {
        let placement = place(machine, request).unwrap();
        assert_eq!(placement.cpus.to_string(), expect);
        assert!(!explain(machine, request, Some(&placement)).reasons.is_empty());
    }

    #[test]
    fn the_kubelets_answer_stays_where_the_budget_covers_what_it_leaves() {
        check(&caches(1, 8), &request(2, "1-4", "5-6", 2), "1-2");
        check(&caches(1, 8), &request(2, "1-4", "5-6", 1), "5-6");
        check(&caches(1, 8), &request(3, "1-4", "5-6", 0), "1,5-6");
    }

    /// kubernetes/kubernetes#123816
    #[test]
    fn ended_containers_on_another_numa_node_refuse_nothing() {
        let machine = Shape { sockets: 1, nodes: 2, uncores: 1, cores: 4, threads: 1 }.build();
        for policy in TopologyPolicy::ALL {
            let mut request = request(4, "4-7", "3", 0);
            request.settings.topology_manager =
                TopologyManager { policy, ..TopologyManager::default() };
            check(&machine, &request, "4-7");
        }
    }

    #[test]
    fn whole_cores_of_ended_containers_count() {
        let machine = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 }.build();
        let mut request = request(4, "3,7", "1,5", 0);
        request.settings.options = Options { full_pcpus_only: true, ..Options::default() };
        check(&machine, &request, "1,3,5,7");
    }

    /// Other pods may rely on what the pod gives up with the same decision.
    #[test]
    fn cpus_that_become_free_meet_promises() {
        let machine = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 }.build();
        let request = Request { promised: 1, ..request(2, "2,6", "1", 0) };
        check(&machine, &request, "2,6");
        let refused = place(&machine, &Request { promised: 2, ..request }).unwrap_err();
        assert!(refused.to_string().contains("requested=2, available=1"), "{refused}");
    }
}
