//! The sums: the shared pool, what is free, what must hold.

use super::entry::{Certainty, Entry, Life};
use super::event::{Pin, Update};
use super::hands_off::Stance;
use super::model::ContainerId;
use super::order::{Change, Steps, in_order};
use super::pods::PodEntry;
use super::{Exclusivity, Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::placement::reserve::whole_cores;
use crate::spelling;

impl Ledger {
    /// The shared pool: online CPUs that are exclusive to nobody, without the reserved ones under strict reservation.
    ///
    /// CPUs of a container that has ended are in it while they are lent out, see `Entry::is_lent`.
    pub fn pool(&self) -> CpuSet {
        self.pool
    }

    /// All CPUs that are exclusive to somebody, those that are lent out too.
    pub fn exclusive(&self) -> CpuSet {
        let isolated = self.pods.isolated();
        isolated.fold(self.pods.held().all, |all, (entry, _)| all | self.taken(entry))
    }

    /// CPUs that are nobody else's because of this container: its own, and siblings that stay idle for it.
    pub(super) fn taken(&self, entry: &Entry) -> CpuSet {
        match entry.claim {
            Some(claim) if entry.isolated => self.with_idle(&claim, true),
            claim => claim.unwrap_or_default(),
        }
    }

    /// These CPUs, with their SMT siblings if these are to stay idle.
    pub(super) fn with_idle(&self, cpus: &CpuSet, isolated: bool) -> CpuSet {
        if !isolated {
            return *cpus;
        }
        (whole_cores(&self.topology, cpus) - self.settings.placement.reserved) | *cpus
    }

    /// CPUs that could become exclusive now. Should all reserved ones be offline, another one takes their place.
    pub fn free(&self) -> CpuSet {
        let (free, reserved) = (self.unclaimed(), self.settings.placement.reserved);
        let gone = reserved.is_disjoint(&self.topology.online()) && !reserved.is_empty();
        if gone { free - free.lowest(1) } else { free }
    }

    /// CPUs that a container may keep which has them already, and that nobody else has.
    pub(super) fn unclaimed(&self) -> CpuSet {
        let reserved = self.settings.placement.reserved;
        self.topology.online() - reserved - self.exclusive() - self.waiting()
    }

    /// CPUs of an earlier life whose containers have not been reported yet. Nobody gets them: some runtimes never tell a
    /// plugin that they launched what runs already.
    fn waiting(&self) -> CpuSet {
        self.remembered.iter().map(|claim| self.with_idle(&claim.cpus, claim.isolated)).collect()
    }

    /// What a shared container is told.
    ///
    /// CPUs that the kernel keeps for somebody are among them: it takes them off everybody by itself, and gives them back
    /// by itself. So this never changes where the kernel keeps all of them.
    ///
    /// With strict reservation the pool can be empty. A container without a cpuset would then run on the exclusive CPUs
    /// of others (the kubelet lets it, kubernetes/kubernetes#141196); the reserved ones are the lesser evil. Should these
    /// be offline, and all others exclusive, then it is empty, and shared containers are left where they are.
    pub fn shared_cpus(&self) -> CpuSet {
        let reserved = self.settings.placement.reserved & self.topology.online();
        if self.open.is_empty() { reserved } else { self.open }
    }

    /// What a container must be told, given what it was told before.
    ///
    /// Under policy none a container that may run everywhere is left as it is. The kernel makes no partition of CPUs that
    /// a group beside it names, and unmakes one when they are written there: so the other containers of a pod do without
    /// the CPUs that the kernel keeps for one of them, though they could not run there anyway.
    pub(super) fn wish(&self, pod: &PodEntry, entry: &Entry) -> Option<Pin> {
        let pin = match entry.claim {
            Some(claim) => Pin::exclusive(claim),
            None => {
                let mut cpus = self.shared_cpus();
                if pod.counted.has_exclusive() {
                    let beside = cpus - pod.kept_by_kernel();
                    cpus = if beside.is_empty() { cpus } else { beside };
                }
                let unset = entry.applied.is_none();
                let free = self.settings.policy == Policy::None && cpus == self.topology.online();
                let limit = entry.cpu.limit.filter(|_| entry.lifted);
                let pin = Pin::shared(cpus).map(|pin| pin.with_limit(limit));
                pin.filter(|_| !(unset && free))
            }
        };
        pin.map(|pin| pin.with_mems(self.mems_of(entry)))
    }

    /// Recomputes the pool after claims or their use have changed.
    pub(super) fn refresh_pool(&mut self) {
        let mut pool = self.topology.online() - (self.waiting() - self.settings.placement.reserved);
        if self.settings.placement.options.strict_cpu_reservation {
            pool -= self.settings.placement.reserved;
        }
        let mut open = pool - self.pods.held().by_runtime;
        pool -= self.pods.held().used;
        for (entry, _) in self.pods.isolated().filter(|(_, lent)| !lent) {
            // The kernel keeps others off the CPUs that the container runs on, and off no others.
            let idle = self.taken(entry) - entry.claim.unwrap_or_default();
            pool -= idle;
            open -= idle;
        }
        self.pool = pool;
        if open != self.open {
            self.open = open;
            self.pending = true;
        }
    }

    /// Whether something may be left to tell, with the next answer that can carry it.
    pub fn owes(&self) -> bool {
        self.pending
    }

    /// Everything that containers which exist must be told now, each thing once, in the order in which it must be done.
    ///
    /// Who takes them has to see that the runtime hears them, or say that it did not: [`unheard`](Self::unheard).
    pub fn take_updates(&mut self) -> Vec<Update> {
        self.take_updates_with(None)
    }

    /// The same for the answer to a change of this container, which the runtime makes after all others.
    pub(super) fn take_updates_with(&mut self, last: Option<&ContainerId>) -> Vec<Update> {
        if self.stance != Stance::Assign || !std::mem::take(&mut self.pending) {
            return Vec::new();
        }
        let due = |entry: &Entry, pin: &Pin| !entry.is_on(&pin.cpus(), Certainty::Told);
        let steps = self.steps(due, last);
        self.carry(steps, Entry::hear_again)
    }

    /// What has to be written into the groups of running containers, where no answer can carry it, in the order in which it
    /// must be done. It stays to be told with the next answer.
    ///
    /// Who takes them has to write them, or say which could not be written: [`unheard`](Self::unheard). Until there are none
    /// any more: some wait until others are written.
    pub fn take_writes(&mut self) -> Vec<Update> {
        if self.stance != Stance::Assign || !self.pending {
            return Vec::new();
        }
        // What a partition is the kernel's way sees to.
        let kept =
            |entry: &Entry, pin: &Pin| pin.is_exclusive() && entry.kept_by == Exclusivity::Kernel;
        let due = |entry: &Entry, pin: &Pin| {
            entry.life == Life::Running
                && !kept(entry, pin)
                && !entry.is_on(&pin.cpus(), Certainty::Written)
        };
        let steps = self.steps(due, None);
        let writes = self.carry(steps, |entry, pin| entry.apply(pin, Certainty::Written));
        self.pending = true;
        writes
    }

    /// Whether containers wait for CPUs that others were told to leave.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The steps to where containers shall run, of those that have to be told.
    fn steps(
        &self,
        due: impl Fn(&Entry, &Pin) -> bool + Copy,
        last: Option<&ContainerId>,
    ) -> Steps {
        let mut updates = Vec::new();
        let (mut leave, mut exclusive) = (false, 0);
        for change in self.changes(due) {
            leave |= change.leaves().is_some();
            exclusive += usize::from(change.pin.is_exclusive());
            updates.push(change.update());
        }
        // Mostly a new container's CPUs are taken from those that share: these leave, and nothing is in the way.
        if leave || exclusive > 1 {
            return in_order(self.changes(due).collect(), last);
        }
        if exclusive > 0 {
            updates.sort_by_key(|update| update.pin.is_exclusive());
        }
        Steps { updates, waiting: Vec::new() }
    }

    fn changes(&self, due: impl Fn(&Entry, &Pin) -> bool) -> impl Iterator<Item = Change<'_>> {
        let entries = self
            .pods
            .values()
            .flat_map(|pod| pod.containers.values().map(move |entry| (pod, entry)));
        entries
            .filter(|(_, entry)| entry.life != Life::Stopped)
            .filter_map(|(pod, entry)| Some(Change { entry, pin: self.wish(pod, entry)? }))
            .filter(move |Change { entry, pin }| due(entry, pin))
    }

    /// Takes note of what is told or written now, and what waits.
    fn carry(&mut self, steps: Steps, note: impl Fn(&mut Entry, &Pin)) -> Vec<Update> {
        let Steps { updates, waiting } = steps;
        self.waits = !waiting.is_empty();
        self.pending |= self.waits;
        for Update { container, pin } in &updates {
            let Some((uid, name)) = self.ids.get(container) else { continue };
            self.pods.change_entry(uid, name, |entry| {
                note(entry, pin);
                entry.waits = waiting.contains(container);
            });
        }
        updates
    }

    pub(super) fn mark_told(&mut self, update: &Update) {
        let Some((uid, name)) = self.ids.get(&update.container) else { return };
        self.pods.change_entry(uid, name, |entry| entry.hear_again(&update.pin));
    }

    /// The runtime has not heard these changes: they go along with the next answer that can carry them.
    pub fn unheard(&mut self, updates: &[Update]) {
        for update in updates {
            let Some((uid, name)) = self.ids.get(&update.container) else { continue };
            self.pods.change_entry(uid, name, |entry| {
                if entry.applied.is_some_and(|applied| applied.cpus == update.pin.cpus()) {
                    entry.unapply();
                    self.pending = true;
                }
            });
        }
    }

    /// A creation was decided but cannot be answered with: the container gets nothing, as if it had been refused.
    pub fn revoke(&mut self, container: &ContainerId, updates: &[Update]) {
        let Some((uid, name)) = self.ids.remove(container) else { return };
        if let Some(mut pod) = self.pods.change(&uid) {
            pod.containers.remove(&name);
            pod.refused = true;
            pod.affinity = None;
        }
        self.revision += 1;
        self.unheard(updates);
        self.refresh_pool();
    }

    /// Whether a container's exclusive CPUs are those that the instance before it had.
    pub fn inherits(&self, container: &ContainerId) -> bool {
        let entry = self.ids.get(container).and_then(|(uid, name)| self.entry(uid, name));
        entry.is_some_and(|entry| entry.inherited)
    }

    /// How many pods there are.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// How many containers exist: those with exclusive CPUs, and the others.
    pub fn container_counts(&self) -> (usize, usize) {
        let alive = || self.entries().filter(|(_, _, entry)| entry.life != Life::Stopped);
        let exclusive = alive().filter(|(_, _, entry)| entry.claim.is_some()).count();
        (exclusive, alive().count() - exclusive)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&super::PodUid, &String, &Entry)> {
        self.pods.iter().flat_map(|(uid, pod)| {
            pod.containers.iter().map(move |(name, entry)| (uid, name, entry))
        })
    }

    /// Whether what must always hold does: no CPU exclusive twice, none reserved or offline, and every online CPU
    /// either shared, exclusive, or reserved.
    ///
    /// # Errors
    /// What does not hold, for the message of a failed assertion.
    pub fn check(&self) -> Result<(), String> {
        self.pods.check()?;
        let mut held = CpuSet::EMPTY;
        for (uid, name, entry) in self.entries() {
            let Some(claim) = entry.claim else { continue };
            if claim.is_empty() {
                return Err(format!("{uid}/{name} has an empty claim"));
            }
            let taken = self.taken(entry);
            if !taken.is_disjoint(&held) {
                return Err(format!(
                    "{} of {uid}/{name}: exclusive to another one too",
                    spelling::cpus(taken & held)
                ));
            }
            held |= taken;
        }
        if !held.is_disjoint(&self.settings.placement.reserved) {
            return Err(format!(
                "exclusive, but reserved: {}",
                spelling::cpus(held & self.settings.placement.reserved)
            ));
        }
        if !held.is_subset(&self.topology.online()) {
            let offline = held - self.topology.online();
            return Err(format!("exclusive, but offline: {}", spelling::cpus(offline)));
        }
        let waiting = self.waiting() & self.topology.online();
        let reserved = self.settings.placement.reserved & self.topology.online();
        let everything = self.pool | held | reserved | waiting;
        if everything != self.topology.online() {
            return Err(format!("pool {} and exclusive {held} are not all online CPUs", self.pool));
        }
        for (uid, name, entry) in self.entries() {
            if entry.life != Life::Stopped && !self.taken(entry).is_disjoint(&self.pool) {
                return Err(format!("CPUs of {uid}/{name}, which runs, are shared"));
            }
            if self.ids.get(&entry.id) != Some(&(uid.clone(), name.clone())) {
                return Err(format!("{uid}/{name} cannot be found by its id {}", entry.id));
            }
        }
        Ok(())
    }
}
