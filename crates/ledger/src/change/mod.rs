//! Changes of the whole node while containers run: CPU hotplug, settings, the mechanism.

mod hotplug;

pub(super) use hotplug::hotplug;

use super::adopt::{readopt, unclaimed_part};
use super::books::Books;
use super::claim::KubeletClaim;
use super::devices::locate_of;
use super::identity::record_terms;
use super::model::{ContainerId, PodUid, PoolKind};
use super::node::Node;
use super::note::What;
use super::policy::Mechanism;
use super::terms::Terms;
use cpuset::CpuSet;
use std::collections::BTreeMap;

/// Applies new settings. The effect is that of a restart with them, by the same adoption
/// ([`adopt`](crate::adopt)): a container keeps exclusive CPUs that are legal, even if the new
/// policy would give it others or none; the engine replaces illegal CPUs; the shared pool follows.
/// The log is shorter than after a restart: it leaves out containers that do not change.
pub(super) fn reconfigure(node: &Node, books: &mut Books, kubelet: Vec<KubeletClaim>) {
    let claims =
        books.containers().map(|container| (container.entry.id().clone(), container.entry.claim()));
    let before: BTreeMap<ContainerId, Option<CpuSet>> = claims.collect();
    let newly_reserved = read_pod_options(node, books);
    let earlier = books.journal.len();
    // The CPUs of a claim count as set, though the update for them may still be due.
    readopt(node, books, kubelet, |entry| {
        entry.claim().or_else(|| unclaimed_part(&entry.terms, entry.applied.certain_cpus()))
    });
    books.journal.retain_from(earlier, |note| {
        let had = before.get(&note.subject.id).copied().flatten();
        !matches!(note.what, What::Adopted(cpus) | What::Held(cpus) if had == Some(cpus))
    });
    for uid in newly_reserved {
        let outlasting = books.containers().filter(|container| *container.uid == uid);
        let notes: Vec<_> = outlasting
            .filter_map(|container| {
                Some((container.subject(), What::Outlasts(container.entry.claim()?)))
            })
            .collect();
        for (subject, what) in notes {
            books.journal.note(false, subject, what);
        }
    }
}

/// Reads all pod options again, as the new settings may allow others. Returns the pods that the new
/// settings have put on the reserved CPUs.
fn read_pod_options(node: &Node, books: &mut Books) -> Vec<PodUid> {
    for (_, pod) in books.pods_mut() {
        // It was chosen under the old settings. A restart forgets it, too.
        pod.affinity = None;
        let described = pod.pod.clone();
        for (name, entry) in pod.containers_mut() {
            entry.terms = Terms::still_allowed(&node.settings, &described, name);
        }
        locate_of(node, pod);
    }
    let pods: Vec<PodUid> = books.pods().map(|(uid, _)| uid.clone()).collect();
    let is_reserved = |books: &Books, uid: &PodUid| {
        books.pod(uid).is_some_and(|pod| pod.pool == PoolKind::Reserved)
    };
    let mut newly_reserved = Vec::new();
    for uid in pods {
        let before = is_reserved(books, &uid);
        record_terms(node, books, &uid);
        if !before && is_reserved(books, &uid) {
            newly_reserved.push(uid);
        }
    }
    newly_reserved
}

/// Changes the mechanism of all containers, even of those whose partition the kernel has refused.
pub(super) fn enforce_by(books: &mut Books, mechanism: Mechanism) {
    for (_, pod) in books.pods_mut() {
        pod.containers_mut().for_each(|(_, entry)| entry.enforce_by(mechanism));
    }
}
