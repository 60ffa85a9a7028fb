//! Finds CPUs that go offline or come online: periodically, and before every admission.

use crate::cpuset::CpuSet;
use crate::ledger::Event;
use crate::topology::{Topology, sysfs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The time between two checks. The kernel reports such changes by uevents too, but not in every
/// container's network namespace.
const PERIOD: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Hotplug {
    sysfs: PathBuf,
    /// The kernel's list at the last check; it can differ from the topology's.
    listed: Option<CpuSet>,
    due: Instant,
}

impl Hotplug {
    pub(super) fn new(sysfs: &Path) -> Hotplug {
        let sysfs = sysfs.to_owned();
        Hotplug { listed: sysfs::online(&sysfs), sysfs, due: Instant::now() + PERIOD }
    }

    /// The machine, if the kernel lists other CPUs as online than at the last check.
    fn look(&mut self) -> Option<Topology> {
        self.due = Instant::now() + PERIOD;
        let listed = sysfs::online(&self.sysfs)?;
        if self.listed.replace(listed) == Some(listed) {
            return None;
        }
        // The start has logged the warnings.
        let read = sysfs::read(&self.sysfs).map_err(|error| error.to_string());
        let topology = read
            .and_then(|reading| Topology::build(reading.facts).map_err(|error| error.to_string()));
        // During a change it may be inconsistent: the next check reads it again.
        topology
            .inspect_err(|error| {
                log::warn!("hotplug: cannot read the machine: {error}");
                self.listed = None;
            })
            .ok()
    }

    /// Cancel safe.
    pub(super) async fn next(&self) {
        sleep_until(self.due).await;
    }

    /// The machine as it is now, if other CPUs are online than before.
    pub(super) fn changed(&mut self, before: CpuSet) -> Option<Event> {
        let topology = self.look()?;
        let now = topology.online();
        if now == before {
            return None;
        }
        log::warn!("hotplug: online CPUs have changed (before={before} now={now})");
        Some(Event::Machine(topology))
    }

    pub(super) fn sysfs(&self) -> &Path {
        &self.sysfs
    }
}
