//! [`Goal`]: the CPUs that the cgroups of a node must have so that no container runs on the exclusive
//! CPUs of another. Pure: no files.
//!
//! A cgroup is *loose* if its value binds everything below it: no container there has exclusive CPUs,
//! and the value can be relied on. So a class with hundreds of pods needs one write. A pod that must
//! have fewer CPUs than others of its class needs one more. Otherwise a cgroup is *tight*: each cgroup
//! in it needs a value to be bound by.

use cpuset::{CgroupPath, CpuSet, PartitionType};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupLevel {
    /// A QoS class, which has pods in it.
    Class,
    /// A pod, which has containers and the pause container in it.
    Pod,
    /// A container. Cgroups in it are made by the container itself.
    Leaf,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goal {
    /// Where containers without exclusive CPUs may run: at least one CPU.
    pub pool: CpuSet,
    /// Where those of single pods may run, by pod. A class has the pools of all pods in it.
    pub pools: BTreeMap<CgroupPath, CpuSet>,
    /// The CPUs of single pods on which no container of another pod may run, besides `exclusive`.
    pub own_pools: BTreeMap<CgroupPath, CpuSet>,
    /// All CPUs that the machine could ever have.
    pub widest: CpuSet,
    /// The containers with exclusive CPUs.
    pub exclusive: BTreeMap<CgroupPath, CpuSet>,
    /// The containers of `exclusive` whose own CPUs the plan sets. The runtime sets those of all others.
    pub listed: BTreeSet<CgroupPath>,
    /// The containers of `exclusive` that must be partitions.
    pub partitions: BTreeSet<CgroupPath>,
    pub kind: PartitionType,
    /// Cgroups whose `cpuset.cpus.exclusive` this program has set. All others keep theirs.
    pub ours: BTreeSet<CgroupPath>,
    /// The containers of `exclusive` that use the pool in addition.
    pub mixed: BTreeSet<CgroupPath>,
    /// By pod: the CPUs that its containers in the pool must not name.
    pub kept_from_siblings: BTreeMap<CgroupPath, CpuSet>,
    /// This program's own container, if it is kept in the pool by its threads' affinity: plans ignore
    /// its cgroup.
    pub apart: BTreeSet<CgroupPath>,
    /// The topmost cgroups to bind: classes, pods in no class, containers outside pods' cgroups. None
    /// is below another.
    pub tops: BTreeMap<CgroupPath, CgroupLevel>,
    /// The CPUs to which other programs limit a cgroup.
    pub bounds: BTreeMap<CgroupPath, CpuSet>,
    /// Cgroups that cannot be written, or whose value others keep changing: they are tight, and no plan
    /// writes them.
    pub distrusted: BTreeSet<CgroupPath>,
    /// Cgroups whose value may be cleared at any time: they are tight, and cgroups below them are bound
    /// as if they had none.
    pub volatile: BTreeSet<CgroupPath>,
}

impl CgroupLevel {
    pub(super) fn below(self) -> CgroupLevel {
        match self {
            CgroupLevel::Class => CgroupLevel::Pod,
            CgroupLevel::Pod | CgroupLevel::Leaf => CgroupLevel::Leaf,
        }
    }
}

impl Goal {
    pub(super) fn claims(&self) -> CpuSet {
        self.exclusive.values().copied().collect()
    }

    /// The containers with exclusive CPUs in a cgroup, or the cgroup itself if it is one.
    pub(super) fn exclusive_in<'a>(
        &'a self,
        group: &'a CgroupPath,
    ) -> impl Iterator<Item = (&'a CgroupPath, CpuSet)> {
        // Paths below `a` are not all directly behind `a`: `a.b` sorts before `a/b`.
        let rest = self.exclusive.range(group..);
        rest.take_while(|(other, _)| other.as_str().starts_with(group.as_str()))
            .filter(move |(other, _)| *other == group || other.is_below(group))
            .map(|(group, claim)| (group, *claim))
    }

    /// Where containers without exclusive CPUs in this cgroup may run.
    pub(super) fn pool_of(&self, group: &CgroupPath) -> CpuSet {
        if self.pools.is_empty() {
            return self.pool;
        }
        let mut above = std::iter::successors(Some(group.clone()), CgroupPath::parent);
        above.find_map(|above| self.pools.get(&above).copied()).unwrap_or(self.pool)
    }

    /// The pods in a class that must have fewer CPUs than the class: its value does not bind these.
    pub(super) fn narrower_in<'a>(
        &'a self,
        class: &'a CgroupPath,
    ) -> impl Iterator<Item = &'a CgroupPath> {
        let all = self.pool_of(class);
        let rest = self.pools.range(class..);
        rest.take_while(|(other, _)| other.as_str().starts_with(class.as_str()))
            .filter(move |(other, pool)| other.is_below(class) && **pool != all)
            .map(|(pod, _)| pod)
    }

    /// `cpus` without those that a container in the pool must not name.
    pub(super) fn without_siblings(&self, leaf: &CgroupPath, cpus: CpuSet) -> CpuSet {
        let kept = leaf.parent().and_then(|pod| self.kept_from_siblings.get(&pod).copied());
        cpus - kept.unwrap_or_default()
    }

    pub(super) fn claims_in(&self, group: &CgroupPath) -> CpuSet {
        self.exclusive_in(group).map(|(_, claim)| claim).collect()
    }

    /// Whether the value of this cgroup binds everything below it.
    pub(super) fn is_loose(&self, group: &CgroupPath) -> bool {
        self.is_relied_on(group) && self.exclusive_in(group).next().is_none()
    }

    fn is_relied_on(&self, group: &CgroupPath) -> bool {
        !self.distrusted.contains(group) && !self.volatile.contains(group)
    }

    /// The CPUs to which other programs limit a cgroup: by its own value, and by those of volatile
    /// cgroups above it. The kernel keeps it within the values of all others above.
    fn bound_of(&self, group: &CgroupPath) -> Option<CpuSet> {
        let own = self.bounds.get(group).copied();
        if self.volatile.is_empty() {
            return own;
        }
        let above = group.ancestors().into_iter().filter(|above| self.volatile.contains(above));
        let above = above.filter_map(|above| self.bounds.get(&above).copied());
        own.into_iter().chain(above).reduce(|bound, other| bound & other)
    }

    /// Whether this cgroup decides where its containers run: no cgroup above binds them.
    pub(super) fn binds(&self, group: &CgroupPath) -> bool {
        if self.tops.contains_key(group) {
            return true;
        }
        let Some(parent) = group.parent() else { return false };
        let is_class = self.tops.get(&parent) == Some(&CgroupLevel::Class);
        let is_bound = if is_class {
            self.is_loose(&parent) && self.pool_of(&parent) == self.pool_of(group)
        } else {
            self.is_relied_on(&parent)
        };
        !is_bound && self.binds(&parent)
    }

    /// The own pools of pods other than those in this cgroup, or the one around it.
    fn own_pools_beside(&self, group: &CgroupPath) -> CpuSet {
        let beside =
            |pod: &CgroupPath| pod != group && !pod.is_below(group) && !group.is_below(pod);
        self.own_pools.iter().filter(|(pod, _)| beside(pod)).map(|(_, cpus)| *cpus).collect()
    }

    /// The CPUs of its pool to which other programs limit a cgroup whose parent has `above`. Exclusive
    /// CPUs and own pools of others are never allowed. A bound that allows no other CPUs is ignored. If it allows shared CPUs
    /// but none of the pool, the cgroup gets those.
    pub(super) fn pool_within(&self, group: &CgroupPath, above: CpuSet) -> CpuSet {
        let pool = self.pool_of(group);
        let bound = match self.bound_of(group) {
            Some(bound) => bound,
            // `above` may be another program's value, such as that of the kubelet's system partition.
            None if pool.is_disjoint(&above) => self.widest,
            None => return pool,
        };
        let allowed = (bound & above) - self.claims() - self.own_pools_beside(group);
        let both = pool & allowed;
        if allowed.is_empty() {
            pool
        } else if both.is_empty() {
            allowed
        } else {
            both
        }
    }
}
