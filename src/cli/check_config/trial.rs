//! The effect on containers, from a ledger without a runtime.

use super::report::{AssignmentEffect, AssignmentReport, Outlook};
use crate::checkpoint::SavedClaims;
use cpuset::CpuSet;
use ledger::model::SandboxId;
use ledger::{
    Claim, Container, ContainerId, CpuRequest, Event, Ledger, MilliCpu, MoveReason, Note, Pod, Qos,
    Settings, What,
};
use std::collections::BTreeMap;
use topology::Topology;

/// The effect of these settings on claims. The state file has no QoS classes: each claim counts as a
/// running container that requests the CPUs it has.
pub(super) fn after(topology: &Topology, settings: &Settings, claims: SavedClaims) -> Outlook {
    let SavedClaims { cpus: claims, memory, .. } = claims;
    let (pods, mut containers): (Vec<Pod>, Vec<Container>) = claims.iter().map(as_listed).unzip();
    // The claim of a pod's own pool names no container.
    containers.retain(|container| !container.name.is_empty());
    let ledger = Ledger::new(topology.clone(), settings.clone(), claims.clone());
    let mut ledger = ledger.with_memory(memory);
    ledger.apply(Event::Synchronize { pods, containers });
    let has: BTreeMap<ContainerId, CpuSet> =
        ledger.claims().map(|claim| (claim.id, claim.cpus)).collect();
    let notes = ledger.take_notes();
    let assignment = |claim: Claim| {
        let now = has.get(&claim.id).copied();
        let effect = match now {
            Some(cpus) if cpus == claim.cpus => AssignmentEffect::Stays,
            Some(to) => {
                AssignmentEffect::Moves { to: to.to_string(), why: why(&notes, &claim, topology) }
            }
            None => AssignmentEffect::Shares { why: why(&notes, &claim, topology) },
        };
        AssignmentReport {
            namespace: claim.namespace,
            pod: claim.pod,
            container: claim.container,
            cpus: claim.cpus.to_string(),
            effect,
        }
    };
    let of_containers = claims.into_iter().filter(|claim| !claim.container.is_empty());
    Outlook {
        assignments: of_containers.map(assignment).collect(),
        shared_now: None,
        shared_then: ledger.pool().to_string(),
    }
}

/// A claim's container as the runtime would list it.
fn as_listed(claim: &Claim) -> (Pod, Container) {
    let sandbox = SandboxId(claim.pod_uid.0.clone());
    let amount = u64::try_from(claim.cpus.len()).ok().map(|cpus| MilliCpu(cpus * 1000));
    let pod = Pod {
        sandbox: sandbox.clone(),
        uid: claim.pod_uid.clone(),
        namespace: claim.namespace.clone(),
        name: claim.pod.clone(),
        qos: Qos::Guaranteed,
        budget: None,
        limits: Default::default(),
        own_resources: None,
        // The state file lacks annotations. A running container keeps its CPUs without them.
        pool: Default::default(),
        annotations: Default::default(),
        cgroup: None,
    };
    let container = Container {
        cpus: Some(claim.cpus),
        ..Container::new(
            claim.id.clone(),
            sandbox,
            claim.container.clone(),
            CpuRequest { request: amount, limit: amount },
        )
    };
    (pod, container)
}

fn why(notes: &[Note], claim: &Claim, topology: &Topology) -> String {
    let about = notes.iter().filter(|note| note.subject.id == claim.id);
    let mut reason = about.filter_map(|note| match &note.what {
        What::Moved { why, .. } => Some(why.to_string()),
        What::LeftShared(why) => Some(why.clone()),
        _ => None,
    });
    let offline = !claim.cpus.is_subset(&topology.online());
    let illegal = if offline { MoveReason::Offline } else { MoveReason::Reserved };
    reason.next_back().unwrap_or_else(|| illegal.to_string())
}
