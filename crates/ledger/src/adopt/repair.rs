//! Places running containers that are entitled to exclusive CPUs and could not keep any.

use super::evidence::Evidence;
use super::own_pools;
use super::sources::asks;
use crate::books::{Books, ContainerRef};
use crate::model::{Container, PodUid};
use crate::node::Node;
use crate::note::{MoveReason, What};
use crate::request::{NodeSupply, exclusive_request, reusable};
use cpuset::CpuSet;
use placement::{self, Request, Reuse};

/// The exclusive CPUs that a running container had and could not keep.
pub(super) fn lost(
    books: &Books,
    uid: &PodUid,
    container: &Container,
    evidence: &Evidence,
) -> Option<CpuSet> {
    let ContainerRef { entry, .. } = books.container(uid, &container.name)?;
    let ours = evidence.ours(uid, container).filter(|ours| ours.id == *entry.id())?;
    (entry.claim().is_none() && container.cpus == Some(ours.cpus)).then_some(ours.cpus)
}

/// Places a running container that lacks exclusive CPUs. If it is no longer entitled to any, notes
/// those that it has `lost`.
pub(super) fn repair(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    lost: Option<CpuSet>,
) {
    let Some(found) = books.container(uid, &container.name) else { return };
    if found.entry.left_alone.is_some() {
        return;
    }
    if found.pod.own_pool.is_some() {
        own_pools::repair(node, books, uid, container);
        return;
    }
    let subject = found.subject();
    let Some((n, reuse)) = lacking(node, found, container) else {
        if let Some(lost) = lost {
            let why = illegal(node, Some(lost), lost.len());
            let what = What::LeftShared(format!("{why}, and it gets no others"));
            books.journal.note(true, subject, what);
        }
        return;
    };
    let terms = &found.entry.terms;
    let pod_options = terms.pod_options;
    let supply = NodeSupply::of(node, books);
    let request = exclusive_request(node, &supply, found.pod, reuse, CpuSet::EMPTY, n, terms);
    // A running container has precedence over pods that are about to start.
    let request = Request { promised: 0, ..request };
    match placement::place(&node.topology, &request) {
        Ok(chosen) => {
            let to = chosen.cpus;
            let taken = request.footprint(&node.topology, &to);
            if let Some(pod) = books.pod_mut(uid) {
                pod.raise_budget(&to);
                pod.hand_over(&node.topology, &container.name, taken);
                if pod_options.shares_affinity() {
                    pod.affinity = pod.demand().map(|total| (total, chosen.hint));
                }
                if let Some(entry) = pod.container_mut(&container.name) {
                    entry.move_to(to, pod_options.margin());
                    // If at most `n` CPUs are set, they may have been its exclusive ones, some of
                    // which went offline. It has to leave them before others get them.
                    if let Some(set) = container.cpus.filter(|set| set.len() <= n) {
                        entry.applied.set_exclusive(set);
                    }
                }
            }
            let why = illegal(node, container.cpus, n);
            books.journal.moved(subject, container.cpus, to, why);
        }
        Err(rejection) => {
            books.journal.note(true, subject, What::LeftShared(rejection.to_string()));
        }
    }
}

/// How many exclusive CPUs a running container lacks, and which it may use again; `None` if it lacks
/// none.
///
/// A container that an earlier decision pinned to shared CPUs did not fit its pod's budget. It must
/// not get the CPUs of a container that has just ended, which may be restarted. `applied` shows
/// that it is pinned; `container.cpus` does not for a mixed container.
fn lacking(node: &Node, found: ContainerRef<'_>, container: &Container) -> Option<(usize, Reuse)> {
    let n = asks(&found, container)?;
    let reuse = reusable(node, found.pod, found.pod.budget_cpus(), container, n)?;
    let fits = reuse.cpus.is_empty() || !found.entry.applied.is_set();
    (found.entry.claim().is_none() && node.is_static() && fits).then_some((n, reuse))
}

/// Why a container that asks for `n` exclusive CPUs cannot keep those that are set.
fn illegal(node: &Node, set: Option<CpuSet>, n: usize) -> MoveReason {
    match set {
        None => MoveReason::Unpinned,
        Some(set) if set.len() != n => MoveReason::NotExclusive,
        Some(set) if !set.is_subset(&node.topology.online()) => MoveReason::Offline,
        Some(set) if !set.is_disjoint(&node.reserved()) => MoveReason::Reserved,
        Some(_) => MoveReason::Conflict,
    }
}
