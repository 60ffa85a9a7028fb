//! What is known of assignments besides what is set: claims of an earlier life, and the kubelet's.

use super::Claim;
use super::hands_off::{KubeletClaim, Named};
use super::model::{Container, PodUid};
use crate::cpuset::CpuSet;
use std::collections::HashMap;

/// For one adoption of a node.
#[derive(Debug, Default)]
pub(super) struct Memory {
    ours: HashMap<(PodUid, String), Claim>,
    kubelet: HashMap<Named, Noted>,
}

/// What the kubelet noted for a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noted {
    pub(super) cpus: CpuSet,
    /// Whether another container of its pod has some of them as well: one of the two has ended, or the pod has resources
    /// of its own and these are what it shares.
    pub(super) doubtful: bool,
}

impl Memory {
    /// Of two claims of one container the later one counts. The kubelet's that overlap with those of another pod are none:
    /// it gave them out twice by mistake.
    pub(super) fn new(ours: Vec<Claim>, kubelet: Vec<KubeletClaim>) -> Memory {
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
        Memory {
            ours: ours.into_iter().map(|claim| (key(&claim), claim)).collect(),
            kubelet: kubelet
                .into_iter()
                .filter(|claim| claim.cpus.is_disjoint(&twice))
                .map(|KubeletClaim { of, cpus }| {
                    (of, Noted { cpus, doubtful: !cpus.is_disjoint(&twice_in_pod) })
                })
                .collect(),
        }
    }

    /// What was decided here for a container of this name.
    pub(super) fn ours(&self, uid: &PodUid, container: &Container) -> Option<&Claim> {
        self.ours.get(&(uid.clone(), container.name.clone()))
    }

    /// What the kubelet noted for a container.
    pub(super) fn kubelet(&self, uid: &PodUid, container: &Container) -> Option<Noted> {
        let by_name = Named::Container(uid.clone(), container.name.clone());
        let found = self.kubelet.get(&by_name);
        found.or_else(|| self.kubelet.get(&Named::Id(container.id.clone()))).copied()
    }

    /// Ours in order of pod uid and name, and the kubelet's that have a name and are beyond doubt.
    pub(super) fn parts(&self) -> (Vec<Claim>, Vec<(PodUid, String, CpuSet)>) {
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
