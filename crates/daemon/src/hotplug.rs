//! Finds CPUs that go offline or come online, and those that partitions of other programs take or
//! return: periodically, and before every admission. To the ledger both are the same: no container
//! can run there.

use super::log_repeated;
use cgroups::{ForeignPartitions, Hierarchy};
use cpuset::CpuSet;
use exclusivity::foreign_partitions;
use kernel::Kernel;
use ledger::{Event, Ledger};
use log::Level;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use topology::{Topology, sysfs};
use wording::Repeats;

/// The time between two checks. The kernel reports such changes by uevents too, but not in every
/// container's network namespace.
const PERIOD: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Hotplug {
    kernel: Arc<dyn Kernel>,
    sysfs: PathBuf,
    /// `None` if cgroups cannot be read.
    hierarchy: Option<Hierarchy>,
    /// The kernel's list at the last check; it can differ from the topology's.
    listed: Option<CpuSet>,
    machine: Topology,
    foreign: ForeignPartitions,
    due: Instant,
    repeats: Repeats,
}

impl Hotplug {
    /// `machine` is what `sysfs` describes.
    pub(super) fn new(
        kernel: &Arc<dyn Kernel>,
        sysfs: &Path,
        machine: Topology,
        hierarchy: Option<Hierarchy>,
        now: Instant,
    ) -> Hotplug {
        Hotplug {
            kernel: Arc::clone(kernel),
            sysfs: sysfs.to_owned(),
            hierarchy,
            listed: sysfs::online(&**kernel, sysfs),
            machine,
            foreign: ForeignPartitions::new(),
            due: now + PERIOD,
            repeats: Repeats::default(),
        }
    }

    /// Reads the machine again if the kernel lists other CPUs as online than at the last check.
    fn read_machine(&mut self, now: Instant) {
        let Some(listed) = sysfs::online(&*self.kernel, &self.sysfs) else { return };
        if self.listed.replace(listed) == Some(listed) {
            return;
        }
        // The start has logged the warnings.
        let read = sysfs::read(&*self.kernel, &self.sysfs).map_err(|error| error.to_string());
        let topology = read.and_then(|sysfs::Reading { facts, sizes, .. }| {
            let topology = Topology::build(facts).map_err(|error| error.to_string())?;
            Ok(topology.with_memory(&sizes))
        });
        match topology {
            Ok(topology) => {
                let before = self.machine.online();
                let online = topology.online();
                let line =
                    format!("hotplug: online CPUs have changed (before={before} now={online})");
                if online != before {
                    log_repeated(&mut self.repeats, Level::Warn, &line, now);
                }
                self.machine = topology;
            }
            // During a change /sys may be inconsistent: the next check reads it again.
            Err(error) => {
                let line = format!("hotplug: cannot read the machine: {error}");
                log_repeated(&mut self.repeats, Level::Warn, &line, now);
                self.listed = None;
            }
        }
    }

    fn read_partitions(&mut self, ledger: &Ledger, now: Instant) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let found = foreign_partitions(hierarchy, self.machine.online(), ledger);
        for line in changes(&self.foreign, &found) {
            log_repeated(&mut self.repeats, Level::Warn, &line, now);
        }
        self.foreign = found;
    }

    /// When the next check is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The machine as it is now, if the ledger has another one. CPUs of foreign partitions are
    /// offline in it.
    pub(super) fn changed(&mut self, ledger: &Ledger, now: Instant) -> Option<Event> {
        self.due = now + PERIOD;
        self.read_machine(now);
        self.read_partitions(ledger, now);
        let foreign = self.foreign.values().copied().collect();
        if self.machine.online() - foreign == ledger.topology().online() {
            return None;
        }
        let usable = self.machine.without(&foreign);
        match usable {
            Ok(machine) => Some(Event::Machine(machine)),
            Err(error) => {
                let line = format!("hotplug: partitions ignored: {error}");
                log_repeated(&mut self.repeats, Level::Warn, &line, now);
                None
            }
        }
    }

    /// The machine as the kernel describes it, with the CPUs of foreign partitions.
    pub(super) fn machine(&self) -> &Topology {
        &self.machine
    }

    /// Partitions of other programs at the last check.
    pub(super) fn foreign(&self) -> &ForeignPartitions {
        &self.foreign
    }

    pub(super) fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    pub(super) fn sysfs(&self) -> &Path {
        &self.sysfs
    }
}

/// What has changed about partitions of other programs, a line each.
fn changes(before: &ForeignPartitions, now: &ForeignPartitions) -> Vec<String> {
    let mut lines = Vec::new();
    for (group, cpus) in now {
        match before.get(group) {
            None => lines.push(format!(
                "foreign partition: {group} has {}: not assigned to containers",
                wording::cpus(*cpus)
            )),
            Some(had) if had != cpus => lines.push(format!(
                "foreign partition: CPUs of {group} have changed (before={had} now={cpus})"
            )),
            Some(_) => {}
        }
    }
    for (group, cpus) in before.iter().filter(|(group, _)| !now.contains_key(group)) {
        lines.push(format!(
            "foreign partition: {group} has ended: {} can be assigned again",
            wording::cpus(*cpus)
        ));
    }
    lines
}
