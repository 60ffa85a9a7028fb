//! What can happen to the ledger, and what it answers.

use super::environment::Variable;
use super::hands_off::{KubeletClaim, Stance};
use super::model::{Container, ContainerId, CpuRequest, MilliCpu, Pod, SandboxId};
use super::settings::Settings;
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;
use crate::topology::Topology;

/// Everything that can happen, in the order the runtime says it did.
///
/// Each one may come twice, late, never, or speak of something unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All pods and containers that exist, after a connection was made. What is not named here is gone.
    Synchronize {
        /// The pods.
        pods: Vec<Pod>,
        /// Their containers that are created or running.
        containers: Vec<Container>,
    },
    /// A pod's sandbox is being started.
    RunPod(Pod),
    /// A pod is being resized in place; its budget is the new one. Other events go on telling the old one.
    UpdatePod(Pod),
    /// A container is about to be created: the one moment at which it can be pinned before it runs.
    Create {
        /// Its pod.
        pod: Pod,
        /// The container.
        container: Container,
    },
    /// A container's process is about to run; its control group is there. Told where the kernel keeps exclusivity.
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
        /// What it shall have from now on.
        wanted: Wanted,
    },
    /// A container's process has ended, or its creation failed.
    Stop(ContainerId),
    /// An instance of a container is gone for good, or never came to be. Its pod may go on, and so may its name.
    Remove(ContainerId),
    /// All containers of a pod have been stopped.
    StopPod(SandboxId),
    /// A pod is gone for good.
    RemovePod(SandboxId),
    /// Some time has passed, half a minute or so. What has not happened meanwhile counts, too: a container that is still
    /// away lends its CPUs.
    Lull,
    /// CPUs of the machine have gone offline or come online: it is this one now.
    Machine(Topology),
    /// The administrator has decided otherwise: these settings are in force from now on.
    Settings(Settings),
    /// The kubelet's own CPU manager came or went. With [`Stance::Assign`] what it assigned is taken over.
    Kubelet {
        /// What to do from now on.
        stance: Stance,
        /// What the kubelet has, or last had, assigned; empty if that is not known.
        claims: Vec<KubeletClaim>,
    },
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
        }
    }
}

/// New resources for a container, as the kubelet asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Its CPU time; a part that is `None` stays as it is.
    pub cpu: CpuRequest,
    /// Whether the request carries a CFS quota, which would end the freedom of exclusive CPUs from it.
    pub sets_quota: bool,
    /// CPUs named in the request: a kubelet whose own CPU manager is active does that, or another plugin.
    pub cpus: Option<CpuSet>,
}

/// Where a container shall run. Never an empty set: the runtime would take that for "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    cpus: CpuSet,
    exclusive: bool,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

impl Pin {
    /// CPUs that this container alone uses; its CFS quota is lifted.
    pub fn exclusive(cpus: CpuSet) -> Option<Pin> {
        (!cpus.is_empty()).then_some(Pin { cpus, exclusive: true, mems: None, limit: None })
    }

    /// CPUs used together with others.
    pub fn shared(cpus: CpuSet) -> Option<Pin> {
        (!cpus.is_empty()).then_some(Pin { cpus, exclusive: false, mems: None, limit: None })
    }

    /// The same with memory on these NUMA nodes only. `None`, as no nodes at all, leaves memory as it is.
    pub fn with_mems(self, mems: Option<NodeSet>) -> Pin {
        Pin { mems: mems.filter(|mems| !mems.is_empty()), ..self }
    }

    /// The same with the CFS quota of this limit set. `None` leaves the quota as it is.
    pub fn with_limit(self, limit: Option<MilliCpu>) -> Pin {
        Pin { limit, ..self }
    }

    /// The same on other CPUs. `None` if these are none.
    pub(super) fn on(self, cpus: CpuSet) -> Option<Pin> {
        (!cpus.is_empty()).then_some(Pin { cpus, ..self })
    }

    /// The limit of a container that shares CPUs and had its quota lifted; `None` where nothing is said about a quota.
    pub fn limit(&self) -> Option<MilliCpu> {
        self.limit
    }

    /// The NUMA nodes for its memory, at least one; `None` where nothing is said about memory.
    pub fn mems(&self) -> Option<NodeSet> {
        self.mems
    }

    /// The CPUs, at least one.
    pub fn cpus(&self) -> CpuSet {
        self.cpus
    }

    /// Whether this container alone uses them. The CFS quota is lifted then, as the kubelet does.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }
}

/// A change for a container that exists already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The container.
    pub container: ContainerId,
    /// Where it shall run from now on.
    pub pin: Pin,
}

/// The ledger's answer to an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// For [`Event::Create`]: where the new container shall run; `None` leaves it alone.
    pub pin: Option<Pin>,
    /// For [`Event::Create`]: environment variables for the new container.
    pub environment: Vec<Variable>,
    /// Changes for containers that exist, in the order in which they must be made. For [`Event::Update`] the
    /// container's own change is among them.
    pub updates: Vec<Update>,
}
