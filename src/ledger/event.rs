//! What can happen to the ledger, and what it answers.

use super::adjustment::{Adjustment, Update};
use super::environment::Variable;
use super::model::{Container, ContainerId, CpuRequest, Pod, SandboxId};
use super::settings::Settings;
use super::stance::{KubeletClaim, Stance};
use crate::cpuset::CpuSet;
use crate::topology::Topology;

/// Everything that can happen, in the order the runtime says it did.
///
/// Each one may come twice, late, never, or speak of something unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All pods and containers that exist, after a connection was made. What is not named here is
    /// gone.
    Synchronize {
        /// The pods.
        pods: Vec<Pod>,
        /// Their containers that are created or running.
        containers: Vec<Container>,
    },
    /// A pod's sandbox is being started.
    RunPod(Pod),
    /// A pod is being resized in place; its budget is the new one. Other events go on telling the
    /// old one.
    UpdatePod(Pod),
    /// A container is about to be created: the one moment at which it can be pinned before it runs.
    Create {
        /// Its pod.
        pod: Pod,
        /// The container.
        container: Container,
    },
    /// A container's process is about to run; its control group is there. Told where the kernel
    /// keeps exclusivity.
    Starting {
        /// Its pod.
        pod: Pod,
        /// The container.
        container: Container,
    },
    /// A container's process runs now.
    Started {
        /// Its pod.
        pod: Pod,
        /// The container.
        container: Container,
    },
    /// The kubelet asks for other resources.
    Update {
        /// Its pod.
        pod: Pod,
        /// The container as it was before.
        container: Container,
        /// What it is to have from now on.
        wanted: Wanted,
    },
    /// A container's process has ended, or its creation failed.
    Stop(ContainerId),
    /// An instance of a container is gone for good, or never came to be. Its pod may go on, and so
    /// may its name.
    Remove(ContainerId),
    /// All containers of a pod have been stopped.
    StopPod(SandboxId),
    /// A pod is gone for good.
    RemovePod(SandboxId),
    /// Some time has passed, half a minute or so. What has not happened meanwhile counts, too: a
    /// container that is still away lends its CPUs.
    Lull,
    /// CPUs of the machine have gone offline or come online: it is this one now.
    Machine(Topology),
    /// The administrator has decided otherwise: these settings are in force from now on.
    Settings(Settings),
    /// The kubelet's own CPU manager came or went. With [`Stance::Assign`] what it assigned is
    /// taken over.
    Kubelet {
        /// What to do from now on.
        stance: Stance,
        /// What the kubelet has, or last had, assigned; empty if that is not known.
        claims: Vec<KubeletClaim>,
    },
    /// Updates can be delivered now by this way, without an event of the runtime. The decision has
    /// them.
    Deliver(Channel),
    /// The runtime has not made these changes, or the kernel has not written them: they go along
    /// with the next delivery.
    Undelivered(Vec<Update>),
    /// The creation of this container was decided, with these changes for others, but cannot be
    /// answered with: the container gets nothing, as if it had been refused.
    Revoked {
        /// The container.
        container: ContainerId,
        /// What the decision had for others.
        updates: Vec<Update>,
    },
    /// The kernel does not keep others off this container's CPUs: the runtime has to, by updates of
    /// the shared containers.
    PartitionRefused(ContainerId),
    /// Something else than what was decided is set for these containers.
    Drifted(Vec<ContainerId>),
}

/// A way by which updates reach containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The runtime makes them: it is called now, or waits for an answer.
    Runtime,
    /// They are written into the groups of running containers. The runtime is still to be told,
    /// with its next answer. Some wait until others are written: there may be more, until a
    /// decision has none.
    Groups,
}

impl Event {
    /// A short name that stays, for figures.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Synchronize { .. } => "synchronize",
            Event::RunPod(_) => "run_pod",
            Event::UpdatePod(_) => "update_pod",
            Event::Create { .. } => "create",
            Event::Starting { .. } => "starting",
            Event::Started { .. } => "started",
            Event::Update { .. } => "update",
            Event::Stop(_) => "stop",
            Event::Remove(_) => "remove",
            Event::StopPod(_) => "stop_pod",
            Event::RemovePod(_) => "remove_pod",
            Event::Lull => "lull",
            Event::Kubelet { .. } => "kubelet",
            Event::Machine(_) => "machine",
            Event::Settings(_) => "settings",
            Event::Deliver(_) => "deliver",
            Event::Undelivered(_) => "undelivered",
            Event::Revoked { .. } => "revoked",
            Event::PartitionRefused(_) => "partition_refused",
            Event::Drifted(_) => "drifted",
        }
    }
}

/// New resources for a container, as the kubelet asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Its CPU time; a part that is `None` stays as it is.
    pub cpu: CpuRequest,
    /// Whether the request carries a CFS quota, which would end the freedom of exclusive CPUs from
    /// it.
    pub sets_quota: bool,
    /// CPUs named in the request: a kubelet whose own CPU manager is active does that, or another
    /// plugin.
    pub cpus: Option<CpuSet>,
}

/// The ledger's answer to an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// For [`Event::Create`]: where the new container shall run; `None` leaves it alone.
    pub adjustment: Option<Adjustment>,
    /// For [`Event::Create`]: environment variables for the new container.
    pub environment: Vec<Variable>,
    /// Changes for containers that exist, in the order in which they must be made. For
    /// [`Event::Update`] the container's own change is among them.
    pub updates: Vec<Update>,
}
