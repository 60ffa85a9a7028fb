//! Who holds which CPUs: pods, containers, the shared pool.
//!
//! Events go in, decisions come out. The ledger does no I/O, has no clock, and does not know which protocol its events
//! came by. It asks [`placement`](crate::placement) which CPUs, and decides itself who gets them and when they are free
//! again:
//!
//! * exclusive CPUs belong to a container's name in a pod, for the pod's life: a restarted container gets the same ones;
//! * everything else runs in the shared pool: all online CPUs that are exclusive to nobody;
//! * what changes for containers that exist rides on the answers that can carry it (create, update, stop).

mod adopt;
pub mod cgroup;
mod conflicts;
mod containers;
mod entry;
pub mod environment;
pub mod event;
mod grant;
mod hands_off;
mod hotplug;
mod identity;
mod kept;
mod memory;
mod mems;
pub mod model;
pub mod namespaces;
pub mod note;
mod order;
mod pods;
mod pool;
mod reconfigure;
mod resize;
mod scene;
mod seen;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod trust;
pub mod wishes;

pub use cgroup::CgroupPath;
pub use event::{Decision, Event, Pin, Update, Wanted};
pub use hands_off::{KubeletClaim, Named, Stance};
pub use kept::{Deserted, Holder, Placed};
pub use model::{
    Container, ContainerId, ContainerKind, CpuRequest, Device, MilliCpu, Pod, PodUid, Qos,
    SandboxId,
};
pub use namespaces::{Bounds, Namespaces};
pub use note::{Note, Reason, Subject, What};
pub use scene::Scene;
pub use seen::{Seen, State};
pub use settings::{Exclusivity, Policy, Settings};

use crate::cpuset::CpuSet;
use crate::placement::Rejection;
use crate::topology::Topology;
use std::collections::BTreeMap;
use store::Pods;

/// Exclusive CPUs and whose they are: all that must outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The pod's uid.
    pub pod_uid: PodUid,
    /// The pod's namespace, for people.
    pub namespace: String,
    /// The pod's name, for people.
    pub pod: String,
    /// The container's name in the pod.
    pub container: String,
    /// The runtime's id of the last instance.
    pub id: ContainerId,
    /// The CPUs.
    pub cpus: CpuSet,
    /// Whether their SMT siblings are kept idle for it.
    pub isolated: bool,
    /// What it asked for when that was heard of last; nothing if that is not known. A runtime's list may tell less.
    pub cpu: CpuRequest,
}

impl Claim {
    fn is_of(&self, uid: &PodUid, container: &str) -> bool {
        &self.pod_uid == uid && self.container == container
    }
}

/// The one owner of the node's CPUs.
#[derive(Debug, Clone)]
pub struct Ledger {
    topology: Topology,
    settings: Settings,
    pods: Pods,
    /// Whose sandbox this is.
    sandboxes: BTreeMap<SandboxId, PodUid>,
    /// Which container this is the present instance of. Ids of replaced instances are not here: a late event for one
    /// must not touch its successor.
    ids: BTreeMap<ContainerId, (PodUid, String)>,
    /// Claims of an earlier life, for the next [`Event::Synchronize`].
    remembered: Vec<Claim>,
    /// Whether CPUs are assigned here, or by the kubelet's own CPU manager.
    stance: Stance,
    /// What the kubelet assigned, for the moment at which that is taken over.
    kubelet: Vec<KubeletClaim>,
    /// How many containers were moved, by reason.
    moves: BTreeMap<Reason, u64>,
    /// The shared pool, see [`Ledger::pool`].
    pool: CpuSet,
    /// What shared containers are told, see [`Ledger::shared_cpus`].
    open: CpuSet,
    /// Whether containers that exist may have to be told something.
    pending: bool,
    /// Whether containers wait for CPUs that others were told to leave.
    waits: bool,
    /// Counts changes of claims.
    revision: u64,
    notes: Vec<Note>,
}

impl Ledger {
    /// A ledger of a machine on which nothing runs yet.
    ///
    /// `remembered` are the claims of an earlier life; they count for nothing until an [`Event::Synchronize`] tells
    /// what really runs.
    pub fn new(topology: Topology, settings: Settings, remembered: Vec<Claim>) -> Ledger {
        let mut ledger = Ledger {
            topology,
            settings,
            pods: Pods::default(),
            sandboxes: BTreeMap::new(),
            ids: BTreeMap::new(),
            remembered,
            stance: Stance::Assign,
            kubelet: Vec::new(),
            moves: BTreeMap::new(),
            pool: CpuSet::EMPTY,
            open: CpuSet::EMPTY,
            pending: false,
            waits: false,
            revision: 0,
            notes: Vec::new(),
        };
        ledger.refresh_pool();
        ledger
    }

    /// Takes note of an event and decides what follows.
    ///
    /// # Errors
    /// For [`Event::Create`] and [`Event::Update`], if the container cannot be placed as configured. Nobody's CPUs have
    /// changed by it then. Other events are never refused.
    pub fn handle(&mut self, event: Event) -> Result<Decision, Rejection> {
        if self.stance == Stance::Observe {
            self.rehearse(event.clone());
        }
        let decision = match event {
            Event::Synchronize { pods, containers } => Ok(self.synchronize(pods, containers)),
            Event::RunPod(pod) => {
                self.upsert_pod(pod);
                Ok(Decision::default())
            }
            Event::UpdatePod(pod) => {
                self.update_pod(pod);
                Ok(Decision::default())
            }
            Event::Create { pod, container } => self.create(pod, container),
            Event::Starting { pod, container } => {
                self.starting(pod, container);
                Ok(Decision::default())
            }
            Event::Started { pod, container } => {
                self.started(pod, container);
                Ok(Decision::default())
            }
            Event::Update { pod, container, wanted } => self.update(pod, container, wanted),
            Event::Stop(id) => {
                self.stop(&id);
                Ok(Decision { updates: self.take_updates(), ..Decision::default() })
            }
            Event::Remove(id) => {
                self.remove(&id);
                Ok(Decision::default())
            }
            Event::StopPod(sandbox) | Event::RemovePod(sandbox) => {
                self.end_pod(&sandbox);
                Ok(Decision::default())
            }
            Event::Lull => {
                self.lull();
                Ok(Decision::default())
            }
            Event::Machine(topology) => {
                self.hotplug(topology);
                Ok(Decision::default())
            }
            Event::Settings(settings) => {
                self.reconfigure(settings);
                Ok(Decision::default())
            }
            Event::Kubelet { stance, claims } => {
                self.stand(stance, claims);
                Ok(Decision::default())
            }
        };
        debug_assert_eq!(self.check(), Ok(()));
        decision
    }

    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All exclusive CPUs and whose they are, in order of pod uid and container name; last those of an earlier life whose
    /// containers have not been told of yet.
    pub fn claims(&self) -> impl Iterator<Item = Claim> {
        let told_of = self.pods.values().flat_map(|entry| {
            entry.containers.iter().filter_map(|(name, container)| {
                Some(Claim {
                    pod_uid: entry.pod.uid.clone(),
                    namespace: entry.pod.namespace.clone(),
                    pod: entry.pod.name.clone(),
                    container: name.clone(),
                    id: container.id.clone(),
                    cpus: container.claim?,
                    isolated: container.isolated,
                    cpu: container.cpu,
                })
            })
        });
        told_of.chain(self.remembered.iter().cloned())
    }

    /// Changes whenever [`Ledger::claims`] does.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether CPUs are assigned here.
    pub fn stance(&self) -> Stance {
        self.stance
    }

    /// How many containers were moved to other CPUs while they ran, by reason.
    pub fn moves(&self) -> &BTreeMap<Reason, u64> {
        &self.moves
    }

    /// What was worth telling a person since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
