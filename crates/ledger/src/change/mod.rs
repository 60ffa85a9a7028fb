//! What changes for the whole node while containers run.

mod hotplug;

pub(super) use hotplug::hotplug;

use super::adopt::{adopt_anew, unclaimed_part};
use super::books::Books;
use super::claim::KubeletClaim;
use super::identity::note_terms;
use super::model::{ContainerId, PodUid, PoolKind};
use super::node::Node;
use super::note::What;
use super::policy::Mechanism;
use super::terms::Terms;
use cpuset::CpuSet;
use std::collections::BTreeMap;

/// New settings. They have the same effect as a restart with them, by the same adoption
/// ([`adopt`](crate::adopt)): a container keeps exclusive CPUs that are legal, whatever the
/// new policy would give; the engine replaces CPUs that are not; the shared pool follows. Only the
/// log says less: it leaves out containers for which nothing changes.
pub(super) fn reconfigure(node: &Node, books: &mut Books, kubelet: Vec<KubeletClaim>) {
    let claims = books.containers().map(|found| (found.entry.id().clone(), found.entry.claim()));
    let before: BTreeMap<ContainerId, Option<CpuSet>> = claims.collect();
    let newly_reserved = read_wishes(node, books);
    let earlier = books.journal.len();
    // A claim is what is set, or will be.
    adopt_anew(node, books, kubelet, |entry| {
        entry.claim().or_else(|| unclaimed_part(&entry.terms, entry.applied.certain_cpus()))
    });
    books.journal.retain_from(earlier, |note| {
        let had = before.get(&note.subject.id).copied().flatten();
        !matches!(note.what, What::Adopted(cpus) | What::Held(cpus) if had == Some(cpus))
    });
    for uid in newly_reserved {
        let outlasting = books.containers().filter(|found| *found.uid == uid);
        let notes: Vec<_> = outlasting
            .filter_map(|found| Some((found.subject(), What::Outlasts(found.entry.claim()?))))
            .collect();
        for (subject, what) in notes {
            books.journal.note(false, subject, what);
        }
    }
}

/// Reads all wishes again, as the new settings may allow others.
/// Returns the pods that belong on the reserved CPUs now, and did not before.
fn read_wishes(node: &Node, books: &mut Books) -> Vec<PodUid> {
    for (_, pod) in books.pods_mut() {
        // It was chosen under the settings before. A restart would forget it, too.
        pod.affinity = None;
        let described = pod.pod.clone();
        for (name, entry) in pod.containers_mut() {
            entry.terms = Terms::standing(&node.settings, &described, name);
        }
        pod.locate_devices(node);
    }
    let pods: Vec<PodUid> = books.pods().map(|(uid, _)| uid.clone()).collect();
    let is_reserved = |books: &Books, uid: &PodUid| {
        books.pod(uid).is_some_and(|pod| pod.pool == PoolKind::Reserved)
    };
    let mut newly_reserved = Vec::new();
    for uid in pods {
        let before = is_reserved(books, &uid);
        note_terms(node, books, &uid);
        if !before && is_reserved(books, &uid) {
            newly_reserved.push(uid);
        }
    }
    newly_reserved
}

/// Something else than before keeps others off exclusive CPUs: of all containers, also of those
/// that the kernel refused.
pub(super) fn enforce_by(books: &mut Books, mechanism: Mechanism) {
    for (_, pod) in books.pods_mut() {
        pod.containers_mut().for_each(|(_, entry)| entry.enforce_by(mechanism));
    }
}
