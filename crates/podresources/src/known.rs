//! [`Known`]: pods and their exclusive CPUs; [`Source`]: who knows them.

use cpuset::CpuSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

/// Who assigned which exclusive CPUs, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether this program assigns the node's CPUs; otherwise the kubelet does, and its `cpu_ids`
    /// count for containers without exclusive CPUs here.
    pub assigns: bool,
    /// CPUs that can be exclusive, taken or not: what the kubelet's `GetAllocatableResources` means.
    pub allocatable: CpuSet,
    /// Two can have one namespace and name: an ended pod and its successor.
    pub pods: Vec<Pod>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    /// Whether a container of it has not ended. Of pods with one name, the kubelet's is the one that
    /// runs, then the newest.
    pub runs: bool,
    /// When its newest container was created, in nanoseconds since 1970; `None` if unknown.
    pub created_at: Option<i64>,
    /// The containers that exist, or keep their CPUs.
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    /// `None` if it shares its CPUs.
    pub exclusive: Option<CpuSet>,
}

/// Where the server asks for each call, after the kubelet has answered.
pub trait Source: Send + Sync + 'static {
    /// # Errors
    /// Why nothing is known now. The client gets it, with gRPC's code UNAVAILABLE.
    fn known(&self) -> impl Future<Output = Result<Known, String>> + Send;
}

impl Known {
    /// The pods by namespace and name, the kubelet's first.
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
