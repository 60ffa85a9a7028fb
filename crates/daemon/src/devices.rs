//! [`Devices`]: where containers' devices are, by the node's files and the kubelet.
//!
//! The kubelet and NVIDIA's driver may take long to answer, so nothing waits for them: they are asked
//! when a pod starts ([`Effect::FindDevices`](super::Effect::FindDevices)), before it has containers.
//! A container that is created before the answer is placed by what is known.

use kernel::Kernel;
use ledger::{
    Admission, Call, Container, Device, DeviceRef, DeviceSource, Event, GivenDevices, MAX_DEVICES,
    PodDevices,
};
use podresources::devices;
use status::KubeletDevices;
use std::path::Path;
use std::time::Instant;
use topology::sysfs::{self, Gpu};
use wording::Repeats;

/// The major number of NVIDIA's character devices.
const NVIDIA: i64 = 195;

/// The result of [`Effect::FindDevices`](super::Effect::FindDevices).
#[derive(Debug)]
pub struct FoundDevices {
    /// `None` if the driver has not answered in time.
    pub gpus: Option<Vec<Gpu>>,
    /// The kubelet's answer, or why there is none; `None` if its socket is not mounted.
    pub kubelet: Option<Result<ListedDevices, String>>,
}

/// The kubelet's list of devices.
#[derive(Debug)]
pub struct ListedDevices {
    pub pods: Vec<PodDevices>,
    /// How many more pods the list has than are read.
    pub unread: usize,
}

#[derive(Debug, Default)]
pub(super) struct Devices {
    gpus: Vec<Gpu>,
    pub(super) kubelet: KubeletDevices,
    /// Whether pods have started since the last search began.
    is_due: bool,
    is_searching: bool,
    repeats: Repeats,
}

impl Devices {
    pub(super) fn new(gpus: Vec<Gpu>) -> Devices {
        Devices { gpus, ..Devices::default() }
    }

    /// A search is due when a pod starts: the kubelet has assigned its devices by then.
    pub(super) fn note_call(&mut self, call: &Call) {
        if matches!(call, Call::Event(Event::RunPod(_) | Event::Synchronize { .. })) {
            self.is_due = true;
        }
    }

    /// Begins a search, if one is due and none is under way.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.is_due && !self.is_searching;
        if begins {
            self.is_due = false;
            self.is_searching = true;
        }
        begins
    }

    pub(super) fn found(&mut self, found: FoundDevices, now: Instant) -> Option<Event> {
        self.is_searching = false;
        if let Some(gpus) = found.gpus {
            self.gpus = gpus;
        }
        match found.kubelet {
            None => {
                self.kubelet = KubeletDevices::Unmounted;
                None
            }
            Some(Ok(ListedDevices { pods, unread })) => {
                if unread > 0
                    && let Some(times) = self.repeats.occurred("unread", now)
                {
                    log::warn!(
                        "devices: the kubelet lists more pods, or longer names, than a node has: not read: {}; \
                         their containers are placed by what drivers and /sys say{times}",
                        wording::count(unread, "pod")
                    );
                }
                if let KubeletDevices::Fails(_) = self.kubelet {
                    let line = "devices: the kubelet says again where they are";
                    if let Some(times) = self.repeats.occurred(line, now) {
                        log::info!("{line}{times}");
                    }
                }
                self.kubelet = KubeletDevices::Answers;
                Some(Event::Devices(pods))
            }
            Some(Err(why)) => {
                if let Some(times) = self.repeats.occurred(&why, now) {
                    log::warn!(
                        "devices: the kubelet does not say on which NUMA nodes they are: {why}; \
                         containers are placed by what drivers and /sys say{times}"
                    );
                }
                self.kubelet = KubeletDevices::Fails(why);
                None
            }
        }
    }

    /// Finds the NUMA nodes of the devices of a call's containers. Files in `/sys` do not block.
    pub(super) fn locate(&self, kernel: &dyn Kernel, sysfs: &Path, call: &mut Call) {
        let containers = match call {
            Call::Admission(Admission::Create { container, .. }) => std::slice::from_mut(container),
            Call::Event(Event::Synchronize { containers, .. }) => containers.as_mut_slice(),
            _ => return,
        };
        for Container { described_devices, devices, .. } in containers {
            for described in described_devices {
                let device = self.device(kernel, sysfs, described);
                // One device can have several files.
                if let Some(device) = device.filter(|one| !devices.contains(one)) {
                    devices.push(device);
                }
            }
        }
    }

    fn device(&self, kernel: &dyn Kernel, sysfs: &Path, described: &DeviceRef) -> Option<Device> {
        let gpu = self.gpus.iter().find(|gpu| match described {
            DeviceRef::File { block, major, minor } => {
                !block && *major == NVIDIA && gpu.minor == Some(*minor)
            }
            DeviceRef::Gpu(uuid) => gpu.uuid.as_ref() == Some(uuid),
        });
        if let Some(gpu) = gpu {
            let nodes = [gpu.node?].into_iter().collect();
            let name = format!("GPU {}", gpu.address).into();
            return Some(Device { name, nodes, source: DeviceSource::Driver });
        }
        let DeviceRef::File { block, major, minor } = *described else { return None };
        let found = sysfs::located_device(kernel, sysfs, block, major, minor)?;
        let nodes = [found.node].into_iter().collect();
        Some(Device { name: found.name.into(), nodes, source: DeviceSource::Sysfs })
    }
}

/// Converts the kubelet's answer for the ledger.
pub(super) fn given(listed: devices::Listed) -> ListedDevices {
    let device =
        |devices::Device { name, nodes }| Device { name, nodes, source: DeviceSource::Kubelet };
    let container = |one: devices::ContainerDevices| {
        let devices = one.devices.into_iter().map(device).collect();
        (one.name, GivenDevices { devices, too_many: one.too_many, has_claims: one.has_claims })
    };
    let pod = |pod: devices::PodDevices| PodDevices {
        namespace: pod.namespace,
        name: pod.name,
        containers: pod.containers.into_iter().map(container).collect(),
    };
    ListedDevices { pods: listed.pods.into_iter().map(pod).collect(), unread: listed.unread }
}

// What one counts as too many has to be too many for the other.
const _: () = assert!(devices::MAX_DEVICES == MAX_DEVICES);
