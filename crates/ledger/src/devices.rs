//! Which of a container's devices count for its NUMA affinity, and who says where they are.
//!
//! The kubelet knows what its device plugins have told it ([`Event::Devices`](crate::Event::Devices)), and
//! used just that for its own hints. It knows nothing of devices by resource claims (DRA), and some
//! device plugins name no nodes: then the devices that the runtime describes count as well, as far as
//! a driver or sysfs says where they are.

use super::books::{Books, PodEntry};
use super::node::Node;
use super::terms::Terms;
use cpuset::NodeSet;
use placement::{DeviceNodes, TopologyPolicy};
use std::collections::BTreeMap;

/// A device that a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// For people.
    pub name: String,
    /// The NUMA nodes that it is on: as near to each. None if they are unknown.
    pub nodes: NodeSet,
    pub source: DeviceSource,
}

/// Who says on which NUMA nodes a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceSource {
    /// The kubelet, by its podresources API.
    Kubelet,
    /// Files of the device's driver.
    Driver,
    Sysfs,
}

/// What the kubelet says of the devices of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDevices {
    pub namespace: String,
    /// The pod's.
    pub name: String,
    /// By container; those without devices can be left out.
    pub containers: BTreeMap<String, GivenDevices>,
}

/// The devices that the kubelet has given to a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenDevices {
    pub devices: Vec<Device>,
    /// Whether it has others, by resource claims.
    pub has_claims: bool,
}

impl GivenDevices {
    /// Whether the kubelet knows the nodes of all devices of the container.
    fn is_complete(&self) -> bool {
        let has_nodes = |device: &Device| !device.nodes.is_empty();
        !self.has_claims && !self.devices.is_empty() && self.devices.iter().all(has_nodes)
    }
}

/// The devices of a container that count; `described` are those that the runtime has described.
pub(super) fn counting<'a>(
    pod: &'a PodEntry,
    container: &str,
    described: &'a [Device],
) -> impl Iterator<Item = &'a Device> {
    let given = pod.given.get(container);
    let is_complete = given.is_some_and(GivenDevices::is_complete);
    let given = given.map(|given| given.devices.as_slice()).unwrap_or_default();
    let described = if is_complete { &[] } else { described };
    given.iter().chain(described).filter(|device| !device.nodes.is_empty())
}

impl Terms {
    /// With the NUMA nodes of the container's devices. Without a topology manager they do not matter.
    pub(super) fn near(
        mut self,
        node: &Node,
        pod: &PodEntry,
        container: &str,
        described: &[Device],
    ) -> Terms {
        let placement = self.wishes.settings(&node.settings.placement);
        self.devices = if placement.topology_manager.policy == TopologyPolicy::None {
            DeviceNodes::NONE
        } else {
            let nodes = counting(pod, container, described).map(|device| device.nodes);
            DeviceNodes::near_cpus(&node.topology, nodes)
        };
        self
    }
}

/// Follows what the kubelet says. It changes no container's CPUs: it counts for decisions that come.
pub(super) fn record(node: &Node, books: &mut Books, pods: Vec<PodDevices>) {
    let mut pods: BTreeMap<(String, String), BTreeMap<String, GivenDevices>> =
        pods.into_iter().map(|pod| ((pod.namespace, pod.name), pod.containers)).collect();
    for (_, entry) in books.pods_mut() {
        let name = (entry.pod.namespace.clone(), entry.pod.name.clone());
        // A pod that is not listed may be too new, or may have ended: what is known stays.
        if let Some(given) = pods.remove(&name) {
            entry.given = given;
        }
    }
    locate(node, books);
}

/// Finds the NUMA nodes of all containers' devices again.
pub(super) fn locate(node: &Node, books: &mut Books) {
    for (_, pod) in books.pods_mut() {
        pod.locate_devices(node);
    }
}
