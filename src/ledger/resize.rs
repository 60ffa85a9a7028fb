//! In-place resize: a running container gets more or fewer CPUs, or becomes exclusive or shared.
//!
//! The kubelet refuses this for exclusive CPUs under its own static policy; with policy none it asks the runtime, and so
//! us. A refusal fails the resize and changes nothing.
//!
//! A resize is never refused for its NUMA affinity. The topology manager's policy is about where a container may start
//! (KEP-693); this one runs already, and keeps the CPUs it has. It gets the nearest ones there are instead.

use super::model::{Container, CpuRequest, MilliCpu, Pod, PodUid, Qos};
use super::note::{Note, What};
use super::{Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::placement::allocate::check_whole_cores;
use crate::placement::required::{fewest, is_met};
use crate::placement::resize::{grow, shrink};
use crate::placement::wishes::{Smt, Uncore};
use crate::placement::{self, Allocation, Rejection, Supply, TopologyPolicy, Wishes};

impl Ledger {
    /// Makes a container's claim fit what it shall have from now on.
    pub(super) fn resize(
        &mut self,
        uid: &PodUid,
        container: &Container,
        wanted: CpuRequest,
    ) -> Result<(), Rejection> {
        let Some(pod) = self.pods.get(uid) else { return Ok(()) };
        let Some(entry) = pod.containers.get(&container.name) else { return Ok(()) };
        let before = entry.cpu;
        let cpu = before.changed_by(wanted);
        let asks = |cpu: &CpuRequest| (cpu.amount(), entry.asks_with(pod.pod.qos, cpu));
        if cpu == before {
            return Ok(());
        }
        if asks(&cpu) == asks(&before) {
            self.pods.change_entry(uid, &container.name, |entry| entry.cpu = cpu);
            // It is in the claims.
            self.revision += 1;
            return Ok(());
        }
        let budget = self.resized_budget(uid, before, cpu);
        let claim = self.resized_claim(uid, container, cpu, budget)?;
        let isolates = self.entry(uid, &container.name).is_some_and(|e| e.wishes().isolates());
        let taken = self.with_idle(&claim.unwrap_or_default(), isolates);
        if let Some(mut pod) = self.pods.change(uid) {
            pod.pod.budget = budget;
            pod.hand_over(&self.topology, &container.name, taken);
            if let Some(entry) = pod.containers.get_mut(&container.name) {
                entry.cpu = cpu;
            }
        }
        self.give(uid, container, claim);
        self.revision += 1;
        self.refresh_pool();
        Ok(())
    }

    /// A container whose claim was adopted may have been resized while nobody looked. Where that cannot be followed now,
    /// it keeps what it has: the runtime has accepted the resize.
    pub(super) fn resize_unseen(&mut self, uid: &PodUid, container: &Container) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(held) = self.entry(uid, &container.name).and_then(|entry| entry.claim) else {
            return;
        };
        let Some(entry) = self.entry(uid, &container.name) else { return };
        let asks = entry.asks_with(pod.pod.qos, &container.cpu);
        // What it was given by a wish, or before its pod wished for none, is no resize.
        let silent = asks.is_none()
            && (container.cpu.amount().is_none()
                || pod.pod.qos != Qos::Guaranteed
                || entry.terms.cpus.is_some());
        if silent || self.settings.policy == Policy::None || asks == Some(held.len()) {
            return;
        }
        match self.resized_claim(uid, container, container.cpu, pod.pod.budget) {
            Ok(claim) => self.give(uid, container, claim),
            // CPUs of it may have gone offline, too: it is completed when there are more.
            Err(_) => {
                let lost = asks.is_some_and(|n| held.len() < n);
                self.pods.change_entry(uid, &container.name, |entry| entry.lost = lost);
            }
        }
    }

    /// Changes what is exclusive to a container that exists.
    fn give(&mut self, uid: &PodUid, container: &Container, claim: Option<CpuSet>) {
        let subject = self.subject(uid, container);
        self.pods.change_entry(uid, &container.name, |entry| {
            let isolates = entry.wishes().isolates();
            let held = std::mem::replace(&mut entry.claim, claim);
            entry.isolated = isolates && claim.is_some();
            if claim != held {
                // Its quota comes with the same request: it has to be told in any case.
                entry.doubt();
                self.pending = true;
                self.revision += 1;
                let what = What::Resized { from: held, to: claim };
                self.notes.push(Note::new(false, subject, what));
            }
        });
    }

    /// A pod's new budget, if the runtime tells of it: containerd 2.3 and newer, CRI-O 1.33 and newer.
    pub(super) fn update_pod(&mut self, pod: Pod) {
        let budget = pod.budget;
        let uid = self.upsert_pod(pod);
        if let Some(mut entry) = self.pods.change(&uid).filter(|_| budget.is_some()) {
            entry.pod.budget = budget;
            entry.resized = true;
        }
    }

    /// The pod's budget after one of its containers is resized. Where the runtime tells of resized pods it has done so.
    fn resized_budget(
        &self,
        uid: &PodUid,
        before: CpuRequest,
        after: CpuRequest,
    ) -> Option<MilliCpu> {
        let entry = self.pods.get(uid)?;
        let budget = entry.pod.budget?;
        if entry.resized {
            return Some(budget);
        }
        let amount = |cpu: CpuRequest| cpu.amount().map_or(0, |milli| milli.0);
        Some(MilliCpu(budget.0.saturating_sub(amount(before)).saturating_add(amount(after))))
    }

    fn resized_claim(
        &self,
        uid: &PodUid,
        container: &Container,
        cpu: CpuRequest,
        budget: Option<MilliCpu>,
    ) -> Result<Option<CpuSet>, Rejection> {
        let Some(pod) = self.pods.get(uid) else { return Ok(None) };
        let Some(entry) = pod.containers.get(&container.name) else { return Ok(None) };
        let Some(n) = entry.asks_with(pod.pod.qos, &cpu) else {
            return entry.terms.without_whole_cpus(pod.pod.qos, &cpu).map_or(Ok(None), Err);
        };
        if self.settings.policy == Policy::None {
            return Ok(None);
        }
        let (free, wishes) = (self.free(), entry.wishes());
        let taken = |cpus: &CpuSet| self.with_idle(cpus, wishes.isolates());
        let placement = wishes.settings(&self.settings.placement);
        let Some(held) = entry.claim else {
            let budget = budget.map(MilliCpu::cpus_floor);
            let (placement, room) = (any_affinity(placement), self.room(pod, budget, container, n));
            let chosen = self.choose(uid, &placement, &wishes, free, room, n)?;
            let Some(Allocation { cpus, .. }) = chosen else {
                return entry.terms.without_room().map(|()| None);
            };
            self.keep_promises(uid, &free, &taken(&cpus))?;
            return Ok(Some(cpus));
        };
        let near = self.growable(&(free | taken(&held)), &held, &wishes);
        let supply = Supply { free: near | held, reusable: CpuSet::EMPTY };
        if !wishes.isolates() {
            check_whole_cores(&self.topology, &placement, &supply, n)?;
        }
        let Some(more) = n.checked_sub(held.len()) else {
            return Ok(Some(shrink(&self.topology, &held, n)));
        };
        let grown = grow(&self.topology, &held, &near, more)?;
        let all = taken(&grown);
        let reserved = &self.settings.placement.reserved;
        if wishes.uncore == Some(Uncore::Require) && !is_met(&self.topology, reserved, &all) {
            let caches = self.topology.uncores().iter().map(|cache| cache.cpus);
            let around: CpuSet = caches.filter(|cache| !cache.is_disjoint(&held)).collect();
            let fewest = fewest(&self.topology, reserved, all.len());
            return Err(Rejection::uncore_alignment(n, fewest, (around & (near | held)).len()));
        }
        self.keep_promises(uid, &free, &all)?;
        Ok(Some(grown))
    }

    /// What of `free` may be added to `held`: with `full-pcpus-only` (KEP-2625) whole cores, so that nobody else comes
    /// to run on their siblings; where these are to stay idle, one CPU of each whole core.
    ///
    /// Where cores have one CPU on average, that option asks for nothing.
    pub(super) fn growable(&self, free: &CpuSet, held: &CpuSet, wishes: &Wishes) -> CpuSet {
        if wishes.isolates() {
            return wishes.offered(&self.topology, free, held) - *held;
        }
        let options = &self.settings.placement.options;
        let whole_cores = options.full_pcpus_only || wishes.smt == Some(Smt::FullCores);
        if !whole_cores || self.topology.cpus_per_core() < 2 {
            return *free;
        }
        let ours = *free | *held;
        let cores = self.topology.cores().iter().map(|core| core.cpus);
        cores.filter(|core| core.is_subset(&ours)).collect::<CpuSet>() & *free
    }
}

/// The same settings, with a topology manager that admits every affinity.
fn any_affinity(mut placement: placement::Settings) -> placement::Settings {
    if placement.topology_manager.policy != TopologyPolicy::None {
        placement.topology_manager.policy = TopologyPolicy::BestEffort;
    }
    placement
}
