//! CPUs go offline and come online while containers run. A cpuset partition of another program does
//! the same to its CPUs.
//!
//! The kubelet does not support this: it keeps to the CPUs that it found when it started, and does
//! not start again with others. Here the pool follows at once, and a container changes only if it
//! lost CPUs or lacks some: it keeps the rest and gets the nearest free ones. If there are none it
//! runs on with fewer, and the next change of the machine completes it.

use crate::books::{Books, ContainerRef};
use crate::model::PodUid;
use crate::node::Node;
use crate::note::{MoveReason, What};
use crate::own_pool;
use crate::request::{NodeSupply, running_request};
use cpuset::CpuSet;
use placement::{self, Request, Running};
use topology::Topology;

/// `node` has the new machine; `before` is the old one, on which other CPUs were online.
pub(crate) fn hotplug(node: &Node, books: &mut Books, before: &Topology) {
    let online = node.topology.online();
    let mut held = Vec::new();
    for (uid, pod) in books.pods_mut() {
        // It was chosen among the NUMA nodes of the old machine. A restart forgets it, too.
        pod.affinity = None;
        pod.own_pool = pod.own_pool.map(|own_pool| own_pool & online);
        for (name, entry) in pod.containers_mut() {
            let had = entry.claim();
            entry.drop_offline(online);
            held.push((uid.clone(), name.clone(), had));
        }
    }
    let broken = broken_cores(before, online);
    for (uid, name, had) in held {
        if node.assigns() {
            complete(node, books, &uid, &name, &broken);
        }
        note_change(node, books, &uid, &name, had);
    }
    if node.assigns() {
        let pods: Vec<PodUid> = books.pods().map(|(uid, _)| uid.clone()).collect();
        pods.iter().for_each(|uid| own_pool::complete(node, books, uid, &broken));
    }
}

/// Gives a container that lacks exclusive CPUs the nearest free ones, if there are enough.
fn complete(node: &Node, books: &mut Books, uid: &PodUid, name: &str, broken: &CpuSet) {
    let Some(ContainerRef { pod, entry, .. }) = books.container(uid, name) else { return };
    let Some(n) = entry.asks(pod.pod.qos) else { return };
    if !entry.lacks_cpus || !entry.is_alive() || !node.is_static() {
        return;
    }
    let left = entry.held();
    let supply = NodeSupply::of(node, books);
    // A running container has precedence over pods that are about to start.
    let request = Request { promised: 0, ..running_request(node, &supply, pod, entry, n) };
    let margin = request.pod_options.margin();
    let reduced = Running::Reduced { left, broken: *broken };
    if let Ok(cpus) = placement::resize(&node.topology, &request, &reduced) {
        books.change_container(uid, name, |entry| entry.move_to(cpus, margin));
    }
}

fn note_change(node: &Node, books: &mut Books, uid: &PodUid, name: &str, had: Option<CpuSet>) {
    let Some(found) = books.container(uid, name) else { return };
    let (now, subject) = (found.entry.claim(), found.subject());
    if now == had || !found.entry.is_alive() {
        return;
    }
    let lost = had.is_some_and(|had| !had.is_subset(&node.topology.online()));
    let why = if lost { MoveReason::Offline } else { MoveReason::Online };
    match now {
        Some(to) => books.journal.moved(subject, had, to, why),
        None => {
            let what = What::LeftShared(
                "all its exclusive CPUs are now offline or another program's".to_owned(),
            );
            books.journal.note(true, subject, what);
        }
    }
}

/// The CPUs of cores that have lost a CPU: whole cores of these cannot be required.
fn broken_cores(before: &Topology, online: CpuSet) -> CpuSet {
    let cores = before.cores().iter().map(|core| core.cpus);
    cores.filter(|cpus| !cpus.is_subset(&online)).collect()
}
