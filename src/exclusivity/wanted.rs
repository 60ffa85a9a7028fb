//! [`Wanted`]: what the groups of a node have to be, so that no container runs on the exclusive
//! CPUs of another.
//!
//! A group is *loose* if one value in it binds all that is below: nothing there has exclusive CPUs,
//! and the value can be relied on. So a class with hundreds of pods needs one write. A group is
//! *tight* otherwise: each group in it is bound by itself.

use crate::cpuset::CpuSet;
use crate::ledger::{CgroupPath, Ledger, PodPlace, PodUid, Qos};
use std::collections::{BTreeMap, BTreeSet};

/// How far a group is above containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The group of a QoS class: pods are in it.
    Class,
    /// The group of a pod: containers and the pause container are in it.
    Pod,
    /// The group of a container. What is in it is the container's own.
    Leaf,
}

/// What groups have to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Where containers without exclusive CPUs may run: at least one CPU.
    pub pool: CpuSet,
    /// All CPUs that the machine could ever have.
    pub widest: CpuSet,
    /// The groups of containers with exclusive CPUs that no partition keeps.
    pub exclusive: BTreeMap<CgroupPath, CpuSet>,
    /// Containers that are neither bound nor in the way: partitions, and this program's own where its
    /// threads' affinity is set instead.
    pub apart: BTreeSet<CgroupPath>,
    /// The topmost groups to bind: classes, pods in no class, containers outside pods' groups. None
    /// is below another.
    pub tops: BTreeMap<CgroupPath, Level>,
    /// What other programs allow a group.
    pub bounds: BTreeMap<CgroupPath, CpuSet>,
    /// Groups whose value cannot be relied on: they stay as they are, and are tight.
    pub distrusted: BTreeSet<CgroupPath>,
}

impl Level {
    pub(super) fn below(self) -> Level {
        match self {
            Level::Class => Level::Pod,
            Level::Pod | Level::Leaf => Level::Leaf,
        }
    }
}

impl Wanted {
    /// All exclusive CPUs.
    pub(super) fn claims(&self) -> CpuSet {
        self.exclusive.values().copied().collect()
    }

    /// The containers with exclusive CPUs in a group, or the group itself if it is one.
    pub(super) fn exclusive_in<'a>(
        &'a self,
        group: &'a CgroupPath,
    ) -> impl Iterator<Item = (&'a CgroupPath, CpuSet)> {
        let rest = self.exclusive.range(group..);
        rest.take_while(|(other, _)| other.as_str().starts_with(group.as_str()))
            .filter(move |(other, _)| *other == group || other.is_below(group))
            .map(|(group, claim)| (group, *claim))
    }

    pub(super) fn claims_in(&self, group: &CgroupPath) -> CpuSet {
        self.exclusive_in(group).map(|(_, claim)| claim).collect()
    }

    /// Whether one value in this group binds all that is below it.
    pub(super) fn is_loose(&self, group: &CgroupPath) -> bool {
        !self.distrusted.contains(group) && self.exclusive_in(group).next().is_none()
    }

    /// The part of the pool that other programs allow a group whose parent has `above`. Exclusive
    /// CPUs are never part of what they allow. If they allow nothing else, it is no bound; if they
    /// allow nothing of the pool, the group stays on the rest.
    pub(super) fn pool_within(&self, group: &CgroupPath, above: CpuSet) -> CpuSet {
        let Some(bound) = self.bounds.get(group) else { return self.pool };
        let allowed = (*bound & above) - self.claims();
        let both = self.pool & allowed;
        if allowed.is_empty() {
            self.pool
        } else if both.is_empty() {
            allowed
        } else {
            both
        }
    }
}

/// What the ledger says of the cgroups of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    pub(super) wanted: Wanted,
    pub(super) pods: Vec<Placed>,
    /// Containers that run and are to be partitions. One that is not yet is kept by groups.
    pub(super) partitions: Vec<(CgroupPath, CpuSet)>,
    /// Pods of which no cgroup is known, and why.
    pub(super) nowhere: BTreeMap<PodUid, String>,
}

/// A pod that has a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) uid: PodUid,
    pub(super) group: CgroupPath,
    /// Whether a container of it runs, so that the cgroup must exist.
    pub(super) running: bool,
}

impl Layout {
    /// What groups have to be, as far as no other program comes into it.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub fn of(ledger: &Ledger) -> Layout {
        let mut layout = Layout::default();
        layout.wanted.pool = ledger.bound();
        layout.wanted.widest = ledger.possible();
        for pod in ledger.places() {
            layout.add(pod);
        }
        layout
    }

    /// The kubelet puts Burstable and BestEffort pods into a group for their class each, and
    /// Guaranteed pods beside these two. Other pods' groups are not known to hold nothing else.
    fn add(&mut self, pod: PodPlace<'_>) {
        let running = pod.containers.iter().any(|leaf| leaf.running);
        let unnamed = pod.containers.iter().any(|leaf| leaf.group.is_none());
        let wanted = &mut self.wanted;
        let group = pod.group.filter(|_| !(pod.qos == Qos::Unknown && unnamed));
        let Some(group) = group else {
            if !pod.containers.is_empty() {
                let why = format!("the runtime does not name the cgroup of {}", pod.name);
                self.nowhere.insert(pod.uid.clone(), why);
            }
            return;
        };
        for leaf in &pod.containers {
            let Some(path) = leaf.group else { continue };
            match leaf.claim {
                Some(claim) if leaf.partitioned => {
                    wanted.apart.insert(path.clone());
                    if leaf.running {
                        self.partitions.push((path.clone(), claim));
                    }
                }
                Some(claim) => drop(wanted.exclusive.insert(path.clone(), claim)),
                None => {}
            }
            if pod.qos == Qos::Unknown {
                wanted.tops.insert(path.clone(), Level::Leaf);
            }
        }
        match (pod.qos, group.parent()) {
            (Qos::Burstable | Qos::BestEffort, Some(class)) => {
                wanted.tops.insert(class, Level::Class);
            }
            (Qos::Unknown, _) => {}
            _ => drop(wanted.tops.insert(group.clone(), Level::Pod)),
        }
        self.pods.push(Placed { uid: pod.uid.clone(), group, running });
    }
}
