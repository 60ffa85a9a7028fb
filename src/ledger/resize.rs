//! In-place resize: a running container gets more or fewer CPUs, or becomes exclusive or shared.
//!
//! The kubelet refuses this for exclusive CPUs under its own static policy; with policy none it asks the runtime, and so
//! us. A refusal fails the resize and changes nothing.
//!
//! A resize is never refused for its NUMA affinity. The topology manager's policy is about where a container may start
//! (KEP-693); this one runs already, and keeps the CPUs it has. It gets the nearest ones there are instead.

use super::model::{Container, CpuRequest, MilliCpu, PodUid};
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
        let Some(entry) = self.entry(uid, &container.name) else { return Ok(()) };
        let (before, held) = (entry.cpu, entry.claim);
        let cpu = CpuRequest {
            request: wanted.request.or(before.request),
            limit: wanted.limit.or(before.limit),
        };
        if cpu.amount() == before.amount() {
            return Ok(());
        }
        let budget = self.resized_budget(uid, before, cpu);
        let claim = self.resized_claim(uid, container, cpu, budget)?;
        let subject = self.subject(uid, container);
        let Some(pod) = self.pods.get_mut(uid) else { return Ok(()) };
        pod.pod.budget = budget;
        if let Some(cpus) = claim {
            pod.hand_over(&container.name, cpus);
        }
        let Some(entry) = pod.containers.get_mut(&container.name) else { return Ok(()) };
        (entry.cpu, entry.claim) = (cpu, claim);
        if claim != held {
            // Its quota comes with the same request: it has to be told in any case.
            entry.told = None;
            self.pending = true;
            self.revision += 1;
            let what = What::Resized { from: held, to: claim };
            self.notes.push(Note { warning: false, subject, what });
        }
        self.refresh_pool();
        Ok(())
    }

    /// The pod's budget after the resize: the events of a resize still carry the old one.
    fn resized_budget(
        &self,
        uid: &PodUid,
        before: CpuRequest,
        after: CpuRequest,
    ) -> Option<MilliCpu> {
        let budget = self.pods.get(uid)?.pod.budget?;
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
    fn growable(&self, free: &CpuSet, held: &CpuSet) -> CpuSet {
        let whole_cores = self.settings.placement.options.full_pcpus_only;
        if !whole_cores || self.topology.cpus_per_core() < 2 {
            return *free;
        }
        let ours = *free | *held;
        let cores = self.topology.cores().iter().map(|core| core.cpus);
        cores.filter(|core| core.is_subset(&ours)).collect::<CpuSet>() & *free
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Node, container, guaranteed, pod, settings};
    use crate::cpuset::CpuSet;
    use crate::ledger::{CpuRequest, Event, Ledger, MilliCpu, Pod, Qos, Wanted};
    use crate::topology::synthetic::Machine;
    use std::collections::BTreeMap;

    /// What a kubelet sends for an in-place resize.
    fn resize(
        node: &mut Node,
        pod: &Pod,
        name: &str,
        id: &str,
        from: u64,
        to: u64,
    ) -> Result<(), String> {
        let amount = Some(MilliCpu(to));
        let wanted = Wanted {
            cpu: CpuRequest { request: amount, limit: amount },
            sets_quota: true,
            cpus: None,
        };
        let container = container(pod, name, id, from);
        node.event(Event::Update { pod: pod.clone(), container, wanted }).map(|_| ())
    }

    #[test]
    fn resize_in_place_both_ways_and_between_exclusive_and_shared() {
        let mut node = Node::new();
        let (a, s) = (guaranteed("a", 2000), pod("s", Qos::Burstable, 100));
        node.create(&s, "c", "s", 100).unwrap();
        assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
        for (from, to, ours, others) in [
            (2000, 4000, "2-5", "0-1,6-15"),
            (4000, 1000, "2", "0-1,3-15"),
            (1000, 500, "0-15", "0-15"),
            (500, 2000, "2-3", "0-1,4-15"),
        ] {
            resize(&mut node, &a, "c", "a", from, to).unwrap();
            node.check("a", ours);
            node.check("s", others);
        }
    }

    #[test]
    fn a_growth_that_is_refused_changes_nothing() {
        let mut node = Node::new();
        let (a, b) = (guaranteed("a", 2000), guaranteed("b", 10_000));
        node.create(&a, "c", "a", 2000).unwrap();
        node.create(&b, "c", "b", 10_000).unwrap();
        let before = node.ledger.claims().collect::<Vec<_>>();
        let refused = resize(&mut node, &a, "c", "a", 2000, 8000).unwrap_err();
        assert!(refused.starts_with("UnexpectedAdmissionError: "), "{refused}");
        assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
        resize(&mut node, &a, "c", "a", 2000, 4000).unwrap();
    }

    #[test]
    fn a_container_resized_back_and_forth_keeps_room_in_its_pods_budget() {
        let mut node = Node::new();
        let a = guaranteed("a", 4000);
        node.create(&a, "one", "1", 2000).unwrap();
        node.create(&a, "two", "2", 2000).unwrap();
        resize(&mut node, &a, "one", "1", 2000, 4000).unwrap();
        resize(&mut node, &a, "two", "2", 2000, 500).unwrap();
        resize(&mut node, &a, "two", "2", 500, 2000).unwrap();
        assert_eq!(node.ledger.exclusive().len(), 6);
        // Restarted, it asks for what it was resized to.
        node.stop("1");
        assert_eq!(node.create(&a, "one", "1b", 4000).unwrap().parse::<CpuSet>().unwrap().len(), 4);
    }

    /// Cores have two CPUs; of core 0, CPU 0 is reserved and CPU 1 is free.
    fn with_whole_cores() -> Node {
        let mut settings = settings();
        settings.placement.options.full_pcpus_only = true;
        settings.placement.reserved = "0".parse().unwrap();
        let machine = Machine { cores: 8, threads: 2, ..Machine::default() };
        let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
        Node { ledger, set: BTreeMap::new() }
    }

    #[test]
    fn with_full_pcpus_only_a_container_grows_and_shrinks_by_whole_cores() {
        let mut node = with_whole_cores();
        let a = guaranteed("a", 2000);
        assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
        for (from, to, expect) in [(2000, 4000, "2-5"), (4000, 8000, "2-9"), (8000, 2000, "2-3")] {
            resize(&mut node, &a, "c", "a", from, to).unwrap();
            node.check("a", expect);
        }
        let before = node.ledger.claims().collect::<Vec<_>>();
        for odd in [3000, 1000, 16_000] {
            let refused = resize(&mut node, &a, "c", "a", 2000, odd).unwrap_err();
            assert!(refused.starts_with("SMTAlignmentError: "), "{refused}");
            assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
        }
        node.check("a", "2-3");
    }

    #[test]
    fn a_container_that_becomes_exclusive_uses_its_pods_ended_ones_cpus() {
        let mut node = Node::new();
        let a = guaranteed("a", 2000);
        assert_eq!(node.create(&a, "init", "i", 2000).unwrap(), "2-3");
        node.stop("i");
        assert_eq!(node.create(&a, "app", "p", 500).unwrap(), "0-1,4-15");
        resize(&mut node, &a, "app", "p", 500, 2000).unwrap();
        node.check("p", "2-3");
    }

    #[test]
    fn a_growth_takes_no_cpus_that_another_pod_waits_for() {
        let mut node = Node::new();
        let (a, late) = (guaranteed("a", 2000), guaranteed("late", 10_000));
        node.create(&a, "c", "a", 2000).unwrap();
        node.event(Event::RunPod(late.clone())).unwrap();
        let refused = resize(&mut node, &a, "c", "a", 2000, 6000).unwrap_err();
        assert!(refused.contains("requested=4, available=2"), "{refused}");
        resize(&mut node, &a, "c", "a", 2000, 4000).unwrap();
        assert!(node.create(&late, "c", "l", 10_000).is_ok());
    }
}
