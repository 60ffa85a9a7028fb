//! Takes over a node on which containers run already, without moving them.
//!
//! The CPUs that are set for a running container count first, then the ledger's state file, then
//! the kubelet's; the engine places only containers that these leave without CPUs. The ledger
//! adopts every legal assignment before it places any container, so no container moves for one that
//! has no CPUs yet. If containers hold the same CPUs, the fewest move.

mod conflicts;
mod earlier;
mod evidence;
mod own_pools;
mod repair;
mod sources;

use super::books::{AppliedSetting, Books, ContainerEntry, ContainerRef};
use super::claim::{Claim, KubeletClaim};
use super::devices::note_too_many;
use super::due::mems_are_ours;
use super::identity::identify;
use super::memory::{self, Records};
use super::model::{Container, ContainerId, CpuRequest, Pod, PodUid, PoolKind, SandboxId};
use super::node::Node;
use super::note::{Subject, What};
use super::pod_option::Cpus;
use super::resize::adopt_resize;
use super::settings::Exposure;
use super::terms::Terms;
use cpuset::CpuSet;
use earlier::EarlierFacts;
pub(super) use evidence::Evidence;
use placement::pod_options::Margin;
use repair::{lost, repair};
use sources::{ClaimSource, adopt, asks, keep_margin, must_move, possible_margin};
use std::collections::{HashMap, HashSet};

/// Takes over what the runtime lists, and the claims that the kubelet has assigned.
pub(super) fn synchronize(
    node: &Node,
    books: &mut Books,
    kubelet: Vec<KubeletClaim>,
    pods: Vec<Pod>,
    containers: Vec<Container>,
) {
    let memory = memory::records(books.memory_claims());
    let evidence = Evidence::new(books.claims().collect(), kubelet);
    let earlier = EarlierFacts::of(node, books);
    books.clear();
    let owners = enter_pods(node, books, pods, &containers);
    let mut containers = newest_instances(&owners, containers);
    for (uid, container) in &mut containers {
        let cpu = earlier.request(container);
        let exclusive = exclusive_part(node, books, uid, container, &evidence);
        let confirmed = exclusive.is_some_and(|set| evidence.confirms(uid, container, &set));
        let recorded = memory.get(&(uid.clone(), container.name.clone()));
        let ours = mems_are_ours(node, exclusive, recorded, container.mems);
        let mut applied = AppliedSetting::reported(container, ours);
        // Otherwise it is decided below whether they are exclusive or shared.
        if confirmed || container.partitioned {
            applied.set_exclusive(exclusive.unwrap_or_default());
        }
        container.cpus = exclusive;
        // The list has no limit where the quota is lifted: then an earlier event had it.
        if cpu.limit != container.cpu.limit {
            applied.record_lifted_quota();
        }
        container.cpu = cpu;
        enter(node, books, uid, container, applied);
    }
    earlier.restore(books);
    for (uid, container) in &containers {
        note_too_many(books, uid, container);
    }
    own_pools::find(node, books, &containers, &evidence);
    settle(node, books, &containers, evidence);
    memory::adopt(node, books, &containers, memory);
}

/// The part of the CPUs that are set for a container which can be exclusive. Shared CPUs are set
/// for a mixed container, too, and only the claim shows which ones are exclusive.
fn exclusive_part(
    node: &Node,
    books: &Books,
    uid: &PodUid,
    container: &Container,
    evidence: &Evidence,
) -> Option<CpuSet> {
    let set = container.cpus?;
    // The CPUs that the cgroups above allow do not include those that other containers have by now.
    let reached = container.runs_on.unwrap_or(set);
    match evidence.ours(uid, container) {
        Some(ours) if ours.mixed => ours.cpus.is_subset(&reached).then_some(ours.cpus),
        Some(_) => Some(set),
        None => {
            let pod = &books.pod(uid)?.pod;
            let terms = Terms::still_allowed(&node.settings, pod, &container.name);
            unclaimed_part(&terms, Some(set))
        }
    }
}

/// The part that can be exclusive if the container has no claim: all CPUs that are set, but none
/// for a mixed container, as some of them may be shared.
pub(super) fn unclaimed_part(terms: &Terms, set: Option<CpuSet>) -> Option<CpuSet> {
    if terms.cpus == Some(Cpus::Mixed) { None } else { set }
}

/// Gives the entered containers their CPUs. While the kubelet or another plugin assigns CPUs, only
/// the CPUs that are set count, and no container moves.
fn settle(node: &Node, books: &mut Books, containers: &[(PodUid, Container)], evidence: Evidence) {
    own_pools::adopt(node, books, &evidence);
    let sets = containers.iter().filter_map(|(uid, container)| {
        let found = books.container(uid, &container.name)?;
        let entitled = asks(&found, container).is_some();
        // The cpuset of a shared container can name exclusive CPUs on which it does not run.
        let set = if entitled { None } else { container.runs_on };
        Some((set.or(container.cpus)?, entitled))
    });
    let evidence = evidence.with_sets(sets);
    let sources: &[&[ClaimSource]] = if node.assigns() {
        &[ClaimSource::SET, ClaimSource::RECORDED]
    } else {
        &[ClaimSource::SET]
    };
    for sources in sources {
        for &source in *sources {
            let must_move = must_move(node, books, containers, &evidence, source);
            for (at, (uid, container)) in containers.iter().enumerate() {
                if !must_move.contains(&at) {
                    adopt(node, books, uid, container, &evidence, source);
                }
            }
        }
        // After all adoptions, so that no running container loses a CPU to the margin of another.
        for (uid, container) in containers {
            keep_margin(node, books, uid, container, &evidence);
        }
    }
    books.pods_mut().for_each(|(_, pod)| pod.detect_resources());
    // Before the repairs, so that these take no CPUs of containers between two instances.
    keep_for_restart(node, books, &evidence);
    if node.assigns() {
        for (uid, container) in containers {
            let lost = lost(books, uid, container, &evidence);
            adopt_resize(node, books, uid, container);
            repair(node, books, uid, container, lost);
        }
    }
    // A pod that has only a sandbox may have ended and still be listed: it keeps no CPUs free.
    for (_, pod) in books.pods_mut() {
        let empty = pod.containers().next().is_none();
        pod.promises_nothing = empty;
        pod.lend_if_quiet();
    }
}

/// Adopts an unknown container that an event has named, as if it had been listed. The remembered
/// claim of its name counts.
pub(super) fn adopt_late(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    recall(node, books, uid, &container.name);
    let ours = books.claims().filter(|claim| claim.is_of(uid, &container.name));
    let evidence = Evidence::new(ours.collect(), Vec::new());
    let exclusive = exclusive_part(node, books, uid, container, &evidence);
    let entry = books.container(uid, &container.name).map(|container| container.entry);
    let recorded = entry.and_then(|entry| entry.memory.clone());
    let ours = mems_are_ours(node, exclusive, recorded.as_ref(), container.mems);
    let applied = AppliedSetting::reported(container, ours);
    let left_alone = container.left_alone.or(books.recall_left_alone(&container.id));
    let container =
        &Container { cpus: exclusive, not_started: false, left_alone, ..container.clone() };
    enter(node, books, uid, container, applied);
    for source in [ClaimSource::Confirmed, ClaimSource::Set, ClaimSource::Remembered] {
        adopt(node, books, uid, container, &evidence, source);
    }
    keep_margin(node, books, uid, container, &evidence);
    if let Some(pod) = books.pod_mut(uid) {
        pod.detect_resources();
    }
    if node.assigns() {
        repair(node, books, uid, container, None);
    }
    memory::adopt_one(node, books, uid, container, recorded.as_ref());
}

/// Gives a container the exclusive CPUs that are set for it, if they are legal.
pub(super) fn adopt_set(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    let evidence = Evidence::default();
    adopt(node, books, uid, container, &evidence, ClaimSource::Set);
    keep_margin(node, books, uid, container, &evidence);
}

/// Adopts the node again, as after a restart, but from the books; `set` returns the CPUs that are
/// set for a container.
pub(super) fn readopt(
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
    if node.settings.memory.is_none() {
        books.forget_memory();
    }
    memory::adopt(node, books, &running, Records::new());
}

/// Enters the remembered claim of an event's container as that of an ended one. Some runtimes never
/// list running containers, so claims are remembered until an event names their container.
pub(super) fn recall(node: &Node, books: &mut Books, uid: &PodUid, name: &str) {
    if let Some(claim) = books.recall(uid, "") {
        own_pools::recall(node, books, &claim);
    }
    if let Some(claim) = books.recall(uid, name) {
        keep(node, books, claim);
    }
    if let Some(claim) = books.recall_memory(uid, name) {
        memory::keep(books, claim);
    }
}

/// Enters all pods, and returns the pod of each sandbox.
///
/// The list also has dead sandboxes, in any order: after a reboot each pod has one in addition to
/// that of its containers. The sandbox with the newest container is entered last: the pod ends with
/// the sandbox that was entered last.
fn enter_pods(
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
    // Its environment may list its CPUs, if the setting was the same when it was created.
    if node.settings.expose_cpus == Exposure::Environment {
        entry.fix_by_environment();
    }
    if container.not_started {
        entry.mark_created();
    } else {
        // The real start is unknown: it may have been a moment ago.
        entry.start(node.now);
    }
    books.enter(uid, &container.name, entry, |_, _| ());
}

/// Keeps the CPUs of ended containers whose pod is alive, as the kubelet may restart them.
fn keep_for_restart(node: &Node, books: &mut Books, evidence: &Evidence) {
    let (ours, kubelet) = evidence.parts();
    for claim in ours {
        keep(node, books, claim);
    }
    for (pod_uid, container, cpus) in kubelet {
        let Some(pod) = books.pod(&pod_uid).map(|entry| &entry.pod) else { continue };
        let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
        let id = ContainerId::made_up(&pod_uid, &container);
        let margin = Margin::NONE;
        let (mixed, lent) = (false, false);
        let cpu = CpuRequest::default();
        let claim =
            Claim { pod_uid, namespace, pod, container, id, cpus, margin, mixed, lent, cpu };
        keep(node, books, claim);
    }
}

fn keep(node: &Node, books: &mut Books, claim: Claim) {
    let free = node.unclaimed(books);
    let pod = books.pod(&claim.pod_uid);
    let may_have_exclusive = pod.is_some_and(|pod| pod.pod.pool == PoolKind::General);
    if claim.cpus.is_empty() || !claim.cpus.is_subset(&free) || !may_have_exclusive {
        return;
    }
    let margin = possible_margin(node, &claim.cpus, claim.margin, &free);
    match books.container(&claim.pod_uid, &claim.container) {
        Some(ContainerRef { entry, .. }) => {
            if entry.is_alive() || entry.claim().is_some() {
                return;
            }
            books.change_container(&claim.pod_uid, &claim.container, |entry| {
                entry.assign(claim.cpus, margin);
                entry.mix(claim.mixed);
            });
        }
        // Entering it would remove the container that has this id now.
        None if books.find(&claim.id).is_some() => return,
        None => {
            let entry = ContainerEntry::ended(&claim, margin);
            books.enter(&claim.pod_uid, &claim.container, entry, |_, _| ());
        }
    }
    let Claim { namespace, pod, container, id, cpus, .. } = claim;
    books.journal.note(false, Subject { namespace, pod, container, id }, What::Held(cpus));
}

/// The containers with their pods, in order of creation. Only the newest instance of a name and of
/// an id counts; a container without a listed sandbox does not.
fn newest_instances(
    owners: &HashMap<SandboxId, PodUid>,
    mut containers: Vec<Container>,
) -> Vec<(PodUid, Container)> {
    containers.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let mut names = HashSet::new();
    let mut ids = HashSet::new();
    let mut newest: Vec<(PodUid, Container)> = containers
        .into_iter()
        .rev()
        .filter_map(|container| Some((owners.get(&container.sandbox)?.clone(), container)))
        .filter(|(uid, container)| {
            names.insert((uid.clone(), container.name.clone())) && ids.insert(container.id.clone())
        })
        .collect();
    newest.reverse();
    newest
}
