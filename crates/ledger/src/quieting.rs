//! What containers ask for on their exclusive CPUs: where interrupts go, and latency knobs. The
//! daemon carries it out; the ledger only knows who asks.

use super::annotations::crio;
use super::books::{Books, ContainerEntry, ContainerRef, Phase};
use super::model::{Container, PodUid};
use super::node::Node;
use super::note::What;
use cpuset::CpuSet;
use quiet::{Goal, InterruptMode, Knobs, QuietContainer};
use topology::Topology;

/// What happens to device interrupts on a container's exclusive CPUs; `Leave` without any, or if
/// the shared pool uses them.
pub(super) fn interrupts(node: &Node, entry: &ContainerEntry) -> InterruptMode {
    if has_exclusive(node, entry) {
        entry.terms.interrupts.unwrap_or(node.settings.interrupts)
    } else {
        InterruptMode::Leave
    }
}

/// The latency knobs of a container's exclusive CPUs; none without any, or if the shared pool uses
/// them.
pub(super) fn knobs(node: &Node, entry: &ContainerEntry) -> Knobs {
    if has_exclusive(node, entry) { entry.terms.knobs.clone() } else { Knobs::NONE }
}

fn has_exclusive(node: &Node, entry: &ContainerEntry) -> bool {
    node.assigns() && entry.claim().is_some() && !entry.is_lent()
}

/// What running containers ask for. Unless the ledger assigns CPUs, that is nothing.
pub(super) fn goal(node: &Node, books: &Books) -> Goal {
    let topology = &node.topology;
    let mut containers = Vec::new();
    for one in books.containers().filter(|one| has_exclusive(node, one.entry)) {
        let (interrupts, knobs) = (interrupts(node, one.entry), knobs(node, one.entry));
        let asks = interrupts != InterruptMode::Leave || knobs != Knobs::NONE;
        if one.entry.phase() == Phase::Ended || !asks {
            continue;
        }
        let held = one.entry.held();
        let of = |cpus, interrupts| {
            let knobs = knobs.clone();
            QuietContainer { name: one.subject().to_string(), cpus, interrupts, knobs }
        };
        containers.push(of(held, interrupts));
        let idle = node.taken(one.entry) - held;
        if !idle.is_empty() {
            // The housekeeping core is one of those that the container uses.
            let interrupts = match interrupts {
                InterruptMode::Housekeeping => InterruptMode::Away,
                other => other,
            };
            containers.push(of(idle, interrupts));
        }
    }
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
    Goal {
        online: topology.online(),
        nodes: nodes.map(|node| (node.id, node.cpus)).collect(),
        cores: topology.cores().iter().map(|core| core.cpus).collect(),
        containers,
    }
}

/// The exclusive CPUs of a container on which interrupts may stay; none unless it keeps a core for
/// them.
pub(super) fn housekeeping(node: &Node, ContainerRef { entry, .. }: ContainerRef<'_>) -> CpuSet {
    if interrupts(node, entry) == InterruptMode::Housekeeping {
        first_core(&node.topology, entry.held())
    } else {
        CpuSet::EMPTY
    }
}

/// The first CPU, with those of its SMT siblings that are among `cpus`.
fn first_core(topology: &Topology, cpus: CpuSet) -> CpuSet {
    let first = cpus.lowest(1);
    let core = topology.cores().iter().find(|core| first.is_subset(&core.cpus));
    first | core.map_or(CpuSet::EMPTY, |core| core.cpus & cpus)
}

/// What of a new container's annotations changes nothing here, and, once a pod, that the runtime
/// sets interrupts and knobs itself.
pub(super) fn notes(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
) -> Vec<What> {
    let Some(pod) = books.pod_mut(uid) else { return Vec::new() };
    let is_exclusive = pod.container(&container.name).is_some_and(|entry| entry.claim().is_some());
    let asked = pod.pod.annotations.read(&container.name, node.settings.reads_crio);
    let mut notes = Vec::new();
    if asked.lifts_quota && !is_exclusive {
        let why = "the container shares CPUs, so its CPU limit stays in force";
        notes.push(What::NoEffect { annotation: crio::QUOTA, why });
    }
    if asked.stops_balancing && is_exclusive {
        let why = "the container runs on its exclusive CPUs only; cpusetPartition: isolated also ends \
                   load balancing between them";
        notes.push(What::NoEffect { annotation: crio::BALANCING, why });
    }
    if pod.pod.annotations.is_left_to_runtime() && is_exclusive && !pod.noted_runtime {
        pod.noted_runtime = true;
        notes.push(What::LeftToRuntime);
    }
    notes
}
