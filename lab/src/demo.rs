//! The demo: KEP-4800's example on a virtual machine, drawn.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::binaries::Binaries;
use crate::command::progress;
use crate::containerd::Version;
use crate::picture;
use crate::scenario::{self, Order, RESERVED};
use crate::vm::{self, Machine};

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Uncore cache order: the KEP's numerical order, or the kubelet's fewest free CPUs
    #[arg(long, value_enum, default_value_t = Order::Numerical)]
    pub order: Order,
    /// Without prefer-align-cpus-by-uncorecache: containers are split between uncore caches
    #[arg(long)]
    pub no_align: bool,
    /// containerd version
    #[arg(long, value_enum, default_value_t = Version::V2_1)]
    pub runtime: Version,
}

pub fn run(options: &Options) -> Result<()> {
    let binaries = Binaries::build()?;
    let steps = scenario::kep_4800(options.order, !options.no_align);
    let machine = Machine::load("kep-4800")?;
    let outcomes = vm::run(&machine, options.runtime, &steps, &binaries, Duration::from_secs(180))?;
    if let Some(refusal) = scenario::refusals(&outcomes).first() {
        bail!("the runtime refused a pod of the example: {refusal}");
    }
    let view = *scenario::views(&outcomes).first().context("the guest sent no view of the node")?;
    progress("where the processes may run:");
    let colour = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let reserved = RESERVED.parse().context("the reserved CPUs are not a list")?;
    let picture = picture::draw(view, &machine.topology()?, reserved, colour);
    println!("\n{picture}\n{}", picture::verdict(view));
    if !view.disagreements().is_empty() {
        bail!("processes and decisions disagree");
    }
    Ok(())
}
