//! [`Known`]: what the plugin knows of pods and their exclusive CPUs, from a view of the ledger.

use cpuset::CpuSet;
use ledger::{ContainerView, Phase, Policy, Stance, View};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct Known<'a> {
    /// Whether the plugin assigns the node's CPUs; otherwise the kubelet does, and its `cpu_ids`
    /// count for containers without a claim here.
    pub(super) assigns: bool,
    /// CPUs that can be exclusive, taken or not: what the kubelet's `GetAllocatableCPUs` means.
    pub(super) allocatable: CpuSet,
    /// In order of pod uid.
    pub(super) pods: Vec<KnownPod<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct KnownPod<'a> {
    /// All containers of the pod that exist, or keep their CPUs. Never empty.
    pub(super) containers: &'a [ContainerView],
}

impl<'a> Known<'a> {
    pub(super) fn of(view: &View) -> Known<'_> {
        let allocatable = match view.settings.policy {
            Policy::Static => view.topology.online() - view.settings.placement.reserved,
            Policy::None => CpuSet::EMPTY,
        };
        let pods = view.containers.chunk_by(|one, next| one.pod.uid == next.pod.uid);
        Known {
            assigns: view.stance == Stance::Assign,
            allocatable,
            pods: pods.map(|containers| KnownPod { containers }).collect(),
        }
    }

    /// The pods by namespace and name. An ended pod and its successor can have the same: the one
    /// that runs comes first, then the newest.
    pub(super) fn by_name(&self) -> BTreeMap<(&'a str, &'a str), VecDeque<KnownPod<'a>>> {
        let mut named: BTreeMap<_, VecDeque<KnownPod<'a>>> = BTreeMap::new();
        for pod in &self.pods {
            named.entry((pod.namespace(), pod.name())).or_default().push_back(*pod);
        }
        for pods in named.values_mut() {
            pods.make_contiguous().sort_by_key(|pod| std::cmp::Reverse(pod.age()));
        }
        named
    }
}

impl<'a> KnownPod<'a> {
    pub(super) fn name(&self) -> &'a str {
        &self.containers[0].pod.name
    }

    pub(super) fn namespace(&self) -> &'a str {
        &self.containers[0].pod.namespace
    }

    pub(super) fn container(&self, name: &[u8]) -> Option<&'a ContainerView> {
        self.containers.iter().find(|container| container.name.as_bytes() == name)
    }

    /// Whether it runs, and when its newest container was created.
    fn age(&self) -> (bool, Option<i64>) {
        let runs = self.containers.iter().any(|container| container.phase != Phase::Ended);
        (runs, self.containers.iter().filter_map(|container| container.created_at).max())
    }
}
