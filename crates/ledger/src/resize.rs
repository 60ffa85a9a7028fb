//! In-place resize: a running container gets more or fewer CPUs, or becomes exclusive or shared.
//!
//! The kubelet refuses this for exclusive CPUs under its own static policy; under policy none it
//! asks the runtime, and so this plugin. A refused resize changes nothing.

use super::identity::identify;
use crate::books::{Books, ContainerEntry, ContainerRef, Phase, PodEntry};
use crate::model::{Container, CpuRequest, MilliCpu, Pod, PodUid, Qos};
use crate::node::Node;
use crate::note::What;
use crate::own_pool;
use crate::request::{NodeSupply, exclusive_request, reusable, running_request};
use crate::terms::Terms;
use cpuset::CpuSet;
use placement::{self, Rejection, Running};

/// Changes a container's request, and its claim if that asks for other exclusive CPUs.
pub(crate) fn resize(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    requested: CpuRequest,
) -> Result<(), Rejection> {
    let Some(ContainerRef { pod, entry, .. }) = books.container(uid, &container.name) else {
        return Ok(());
    };
    let before = entry.cpu;
    let cpu = before.changed_by(requested);
    let asks = |cpu: &CpuRequest| (cpu.amount(), entry.asks_with(pod.pod.qos, cpu));
    if cpu == before {
        return Ok(());
    }
    if asks(&cpu) == asks(&before) {
        books.change_container(uid, &container.name, |entry| entry.cpu = cpu);
        return Ok(());
    }
    if pod.own_pool.is_some() {
        let resized = own_pool::resized(node, books, pod, &container.name, entry, cpu)?;
        let claim = resized.record(books, uid);
        books.change_container(uid, &container.name, |entry| entry.cpu = cpu);
        give_or_announce(node, books, uid, &container.name, claim);
        return Ok(());
    }
    let budget = resized_budget(pod, before, cpu);
    let claim = resized_claim(node, books, pod, entry, container, cpu, budget)?;
    let taken = node.with_idle(&claim.unwrap_or_default(), entry.pod_options().margin());
    if let Some(pod) = books.pod_mut(uid) {
        pod.pod.budget = budget;
        pod.raise_budget(&claim.unwrap_or_default());
        pod.hand_over(&node.topology, &container.name, taken);
        if let Some(entry) = pod.container_mut(&container.name) {
            entry.cpu = cpu;
        }
    }
    give_or_announce(node, books, uid, &container.name, claim);
    Ok(())
}

/// Carries out the resizes whose notice is over: its time has passed, or its program has ended.
pub(crate) fn end_notices(node: &Node, books: &mut Books) {
    let due = books.containers().filter_map(|ContainerRef { uid, name, entry, .. }| {
        let notice = entry.notice()?;
        let is_over = notice.at <= node.now || !entry.is_alive();
        if !is_over {
            return None;
        }
        Some((uid.clone(), name.to_owned(), notice.to))
    });
    for (uid, name, to) in due.collect::<Vec<_>>() {
        give(node, books, &uid, &name, if to.is_empty() { None } else { Some(to) });
    }
}

/// Gives a container these exclusive CPUs, or none. If it only loses some, a running program has
/// notice of that for the time of [`Settings::shrink_notice`](crate::Settings).
fn give_or_announce(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    name: &str,
    claim: Option<CpuSet>,
) {
    let Some(container) = books.container(uid, name) else { return };
    let held = container.entry.claim();
    let to = claim.unwrap_or_default();
    let loses = held.is_some_and(|held| to != held && to.is_subset(&held));
    let delay = node.settings.shrink_notice();
    if !loses || delay.is_zero() || container.entry.phase() != Phase::Running {
        return give(node, books, uid, name, claim);
    }
    let subject = container.subject();
    let already_noted = container.entry.notice().is_some_and(|notice| notice.to == to);
    let at = node.now.saturating_add(delay);
    books.change_container(uid, name, |entry| {
        entry.announce(to, at);
        // The request sets a CFS quota, which an update has to lift again.
        entry.applied.invalidate();
    });
    if let Some(held) = held
        && !already_noted
    {
        let what = What::Announced { leaving: held - to, delay };
        books.journal.note(false, subject, what);
    }
}

/// Adopts a resize that happened while the plugin did not run. If there are no CPUs for it, the
/// container keeps its present ones, as it is too late to refuse the resize.
pub(crate) fn adopt_resize(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    let Some(ContainerRef { pod, entry, .. }) = books.container(uid, &container.name) else {
        return;
    };
    let Some(held) = entry.claim() else { return };
    let asks = entry.asks_with(pod.pod.qos, &container.cpu);
    // It asks for no exclusive CPUs, but not because of a resize: its request is unknown, or a pod
    // option has changed.
    let is_no_resize = asks.is_none()
        && (container.cpu.amount().is_none()
            || pod.pod.qos != Qos::Guaranteed
            || entry.terms.cpus.is_some());
    if is_no_resize || !node.is_static() || asks == Some(held.len()) {
        return;
    }
    let claim = if pod.own_pool.is_some() {
        own_pool::resized(node, books, pod, &container.name, entry, container.cpu)
            .map(|resized| resized.record(books, uid))
    } else {
        let budget = pod.pod.budget;
        resized_claim(node, books, pod, entry, container, container.cpu, budget)
    };
    match claim {
        Ok(claim) => give_or_announce(node, books, uid, &container.name, claim),
        // If it has too few CPUs, some may be offline: then hotplug completes it.
        Err(_) => {
            let lacks_cpus = asks.is_some_and(|n| held.len() < n);
            books.change_container(uid, &container.name, |entry| entry.lacks_cpus = lacks_cpus);
        }
    }
}

fn give(node: &Node, books: &mut Books, uid: &PodUid, name: &str, claim: Option<CpuSet>) {
    let held = books.change_container(uid, name, |entry| {
        let margin = entry.pod_options().margin();
        let held = entry.claim();
        match claim {
            Some(cpus) => entry.move_to(cpus, margin),
            None => drop(entry.release()),
        }
        if claim != held {
            // The request also sets a CFS quota: an update is due even if the same CPUs are set.
            entry.applied.invalidate();
        }
        held
    });
    if let (Some(held), Some(pod)) = (held, books.pod_mut(uid)) {
        own_pool::exchange(node, pod, held.unwrap_or_default(), claim.unwrap_or_default());
    }
    let subject = books.container(uid, name).map(|container| container.subject());
    if let (Some(held), Some(subject)) = (held.filter(|held| *held != claim), subject) {
        let in_own_pool = books.pod(uid).is_some_and(|pod| pod.own_pool.is_some());
        let what = What::Resized { from: held, to: claim, in_own_pool };
        books.journal.note(false, subject, what);
    }
}

/// Records a pod's new budget. containerd 2.3 and newer and CRI-O 1.33 and newer report it.
pub(crate) fn update_pod(node: &Node, books: &mut Books, pod: Pod) {
    let Pod { budget, limits, .. } = pod.clone();
    let uid = identify(node, books, pod);
    let Some(entry) = books.pod_mut(&uid) else { return };
    if budget.is_some() {
        entry.pod.budget = budget;
        entry.resized = true;
    }
    if !limits.is_empty() {
        entry.pod.limits = limits;
        entry.resized = true;
    }
    own_pool::follow_budget(node, books, &uid);
}

/// The pod's budget after a resize of one of its containers. A runtime that reports resized pods
/// has already reported the new budget.
fn resized_budget(pod: &PodEntry, before: CpuRequest, after: CpuRequest) -> Option<MilliCpu> {
    let budget = pod.pod.budget?;
    if pod.resized {
        return Some(budget);
    }
    let amount = |cpu: CpuRequest| cpu.amount().map_or(0, |milli| milli.0);
    Some(MilliCpu(budget.0.saturating_sub(amount(before)).saturating_add(amount(after))))
}

/// The exclusive CPUs of a container after a resize; `None` if it shares CPUs then.
fn resized_claim(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    entry: &ContainerEntry,
    container: &Container,
    cpu: CpuRequest,
    budget: Option<MilliCpu>,
) -> Result<Option<CpuSet>, Rejection> {
    let Some(n) = entry.asks_with(pod.pod.qos, &cpu) else {
        return entry.terms.missing_whole_cpus(pod.pod.qos, &cpu).map_or(Ok(None), Err);
    };
    if !node.is_static() {
        return Ok(None);
    }
    if let Some(held) = entry.claim() {
        let request = running_request(node, &NodeSupply::of(node, books), pod, entry, n);
        return placement::resize(&node.topology, &request, &Running::Exclusive(held)).map(Some);
    }
    let budget = budget.map(MilliCpu::cpus_floor);
    let Some(reuse) = reusable(node, pod, budget, container, n) else {
        return entry.terms.fall_back_to_shared().map(|()| None);
    };
    let terms = Terms { pod_options: entry.pod_options(), ..entry.terms.clone() };
    let supply = NodeSupply::of(node, books);
    let request = exclusive_request(node, &supply, pod, reuse, CpuSet::EMPTY, n, &terms);
    placement::resize(&node.topology, &request, &Running::Shared).map(Some)
}
