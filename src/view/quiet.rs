//! [`QuietFigures`]: interrupts and latency knobs of exclusive CPUs, by the last pass.

use crate::exclusivity::Isolation;
use ledger::ContainerView;
use quiet::{Goal, Report, Setting};
use std::collections::BTreeMap;
use std::time::Duration;

/// The kinds of settings that other programs may change, as labels in metrics.
pub(crate) const DRIFT_KINDS: [&str; 4] = ["interrupt", "default_affinity", "workqueues", "knob"];

#[derive(Debug, Clone)]
pub struct QuietFigures {
    /// What the last pass was for.
    pub goal: Goal,
    /// What the last pass found; empty if there was an obstacle.
    pub report: Report,
    /// Why passes change nothing, and what to do; `None` if they can.
    pub obstacle: Option<String>,
    /// For how long the present pass has run, if that is too long.
    pub stalled: Option<Duration>,
    /// Values of other programs that were replaced since the start, by kind.
    pub drifts: BTreeMap<&'static str, u64>,
    /// What the kernel keeps away from isolated partitions; `None` without such partitions.
    pub isolation: Option<Isolation>,
}

impl Default for QuietFigures {
    fn default() -> QuietFigures {
        QuietFigures {
            goal: Goal::default(),
            report: Report::default(),
            obstacle: None,
            stalled: None,
            drifts: DRIFT_KINDS.map(|kind| (kind, 0)).into(),
            isolation: None,
        }
    }
}

impl QuietFigures {
    /// Why exclusive CPUs are not as quiet as containers ask for, a sentence each.
    pub(crate) fn troubles(&self) -> Vec<String> {
        troubles(self.obstacle.as_deref(), self.stalled)
    }
}

pub(crate) fn troubles(obstacle: Option<&str>, stalled: Option<Duration>) -> Vec<String> {
    let stalled = stalled.map(|time| {
        format!(
            "the kernel has not finished a pass over interrupts and latency knobs for {} s: they stay as they are",
            time.as_secs()
        )
    });
    obstacle.map(str::to_owned).into_iter().chain(stalled).collect()
}

/// The name of a container in goals and reports.
pub(crate) fn name_of(container: &ContainerView) -> String {
    format!("{}/{}/{}", container.pod.namespace, container.pod.name, container.name)
}

/// Of [`DRIFT_KINDS`].
pub(crate) fn drift_kind(setting: &Setting) -> &'static str {
    match setting {
        Setting::Interrupt(_) => "interrupt",
        Setting::DefaultAffinity => "default_affinity",
        Setting::Workqueues => "workqueues",
        Setting::Knob(_) => "knob",
    }
}
