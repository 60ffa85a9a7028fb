//! A container is created: only the answer to this can pin it before it runs.

use super::standby;
use crate::adopt::recall;
use crate::books::{AppliedSetting, Books, ContainerEntry};
use crate::devices::note_too_many;
use crate::grant::{Grant, Granted, granted};
use crate::identity::identify;
use crate::memory;
use crate::model::{Container, Pod, PodUid};
use crate::node::Node;
use crate::note::What;
use crate::quieting;
use crate::request::RefusedRequest;
use crate::settings::Exposure;
use crate::terms::Terms;
use placement::Rejection;
use placement::pod_options::Margin;

/// Returns the container's pod.
pub(crate) fn create(
    node: &Node,
    books: &mut Books,
    pod: Pod,
    container: &Container,
) -> Result<PodUid, Rejection> {
    let uid = identify(node, books, pod);
    // The state file may have a claim of its name that no event has named yet.
    recall(node, books, &uid, &container.name);
    if !node.assigns() || container.left_alone.is_some() {
        standby::create(node, books, &uid, container)?;
        return Ok(uid);
    }
    match decide(node, books, &uid, container) {
        Some(Ok((terms, Granted { cpus, memory, affinity }))) => {
            enter(node, books, &uid, container, terms, cpus);
            note_too_many(books, &uid, container);
            memory::enter(books, &uid, container, memory);
            if let (Some(_), Some(pod)) = (affinity, books.pod_mut(&uid)) {
                pod.affinity = affinity;
            }
        }
        Some(Err((rejection, request))) => {
            let lacks =
                request.as_ref().is_some_and(|request| request.exceeds_free(&node.topology));
            if let Some(pod) = books.pod_mut(&uid) {
                pod.lacks_cpus = lacks && pod.promises_nothing;
                pod.promises_nothing = true;
            }
            books.note_refused(&uid, container, &rejection, request);
            return Err(rejection);
        }
        None => {}
    }
    Ok(uid)
}

fn decide(
    node: &Node,
    books: &Books,
    uid: &PodUid,
    container: &Container,
) -> Option<Result<(Terms, Granted), RefusedRequest>> {
    let pod = books.pod(uid)?;
    let terms = Terms::of_new(node, pod, container).map_err(|rejection| (rejection, None));
    Some(terms.and_then(|terms| {
        let granted = granted(node, books, pod, container, &terms)?;
        Ok((terms, granted))
    }))
}

fn enter(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    terms: Terms,
    grant: Grant,
) {
    let claim = grant.claim();
    let taken = node.with_idle(&claim.unwrap_or_default(), terms.pod_options.margin());
    let applied = AppliedSetting::reported(container, false);
    let mechanism = node.mechanism;
    let mut entry = ContainerEntry::new(container, mechanism, terms.clone(), applied);
    // The margin follows below: an inherited one is known only with the entry of the predecessor.
    entry.assign(claim.unwrap_or_default(), Margin::NONE);
    match grant {
        Grant::Shared => {}
        Grant::Inherited(_) => entry.mark_inherited(),
        Grant::Chosen(..) => books.moves.started(node.settings.rebalance.as_ref()),
        Grant::OfPod(_) if claim.is_some() => {
            books.moves.started(node.settings.rebalance.as_ref());
        }
        Grant::OfPod(_) => {}
    }
    if claim.is_some() && node.settings.expose_cpus == Exposure::Environment {
        entry.fix_by_environment();
    }
    let notes = books.enter(uid, &container.name, entry, |pod, before| {
        if let Grant::Chosen(placement, _) = &grant {
            pod.raise_budget(&placement.cpus);
        }
        let demand = pod.demand();
        let mut margin = Margin::NONE;
        let subject = pod.subject(container);
        let mut notes = Vec::new();
        match grant {
            // Under policy none every container shares, which needs no note.
            Grant::Shared if !node.is_static() => {}
            Grant::Shared => {
                let asks = terms.exclusive_cpus(pod.pod.qos, &container.cpu);
                if let Some(why) = asks.and_then(|n| pod.why_shared(n)) {
                    notes.push((subject, What::LeftShared(why)));
                }
            }
            Grant::Inherited(cpus) => {
                margin = before.map(ContainerEntry::margin).unwrap_or_default();
                notes.push((subject, What::Kept(cpus)));
            }
            Grant::Chosen(placement, request) => {
                margin = terms.pod_options.margin();
                pod.hand_over(&node.topology, &container.name, taken);
                if terms.pod_options.shares_affinity() {
                    pod.affinity = demand.map(|total| (total, placement.hint));
                }
                notes.push((subject, What::Assigned { placement, request }));
            }
            Grant::OfPod(share) => notes = share.enter(pod, subject),
        }
        pod.promises_nothing = false;
        pod.lacks_cpus = false;
        if let Some(entry) = pod.container_mut(&container.name) {
            entry.keep_idle(margin);
            if let Some(before) = before {
                entry.set_predecessor(before);
            }
        }
        notes
    });
    if let (Some(cpus), Some(pod)) = (container.cpus, books.pod(uid)) {
        let subject = pod.subject(container);
        books.journal.note(true, subject, What::Contested(cpus));
    }
    for (subject, what) in notes.unwrap_or_default() {
        books.journal.note(false, subject, what);
    }
    if node.is_static() {
        for what in quieting::notes(node, books, uid, container) {
            if let Some(pod) = books.pod(uid) {
                let subject = pod.subject(container);
                books.journal.note(false, subject, what);
            }
        }
    }
}
