//! Everything that changes the ledger, and its answers.

use super::claim::KubeletClaim;
use super::devices::PodDevices;
use super::model::{Container, ContainerId, CpuRequest, Pod, PodUid, SandboxId};
use super::moves::{Move, MovePlan};
use super::policy::{Mechanism, Stance};
use super::setting::{CpuSetting, Reach, Update};
use super::settings::Settings;
use core::time::Duration;
use cpuset::{CgroupPath, CpuSet};
use std::collections::BTreeSet;
use topology::Topology;

/// A call of the runtime, or anything else that the ledger has to know.
///
/// Each may come twice, late or never, and may name something unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A request, which the ledger can refuse.
    Admission(Admission),
    /// A fact, which it cannot.
    Event(Event),
}

impl From<Admission> for Call {
    fn from(admission: Admission) -> Call {
        Call::Admission(admission)
    }
}

impl From<Event> for Call {
    fn from(event: Event) -> Call {
        Call::Event(event)
    }
}

/// A request for CPUs. A refusal changes no container's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// A container is about to be created: the one moment at which it can be pinned before it runs.
    Create { pod: Pod, container: Container },
    Update {
        pod: Pod,
        /// The container as it was before.
        container: Container,
        /// What it is to have from now on.
        wanted: Wanted,
    },
}

/// Something that has happened, in the order in which the runtime reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All pods and containers that exist, after the runtime has connected. What is not listed no
    /// longer exists.
    Synchronize {
        pods: Vec<Pod>,
        /// The pods' containers that are created or running.
        containers: Vec<Container>,
    },
    RunPod(Pod),
    /// A pod is being resized in place; its budget is the new one. Other events go on naming the
    /// old one.
    UpdatePod(Pod),
    /// A container's process is about to run; its cgroup exists. The daemon reports it only where
    /// the kernel keeps exclusivity.
    Starting {
        pod: Pod,
        container: Container,
    },
    /// A container's process runs.
    Started {
        pod: Pod,
        container: Container,
    },
    /// A container's process has ended, or its creation failed.
    Stop(ContainerId),
    /// The runtime has removed an instance of a container, or could not create it. Its pod may go
    /// on, and a new instance of its name may come.
    Remove(ContainerId),
    StopPod(SandboxId),
    RemovePod(SandboxId),
    /// About half a minute has passed. A container that has ended and has not come back since the
    /// last one lends its CPUs.
    QuietPeriod,
    /// [`Ledger::next_notice`](super::Ledger::next_notice) is over: containers leave what was announced.
    NoticeOver,
    /// How long ago a fixed moment was. The ledger has no clock: nothing else moves its time, and it
    /// never goes back.
    Time(Duration),
    /// CPUs have gone offline or come online: the machine as it is now. CPUs of other programs'
    /// cpuset partitions are offline in it.
    Machine(Topology),
    Settings(Settings),
    /// This keeps exclusivity from now on.
    Mechanism(Mechanism),
    /// What the kubelet says of containers' devices.
    Devices(Vec<PodDevices>),
    /// No cgroup can bind the containers of these pods, and of no others: the runtime has to update
    /// them.
    Unbound(BTreeSet<PodUid>),
    /// These cgroups, and no others, are not relied on to keep what is in them in the pool.
    Distrusted(BTreeSet<CgroupPath>),
    /// The kubelet's own CPU manager has become active or inactive. With [`Stance::Assign`] the
    /// ledger takes over what it assigned.
    Kubelet {
        stance: Stance,
        /// What the kubelet has, or last had, assigned; empty if that is not known.
        claims: Vec<KubeletClaim>,
    },
    /// The answer to a request has gone out.
    Answered(Decision),
    /// Updates have gone out otherwise.
    Sent(Due),
    /// The daemon cannot answer with the decision on this container's creation. The container gets
    /// nothing, as if it had been refused.
    Revoked(ContainerId),
    /// A step of a plan: the container has other exclusive CPUs from now on. It changes nothing if
    /// it does not fit any more.
    Move(Move),
    /// A dry run would have carried out this plan.
    Suggested(MovePlan),
    /// Threads of this container have affinities of their own: it does not move.
    BoundItself(ContainerId),
    /// The kernel makes no partition for this container: groups have to keep others off its CPUs.
    PartitionRefused(ContainerId),
    /// These containers may have other CPUs than were sent: they are due again.
    Drifted(Vec<ContainerId>),
}

/// How updates reach containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// The answer to an update of this container. The runtime changes it after all others, wherever
    /// its own update stands.
    Update(ContainerId),
    /// Any other answer, or a call of the runtime.
    Runtime,
    /// The daemon writes them into the cgroups of running containers, and the next answer repeats
    /// them to the runtime. Some updates wait until others are written: the daemon asks until none
    /// is due.
    Groups,
}

/// The updates that are due on one channel, in the order in which they must be made. Once they have
/// gone out they return as [`Event::Sent`], or with the [`Decision`] that they are part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub updates: Vec<Update>,
    /// Containers that get the rest of their CPUs, or all, when others have left these.
    pub(super) waiting: Vec<ContainerId>,
    /// Whether the daemon writes them.
    pub(super) written: bool,
    /// Whether they are all that is due.
    pub(super) complete: bool,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.waiting.is_empty()
    }

    /// Takes out updates that must not go out yet: they stay due.
    pub fn hold_back(&mut self, held: impl Fn(&ContainerId) -> bool) {
        let all = self.updates.len();
        self.updates.retain(|update| !held(&update.container));
        self.waiting.retain(|id| !held(id));
        if self.updates.len() < all {
            self.complete = false;
        }
    }
}

impl Call {
    /// A short name that stays, for figures.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Admission(Admission::Create { .. }) => "create",
            Call::Admission(Admission::Update { .. }) => "update",
            Call::Event(event) => event.name(),
        }
    }
}

impl Event {
    /// Whether the runtime reads updates from the answer to its report of this event.
    pub fn answer_has_updates(&self) -> bool {
        matches!(self, Event::Synchronize { .. } | Event::Stop(_))
    }

    /// Whether it says only what has gone out, what time it is, or what decisions to come have to
    /// consider: none changes.
    pub fn decides_nothing(&self) -> bool {
        matches!(self, Event::Answered(_) | Event::Sent(_) | Event::Time(_) | Event::Devices(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Event::Synchronize { .. } => "synchronize",
            Event::RunPod(_) => "run_pod",
            Event::UpdatePod(_) => "update_pod",
            Event::Starting { .. } => "starting",
            Event::Started { .. } => "started",
            Event::Stop(_) => "stop",
            Event::Remove(_) => "remove",
            Event::StopPod(_) => "stop_pod",
            Event::RemovePod(_) => "remove_pod",
            Event::QuietPeriod => "quiet_period",
            Event::NoticeOver => "notice_over",
            Event::Time(_) => "time",
            Event::Kubelet { .. } => "kubelet",
            Event::Machine(_) => "machine",
            Event::Settings(_) => "settings",
            Event::Mechanism(_) => "mechanism",
            Event::Devices(_) => "devices",
            Event::Unbound(_) => "unbound",
            Event::Distrusted(_) => "distrusted",
            Event::Move(_) => "move",
            Event::Suggested(_) => "suggested",
            Event::BoundItself(_) => "bound_itself",
            Event::Answered(_) => "answered",
            Event::Sent(_) => "sent",
            Event::Revoked(_) => "revoked",
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

/// What the answer to a request says. It stands until an [`Event`] comes between it and its answer,
/// see [`Ledger::revised`](super::Ledger::revised).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The container of the request.
    pub container: ContainerId,
    /// For [`Admission::Create`].
    pub creation: Option<Creation>,
    /// Changes of containers that exist. For [`Admission::Update`] the container's own is among
    /// them.
    pub due: Due,
    pub outcome: Outcome,
}

impl Decision {
    /// Where the new container runs; `None` if the request creates none, or leaves it alone.
    pub fn setting(&self) -> Option<CpuSetting> {
        self.creation.as_ref()?.setting
    }
}

/// How a new container begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Where it runs; `None` leaves it alone.
    pub setting: Option<CpuSetting>,
    /// The CPUs that it is to use in the end, if it learns them (`exposeCpus`) and has exclusive ones.
    pub exposed: Option<Box<Reach>>,
}

/// What has changed since the outcome before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// [`Ledger::claims`](super::Ledger::claims): the state file is out of date.
    pub claims: bool,
    /// The [`Reach`] of any container: files that name it are out of date.
    pub reach: bool,
    /// Updates are due, see [`Ledger::owes`](super::Ledger::owes).
    pub due: bool,
    /// Exclusive CPUs have become free.
    pub freed: bool,
    /// Running containers were taken over.
    pub adopted: bool,
    /// Where all containers run may follow from something else now: the machine, the settings, the
    /// mechanism, or a stance in which the ledger assigns CPUs.
    pub rules: bool,
    /// A step of a plan was taken.
    pub moved: bool,
}
