//! Which container holds which CPUs: pods, containers, the shared pool.
//!
//! ```text
//!   event ──► life, adopt, change ──► books ──► desired - applied, in order ──► decision
//!                     │
//!                     └── request ──► engine (placement)
//! ```
//!
//! [`Ledger::handle`] takes an event and returns a decision; nothing else changes the ledger. The
//! ledger does no I/O, has no clock, and does not know the protocol. An
//! [engine](crate::placement) that the settings name chooses CPUs; the ledger decides which container gets them,
//! and when they are free again:
//!
//! * exclusive CPUs belong to a container's name in a pod, for the pod's life: a restarted
//!   container gets the same ones;
//! * all other containers run in the shared pool: the online CPUs that are exclusive to no
//!   container;
//! * the answers to create, update and stop carry the changes of other containers.

mod adjustment;
mod adopt;
mod books;
pub mod cgroup;
mod change;
mod claim;
mod desired;
pub mod environment;
pub mod event;
mod life;
pub mod model;
pub mod namespaces;
mod node;
pub mod note;
mod order;
mod policy;
mod request;
mod settings;
mod stance;
mod target;
pub mod terms;
#[cfg(test)]
mod tests;
mod view;
pub mod wish;

pub use adjustment::{Adjustment, Update};
pub use books::Phase;
pub use cgroup::CgroupPath;
pub use claim::Claim;
pub use event::{Channel, Decision, Event, Wanted};
pub use model::{
    Container, ContainerId, ContainerKind, CpuRequest, Device, MilliCpu, Pod, PodUid, Qos,
    SandboxId,
};
pub use namespaces::{Bounds, Namespaces};
pub use note::{MoveReason, Note, Subject, What};
pub use policy::{Mechanism, Policy};
pub use settings::Settings;
pub use stance::{KubeletClaim, Named, Stance};
pub use target::{Deserted, Holder, LeafPlace, PodPlace, Target};
pub use view::{ContainerView, View};

use crate::cpuset::CpuSet;
use crate::placement::Rejection;
use crate::topology::Topology;
use crate::wording;
use books::{Books, ContainerRef};
use node::{Node, Pool};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Owns the node's CPUs.
#[derive(Debug, Clone)]
pub struct Ledger {
    node: Node,
    books: Books,
    /// What the kubelet assigned, until the ledger takes it over.
    kubelet: Vec<KubeletClaim>,
    /// Computed from the books after each event.
    pool: Pool,
    view: OnceLock<Arc<View>>,
}

/// What carries the updates that follow from an event.
enum Carrier {
    /// Nothing: they stay due.
    None,
    /// The answer to the creation of the container of this name of a pod.
    Creation(PodUid, String),
    /// An answer or a call. The runtime changes the container that it is about, if any, after all
    /// others.
    Response(Option<ContainerId>),
    /// Writes into control groups.
    Groups,
}

impl Ledger {
    /// A ledger of a machine on which nothing runs yet.
    ///
    /// `remembered` are the claims of the last process. The next [`Event::Synchronize`] shows which
    /// of them still count; until then no container gets their CPUs.
    pub fn new(topology: Topology, settings: Settings, remembered: Vec<Claim>) -> Ledger {
        let (topology, settings) = (Arc::new(topology), Arc::new(settings));
        let (stance, mechanism) = (Stance::Assign, Mechanism::Runtime);
        let unbound = BTreeSet::new();
        let node = Node { topology, settings, stance, mechanism, unbound };
        let books = Books::new(remembered);
        let pool = node.pool(&books);
        Ledger { node, books, kubelet: Vec::new(), pool, view: OnceLock::new() }
    }

    /// Records an event and decides what follows from it.
    ///
    /// # Errors
    /// For [`Event::Create`] and [`Event::Update`], if the container cannot be placed as
    /// configured. No container's CPUs change then. The ledger never refuses other events.
    pub fn handle(&mut self, event: Event) -> Result<Decision, Rejection> {
        if self.node.stance == Stance::Observe {
            self.rehearse(&event);
        }
        self.view.take();
        let carrier = self.follow(event);
        self.pool = self.node.pool(&self.books);
        let decision = carrier.map(|carrier| self.decide(carrier));
        debug_assert_eq!(self.check(), Ok(()));
        decision
    }

    /// Changes the books by an event.
    fn follow(&mut self, event: Event) -> Result<Carrier, Rejection> {
        let Ledger { node, books, .. } = self;
        match event {
            Event::Synchronize { pods, containers } => {
                let kubelet = self.kubelet_claims();
                adopt::synchronize(&self.node, &mut self.books, kubelet, pods, containers);
                return Ok(Carrier::Response(None));
            }
            Event::RunPod(pod) => drop(life::identify(node, books, pod)),
            Event::UpdatePod(pod) => life::update_pod(node, books, pod),
            Event::Create { pod, container } => {
                let name = container.name.clone();
                return Ok(Carrier::Creation(life::create(node, books, pod, container)?, name));
            }
            Event::Starting { pod, container } => life::starting(node, books, pod, container),
            Event::Started { pod, container } => life::started(node, books, pod, container),
            Event::Update { pod, container, wanted } => {
                let updated = life::update(node, books, pod, container, wanted)?;
                return Ok(updated.map_or(Carrier::None, |id| Carrier::Response(Some(id))));
            }
            Event::Stop(id) => {
                life::stop(books, &id);
                return Ok(Carrier::Response(None));
            }
            Event::Remove(id) => life::remove(books, &id),
            Event::StopPod(sandbox) | Event::RemovePod(sandbox) => life::end_pod(books, &sandbox),
            Event::Lull => books.change_all(|_, pod| pod.lull()),
            Event::Machine(topology) => {
                let before = std::mem::replace(&mut node.topology, Arc::new(topology));
                change::hotplug(node, books, &before);
            }
            Event::Settings(settings) => {
                node.settings = Arc::new(settings);
                let kubelet = self.kubelet_claims();
                change::reconfigure(&self.node, &mut self.books, kubelet);
            }
            Event::Mechanism(mechanism) => {
                if std::mem::replace(&mut node.mechanism, mechanism) != mechanism {
                    change::enforce_by(books, mechanism);
                }
            }
            Event::Unbound(pods) => {
                node.unbound = pods;
                books.undeliver();
            }
            Event::Kubelet { stance, claims } => self.stand(stance, claims),
            Event::Deliver(Channel::Runtime) => return Ok(Carrier::Response(None)),
            Event::Deliver(Channel::Groups) => return Ok(Carrier::Groups),
            Event::Undelivered(updates) => books.undo(&updates),
            Event::Revoked { container, updates } => {
                life::revoke(books, &container);
                books.undo(&updates);
            }
            Event::PartitionRefused(id) => drop(books.change_found(&id, |entry| {
                if entry.enforced_by == Mechanism::Partitions {
                    entry.enforced_by = Mechanism::Groups;
                }
            })),
            Event::Drifted(ids) => ids.iter().for_each(|id| {
                books.change_found(id, |entry| entry.applied.invalidate());
            }),
        }
        Ok(Carrier::None)
    }

    /// The adjustments that `carrier` takes along.
    fn decide(&mut self, carrier: Carrier) -> Decision {
        let Ledger { node, books, pool, .. } = self;
        let updates = match carrier {
            Carrier::None => return Decision::default(),
            Carrier::Response(last) => desired::updates(node, books, pool, last.as_ref()),
            Carrier::Groups => desired::writes(node, books, pool),
            Carrier::Creation(..) if !node.assigns() => return Decision::default(),
            Carrier::Creation(uid, name) => {
                let found = books.container(&uid, &name);
                let adjustment = found.and_then(|ContainerRef { pod, entry, .. }| {
                    desired::desired(node, pool, pod, entry)
                });
                // The new container is not among the updates: the answer itself adjusts it.
                if let Some(adjustment) = &adjustment {
                    books.change_container(&uid, &name, |entry| entry.applied.record(adjustment));
                }
                let environment =
                    environment::environment(&node.topology, &node.settings, adjustment.as_ref());
                let updates = desired::updates(node, books, pool, None);
                return Decision { adjustment, environment, updates };
            }
        };
        Decision { updates, ..Decision::default() }
    }

    /// Takes a stance. At the change to [`Stance::Assign`] the ledger takes over what the kubelet
    /// assigned; if it knows nothing of the node yet, it waits for the first list of containers.
    fn stand(&mut self, stance: Stance, claims: Vec<KubeletClaim>) {
        let before = std::mem::replace(&mut self.node.stance, stance);
        self.kubelet = claims;
        if stance == Stance::Assign && before != stance && self.books.pods().len() > 0 {
            let kubelet = self.kubelet_claims();
            // What the kubelet or another plugin has set since has ended the claim.
            let set = |entry: &books::ContainerEntry| entry.claim.or(entry.applied.certain_cpus());
            adopt::adopt_anew(&self.node, &mut self.books, kubelet, set);
        }
    }

    /// What the kubelet assigned; kept for another take-over while the kubelet assigns CPUs.
    fn kubelet_claims(&mut self) -> Vec<KubeletClaim> {
        match self.node.stance {
            Stance::Assign => std::mem::take(&mut self.kubelet),
            Stance::Refuse | Stance::Observe => self.kubelet.clone(),
        }
    }

    /// Notes what the ledger would do with an event, without doing it.
    fn rehearse(&mut self, event: &Event) {
        use What::{Assigned, LeftShared, Moved, Refused, Resized};
        if !matches!(event, Event::Create { .. } | Event::Update { .. } | Event::Synchronize { .. })
        {
            return;
        }
        let mut trial = self.clone();
        trial.node.stance = Stance::Assign;
        trial.books.journal.take();
        // A refusal is among the notes.
        let _ = trial.handle(event.clone());
        let worth_noting = |note: &Note| {
            matches!(
                note.what,
                Assigned { .. } | Moved { .. } | Resized { .. } | LeftShared(_) | Refused { .. }
            )
        };
        let notes = trial.books.journal.take().into_iter().filter(worth_noting);
        self.books.journal.extend(notes.map(|note| Note { done: false, ..note }));
    }

    /// The notes for the log since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.books.journal.take()
    }
}

/// Reading.
impl Ledger {
    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.node.topology
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.node.settings
    }

    /// Whether CPUs are assigned here.
    pub fn stance(&self) -> Stance {
        self.node.stance
    }

    /// All claims, in order of pod uid and container name; last those of the last process whose
    /// containers no event has named yet.
    pub fn claims(&self) -> impl Iterator<Item = Claim> {
        self.books.claims()
    }

    /// Changes whenever [`Ledger::claims`] does.
    pub fn revision(&self) -> u64 {
        self.books.revision()
    }

    /// The shared pool: online CPUs that are exclusive to no container, without the reserved ones
    /// under strict reservation.
    pub fn pool(&self) -> CpuSet {
        self.pool.cpus
    }

    /// Where cgroups, or updates by the runtime, keep shared containers: the pool and the CPUs of
    /// partitions, or the reserved CPUs where the pool is empty.
    pub fn bound(&self) -> CpuSet {
        self.pool.bound
    }

    /// All CPUs that the machine has, online or not.
    pub fn possible(&self) -> CpuSet {
        self.node.possible()
    }

    /// What keeps others off exclusive CPUs.
    pub fn mechanism(&self) -> Mechanism {
        self.node.mechanism
    }

    /// All CPUs that are exclusive to a container, those that are lent out too.
    pub fn exclusive(&self) -> CpuSet {
        self.node.exclusive(&self.books)
    }

    /// CPUs that could become exclusive now.
    pub fn free(&self) -> CpuSet {
        self.node.free(&self.books)
    }

    /// Whether updates may be due.
    pub fn owes(&self) -> bool {
        self.node.assigns() && self.books.owes(&self.node.basis(&self.pool))
    }

    /// Whether containers wait for CPUs that others are about to leave.
    pub fn waits(&self) -> bool {
        self.books.waits()
    }

    /// Whether a container's exclusive CPUs are those that the instance before it had.
    pub fn inherits(&self, container: &ContainerId) -> bool {
        self.books.find(container).is_some_and(|found| found.entry.inherited)
    }

    /// Where all containers should run that exist and that the ledger decides about, in order of
    /// pod uid and container name.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.books.containers().filter_map(|found| self.target_of(found))
    }

    /// Where this container should run; `None` if there is no such container or it has ended.
    pub fn target(&self, id: &ContainerId) -> Option<Target> {
        self.target_of(self.books.find(id)?)
    }

    fn target_of(&self, found: ContainerRef<'_>) -> Option<Target> {
        target::target(&self.node, &self.books, &self.pool, found)
    }

    pub fn has_pod(&self, pod: &PodUid) -> bool {
        self.books.pod(pod).is_some()
    }

    /// The cgroups of all pods, in order of pod uid.
    pub fn places(&self) -> impl Iterator<Item = PodPlace<'_>> {
        self.books.pods().map(|(uid, pod)| target::place(uid, pod))
    }

    /// All containers with exclusive CPUs whose control group is known, in order of pod uid and
    /// container name.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.books.containers().filter_map(target::holder)
    }

    /// Pods whose end the daemon has to look for: the runtime reports no end of a pod without
    /// containers.
    pub fn deserted(&self) -> impl Iterator<Item = Deserted> {
        self.books.deserted().map(|pod| Deserted {
            sandbox: pod.pod.sandbox.clone(),
            group: pod.group(),
            removed: pod.is_empty(),
        })
    }

    /// An immutable view of the present state.
    pub fn view(&self) -> Arc<View> {
        let view = || Arc::new(View::of(&self.node, &self.books, &self.pool));
        Arc::clone(self.view.get_or_init(view))
    }

    /// Checks the invariants: no CPU is exclusive twice, none is reserved or offline, and every
    /// online CPU is shared, exclusive, or reserved.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.books.check()?;
        let (online, reserved) = (self.node.topology.online(), self.node.reserved());
        let mut held = CpuSet::EMPTY;
        for ContainerRef { uid, name, entry, .. } in self.books.containers() {
            let Some(claim) = entry.claim else { continue };
            if claim.is_empty() {
                return Err(format!("{uid}/{name} has an empty claim"));
            }
            let taken = self.node.taken(entry);
            if !taken.is_disjoint(&held) {
                let twice = wording::cpus(taken & held);
                return Err(format!("{twice} of {uid}/{name}: exclusive to another one too"));
            }
            if entry.is_alive() && !taken.is_disjoint(&self.pool.cpus) {
                return Err(format!("CPUs of {uid}/{name}, which runs, are shared"));
            }
            held |= taken;
        }
        if !held.is_disjoint(&reserved) {
            return Err(format!("exclusive, but reserved: {}", wording::cpus(held & reserved)));
        }
        if !held.is_subset(&online) {
            return Err(format!("exclusive, but offline: {}", wording::cpus(held - online)));
        }
        let remembered = self.node.remembered(&self.books);
        let everything = self.pool.cpus | held | ((reserved | remembered) & online);
        match everything == online {
            true => Ok(()),
            false => {
                let pool = self.pool.cpus;
                Err(format!("pool {pool} and exclusive {held} are not all online CPUs"))
            }
        }
    }
}
