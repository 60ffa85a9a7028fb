//! The node's cgroups: they follow each decision, and after every single write no container runs on
//! exclusive CPUs on which their owner runs.

use super::{Event, Instance, Node, exclusive};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::exclusivity::{Layout, carry_out};
use nri_cpu_manager::ledger::{Adjustment, CgroupPath, Mechanism, Pod, Stance};

/// The cgroup that a kubelet makes for a pod.
pub(super) fn of_pod(serial: usize, guaranteed: bool) -> Option<CgroupPath> {
    let class = if guaranteed { "" } else { "kubepods-burstable.slice/" };
    CgroupPath::new(&format!("kubepods.slice/{class}pod{serial}.slice"))
}

impl Node {
    pub(super) fn make_groups(&mut self, pod: &Pod) {
        let group = pod.cgroup.as_ref().unwrap();
        let pause = CgroupPath::new(&format!("{group}/pause")).unwrap();
        self.kernel.make(&pause);
        self.kernel.occupy(&pause, true);
    }

    /// The runtime writes a container's CPUs into its cgroup.
    pub(super) fn set_group(&mut self, id: &str) {
        let Some(Instance { container, adjustment, .. }) = self.instances.get(id) else { return };
        let cpus = adjustment.map_or(CpuSet::EMPTY, |adjustment| adjustment.cpus());
        self.kernel.put(container.cgroup.as_ref().unwrap(), cpus);
    }

    pub(super) fn distrust(&mut self, pod: usize, class: bool) {
        let Some(spec) = self.pods.get(pod % self.pods.len().max(1)) else { return };
        let group = spec.pod.cgroup.clone().unwrap();
        let group = if class { group.parent().unwrap() } else { group };
        // Guaranteed pods are in no class.
        if group.parent().is_none() {
            return;
        }
        if !self.distrusted.remove(&group) {
            self.distrusted.insert(group);
        }
        self.event(Event::Distrusted(self.distrusted.clone()));
    }

    /// A new container in a cgroup that is not relied on does not depend on it.
    pub(super) fn begins_in_pool(&self, instance: &Instance, adjustment: Option<Adjustment>) {
        let group = instance.pod.cgroup.as_ref().unwrap();
        let mut above = group.ancestors();
        above.push(group.clone());
        if above.iter().any(|group| self.distrusted.contains(group))
            && self.mechanism == Mechanism::Groups
            && let Some(adjustment) = adjustment
            && adjustment.exclusive_cpus().is_empty()
        {
            let pool = self.ledger.bound();
            assert!(pool.is_empty() || adjustment.cpus().is_subset(&pool), "{adjustment:?} {pool}");
        }
    }

    /// Removes cgroups of ended containers, and carries out the ledger's layout write by write.
    pub(super) fn follow_groups(&mut self) {
        let alive = self.instances.values().filter(|instance| !instance.stopped);
        let alive: Vec<CgroupPath> =
            alive.filter_map(|instance| instance.container.cgroup.clone()).collect();
        let groups: Vec<CgroupPath> = self.kernel.groups().cloned().collect();
        for group in groups {
            if group.as_str().contains("/c") && !alive.contains(&group) {
                self.kernel.remove(&group);
            }
        }
        self.kernel.set_online(self.topology.online());
        let assigns = self.ledger.stance() == Stance::Assign;
        if self.mechanism != Mechanism::Groups || !assigns || self.ledger.bound().is_empty() {
            return;
        }
        let mut layout = Layout::of(&self.ledger);
        layout.goal.volatile.clone_from(&self.distrusted);
        let mut tree = self.kernel.clone();
        let mut overlaps = self.overlaps();
        carry_out(&mut tree, &layout.goal, |group, cpus| {
            self.kernel.write(group, cpus).unwrap();
            let now = self.overlaps();
            assert!(
                now.iter().all(|overlap| overlaps.contains(overlap)),
                "{group} := {cpus}: {now:?} {:#?} {layout:#?}",
                self.kernel
            );
            overlaps = now;
            true
        });
        assert_eq!(tree, self.kernel);
        assert_eq!(self.overlaps(), [], "{:#?} {layout:#?}", self.kernel);
        let kernel = self.kernel.clone();
        for group in self.distrusted.iter().filter(|group| kernel.contains(group)) {
            self.kernel.put(group, CpuSet::EMPTY);
        }
        assert_eq!(self.overlaps(), [], "cleared: {:#?} {layout:#?}", self.kernel);
        self.kernel = kernel;
    }

    /// Containers that run on exclusive CPUs of another that runs there: owner, other, CPUs.
    fn overlaps(&self) -> Vec<(CgroupPath, CgroupPath, CpuSet)> {
        let mut overlaps = Vec::new();
        let running = self.instances.values().filter(|instance| !instance.stopped);
        for instance in running.filter(|instance| exclusive(instance.adjustment).is_some()) {
            let group = instance.container.cgroup.as_ref().unwrap();
            let target = self.ledger.target(&instance.container.id);
            let Some(claim) = exclusive(target.map(|target| target.adjustment)) else { continue };
            let own = self.kernel.effective(group) & claim;
            // The ledger forgets a pod whose only container failed, with its pause container.
            let known: Vec<CgroupPath> = self.ledger.places().filter_map(|pod| pod.group).collect();
            let leaves = self.kernel.groups().filter(|leaf| {
                let of_known = leaf.parent().is_some_and(|pod| known.contains(&pod));
                leaf.as_str().contains("/c") || (leaf.as_str().ends_with("/pause") && of_known)
            });
            for other in leaves.filter(|leaf| *leaf != group) {
                let both = self.kernel.effective(other) & own;
                if !both.is_empty() {
                    overlaps.push((group.clone(), other.clone(), both));
                }
            }
        }
        overlaps
    }
}
