//! What confirms an assignment: the checkpoint's claims and the kubelet's.

use crate::claim::Claim;
use crate::claim::{KubeletClaim, Named};
use crate::model::{Container, PodUid};
use cpuset::CpuSet;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Evidence {
    ours: HashMap<(PodUid, String), Claim>,
    kubelet: HashMap<Named, Noted>,
    /// What is set for running containers that are entitled to no exclusive CPUs.
    pools: Vec<CpuSet>,
    common: CpuSet,
}

/// The kubelet's claim of a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) cpus: CpuSet,
    /// Whether another container of its pod has some of them as well: one of the two has ended, or
    /// these are the shared CPUs of a pod with resources of its own.
    pub(crate) doubtful: bool,
}

impl Evidence {
    /// Of two claims of one container the later one counts. Claims of the kubelet that overlap with
    /// another pod's do not: it gave these CPUs out twice by mistake.
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
                *(if *other == pod { &mut twice_in_pod } else { &mut twice }) |= both;
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
                    (of, Noted { cpus, doubtful: !cpus.is_disjoint(&twice_in_pod) })
                })
                .collect(),
            pools: Vec::new(),
            common: CpuSet::EMPTY,
        }
    }

    /// Adds what is set for running containers, and whether each of them is entitled to exclusive
    /// CPUs.
    pub(crate) fn with_sets(mut self, sets: impl Iterator<Item = (CpuSet, bool)>) -> Evidence {
        let mut seen = CpuSet::EMPTY;
        for (set, entitled) in sets {
            self.common |= seen & set;
            seen |= set;
            if !entitled && !self.pools.contains(&set) {
                self.pools.push(set);
            }
        }
        self
    }

    /// Whether a container that is entitled to no exclusive CPUs has exactly these.
    pub(crate) fn is_pool(&self, cpus: &CpuSet) -> bool {
        self.pools.contains(cpus)
    }

    /// Whether some of these are set for more than one container.
    pub(crate) fn is_common(&self, cpus: &CpuSet) -> bool {
        !cpus.is_disjoint(&self.common)
    }

    /// Whether the ledger or the kubelet made these CPUs exclusive to this instance.
    pub(crate) fn names(&self, uid: &PodUid, container: &Container, set: &CpuSet) -> bool {
        let ours = self.ours(uid, container).filter(|claim| claim.id == container.id);
        let kubelet = self.kubelet(uid, container).filter(|noted| !noted.doubtful);
        ours.is_some_and(|claim| claim.cpus == *set) || kubelet.is_some_and(|n| n.cpus == *set)
    }

    pub(crate) fn ours(&self, uid: &PodUid, container: &Container) -> Option<&Claim> {
        self.of_name(uid, &container.name)
    }

    pub(crate) fn of_name(&self, uid: &PodUid, name: &str) -> Option<&Claim> {
        self.ours.get(&(uid.clone(), name.to_owned()))
    }

    pub(crate) fn kubelet(&self, uid: &PodUid, container: &Container) -> Option<Noted> {
        let by_name = Named::Container(uid.clone(), container.name.clone());
        let found = self.kubelet.get(&by_name);
        found.or_else(|| self.kubelet.get(&Named::Id(container.id.clone()))).copied()
    }

    /// The ledger's claims in order of pod uid and name, and the kubelet's certain ones with a
    /// name.
    pub(crate) fn parts(&self) -> (Vec<Claim>, Vec<(PodUid, String, CpuSet)>) {
        let mut ours: Vec<Claim> = self.ours.values().cloned().collect();
        ours.sort_by(|a, b| (&a.pod_uid, &a.container).cmp(&(&b.pod_uid, &b.container)));
        let named = |(of, noted): (&Named, &Noted)| match of {
            Named::Container(uid, name) if !noted.doubtful => {
                Some((uid.clone(), name.clone(), noted.cpus))
            }
            Named::Container(..) | Named::Id(_) => None,
        };
        let mut kubelet: Vec<_> = self.kubelet.iter().filter_map(named).collect();
        kubelet.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        (ours, kubelet)
    }
}
