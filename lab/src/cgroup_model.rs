//! The plugin's model of cgroup v2 cpusets ([`Tree`](nri_cpu_manager::exclusivity::cgroup_tree))
//! held against a kernel: `hack/lab cgroups`, and the step for it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::command::progress;
use crate::software::Software;
use crate::step::{Outcome, Step};
use crate::vm::{self, Machine};

mod drive;

pub(crate) use drive::compare;

/// What is compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// The same seed gives the same actions on machines with the same CPUs.
    pub seed: u64,
    /// Random actions; all groups are compared after each.
    pub steps: usize,
}

/// What a comparison found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// As in the settings.
    pub seed: u64,
    /// Actions carried out, the one that led to a difference included.
    pub steps: usize,
    /// CPU lists compared: two a group, and one a process.
    pub lists: usize,
    /// Groups compared that had CPUs set but ran on all of their parent's, as none was left of the
    /// cut.
    pub cut_empty: usize,
    /// How often each kind of action had each result.
    pub results: BTreeMap<String, usize>,
    /// The first difference. Nothing is done after it.
    pub difference: Option<Difference>,
}

/// Where model and kernel differ.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Difference {
    /// Every group or result that differs, a line each.
    pub differs: Vec<String>,
    /// The last actions and their results, up to the one that led here.
    pub history: Vec<String>,
    /// All groups in the model before that action.
    pub before: Vec<String>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, lists, cut_empty, results, difference } = self;
        let results: Vec<String> = results.iter().map(|(what, n)| format!("{what} {n}")).collect();
        writeln!(f, "results: {}", results.join(", "))?;
        if let Some(Difference { differs, history, before }) = difference {
            writeln!(f, "the last actions:\n  {}", history.join("\n  "))?;
            writeln!(f, "the model before the last one:\n  {}", before.join("\n  "))?;
            writeln!(f, "model and kernel differ:\n  {}", differs.join("\n  "))?;
        }
        let differences = usize::from(difference.is_some());
        write!(
            f,
            "seed={seed} steps={steps} lists={lists} cut-empty={cut_empty} differences={differences}"
        )
    }
}

/// What the person at the terminal can choose.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// A name of `lab/machines`, or a file's path.
    pub machine: String,
    /// Where the actions come from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Random actions.
    #[arg(long, default_value_t = 5000)]
    pub steps: usize,
    /// What runs there: the first process may be systemd.
    #[command(flatten)]
    pub software: Software,
}

/// Compares on a virtual server. The last line of standard output is the result.
///
/// # Errors
/// When the lab fails, or model and kernel differ.
pub fn run(options: &Options) -> Result<()> {
    let Options { machine, seed, steps, software } = options.clone();
    let binaries = Binaries::build()?;
    let machine = Machine::load(&machine)?;
    let step = Step::CompareCgroups(Settings { seed, steps });
    // An action takes some milliseconds, where processors are emulated and the machine is busy up
    // to a tenth of a second.
    let patience = Duration::from_secs(600 + steps as u64 / 10);
    let outcomes = vm::run(&machine, software, &[step], &binaries, patience)?;
    let Some(Outcome::Cgroups(comparison)) = outcomes.into_iter().next() else {
        bail!("the guest sent no comparison");
    };
    progress("compared");
    println!("{comparison}");
    if comparison.difference.is_some() {
        bail!("the model of cgroups is not as the kernel is");
    }
    Ok(())
}
