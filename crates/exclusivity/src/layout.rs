//! From pods and containers to their cgroups, and back.

use cgroups::{
    CgroupLevel, ContainerCpus, ContainerGroup, ForeignPartitions, Hierarchy, Layout, PodGroup,
};
use cpuset::{CgroupPath, CpuSet};
use ledger::{LeafPlace, Ledger, PodPlace, PodUid, Qos};
use std::collections::BTreeMap;

/// What the ledger says of the cgroups of a node.
#[derive(Debug)]
pub struct NodeLayout<'a> {
    pub groups: Layout,
    /// The pods of `groups`, in that order.
    pods: Vec<&'a PodUid>,
    /// Pods without a known cgroup, and why.
    without_cgroup: BTreeMap<PodUid, String>,
}

impl<'a> NodeLayout<'a> {
    pub fn of(ledger: &'a Ledger) -> NodeLayout<'a> {
        let mut layout = NodeLayout {
            groups: Layout::new(ledger.bound(), ledger.possible()),
            pods: Vec::new(),
            without_cgroup: BTreeMap::new(),
        };
        for pod in ledger.places() {
            layout.add(pod);
        }
        layout
    }

    /// The kubelet puts Burstable and BestEffort pods into a cgroup for their class each, and
    /// Guaranteed pods next to these two. Other pods' cgroups may hold anything else.
    fn add(&mut self, pod: PodPlace<'a>) {
        // A pod that no kubelet has made is set container by container, so all must be known.
        let unnamed = pod.containers.iter().any(|leaf| leaf.group.is_none());
        let group = if pod.qos == Qos::Unknown && unnamed { None } else { pod.group };
        let Some(group) = group else {
            if !pod.containers.is_empty() {
                let why = format!("the runtime does not name the cgroup of {}", pod.name);
                self.without_cgroup.insert(pod.uid.clone(), why);
            }
            return;
        };
        let top = match pod.qos {
            Qos::Burstable | Qos::BestEffort => CgroupLevel::Class,
            Qos::Guaranteed => CgroupLevel::Pod,
            Qos::Unknown => CgroupLevel::Leaf,
        };
        let pod_group = PodGroup {
            group,
            top,
            pool: pod.bound,
            own_pool: pod.own_pool,
            kept_from_siblings: pod.kept_from_siblings,
            running: pod.containers.iter().any(|leaf| leaf.running),
        };
        self.groups.add(pod_group, pod.containers.iter().filter_map(container));
        self.pods.push(pod.uid);
    }

    /// Pods that the runtime has to keep in the pool, and why: those without a known cgroup, and those
    /// with these cgroups.
    pub fn unbound(mut self, groups: &BTreeMap<CgroupPath, String>) -> BTreeMap<PodUid, String> {
        if groups.is_empty() {
            return self.without_cgroup;
        }
        for (pod, group) in self.pods.iter().zip(self.groups.pods()) {
            if let Some(why) = groups.get(group) {
                self.without_cgroup.insert((*pod).clone(), why.clone());
            }
        }
        self.without_cgroup
    }
}

fn container<'a>(leaf: &LeafPlace<'a>) -> Option<ContainerGroup<'a>> {
    let cpus = match leaf.exclusive {
        None => ContainerCpus::Shared,
        // Nothing in a partition can run on shared CPUs.
        Some(cpus) if leaf.mixed => ContainerCpus::Mixed(cpus),
        Some(cpus) if leaf.partitioned => ContainerCpus::Partition(cpus),
        Some(cpus) => ContainerCpus::Exclusive(cpus),
    };
    Some(ContainerGroup { group: leaf.group?, cpus })
}

/// Partitions of other programs: those that no claim is for, on a machine with these CPUs online.
pub fn foreign_partitions(on: &Hierarchy, online: CpuSet, ledger: &Ledger) -> ForeignPartitions {
    let claimed = ledger.claims().map(|claim| claim.id.to_string());
    cgroups::foreign_partitions(on, online - ledger.held_by_kernel(), claimed)
}
