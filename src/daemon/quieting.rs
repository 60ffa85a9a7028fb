//! [`Quieting`]: keeps device interrupts off exclusive CPUs and sets latency knobs, outside of the core.
//!
//! The kernel may take milliseconds for each interrupt and irqbalance a second, so nothing waits for them:
//! a [`QuietPass`] takes [`Steering`] to another thread, and returns it with its report. While a pass hangs,
//! there is no other one, and status and health say so.

use crate::exclusivity::Isolation;
use crate::view::quiet::{QuietFigures, drift_kind, name_of, troubles};
use kernel::Kernel;
use ledger::{Phase, Stance, View};
use quiet::{
    BanState, Drift, Goal, InterruptMode, Knobs, QuietContainer, Report, Roots, Steering,
    StrayInterrupt,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after a change a pass begins: the containers of a pod start together.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// The time between two passes.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a pass may take. One over 600 interrupts takes a fraction of a second.
const LIMIT: Duration = Duration::from_secs(10);
/// How many different lines are logged once only.
const MOST_LOGGED: usize = 4096;

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
    /// What was logged and is not repeated at each pass.
    logged: BTreeSet<String>,
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
            logged: BTreeSet::new(),
            figures: QuietFigures::default(),
        }
    }

    /// The runtime has listed its containers.
    pub(super) fn listed(&mut self, now: Instant) {
        self.listed = true;
        self.changed.get_or_insert(now);
    }

    /// The ledger may ask for something else. Nothing can be asked for without exclusive CPUs.
    pub(super) fn follow(&mut self, has_exclusive: bool, now: Instant) {
        let is_unused = self.steering.as_ref().is_some_and(Steering::is_unused);
        if has_exclusive || !is_unused || !self.figures.goal.is_empty() {
            self.changed.get_or_insert(now);
        }
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
    pub(super) fn begin(&mut self, view: &View, now: Instant) -> Option<QuietPass> {
        self.begin_for(goal_of(view), now)
    }

    fn begin_for(&mut self, goal: Goal, now: Instant) -> Option<QuietPass> {
        if self.begun.is_some() {
            self.is_stalled = true;
            log::error!(
                "interrupts: the kernel has not finished a pass (seconds={}): interrupts and latency knobs stay as they are",
                LIMIT.as_secs()
            );
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
        self.logged.clear();
        let drifts = std::mem::take(&mut self.figures.drifts);
        self.figures = QuietFigures { drifts, ..QuietFigures::default() };
    }

    pub(super) fn ended(&mut self, outcome: QuietOutcome, now: Instant) {
        let QuietOutcome { steering, goal, result } = outcome;
        if self.is_stalled {
            log::info!("interrupts: the kernel has finished the pass");
        }
        self.begun = None;
        self.is_stalled = false;
        if goal.is_empty() && steering.is_unused() {
            let restored = self.figures.report.away.len();
            if restored > 0 {
                log::info!("interrupts: original affinity restored (count={restored})");
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
                    log::info!("interrupts: files can be written again");
                }
                self.log(&report);
                for drift in &report.drift {
                    *self.figures.drifts.entry(drift_kind(&drift.setting)).or_default() += 1;
                }
                self.figures.report = report;
            }
            Err(why) => {
                let line =
                    format!("interrupts and latency knobs stay as they are: {why}; {OVERLAY}");
                if self.figures.obstacle.as_ref() != Some(&line) {
                    log::warn!("{line}");
                }
                self.figures.obstacle = Some(line);
                self.figures.report = Report::default();
            }
        }
    }

    /// Logs what is new in a report.
    fn log(&mut self, report: &Report) {
        let before = std::mem::take(&mut self.figures.report);
        let moved = report.away.keys().filter(|number| !before.away.contains_key(*number)).count();
        if moved > 0 {
            log::info!("interrupts: moved off exclusive CPUs (count={moved})");
        }
        let returned =
            before.away.keys().filter(|number| !report.away.contains_key(*number)).count();
        if returned > 0 {
            log::info!("interrupts: original affinity restored (count={returned})");
        }
        for Drift { setting, observed, target } in &report.drift {
            log::warn!(
                "{setting}: should be {target}, but another program has set {observed}: set again"
            );
        }
        if self.logged.len() > MOST_LOGGED {
            self.logged.clear();
        }
        for (noise, why) in &report.refused {
            self.warn_once(
                name_of_interrupt(noise),
                format!("interrupts: {noise} stays: {why}. {}", advice(noise)),
            );
        }
        for noise in &report.nowhere {
            self.warn_once(
                name_of_interrupt(noise),
                format!(
                    "interrupts: {noise} stays: all online CPUs have to be kept free of interrupts"
                ),
            );
        }
        for (setting, why) in &report.refused_files {
            self.warn_once(
                setting.to_string(),
                format!("interrupts: {setting} cannot be changed: {why}"),
            );
        }
        for denied in &report.denied {
            let line = format!("{}: no latency knob: {}", denied.container, denied.why);
            self.warn_once(line.clone(), line);
        }
        for file in &report.unavailable {
            self.warn_once(
                (*file).to_owned(),
                format!("latency knobs: this node has no {file}: containers do without it"),
            );
        }
        for error in &report.errors {
            self.warn_once(error.clone(), format!("interrupts: {error}"));
        }
        if before.irqbalance != report.irqbalance {
            match &report.irqbalance {
                BanState::Banned => log::info!("irqbalance: keeps interrupts off exclusive CPUs"),
                BanState::Failed(why) => self.warn_once(
                    why.clone(),
                    format!(
                        "irqbalance: {why}: it may move interrupts back until the next pass (ban the CPUs in its configuration)"
                    ),
                ),
                BanState::Unasked | BanState::Absent | BanState::Pending => {}
            }
        }
    }

    /// Logs a line unless one with the same key was logged since a container began to ask for something.
    fn warn_once(&mut self, key: String, line: String) {
        if self.logged.insert(key) {
            log::warn!("{line}");
        }
    }

    fn stalled(&self, now: Instant) -> Option<Duration> {
        let begun = if self.is_stalled { self.begun? } else { return None };
        Some(now.saturating_duration_since(begun))
    }

    /// Why exclusive CPUs are not as quiet as containers ask for, a sentence each.
    pub(super) fn troubles(&self, now: Instant) -> Vec<String> {
        troubles(self.figures.obstacle.as_deref(), self.stalled(now))
    }

    pub(super) fn figures(&self, now: Instant) -> QuietFigures {
        QuietFigures {
            stalled: self.stalled(now),
            isolation: self.isolation.clone(),
            ..self.figures.clone()
        }
    }
}

/// A number belongs to another device once its driver is gone.
fn name_of_interrupt(noise: &StrayInterrupt) -> String {
    format!("{} {}", noise.number, noise.names.join(", "))
}

fn advice(noise: &StrayInterrupt) -> &'static str {
    if noise.chip.contains("MSI") {
        "The kernel manages the interrupts of most storage queues: they fire for I/O of that CPU only; to have none \
         there, boot with isolcpus=managed_irq or limit the device's queues"
    } else {
        "The hardware or its driver allows no other CPU"
    }
}

/// What containers ask for. While the kubelet assigns CPUs, that is nothing.
fn goal_of(view: &View) -> Goal {
    let topology = &view.topology;
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
    let mut containers = Vec::new();
    for one in &view.containers {
        let asks = one.interrupts != InterruptMode::Leave || one.knobs != Knobs::default();
        let Some(exclusive) = one.exclusive else { continue };
        if view.stance != Stance::Assign || one.phase == Phase::Ended || !asks {
            continue;
        }
        let of = |cpus, interrupts| {
            let knobs = one.knobs.clone();
            QuietContainer { name: name_of(one), cpus, interrupts, knobs }
        };
        containers.push(of(exclusive, one.interrupts));
        if !one.idle.is_empty() {
            // The housekeeping core is one of those that the container uses.
            let interrupts = match one.interrupts {
                InterruptMode::Housekeeping => InterruptMode::Away,
                other => other,
            };
            containers.push(of(one.idle, interrupts));
        }
    }
    Goal {
        online: topology.online(),
        nodes: nodes.map(|node| (node.id, node.cpus)).collect(),
        cores: topology.cores().iter().map(|core| core.cpus).collect(),
        containers,
    }
}

#[cfg(test)]
mod tests;
