//! [`Quieting`]: keeps device interrupts off exclusive CPUs and sets latency knobs, outside of the core.
//!
//! The kernel may take milliseconds for each interrupt and irqbalance a second, so nothing waits for them:
//! a [`QuietPass`] takes [`Steering`] to another thread, and returns it with its report. While a pass hangs,
//! there is no other one, and status and health say so.

use super::log_repeated;
use exclusivity::Isolation;
use kernel::Kernel;
use log::Level;
use quiet::{BanState, Drift, Goal, RefusedInterrupt, Report, Roots, Steering, StrayInterrupt};
use status::quiet::{QuietFigures, drift_kind, troubles};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wording::{Repeats, few};

/// How long after a change a pass begins: the containers of a pod start together.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// The time between two passes.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a pass may take. One over 600 interrupts takes a fraction of a second.
const LIMIT: Duration = Duration::from_secs(10);

/// A condition of the log: several values that another program has set.
const DRIFTS: &str = "drifts";

/// What to do about files that cannot be written.
const OVERLAY: &str = "in a container, the overlay quiet is needed";

/// Brings interrupts and knobs to a goal, which can take long: it does not use the core.
#[derive(Debug)]
pub struct QuietPass {
    steering: Steering,
    kernel: Arc<dyn Kernel>,
    roots: Roots,
    goal: Goal,
}

/// The result of a [`QuietPass`].
#[derive(Debug)]
pub struct QuietOutcome {
    steering: Steering,
    goal: Goal,
    /// Or why the pass could change nothing.
    result: Result<Report, String>,
}

#[derive(Debug)]
pub(super) struct Quieting {
    kernel: Arc<dyn Kernel>,
    roots: Roots,
    /// `None` while a pass has it.
    steering: Option<Steering>,
    /// Whether the runtime has listed its containers. Before, no container is known that asks for
    /// anything, and a pass would restore everything.
    listed: bool,
    /// When the ledger has changed first since the last pass began.
    changed: Option<Instant>,
    /// When the next pass is due without a change.
    next: Option<Instant>,
    /// When the present pass began.
    begun: Option<Instant>,
    is_stalled: bool,
    /// What the kernel keeps away from isolated partitions, by the last check pass.
    pub(super) isolation: Option<Isolation>,
    repeats: Repeats,
    figures: QuietFigures,
}

impl QuietPass {
    /// Blocks.
    pub fn run(self) -> QuietOutcome {
        let QuietPass { mut steering, kernel, roots, goal } = self;
        let result = match quiet::unwritable(&*kernel, &roots, &goal) {
            Some(why) => Err(why),
            None => Ok(steering.pass(&*kernel, &goal)),
        };
        QuietOutcome { steering, goal, result }
    }
}

impl Quieting {
    pub(super) fn new(kernel: Arc<dyn Kernel>, roots: Roots, steering: Steering) -> Quieting {
        Quieting {
            kernel,
            roots,
            steering: Some(steering),
            listed: false,
            changed: None,
            next: None,
            begun: None,
            is_stalled: false,
            isolation: None,
            repeats: Repeats::default(),
            figures: QuietFigures::default(),
        }
    }

    /// The runtime has listed its containers.
    pub(super) fn listed(&mut self, now: Instant) {
        self.listed = true;
        self.changed.get_or_insert(now);
    }

    /// The ledger may ask for something else.
    pub(super) fn follow(&mut self, now: Instant) {
        self.changed.get_or_insert(now);
    }

    /// When the next pass begins, or when the present one has taken too long.
    pub(super) fn due(&self) -> Option<Instant> {
        if let Some(begun) = self.begun {
            return if self.is_stalled { None } else { Some(begun + LIMIT) };
        }
        if !self.listed {
            return None;
        }
        let changed = self.changed.map(|changed| changed + DEBOUNCE);
        [changed, self.next].into_iter().flatten().min()
    }

    /// Begins the pass that is due, unless no container asks for anything and nothing has to be restored.
    pub(super) fn begin(&mut self, goal: Goal, now: Instant) -> Option<QuietPass> {
        if self.begun.is_some() {
            self.is_stalled = true;
            let line = format!(
                "interrupts: the kernel has not finished a pass (seconds={}): interrupts and latency knobs stay as they are",
                LIMIT.as_secs()
            );
            log_repeated(&mut self.repeats, Level::Error, &line, now);
            return None;
        }
        self.changed = None;
        let is_unused = self.steering.as_ref().is_some_and(Steering::is_unused);
        if goal.is_empty() && is_unused {
            self.next = None;
            self.reset();
            return None;
        }
        // Most changes of the ledger are not about containers that ask for anything.
        if goal == self.figures.goal && self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = None;
        let steering = self.steering.take()?;
        self.begun = Some(now);
        let kernel = Arc::clone(&self.kernel);
        Some(QuietPass { steering, kernel, roots: self.roots.clone(), goal })
    }

    /// Forgets the last pass. Counters stay.
    fn reset(&mut self) {
        let drifts = std::mem::take(&mut self.figures.drifts);
        self.figures = QuietFigures { drifts, ..QuietFigures::default() };
    }

    pub(super) fn ended(&mut self, outcome: QuietOutcome, now: Instant) {
        let QuietOutcome { steering, goal, result } = outcome;
        if self.is_stalled {
            let line = "interrupts: the kernel has finished the pass";
            log_repeated(&mut self.repeats, Level::Info, line, now);
        }
        self.begun = None;
        self.is_stalled = false;
        if goal.is_empty() && steering.is_unused() {
            let restored = self.figures.report.away.len();
            if restored > 0 {
                let line = format!("interrupts: original affinity restored (count={restored})");
                log_repeated(&mut self.repeats, Level::Info, &line, now);
            }
            self.steering = Some(steering);
            return self.reset();
        }
        self.steering = Some(steering);
        self.next = Some(now + PERIOD);
        self.figures.goal = goal;
        match result {
            Ok(report) => {
                if self.figures.obstacle.take().is_some() {
                    let line = "interrupts: files can be written again";
                    log_repeated(&mut self.repeats, Level::Info, line, now);
                }
                self.log(&report, now);
                for drift in &report.drift {
                    *self.figures.drifts.entry(drift_kind(&drift.setting).into()).or_default() += 1;
                }
                self.figures.report = report;
            }
            Err(why) => {
                let line =
                    format!("interrupts and latency knobs stay as they are: {why}; {OVERLAY}");
                if self.figures.obstacle.as_ref() != Some(&line) {
                    log_repeated(&mut self.repeats, Level::Warn, &line, now);
                }
                self.figures.obstacle = Some(line);
                self.figures.report = Report::default();
            }
        }
    }

    /// Logs what is new in a report: a line about all interrupts, files or knobs in the same condition.
    fn log(&mut self, report: &Report, now: Instant) {
        let before = std::mem::take(&mut self.figures.report);
        let mut lines = Lines { repeats: &mut self.repeats, now };
        let moved = report.away.keys().filter(|number| !before.away.contains_key(*number)).count();
        if moved > 0 {
            lines.add(Level::Info, format!("interrupts: moved off exclusive CPUs (count={moved})"));
        }
        let returned =
            before.away.keys().filter(|number| !report.away.contains_key(*number)).count();
        if returned > 0 {
            let line = format!("interrupts: original affinity restored (count={returned})");
            lines.add(Level::Info, line);
        }
        lines.add_drifts(&report.drift);
        let refused =
            new_in(&report.refused, &before.refused, |one| name_of_interrupt(&one.interrupt));
        for advice in [KERNEL_MANAGED, FIXED] {
            let of_advice = refused.iter().filter(|one| advice_on(&one.interrupt) == advice);
            let names = few(of_advice.clone().map(|one| &one.interrupt));
            let stay = if of_advice.clone().count() == 1 { "stays" } else { "stay" };
            if let Some(RefusedInterrupt { why, .. }) = of_advice.clone().next() {
                lines.add(Level::Warn, format!("interrupts: {names} {stay}: {why}. {advice}"));
            }
        }
        let nowhere = new_in(&report.nowhere, &before.nowhere, name_of_interrupt);
        if !nowhere.is_empty() {
            let stay = if nowhere.len() == 1 { "stays" } else { "stay" };
            let line = format!(
                "interrupts: {} {stay}: all online CPUs have to be kept free of interrupts",
                few(nowhere)
            );
            lines.add(Level::Warn, line);
        }
        let files =
            new_in(&report.refused_files, &before.refused_files, |(setting, _)| setting.clone());
        if let Some((_, why)) = files.first() {
            let files = few(files.iter().map(|(setting, _)| setting));
            lines.add(Level::Warn, format!("interrupts: {files} cannot be changed: {why}"));
        }
        let denied: Vec<_> = report.denied.difference(&before.denied).collect();
        if let Some(first) = denied.first() {
            let containers = few(denied.iter().map(|denied| &denied.container));
            lines.add(Level::Warn, format!("{containers}: no latency knob: {}", first.why));
        }
        if !report.unavailable.is_empty() {
            let files = few(&report.unavailable);
            lines.add(
                Level::Warn,
                format!("latency knobs: this node has no {files}: containers do without it"),
            );
        }
        let errors = new_in(&report.errors, &before.errors, String::clone);
        if !errors.is_empty() {
            lines.add(Level::Warn, format!("interrupts: {}", few(errors)));
        }
        if before.irqbalance != report.irqbalance {
            match &report.irqbalance {
                BanState::Banned => lines.add(
                    Level::Info,
                    "irqbalance: keeps interrupts off exclusive CPUs".to_owned(),
                ),
                BanState::Failed(why) => lines.add(
                    Level::Warn,
                    format!(
                        "irqbalance: {why}: it may move interrupts back until the next pass (ban the CPUs in its configuration)"
                    ),
                ),
                BanState::Unasked | BanState::Absent | BanState::Pending => {}
            }
        }
    }

    fn stalled_seconds(&self, now: Instant) -> Option<u64> {
        let begun = if self.is_stalled { self.begun? } else { return None };
        Some(now.saturating_duration_since(begun).as_secs())
    }

    /// Why exclusive CPUs are not as quiet as containers ask for, a sentence each.
    pub(super) fn troubles(&self, now: Instant) -> Vec<String> {
        troubles(self.figures.obstacle.as_deref(), self.stalled_seconds(now))
    }

    pub(super) fn figures(&self, now: Instant) -> QuietFigures {
        QuietFigures {
            stalled_seconds: self.stalled_seconds(now),
            isolation: self.isolation.clone(),
            ..self.figures.clone()
        }
    }
}

/// The log at one moment.
struct Lines<'a> {
    repeats: &'a mut Repeats,
    now: Instant,
}

impl Lines<'_> {
    fn add(&mut self, level: Level, line: String) {
        log_repeated(self.repeats, level, &line, self.now);
    }

    /// How many values another program has changed differs from one pass to the next.
    fn add_drifts(&mut self, drifts: &[Drift]) {
        let Some(Drift { setting, observed, target }) = drifts.first() else { return };
        if drifts.len() == 1 {
            if let Some(times) = self.repeats.occurred(&setting.to_string(), self.now) {
                log::warn!(
                    "{setting}: should be {target}, but another program has set {observed}: set again{times}"
                );
            }
        } else if let Some(times) = self.repeats.occurred(DRIFTS, self.now) {
            let settings = few(drifts.iter().map(|drift| &drift.setting));
            log::warn!(
                "interrupts: another program has changed {} values ({settings}), {setting} from {target} to {observed}: set again{times}",
                drifts.len()
            );
        }
    }
}

/// What a pass has found that the one before had not.
fn new_in<'a, T, K: Ord>(now: &'a [T], before: &[T], key: impl Fn(&T) -> K) -> Vec<&'a T> {
    let known: BTreeSet<K> = before.iter().map(&key).collect();
    now.iter().filter(|one| !known.contains(&key(one))).collect()
}

/// A number belongs to another device once its driver is gone.
fn name_of_interrupt(noise: &StrayInterrupt) -> String {
    format!("{} {}", noise.number, noise.names.join(", "))
}

const KERNEL_MANAGED: &str = "The kernel manages the interrupts of most storage queues: they fire for I/O of that CPU only; to have none \
     there, boot with isolcpus=managed_irq or limit the device's queues";
const FIXED: &str = "The hardware or its driver allows no other CPU";

fn advice_on(noise: &StrayInterrupt) -> &'static str {
    if noise.chip.contains("MSI") { KERNEL_MANAGED } else { FIXED }
}

#[cfg(test)]
mod tests;
