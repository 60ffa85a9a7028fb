//! The demo: KEP-4800's example on a virtual machine, drawn.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::command::progress;
use crate::containerd::Version;
use crate::picture;
use crate::task::Task;
use crate::testbed::Testbed;
use crate::view::View;
use crate::vm::{self, Machine};

/// Order in which uncore caches are tried
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Order {
    /// Lowest number with room, as in KEP-4800's text
    #[default]
    Numerical,
    /// Fewest free CPUs, as in the kubelet
    FewestFree,
}

/// Reserved CPUs of the example.
pub(crate) const RESERVED: &str = "0-1";

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

/// KEP-4800's example.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Example {
    /// Lines of the configuration.
    options: String,
}

impl Example {
    fn of(options: &Options) -> Self {
        let order = match options.order {
            Order::Numerical => "numerical",
            Order::FewestFree => "fewest-free",
        };
        let align = format!(
            "cpuManagerPolicyOptions: {{prefer-align-cpus-by-uncorecache: \"true\"}}\nuncoreCacheOrder: {order}\n"
        );
        Self { options: if options.no_align { String::new() } else { align } }
    }

    /// Two shared containers, exclusive ones of 10, 8 and 6 CPUs, and where they may run.
    pub(crate) fn play(&self, testbed: &mut Testbed<'_>) -> Result<View> {
        let Self { options } = self;
        testbed.start_plugin(&format!(
            "cpuManagerPolicy: static\n{options}reservedSystemCPUs: \"{RESERVED}\"\n"
        ))?;
        testbed.shared("web")?;
        testbed.shared("batch")?;
        [10, 8, 6].iter().try_for_each(|cpus| testbed.exclusive(&format!("cpus-{cpus}"), *cpus))?;
        testbed.look()
    }
}

pub fn run(options: &Options) -> Result<()> {
    let binaries = Binaries::build()?;
    let machine = Machine::load("kep-4800")?;
    let task = Task::Example(Example::of(options));
    let patience = Duration::from_secs(180);
    let view: View = vm::run(&machine, options.runtime, task, &binaries, patience)?;
    progress("where the processes may run:");
    let colour = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let reserved = RESERVED.parse().context("the reserved CPUs are not a list")?;
    let picture = picture::draw(&view, &machine.topology()?, reserved, colour);
    println!("\n{picture}\n{}", picture::verdict(&view));
    if !view.disagreements().is_empty() {
        bail!("processes and decisions disagree");
    }
    Ok(())
}
