//! Devices of containers and their NUMA nodes, as the runtime and the kubelet report them.

use cpuset::NodeSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most devices of a container that are read, of the runtime's description and of the kubelet's answer.
pub const MAX_DEVICES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// For messages.
    pub name: Arc<str>,
    /// The NUMA nodes to which it is equally near; empty if they are unknown.
    pub nodes: NodeSet,
    pub source: DeviceSource,
}

/// The source of a device's NUMA nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceSource {
    /// The kubelet's podresources API.
    Kubelet,
    /// Files of the device's driver.
    Driver,
    Sysfs,
}

/// The kubelet's record of a pod's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDevices {
    pub namespace: String,
    pub name: String,
    /// By container; containers without devices may be missing.
    pub containers: BTreeMap<String, GivenDevices>,
}

/// The devices that the kubelet has given to a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenDevices {
    /// None if there are too many.
    pub devices: Vec<Device>,
    pub too_many: bool,
    /// Whether the container also has devices of resource claims (DRA), which are not in `devices`.
    pub has_claims: bool,
}

impl GivenDevices {
    /// Whether these are all devices of the container, with their NUMA nodes.
    pub(super) fn is_complete(&self) -> bool {
        let has_nodes = |device: &Device| !device.nodes.is_empty();
        !self.has_claims && !self.devices.is_empty() && self.devices.iter().all(has_nodes)
    }
}
