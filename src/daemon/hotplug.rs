//! Sees CPUs go offline and come online, by periodic looks at the kernel's list and before every
//! admission.

use super::enforcement::Enforcement;
use super::keeper::Keeper;
use crate::cpuset::CpuSet;
use crate::ledger::Event;
use crate::topology::{Topology, sysfs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The time between two looks. The kernel reports such changes by uevents too, but not in every
/// container's network namespace.
const PERIOD: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Hotplug {
    sysfs: PathBuf,
    /// The kernel's list at the last look; it can differ from the topology's.
    listed: Option<CpuSet>,
    due: Instant,
}

impl Hotplug {
    pub(super) fn new(sysfs: &Path) -> Hotplug {
        let sysfs = sysfs.to_owned();
        Hotplug { listed: sysfs::online(&sysfs), sysfs, due: Instant::now() + PERIOD }
    }

    /// The machine, if the kernel lists other CPUs as online than at the last look.
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
        // During a change it may be inconsistent: the next look reads it again.
        topology
            .inspect_err(|error| {
                log::warn!("the machine cannot be read: {error}");
                self.listed = None;
            })
            .ok()
    }

    /// Cancel safe.
    pub(super) async fn next(&self) {
        sleep_until(self.due).await;
    }

    /// Looks at the machine, and lets the ledger follow it. Returns whether updates may be due
    /// then.
    pub(super) fn follow(&mut self, keeper: &mut Keeper, enforcement: &mut Enforcement) -> bool {
        let Some(topology) = self.look() else { return false };
        let (before, now) = (keeper.ledger.topology().online(), topology.online());
        if before == now {
            return false;
        }
        log::warn!("online CPUs are now {now}, they were {before}");
        keeper.note(Event::Machine(topology));
        if keeper.ledger.bound().is_empty() {
            log::error!(
                "all CPUs that are online are exclusive: shared containers have none of their own"
            );
        }
        enforcement.settle_all(&keeper.ledger);
        true
    }

    /// Finds the NUMA nodes of the devices of an event's containers. Files in `/sys` do not block.
    pub(super) fn locate_devices(&self, event: &mut Event) {
        let containers = match event {
            Event::Create { container, .. } => std::slice::from_mut(container),
            Event::Synchronize { containers, .. } => containers.as_mut_slice(),
            _ => return,
        };
        for device in containers.iter_mut().flat_map(|container| &mut container.devices) {
            device.node = sysfs::device_node(&self.sysfs, device.block, device.major, device.minor);
        }
    }
}
