//! The life of a container: what each of the runtime's events changes.

mod create;
mod standby;
mod update;

pub(super) use create::create;
pub(super) use update::update;

use super::adopt::adopt_late;
use super::books::{Books, ContainerEntry, ContainerRef};
use super::identity::{Instance, identify_container, instance};
use super::memory;
use super::model::{Container, ContainerId, Pod, PoolKind, Qos, SandboxId};
use super::node::Node;
use super::resize::end_notices;
use super::setting::CpuSetting;

/// A container's process is about to run. It exists, and if it is unknown the ledger adopts it.
pub(super) fn starting(node: &Node, books: &mut Books, pod: Pod, mut container: Container) {
    let uid = identify_container(node, books, pod, &mut container);
    match instance(books, &uid, &container) {
        Instance::Present => {
            books.change_container(&uid, &container.name, ContainerEntry::mark_created);
        }
        Instance::Replaced => {}
        Instance::Unknown => adopt_late(node, books, &uid, &container),
    }
}

pub(super) fn started(node: &Node, books: &mut Books, pod: Pod, mut container: Container) {
    let uid = identify_container(node, books, pod, &mut container);
    match instance(books, &uid, &container) {
        Instance::Present => {}
        Instance::Replaced => return,
        Instance::Unknown => {
            adopt_late(node, books, &uid, &container);
            // Cgroups were written before the ledger knew the container: an update is due.
            books.change_by_id(&container.id, |entry| entry.applied.invalidate());
            return;
        }
    }
    let Some(pod) = books.pod_mut(&uid) else { return };
    let Some(entry) = pod.container_mut(&container.name) else { return };
    entry.start(node.now);
    if entry.is_alive() {
        pod.detect_resources();
    }
}

pub(super) fn stop(node: &Node, books: &mut Books, id: &ContainerId) {
    let Some(ContainerRef { uid, name, .. }) = books.find(id) else { return };
    let (uid, name) = (uid.clone(), name.to_owned());
    if let Some(pod) = books.pod_mut(&uid) {
        pod.end(&name);
    }
    end_notices(node, books);
    memory::ended(node, books, &uid, &name);
}

/// The runtime has removed an instance, or could not create it. The exclusive CPUs stay with the
/// container's name for the life of its pod, as under the kubelet: creations can fail several times
/// in a row, and the kubelet removes old instances between them.
pub(super) fn remove(node: &Node, books: &mut Books, id: &ContainerId) {
    stop(node, books, id);
    let Some(ContainerRef { uid, name, entry, .. }) = books.find(id) else {
        return books.forget(id);
    };
    let (uid, name) = (uid.clone(), name.to_owned());
    if entry.claim().is_some() || entry.memory.is_some() {
        if let Some(pod) = books.pod_mut(&uid) {
            pod.removed(&name);
        }
        return;
    }
    books.remove(&uid, &name);
    let Some(pod) = books.pod_mut(&uid) else { return };
    if pod.containers().next().is_some() {
        return;
    }
    pod.promises_nothing = true;
    pod.affinity = None;
    // A Guaranteed pod and one on the reserved CPUs stay as long as their sandbox: their own cgroup
    // has to bind the pause container, as that of their QoS class does not.
    if pod.pod.qos != Qos::Guaranteed && pod.pool == PoolKind::General {
        books.remove_pod(&uid);
    }
}

/// The pod's sandbox has ended: its exclusive CPUs are free again.
pub(super) fn end_pod(books: &mut Books, sandbox: &SandboxId) {
    let Some(uid) = books.owner(sandbox).cloned() else { return };
    let names = books.pod(&uid).into_iter().flat_map(|pod| pod.containers());
    let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    names.iter().for_each(|name| books.note_released(&uid, name));
    books.release_own_pool(&uid);
    books.remove_pod(&uid);
}

pub(super) fn created(books: &mut Books, id: &ContainerId, setting: Option<&CpuSetting>) {
    books.change_by_id(id, |entry| entry.record_answer(setting));
}

/// The daemon could not answer with a creation's decision: the container gets nothing.
pub(super) fn revoke(books: &mut Books, id: &ContainerId) {
    let Some(ContainerRef { uid, name, .. }) = books.find(id) else { return };
    let (uid, name) = (uid.clone(), name.to_owned());
    books.remove(&uid, &name);
    let Some(pod) = books.pod_mut(&uid) else { return };
    pod.promises_nothing = true;
    pod.affinity = None;
    if pod.containers().next().is_none() {
        books.release_own_pool(&uid);
    }
}
