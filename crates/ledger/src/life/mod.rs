//! The life of a container, event by event.

mod create;
mod standby;
mod update;

pub(super) use create::create;
pub(super) use update::update;

use super::adopt::adopt_late;
use super::books::{Books, ContainerEntry, ContainerRef};
use super::identity::{Instance, instance, whose};
use super::model::{Container, ContainerId, Pod, PoolKind, Qos, SandboxId};
use super::node::Node;
use super::setting::CpuSetting;

/// A container's process is about to run. Only an unknown container changes anything.
pub(super) fn starting(node: &Node, books: &mut Books, pod: Pod, mut container: Container) {
    let uid = whose(node, books, pod, &mut container);
    match instance(books, &uid, &container) {
        Instance::Present => {
            books.change_container(&uid, &container.name, ContainerEntry::exist);
        }
        Instance::Replaced => {}
        Instance::Unknown => adopt_late(node, books, &uid, &container),
    }
}

pub(super) fn started(node: &Node, books: &mut Books, pod: Pod, mut container: Container) {
    let uid = whose(node, books, pod, &mut container);
    match instance(books, &uid, &container) {
        Instance::Present => {}
        Instance::Replaced => return,
        Instance::Unknown => {
            adopt_late(node, books, &uid, &container);
            // Cgroups were written without knowing whose it is.
            books.change_found(&container.id, |entry| entry.applied.invalidate());
            return;
        }
    }
    let Some(pod) = books.change(&uid) else { return };
    let Some(entry) = pod.container_mut(&container.name) else { return };
    entry.start(node.now);
    if entry.is_alive() {
        pod.detect_resources();
    }
}

/// A container's process has ended, or its creation failed.
pub(super) fn stop(books: &mut Books, id: &ContainerId) {
    let Some(ContainerRef { uid, name, .. }) = books.find(id) else { return };
    let (uid, name) = (uid.clone(), name.to_owned());
    if let Some(pod) = books.change(&uid) {
        pod.end(&name);
    }
}

/// The runtime has removed an instance, or could not create it. Its exclusive CPUs stay with its
/// name for the life of its pod, as under the kubelet: creations can fail several times in a row,
/// and the kubelet removes old instances between them.
pub(super) fn remove(books: &mut Books, id: &ContainerId) {
    stop(books, id);
    let Some(ContainerRef { uid, name, entry, .. }) = books.find(id) else {
        return books.forget(id);
    };
    let (uid, name) = (uid.clone(), name.to_owned());
    if entry.claim().is_some() {
        books.change_container(&uid, &name, ContainerEntry::remove);
        return;
    }
    books.remove(&uid, &name);
    let Some(pod) = books.change(&uid) else { return };
    if pod.containers().next().is_some() {
        return;
    }
    // A Guaranteed pod stays as long as its cgroup does, and so does one on the reserved CPUs: no
    // class keeps its pause container where it belongs.
    (pod.refused, pod.affinity) = (true, None);
    if pod.pod.qos != Qos::Guaranteed && pod.pool == PoolKind::General {
        books.remove_pod(&uid);
    }
}

/// All containers of a pod have been stopped: its exclusive CPUs are free again.
pub(super) fn end_pod(books: &mut Books, sandbox: &SandboxId) {
    let Some(uid) = books.owner(sandbox).cloned() else { return };
    let names = books.pod(&uid).into_iter().flat_map(|pod| pod.containers());
    let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    names.iter().for_each(|name| books.note_released(&uid, name));
    books.remove_pod(&uid);
}

/// The answer to a container's creation has gone out.
pub(super) fn created(books: &mut Books, id: &ContainerId, setting: Option<&CpuSetting>) {
    books.change_found(id, |entry| entry.answer(setting));
}

/// The daemon could not answer with a creation's decision: the container gets nothing.
pub(super) fn revoke(books: &mut Books, id: &ContainerId) {
    let Some(ContainerRef { uid, name, .. }) = books.find(id) else { return };
    let (uid, name) = (uid.clone(), name.to_owned());
    books.remove(&uid, &name);
    if let Some(pod) = books.change(&uid) {
        (pod.refused, pod.affinity) = (true, None);
    }
}
