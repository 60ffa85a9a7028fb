//! In-place resize: a running container gets more or fewer CPUs, or becomes exclusive or shared.
//!
//! The kubelet refuses this for exclusive CPUs under its own static policy; with policy none it
//! asks the runtime, and so this plugin. A refusal fails the resize and changes nothing.

use super::identity::identify;
use crate::books::{Books, ContainerEntry, ContainerRef, Phase, PodEntry};
use crate::model::{Container, CpuRequest, MilliCpu, Pod, PodUid, Qos};
use crate::node::Node;
use crate::note::What;
use crate::request::{Supply, budget_fit, request, running};
use crate::terms::Terms;
use cpuset::CpuSet;
use placement::{self, Rejection, Running};

/// Changes a container's claim to what it asks for from now on.
pub(crate) fn resize(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    wanted: CpuRequest,
) -> Result<(), Rejection> {
    let Some(ContainerRef { pod, entry, .. }) = books.container(uid, &container.name) else {
        return Ok(());
    };
    let before = entry.cpu;
    let cpu = before.changed_by(wanted);
    let asks = |cpu: &CpuRequest| (cpu.amount(), entry.asks_with(pod.pod.qos, cpu));
    if cpu == before {
        return Ok(());
    }
    if asks(&cpu) == asks(&before) {
        books.change_container(uid, &container.name, |entry| entry.cpu = cpu);
        return Ok(());
    }
    let budget = resized_budget(pod, before, cpu);
    let claim = resized_claim(node, books, pod, entry, container, cpu, budget)?;
    let taken = node.with_idle(&claim.unwrap_or_default(), entry.wishes().margin());
    if let Some(pod) = books.change(uid) {
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

/// Carries out the resizes whose notice is over.
pub(crate) fn end_notices(node: &Node, books: &mut Books) {
    let over = books.containers().filter_map(|found| {
        let notice = found.entry.notice().filter(|notice| notice.at <= node.now)?;
        Some((found.uid.clone(), found.name.to_owned(), notice.to))
    });
    for (uid, name, to) in over.collect::<Vec<_>>() {
        give(books, &uid, &name, if to.is_empty() { None } else { Some(to) });
    }
}

/// A running program that learns its CPUs from files has notice before it loses some.
fn give_or_announce(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    name: &str,
    claim: Option<CpuSet>,
) {
    let Some(found) = books.container(uid, name) else { return };
    let (held, to) = (found.entry.claim(), claim.unwrap_or_default());
    let loses = held.is_some_and(|held| to != held && to.is_subset(&held));
    let delay = node.settings.shrink_notice();
    if !loses || delay.is_zero() || found.entry.phase() != Phase::Running {
        return give(books, uid, name, claim);
    }
    let subject = found.subject();
    let at = node.now.saturating_add(delay);
    let before = books.change_container(uid, name, |entry| {
        let before = entry.notice();
        entry.announce(to, at);
        // The request sets its quota.
        entry.applied.invalidate();
        before
    });
    if let (Some(held), false) = (held, before.flatten().is_some_and(|before| before.to == to)) {
        let what = What::Announced { leaving: held - to, delay };
        books.journal.note(false, subject, what);
    }
}

/// Follows a resize of an adopted container that happened while the plugin did not run. If there
/// are no CPUs for it, the container keeps what it has: the runtime has accepted the resize.
pub(crate) fn resize_unseen(node: &Node, books: &mut Books, uid: &PodUid, container: &Container) {
    let Some(ContainerRef { pod, entry, .. }) = books.container(uid, &container.name) else {
        return;
    };
    let Some(held) = entry.claim() else { return };
    let asks = entry.asks_with(pod.pod.qos, &container.cpu);
    // A changed wish is no resize.
    let silent = asks.is_none()
        && (container.cpu.amount().is_none()
            || pod.pod.qos != Qos::Guaranteed
            || entry.terms.cpus.is_some());
    if silent || !node.is_static() || asks == Some(held.len()) {
        return;
    }
    let budget = pod.pod.budget;
    match resized_claim(node, books, pod, entry, container, container.cpu, budget) {
        Ok(claim) => give_or_announce(node, books, uid, &container.name, claim),
        // Some of its CPUs may be offline: hotplug completes it.
        Err(_) => {
            let lost = asks.is_some_and(|n| held.len() < n);
            books.change_container(uid, &container.name, |entry| entry.lost = lost);
        }
    }
}

fn give(books: &mut Books, uid: &PodUid, name: &str, claim: Option<CpuSet>) {
    let held = books.change_container(uid, name, |entry| {
        let margin = entry.wishes().margin();
        let held = entry.claim();
        match claim {
            Some(cpus) => entry.move_to(cpus, margin),
            None => drop(entry.release()),
        }
        if claim != held {
            // The same request sets its quota, so an update is due in any case.
            entry.applied.invalidate();
        }
        held
    });
    let subject = books.container(uid, name).map(|found| found.subject());
    if let (Some(held), Some(subject)) = (held.filter(|held| *held != claim), subject) {
        books.journal.note(false, subject, What::Resized { from: held, to: claim });
    }
}

/// A pod's new budget, if the runtime reports it: containerd 2.3 and newer, CRI-O 1.33 and newer.
pub(crate) fn update_pod(node: &Node, books: &mut Books, pod: Pod) {
    let budget = pod.budget;
    let uid = identify(node, books, pod);
    if let Some(entry) = books.change(&uid).filter(|_| budget.is_some()) {
        entry.pod.budget = budget;
        entry.resized = true;
    }
}

/// The pod's budget after one of its containers is resized. A runtime that reports resized pods has
/// done so before.
fn resized_budget(pod: &PodEntry, before: CpuRequest, after: CpuRequest) -> Option<MilliCpu> {
    let budget = pod.pod.budget?;
    if pod.resized {
        return Some(budget);
    }
    let amount = |cpu: CpuRequest| cpu.amount().map_or(0, |milli| milli.0);
    Some(MilliCpu(budget.0.saturating_sub(amount(before)).saturating_add(amount(after))))
}

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
        return entry.terms.without_whole_cpus(pod.pod.qos, &cpu).map_or(Ok(None), Err);
    };
    if !node.is_static() {
        return Ok(None);
    }
    if let Some(held) = entry.claim() {
        let request = running(node, &Supply::of(node, books), pod, entry, n);
        return placement::resize(&node.topology, &request, &Running::Exclusive(held)).map(Some);
    }
    let budget = budget.map(MilliCpu::cpus_floor);
    let fit = budget_fit(node, pod, budget, container, n);
    let terms = Terms { wishes: entry.wishes(), ..entry.terms };
    match request(node, &Supply::of(node, books), pod, fit, CpuSet::EMPTY, n, &terms) {
        None => entry.terms.without_room().map(|()| None),
        Some(request) => placement::resize(&node.topology, &request, &Running::Shared).map(Some),
    }
}
