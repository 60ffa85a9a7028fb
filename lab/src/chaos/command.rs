//! `hack/chaos`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Changes, StormSettings, Summary};
use crate::binaries::Binaries;
use crate::cache;
use crate::command::progress;
use crate::host::Host;
use crate::images::Shipped;
use crate::job::Software;
use crate::task::Task;
use crate::testbed::Testbed;
use crate::vm::{self, Machine};

/// Default of `--cpus`.
const CPUS: usize = 16;

/// Configuration for `--rebalance`.
const REBALANCE: &str = "placement: compact\nrebalance: {movesPer100Starts: 100, minStay: 0s}\n";

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How often the plugin, the runtime or both are killed
    #[arg(long, default_value_t = 30)]
    pub kills: u64,
    /// Containers created between two kills, on average
    #[arg(long, default_value_t = 10)]
    pub creations_per_kill: u64,
    /// Seed of the random choices; threads interleave differently each time
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of concurrent kubelets
    #[arg(long, default_value_t = 4)]
    pub workers: usize,
    /// Where to run: on a virtual machine or on this machine
    #[arg(long, value_enum, default_value_t = Location::Server)]
    pub on: Location,
    /// CPUs of the virtual machine
    #[arg(long, default_value_t = CPUS)]
    pub cpus: usize,
    /// Software of the virtual machine; on this machine only --runtime applies
    #[command(flatten)]
    pub software: Software,
    /// Plugin binary to use instead of the one built here
    #[arg(long)]
    pub plugin: Option<PathBuf>,
    /// Exclusivity mechanism, as in the configuration
    #[arg(long, value_parser = ["runtime", "groups", "auto", "kernel"], default_value = "auto")]
    pub exclusivity: String,
    /// Additional configuration of the plugin, as YAML
    #[arg(long, default_value = "")]
    pub config: String,
    #[command(flatten)]
    pub changes: Changes,
    /// Run the plugin in its pod, as shipped
    #[arg(long)]
    pub confined: bool,
    /// Kill only the runtime: with the plugin alive, no container may ever run on exclusive CPUs of
    /// another pod, and no cgroup may be distrusted
    #[arg(long)]
    pub only_runtime: bool,
    /// Write what the runtime sends to the plugin into this file
    #[arg(long, conflicts_with = "confined")]
    pub record: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Location {
    Server,
    Host,
}

pub fn run(options: &Options) -> Result<()> {
    let mut binaries = Binaries::build()?;
    if let Some(plugin) = &options.plugin {
        binaries.programs.plugin.clone_from(plugin);
    }
    let summary = storm(options, &binaries)?;
    for finding in &summary.findings {
        println!("{finding}");
    }
    let path = cache::directory("chaos")?.join("storm.log");
    std::fs::write(&path, &summary.log).context("cannot write the logs")?;
    println!("logs of plugin and runtime: {}", path.display());
    if let Some(record) = &options.record {
        std::fs::write(record, &summary.recording).context("cannot write the recording")?;
    }
    let seconds = summary.millis as f64 / 1000.0;
    println!(
        "exclusivity {}, {} driver: {} kills of the runtime, classes rewritten {} times",
        options.exclusivity,
        options.software.driver.name(),
        summary.runtime_kills,
        summary.realised
    );
    println!(
        "seed {}, {} workers: {seconds:.0} s, {:.1} creations/s, {} exclusive, {} refused, {} failed; {} check passes; \
         longest repair {:.1} s",
        options.seed,
        options.workers,
        summary.creations as f64 / seconds.max(0.001),
        summary.exclusive,
        summary.refused,
        summary.failed,
        summary.checks,
        summary.longest_repair as f64 / 1000.0
    );
    if !summary.distrusted.is_empty() {
        println!("distrusted cgroups: {}", summary.distrusted.join("; "));
    }
    if summary.kernel_warned {
        println!("the kernel warned or oopsed: see its log");
    }
    println!("{}", summary.line());
    if !summary.is_good() {
        bail!("an invariant was violated");
    }
    if let Some(why) = summary.is_void() {
        bail!("{why}: this storm proves nothing");
    }
    Ok(())
}

/// A storm, and the plugin in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StormTask {
    config: String,
    /// Whether the plugin runs in its pod, as shipped.
    confined: bool,
    /// Whether what the runtime sends to it is recorded.
    record: bool,
    settings: StormSettings,
}

impl StormTask {
    fn of(options: &Options) -> Self {
        // Reserved CPUs never go offline: the shared pool must not be empty.
        let reserved = if options.changes.hotplug { "0-1" } else { "0" };
        let moves = if options.changes.rebalance { REBALANCE } else { "" };
        Self {
            config: format!(
                "cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\nexclusivity: {}\n{moves}{}\n",
                options.exclusivity, options.config
            ),
            confined: options.confined,
            record: options.record.is_some(),
            settings: StormSettings {
                kills: options.kills,
                creations_per_kill: options.creations_per_kill,
                workers: options.workers,
                seed: options.seed,
                reserved: reserved.to_owned(),
                changes: options.changes,
                only_runtime: options.only_runtime,
            },
        }
    }

    pub(crate) fn run(&self, testbed: &mut Testbed<'_>) -> Result<Summary> {
        if self.confined {
            testbed.start_plugin(&self.config)?;
        } else {
            testbed.start_bare(&self.config, self.record)?;
        }
        testbed.storm(&self.settings)
    }
}

fn storm(options: &Options, binaries: &Binaries) -> Result<Summary> {
    let task = StormTask::of(options);
    match options.on {
        Location::Host => {
            if options.changes.hotplug {
                bail!("--hotplug needs a virtual machine: remove it or --on host");
            }
            let software = Software::from(options.software.version);
            if options.software != software || options.cpus != CPUS {
                bail!(
                    "--oci, --driver and --cpus need a virtual machine: remove them or --on host"
                );
            }
            let mut host = Host::start(options.software.version, &binaries.probe)?;
            let mut report = |text: &str| progress(text);
            let shipped = Shipped::with(binaries.programs.clone(), &cache::directory("host")?)?;
            let mut testbed = Testbed::new(&mut host.node, &shipped, &mut report);
            let summary = testbed.run(|testbed| task.run(testbed));
            // Also after a failure.
            testbed.clear()?;
            summary
        }
        Location::Server => {
            // Many small caches: containers often lie across several.
            let caches = if options.changes.rebalance { options.cpus / 4 } else { 2 };
            let cores = options.cpus / caches.max(1);
            let machine = Machine { memory: 4096, ..Machine::single("chaos", caches, cores) };
            // A kill with a restart takes some seconds on emulated CPUs, and more if the plugin
            // runs in a container.
            let kill = if options.confined { 20 } else { 10 };
            let patience =
                Duration::from_secs(600 + options.kills * (kill + options.creations_per_kill * 3));
            vm::run(&machine, options.software, Task::Storm(task), binaries, patience)
        }
    }
}
