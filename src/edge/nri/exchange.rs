//! What a call of the runtime asks of the ledger, and what the ledger's response says in the
//! protocol's words: pure, without a connection.

use super::projection::is_propagation;
use super::{incoming, outgoing};
use crate::edge::{Mount, Response};
use cpuset::CpuSet;
use ledger::{Admission, Call, ContainerId, Event, SandboxId};
use std::path::{Path, PathBuf};
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
            Call::from(Event::Synchronize {
                pods: pods.into_iter().map(|pod| incoming::pod(&pod, None, on_crio)).collect(),
                containers: containers
                    .into_iter()
                    .map(|container| incoming::container(&container, &unknown))
                    .collect(),
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
        nri::Call::StopPodSandbox(pod) => Event::StopPod(SandboxId(pod.id)).into(),
        nri::Call::RemovePodSandbox(pod) => Event::RemovePod(SandboxId(pod.id)).into(),
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
            let wanted = incoming::wanted(&resources, &container);
            let (pod, container) = incoming::pod_and_container(&pod, &container, on_crio);
            Admission::Update { pod, container, wanted }.into()
        }
        nri::Call::StopContainer(_, container) => Event::Stop(ContainerId(container.id)).into(),
        nri::Call::RemoveContainer(_, container) => Event::Remove(ContainerId(container.id)).into(),
        nri::Call::ValidateContainerAdjustment { container, adjust, .. } => {
            let cpus = incoming::final_cpus(&container, &adjust);
            return Asked::Validate(ContainerId(container.id), cpus);
        }
        // The ledger does not need these, and cannot know those of a later protocol.
        nri::Call::PostCreateContainer(..)
        | nri::Call::PostUpdateContainer(..)
        | nri::Call::PostUpdatePodSandbox(_)
        | nri::Call::Unknown => return Asked::WentOn,
    };
    Asked::Call(call)
}

/// `own` are the mounts of the container that the call creates.
pub fn answer(response: &Response, own: &OwnMounts) -> nri::Answer {
    let Response { setting, environment, directory, mounts, updates } = response;
    let mounts = mounts.iter().filter(|mount| own.allow(mount));
    let adjust = setting.as_ref().map(|setting| {
        let mut adjust = outgoing::container_adjustment(setting, environment, directory.as_deref());
        adjust.mounts.extend(mounts.map(outgoing::mount));
        adjust
    });
    nri::Answer { adjust, updates: outgoing::updates(updates) }
}

/// The mount points of a new container, and whether mounts below each appear on the host, too.
#[derive(Debug, Default)]
pub struct OwnMounts {
    container: String,
    mounts: Vec<(PathBuf, bool)>,
}

impl OwnMounts {
    /// None for any other call.
    pub fn of(call: &nri::Call) -> OwnMounts {
        let nri::Call::CreateContainer(_, container) = call else { return OwnMounts::default() };
        let mounts = container.mounts.iter().map(|mount| {
            let propagates = mount.options.iter().any(|option| is_propagation(option));
            (PathBuf::from(&mount.destination), propagates)
        });
        OwnMounts { container: container.id.clone(), mounts: mounts.collect() }
    }

    /// Below a mount that propagates to the host, a mount would hide the kubelet's own file from the
    /// kubelet, and stay when the container is gone. A second one at the same place fails the
    /// container with some runtimes.
    fn allow(&self, mount: &Mount) -> bool {
        let at = Path::new(&mount.destination);
        let above = self.mounts.iter().filter(|(path, _)| at.starts_with(path));
        let (path, why) = match above.max_by_key(|(path, _)| path.components().count()) {
            Some((path, _)) if path == at => (path, "is mounted there by its pod"),
            Some((path, true)) => (path, "has mountPropagation: Bidirectional"),
            _ => return true,
        };
        log::warn!(
            "consumers: container {} has no mount at {}: {} {why}",
            self.container,
            at.display(),
            path.display()
        );
        false
    }
}
