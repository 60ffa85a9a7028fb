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

pub(super) mod required;

use super::allocate::{self, Supply};
use super::devices;
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;
use crate::placement::cores::whole_cores;
use crate::placement::engine::Placement;
use crate::placement::hint::Hint;
use crate::placement::rejection::Rejection;
use crate::placement::settings::Settings;
use crate::placement::wishes::{Smt, Uncore, Wishes};
use crate::topology::Topology;
use std::borrow::Cow;

/// The machine and the supply without what these wishes exclude.
pub(super) fn narrowed<'t>(
    topology: &'t Topology,
    settings: &Settings,
    wishes: &Wishes,
    supply: &Supply,
) -> (Cow<'t, Topology>, Supply) {
    let offered = wishes.offered(topology, &supply.usable(topology, settings), &CpuSet::EMPTY);
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

/// Chooses `n` exclusive CPUs for a container with wishes and `devices` on these NUMA nodes.
/// `settings` are [`Wishes::settings`], the rest is as in [`allocate()`](allocate::allocate()).
pub(super) fn allocate(
    topology: &Topology,
    settings: &Settings,
    (wishes, devices): (&Wishes, NodeSet),
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
    let allocation = if wishes.uncore == Some(Uncore::Require) {
        required::allocate(machine, settings, &supply, n, within, devices)?
    } else {
        let hint = match within {
            Some(hint) => hint,
            None => devices::affinity(machine, settings, &supply, n, devices)?,
        };
        allocate::allocate(machine, settings, &supply, n, Some(hint))?
    };
    // Where cores are of unequal sizes, a number of CPUs need not be made of whole ones.
    let wants_whole = wishes.smt == Some(Smt::FullCores);
    if wants_whole && whole_cores(topology, &allocation.cpus) != allocation.cpus {
        return Err(Rejection::cores_of_other_sizes(n));
    }
    Ok(allocation)
}

#[cfg(test)]
mod tests;
