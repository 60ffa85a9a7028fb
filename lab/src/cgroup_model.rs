//! The plugin's model of cgroup v2 cpusets ([`CgroupTree`](nri_cpu_manager::exclusivity::CgroupTree))
//! held against a kernel: `hack/lab cgroups`, and the step for it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub mod command;
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
