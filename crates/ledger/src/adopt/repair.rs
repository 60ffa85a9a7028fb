//! Places running containers that should have exclusive CPUs and have none, or none that are legal.

use super::evidence::Evidence;
use super::sources::asks;
use crate::books::{Books, BudgetFit, ContainerRef};
use crate::model::{Container, PodUid};
use crate::node::Node;
use crate::note::{MoveReason, What};
use crate::request::{Supply, budget_fit, request};
use cpuset::CpuSet;
use placement::{self, Request};

/// The exclusive CPUs that a running container had and could not keep.
pub(super) type Lost = Option<CpuSet>;

pub(super) fn lost(
    books: &Books,
    uid: &PodUid,
    container: &Container,
    evidence: &Evidence,
) -> Lost {
    let ContainerRef { entry, .. } = books.container(uid, &container.name)?;
    let ours = evidence.ours(uid, container).filter(|ours| ours.id == *entry.id())?;
    (entry.claim().is_none() && container.cpus == Some(ours.cpus)).then_some(ours.cpus)
}

/// Places such a container. It also notes one that had exclusive CPUs and is to have none any more.
pub(super) fn repair(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    lost: Lost,
) {
    let Some(found) = books.container(uid, &container.name) else { return };
    let subject = found.subject();
    let Some((n, fit)) = due(node, found, container) else {
        if let Some(lost) = lost {
            let why = illegal(node, Some(lost), lost.len());
            let what = What::LeftShared(format!("{why}, and it gets no others"));
            books.journal.note(true, subject, what);
        }
        return;
    };
    let wishes = found.entry.terms.wishes;
    let terms = &found.entry.terms;
    let request = request(node, &Supply::of(node, books), found.pod, fit, CpuSet::EMPTY, n, terms);
    let Some(request) = request else { return };
    // A container that runs comes before pods that are about to start.
    let request = Request { promised: 0, ..request };
    match placement::place(&node.topology, &request) {
        Ok(chosen) => {
            let to = chosen.cpus;
            let taken = request.footprint(&node.topology, &to);
            if let Some(pod) = books.change(uid) {
                pod.raise_budget(&to);
                pod.hand_over(&node.topology, &container.name, taken);
                if wishes.shares_affinity() {
                    pod.affinity = pod.demand().map(|total| (total, chosen.hint));
                }
                if let Some(entry) = pod.container_mut(&container.name) {
                    entry.move_to(to, wishes.margin());
                    // It leaves what may have been its exclusive CPUs before others get them: some may have gone
                    // offline.
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

/// How many exclusive CPUs a running container without any should have, and how they fit its pod's
/// budget; `None` if it should have none.
///
/// A container that is pinned to shared CPUs did not fit in: it gets no CPUs of one that has just
/// ended. What is set decides: of a mixed container's CPUs, `container` may name none.
fn due(node: &Node, found: ContainerRef<'_>, container: &Container) -> Option<(usize, BudgetFit)> {
    let n = asks(&found, container)?;
    let fit = budget_fit(node, found.pod, found.pod.budget_cpus(), container, n);
    let fits = match fit {
        BudgetFit::Fresh(_) => true,
        BudgetFit::Reuse(_) => !found.entry.applied.is_set(),
        BudgetFit::None => false,
    };
    (found.entry.claim().is_none() && node.is_static() && fits).then_some((n, fit))
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
