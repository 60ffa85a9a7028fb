//! Interrupts and latency knobs of exclusive CPUs in the status.

use crate::view::quiet::{QuietFigures, name_of};
use cpuset::CpuSet;
use ledger::ContainerView;
use quiet::{BanState, InterruptMode, Knobs, QuietContainer, StrayInterrupt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use wording::printable;

/// Of the node, while a container asks for quiet CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterruptsStatus {
    /// Interrupts that are kept off exclusive CPUs.
    pub away: usize,
    /// Interrupts that the kernel does not let move.
    pub refused: Vec<InterruptStatus>,
    /// Interrupts that leave when they fire next.
    pub pending: Vec<InterruptStatus>,
    /// Interrupts that stay because all online CPUs have to be kept free of them.
    pub nowhere: Vec<InterruptStatus>,
    /// `unasked`, `absent` (not running, or its socket is not mounted), `pending`, `banned` (it uses no
    /// such CPU), or `fails: ` and why.
    pub irqbalance: String,
    /// Other files that the kernel does not let change, with the reason.
    pub refused_files: BTreeMap<String, String>,
    /// Values of other programs that were replaced since the start, by kind.
    pub drifts: BTreeMap<String, u64>,
    /// What kept the last pass from being complete, or from changing anything.
    pub errors: Vec<String>,
}

/// Of a container that asks for quiet CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuietStatus {
    /// `leave`, `away` or `housekeeping`.
    pub interrupts: String,
    /// Interrupts that are kept off its CPUs.
    pub away: usize,
    /// The numbers of those that stay although they should not, or leave when they fire next.
    pub refused: Vec<u32>,
    pub pending: Vec<u32>,
    pub nowhere: Vec<u32>,
    /// The latency knobs that it asks for, as in its annotations.
    pub knobs: BTreeMap<String, String>,
    /// Why it cannot have some of them, a sentence each.
    pub knobs_refused: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterruptStatus {
    pub number: u32,
    /// The names of its handlers, usually devices.
    pub names: Vec<String>,
    /// The interrupt controller.
    pub chip: String,
    /// The exclusive CPUs on which it may fire.
    pub cpus: CpuSet,
    /// Why it stays, if the kernel says so.
    pub why: Option<String>,
}

impl InterruptsStatus {
    /// `None` while no container asks for anything, and nothing is in the way of a restoration.
    pub(super) fn of(figures: &QuietFigures) -> Option<InterruptsStatus> {
        let QuietFigures { goal, report, drifts, .. } = figures;
        let troubles = figures.troubles();
        if goal.is_empty() && troubles.is_empty() {
            return None;
        }
        let refused = report.refused.iter();
        let refused = refused.map(|(noise, why)| InterruptStatus::of(noise, Some(why.clone())));
        let irqbalance = match &report.irqbalance {
            BanState::Unasked => "unasked".to_owned(),
            BanState::Absent => "absent".to_owned(),
            BanState::Banned => "banned".to_owned(),
            BanState::Pending => "pending".to_owned(),
            BanState::Failed(why) => format!("fails: {why}"),
        };
        let files = report.refused_files.iter();
        Some(InterruptsStatus {
            away: report.away.len(),
            refused: refused.collect(),
            pending: InterruptStatus::list(&report.pending),
            nowhere: InterruptStatus::list(&report.nowhere),
            irqbalance,
            refused_files: files.map(|(file, why)| (file.to_string(), why.clone())).collect(),
            drifts: drifts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
            errors: troubles.into_iter().chain(report.errors.iter().cloned()).collect(),
        })
    }

    /// What irqbalance does, for people.
    pub fn irqbalance_words(&self) -> &str {
        match self.irqbalance.as_str() {
            "banned" => "irqbalance keeps off them",
            "pending" => "irqbalance was sent the list",
            "absent" => "no irqbalance",
            "unasked" => "irqbalance was not asked",
            failure => failure,
        }
    }
}

impl QuietStatus {
    /// `None` if the container asks for nothing, by the last pass.
    pub(super) fn of(container: &ContainerView, figures: &QuietFigures) -> Option<QuietStatus> {
        let name = name_of(container);
        let goal = figures.goal.containers.iter().find(|one| one.name == name)?;
        let QuietContainer { cpus, interrupts, knobs, .. } = goal;
        let on = |noise: &&StrayInterrupt| !noise.cpus.is_disjoint(cpus);
        let numbers =
            |list: &[StrayInterrupt]| list.iter().filter(on).map(|noise| noise.number).collect();
        let report = &figures.report;
        let refused = report.refused.iter().map(|(noise, _)| noise);
        let denied = report.denied.iter().filter(|denied| denied.container == name);
        Some(QuietStatus {
            interrupts: interrupts.name().to_owned(),
            away: report.away.values().filter(|away| !away.is_disjoint(cpus)).count(),
            refused: refused.filter(on).map(|noise| noise.number).collect(),
            pending: numbers(&report.pending),
            nowhere: numbers(&report.nowhere),
            knobs: words(knobs),
            knobs_refused: denied.map(|denied| denied.why.clone()).collect(),
        })
    }
}

impl fmt::Display for QuietStatus {
    /// `interrupts away: 12 kept away, 1 refused (30); c-states disable`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupts {}", self.interrupts)?;
        if self.interrupts != InterruptMode::Leave.name() {
            write!(f, ": {} kept away", self.away)?;
            for (what, numbers) in [
                ("refused", &self.refused),
                ("pending", &self.pending),
                ("with no other CPU", &self.nowhere),
            ] {
                if !numbers.is_empty() {
                    let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                    write!(f, ", {} {what} ({})", numbers.len(), list.join(", "))?;
                }
            }
        }
        for (knob, value) in &self.knobs {
            write!(f, "; {knob} {value}")?;
        }
        for why in &self.knobs_refused {
            write!(f, "; refused: {why}")?;
        }
        Ok(())
    }
}

impl InterruptStatus {
    fn of(noise: &StrayInterrupt, why: Option<String>) -> InterruptStatus {
        let StrayInterrupt { number, names, chip, cpus } = noise.clone();
        InterruptStatus { number, names, chip, cpus, why }
    }

    fn list(noises: &[StrayInterrupt]) -> Vec<InterruptStatus> {
        noises.iter().map(|noise| InterruptStatus::of(noise, None)).collect()
    }
}

impl fmt::Display for InterruptStatus {
    /// `30 (nvme0q3, PCI-MSI) on CPU 6: Permission denied`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InterruptStatus { number, names, chip, cpus, why } = self;
        let origin = printable(&format!("{}, {chip}", names.join(", ")));
        write!(f, "{number} ({origin}) on {}", wording::cpus(cpus))?;
        match why {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// The knobs that are set, by the words of annotations.
fn words(knobs: &Knobs) -> BTreeMap<String, String> {
    let Knobs { c_states, governor, min_frequency_khz, max_frequency_khz } = knobs;
    let khz = |frequency: &u64| format!("{frequency}kHz");
    let values = [
        c_states.map(|states| states.to_string()),
        governor.clone(),
        min_frequency_khz.as_ref().map(khz),
        max_frequency_khz.as_ref().map(khz),
    ];
    let pairs = Knobs::KEYS.iter().zip(values);
    pairs.filter_map(|(key, value)| Some(((*key).to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet::{Goal, Report};

    fn noise(number: u32, cpus: &str) -> StrayInterrupt {
        StrayInterrupt {
            number,
            names: vec![format!("nvme0q{number}")],
            chip: "PCI-MSI".to_owned(),
            cpus: cpus.parse().unwrap(),
        }
    }

    #[test]
    fn nodes_without_pod_options_have_no_entry() {
        assert_eq!(InterruptsStatus::of(&QuietFigures::default()), None);
        let obstacle = Some("cannot write".to_owned());
        let figures = QuietFigures { obstacle, ..QuietFigures::default() };
        assert_eq!(InterruptsStatus::of(&figures).unwrap().errors, ["cannot write"]);
    }

    #[test]
    fn interrupts_are_named_with_their_cpus_and_reasons() {
        let container = QuietContainer {
            cpus: "2-3".parse().unwrap(),
            interrupts: InterruptMode::Away,
            ..QuietContainer::default()
        };
        let figures = QuietFigures {
            goal: Goal { containers: vec![container], ..Goal::default() },
            report: Report {
                refused: vec![(noise(30, "2"), "Permission denied".to_owned())],
                pending: vec![noise(31, "3")],
                irqbalance: BanState::Failed("no answer".to_owned()),
                ..Report::default()
            },
            ..QuietFigures::default()
        };
        let status = InterruptsStatus::of(&figures).unwrap();
        assert_eq!(
            [&status.refused[0], &status.pending[0]].map(ToString::to_string),
            [
                "30 (nvme0q30, PCI-MSI) on CPU 2: Permission denied",
                "31 (nvme0q31, PCI-MSI) on CPU 3"
            ]
        );
        assert_eq!(status.irqbalance, "fails: no answer");
        assert_eq!(status.irqbalance_words(), "fails: no answer");
    }

    #[test]
    fn a_container_shows_its_mode_its_interrupts_and_its_knobs() {
        let mut knobs = Knobs::default();
        knobs.set("c-states", "disable").unwrap();
        knobs.set("min-frequency", "2.4GHz").unwrap();
        let status = QuietStatus {
            interrupts: "away".to_owned(),
            away: 12,
            refused: vec![30, 31],
            pending: Vec::new(),
            nowhere: Vec::new(),
            knobs: words(&knobs),
            knobs_refused: vec!["no such governor".to_owned()],
        };
        assert_eq!(
            status.to_string(),
            "interrupts away: 12 kept away, 2 refused (30, 31); c-states disable; min-frequency 2400000kHz; \
             refused: no such governor"
        );
        let left =
            QuietStatus { interrupts: "leave".to_owned(), knobs_refused: Vec::new(), ..status };
        assert!(left.to_string().starts_with("interrupts leave; c-states disable; "));
    }
}
