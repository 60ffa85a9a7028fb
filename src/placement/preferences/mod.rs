//! Allocations under [`Wishes`], which the kubelet does not know.
//!
//! Most wishes switch the node's own options for one container ([`Wishes::settings`]). Two go
//! beyond the kubelet's options, and are ordinary allocations from a part of the supply
//! ([`allocate()`]):
//!
//! * `uncore: require`, the strict alignment that KEP-4800 leaves to a later one: see [`required`];
//! * `smt: isolate`, the machine without SMT that KEP-2625 postponed: one CPU is offered of each
//!   core that is free as a whole, and the container that holds it holds the core. The ledger keeps
//!   its siblings idle.

pub mod devices;
pub mod required;

use super::answer::{Placement, Supply};
use super::cores::whole_cores;
use super::kubelet::allocate;
use super::kubelet::hints::Hint;
use super::rejection::Rejection;
use super::settings::Settings;
use super::wishes::{Smt, Uncore, Wishes};
use crate::cpuset::CpuSet;
use crate::topology::Topology;
use std::borrow::Cow;

/// The machine and the supply without what these wishes exclude.
pub fn narrowed<'t>(
    topology: &'t Topology,
    settings: &Settings,
    wishes: &Wishes,
    supply: &Supply,
) -> (Cow<'t, Topology>, Supply) {
    let all = ((supply.free | supply.reusable) & topology.online()) - settings.reserved;
    let offered = wishes.offered(topology, &all, &CpuSet::EMPTY);
    let supply = Supply { free: supply.free & offered, reusable: supply.reusable & offered };
    let machine = match wishes.smt {
        // A machine of one CPU per core: all that counts CPUs counts cores then.
        Some(Smt::Isolate) if !offered.is_empty() => {
            Cow::Owned(topology.with_one_cpu_a_core(&offered))
        }
        _ => Cow::Borrowed(topology),
    };
    (machine, supply)
}

/// Chooses `n` exclusive CPUs for a container with wishes. `settings` are [`Wishes::settings`], the
/// rest is as in [`allocate()`](allocate::allocate()).
///
/// # Errors
/// As there; [`Reason::SmtAlignment`](crate::placement::Reason::SmtAlignment) or
/// [`Reason::UncoreAlignment`](crate::placement::Reason::UncoreAlignment) if a wish cannot be met
/// now.
pub fn allocate(
    topology: &Topology,
    settings: &Settings,
    wishes: &Wishes,
    supply: &Supply,
    n: usize,
    within: Option<Hint>,
) -> Result<Placement, Rejection> {
    let (machine, supply) = narrowed(topology, settings, wishes, supply);
    let offered = (supply.free | supply.reusable).len();
    if wishes.isolates() && offered < n {
        return Err(Rejection::not_enough_idle_cores(n, offered));
    }
    let machine = machine.as_ref();
    let devices = wishes.devices;
    let allocation = match (wishes.uncore, within) {
        (Some(Uncore::Require), _) => {
            required::allocate(machine, settings, &supply, n, within, devices)?
        }
        (_, Some(_)) => allocate::allocate(machine, settings, &supply, n, within)?,
        (_, None) => {
            let hint = devices::affinity(machine, settings, &supply, n, devices)?;
            allocate::allocate(machine, settings, &supply, n, Some(hint))?
        }
    };
    // Where cores are of unequal sizes, a number of CPUs need not be made of whole ones.
    let whole = || whole_cores(topology, &allocation.cpus) == allocation.cpus;
    match wishes.smt {
        Some(Smt::FullCores) if !whole() => Err(Rejection::cores_of_other_sizes(n)),
        _ => Ok(allocation),
    }
}

#[cfg(test)]
mod tests;
