//! Which exclusive CPUs a running container keeps at an adoption.

use super::conflicts::fewest_to_move;
use super::evidence::{Evidence, KubeletRecord};
use crate::books::{Books, ContainerRef};
use crate::model::{Container, PodUid, PoolKind};
use crate::node::Node;
use crate::note::{MoveReason, What};
use cpuset::CpuSet;
use placement::pod_options::Margin;
use std::collections::BTreeSet;

/// The source of an assignment, the most reliable first. An assignment never takes CPUs from one of
/// a more reliable source, so each source makes a pass over all containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimSource {
    /// CPUs that are set, and that a partition, a claim or the kubelet's state file confirms.
    Confirmed,
    /// CPUs that are set, as many as the container is entitled to. They can be shared ones that
    /// have this number by chance.
    Set,
    /// A claim of the ledger whose CPUs are not set.
    Remembered,
    /// An assignment of the kubelet that is not set.
    Kubelet,
}

impl ClaimSource {
    pub(super) const SET: &[ClaimSource] = &[ClaimSource::Confirmed, ClaimSource::Set];
    pub(super) const RECORDED: &[ClaimSource] = &[ClaimSource::Remembered, ClaimSource::Kubelet];
}

/// The indices of containers that have to leave the CPUs that `source` names for them.
pub(super) fn must_move(
    node: &Node,
    books: &Books,
    containers: &[(PodUid, Container)],
    evidence: &Evidence,
    source: ClaimSource,
) -> BTreeSet<usize> {
    let legal = node.unclaimed(books);
    let set = |(uid, container): &(PodUid, Container)| {
        let found = books.container(uid, &container.name)?;
        named(node, found, container, evidence, source).filter(|cpus| cpus.is_subset(&legal))
    };
    let sets = containers.iter().map(|container| set(container).unwrap_or_default());
    fewest_to_move(&sets.collect::<Vec<_>>())
}

/// How many exclusive CPUs an entered container asks for.
pub(super) fn asks(found: &ContainerRef<'_>, container: &Container) -> Option<usize> {
    if found.entry.left_alone.is_some() {
        return None;
    }
    found.entry.terms.exclusive_cpus(found.pod.pod.qos, &container.cpu)
}

/// The exclusive CPUs that `source` names for a running container, legal or not.
fn named(
    node: &Node,
    found: ContainerRef<'_>,
    container: &Container,
    evidence: &Evidence,
    source: ClaimSource,
) -> Option<CpuSet> {
    if found.entry.left_alone.is_some() {
        return None;
    }
    // The kubelet's CPU manager ignores its own system partition, so it may have assigned CPUs to
    // such a pod, on which the cgroup of the partition lets no container run.
    if found.pod.pod.pool == PoolKind::Reserved {
        return None;
    }
    let requested = asks(&found, container);
    let is_static = node.is_static();
    let entitled = |cpus: &CpuSet| is_static && requested == Some(cpus.len());
    // A newer instance inherits from its predecessor only as many as it is entitled to.
    let ours = evidence.ours(found.uid, container);
    let ours = ours.filter(|claim| claim.id == container.id || entitled(&claim.cpus));
    let ours = ours.map(|claim| claim.cpus);
    let kubelet = if is_static { evidence.kubelet(found.uid, container) } else { None };
    let is_certain = |record: &KubeletRecord| !record.doubtful || entitled(&record.cpus);
    let kubelet = kubelet.filter(is_certain).map(|record| record.cpus);
    // Some CPUs may have gone offline while the plugin did not run: the container keeps the others.
    let left = |cpus| cpus & node.topology.online();
    match source {
        // Confirmed CPUs stay with their container even if the present policy would give it none.
        ClaimSource::Confirmed => {
            let recorded = |cpus: &CpuSet| [ours, kubelet].contains(&Some(*cpus));
            let cpus = container.cpus;
            cpus.filter(|cpus| recorded(cpus) || (container.partitioned && entitled(cpus)))
                .map(left)
        }
        // Unconfirmed CPUs count only for a container that is entitled to this number. A shared
        // pool can have that size by chance. So they do not count if they are also the set of a
        // container that is entitled to none, and if others run on them they have to fit the pod's
        // budget. Where no other container runs on them, the budget is not asked, as it may be
        // older than a resize.
        ClaimSource::Set => container.cpus.filter(|cpus| {
            let alone = || !evidence.is_common(cpus);
            entitled(cpus)
                && !evidence.is_pool(cpus)
                && (alone() || fits_budget(found, requested, evidence))
        }),
        // A claim that is not set may be older than a resize, so the number has to be right.
        ClaimSource::Remembered => ours.filter(entitled).map(left),
        ClaimSource::Kubelet => kubelet.filter(entitled).map(left),
    }
}

/// Whether the CPUs that a container asks for and those of the other containers of its pod fit the
/// pod's budget.
fn fits_budget(found: ContainerRef<'_>, requested: Option<usize>, evidence: &Evidence) -> bool {
    let Some(n) = requested else { return false };
    let Some(budget) = found.pod.budget_cpus() else { return true };
    let others = found.pod.containers().filter(|(name, _)| *name != found.name);
    let remembered = |name| evidence.of_name(found.uid, name).map(|claim| claim.cpus);
    let held = others.filter_map(|(name, entry)| entry.claim().or_else(|| remembered(name)));
    held.map(|cpus| cpus.len()).sum::<usize>() + n <= budget
}

/// Gives a running container exclusive CPUs that `source` names for it, if they are legal.
pub(super) fn adopt(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    evidence: &Evidence,
    source: ClaimSource,
) {
    let found = books.container(uid, &container.name);
    let Some(found) = found.filter(|found| found.entry.claim().is_none()) else { return };
    let claim = named(node, found, container, evidence, source).unwrap_or_default();
    if claim.is_empty() || !claim.is_subset(&node.unclaimed(books)) {
        return;
    }
    let subject = found.subject();
    books.change_container(uid, &container.name, |entry| {
        entry.assign(claim, entry.margin());
        if let Some(ours) = evidence.ours(uid, container) {
            entry.mix(ours.mixed);
        }
        let set = entry.applied.cpus();
        if set == Some(claim) || (entry.is_mixed() && container.cpus == Some(claim)) {
            entry.applied.set_exclusive(claim);
        } else if let (ClaimSource::Confirmed, Some(set), false) = (source, set, entry.is_mixed()) {
            // Others than `claim` are set: some may be offline. It had all of them exclusively.
            entry.applied.set_exclusive(set);
        }
    });
    let online = node.topology.online();
    match container.cpus {
        Some(cpus) if cpus == claim => books.journal.note(false, subject, What::Adopted(claim)),
        Some(cpus) if cpus & online == claim => {
            books.journal.moved(subject, Some(cpus), claim, MoveReason::Offline);
        }
        from => books.journal.moved(subject, from, claim, MoveReason::NotSet),
    }
}

/// Keeps the margin of an adopted container's CPUs idle, as far as no other container has it. The
/// margin of an earlier decision has precedence over the pod option.
pub(super) fn keep_margin(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    evidence: &Evidence,
) {
    let Some(ContainerRef { entry, .. }) = books.container(uid, &container.name) else { return };
    let Some(claim) = entry.claim() else { return };
    if entry.margin() != Margin::NONE {
        return;
    }
    let online = node.topology.online();
    let decided = evidence.ours(uid, container).filter(|ours| ours.cpus & online == claim);
    let requested = decided.map_or(entry.terms.pod_options.margin(), |ours| ours.margin);
    if requested == Margin::NONE {
        return;
    }
    let margin = possible_margin(node, &claim, requested, &(node.unclaimed(books) | claim));
    if margin != Margin::NONE {
        books.change_container(uid, &container.name, |entry| entry.keep_idle(margin));
    }
}

/// The largest part of the margin around these CPUs that is `free`.
pub(super) fn possible_margin(
    node: &Node,
    cpus: &CpuSet,
    requested: Margin,
    free: &CpuSet,
) -> Margin {
    let fits = |margin| node.with_idle(cpus, margin).is_subset(free);
    let siblings = Margin { siblings: requested.siblings, ..Margin::NONE };
    let caches = Margin { siblings: false, ..requested };
    let parts = [requested, caches, siblings];
    parts.into_iter().find(|margin| fits(*margin)).unwrap_or(Margin::NONE)
}
