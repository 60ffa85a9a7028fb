//! The plugin's size, its memory with many containers, and that it needs no other files.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::binaries::Binaries;
use crate::command::{command, run as run_command};
use crate::containerd::Version;
use crate::pod::{Container, Pod};
use crate::scenario::{Order, config, exclusive};
use crate::step::{Outcome, Step};
use crate::vm::{self, Machine};
use crate::{cache, files};

/// Containers in the measured node.
const CONTAINERS: usize = 100;

#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// Size of the static release binary.
    pub binary_bytes: u64,
    /// Output of `--version` in a root directory that holds only the binary.
    pub in_empty_root: String,
    /// Idle, with 100 containers.
    pub resident_kib: u64,
    /// Right after a restart with the same containers.
    pub resident_after_restart_kib: u64,
}

/// Prints one JSON object.
pub fn run() -> Result<()> {
    let measurement = measure(&Binaries::build()?)?;
    println!(
        "{}",
        serde_json::to_string_pretty(&measurement).context("cannot print the measurement")?
    );
    Ok(())
}

/// Runs in a VM: 14 pods of seven shared containers and two exclusive pods.
pub fn measure(binaries: &Binaries) -> Result<Measurement> {
    let binary_bytes = fs::metadata(&binaries.plugin).context("no plugin binary")?.len();
    let in_empty_root = in_empty_root(binaries)?;
    let mut steps = vec![Step::StartPlugin(config(Order::Numerical, true))];
    steps.extend([4, 6].map(|cpus| Step::Run(exclusive(&format!("cpus-{cpus}"), cpus))));
    let rest = CONTAINERS - 2;
    for pod in 0..rest / 7 {
        let containers = (0..7).map(|number| Container::burstable(&format!("c{number}"), 10));
        steps.push(Step::Run(Pod::new(&format!("shared-{pod}"), containers)));
    }
    steps.extend([Step::Measure, Step::KillPlugin, Step::Measure]);
    let outcomes = vm::run(
        &Machine::load("kep-4800")?,
        Version::V2_1,
        &steps,
        binaries,
        Duration::from_secs(400),
    )?;
    let resident: Vec<u64> = outcomes
        .iter()
        .filter_map(|o| if let Outcome::Resident(kib) = o { Some(*kib) } else { None })
        .collect();
    let [resident_kib, resident_after_restart_kib] = resident[..] else {
        bail!("expected two measurements, got {}", resident.len());
    };
    Ok(Measurement { binary_bytes, in_empty_root, resident_kib, resident_after_restart_kib })
}

fn in_empty_root(binaries: &Binaries) -> Result<String> {
    let root =
        tempfile::tempdir_in(cache::directory("runs")?).context("cannot create an empty root")?;
    let name = "nri-cpu-manager";
    files::copy(&binaries.plugin, &root.path().join(name))?;
    let output =
        run_command(command("chroot", [root.path()]).arg(format!("/{name}")).arg("--version"))?;
    Ok(output.trim().to_owned())
}
