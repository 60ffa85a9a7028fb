//! [`Goal`]: what the cgroups of a node have to be, so that no container runs on the exclusive CPUs
//! of another. Pure: no files.
//!
//! A cgroup is *loose* if one value in it binds all that is below: nothing there has exclusive CPUs,
//! and the value can be relied on. So a class with hundreds of pods needs one write. Pods that are to
//! have fewer CPUs than others of their class need one more each. A cgroup is *tight* otherwise: each
//! cgroup in it is bound by itself.

use cpuset::{CgroupPath, CpuSet, PartitionType};
use std::collections::{BTreeMap, BTreeSet};

/// How far a cgroup is above containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupLevel {
    /// A QoS class: pods are in it.
    Class,
    /// A pod: containers and the pause container are in it.
    Pod,
    /// A container. What is in it is the container's own.
    Leaf,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goal {
    /// Where containers without exclusive CPUs may run: at least one CPU.
    pub pool: CpuSet,
    /// The same for those of single pods. A class with such pods has what they have together.
    pub pools: BTreeMap<CgroupPath, CpuSet>,
    /// All CPUs that the machine could ever have.
    pub widest: CpuSet,
    /// The containers with exclusive CPUs.
    pub exclusive: BTreeMap<CgroupPath, CpuSet>,
    /// Those of them that are to be partitions.
    pub partitions: BTreeSet<CgroupPath>,
    pub kind: PartitionType,
    /// Cgroups whose `cpuset.cpus.exclusive` this program has set. That of others stays as it is.
    pub ours: BTreeSet<CgroupPath>,
    /// Those of them that use the pool beside these.
    pub mixed: BTreeSet<CgroupPath>,
    /// By pod: the CPUs that its containers in the pool must not name.
    pub kept_from_siblings: BTreeMap<CgroupPath, CpuSet>,
    /// This program's own container, where its threads' affinity is set instead: it is neither bound
    /// nor in the way.
    pub apart: BTreeSet<CgroupPath>,
    /// The topmost cgroups to bind: classes, pods in no class, containers outside pods' cgroups. None
    /// is below another.
    pub tops: BTreeMap<CgroupPath, CgroupLevel>,
    /// What other programs allow a cgroup.
    pub bounds: BTreeMap<CgroupPath, CpuSet>,
    /// Cgroups that cannot be written, or whose value others keep changing: they stay as they are,
    /// and are tight.
    pub distrusted: BTreeSet<CgroupPath>,
    /// Cgroups whose value may vanish at any time: they are tight, and what is below them is bound
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
        let rest = self.exclusive.range(group..);
        rest.take_while(|(other, _)| other.as_str().starts_with(group.as_str()))
            .filter(move |(other, _)| *other == group || other.is_below(group))
            .map(|(group, claim)| (group, *claim))
    }

    /// Where containers without exclusive CPUs may run that are in this cgroup.
    pub(super) fn pool_of(&self, group: &CgroupPath) -> CpuSet {
        if self.pools.is_empty() {
            return self.pool;
        }
        let mut above = std::iter::successors(Some(group.clone()), CgroupPath::parent);
        above.find_map(|above| self.pools.get(&above).copied()).unwrap_or(self.pool)
    }

    /// The pods in a class that have fewer CPUs than it: its value does not bind these.
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

    /// What a container that shares CPUs names of these: its pod's value keeps it in the pool.
    pub(super) fn beside_siblings(&self, leaf: &CgroupPath, cpus: CpuSet) -> CpuSet {
        let kept = leaf.parent().and_then(|pod| self.kept_from_siblings.get(&pod).copied());
        cpus - kept.unwrap_or_default()
    }

    pub(super) fn claims_in(&self, group: &CgroupPath) -> CpuSet {
        self.exclusive_in(group).map(|(_, claim)| claim).collect()
    }

    /// Whether one value in this cgroup binds all that is below it.
    pub(super) fn is_loose(&self, group: &CgroupPath) -> bool {
        self.is_relied_on(group) && self.exclusive_in(group).next().is_none()
    }

    fn is_relied_on(&self, group: &CgroupPath) -> bool {
        !self.distrusted.contains(group) && !self.volatile.contains(group)
    }

    /// What other programs allow a cgroup: by itself, and by those above whose value may vanish. All
    /// others above it keep it within their bounds.
    fn bound_of(&self, group: &CgroupPath) -> Option<CpuSet> {
        let own = self.bounds.get(group).copied();
        if self.volatile.is_empty() {
            return own;
        }
        let above = group.ancestors().into_iter().filter(|above| self.volatile.contains(above));
        let above = above.filter_map(|above| self.bounds.get(&above).copied());
        own.into_iter().chain(above).reduce(|bound, other| bound & other)
    }

    /// Whether no cgroup above this one binds what is in it.
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

    /// The part of its pool that other programs allow a cgroup whose parent has `above`. Exclusive
    /// CPUs are never part of what they allow. If they allow nothing else, it is no bound; if they
    /// allow nothing of the pool, the cgroup stays on the rest.
    pub(super) fn pool_within(&self, group: &CgroupPath, above: CpuSet) -> CpuSet {
        let pool = self.pool_of(group);
        let bound = match self.bound_of(group) {
            Some(bound) => bound,
            // What is above can be another program's, such as the kubelet's system partition.
            None if pool.is_disjoint(&above) => self.widest,
            None => return pool,
        };
        let allowed = (bound & above) - self.claims();
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
