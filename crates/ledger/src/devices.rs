//! Which of a container's devices count for its NUMA affinity.
//!
//! The kubelet has the NUMA nodes that its device plugins report
//! ([`Event::Devices`](crate::Event::Devices)), which it uses for its own hints. It has none for
//! devices of resource claims (DRA), and some device plugins report none. Then the devices that the
//! runtime describes count as well, if their driver or sysfs shows their NUMA nodes.

use super::books::{Books, PodEntry};
use super::model::{Container, PodUid};
use super::node::Node;
use super::note::{Optional, What};
use super::terms::Terms;
use cpuset::NodeSet;
use placement::{DeviceNodes, Reason, Rejection, TopologyPolicy};
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
    fn is_complete(&self) -> bool {
        let has_nodes = |device: &Device| !device.nodes.is_empty();
        !self.has_claims && !self.devices.is_empty() && self.devices.iter().all(has_nodes)
    }
}

/// The devices of a container that count for its NUMA affinity; the runtime `described` some.
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
    /// These terms with the container's devices, which count only for a topology manager.
    pub(super) fn near(
        mut self,
        node: &Node,
        pod: &PodEntry,
        container: &str,
        described: &[Device],
    ) -> Terms {
        self.devices = if self.counts_devices(node) {
            let nodes = counting(pod, container, described).map(|device| device.nodes);
            DeviceNodes::near_cpus(&node.topology, nodes)
        } else {
            DeviceNodes::NONE
        };
        self
    }

    fn counts_devices(&self, node: &Node) -> bool {
        let placement = self.pod_options.settings(&node.settings.placement);
        placement.topology_manager.policy != TopologyPolicy::None
    }

    /// The rejection of a container whose NUMA affinity would be chosen without some of its devices.
    pub(super) fn too_many_devices(
        &self,
        node: &Node,
        pod: &PodEntry,
        container: &Container,
    ) -> Option<Rejection> {
        if !has_too_many(pod, container) || !self.counts_devices(node) {
            return None;
        }
        let (which, instead) = if container.too_many_devices {
            (
                "device files, or GPUs in NVIDIA_VISIBLE_DEVICES",
                "Name fewer, or set NVIDIA_VISIBLE_DEVICES to all or void",
            )
        } else {
            ("devices in the kubelet's list", "Request fewer")
        };
        let message = format!(
            "the container has too many devices: more than {MAX_DEVICES} {which}; its NUMA affinity depends on them. {instead}"
        );
        Some(Rejection::new(Reason::TopologyAffinity, message))
    }
}

fn has_too_many(pod: &PodEntry, container: &Container) -> bool {
    container.too_many_devices || pod.given.get(&container.name).is_some_and(|given| given.too_many)
}

/// Notes, once a pod, that it has too many annotations, or this container too many devices.
pub(super) fn note_too_many(books: &mut Books, uid: &PodUid, container: &Container) {
    let Some(pod) = books.pod_mut(uid) else { return };
    let (subject, what) = if pod.pod.annotations.are_too_many() {
        (pod.own_subject(), Optional::Annotations)
    } else if has_too_many(pod, container) {
        (pod.subject(container), Optional::Devices)
    } else {
        return;
    };
    if !std::mem::replace(&mut pod.noted_too_many, true) {
        books.journal.note(true, subject, What::TooMany(what));
    }
}

/// Records the kubelet's report. It changes no container's CPUs, but later decisions use it.
pub(super) fn record(node: &Node, books: &mut Books, pods: Vec<PodDevices>) {
    let mut pods: BTreeMap<(String, String), BTreeMap<String, GivenDevices>> =
        pods.into_iter().map(|pod| ((pod.namespace, pod.name), pod.containers)).collect();
    for (_, entry) in books.pods_mut() {
        let name = (entry.pod.namespace.clone(), entry.pod.name.clone());
        // A pod that is not listed may be too new for the report, so its record stays.
        if let Some(given) = pods.remove(&name) {
            entry.given = given;
        }
    }
    locate(node, books);
}

/// Computes the nearest NUMA nodes of all containers' devices again, for a new machine or report.
pub(super) fn locate(node: &Node, books: &mut Books) {
    for (_, pod) in books.pods_mut() {
        pod.locate_devices(node);
    }
}
