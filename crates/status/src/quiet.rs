//! [`QuietFigures`]: interrupts and latency knobs of exclusive CPUs, by the last pass.

use cpuset::CpuSet;
use exclusivity::Isolation;
use quiet::{BanState, Goal, InterruptMode, QuietContainer, Report, Setting, StrayInterrupt};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use wording::printable;

/// The kinds of settings that other programs may change, as labels in metrics.
pub(crate) const DRIFT_KINDS: [&str; 4] = ["interrupt", "default_affinity", "workqueues", "knob"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuietFigures {
    /// What the last pass was for.
    pub goal: Goal,
    /// What the last pass found; empty if there was an obstacle.
    pub report: Report,
    /// Why passes change nothing, and what to do; `null` if they can.
    pub obstacle: Option<String>,
    /// For how long the present pass has run, if that is too long.
    pub stalled_seconds: Option<u64>,
    /// Values of other programs that were replaced since the start, by kind: `interrupt`, `default_affinity`,
    /// `workqueues`, `knob`.
    pub drifts: BTreeMap<Cow<'static, str>, u64>,
    /// What the kernel keeps away from isolated partitions; `null` without such partitions.
    pub isolation: Option<Isolation>,
}

impl Default for QuietFigures {
    fn default() -> QuietFigures {
        QuietFigures {
            goal: Goal::default(),
            report: Report::default(),
            obstacle: None,
            stalled_seconds: None,
            drifts: DRIFT_KINDS.map(|kind| (kind.into(), 0)).into(),
            isolation: None,
        }
    }
}

impl QuietFigures {
    /// Why exclusive CPUs are not as quiet as containers ask for, a sentence each.
    pub fn troubles(&self) -> Vec<String> {
        troubles(self.obstacle.as_deref(), self.stalled_seconds)
    }
}

pub fn troubles(obstacle: Option<&str>, stalled: Option<u64>) -> Vec<String> {
    let stalled = stalled.map(|seconds| {
        format!(
            "the kernel has not finished a pass over interrupts and latency knobs for {seconds} s: they stay as they are"
        )
    });
    obstacle.map(str::to_owned).into_iter().chain(stalled).collect()
}

/// Of [`DRIFT_KINDS`].
pub fn drift_kind(setting: &Setting) -> &'static str {
    match setting {
        Setting::Interrupt(_) => "interrupt",
        Setting::DefaultAffinity => "default_affinity",
        Setting::Workqueues => "workqueues",
        Setting::Knob(_) => "knob",
    }
}

/// What irqbalance does with CPUs that are to be quiet.
pub(super) fn irqbalance(state: &BanState) -> String {
    match state {
        BanState::Banned => "irqbalance keeps off them".to_owned(),
        BanState::Pending => "irqbalance was sent the list".to_owned(),
        BanState::Absent => "no irqbalance".to_owned(),
        BanState::Unasked => "irqbalance was not asked".to_owned(),
        BanState::Failed(why) => format!("irqbalance fails: {why}"),
    }
}

/// `30 (nvme0q3, PCI-MSI) on CPU 6`.
pub(super) fn interrupt(one: &StrayInterrupt) -> String {
    let origin = printable(&format!("{}, {}", one.names.join(", "), one.chip));
    format!("{} ({origin}) on {}", one.number, wording::cpus(one.cpus))
}

/// What a container asks for, and what came of it: `interrupts away: 12 kept away, 1 refused (30); c-states disable`.
pub(super) fn of_container(container: &QuietContainer, report: &Report) -> String {
    let mut text = format!("interrupts {}", container.interrupts.name());
    if container.interrupts != InterruptMode::Leave {
        let is_on = |cpus: &CpuSet| !cpus.is_disjoint(&container.cpus);
        let away = report.away.values().filter(|cpus| is_on(cpus)).count();
        text.push_str(&format!(": {away} kept away"));
        let refused = report.refused.iter().map(|refused| &refused.interrupt);
        for (what, of) in [
            ("refused", refused.collect::<Vec<_>>()),
            ("pending", report.pending.iter().collect()),
            ("with no other CPU", report.nowhere.iter().collect()),
        ] {
            let on = of.into_iter().filter(|one| is_on(&one.cpus));
            let numbers: Vec<String> = on.map(|one| one.number.to_string()).collect();
            if !numbers.is_empty() {
                text.push_str(&format!(", {} {what} ({})", numbers.len(), numbers.join(", ")));
            }
        }
    }
    for (knob, value) in container.knobs.words() {
        text.push_str(&format!("; {knob} {value}"));
    }
    for denied in report.denied.iter().filter(|denied| denied.container == container.name) {
        text.push_str(&format!("; refused: {}", denied.why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet::{Denied, Knobs, RefusedInterrupt};

    fn noise(number: u32, cpus: &str) -> StrayInterrupt {
        StrayInterrupt {
            number,
            names: vec![format!("nvme0q{number}")],
            chip: "PCI-MSI".to_owned(),
            cpus: cpus.parse().unwrap(),
        }
    }

    #[test]
    fn interrupts_are_named_with_their_cpus() {
        assert_eq!(interrupt(&noise(30, "2")), "30 (nvme0q30, PCI-MSI) on CPU 2");
        let failed = BanState::Failed("no answer".to_owned());
        assert_eq!(irqbalance(&failed), "irqbalance fails: no answer");
    }

    #[test]
    fn a_container_shows_its_mode_its_interrupts_and_its_knobs() {
        let mut knobs = Knobs::default();
        knobs.set("c-states", "disable").unwrap();
        knobs.set("min-frequency", "2.4GHz").unwrap();
        let container = QuietContainer {
            name: "ns/db/c".to_owned(),
            cpus: "2-3".parse().unwrap(),
            interrupts: InterruptMode::Away,
            knobs,
        };
        let refused = |number| RefusedInterrupt {
            interrupt: noise(number, "2"),
            why: "Permission denied".to_owned(),
        };
        let denied = Denied { container: "ns/db/c".to_owned(), why: "no such governor".to_owned() };
        let report = Report {
            away: (1..=12).map(|number| (number, "3".parse().unwrap())).collect(),
            refused: vec![refused(30), refused(31)],
            pending: vec![noise(32, "4")],
            denied: [denied].into(),
            ..Report::default()
        };
        let text = of_container(&container, &report);
        assert!(
            text.starts_with("interrupts away: 12 kept away, 2 refused (30, 31); c-states disable; min-frequency "),
            "{text}"
        );
        assert!(text.ends_with("; refused: no such governor"), "{text}");
        let leaving = QuietContainer { interrupts: InterruptMode::Leave, ..container };
        let text = of_container(&leaving, &report);
        assert!(text.starts_with("interrupts leave; c-states disable; "), "{text}");
    }
}
