//! CPUs that the kernel was booted to isolate: engines know none. They get a request for the part of
//! the machine in which a container may run, and the rest counts as reserved.

use super::engine::{Engine, Placement, Weighed};
use super::rejection::Rejection;
use super::request::{Request, Reuse};
use super::settings::IsolatedCpus;
use cpuset::CpuSet;
use topology::Topology;

/// The answer for the first part of the machine in which the request can be met, or the rejection for
/// the last one. `held` is what a container has already, isolated or not: it keeps that.
pub(super) fn first_that_fits<T>(
    machine: &Topology,
    request: &Request,
    held: &CpuSet,
    answer: impl Fn(&Request) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    if is_whole(machine, request) {
        return answer(request);
    }
    let isolated = machine.isolated();
    let others = machine.online() - isolated;
    let held = request.footprint(machine, held);
    let only = |part: CpuSet| answer(&within(machine, request, &(part | held)));
    match request.settings.isolated {
        IsolatedCpus::Exclude => only(others),
        IsolatedCpus::Prefer => {
            only(isolated).or_else(|_| only(others)).or_else(|_| answer(request))
        }
        IsolatedCpus::Require => {
            let assignable = isolated & (machine.online() - request.settings.reserved);
            let room = ((request.free | request.reuse.cpus()) & assignable) | held;
            if room.len() < request.cpus {
                let (free, all) = (room.len(), (assignable | held).len());
                return Err(Rejection::not_enough_isolated(request.cpus, free, all));
            }
            only(isolated)
        }
    }
}

/// What the engine considered in the part of the machine that decided.
pub(super) fn explain(
    machine: &Topology,
    request: &Request,
    placement: Option<&Placement>,
    engine: &dyn Engine,
) -> Weighed {
    if is_whole(machine, request) {
        return engine.explain(machine, request, placement);
    }
    let isolated = machine.isolated();
    let others = machine.online() - isolated;
    let taken = placement.map(|placement| placement.cpus & isolated).unwrap_or_default();
    let (part, why) = match request.settings.isolated {
        IsolatedCpus::Exclude => (others, "isolated CPUs are for containers that wish for them"),
        IsolatedCpus::Require => (isolated, "isolated CPUs only"),
        IsolatedCpus::Prefer => match placement {
            Some(placement) if taken == placement.cpus => (isolated, "all of its CPUs are isolated"),
            Some(_) if taken.is_empty() => (others, "too few isolated CPUs were free, it has none"),
            Some(_) => (machine.online(), "too few CPUs of one kind were free, it has both"),
            None => (machine.online(), "isolated CPUs first"),
        },
    };
    let mut weighed = engine.explain(machine, &within(machine, request, &part), placement);
    if placement.is_some() {
        weighed.reasons.push(format!("isolatedCPUs {}: {why}.", request.settings.isolated.name()));
    }
    weighed
}

/// Whether a container with this request may run on every CPU of the machine, and prefers none.
fn is_whole(machine: &Topology, request: &Request) -> bool {
    machine.isolated().is_empty() && request.settings.isolated != IsolatedCpus::Require
}

/// The request in a part of the machine.
fn within(machine: &Topology, request: &Request, part: &CpuSet) -> Request {
    let mut narrowed = *request;
    narrowed.free &= *part;
    narrowed.reuse = match request.reuse {
        Reuse::Beside(cpus) => Reuse::Beside(cpus & *part),
        Reuse::First(cpus) => Reuse::First(cpus & *part),
    };
    narrowed.settings.reserved |= machine.online() - *part;
    narrowed
}
