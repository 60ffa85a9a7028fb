//! CPUs of the machine go offline and come online: seen by a look at the kernel's list every now
//! and then, and before CPUs are given out.

use super::keeper::Keeper;
use super::partitions::Partitions;
use crate::cpuset::CpuSet;
use crate::ledger::Event;
use crate::topology::{Topology, sysfs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long after a look the next one is. The kernel tells of such changes by messages too
/// (uevents), but not in every container's network namespace.
const PERIOD: Duration = Duration::from_secs(2);

/// When and where the machine is looked at.
#[derive(Debug)]
pub(super) struct Hotplug {
    sysfs: PathBuf,
    /// The kernel's list at the last look; it can differ from what was made of it.
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
        // Warnings were told at the start.
        let read = sysfs::read(&self.sysfs).map_err(|error| error.to_string());
        let topology = read
            .and_then(|reading| Topology::build(reading.facts).map_err(|error| error.to_string()));
        // In the middle of a change it may make no sense: the next look sees it again.
        topology
            .inspect_err(|error| {
                log::warn!("the machine cannot be read: {error}");
                self.listed = None;
            })
            .ok()
    }

    /// Waits until the next look is due. Cancel safe.
    pub(super) async fn next(&self) {
        sleep_until(self.due).await;
    }

    /// Looks at the machine, and lets the ledger follow it. Says whether there may be something to
    /// deliver then.
    pub(super) fn follow(&mut self, keeper: &mut Keeper, partitions: &mut Partitions) -> bool {
        let Some(topology) = self.look() else { return false };
        let (before, now) = (keeper.ledger.topology().online(), topology.online());
        if before == now {
            return false;
        }
        log::warn!("online CPUs are now {now}, they were {before}");
        keeper.note(Event::Machine(topology));
        if keeper.ledger.shared_cpus().is_empty() {
            log::error!(
                "all CPUs that are online are exclusive: shared containers have none of their own"
            );
        }
        partitions.settle_all(&keeper.ledger);
        true
    }

    /// Looks where the devices are of containers that an event may give CPUs to. Files in `/sys`
    /// are read at once.
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
