//! Whom an event is about.
//!
//! A container's id and a sandbox's id are the runtime's own and stand in every event. Uid and name
//! may be missing (of a sandbox that has left its books containerd tells the id alone), so they
//! never part what an id says belongs together.

use crate::ledger::books::{Books, ContainerRef};
use crate::ledger::model::{Container, Pod, PodUid};
use crate::ledger::node::Node;
use crate::ledger::terms::opts_out;

/// Which instance of its name a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instance {
    /// The one that is in the books.
    Present,
    /// The one before that: what is told of it comes late, and must not touch its successor.
    Replaced,
    /// One that no event has named.
    Unknown,
}

/// Which instance of its name a container is that an event is about.
pub(crate) fn instance(books: &Books, uid: &PodUid, container: &Container) -> Instance {
    match books.container(uid, &container.name).map(|found| found.entry) {
        Some(entry) if *entry.id() == container.id => Instance::Present,
        Some(entry) if entry.before.as_ref() == Some(&container.id) => Instance::Replaced,
        _ => Instance::Unknown,
    }
}

/// Takes note of a pod, known or not, and says whose it is.
pub(crate) fn identify(node: &Node, books: &mut Books, mut pod: Pod) -> PodUid {
    if let Some(owner) = books.owner(&pod.sandbox).filter(|owner| **owner != pod.uid).cloned() {
        // Where an event tells no uid, the edge puts the sandbox's id in its place.
        let nameless = owner.0 == pod.sandbox.0;
        if nameless {
            books.rename_pod(&owner, &pod.uid);
        } else {
            pod.uid = owner;
        }
    }
    let uid = books.enter_pod(pod);
    note_opting_out(node, books, &uid);
    uid
}

/// Takes note of whether a pod as a whole shares CPUs.
pub(crate) fn note_opting_out(node: &Node, books: &mut Books, uid: &PodUid) {
    let Some(pod) = books.pod(uid) else { return };
    let opted_out = opts_out(&node.settings, &pod.pod);
    if pod.opted_out != opted_out
        && let Some(mut pod) = books.change(uid)
    {
        pod.opted_out = opted_out;
    }
}

/// The pod and the name of the container that an event is about, by its id if that is known.
pub(crate) fn whose(node: &Node, books: &mut Books, pod: Pod, container: &mut Container) -> PodUid {
    let Some(ContainerRef { uid, name, .. }) = books.find(&container.id) else {
        return identify(node, books, pod);
    };
    let uid = uid.clone();
    container.name = name.to_owned();
    if uid == pod.uid || books.owner(&pod.sandbox) == Some(&uid) {
        identify(node, books, pod);
    }
    // The pod's uid may have come to be known only now.
    books.find(&container.id).map_or(uid, |found| found.uid.clone())
}
