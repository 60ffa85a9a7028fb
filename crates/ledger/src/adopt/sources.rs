//! Which exclusive CPUs a container that is found running keeps.

use super::conflicts::in_the_way;
use super::evidence::{Evidence, Noted};
use crate::books::{Books, ContainerRef};
use crate::model::{Container, PodUid, PoolKind};
use crate::node::Node;
use crate::note::{MoveReason, What};
use cpuset::CpuSet;
use placement::wishes::Margin;
use std::collections::BTreeSet;

/// The source of an assignment, the most reliable first. An assignment never takes CPUs from one of
/// a more reliable source, so each source makes a pass over all containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimSource {
    /// It is set, and a partition, the checkpoint or the kubelet's state file confirms it.
    Confirmed,
    /// It is set, and as many CPUs as the container is entitled to. Shared CPUs can be that by
    /// chance.
    Set,
    Remembered,
    Kubelet,
}

impl ClaimSource {
    pub(super) const SET: &[ClaimSource] = &[ClaimSource::Confirmed, ClaimSource::Set];
    pub(super) const NOTED: &[ClaimSource] = &[ClaimSource::Remembered, ClaimSource::Kubelet];
}

/// The indices of containers that have to leave the CPUs which `source` names for them to others.
pub(super) fn giving_way(
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
    in_the_way(&sets.collect::<Vec<_>>())
}

/// How many exclusive CPUs an entered container asks for.
pub(super) fn asks(found: &ContainerRef<'_>, container: &Container) -> Option<usize> {
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
    // The kubelet gives them out there, too, and its system partition leaves no container any.
    if found.pod.pod.pool == PoolKind::Reserved {
        return None;
    }
    let wanted = asks(&found, container);
    let fixed = node.is_static();
    let entitled = |cpus: &CpuSet| fixed && wanted == Some(cpus.len());
    // A newer instance inherits from its predecessor only what it is entitled to.
    let ours = evidence.ours(found.uid, container);
    let ours = ours.filter(|claim| claim.id == container.id || entitled(&claim.cpus));
    let ours = ours.map(|claim| claim.cpus);
    let kubelet = evidence.kubelet(found.uid, container).filter(|_| fixed);
    let sure = |noted: &Noted| !noted.doubtful || entitled(&noted.cpus);
    let kubelet = kubelet.filter(sure).map(|noted| noted.cpus);
    // Some CPUs may have gone offline while the plugin did not run: the container keeps the others.
    let left = |cpus| cpus & node.topology.online();
    match source {
        // Confirmed CPUs stay with their container even if today's policy would give it none.
        ClaimSource::Confirmed => {
            let noted = |cpus: &CpuSet| [ours, kubelet].contains(&Some(*cpus));
            let cpus = container.cpus;
            cpus.filter(|cpus| noted(cpus) || (container.partitioned && entitled(cpus))).map(left)
        }
        // Unconfirmed CPUs count only for a container that is entitled to just as many. A shared
        // pool can have that size by chance: a set that a container without entitlement has is a
        // pool, and a set on which others run has to fit the pod's budget. The budget may be older
        // than a resize, so it does not matter if no other container runs there.
        ClaimSource::Set => container.cpus.filter(|cpus| {
            let alone = || !evidence.is_common(cpus);
            entitled(cpus)
                && !evidence.is_pool(cpus)
                && (alone() || fits_budget(found, wanted, evidence))
        }),
        // A claim that is not set may be older than a resize.
        ClaimSource::Remembered => ours.filter(entitled).map(left),
        ClaimSource::Kubelet => kubelet.filter(entitled).map(left),
    }
}

/// Whether the CPUs that a container asks for fit its pod's budget, beside those of the pod's other
/// containers.
fn fits_budget(found: ContainerRef<'_>, wanted: Option<usize>, evidence: &Evidence) -> bool {
    let Some(n) = wanted else { return false };
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
            // Some of them are offline now, or no longer its own.
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

/// Keeps the margin of an adopted container's CPUs idle, as far as no other container has it. An
/// earlier decision counts before the wish.
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
    let wanted = decided.map_or(entry.terms.wishes.margin(), |ours| ours.margin);
    if wanted == Margin::NONE {
        return;
    }
    let margin = possible_margin(node, &claim, wanted, &(node.unclaimed(books) | claim));
    if margin != Margin::NONE {
        books.change_container(uid, &container.name, |entry| entry.keep_idle(margin));
    }
}

/// The part of a margin around these CPUs that is `free`.
pub(super) fn possible_margin(node: &Node, cpus: &CpuSet, wanted: Margin, free: &CpuSet) -> Margin {
    let fits = |margin| node.with_idle(cpus, margin).is_subset(free);
    let siblings = Margin { siblings: wanted.siblings, ..Margin::NONE };
    let caches = Margin { siblings: false, ..wanted };
    let parts = [wanted, caches, siblings];
    parts.into_iter().find(|margin| fits(*margin)).unwrap_or(Margin::NONE)
}
