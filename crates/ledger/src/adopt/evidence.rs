//! [`Evidence`]: what confirms that a running container's CPUs are exclusive to it.

use crate::claim::{Claim, KubeletClaim, Named};
use crate::model::{Container, PodUid};
use cpuset::CpuSet;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The ledger's claims, by pod and container name.
    ours: HashMap<(PodUid, String), Claim>,
    kubelet: HashMap<Named, KubeletRecord>,
    /// The sets of running containers that are entitled to no exclusive CPUs.
    pools: Vec<CpuSet>,
    /// CPUs that are set for more than one running container.
    common: CpuSet,
}

/// The kubelet's claim of a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KubeletRecord {
    pub(crate) cpus: CpuSet,
    /// Whether the kubelet recorded some of them for another container of the pod, too: one of the
    /// two has ended, or they are the shared CPUs of a pod with pod-level resources.
    pub(crate) doubtful: bool,
}

impl Evidence {
    /// The later one of two claims of the same container counts. Claims of the kubelet that overlap
    /// with another pod's do not count: it gave these CPUs out twice by mistake.
    pub(crate) fn new(ours: Vec<Claim>, kubelet: Vec<KubeletClaim>) -> Evidence {
        let mut pods: HashMap<Option<&PodUid>, CpuSet> = HashMap::new();
        let (mut twice, mut twice_in_pod) = (CpuSet::EMPTY, CpuSet::EMPTY);
        for claim in &kubelet {
            let pod = match &claim.of {
                Named::Container(uid, _) => Some(uid),
                Named::Id(_) => None,
            };
            for (other, cpus) in &pods {
                let both = *cpus & claim.cpus;
                if *other == pod {
                    twice_in_pod |= both;
                } else {
                    twice |= both;
                }
            }
            *pods.entry(pod).or_default() |= claim.cpus;
        }
        let key = |claim: &Claim| (claim.pod_uid.clone(), claim.container.clone());
        Evidence {
            ours: ours.into_iter().map(|claim| (key(&claim), claim)).collect(),
            kubelet: kubelet
                .into_iter()
                .filter(|claim| claim.cpus.is_disjoint(&twice))
                .map(|KubeletClaim { of, cpus }| {
                    (of, KubeletRecord { cpus, doubtful: !cpus.is_disjoint(&twice_in_pod) })
                })
                .collect(),
            pools: Vec::new(),
            common: CpuSet::EMPTY,
        }
    }

    /// Adds the CPUs that are set for each running container, and whether it is entitled to
    /// exclusive CPUs.
    pub(crate) fn with_sets(mut self, sets: impl Iterator<Item = (CpuSet, bool)>) -> Evidence {
        let mut earlier = CpuSet::EMPTY;
        for (set, entitled) in sets {
            self.common |= earlier & set;
            earlier |= set;
            if !entitled && !self.pools.contains(&set) {
                self.pools.push(set);
            }
        }
        self
    }

    /// Whether exactly these CPUs are set for a container that is entitled to no exclusive ones.
    pub(crate) fn is_pool(&self, cpus: &CpuSet) -> bool {
        self.pools.contains(cpus)
    }

    /// Whether some of these are set for more than one container.
    pub(crate) fn is_common(&self, cpus: &CpuSet) -> bool {
        !cpus.is_disjoint(&self.common)
    }

    /// Whether the ledger or the kubelet made these CPUs exclusive to this instance.
    pub(crate) fn confirms(&self, uid: &PodUid, container: &Container, set: &CpuSet) -> bool {
        let ours = self.ours(uid, container).filter(|claim| claim.id == container.id);
        let kubelet = self.kubelet(uid, container).filter(|record| !record.doubtful);
        ours.is_some_and(|claim| claim.cpus == *set) || kubelet.is_some_and(|one| one.cpus == *set)
    }

    pub(crate) fn ours(&self, uid: &PodUid, container: &Container) -> Option<&Claim> {
        self.of_name(uid, &container.name)
    }

    pub(crate) fn of_name(&self, uid: &PodUid, name: &str) -> Option<&Claim> {
        self.ours.get(&(uid.clone(), name.to_owned()))
    }

    pub(crate) fn kubelet(&self, uid: &PodUid, container: &Container) -> Option<KubeletRecord> {
        let by_name = Named::Container(uid.clone(), container.name.clone());
        let by_id = || self.kubelet.get(&Named::Id(container.id.clone()));
        self.kubelet.get(&by_name).or_else(by_id).copied()
    }

    /// The ledger's claims of containers, and those of the kubelet that are certain and name a
    /// container; both in order of pod uid and container name.
    pub(crate) fn parts(&self) -> (Vec<Claim>, Vec<(PodUid, String, CpuSet)>) {
        let of_containers =
            self.ours.values().filter(|claim| !claim.is_of_own_pool(&claim.pod_uid));
        let mut ours: Vec<Claim> = of_containers.cloned().collect();
        ours.sort_by(|a, b| (&a.pod_uid, &a.container).cmp(&(&b.pod_uid, &b.container)));
        let named = |(of, record): (&Named, &KubeletRecord)| match of {
            Named::Container(uid, name) if !record.doubtful => {
                Some((uid.clone(), name.clone(), record.cpus))
            }
            Named::Container(..) | Named::Id(_) => None,
        };
        let mut kubelet: Vec<_> = self.kubelet.iter().filter_map(named).collect();
        kubelet.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        (ours, kubelet)
    }
}
