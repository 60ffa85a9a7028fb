//! What was measured, as a table, and what it shows. Nothing here speaks about other machines.

use std::fmt::Write;

use serde::Serialize;

use crate::experiment::{Cell, Run, Skipped};
use crate::histogram::Histogram;
use crate::machine::{Machine, Platform};
use crate::tree::{Cpus, Mode};

/// The part of stolen time above which latencies are those of the hypervisor.
const STOLEN: f64 = 0.01;
/// CPUs used by other programs that are worth a note.
const OTHERS: f64 = 0.1;
/// Clocks that are read without a call into the kernel or a slow device.
const GOOD_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"];

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) cpus: Cpus,
    pub(crate) neighbours: usize,
    pub(crate) seconds: f64,
    pub(crate) runs: Vec<Run>,
    pub(crate) skipped: Vec<Skipped>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    WakeUp,
    RoundTrip,
}

impl Measure {
    pub(crate) const ALL: [Measure; 2] = [Measure::WakeUp, Measure::RoundTrip];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Measure::WakeUp => "wake-up",
            Measure::RoundTrip => "key-value round trip",
        }
    }

    fn of(self, run: &Run) -> &Histogram {
        match self {
            Measure::WakeUp => &run.measured.wake_up,
            Measure::RoundTrip => &run.measured.round_trip,
        }
    }
}

/// The 99th percentiles of several runs, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: u64,
    pub(crate) median: u64,
    pub(crate) most: u64,
    pub(crate) runs: usize,
}

impl Spread {
    /// None without runs.
    pub(crate) fn of(mut values: Vec<u64>) -> Option<Spread> {
        values.sort_unstable();
        let median = *values.get(values.len() / 2)?;
        Some(Spread { least: *values.first()?, median, most: *values.last()?, runs: values.len() })
    }

    fn ratio(self) -> f64 {
        self.most as f64 / self.least.max(1) as f64
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Judgement {
    /// Times lower, by the medians.
    Lower(f64),
    Higher(f64),
    NoDifference,
    /// A single run shows no spread.
    Unknown,
}

/// Compares a mode with another. A difference is shown if all runs of one are below all runs of the other,
/// and the medians are further apart than the runs of either.
pub(crate) fn judge(base: Spread, other: Spread) -> Judgement {
    if base.runs < 2 || other.runs < 2 {
        return Judgement::Unknown;
    }
    let times = base.median as f64 / other.median.max(1) as f64;
    let spread = base.ratio().max(other.ratio());
    if other.most < base.least && spread < times {
        Judgement::Lower(times)
    } else if base.most < other.least && spread < times.recip() {
        Judgement::Higher(times.recip())
    } else {
        Judgement::NoDifference
    }
}

impl Report {
    /// The modes that ran, in their order.
    pub(crate) fn modes(&self) -> Vec<Mode> {
        let ran = |mode: &Mode| self.runs.iter().any(|run| run.cell.mode == *mode);
        Mode::ALL.into_iter().filter(ran).collect()
    }

    fn runs_of(&self, cell: Cell) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.cell == cell)
    }

    /// All runs of a cell together.
    pub(crate) fn histogram(&self, measure: Measure, cell: Cell) -> Histogram {
        let mut all = Histogram::default();
        self.runs_of(cell).for_each(|run| all.merge(measure.of(run)));
        all
    }

    fn spread(&self, measure: Measure, cell: Cell) -> Option<Spread> {
        Spread::of(self.runs_of(cell).map(|run| measure.of(run).percentile(99.0)).collect())
    }

    pub(crate) fn text(&self) -> String {
        let mut out = self.headline();
        for measure in Measure::ALL {
            out.push_str(&self.table(measure));
        }
        out.push_str(&self.conclusions());
        out
    }

    /// The machine and the setting.
    pub(crate) fn headline(&self) -> String {
        let Machine { model, cpus, smt, kernel, cgroup, platform, governor, clock } = &self.machine;
        let model = if model.is_empty() { "unknown processor" } else { model };
        let kind = match platform {
            Platform::Hardware => "no sign of a hypervisor",
            Platform::Virtual => "virtual machine",
            Platform::Emulated => "emulated processors",
        };
        let smt = if *smt { "SMT" } else { "no SMT" };
        let governor = governor.as_deref().unwrap_or("none");
        format!(
            "{model}, {cpus} CPUs, {smt}, {kind}; Linux {kernel}, cgroup {cgroup}, governor {governor}, clock {clock}\n\
             measured program on CPUs {}, {} neighbours on CPUs {}; without pinning all on CPUs {}\n",
            self.cpus.exclusive,
            self.neighbours,
            self.cpus.shared(),
            self.cpus.all,
        )
    }

    fn table(&self, measure: Measure) -> String {
        let mut out = format!(
            "\n{:<34} {:>10} {:>10} {:>10} {:>10} {:>9}  p99 of the runs\n",
            format!("{}, µs", measure.label()),
            "p50",
            "p99",
            "p99.9",
            "max",
            "samples",
        );
        for neighbours in [false, true] {
            for mode in self.modes() {
                let cell = Cell { mode, neighbours };
                let all = self.histogram(measure, cell);
                let beside = if neighbours { "next to neighbours" } else { "alone" };
                let name = format!("{:<12} {beside}", mode.label());
                let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|p| us(all.percentile(p)));
                let (max, samples) = (us(all.max_ns()), all.samples());
                let spread = self.spread(measure, cell);
                let spread = spread.map(|one| format!("{} .. {}", us(one.least), us(one.most)));
                let spread = spread.unwrap_or_default();
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "{name:<34} {p50:>10} {p99:>10} {p999:>10} {max:>10} {samples:>9}  {spread}"
                );
            }
        }
        out
    }

    /// Judgements, then what makes them doubtful.
    fn conclusions(&self) -> String {
        let mut out = "\n".to_owned();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        if self.machine.platform == Platform::Emulated {
            line("no judgement: emulated processors run at the speed of their emulator, so this machine cannot show what pinning gains".to_owned());
        } else {
            self.judgements().into_iter().for_each(&mut line);
        }
        for Skipped { mode, reason } in &self.skipped {
            line(format!("skipped: {}: {reason}", mode.label()));
        }
        self.notes().into_iter().for_each(&mut line);
        line("These figures are of this machine under this load, and of no other.".to_owned());
        out
    }

    /// Each mode against the one before it, and against no pinning.
    fn judgements(&self) -> Vec<String> {
        let modes = self.modes();
        let mut pairs = Vec::new();
        for (at, mode) in modes.iter().enumerate().skip(1) {
            pairs.push((modes[0], *mode));
            if at > 1 {
                pairs.push((modes[at - 1], *mode));
            }
        }
        let mut lines = Vec::new();
        for measure in Measure::ALL {
            for (base, other) in &pairs {
                let spread = |mode| self.spread(measure, Cell { mode, neighbours: true });
                let (Some(first), Some(second)) = (spread(*base), spread(*other)) else {
                    continue;
                };
                let verdict = match judge(first, second) {
                    Judgement::Lower(times) => format!("p99 is {times:.1} times lower"),
                    Judgement::Higher(times) => format!("p99 is {times:.1} times higher"),
                    Judgement::NoDifference => "no difference shown".to_owned(),
                    Judgement::Unknown => "not compared: one run shows no spread".to_owned(),
                };
                lines.push(format!(
                    "{} next to neighbours, {} against {}: {verdict}",
                    measure.label(),
                    other.label(),
                    base.label()
                ));
            }
        }
        lines
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let most = |value: fn(&Run) -> f64| self.runs.iter().map(value).fold(0.0, f64::max);
        let stolen = most(|run| run.stolen);
        if stolen > STOLEN {
            notes.push(format!(
                "note: the hypervisor took up to {:.0} % of this machine's CPU time, and pinning inside the machine does not change that",
                stolen * 100.0
            ));
        }
        let others = most(|run| run.others_used);
        if others > OTHERS {
            notes.push(format!(
                "note: other programs used up to {others:.1} CPUs, and only kernel and isolated keep them off"
            ));
        }
        for mode in self.modes() {
            let idle = |run: &&Run| run.neighbours_used < run.neighbours_expected / 2.0;
            let cell = Cell { mode, neighbours: true };
            if let Some(run) = self.runs_of(cell).find(idle) {
                notes.push(format!(
                    "note: {}: the neighbours used {:.1} CPUs, less than half of the {:.1} that they would use: this run shows too little of them",
                    mode.label(),
                    run.neighbours_used,
                    run.neighbours_expected
                ));
            }
        }
        if self.cpus.exclusive.len() == 1 {
            notes.push(
                "note: server and client share one CPU when pinned: for two, this machine has too few"
                    .to_owned(),
            );
        }
        if self.machine.platform == Platform::Virtual {
            notes.push("note: in a virtual machine, waking an idle CPU includes the hypervisor's part of it".to_owned());
        }
        if !GOOD_CLOCKS.contains(&self.machine.clock.as_str()) {
            notes.push(format!(
                "note: the clock {:?} may be slow to read, which is part of each duration",
                self.machine.clock
            ));
        }
        notes
    }
}

/// Microseconds with three significant digits.
pub(crate) fn us(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    let decimals = if us < 10.0 {
        2
    } else if us < 100.0 {
        1
    } else {
        0
    };
    format!("{us:.decimals$}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measured::Measured;

    fn spread(values: &[u64]) -> Spread {
        Spread::of(values.to_vec()).unwrap()
    }

    #[test]
    fn a_difference_is_shown_only_beyond_the_spread_of_the_runs() {
        let slow = spread(&[4000, 5200, 4500]);
        assert_eq!(judge(slow, spread(&[90, 100, 110])), Judgement::Lower(45.0));
        assert_eq!(judge(spread(&[90, 100, 110]), slow), Judgement::Higher(45.0));
        // They overlap.
        assert_eq!(judge(slow, spread(&[4100, 3000, 2000])), Judgement::NoDifference);
        // They do not, but the runs of one are as far apart as the medians.
        assert_eq!(judge(slow, spread(&[500, 2000, 3900])), Judgement::NoDifference);
        assert_eq!(judge(slow, slow), Judgement::NoDifference);
        assert_eq!(judge(slow, spread(&[100])), Judgement::Unknown);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    fn run(mode: Mode, neighbours: bool, late_us: u64) -> Run {
        let mut histogram = Histogram::new();
        for at in 1..=1000 {
            histogram.record(late_us * at);
        }
        Run {
            cell: Cell { mode, neighbours },
            measured: Measured { wake_up: histogram.clone(), round_trip: histogram, used: 0.1 },
            neighbours_used: if neighbours { 0.9 } else { 0.0 },
            neighbours_expected: if neighbours { 1.0 } else { 0.0 },
            others_used: 0.0,
            stolen: 0.0,
        }
    }

    /// Two modes; next to neighbours, no pinning is a hundred times as slow.
    pub(crate) fn example() -> Report {
        let mut runs = Vec::new();
        for round in 0..3 {
            for mode in [Mode::None, Mode::Kernel] {
                runs.push(run(mode, false, 60 + round));
            }
            runs.push(run(Mode::None, true, 6000 + round));
            runs.push(run(Mode::Kernel, true, 60 + round));
        }
        Report {
            machine: Machine {
                model: "A <processor> & more".to_owned(),
                cpus: 4,
                smt: false,
                kernel: "6.12.95".to_owned(),
                cgroup: "v2",
                platform: Platform::Hardware,
                governor: None,
                clock: "tsc".to_owned(),
            },
            cpus: Cpus { all: "0-3".parse().unwrap(), exclusive: "2-3".parse().unwrap() },
            neighbours: 8,
            seconds: 5.0,
            runs,
            skipped: vec![Skipped { mode: Mode::Isolated, reason: "a reason".to_owned() }],
        }
    }

    #[test]
    fn the_report_says_what_is_shown_and_what_was_skipped() {
        let text = example().text();
        for part in [
            "wake-up next to neighbours, kernel against no pinning: p99 is 99.3 times lower",
            "key-value round trip next to neighbours, kernel against no pinning: p99 is 99.3 times lower",
            "skipped: isolated: a reason",
            "of this machine under this load, and of no other",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("note:"), "{text}");
    }

    #[test]
    fn doubts_are_notes() {
        let mut report = example();
        report.machine.platform = Platform::Virtual;
        report.machine.clock = "hpet".to_owned();
        report.cpus.exclusive = "3".parse().unwrap();
        report.runs[2].neighbours_used = 0.4;
        report.runs[2].stolen = 0.05;
        report.runs[2].others_used = 0.7;
        let text = report.text();
        for part in [
            "took up to 5 %",
            "other programs used up to 0.7 CPUs",
            "note: no pinning: the neighbours used 0.4 CPUs",
            "share one CPU",
            "in a virtual machine",
            "the clock \"hpet\"",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn emulated_processors_are_not_judged() {
        let mut report = example();
        report.machine.platform = Platform::Emulated;
        let text = report.text();
        assert!(text.contains("no judgement: emulated processors"), "{text}");
        assert!(!text.contains("times lower"), "{text}");
    }

    #[test]
    fn microseconds_have_three_digits() {
        assert_eq!([us(1_234), us(12_340), us(1_234_000)], ["1.23", "12.3", "1234"]);
    }
}
