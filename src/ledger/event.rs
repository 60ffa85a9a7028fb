//! Everything that changes the ledger, and its answers.

use super::adjustment::{Adjustment, Update};
use super::environment::Variable;
use super::model::{Container, ContainerId, CpuRequest, Pod, PodUid, SandboxId};
use super::policy::Mechanism;
use super::settings::Settings;
use super::stance::{KubeletClaim, Stance};
use crate::cpuset::CpuSet;
use crate::topology::Topology;
use std::collections::BTreeSet;

/// An event, in the order in which the runtime reports it.
///
/// Each may come twice, late or never, and may name something unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All pods and containers that exist, after the runtime has connected. What is not in it no
    /// longer exists.
    Synchronize {
        /// The pods.
        pods: Vec<Pod>,
        /// Their containers that are created or running.
        containers: Vec<Container>,
    },
    /// A pod's sandbox is being started.
    RunPod(Pod),
    /// A pod is being resized in place; its budget is the new one. Other events go on naming the
    /// old one.
    UpdatePod(Pod),
    /// A container is about to be created: the one moment at which it can be pinned before it runs.
    Create {
        /// Its pod.
        pod: Pod,
        /// The container.
        container: Container,
    },
    /// A container's process is about to run; its control group exists. The daemon reports it only
    /// where the kernel keeps exclusivity.
    Starting {
        /// Its pod.
        pod: Pod,
        /// The container.
        container: Container,
    },
    /// A container's process runs.
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
    /// The runtime has removed an instance of a container, or could not create it. Its pod may go
    /// on, and a new instance of its name may come.
    Remove(ContainerId),
    /// All containers of a pod have been stopped.
    StopPod(SandboxId),
    /// The runtime has removed a pod.
    RemovePod(SandboxId),
    /// About half a minute has passed. A container that has ended and has not come back since the
    /// last one lends its CPUs.
    Lull,
    /// CPUs have gone offline or come online: the machine as it is now.
    Machine(Topology),
    /// These settings are in force from now on.
    Settings(Settings),
    /// This keeps exclusivity from now on.
    Mechanism(Mechanism),
    /// No cgroup can bind the containers of these pods, and of no others: the runtime has to update
    /// them.
    Unbound(BTreeSet<PodUid>),
    /// The kubelet's own CPU manager has become active or inactive. With [`Stance::Assign`] the
    /// ledger takes over what it assigned.
    Kubelet {
        /// What to do from now on.
        stance: Stance,
        /// What the kubelet has, or last had, assigned; empty if that is not known.
        claims: Vec<KubeletClaim>,
    },
    /// This channel can deliver updates now, without an event of the runtime. The decision has
    /// them.
    Deliver(Channel),
    /// The runtime has not made these updates, or the kernel has not accepted them. The next
    /// delivery repeats them.
    Undelivered(Vec<Update>),
    /// The daemon cannot answer with the decision on this container's creation and these updates of
    /// others. The container gets nothing, as if it had been refused.
    Revoked {
        /// The container.
        container: ContainerId,
        /// The decision's updates of others.
        updates: Vec<Update>,
    },
    /// The kernel makes no partition for this container: groups have to keep others off its CPUs.
    PartitionRefused(ContainerId),
    /// These containers have other CPUs than the ledger decided.
    Drifted(Vec<ContainerId>),
}

/// How updates reach containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The runtime makes them: the daemon calls it, or it waits for an answer.
    Runtime,
    /// The daemon writes them into the groups of running containers, and the next answer repeats
    /// them to the runtime. Some updates wait until others are written: the daemon asks until a
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
            Event::Mechanism(_) => "mechanism",
            Event::Unbound(_) => "unbound",
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
    /// Whether the request carries a CFS quota. It would throttle exclusive CPUs.
    pub sets_quota: bool,
    /// CPUs named in the request, by a kubelet whose own CPU manager is active or by another
    /// plugin.
    pub cpus: Option<CpuSet>,
}

/// The ledger's answer to an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// For [`Event::Create`]: where the new container runs; `None` leaves it alone.
    pub adjustment: Option<Adjustment>,
    /// For [`Event::Create`]: environment variables for the new container.
    pub environment: Vec<Variable>,
    /// Changes for containers that exist, in the order in which they must be made. For
    /// [`Event::Update`] the container's own change is among them.
    pub updates: Vec<Update>,
}
