//! Allocations with [`PodOptions`](crate::PodOptions), which the kubelet does not have.
//!
//! Most pod options switch options of the node for one container (`PodOptions::settings`). Three go
//! beyond the kubelet's options. They are ordinary allocations ([`allocate()`]) from a part of the
//! supply:
//!
//! * `uncore: require`, the strict alignment that KEP-4800 leaves to a later KEP: see [`required`];
//! * `uncore: exclusive`: the supply is the caches that are entirely free, and [`required`]
//!   searches the fewest of them;
//! * `smt: isolate`, the machine without SMT that KEP-2625 postponed: the supply is one CPU of each
//!   core that is entirely free. The container gets the whole core, and the ledger keeps the
//!   siblings idle.

pub(super) mod required;

use super::allocate::Supply;
use super::devices::{self, Others};
use crate::engine::Placement;
use crate::hint::Hint;
use crate::pod_options::{Smt, Uncore};
use crate::rejection::Rejection;
use crate::request::Request;
use cpuset::CpuSet;
use std::borrow::Cow;
use topology::Topology;

/// The machine and the supply without the CPUs that the pod options of `request` exclude.
pub(super) fn narrowed<'t>(
    topology: &'t Topology,
    request: &Request,
    supply: &Supply,
) -> (Cow<'t, Topology>, Supply) {
    let Request { settings, pod_options, .. } = request;
    let offered = pod_options.offered(topology, &supply.usable(topology, settings), &CpuSet::EMPTY);
    let supply = Supply { free: supply.free & offered, reusable: supply.reusable & offered };
    let machine = match pod_options.smt {
        // On a machine with one CPU per core, all counts of CPUs are counts of cores.
        Some(Smt::Isolate) if !offered.is_empty() => {
            Cow::Owned(topology.with_one_cpu_per_core(&offered))
        }
        _ => Cow::Borrowed(topology),
    };
    (machine, supply)
}

/// Chooses the CPUs of a container with pod options or devices from `supply`; `within` is as in
/// [`allocate()`](crate::kubelet::allocate()).
pub(super) fn allocate(
    topology: &Topology,
    request: &Request,
    supply: &Supply,
    within: Option<Hint>,
) -> Result<Placement, Rejection> {
    let &Request { ref settings, pod_options, devices, cpus: n, .. } = request;
    let usable = supply.usable(topology, settings);
    let (machine, supply) = narrowed(topology, request, supply);
    let offered = (supply.free | supply.reusable).len();
    if pod_options.takes_caches() && offered < n {
        return Err(request.too_few_caches(topology, &usable, &CpuSet::EMPTY));
    }
    if pod_options.isolates() && offered < n {
        return Err(Rejection::not_enough_idle_cores(n, offered));
    }
    let machine = machine.as_ref();
    if pod_options.uncore == Some(Uncore::Require) || pod_options.takes_caches() {
        return required::allocate(machine, request, &supply, within);
    }
    let hint = match within {
        Some(hint) => hint,
        None => devices::affinity(machine, settings, &supply, n, Others::of(request))?,
    };
    devices::allocate(machine, settings, &supply, n, hint, devices)
}

#[cfg(test)]
mod tests;
