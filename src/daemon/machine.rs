//! CPUs of the machine go offline and come online: seen by a look at the kernel's list every now and then, and before
//! CPUs are given out.

use super::{Owner, Paths};
use crate::cpuset::CpuSet;
use crate::ledger::Event;
use crate::topology::{Topology, sysfs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long after a look the next one is. The kernel tells of such changes by messages too (uevents), but not in every
/// container's network namespace.
const PERIOD: Duration = Duration::from_secs(2);

/// When and where the machine is looked at.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) sysfs: PathBuf,
    /// The kernel's list at the last look; it can differ from what was made of it.
    listed: Option<CpuSet>,
    pub(super) due: Instant,
}

impl Machine {
    pub(super) fn new(paths: &Paths) -> Machine {
        let sysfs = paths.sysfs_root.clone();
        Machine { listed: sysfs::online(&sysfs), sysfs, due: Instant::now() + PERIOD }
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
}

/// Looks where the devices are of containers that an event may give CPUs to. Files in `/sys` wait for nobody.
pub(super) fn locate_devices(sysfs: &Path, event: &mut Event) {
    let containers = match event {
        Event::Create { container, .. } => std::slice::from_mut(container),
        Event::Synchronize { containers, .. } => containers.as_mut_slice(),
        _ => return,
    };
    for device in containers.iter_mut().flat_map(|container| &mut container.devices) {
        device.node = sysfs::device_node(sysfs, device.block, device.major, device.minor);
    }
}

impl Owner {
    /// Looks at the machine, and follows it. What changes for containers is told at once where that is safe, with the
    /// next answers else.
    pub(super) async fn look_at_machine(&mut self) {
        let Some(topology) = self.machine.look() else { return };
        let (before, now) = (self.ledger.topology().online(), topology.online());
        if before == now {
            return;
        }
        log::warn!("online CPUs are now {now}, they were {before}");
        // Never refused.
        let _ = self.ledger.handle(Event::Machine(topology));
        self.tell_notes();
        if self.ledger.shared_cpus().is_empty() {
            log::error!(
                "all CPUs that are online are exclusive: shared containers have none of their own"
            );
        }
        self.kernel.settle_all(&self.ledger);
        self.tell_pending().await;
    }
}
