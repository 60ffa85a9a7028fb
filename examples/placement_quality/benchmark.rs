//! Placement quality under churn: one workload on one machine, placed by one engine, and figures of
//! the result.
//!
//! Everything is in integers and follows from a seed. The decisions are those of the ledger, driven
//! by the same simulation as `cpuctl simulate`; docs/placement-quality.md defines workload
//! and figures.

mod engines;
pub(crate) mod figures;
mod machines;
mod mixes;
mod observer;
mod quantiles;
mod workload;

pub(crate) use engines::{ENGINES, EngineConfig};
pub(crate) use machines::{NamedMachine, machines};
pub(crate) use mixes::{MIXES, Mix};
pub(crate) use workload::Length;

use figures::Figures;
use ledger::Ledger;
use observer::Observer;
use simulate::NoRoom;
use workload::workload;

/// Runs a workload of this mix that requests `load` percent of the machine's CPUs on average.
pub(crate) fn run(
    machine: &NamedMachine,
    (mix, load): (&Mix, u64),
    engine: &EngineConfig,
    seed: u64,
    length: Length,
) -> Figures {
    let sizes = mix.sizes(machine);
    let workload = workload(machine, &sizes, load, seed, length.arrivals);
    let settings = engine.settings(machine, mix);
    let mut ledger = Ledger::new(machine.topology.clone(), settings, Vec::new());
    let mut observer = Observer::new(machine, length);
    simulate::run(&mut ledger, &workload, NoRoom::Drop, None, &mut observer);
    observer.figures()
}
