//! The inputs of the ledger, and its answers: the complete language between the edge and the core.

use super::claim::KubeletClaim;
use super::device::PodDevices;
use super::model::{Container, ContainerId, CpuRequest, Pod, PodUid, SandboxId};
use super::moves::{Move, MovePlan};
use super::policy::{Mechanism, Stance};
use super::setting::{CpuSetting, Reach, Update};
use super::settings::Settings;
use core::time::Duration;
use cpuset::{CgroupPath, CpuSet};
use placement::memory_manager::Amounts;
use std::collections::BTreeSet;
use topology::Topology;

/// An input of the ledger. Any may arrive twice, late or never, and may name an unknown object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A request, which the ledger can refuse.
    Admission(Admission),
    /// A fact, which the ledger cannot refuse.
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
    /// A container is about to be created: only this answer can pin it before it runs.
    Create { pod: Pod, container: Container },
    Update {
        pod: Pod,
        /// The container before the update.
        container: Container,
        requested: RequestedUpdate,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The runtime has connected, and lists all pods and containers. An object that is not listed
    /// no longer exists.
    Synchronize {
        pods: Vec<Pod>,
        /// The containers that are created or running.
        containers: Vec<Container>,
    },
    RunPod(Pod),
    /// A pod is resized in place; its budget here is the new one. All later events still have the
    /// old budget.
    UpdatePod(Pod),
    /// A container's process is about to run; its cgroup exists. The daemon reports this only where
    /// cgroups or partitions enforce exclusivity.
    Starting {
        pod: Pod,
        container: Container,
    },
    Started {
        pod: Pod,
        container: Container,
    },
    /// A container's process has ended, or its creation failed.
    Stop(ContainerId),
    /// The runtime has removed an instance of a container, or could not create it. Its pod may live
    /// on, with a new instance of the same name.
    Remove(ContainerId),
    StopPod(SandboxId),
    RemovePod(SandboxId),
    /// About half a minute has passed since the last one. A container that ended before the last
    /// one and has not been restarted lends its CPUs.
    QuietPeriod,
    /// The time of [`Ledger::next_notice`](super::Ledger::next_notice) has come: containers leave
    /// the CPUs that were announced.
    NoticeOver,
    /// The time since a fixed moment. The ledger has no clock: only this event advances its time,
    /// which never goes back.
    Time(Duration),
    /// CPUs have gone offline or come online: the machine as it is now. CPUs of other programs'
    /// cpuset partitions are offline in it.
    Machine(Topology),
    Settings(Settings),
    Mechanism(Mechanism),
    /// The kubelet's record of containers' devices.
    Devices(Vec<PodDevices>),
    /// The complete set of pods whose containers no cgroup above them keeps in the pool: the
    /// runtime has to update these containers.
    Unbound(BTreeSet<PodUid>),
    /// The complete set of cgroups that may not keep the containers below them in the pool.
    Distrusted(BTreeSet<CgroupPath>),
    /// The kubelet's own CPU manager has become active or inactive, or the configuration has another mode. With
    /// [`Stance::Assign`] the ledger takes over the kubelet's assignments.
    Stance {
        stance: Stance,
        /// The kubelet's present or last assignments; empty if they are not known.
        claims: Vec<KubeletClaim>,
    },
    Answered(Decision),
    /// Updates have been sent or written without a decision.
    Sent(Due),
    /// The daemon could not answer with a creation's decision: the container counts as refused.
    Revoked(ContainerId),
    /// A step of a plan: the container has other exclusive CPUs from now on. A step that no longer
    /// fits changes nothing.
    Move(Move),
    /// A dry run would have carried out this plan.
    Suggested(MovePlan),
    /// Threads of this container have set their own affinities, so it must not move.
    BoundItself(ContainerId),
    /// The kernel refuses a partition for this container: cgroups have to keep others off its CPUs.
    PartitionRefused(ContainerId),
    /// The CPUs of these containers may differ from those that were sent: they are due again.
    Drifted(Vec<ContainerId>),
}

/// How updates reach containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// The answer to an update of this container. The runtime applies the update of this container
    /// last, not in the order of the answer.
    Update(ContainerId),
    /// Any other answer, or a call to the runtime.
    Runtime,
    /// The daemon writes the cgroups of running containers, and the next answer repeats the updates
    /// to the runtime. Some updates wait until others are written, so the daemon asks until none is
    /// due.
    Groups,
}

/// The updates that are due on one channel, in the order in which they must be made. After they are
/// sent, they return to the ledger as [`Event::Sent`], or as part of a [`Decision`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub updates: Vec<Update>,
    /// Containers that get some of their CPUs only with a later message, when others have left
    /// them.
    pub(super) waiting: Vec<ContainerId>,
    /// For [`Channel::Groups`]: the daemon writes the updates.
    pub(super) written: bool,
    /// False after [`Due::hold_back`]: other updates are due, too.
    pub(super) complete: bool,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.waiting.is_empty()
    }

    /// Removes updates that must not be sent yet: they stay due.
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
    /// A stable name, for metrics.
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

    /// Whether the event changes no claim and no pool: it only records what was sent, the time, or
    /// facts for later decisions.
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
            Event::Stance { .. } => "stance",
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

/// The resources that the kubelet requests for an existing container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedUpdate {
    /// A part that is `None` does not change.
    pub cpu: CpuRequest,
    /// The kinds of memory that change.
    pub limits: Amounts,
    /// Whether the request has a CFS quota, which would throttle exclusive CPUs.
    pub sets_quota: bool,
    /// CPUs that a kubelet with an active CPU manager, or another plugin, named in the request.
    pub cpus: Option<CpuSet>,
}

/// The content of the answer to a request. If an [`Event`] comes before the answer is sent,
/// [`Ledger::revised`](super::Ledger::revised) updates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub container: ContainerId,
    /// For [`Admission::Create`] only.
    pub creation: Option<Creation>,
    /// Updates of existing containers, including the one that an [`Admission::Update`] is about.
    pub due: Due,
    pub outcome: Outcome,
    /// The ledger's changes at that time.
    pub(super) made_at: u64,
}

impl Decision {
    /// `None` if the request creates no container, or the ledger does not pin it.
    pub fn setting(&self) -> Option<CpuSetting> {
        self.creation.as_ref()?.setting.clone()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Where the new container runs; `None` does not pin it.
    pub setting: Option<CpuSetting>,
    /// The CPUs that it has once no update is due, for `exposeCPUs`; `None` without exclusive CPUs.
    pub exposed: Option<Box<Reach>>,
}

/// What has changed since the previous outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// [`Ledger::claims`](super::Ledger::claims), or another part of the state file, has changed.
    pub claims: bool,
    /// The [`Reach`] of a container may have changed: files that name its CPUs are out of date.
    pub reach: bool,
    /// Updates are due, see [`Ledger::owes`](super::Ledger::owes).
    pub due: bool,
    /// Exclusive CPUs have become free.
    pub freed: bool,
    /// The ledger has adopted running containers.
    pub adopted: bool,
    /// The machine, the settings or the mechanism may have changed, or the ledger assigns CPUs from
    /// now on: the targets of all containers may differ.
    pub rules: bool,
    pub moved: bool,
}
