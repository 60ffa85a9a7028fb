//! [`Layout`]: the cgroups of pods and containers on a node and the CPUs that each must have, before
//! other programs' values are taken into account. Pure: no files.

use super::goal::{CgroupLevel, Goal};
use cpuset::{CgroupPath, CpuSet};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    pub(super) goal: Goal,
    pub(super) pods: Vec<KnownPod>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownPod {
    pub(super) group: CgroupPath,
    pub(super) running: bool,
}

/// A cgroup with containers' cgroups in it.
#[derive(Debug, Clone)]
pub struct PodGroup {
    pub group: CgroupPath,
    /// The topmost cgroup that can bind its containers: its class, its own cgroup, or each container's
    /// where its own may contain other programs.
    pub top: CgroupLevel,
    /// Where its containers without exclusive CPUs may run: at least one CPU.
    pub pool: CpuSet,
    /// The part of `pool` in which no container of another pod may run.
    pub own_pool: CpuSet,
    /// CPUs that its containers without exclusive CPUs must not name in `cpuset.cpus`.
    pub kept_from_siblings: CpuSet,
    /// Whether a container of it runs, so that the cgroup must exist.
    pub running: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct ContainerGroup<'a> {
    pub group: &'a CgroupPath,
    pub cpus: ContainerCpus<'a>,
}

#[derive(Debug, Clone, Copy)]
pub enum ContainerCpus<'a> {
    /// It runs in its pod's pool.
    Shared,
    /// No other container runs on these.
    Exclusive(&'a CpuSet),
    /// No other container runs on these, and it uses the pool as well.
    Mixed(&'a CpuSet),
    /// No other container runs on these, and its cgroup is a partition of them.
    Partition(&'a CpuSet),
}

impl Layout {
    /// `pool` is where containers of unknown pods may run: at least one CPU. `widest` are all CPUs that
    /// the machine could ever have.
    pub fn new(pool: CpuSet, widest: CpuSet) -> Layout {
        Layout { goal: Goal { pool, widest, ..Goal::default() }, pods: Vec::new() }
    }

    /// Adds a pod with those of its containers that exist.
    pub fn add<'a>(
        &mut self,
        pod: PodGroup,
        containers: impl IntoIterator<Item = ContainerGroup<'a>>,
    ) {
        let goal = &mut self.goal;
        if !pod.kept_from_siblings.is_empty() {
            goal.kept_from_siblings.insert(pod.group.clone(), pod.kept_from_siblings);
        }
        if !pod.own_pool.is_empty() {
            goal.own_pools.insert(pod.group.clone(), pod.own_pool);
        }
        for ContainerGroup { group, cpus } in containers {
            match cpus {
                ContainerCpus::Shared => {}
                ContainerCpus::Exclusive(cpus) => {
                    goal.exclusive.insert(group.clone(), *cpus);
                }
                ContainerCpus::Mixed(cpus) => {
                    goal.exclusive.insert(group.clone(), *cpus);
                    goal.mixed.insert(group.clone());
                }
                ContainerCpus::Partition(cpus) => {
                    goal.exclusive.insert(group.clone(), *cpus);
                    goal.partitions.insert(group.clone());
                }
            }
            if pod.top == CgroupLevel::Leaf {
                goal.tops.insert(group.clone(), CgroupLevel::Leaf);
            }
        }
        goal.pools.insert(pod.group.clone(), pod.pool);
        match (pod.top, pod.group.parent()) {
            (CgroupLevel::Class, Some(class)) => {
                *goal.pools.entry(class.clone()).or_default() |= pod.pool;
                goal.tops.insert(class, CgroupLevel::Class);
            }
            (CgroupLevel::Leaf, _) => {}
            // A pod directly below the root is in no class.
            (CgroupLevel::Class | CgroupLevel::Pod, _) => {
                goal.tops.insert(pod.group.clone(), CgroupLevel::Pod);
            }
        }
        self.pods.push(KnownPod { group: pod.group, running: pod.running });
    }

    /// In the order in which they were added.
    pub fn pods(&self) -> impl Iterator<Item = &CgroupPath> {
        self.pods.iter().map(|pod| &pod.group)
    }
}
