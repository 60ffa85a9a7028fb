//! [`Known`]: pods with their exclusive CPUs and counted memory, from a [`Source`].

use cpuset::{CpuSet, NodeSet};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

/// The exclusive CPUs of a node's pods at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether the source assigns the node's CPUs. Otherwise the kubelet does, and containers without
    /// exclusive CPUs in `pods` keep the kubelet's `cpu_ids`.
    pub assigns: bool,
    /// CPUs that can be exclusive, taken or not, as in the kubelet's `GetAllocatableResources`.
    pub allocatable: CpuSet,
    /// Memory that containers can be given, taken or not; `None` if the source counts none, and the
    /// kubelet's blocks of memory stay.
    pub allocatable_memory: Option<Vec<ContainerMemory>>,
    /// Two pods can have the same namespace and name: an ended pod and its successor.
    pub pods: Vec<Pod>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    /// Whether any of its containers has not ended. Of several pods with the same name, the kubelet's
    /// pod is one that runs, or else the newest.
    pub runs: bool,
    /// When its newest container was created, in nanoseconds since 1970; `None` if unknown.
    pub created_at: Option<i64>,
    /// Containers that exist, and ended ones that keep their CPUs.
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    /// `None` if it shares its CPUs.
    pub exclusive: Option<CpuSet>,
    /// Empty if its memory is not counted.
    pub memory: Vec<ContainerMemory>,
}

/// One type of memory on some NUMA nodes together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerMemory {
    /// `memory`, `hugepages-2Mi`.
    pub kind: String,
    pub bytes: u64,
    pub nodes: NodeSet,
}

/// The program that assigns CPUs. The server asks it for each call, after the kubelet has answered.
pub trait Source: Send + Sync + 'static {
    /// # Errors
    /// Why nothing is known now. The client gets this text with gRPC's code UNAVAILABLE.
    fn known(&self) -> impl Future<Output = Result<Known, String>> + Send;
}

impl Known {
    /// The pods by namespace and name. Of several with one name, the kubelet's pod is the first.
    pub(crate) fn by_name(&self) -> BTreeMap<(&str, &str), VecDeque<&Pod>> {
        let mut named: BTreeMap<_, VecDeque<&Pod>> = BTreeMap::new();
        for pod in &self.pods {
            let name = (pod.namespace.as_str(), pod.name.as_str());
            named.entry(name).or_default().push_back(pod);
        }
        for pods in named.values_mut() {
            pods.make_contiguous().sort_by_key(|pod| Reverse((pod.runs, pod.created_at)));
        }
        named
    }
}

impl Pod {
    pub(crate) fn container(&self, name: &[u8]) -> Option<&Container> {
        self.containers.iter().find(|container| container.name.as_bytes() == name)
    }
}
