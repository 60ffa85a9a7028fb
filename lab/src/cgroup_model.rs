//! Compares the plugin's model of cgroup v2 cpusets ([`CgroupTree`](cgroups::CgroupTree)) with a kernel: `hack/lab cgroups`, and its step.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

mod action;
pub mod command;
mod drive;
mod rules;

pub(crate) use drive::compare;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComparisonSettings {
    /// The same seed gives the same actions on machines with the same CPUs.
    pub seed: u64,
    /// Random actions; all cgroups are compared after each.
    pub steps: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Comparison {
    pub seed: u64,
    /// Actions done, including the one that led to a difference.
    pub steps: usize,
    /// The kernel's, as its behaviour shows.
    pub rules: String,
    /// CPU lists compared: two of the root, four per cgroup and one per process.
    pub lists: usize,
    /// Cgroups that ran on all CPUs of their parent because none of their own were left.
    pub cut_empty: usize,
    /// How often each kind of action had each result.
    pub results: BTreeMap<String, usize>,
    /// The first difference ends the comparison.
    pub difference: Option<Mismatch>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mismatch {
    /// One line per cgroup or result.
    pub differs: Vec<String>,
    /// The last actions with their results.
    pub history: Vec<String>,
    /// All cgroups of the model before the last action.
    pub before: Vec<String>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, rules, lists, cut_empty, results, difference } = self;
        let results: Vec<String> = results.iter().map(|(what, n)| format!("{what} {n}")).collect();
        writeln!(f, "results: {}", results.join(", "))?;
        if let Some(Mismatch { differs, history, before }) = difference {
            writeln!(f, "last actions:\n  {}", history.join("\n  "))?;
            writeln!(f, "model before the last action:\n  {}", before.join("\n  "))?;
            writeln!(f, "differences between model and kernel:\n  {}", differs.join("\n  "))?;
        }
        let differences = usize::from(difference.is_some());
        write!(
            f,
            "seed={seed} steps={steps} rules={rules} lists={lists} cut-empty={cut_empty} \
             differences={differences}"
        )
    }
}
