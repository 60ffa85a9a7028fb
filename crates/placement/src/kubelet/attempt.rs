//! [`Attempt`]: one way to meet a request. The first one that works is taken.

use super::allocate::{Supply, affinity, allocate};
use super::devices::{self, Others};
use super::wished;
use crate::engine::Placement;
use crate::hint::Hint;
use crate::rejection::Rejection;
use crate::request::{PodDemand, Request, Reuse};
use cpuset::CpuSet;
use topology::Topology;

#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    all_of: CpuSet,
    supply: Supply,
}

/// Returns the first placement that works, or the rejection of the last attempt.
pub(super) fn place(machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
    if let Reuse::IfBetter(reusable) = request.reuse {
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

/// The ways to meet a request, in order; at least one. CPUs that the pod must use again come first:
/// otherwise they would stay idle until the pod ends. Their bad alignment is no reason to refuse,
/// because it would not change and the pod would wait forever.
pub(super) fn attempts(request: &Request) -> Vec<Attempt> {
    let free = request.free;
    match request.reuse {
        Reuse::IfBetter(reusable) => vec![Attempt::of(free, reusable)],
        Reuse::BeforeFree(ended) => {
            let all = Attempt::of(free | ended, CpuSet::EMPTY);
            match request.cpus.checked_sub(ended.len()) {
                None | Some(0) => vec![Attempt::of(ended, CpuSet::EMPTY), all],
                // Wishes, devices and memory decide which CPUs fit together, so no CPU is chosen in
                // advance.
                Some(_) if is_more_than_cpus(request) => vec![all],
                Some(_) => {
                    let first = Attempt { all_of: ended, ..Attempt::of(free, CpuSet::EMPTY) };
                    vec![first, all]
                }
            }
        }
    }
}

/// Whether the plain allocation of the kubelet is not enough.
fn is_more_than_cpus(request: &Request) -> bool {
    !request.wishes.are_default_for_engines() || !Others::of(request).is_empty()
}

impl Attempt {
    fn of(free: CpuSet, reusable: CpuSet) -> Attempt {
        Attempt { all_of: CpuSet::EMPTY, supply: Supply { free, reusable } }
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
            // Without a pod's affinity, `wished` chooses one from the CPUs that the wishes allow.
            let within = pod.map(|pod| pod_affinity(machine, request, &pod)).transpose()?;
            return wished::allocate(machine, request, &self.supply, within);
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
    Supply { free: request.free - pod.held, reusable: pod.held }
}
