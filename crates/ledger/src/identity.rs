//! Which pod and container an event is about.
//!
//! Every event has the runtime's ids of container and sandbox. Uid and name may be missing: for a
//! sandbox that containerd has removed from its store, it reports only the id. So the ids decide,
//! and the books ignore a uid or a name that contradicts them.

use crate::books::{Books, ContainerRef};
use crate::model::{Container, Pod, PodUid};
use crate::node::Node;
use crate::terms::opts_out;

/// Which instance of its name the container of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instance {
    /// The instance in the books.
    Present,
    /// The predecessor of that instance: its events are late and must not change the successor.
    Replaced,
    /// An instance that no event has named, or that the runtime's list left out: a container that
    /// starts or stops during the list may be missing from it.
    Unknown,
}

pub(crate) fn instance(books: &Books, uid: &PodUid, container: &Container) -> Instance {
    match books.container(uid, &container.name).map(|found| found.entry) {
        Some(entry) if *entry.id() == container.id && !entry.is_unlisted() => Instance::Present,
        Some(entry) if entry.has_replaced(&container.id) => Instance::Replaced,
        _ => Instance::Unknown,
    }
}

/// Enters a pod, known or not, and returns its uid.
pub(crate) fn identify(node: &Node, books: &mut Books, mut pod: Pod) -> PodUid {
    if let Some(owner) = books.owner(&pod.sandbox).filter(|owner| **owner != pod.uid).cloned() {
        // For an event without a uid the edge uses the sandbox's id as the uid.
        let is_placeholder = owner.0 == pod.sandbox.0;
        if is_placeholder {
            books.rename_pod(&owner, &pod.uid);
        } else {
            pod.uid = owner;
        }
    }
    let (uid, same_terms) = books.enter_pod(pod);
    if !same_terms {
        record_terms(node, books, &uid);
    }
    uid
}

/// Records whether all containers of a pod share CPUs, and which.
pub(crate) fn record_terms(node: &Node, books: &mut Books, uid: &PodUid) {
    let Some(pod) = books.pod_mut(uid) else { return };
    pod.opted_out = opts_out(&node.settings, &pod.pod);
    pod.pool = node.settings.pool_of(&pod.pod);
}

/// Returns the pod of an event's container, and corrects the container's name. If the container's
/// id is known, it decides both.
pub(crate) fn identify_container(
    node: &Node,
    books: &mut Books,
    pod: Pod,
    container: &mut Container,
) -> PodUid {
    let Some(ContainerRef { uid, name, .. }) = books.find(&container.id) else {
        return identify(node, books, pod);
    };
    let uid = uid.clone();
    container.name = name.to_owned();
    if uid == pod.uid || books.owner(&pod.sandbox) == Some(&uid) {
        identify(node, books, pod);
    }
    // If this event is the first one with the pod's uid, the pod has just been renamed.
    books.find(&container.id).map_or(uid, |found| found.uid.clone())
}
