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
use crate::placement::resize::{grow, shrink};
use crate::placement::{self, Rejection, Supply, TopologyPolicy};

impl Ledger {
    /// Makes a container's claim fit what it shall have from now on.
    pub(super) fn resize(
        &mut self,
        uid: &PodUid,
        container: &Container,
        wanted: CpuRequest,
    ) -> Result<(), Rejection> {
        let Some(before) = self.entry(uid, &container.name).map(|entry| entry.cpu) else {
            return Ok(());
        };
        let cpu = CpuRequest {
            request: wanted.request.or(before.request),
            limit: wanted.limit.or(before.limit),
        };
        if cpu.amount() == before.amount() {
            return Ok(());
        }
        let budget = self.resized_budget(uid, before, cpu);
        let claim = self.resized_claim(uid, container, cpu, budget)?;
        let Some(pod) = self.pods.get_mut(uid) else { return Ok(()) };
        pod.pod.budget = budget;
        if let Some(cpus) = claim {
            pod.hand_over(&container.name, cpus);
        }
        if let Some(entry) = pod.containers.get_mut(&container.name) {
            entry.cpu = cpu;
        }
        self.give(uid, container, claim);
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
        let silent = container.cpu.amount().is_none() || pod.pod.qos == Qos::Unknown;
        if silent
            || self.settings.policy == Policy::None
            || pod.whole_cpus(&container.cpu) == Some(held.len())
        {
            return;
        }
        if let Ok(claim) = self.resized_claim(uid, container, container.cpu, pod.pod.budget) {
            self.give(uid, container, claim);
        }
    }

    /// Changes what is exclusive to a container that exists.
    fn give(&mut self, uid: &PodUid, container: &Container, claim: Option<CpuSet>) {
        let subject = self.subject(uid, container);
        let Some(entry) = self.entry_mut(uid, &container.name) else { return };
        let held = std::mem::replace(&mut entry.claim, claim);
        if claim != held {
            // Its quota comes with the same request: it has to be told in any case.
            entry.told = None;
            self.pending = true;
            self.revision += 1;
            let what = What::Resized { from: held, to: claim };
            self.notes.push(Note::new(false, subject, what));
        }
    }

    /// A pod's new budget, if the runtime tells of it: containerd 2.3 and newer, CRI-O 1.33 and newer.
    pub(super) fn update_pod(&mut self, pod: Pod) {
        let budget = pod.budget;
        let uid = self.upsert_pod(pod);
        if let Some(entry) = self.pods.get_mut(&uid).filter(|_| budget.is_some()) {
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
        let held = pod.containers.get(&container.name).and_then(|entry| entry.claim);
        let Some(n) = pod.whole_cpus(&cpu) else { return Ok(None) };
        if self.settings.policy == Policy::None {
            return Ok(None);
        }
        let free = self.free();
        let Some(held) = held else {
            let budget = budget.map(MilliCpu::cpus_floor);
            let room = pod.room_within(budget, container, n);
            let Some(allocation) = self.choose(uid, &self.any_affinity(), free, room, n)? else {
                return Ok(None);
            };
            self.keep_promises(uid, &free, &allocation.cpus)?;
            return Ok(Some(allocation.cpus));
        };
        let near = self.growable(&free, &held);
        let supply = Supply { free: near | held, reusable: CpuSet::EMPTY };
        check_whole_cores(&self.topology, &self.settings.placement, &supply, n)?;
        let Some(more) = n.checked_sub(held.len()) else {
            return Ok(Some(shrink(&self.topology, &held, n)));
        };
        let grown = grow(&self.topology, &held, &near, more)?;
        self.keep_promises(uid, &free, &grown)?;
        Ok(Some(grown))
    }

    /// The settings in force, with a topology manager that admits every affinity.
    fn any_affinity(&self) -> placement::Settings {
        let mut placement = self.settings.placement;
        if placement.topology_manager.policy != TopologyPolicy::None {
            placement.topology_manager.policy = TopologyPolicy::BestEffort;
        }
        placement
    }

    /// What of `free` may be added to `held`: with `full-pcpus-only` (KEP-2625) whole cores, so that nobody else comes
    /// to run on their siblings.
    ///
    /// Where cores have one CPU on average, that option asks for nothing.
    pub(super) fn growable(&self, free: &CpuSet, held: &CpuSet) -> CpuSet {
        let whole_cores = self.settings.placement.options.full_pcpus_only;
        if !whole_cores || self.topology.cpus_per_core() < 2 {
            return *free;
        }
        let ours = *free | *held;
        let cores = self.topology.cores().iter().map(|core| core.cpus);
        cores.filter(|core| core.is_subset(&ours)).collect::<CpuSet>() & *free
    }
}
