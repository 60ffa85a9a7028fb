//! Which container holds which CPUs: pods, containers, the shared pool.
//!
//! ```text
//!   call ──► life, adopt, change ──► books ──► target - applied, in order ──► due
//!     ▲              │                                                          │
//!     │              └── request ──► engine (placement)                         │
//!     └──────────────────────────── answered, sent ◄────────────────────────────┘
//! ```
//!
//! [`Ledger::admit`] decides about a request, which it may refuse, and returns the [`Decision`] for
//! the answer. [`Ledger::apply`] records a fact and returns the [`Outcome`]: what has changed.
//! Nothing else changes the ledger. [`Ledger::due`] lists the settings that differ from the applied
//! ones; a setting counts as applied only after [`Event::Answered`] or [`Event::Sent`]. The ledger
//! does no I/O, has no clock, and does not know the protocol. The [engine](placement) that the
//! settings name chooses CPUs; the ledger decides which container gets them and when they are free
//! again:
//!
//! * exclusive CPUs belong to a container's name in a pod, for the pod's life: a restarted
//!   container gets the same ones;
//! * all other containers run in the shared pool: the online CPUs that are exclusive to no
//!   container and that the kernel was not booted to isolate; or in the own pool of their pod;
//! * the answers to create, update and stop carry the changes of other containers.
//!
//! ```
//! use ledger::{
//!     Admission, Container, ContainerId, CpuRequest, Event, Ledger, MilliCpu, Pod, PodUid, Policy,
//!     PoolKind, Qos, SandboxId, Settings,
//! };
//! use machines::presets::preset;
//!
//! let machine = preset("kep-4800").ok_or("no such machine")?.topology()?;
//! let settings = Settings { policy: Policy::Static, ..Settings::default() };
//! let mut ledger = Ledger::new(machine, settings, Vec::new());
//!
//! let pod = Pod {
//!     sandbox: SandboxId("sandbox".into()),
//!     uid: PodUid("uid".into()),
//!     namespace: "default".into(),
//!     name: "db".into(),
//!     qos: Qos::Guaranteed,
//!     pool: PoolKind::General,
//!     budget: None,
//!     limits: Default::default(),
//!     own_resources: None,
//!     annotations: Default::default(),
//!     cgroup: None,
//! };
//! ledger.apply(Event::RunPod(pod.clone()));
//! let four = Some(MilliCpu(4000));
//! let cpu = CpuRequest { request: four, limit: four };
//! let id = ContainerId("id".into());
//! let container = Container::new(id, pod.sandbox.clone(), "main", cpu);
//! let decision = ledger.admit(Admission::Create { pod, container })?;
//! let setting = decision.setting().ok_or("nothing to set")?;
//! assert_eq!(setting.cpus().to_string(), "0-3");
//! // The runtime has the answer now.
//! ledger.apply(Event::Answered(decision));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adopt;
pub mod annotations;
mod books;
mod change;
mod claim;
mod device;
mod devices;
mod due;
pub mod environment;
pub mod event;
mod grant;
mod identity;
mod life;
mod memory;
pub mod model;
mod moves;
pub mod namespaces;
mod node;
pub mod note;
mod order;
mod own_pool;
pub mod pattern;
pub mod pod_option;
mod policy;
mod preview;
mod queries;
mod quieting;
mod rebalance;
mod request;
mod resize;
mod setting;
mod settings;
mod shadow;
mod target;
pub mod terms;
#[cfg(test)]
mod tests;
mod view;

pub use annotations::Annotations;
pub use books::Phase;
pub use claim::{Claim, KubeletClaim, MemoryClaim, Named};
pub use device::{Device, DeviceSource, GivenDevices, MAX_DEVICES, PodDevices};
pub use event::{
    Admission, Call, Channel, Creation, Decision, Due, Event, Outcome, RequestedUpdate,
};
pub use model::{
    Container, ContainerId, ContainerKind, CpuRequest, DeviceRef, LeftAlone, MilliCpu, Pod, PodUid,
    PoolKind, Qos, SandboxId,
};
pub use moves::{Move, MoveOutcome, MovePlan, MoveTotals, NoPlan, Occasion, StayReason};
pub use namespaces::{Bounds, KnobBounds, Namespaces};
pub use note::{MoveReason, Note, Optional, Subject, What};
pub use placement::pod_options::Margin;
pub use policy::{Mechanism, Policy, Stance};
pub use preview::Preview;
pub use setting::{CpuSetting, Reach, Update};
pub use settings::{Exposure, PodLevelResources, Rebalance, RebalanceMode, Settings};
pub use target::{Deserted, Holder, LeafPlace, PodPlace, Target};
pub use view::{ContainerCounts, ContainerView, CpuFigures, Figures, MoveFigures, View};

use books::{Books, ContainerEntry, ContainerRef};
use core::time::Duration;
use cpuset::CpuSet;
use due::Targets;
use node::{Node, Pool};
use placement::Rejection;
use shadow::Shadow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use topology::Topology;

#[derive(Debug, Clone)]
pub struct Ledger {
    node: Node,
    books: Books,
    /// The kubelet's assignments that the ledger has yet to take over.
    kubelet: Vec<KubeletClaim>,
    /// Computed from the books after each event.
    pool: Pool,
    reported: Reported,
    /// With [`Stance::Observe`] only.
    shadow: Option<Shadow>,
    view: OnceLock<Arc<View>>,
    /// See [`Ledger::owes`]; empty after a change of the books.
    owes: OnceLock<bool>,
    /// How often the books or the node have changed.
    changes: u64,
}

/// The state at the last [`Outcome`]. A refused request has no outcome: the next one includes its
/// changes.
#[derive(Debug, Clone)]
struct Reported {
    held: Vec<Claim>,
    remembered: Vec<Claim>,
    memory: Vec<MemoryClaim>,
    left_alone: Vec<(ContainerId, LeftAlone)>,
    pool: Pool,
}

impl Reported {
    fn of(books: &Books, pool: &Pool) -> Reported {
        Reported {
            held: books.held_claims().collect(),
            remembered: books.remembered().to_vec(),
            memory: books.memory_claims().collect(),
            left_alone: books.left_alone().map(|(id, why)| (id.clone(), why)).collect(),
            pool: pool.clone(),
        }
    }

    fn exclusive(&self) -> CpuSet {
        self.held.iter().map(|claim| claim.cpus).collect()
    }

    /// Adds to an outcome what has changed since the last one. After an adoption, equal claims also
    /// count as changed: the state file may be older.
    fn complete(&mut self, outcome: Outcome, books: &Books, pool: &Pool) -> Outcome {
        let same = books.holds(&self.held)
            && books.remembered() == self.remembered
            && books.has_memory_claims(&self.memory)
            && books.left_alone().eq(self.left_alone.iter().map(|(id, why)| (id, *why)));
        let claims = outcome.claims || !same;
        let reach = claims || self.pool != *pool;
        let mut freed = false;
        if reach {
            let before = std::mem::replace(self, Reported::of(books, pool));
            freed = !before.exclusive().is_subset(&self.exclusive());
        }
        Outcome { claims, reach, freed, ..outcome }
    }
}

impl Ledger {
    /// A ledger of a machine on which nothing runs yet.
    ///
    /// `remembered` are the claims in the state file of the previous process. The next
    /// [`Event::Synchronize`] shows which of them are still valid; until then no other container
    /// gets their CPUs.
    pub fn new(topology: Topology, settings: Settings, remembered: Vec<Claim>) -> Ledger {
        let node = Node {
            topology: Arc::new(topology),
            settings: Arc::new(settings),
            stance: Stance::Assign,
            mechanism: Mechanism::Runtime,
            unbound: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            now: Duration::ZERO,
        };
        let books = Books::new(remembered);
        let pool = node.pool(&books);
        let reported = Reported::of(&books, &pool);
        Ledger {
            node,
            books,
            kubelet: Vec::new(),
            pool,
            reported,
            shadow: None,
            view: OnceLock::new(),
            owes: OnceLock::new(),
            changes: 0,
        }
    }

    /// This ledger with the memory that the state file of the previous process has, to which the same
    /// applies as to its claims. For a new ledger.
    #[must_use]
    pub fn with_memory(mut self, remembered: Vec<MemoryClaim>) -> Ledger {
        self.books.remember_memory(remembered);
        self.reported = Reported::of(&self.books, &self.pool);
        self
    }

    /// This ledger with the containers that the previous process left alone, as it has seen that another program
    /// set their CPUs: the runtime's list does not say that. For a new ledger.
    #[must_use]
    pub fn with_left_alone(mut self, containers: HashMap<ContainerId, LeftAlone>) -> Ledger {
        self.books.remember_left_alone(containers);
        self.reported = Reported::of(&self.books, &self.pool);
        self
    }

    /// This ledger of a node on which no process has assigned CPUs before. For a new ledger.
    #[must_use]
    pub fn installing(mut self) -> Ledger {
        self.books.journal.installing = true;
        self
    }

    /// Decides about a request. The decision counts as applied once the answer has been sent
    /// ([`Event::Answered`]).
    ///
    /// # Errors
    /// If the container cannot be placed as configured. No container's CPUs change then.
    pub fn admit(&mut self, admission: Admission) -> Result<Decision, Rejection> {
        self.follow_in_shadow(|| Call::Admission(admission.clone()));
        let Ledger { node, books, .. } = self;
        match admission {
            Admission::Create { pod, container } => {
                let created = life::create(node, books, pod, &container);
                // Also after a refusal: the request may have entered its pod and recalled a claim.
                self.recompute();
                let uid = created?;
                let outcome = self.report(Outcome::default());
                let creation = self.creation(self.books.container(&uid, &container.name));
                Ok(self.decision(container.id, Some(creation), outcome))
            }
            Admission::Update { pod, container, requested } => {
                let id = container.id.clone();
                let updated = life::update(node, books, pod, container, requested);
                self.recompute();
                updated?;
                let outcome = self.report(Outcome::default());
                Ok(self.decision(id, None, outcome))
            }
        }
    }

    /// Updates a decision to the present state: events may have come between it and its answer.
    pub fn revised(&self, decision: Decision) -> Decision {
        if decision.made_at == self.changes {
            return decision;
        }
        let Decision { container, creation, outcome, .. } = decision;
        let creation = creation.map(|_| self.creation(self.books.find(&container)));
        self.decision(container, creation, outcome)
    }

    fn decision(
        &self,
        container: ContainerId,
        creation: Option<Creation>,
        outcome: Outcome,
    ) -> Decision {
        let due = match creation {
            Some(_) => self.due(&Channel::Runtime),
            None => self.due(&Channel::Update(container.clone())),
        };
        let outcome = Outcome { due: !due.is_empty() || self.waits(), ..outcome };
        Decision { container, creation, due, outcome, made_at: self.changes }
    }

    fn creation(&self, container: Option<ContainerRef<'_>>) -> Creation {
        let container = if self.node.assigns() { container } else { None };
        let Some(container) = container else {
            return Creation { setting: None, exposed: None };
        };
        let exposed = if self.node.settings.expose_cpus == Exposure::None {
            None
        } else {
            target::reach(&self.node, &self.pool, container).map(Box::new)
        };
        let targets = Targets::of(&self.node, &self.pool, container.pod);
        Creation { setting: targets.setting(container.entry), exposed }
    }

    pub fn apply(&mut self, event: Event) -> Outcome {
        self.follow_in_shadow(|| Call::Event(event.clone()));
        let same_pool = event.decides_nothing();
        let passes_time = matches!(event, Event::Time(_));
        let mut outcome = Outcome::default();
        let Ledger { node, books, .. } = self;
        match event {
            Event::Synchronize { pods, containers } => {
                let kubelet = self.kubelet_claims();
                adopt::synchronize(&self.node, &mut self.books, kubelet, pods, containers);
                self.books.journal.installing &= !self.node.assigns();
                outcome.adopted = true;
                outcome.claims = true;
            }
            Event::RunPod(pod) => drop(identity::identify(node, books, pod)),
            Event::UpdatePod(pod) => resize::update_pod(node, books, pod),
            Event::Starting { pod, container } => life::starting(node, books, pod, container),
            Event::Started { pod, container } => life::started(node, books, pod, container),
            Event::Stop(id) => life::stop(node, books, &id),
            Event::Remove(id) => life::remove(node, books, &id),
            Event::StopPod(sandbox) | Event::RemovePod(sandbox) => life::end_pod(books, &sandbox),
            Event::Time(now) => node.now = node.now.max(now),
            Event::NoticeOver => resize::end_notices(node, books),
            Event::QuietPeriod => books.pods_mut().for_each(|(_, pod)| pod.quiet_period()),
            Event::Machine(topology) => {
                let before = std::mem::replace(&mut node.topology, Arc::new(topology));
                devices::locate(node, books);
                change::hotplug(node, books, &before);
                outcome.rules = true;
            }
            Event::Settings(settings) => {
                node.settings = Arc::new(settings);
                let kubelet = self.kubelet_claims();
                change::reconfigure(&self.node, &mut self.books, kubelet);
                outcome.rules = true;
                outcome.claims = true;
            }
            Event::Mechanism(mechanism) => {
                if std::mem::replace(&mut node.mechanism, mechanism) != mechanism {
                    change::enforce_by(books, mechanism);
                }
                outcome.rules = true;
            }
            Event::Devices(pods) => devices::record(node, books, pods),
            Event::Unbound(pods) => node.unbound = pods,
            Event::Distrusted(groups) => node.distrusted = groups,
            Event::Stance { stance, claims } => {
                outcome.claims = self.set_stance(stance, claims);
                outcome.adopted = self.node.assigns();
                outcome.rules = self.node.assigns();
            }
            Event::Answered(Decision { container, creation, due, .. }) => {
                if let Some(Creation { setting, .. }) = creation {
                    life::created(books, &container, setting.as_ref());
                }
                due::record(books, &due);
            }
            Event::Sent(due) => due::record(books, &due),
            Event::Revoked(id) => life::revoke(books, &id),
            Event::Move(step) => outcome.moved = rebalance::take(node, books, &step),
            Event::Suggested(plan) => rebalance::suggest(node, books, &plan),
            Event::BoundItself(id) => {
                books.change_by_id(&id, |entry| entry.fix_by_own_affinity());
            }
            Event::PartitionRefused(id) => {
                books.change_by_id(&id, |entry| {
                    // The mechanism may have changed since the kernel was asked.
                    if entry.enforced_by == Mechanism::Partitions {
                        entry.enforced_by = Mechanism::Groups;
                    }
                });
            }
            Event::Drifted(ids) => ids.iter().for_each(|id| {
                books.change_by_id(id, |entry| entry.applied.invalidate());
            }),
        }
        if same_pool {
            self.view.take();
            if !passes_time {
                self.owes.take();
                self.changes += 1;
            }
            debug_assert_eq!(self.check(), Ok(()));
        } else {
            self.recompute();
            outcome = self.report(outcome);
        }
        Outcome { due: self.owes(), ..outcome }
    }

    /// Completes an outcome, except for `due`.
    fn report(&mut self, outcome: Outcome) -> Outcome {
        self.reported.complete(outcome, &self.books, &self.pool)
    }

    fn recompute(&mut self) {
        self.view.take();
        self.owes.take();
        self.changes += 1;
        let pool = self.node.pool(&self.books);
        // Containers have the sets of an equal one.
        if self.pool != pool {
            self.pool = pool;
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// The best moves of running containers for one that is about to be created. The caller carries
    /// out the steps one after the other ([`Event::Move`]) before it asks for the creation.
    ///
    /// # Errors
    /// Why no container moves.
    pub fn plan_arrival(&self, creation: &Admission) -> Result<MovePlan, NoPlan> {
        rebalance::for_arrival(&self.node, &self.books, creation)
    }

    /// The best moves when no container is about to be created: after CPUs have become free, or
    /// after a container's `minStay`.
    ///
    /// # Errors
    /// Why no container moves.
    pub fn plan_departure(&self) -> Result<MovePlan, NoPlan> {
        rebalance::for_departure(&self.node, &self.books)
    }

    /// The updates that are due on this channel. They stay due until they are [sent](Event::Sent).
    pub fn due(&self, channel: &Channel) -> Due {
        due::due(&self.node, &self.books, &self.pool, channel)
    }

    /// Returns whether the ledger has adopted the node. At the change to [`Stance::Assign`] it
    /// takes over the kubelet's assignments; before the runtime's first list of containers it has
    /// nothing to adopt, and that list adopts them.
    fn set_stance(&mut self, stance: Stance, claims: Vec<KubeletClaim>) -> bool {
        let before = std::mem::replace(&mut self.node.stance, stance);
        self.kubelet = claims;
        if before == stance {
            return false;
        }
        self.shadow = None;
        if stance == Stance::Observe {
            let mut shadow = Shadow::of(self, self.kubelet.clone());
            self.books.journal.extend(shadow.take_notes());
            self.shadow = Some(shadow);
        }
        if stance == Stance::Refuse || !self.kubelet.is_empty() {
            self.books.leave_only_workloads_alone();
        }
        let adopts = stance == Stance::Assign && self.books.pods().len() > 0;
        if adopts {
            let kubelet = self.kubelet_claims();
            // CPUs that the kubelet or another plugin set meanwhile have ended the claim.
            let set = |entry: &ContainerEntry| entry.claim().or(entry.applied.certain_cpus());
            adopt::readopt(&self.node, &mut self.books, kubelet, set);
            self.books.journal.installing = false;
        }
        adopts
    }

    /// The kubelet's assignments. They are needed again at the next adoption while the kubelet
    /// assigns CPUs, and only once after that.
    fn kubelet_claims(&mut self) -> Vec<KubeletClaim> {
        match self.node.stance {
            Stance::Assign => std::mem::take(&mut self.kubelet),
            Stance::Refuse | Stance::Observe => self.kubelet.clone(),
        }
    }

    /// With [`Stance::Observe`], notes what the ledger would do.
    fn follow_in_shadow(&mut self, call: impl FnOnce() -> Call) {
        if let Some(shadow) = &mut self.shadow {
            shadow.follow(call());
            self.books.journal.extend(shadow.take_notes());
        }
    }

    /// Returns and removes the notes for the log.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.books.journal.take()
    }
}

impl Ledger {
    /// Checks the invariants: no CPU is exclusive twice, to containers or to a pod, none is
    /// reserved or offline, and every online CPU is shared, exclusive, or reserved.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.books.check()?;
        let (online, reserved) = (self.node.topology.online(), self.node.reserved());
        let mut held = CpuSet::EMPTY;
        for ContainerRef { uid, name, entry, .. } in self.books.containers() {
            let Some(claim) = entry.claim() else { continue };
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
        for (uid, pod) in self.books.pods() {
            let own_pool = pod.own_pool();
            if !own_pool.is_disjoint(&held) {
                let twice = wording::cpus(own_pool & held);
                return Err(format!(
                    "{twice} of the own pool of {uid}: exclusive to another one too"
                ));
            }
            if !own_pool.is_disjoint(&self.pool.cpus) {
                return Err(format!("CPUs of the own pool of {uid} are shared by all pods"));
            }
            held |= own_pool;
        }
        if !held.is_disjoint(&reserved) {
            return Err(format!("exclusive, but reserved: {}", wording::cpus(held & reserved)));
        }
        if !held.is_subset(&online) {
            return Err(format!("exclusive, but offline: {}", wording::cpus(held - online)));
        }
        let remembered = self.node.remembered(&self.books);
        let isolated = self.node.isolated();
        if !self.pool.cpus.is_disjoint(&isolated) {
            return Err(format!("shared, but isolated: {}", wording::cpus(isolated)));
        }
        let everything = self.pool.cpus | held | ((reserved | remembered | isolated) & online);
        if everything != online {
            let pool = self.pool.cpus;
            return Err(format!("pool {pool} and exclusive {held} are not all online CPUs"));
        }
        Ok(())
    }
}
