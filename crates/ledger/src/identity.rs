//! Which pod and container an event is about.
//!
//! Every event has the runtime's ids of container and sandbox. Uid and name may be missing: of a
//! sandbox that containerd has removed from its store it reports the id alone. So the ids decide,
//! and uid and name never contradict them.

use crate::books::{Books, ContainerRef};
use crate::model::{Container, Pod, PodUid};
use crate::node::Node;
use crate::terms::opts_out;

/// Which instance of its name a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instance {
    /// The one that is in the books.
    Present,
    /// The one before that: its events come late and must not change its successor.
    Replaced,
    /// One that no event has named, or that the runtime did not list: while it starts and stops
    /// containers it lists some of them as neither.
    Unknown,
}

/// Which instance of its name the container of an event is.
pub(crate) fn instance(books: &Books, uid: &PodUid, container: &Container) -> Instance {
    match books.container(uid, &container.name).map(|found| found.entry) {
        Some(entry) if *entry.id() == container.id && !entry.is_unlisted() => Instance::Present,
        Some(entry) if entry.follows(&container.id) => Instance::Replaced,
        _ => Instance::Unknown,
    }
}

/// Enters a pod, known or not, and returns its uid.
pub(crate) fn identify(node: &Node, books: &mut Books, mut pod: Pod) -> PodUid {
    if let Some(owner) = books.owner(&pod.sandbox).filter(|owner| **owner != pod.uid).cloned() {
        // For an event without a uid the NRI layer uses the sandbox's id.
        let nameless = owner.0 == pod.sandbox.0;
        if nameless {
            books.rename_pod(&owner, &pod.uid);
        } else {
            pod.uid = owner;
        }
    }
    let (uid, asked) = books.enter_pod(pod);
    if !asked {
        note_terms(node, books, &uid);
    }
    uid
}

/// Records whether all containers of a pod share CPUs, and which.
pub(crate) fn note_terms(node: &Node, books: &mut Books, uid: &PodUid) {
    let Some(pod) = books.change(uid) else { return };
    pod.opted_out = opts_out(&node.settings, &pod.pod);
    pod.pool = node.settings.pool_of(&pod.pod);
}

/// Sets the name of the container of an event and returns its pod, by its id if that is known.
pub(crate) fn whose(node: &Node, books: &mut Books, pod: Pod, container: &mut Container) -> PodUid {
    let Some(ContainerRef { uid, name, .. }) = books.find(&container.id) else {
        return identify(node, books, pod);
    };
    let uid = uid.clone();
    container.name = name.to_owned();
    if uid == pod.uid || books.owner(&pod.sandbox) == Some(&uid) {
        identify(node, books, pod);
    }
    // This event may be the first one with the pod's uid.
    books.find(&container.id).map_or(uid, |found| found.uid.clone())
}
