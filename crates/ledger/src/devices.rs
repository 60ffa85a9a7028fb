//! Which of a container's devices count for its NUMA affinity.
//!
//! The kubelet has the NUMA nodes that its device plugins report
//! ([`Event::Devices`](crate::Event::Devices)), which it uses for its own hints. It has none for
//! devices of resource claims (DRA), and some device plugins report none. Then the devices that the
//! runtime describes count as well, if their driver or sysfs shows their NUMA nodes.

use super::books::{Books, ContainerEntry, PodEntry};
use super::device::{Device, GivenDevices, MAX_DEVICES, PodDevices};
use super::model::{Container, PodUid};
use super::node::Node;
use super::note::{Optional, What};
use super::terms::Terms;
use placement::{DeviceNodes, Reason, Rejection, TopologyPolicy};
use std::collections::BTreeMap;

impl Terms {
    /// Refuses a new container if an annotation for it is unknown or not allowed.
    pub(super) fn of_new(
        node: &Node,
        pod: &PodEntry,
        container: &Container,
    ) -> Result<Terms, Rejection> {
        let terms = Terms::allowed(&node.settings, &pod.pod, &container.name)?;
        Ok(terms.near(node, pod, &container.name, &container.devices))
    }

    pub(super) fn of_running(node: &Node, pod: &PodEntry, container: &Container) -> Terms {
        let terms = Terms::still_allowed(&node.settings, &pod.pod, &container.name);
        terms.near(node, pod, &container.name, &container.devices)
    }

    /// These terms with the container's devices, which count only for a topology manager.
    fn near(mut self, node: &Node, pod: &PodEntry, container: &str, described: &[Device]) -> Terms {
        self.devices = if self.counts_devices(node) {
            let nodes = pod.counted_devices(container, described).map(|device| device.nodes);
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
    books.pods_mut().for_each(|(_, pod)| locate_of(node, pod));
}

/// As [`locate`], of one pod.
pub(super) fn locate_of(node: &Node, pod: &mut PodEntry) {
    let near = |(name, entry): (&String, &ContainerEntry)| {
        entry.terms.clone().near(node, pod, name, &entry.devices)
    };
    let located: Vec<Terms> = pod.containers().map(near).collect();
    for ((_, entry), terms) in pod.containers_mut().zip(located) {
        entry.terms = terms;
    }
}
