//! Own pools of pods that were there before.

use super::evidence::Evidence;
use crate::books::{Books, ContainerRef, PodEntry};
use crate::claim::Claim;
use crate::model::{Container, PodUid};
use crate::node::Node;
use crate::own_pool::{may_have, share};
use cpuset::CpuSet;
use std::collections::BTreeSet;

/// Takes over the own pools of the pods that are alive, before containers get theirs back: CPUs of
/// an own pool can be set for one container only, as if they were exclusive to it. Where the
/// settings allow no own pool any more, its CPUs are free.
pub(super) fn adopt(node: &Node, books: &mut Books, evidence: &Evidence) {
    let uids: Vec<PodUid> = books.pods().map(|(uid, _)| uid.clone()).collect();
    for uid in uids {
        let Some(pod) = books.pod_mut(&uid) else { continue };
        let found = pod.own_pool.take();
        let recorded = evidence.of_name(&uid, "").map(|claim| claim.cpus).or(found);
        if let Some(cpus) = recorded {
            keep(node, books, &uid, cpus);
        }
    }
}

/// Recalls the own pool of an event's pod.
pub(super) fn recall(node: &Node, books: &mut Books, claim: &Claim) {
    keep(node, books, &claim.pod_uid, claim.cpus);
}

fn keep(node: &Node, books: &mut Books, uid: &PodUid, cpus: CpuSet) {
    let legal = cpus & node.unclaimed(books);
    let Some(pod) = books.pod_mut(uid) else { return };
    if may_have(node, pod) {
        pod.own_pool = Some(legal);
    } else {
        pod.own_pool = Some(cpus);
        books.release_own_pool(uid);
    }
}

/// Finds the own pools that no claim records, because the state file is lost, from the CPUs that
/// are set for the listed containers.
pub(super) fn find(
    node: &Node,
    books: &mut Books,
    containers: &[(PodUid, Container)],
    evidence: &Evidence,
) {
    let owners: BTreeSet<&PodUid> = containers.iter().map(|(uid, _)| uid).collect();
    for uid in owners.into_iter().filter(|uid| evidence.of_name(uid, "").is_none()) {
        let found = books.pod(uid).and_then(|pod| found(node, books, uid, pod, containers));
        if let (Some(own_pool), Some(pod)) = (found, books.pod_mut(uid)) {
            pod.own_pool = Some(own_pool);
        }
    }
}

/// The CPUs that a pod's containers share, if the CPUs that are set for them show an own pool: with
/// the exclusive CPUs they are as many as the pod's budget, and no other pod has any.
fn found(
    node: &Node,
    books: &Books,
    uid: &PodUid,
    pod: &PodEntry,
    containers: &[(PodUid, Container)],
) -> Option<CpuSet> {
    if !may_have(node, pod) {
        return None;
    }
    let budget = pod.pod.budget?.whole_cpus()?;
    let reached = |container: &Container| container.runs_on.or(container.cpus);
    let mut sets = Vec::new();
    for (_, container) in containers.iter().filter(|(owner, _)| owner == uid) {
        let asks =
            pod.container(&container.name)?.terms.exclusive_cpus(pod.pod.qos, &container.cpu);
        sets.push((reached(container)?, asks));
    }
    let of_others = containers.iter().filter(|(owner, _)| owner != uid);
    let of_others: CpuSet = of_others.filter_map(|(_, container)| reached(container)).collect();
    let is_own_pool = |own_pool: &CpuSet| {
        let (sharing, exclusive): (Vec<_>, Vec<_>) =
            sets.iter().partition(|(set, _)| set == own_pool);
        let all: CpuSet = sets.iter().map(|(set, _)| *set).collect();
        let sum = own_pool.len() + exclusive.iter().map(|(set, _)| set.len()).sum::<usize>();
        // Otherwise they are exclusive to a container.
        (sharing.len() > 1 || sharing.iter().all(|(_, asks)| *asks != Some(own_pool.len())))
            && exclusive.iter().all(|(set, asks)| *asks == Some(set.len()))
            && (all.len(), sum) == (budget, budget)
            && all.is_subset(&node.unclaimed(books))
            && all.is_disjoint(&node.isolated())
            && all.is_disjoint(&of_others)
    };
    sets.iter().map(|(set, _)| *set).find(is_own_pool)
}

/// Gives a running container its part of the pod's CPUs, as far as there are some: it was created
/// while the plugin did not run.
pub(super) fn repair(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    let Some(ContainerRef { pod, entry, .. }) = books.container(uid, &container.name) else {
        return;
    };
    if entry.claim().is_some() || !node.is_static() {
        return;
    }
    let budget = pod.budget_cpus().unwrap_or(0);
    let share = share(node, pod, container, &entry.terms, pod.own_pool(), budget);
    let Ok(share) = share else { return };
    let claim = share.claim();
    if claim.is_none() && share.own_pool == pod.own_pool() {
        return;
    }
    let subject = pod.subject(container);
    let Some(pod) = books.pod_mut(uid) else { return };
    let notes = share.enter(pod, subject);
    if let Some(entry) = pod.container_mut(&container.name) {
        entry.assign(claim.unwrap_or_default(), entry.margin());
    }
    for (subject, what) in notes {
        books.journal.note(false, subject, what);
    }
}
