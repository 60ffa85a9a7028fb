//! Takes over a node on which containers run already, without moving them.
//!
//! What is set for a running container counts first, then the checkpoint, then the kubelet's state
//! file; the engine places only what is left. The ledger adopts every legal assignment before it
//! places any container, so no container moves to make room for one that has no CPUs yet. If
//! containers hold the same CPUs, the fewest move.

mod conflicts;
mod evidence;
mod followed;
mod repair;
mod sources;

use super::books::{AppliedSetting, Books, ContainerEntry, ContainerRef};
use super::claim::Claim;
use super::claim::KubeletClaim;
use super::desired::mems_are_ours;
use super::identity::identify;
use super::model::{Container, ContainerId, CpuRequest, Pod, PodUid, PoolKind, SandboxId};
use super::node::Node;
use super::note::{Subject, What};
use super::resize::resize_unseen;
use super::settings::Exposure;
use super::terms::Terms;
use super::wish::Cpus;
use cpuset::CpuSet;
use evidence::Evidence;
use followed::Followed;
use placement::wishes::Margin;
use repair::{Lost, lost, repair};
use sources::{ClaimSource, adopt, asks, giving_way, keep_margin, possible_margin};
use std::collections::{HashMap, HashSet};

/// Takes over what the runtime lists, and the claims that the kubelet has assigned.
pub(super) fn synchronize(
    node: &Node,
    books: &mut Books,
    kubelet: Vec<KubeletClaim>,
    pods: Vec<Pod>,
    containers: Vec<Container>,
) {
    let evidence = Evidence::new(books.claims().collect(), kubelet);
    let followed = Followed::of(node, books);
    books.clear();
    let owners = list_pods(node, books, pods, &containers);
    let mut containers = newest_instances(&owners, containers);
    for (uid, container) in &mut containers {
        let cpu = followed.request(container);
        let exclusive = exclusive_part(node, books, uid, container, &evidence);
        let alone = exclusive.is_some_and(|set| evidence.names(uid, container, &set));
        let ours = mems_are_ours(node, exclusive, container.mems);
        let mut applied = AppliedSetting::found(container, ours);
        if alone || container.partitioned {
            applied.set_exclusive(exclusive.unwrap_or_default());
        }
        container.cpus = exclusive;
        if cpu.limit != container.cpu.limit {
            applied.has_lifted();
        }
        container.cpu = cpu;
        enter(node, books, uid, container, applied);
    }
    followed.take_up(books);
    settle(node, books, &containers, evidence);
}

/// Those of the CPUs that are set for a container which may be exclusive. For a mixed one, shared CPUs
/// are set as well, and only the claim tells which are exclusive.
fn exclusive_part(
    node: &Node,
    books: &Books,
    uid: &PodUid,
    container: &Container,
    evidence: &Evidence,
) -> Option<CpuSet> {
    // What cgroups above leave it has no CPUs that others have now.
    let set = container.cpus?;
    let reached = container.runs_on.unwrap_or(set);
    match evidence.ours(uid, container) {
        Some(ours) if ours.mixed => ours.cpus.is_subset(&reached).then_some(ours.cpus),
        Some(_) => Some(set),
        None => {
            let pod = &books.pod(uid)?.pod;
            let terms = Terms::standing(&node.settings, pod, &container.name);
            unclaimed_part(&terms, Some(set))
        }
    }
}

/// Which of the CPUs that are set for a container without a claim may be its own: all, but of a mixed
/// one none, as shared CPUs may be among them.
pub(super) fn unclaimed_part(terms: &Terms, set: Option<CpuSet>) -> Option<CpuSet> {
    if terms.cpus == Some(Cpus::Mixed) { None } else { set }
}

/// Gives the entered containers their CPUs. While the kubelet or another plugin assigns CPUs, only
/// what is set counts, and no container moves.
fn settle(node: &Node, books: &mut Books, containers: &[(PodUid, Container)], evidence: Evidence) {
    let sets = containers.iter().filter_map(|(uid, container)| {
        let found = books.container(uid, &container.name)?;
        let entitled = asks(&found, container).is_some();
        // What a shared container has in common with exclusive ones by name only is no share.
        let set = container.runs_on.filter(|_| !entitled).or(container.cpus)?;
        Some((set, entitled))
    });
    let evidence = evidence.with_sets(sets);
    let sources: &[&[ClaimSource]] =
        if node.assigns() { &[ClaimSource::SET, ClaimSource::NOTED] } else { &[ClaimSource::SET] };
    for sources in sources {
        for &source in *sources {
            let giving_way = giving_way(node, books, containers, &evidence, source);
            for (at, (uid, container)) in containers.iter().enumerate() {
                if !giving_way.contains(&at) {
                    adopt(node, books, uid, container, &evidence, source);
                }
            }
        }
        // Comes after all adoptions, so that no running container leaves a CPU for another one's
        // margin.
        for (uid, container) in containers {
            keep_margin(node, books, uid, container, &evidence);
        }
    }
    books.pods_mut().for_each(|(_, pod)| pod.detect_resources());
    // Comes before the repairs, so that these do not take CPUs of containers that are just being
    // restarted.
    keep_for_restart(node, books, &evidence);
    if node.assigns() {
        for (uid, container) in containers {
            let lost = lost(books, uid, container, &evidence);
            resize_unseen(node, books, uid, container);
            repair(node, books, uid, container, lost);
        }
    }
    // A pod that has only a sandbox may be dead and still listed: it keeps no CPUs free.
    for (_, pod) in books.pods_mut() {
        let empty = pod.containers().next().is_none();
        pod.refused = empty;
        pod.lend_if_quiet();
    }
}

/// An event named an unknown container: the ledger adopts it as if it had been found running, and
/// its name's remembered claim counts.
pub(super) fn adopt_late(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    recall(node, books, uid, &container.name);
    let ours = books.claims().filter(|claim| claim.is_of(uid, &container.name));
    let evidence = Evidence::new(ours.collect(), Vec::new());
    let exclusive = exclusive_part(node, books, uid, container, &evidence);
    let ours = mems_are_ours(node, exclusive, container.mems);
    let applied = AppliedSetting::found(container, ours);
    let container = &Container { cpus: exclusive, not_started: false, ..container.clone() };
    enter(node, books, uid, container, applied);
    for source in [ClaimSource::Confirmed, ClaimSource::Set, ClaimSource::Remembered] {
        adopt(node, books, uid, container, &evidence, source);
    }
    keep_margin(node, books, uid, container, &evidence);
    if let Some(pod) = books.change(uid) {
        pod.detect_resources();
    }
    if node.assigns() {
        repair(node, books, uid, container, Lost::default());
    }
}

/// Gives a container the exclusive CPUs that are set for it, if they are legal.
pub(super) fn adopt_set(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    let evidence = Evidence::default();
    adopt(node, books, uid, container, &evidence, ClaimSource::Set);
    keep_margin(node, books, uid, container, &evidence);
}

/// Adopts the node again, as after a restart, from the books; `set` says what is set for a
/// container. The next answers carry the updates.
pub(super) fn adopt_anew(
    node: &Node,
    books: &mut Books,
    kubelet: Vec<KubeletClaim>,
    set: impl Fn(&ContainerEntry) -> Option<CpuSet>,
) {
    let evidence = Evidence::new(books.claims().collect(), kubelet);
    let mut running = Vec::new();
    for (uid, pod) in books.pods_mut() {
        let sandbox = pod.pod.sandbox.clone();
        for (name, entry) in pod.containers_mut() {
            if entry.is_alive() {
                let id = entry.id().clone();
                let container = Container {
                    kind: entry.kind,
                    cpus: set(entry),
                    created_at: entry.created_at,
                    cgroup: entry.cgroup.clone(),
                    ..Container::new(id, sandbox.clone(), name.clone(), entry.cpu)
                };
                running.push((uid.clone(), container));
            }
            entry.unassign();
        }
    }
    running.sort_by(|(_, a), (_, b)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    settle(node, books, &running, evidence);
}

/// An event names a container whose claim is remembered: the claim becomes that of an ended
/// container of this name. For runtimes that never list running containers.
pub(super) fn recall(node: &Node, books: &mut Books, uid: &PodUid, name: &str) {
    if let Some(claim) = books.recall(uid, name) {
        keep(node, books, claim);
    }
}

/// Enters all pods, and returns the pod of each sandbox.
///
/// The list has dead sandboxes too, in any order: after a reboot each pod has one besides that of
/// its containers. The sandbox with the newest container comes last, as its end is the pod's.
fn list_pods(
    node: &Node,
    books: &mut Books,
    mut pods: Vec<Pod>,
    containers: &[Container],
) -> HashMap<SandboxId, PodUid> {
    let mut newest: HashMap<&SandboxId, Option<i64>> = HashMap::new();
    for container in containers {
        let newest = newest.entry(&container.sandbox).or_default();
        *newest = container.created_at.max(*newest);
    }
    pods.sort_by_key(|pod| newest.get(&pod.sandbox).copied());
    pods.into_iter().map(|pod| (pod.sandbox.clone(), identify(node, books, pod))).collect()
}

fn enter(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    applied: AppliedSetting,
) {
    let Some(pod) = books.pod(uid) else { return };
    let terms = Terms::of_running(node, pod, container);
    let mechanism = node.mechanism;
    let mut entry = ContainerEntry::new(container, mechanism, terms, applied);
    // It may know its CPUs, and may have started a moment ago.
    if node.settings.expose_cpus == Exposure::Environment {
        entry.tell();
    }
    if container.not_started {
        entry.exist();
    } else {
        entry.start(node.now);
    }
    books.enter(uid, &container.name, entry, |_, _| ());
}

/// Keeps the CPUs of ended containers whose pod is alive: the kubelet will restart them.
fn keep_for_restart(node: &Node, books: &mut Books, evidence: &Evidence) {
    let (ours, kubelet) = evidence.parts();
    for claim in ours {
        keep(node, books, claim);
    }
    for (pod_uid, container, cpus) in kubelet {
        let Some(pod) = books.pod(&pod_uid).map(|entry| &entry.pod) else { continue };
        let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
        // The kubelet does not name the instance. No runtime gives such an id.
        let id = ContainerId(format!("{pod_uid}/{container}"));
        let (margin, mixed, cpu) = (Margin::NONE, false, CpuRequest::default());
        let claim = Claim { pod_uid, namespace, pod, container, id, cpus, margin, mixed, cpu };
        keep(node, books, claim);
    }
}

fn keep(node: &Node, books: &mut Books, claim: Claim) {
    let free = node.unclaimed(books);
    let pod = books.pod(&claim.pod_uid);
    let known = pod.is_some_and(|pod| pod.pod.pool == PoolKind::General);
    if claim.cpus.is_empty() || !claim.cpus.is_subset(&free) || !known {
        return;
    }
    let margin = possible_margin(node, &claim.cpus, claim.margin, &free);
    let known = books
        .container(&claim.pod_uid, &claim.container)
        .map(|ContainerRef { entry, .. }| !entry.is_alive() && entry.claim().is_none());
    match known {
        Some(true) => {
            books.change_container(&claim.pod_uid, &claim.container, |entry| {
                entry.assign(claim.cpus, margin);
                entry.mix(claim.mixed);
            });
        }
        Some(false) => return,
        None if books.find(&claim.id).is_some() => return,
        None => {
            let entry = ContainerEntry::ended(&claim, margin);
            books.enter(&claim.pod_uid, &claim.container, entry, |_, _| ());
        }
    }
    let Claim { namespace, pod, container, id, cpus, .. } = claim;
    books.journal.note(false, Subject { namespace, pod, container, id }, What::Held(cpus));
}

/// Finds each container's pod, in order of creation. Of two instances of one name the newer one
/// counts.
fn newest_instances(
    owners: &HashMap<SandboxId, PodUid>,
    mut containers: Vec<Container>,
) -> Vec<(PodUid, Container)> {
    containers.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let (mut seen, mut ids) = (HashSet::new(), HashSet::new());
    let mut newest: Vec<(PodUid, Container)> = containers
        .into_iter()
        .rev()
        .filter_map(|container| Some((owners.get(&container.sandbox)?.clone(), container)))
        .filter(|(uid, container)| {
            seen.insert((uid.clone(), container.name.clone())) && ids.insert(container.id.clone())
        })
        .collect();
    newest.reverse();
    newest
}
