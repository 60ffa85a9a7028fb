//! [`Steering`]: brings interrupts and knobs to a [`Goal`], keeps them there, and restores everything.
//!
//! Every pass starts from the files, and writes only those that differ. What was there before is recorded
//! first ([`Originals`]), and everything that was written is read back. What the kernel refuses is not
//! tried at every pass.

use crate::Roots;
use crate::goal::Goal;
use crate::interrupts::{self, Interrupt, Interrupts, affinity_file};
use crate::irqbalance::{BanState, Irqbalance};
use crate::knob_plan::{self, Denied};
use crate::originals::{Judgement, Originals, Record, Setting, SettingValue};
use crate::plan::Area;
use crate::planned::{Planned, back, is_gone};
use cpuset::CpuSet;
use kernel::Kernel;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// After how many passes a refused write is tried again.
pub const RETRY: u32 = 60;

/// Relative to `/sys`.
const WORKQUEUES: &str = "devices/virtual/workqueue";

/// An interrupt that may fire on avoided CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StrayInterrupt {
    /// The kernel's number.
    pub number: u32,
    /// Of its handlers, usually devices.
    pub names: Vec<String>,
    /// The interrupt controller.
    pub chip: String,
    /// The avoided CPUs on which it may fire.
    pub cpus: CpuSet,
}

impl fmt::Display for StrayInterrupt {
    /// `interrupt 30 (nvme0q3, PCI-MSI) on CPU 6`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StrayInterrupt { number, names, chip, cpus } = self;
        let origin = wording::printable(&format!("{}, {chip}", names.join(", ")));
        write!(f, "interrupt {number} ({origin}) on {}", wording::cpus(cpus))
    }
}

/// An interrupt that the kernel does not let move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedInterrupt {
    #[serde(flatten)]
    pub interrupt: StrayInterrupt,
    /// The kernel's error.
    pub why: String,
}

/// A value of another program that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub setting: Setting,
    pub observed: SettingValue,
    pub target: SettingValue,
}

/// The result of a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Attempted writes.
    pub written: u64,
    /// What other programs had changed, and this pass has replaced.
    #[serde(skip)]
    pub drift: Vec<Drift>,
    /// Interrupts that are kept away, by number, and the avoided CPUs on which they could fire before.
    pub away: BTreeMap<u32, CpuSet>,
    /// Interrupts that the kernel does not let move, and why. Those of a device's queues fire for I/O that
    /// the CPU itself has submitted.
    pub refused: Vec<RefusedInterrupt>,
    /// Interrupts that were moved, and stay where they are until they fire.
    pub pending: Vec<StrayInterrupt>,
    /// Interrupts that stay, as all online CPUs have to be avoided.
    pub nowhere: Vec<StrayInterrupt>,
    /// Other files that the kernel does not let change, and why.
    pub refused_files: Vec<(Setting, String)>,
    /// Knobs that containers cannot have.
    pub denied: BTreeSet<Denied>,
    /// Names of files that containers need and this node lacks, in the first pass that misses them.
    #[serde(skip)]
    pub unavailable: BTreeSet<&'static str>,
    /// What irqbalance does with these CPUs.
    pub irqbalance: BanState,
    /// What kept the pass from being complete.
    pub errors: Vec<String>,
}

/// The result of [`Steering::restore`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    pub files: u64,
    /// Whether irqbalance was sent its former list of banned CPUs.
    pub irqbalance: bool,
    /// What could not be restored, and why. It stays recorded.
    pub left: Vec<(Setting, String)>,
    pub errors: Vec<String>,
}

#[derive(Debug)]
struct RefusedSetting {
    /// The handlers of an interrupt: another device is another interrupt.
    names: Vec<String>,
    target: SettingValue,
    why: String,
    /// Whether another value may be accepted. The kernel refuses any affinity of an interrupt that it
    /// manages.
    depends_on_value: bool,
    /// Whether the file could be opened for writing, which its mode decides.
    opens: bool,
    passes: u32,
}

#[derive(Debug)]
pub struct Steering {
    roots: Roots,
    originals: Originals,
    irqbalance: Irqbalance,
    refusals: BTreeMap<Setting, RefusedSetting>,
    /// The interrupts of the last pass of this process, and their handlers since they appeared.
    known: Option<BTreeMap<u32, Vec<String>>>,
    unavailable: BTreeSet<&'static str>,
}

/// What the writes of a pass came to.
#[derive(Debug, Default)]
struct Outcome {
    written: u64,
    drift: Vec<Drift>,
    /// What each file says after the writes.
    observed: BTreeMap<Setting, SettingValue>,
    failed: BTreeMap<Setting, String>,
}

impl Steering {
    pub fn new(roots: Roots, originals: Originals, irqbalance: Irqbalance) -> Steering {
        Steering {
            roots,
            originals,
            irqbalance,
            refusals: BTreeMap::new(),
            known: None,
            unavailable: BTreeSet::new(),
        }
    }

    /// Whether there is nothing to restore.
    pub fn is_unused(&self) -> bool {
        self.originals.is_empty()
    }

    /// One pass: reads, plans, writes what differs, and reads back. Without a container that asks for
    /// anything it reads nothing. Blocks: the kernel may take
    /// milliseconds for a write, and irqbalance a second.
    pub fn pass(&mut self, kernel: &dyn Kernel, goal: &Goal) -> Report {
        let mut report = Report::default();
        if goal.is_empty() && self.originals.is_empty() {
            return report;
        }
        let area = goal.area();
        let mut planned = Vec::new();
        let interrupts = match interrupts::read(kernel, &self.roots) {
            Ok(interrupts) => {
                if interrupts.unread > 0 {
                    let all = interrupts::MOST_INTERRUPTS + interrupts.unread;
                    report.errors.push(format!(
                        "only {} of {all} interrupts are read: the others may fire on exclusive CPUs",
                        interrupts::MOST_INTERRUPTS
                    ));
                }
                planned.extend(self.plan_interrupts(&interrupts, area));
                interrupts
            }
            Err(error) => {
                let proc = self.roots.proc.display();
                report.errors.push(format!("cannot read the interrupts in {proc}: {error}"));
                Interrupts::default()
            }
        };
        for setting in [Setting::DefaultAffinity, Setting::Workqueues] {
            match self.read(kernel, &setting) {
                Ok(observed) => planned.extend(self.plan_mask(kernel, setting, observed, area)),
                Err(error) if is_gone(&error) => {}
                Err(error) => report.errors.push(format!("cannot read {setting}: {error}")),
            }
        }
        let knobs = knob_plan::plan(kernel, &self.roots, goal, &mut self.originals);
        planned.extend(knobs.planned);
        report.denied = knobs.denied;
        report.unavailable = &knobs.unavailable - &self.unavailable;
        self.unavailable = knobs.unavailable;

        let mut outcome = Outcome::default();
        let due = self.due(kernel, planned, &mut outcome);
        for one in &due {
            self.originals.will_write(&one.setting, &one.names, (&one.original, &one.target));
        }
        // Without a record, a crash would make the new value the original one.
        if self.save(&mut report.errors) {
            self.make(kernel, due, &mut outcome);
        }
        report.written = outcome.written;
        report.drift = std::mem::take(&mut outcome.drift);
        self.report_interrupts(kernel, &interrupts, area, &outcome, &mut report);
        let others = outcome.failed.into_iter();
        report.refused_files =
            others.filter(|(setting, _)| !matches!(setting, Setting::Interrupt(_))).collect();
        report.irqbalance = self.irqbalance.follow(kernel, &mut self.originals, area.avoided);
        self.save(&mut report.errors);
        report
    }

    fn save(&mut self, errors: &mut Vec<String>) -> bool {
        match self.originals.save() {
            Ok(()) => true,
            Err(error) => {
                errors.push(format!("cannot record the original values: {error}"));
                false
            }
        }
    }

    fn plan_interrupts(&mut self, interrupts: &Interrupts, area: Area<'_>) -> Vec<Planned> {
        let mut now: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for number in &interrupts.idle {
            // A device that is stopped gets its interrupt back with the affinity that it had.
            let names = self.known.as_ref().and_then(|known| known.get(number));
            now.insert(*number, names.cloned().unwrap_or_default());
        }
        for interrupt in interrupts.active.values() {
            now.insert(interrupt.number, interrupt.names.clone());
        }
        for setting in self.originals.settings() {
            let Setting::Interrupt(number) = setting else { continue };
            let names = now.get(&number);
            let record = self.originals.get(&setting);
            if !names.zip(record).is_some_and(|(names, record)| record.is_of(names)) {
                self.originals.forget(&setting);
            }
        }
        let mut planned = Vec::new();
        for interrupt in interrupts.active.values() {
            self.adopt_default(interrupt);
            let setting = Setting::Interrupt(interrupt.number);
            let observed = interrupt.affinity;
            let is_welcome = observed.is_disjoint(&area.avoided);
            let judged = self.originals.judge(&setting, &SettingValue::Cpus(observed), is_welcome);
            let SettingValue::Cpus(original) = judged.original else { continue };
            // With nowhere to go, it stays where it is.
            let target = area.narrowed(original, interrupt.node).unwrap_or(observed);
            planned.push(Planned {
                path: affinity_file(&self.roots, interrupt.number),
                setting,
                observed: SettingValue::Cpus(observed),
                target: SettingValue::Cpus(target),
                original: SettingValue::Cpus(original),
                is_drift: judged.is_drift,
                names: interrupt.names.clone(),
            });
        }
        self.known = Some(now);
        planned
    }

    /// The kernel gives a new interrupt the default affinity. If that was this program's, the interrupt's
    /// original value is the original default.
    fn adopt_default(&mut self, interrupt: &Interrupt) {
        let setting = Setting::Interrupt(interrupt.number);
        let Some(known) = &self.known else { return };
        let names = known.get(&interrupt.number);
        let is_known = names.is_some_and(|names| names.iter().any(|n| interrupt.names.contains(n)));
        if is_known || self.originals.get(&setting).is_some() {
            return;
        }
        let observed = SettingValue::Cpus(interrupt.affinity);
        let default = self.originals.get(&Setting::DefaultAffinity);
        if let Some(default) = default.filter(|default| default.ours.contains(&observed)) {
            let names = interrupt.names.clone();
            let before = default.before.clone();
            let record = Record { names, before, ours: vec![observed], confirmed: true };
            self.originals.put(&setting, record);
        }
    }

    /// A file with one mask for all of the node.
    fn plan_mask(
        &self,
        kernel: &dyn Kernel,
        setting: Setting,
        observed: SettingValue,
        area: Area<'_>,
    ) -> Option<Planned> {
        let path = self.path(&setting);
        let SettingValue::Cpus(cpus) = observed else { return None };
        let isolated = self.isolated_from(kernel, &setting);
        let is_welcome = (cpus - isolated).is_disjoint(&area.avoided);
        let Judgement { original, is_drift } =
            self.originals.judge(&setting, &observed, is_welcome);
        let SettingValue::Cpus(before) = original else { return None };
        let target = if is_welcome && original == observed {
            cpus
        } else {
            let area = Area { avoided: area.avoided | isolated, ..area };
            area.narrowed(before, None).unwrap_or(cpus)
        };
        let target = SettingValue::Cpus(target);
        Some(Planned { setting, path, observed, target, original, is_drift, names: Vec::new() })
    }

    /// CPUs of isolated partitions. The kernel keeps workers off them until the next write of the mask,
    /// which is obeyed to the letter, so a write has to leave them out (`workqueue_set_unbound_cpumask`).
    fn isolated_from(&self, kernel: &dyn Kernel, setting: &Setting) -> CpuSet {
        if *setting != Setting::Workqueues {
            return CpuSet::EMPTY;
        }
        // Linux before 6.7 does not have the file, and leaves the mask alone.
        let isolated = kernel.read(&self.roots.sys.join(WORKQUEUES).join("cpumask_isolated"));
        let isolated = isolated.map(|text| CpuSet::from_mask(&String::from_utf8_lossy(&text)));
        isolated.unwrap_or(Ok(CpuSet::EMPTY)).unwrap_or_default()
    }

    /// The files to write: those that differ, without those whose write was refused recently.
    fn due(
        &mut self,
        kernel: &dyn Kernel,
        planned: Vec<Planned>,
        outcome: &mut Outcome,
    ) -> Vec<Planned> {
        let mut due = Vec::new();
        // Refusals of files that have their value meanwhile, or are gone, end here.
        let mut refusals = std::mem::take(&mut self.refusals);
        for one in planned {
            outcome.observed.insert(one.setting.clone(), one.observed.clone());
            if one.observed == one.target {
                self.originals.settle(&one.setting, &one.original, &one.observed);
                continue;
            }
            match refusals.remove(&one.setting) {
                Some(refusal) if !refusal.is_over(kernel, &one) => {
                    outcome.failed.insert(one.setting.clone(), refusal.why.clone());
                    let passes = refusal.passes + 1;
                    self.refusals.insert(one.setting, RefusedSetting { passes, ..refusal });
                }
                _ => due.push(one),
            }
        }
        due
    }

    /// Makes writes, and reads them back.
    fn make(&mut self, kernel: &dyn Kernel, due: Vec<Planned>, outcome: &mut Outcome) {
        let mut failed = self.write(kernel, due.iter(), outcome);
        // A lowest frequency above the highest one is refused until the other file is written.
        let again = due.iter().filter(|one| {
            let error = failed.get(&one.setting).and_then(io::Error::raw_os_error);
            matches!(one.setting, Setting::Knob(_)) && error == Some(Errno::EINVAL as i32)
        });
        let again: Vec<&Planned> = again.collect();
        for one in &again {
            failed.remove(&one.setting);
        }
        failed.extend(self.write(kernel, again.into_iter(), outcome));
        for one in due {
            let error = failed.remove(&one.setting);
            self.verify(kernel, one, error, outcome);
        }
    }

    fn write<'a>(
        &self,
        kernel: &dyn Kernel,
        files: impl Iterator<Item = &'a Planned>,
        outcome: &mut Outcome,
    ) -> BTreeMap<Setting, io::Error> {
        let mut failed = BTreeMap::new();
        for one in files {
            outcome.written += 1;
            if let Err(error) = kernel.write(&one.path, &text(&one.setting, &one.target)) {
                failed.insert(one.setting.clone(), error);
            }
        }
        failed
    }

    /// Reads a file back after its write, which may have failed. One that does not have its value is
    /// written once more: another program may have written it at the same moment.
    fn verify(
        &mut self,
        kernel: &dyn Kernel,
        one: Planned,
        error: Option<io::Error>,
        outcome: &mut Outcome,
    ) {
        let Planned { setting, path, target, original, .. } = &one;
        let mut observed = self.read(kernel, setting);
        if error.is_none() && observed.as_ref().is_ok_and(|observed| observed != target) {
            outcome.written += 1;
            // The result is read.
            let _ = kernel.write(path, &text(setting, target));
            observed = self.read(kernel, setting);
        }
        let observed = match observed {
            Ok(observed) => observed,
            Err(error) if is_gone(&error) => {
                self.originals.forget(setting);
                outcome.observed.remove(setting);
                return;
            }
            Err(error) => {
                outcome.failed.insert(setting.clone(), error.to_string());
                return;
            }
        };
        let depends_on_value = match setting {
            Setting::Interrupt(_) => !error.as_ref().is_some_and(is_fixed),
            _ => true,
        };
        let why = match error {
            Some(error) => Some(error.to_string()),
            None if observed != *target => {
                Some(format!("it is {observed} after a write of {target}"))
            }
            None => None,
        };
        if matches!(setting, Setting::Knob(_)) && why.is_some() && observed != one.observed {
            // The kernel has made another value of the written one.
            self.originals.add_ours(setting, observed.clone());
        }
        self.originals.settle(setting, original, &observed);
        outcome.observed.insert(setting.clone(), observed);
        if let Some(why) = why {
            outcome.failed.insert(setting.clone(), why.clone());
            let opens = kernel.check_writable(path).is_ok();
            let Planned { setting, target, names, .. } = one;
            let refusal = RefusedSetting { names, target, why, depends_on_value, opens, passes: 0 };
            self.refusals.insert(setting, refusal);
        } else if one.is_drift {
            let Planned { setting, observed, target, .. } = one;
            outcome.drift.push(Drift { setting, observed, target });
        }
    }

    /// Reports the interrupts that may still fire on avoided CPUs.
    fn report_interrupts(
        &self,
        kernel: &dyn Kernel,
        interrupts: &Interrupts,
        area: Area<'_>,
        outcome: &Outcome,
        report: &mut Report,
    ) {
        for interrupt in interrupts.active.values() {
            let setting = Setting::Interrupt(interrupt.number);
            let Some(SettingValue::Cpus(observed)) = outcome.observed.get(&setting) else {
                continue;
            };
            if let Some(SettingValue::Cpus(before)) =
                self.originals.get(&setting).map(|one| &one.before)
            {
                let kept_off = (*before & area.avoided) - *observed;
                if !kept_off.is_empty() {
                    report.away.insert(interrupt.number, kept_off);
                }
            }
            let effective = interrupts::effective(kernel, &self.roots, interrupt.number);
            let cpus = effective.unwrap_or(*observed) & area.avoided;
            let why = outcome.failed.get(&setting);
            if cpus.is_empty() && (why.is_none() || observed.is_disjoint(&area.avoided)) {
                continue;
            }
            let Interrupt { number, names, chip, .. } = interrupt.clone();
            if let Some(why) = why {
                // It may be routed to any CPU of its affinity.
                let cpus = cpus | (*observed & area.avoided);
                let interrupt = StrayInterrupt { number, names, chip, cpus };
                report.refused.push(RefusedInterrupt { interrupt, why: why.clone() });
            } else if observed.is_disjoint(&area.avoided) {
                report.pending.push(StrayInterrupt { number, names, chip, cpus });
            } else if area.online.is_subset(&area.avoided) {
                report.nowhere.push(StrayInterrupt { number, names, chip, cpus });
            }
        }
    }

    /// Restores all original values. Values that other programs have set since stay. CPUs of isolated
    /// partitions stay without kernel workers: end the partitions first. Blocks, as [`Steering::pass`].
    pub fn restore(&mut self, kernel: &dyn Kernel) -> Restored {
        let mut restored = Restored::default();
        self.refusals.clear();
        self.known = None;
        let interrupts = interrupts::read(kernel, &self.roots).unwrap_or_default();
        let mut planned = Vec::new();
        for setting in self.originals.settings() {
            if let Setting::Interrupt(number) = &setting {
                let record = self.originals.get(&setting);
                let names = interrupts.active.get(number).map(|interrupt| &interrupt.names);
                if names.zip(record).is_some_and(|(names, record)| !record.is_of(names)) {
                    self.originals.forget(&setting);
                    continue;
                }
            }
            let observed = self.read(kernel, &setting);
            let path = self.path(&setting);
            let isolated = self.isolated_from(kernel, &setting);
            let mut one = back(path, observed, setting, &mut self.originals);
            if let Some(Planned { target: SettingValue::Cpus(cpus), .. }) = &mut one
                && !cpus.is_subset(&isolated)
            {
                *cpus -= isolated;
            }
            planned.extend(one);
        }
        let mut outcome = Outcome::default();
        let due = self.due(kernel, planned, &mut outcome);
        let files = due.len();
        // The records have these values already.
        self.make(kernel, due, &mut outcome);
        restored.files = (files - outcome.failed.len()) as u64;
        restored.left = outcome.failed.into_iter().collect();
        match self.irqbalance.restore(kernel, &mut self.originals) {
            Ok(was_sent) => restored.irqbalance = was_sent,
            Err(error) => restored.errors.push(format!("irqbalance: {error}")),
        }
        self.save(&mut restored.errors);
        restored
    }

    fn path(&self, setting: &Setting) -> PathBuf {
        match setting {
            Setting::Interrupt(number) => affinity_file(&self.roots, *number),
            Setting::DefaultAffinity => self.roots.proc.join("irq/default_smp_affinity"),
            Setting::Workqueues => self.roots.sys.join(WORKQUEUES).join("cpumask"),
            Setting::Knob(path) => self.roots.sys.join(path),
        }
    }

    fn read(&self, kernel: &dyn Kernel, setting: &Setting) -> io::Result<SettingValue> {
        let mut text = kernel.read(&self.path(setting))?;
        if *setting == Setting::Workqueues {
            // The mask as it was written: the other one follows isolated partitions.
            let requested = kernel.read(&self.roots.sys.join(WORKQUEUES).join("cpumask_requested"));
            text = requested.unwrap_or(text);
        }
        let text = String::from_utf8_lossy(&text);
        let cpus = match setting {
            Setting::Interrupt(_) => text.parse(),
            Setting::DefaultAffinity | Setting::Workqueues => CpuSet::from_mask(&text),
            Setting::Knob(_) => return Ok(SettingValue::Text(text.trim().to_owned())),
        };
        cpus.map(SettingValue::Cpus)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl RefusedSetting {
    /// Whether a write has a chance again.
    fn is_over(&self, kernel: &dyn Kernel, one: &Planned) -> bool {
        let is_other_device =
            !self.names.is_empty() && !self.names.iter().any(|name| one.names.contains(name));
        is_other_device
            || (self.depends_on_value && self.target != one.target)
            || RETRY <= self.passes
            || kernel.check_writable(&one.path).is_ok() != self.opens
    }
}

/// Whether the kernel refuses any affinity of an interrupt, or any write into `/proc/irq`. Others say that
/// the CPUs have no free vectors, for example.
fn is_fixed(error: &io::Error) -> bool {
    let fixed = [Errno::EIO, Errno::EPERM, Errno::EACCES, Errno::EINVAL, Errno::EROFS];
    fixed.iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}

/// A value as its file takes it.
fn text(setting: &Setting, value: &SettingValue) -> String {
    match (setting, value) {
        (Setting::DefaultAffinity | Setting::Workqueues, SettingValue::Cpus(cpus)) => mask(*cpus),
        _ => value.to_string(),
    }
}

/// A mask in the kernel's format: groups of 32 CPUs, the highest ones first.
fn mask(cpus: CpuSet) -> String {
    let last = cpus.iter().last().unwrap_or(0);
    let mut groups = vec![0_u32; last / 32 + 1];
    for cpu in &cpus {
        groups[cpu / 32] |= 1 << (cpu % 32);
    }
    let groups: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests;
