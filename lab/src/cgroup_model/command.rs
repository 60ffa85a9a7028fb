//! `hack/lab cgroups`.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Comparison, ComparisonSettings};
use crate::binaries::Binaries;
use crate::command::progress;
use crate::debian::KernelPackage;
use crate::job::Software;
use crate::task::Task;
use crate::vm::{Machine, Turn, Vm};

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Name of a machine, or path of a machine file
    pub machine: String,
    /// Seed of the random actions
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of random actions
    #[arg(long, default_value_t = 5000)]
    pub steps: usize,
    /// Debian suite of the VM's kernel, such as forky, or SUITE/SERIES, such as
    /// bookworm-security/6.12 [default: bookworm-backports]
    #[arg(long)]
    pub kernel: Option<KernelPackage>,
    /// Software of the VM
    #[command(flatten)]
    pub software: Software,
}

/// The last line of standard output is the result.
pub fn run(options: &Options) -> Result<()> {
    let Options { machine, seed, steps, kernel, software } = options.clone();
    let binaries = Binaries::build()?;
    let vm = Vm {
        machine: &Machine::load(&machine)?,
        kernel: kernel.unwrap_or_default(),
        software,
        binaries: &binaries,
        // Nothing here depends on time.
        turn: Turn::WithOthers,
        // An action takes some milliseconds, on a busy machine with emulated CPUs up to 0.2 s.
        patience: Duration::from_secs(600 + steps as u64 / 5),
    };
    let comparison: Comparison =
        vm.run(Task::CompareCgroups(ComparisonSettings { seed, steps }))?;
    progress("compared");
    println!("{comparison}");
    if comparison.difference.is_some() {
        bail!("the cgroup model differs from the kernel");
    }
    Ok(())
}
