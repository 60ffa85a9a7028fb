//! [`Attempt`]: one way to meet a request. The first that works is taken.

use super::allocate::{Supply, affinity, allocate};
use super::devices;
use super::wished;
use crate::engine::Placement;
use crate::hint::Hint;
use crate::rejection::Rejection;
use crate::request::{PodDemand, Request, Reuse};
use cpuset::CpuSet;
use topology::Topology;

#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// CPUs that the answer includes in any case.
    all_of: CpuSet,
    supply: Supply,
}

/// The first of all attempts that works, or the rejection of the last one.
pub(super) fn place(machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
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

/// The ways to meet a request, in order, at least one. CPUs that the pod has to use again come
/// first, as otherwise they would be idle until the pod ends. Their bad alignment is no reason to
/// refuse: the pod would wait for ever.
pub(super) fn attempts(request: &Request) -> Vec<Attempt> {
    let free = request.free;
    match request.reuse {
        Reuse::Beside(reusable) => vec![Attempt::of(free, reusable)],
        Reuse::First(ended) => {
            let all = Attempt::of(free | ended, CpuSet::EMPTY);
            match request.cpus.checked_sub(ended.len()) {
                None | Some(0) => vec![Attempt::of(ended, CpuSet::EMPTY), all],
                // The wishes decide which CPUs go with each other.
                Some(_) if is_particular(request) => vec![all],
                Some(_) => {
                    let first = Attempt { all_of: ended, ..Attempt::of(free, CpuSet::EMPTY) };
                    vec![first, all]
                }
            }
        }
    }
}

/// Whether the container has wishes or devices, of which the kubelet's own allocation knows
/// nothing.
fn is_particular(request: &Request) -> bool {
    !request.wishes.are_of_node() || !request.devices.is_empty()
}

impl Attempt {
    fn of(free: CpuSet, reusable: CpuSet) -> Attempt {
        Attempt { all_of: CpuSet::EMPTY, supply: Supply { free, reusable } }
    }

    /// What the NUMA affinity follows from.
    pub(super) fn whole(&self) -> Supply {
        Supply { reusable: self.supply.reusable | self.all_of, ..self.supply }
    }

    pub(super) fn place(
        &self,
        machine: &Topology,
        request: &Request,
    ) -> Result<Placement, Rejection> {
        let Request { settings, cpus: n, pod, .. } = request;
        if is_particular(request) {
            // A container's affinity depends on the CPUs that its wishes leave; a pod's does not.
            let within = pod.map(|pod| pod_affinity(machine, request, &pod)).transpose()?;
            return wished::allocate(machine, request, &self.supply, within);
        }
        let hint = match pod {
            Some(pod) => pod_affinity(machine, request, pod)?,
            None if self.all_of.is_empty() => affinity(machine, settings, &self.supply, *n)?,
            None => affinity(machine, settings, &self.whole(), *n)?,
        };
        let more = n - self.all_of.len();
        let chosen = allocate(machine, settings, &self.supply, more, Some(hint))?;
        Ok(Placement { cpus: chosen.cpus | self.all_of, hint })
    }
}

/// The NUMA affinity of a pod: chosen with its first container that has exclusive CPUs, and with
/// the devices of that container. It includes all NUMA nodes on which the pod has CPUs.
fn pod_affinity(machine: &Topology, request: &Request, pod: &PodDemand) -> Result<Hint, Rejection> {
    match pod.chosen {
        Some(hint) => Ok(hint),
        None => {
            let supply = pod_supply(request, pod);
            devices::affinity(machine, &request.settings, &supply, pod.cpus, request.devices.all())
        }
    }
}

/// What the affinity of a pod follows from.
pub(super) fn pod_supply(request: &Request, pod: &PodDemand) -> Supply {
    Supply { free: request.free - pod.held, reusable: pod.held }
}
