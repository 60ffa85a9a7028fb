//! What a call of the runtime asks of the ledger, and what the ledger's response says in the
//! protocol's words: pure, without a connection.

use super::{incoming, outgoing};
use crate::Response;
use cpuset::CpuSet;
use ledger::{Admission, Call, ContainerId, Event, SandboxId};
use std::collections::HashMap;

#[derive(Debug)]
pub enum Asked {
    Call(Call),
    /// Whether a container may have these CPUs.
    Validate(ContainerId, Option<CpuSet>),
    /// Nothing, but it shows that the runtime has made the updates of the last answer.
    WentOn,
}

/// What the runtime asks by `call`. Events about an end use the id alone, as other fields may be
/// missing. `on_crio` says whether the runtime is CRI-O.
pub fn asked(call: nri::Call, on_crio: bool) -> Asked {
    let call = match call {
        nri::Call::Synchronize { pods, containers } => {
            // A container may come before its pod, so its own fields have to name the sandbox.
            let unknown = nri::wire::PodSandbox::new();
            let by_id: HashMap<&str, &nri::wire::PodSandbox> =
                pods.iter().map(|pod| (pod.id.as_str(), pod)).collect();
            let containers = containers.into_iter().map(|container| {
                let pod = by_id.get(container.pod_sandbox_id.as_str()).copied();
                incoming::container(&container, pod.unwrap_or(&unknown))
            });
            let containers = containers.collect();
            Call::from(Event::Synchronize {
                pods: pods.into_iter().map(|pod| incoming::pod(&pod, None, on_crio)).collect(),
                containers,
            })
        }
        nri::Call::RunPodSandbox(pod) => Event::RunPod(incoming::pod(&pod, None, on_crio)).into(),
        // The pod of the event has the new budget.
        nri::Call::UpdatePodSandbox { pod, resources, .. } => {
            let mut pod = incoming::pod(&pod, None, on_crio);
            pod.budget = resources.cpu.as_ref().and_then(incoming::budget);
            pod.limits = incoming::limits(&resources);
            Event::UpdatePod(pod).into()
        }
        nri::Call::StopPodSandbox(pod) => Event::StopPod(SandboxId(pod.id.into())).into(),
        nri::Call::RemovePodSandbox(pod) => Event::RemovePod(SandboxId(pod.id.into())).into(),
        nri::Call::CreateContainer(pod, container) => {
            let (pod, container) = incoming::pod_and_container(&pod, &container, on_crio);
            Admission::Create { pod, container }.into()
        }
        nri::Call::StartContainer(pod, container) => {
            let (pod, container) = incoming::pod_and_container(&pod, &container, on_crio);
            Event::Starting { pod, container }.into()
        }
        nri::Call::PostStartContainer(pod, container) => {
            let (pod, container) = incoming::pod_and_container(&pod, &container, on_crio);
            Event::Started { pod, container }.into()
        }
        nri::Call::UpdateContainer { pod, container, resources } => {
            let requested = incoming::requested(&resources, &container);
            let (pod, container) = incoming::pod_and_container(&pod, &container, on_crio);
            Admission::Update { pod, container, requested }.into()
        }
        nri::Call::StopContainer(_, container) => {
            Event::Stop(ContainerId(container.id.into())).into()
        }
        nri::Call::RemoveContainer(_, container) => {
            Event::Remove(ContainerId(container.id.into())).into()
        }
        nri::Call::ValidateContainerAdjustment { container, adjust, .. } => {
            let cpus = incoming::final_cpus(&container, &adjust);
            return Asked::Validate(ContainerId(container.id.into()), cpus);
        }
        // The ledger does not need these, and cannot know those of a later protocol.
        nri::Call::PostCreateContainer(..)
        | nri::Call::PostUpdateContainer(..)
        | nri::Call::PostUpdatePodSandbox(_)
        | nri::Call::Unknown => return Asked::WentOn,
    };
    Asked::Call(call)
}

/// `obstacle` says why the container of the call can have no files.
pub fn answer(response: &Response, obstacle: Option<&str>) -> nri::Answer {
    let Response { setting, environment, directory, updates } = response;
    let (directory, warning) = match (directory, obstacle) {
        (Some(_), Some(why)) => (None, Some(format!("exposeCPUs: no files for {why}"))),
        (directory, _) => (directory.as_deref(), None),
    };
    let adjust = setting
        .as_ref()
        .map(|setting| outgoing::container_adjustment(setting, environment, directory));
    nri::Answer { adjust, updates: outgoing::updates(updates), warning }
}
