//! `merge.jsonl`: one NUMA affinity from the hints of several resources.

use super::Outcome;
use placement::kubelet::{Affinity, ResourceHints, merge};
use placement::{Distances, Hint, NumaNodes, TopologyPolicy};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Vector {
    id: String,
    nodes: Vec<usize>,
    policy: String,
    tm_options: BTreeMap<String, String>,
    distances: Option<Vec<Vec<u32>>>,
    providers: Vec<Option<BTreeMap<String, Option<Vec<VectorHint>>>>>,
    #[serde(default)]
    hint: VectorHint,
    #[serde(default)]
    admit: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct VectorHint {
    mask: Option<Vec<usize>>,
    preferred: bool,
}

impl VectorHint {
    fn hint(&self) -> Hint {
        let nodes = self.mask.as_ref().map(|mask| mask.iter().copied().collect());
        Hint { nodes, preferred: self.preferred }
    }
}

/// The arguments of [`merge`].
pub(crate) struct Question {
    pub(crate) policy: TopologyPolicy,
    pub(crate) numa: NumaNodes,
    pub(crate) resources: Vec<ResourceHints>,
}

impl Vector {
    pub(crate) fn question(&self) -> Option<Question> {
        let policy = match self.policy.as_str() {
            "best-effort" => TopologyPolicy::BestEffort,
            "restricted" => TopologyPolicy::Restricted,
            "single-numa-node" => TopologyPolicy::SingleNumaNode,
            _ => return None,
        };
        let closest =
            self.tm_options.get("prefer-closest-numa-nodes").is_some_and(|on| on == "true");
        let rows = self.distances.iter().flatten().map(Vec::as_slice);
        let rows = self.nodes.iter().copied().zip(rows);
        let distances = if closest { Some(Distances::new(rows)) } else { None };
        let numa = NumaNodes { all: self.nodes.iter().copied().collect(), distances };
        let mut resources = Vec::new();
        for provider in &self.providers {
            match provider {
                Some(hints) if !hints.is_empty() => {
                    for list in hints.values() {
                        let hints = list.as_ref();
                        resources
                            .push(hints.map(|list| list.iter().map(VectorHint::hint).collect()));
                    }
                }
                _ => resources.push(None),
            }
        }
        Some(Question { policy, numa, resources })
    }
}

pub(super) fn check(vector: Vector) -> Outcome {
    let Some(Question { policy, numa, resources }) = vector.question() else {
        return Outcome::Failed(format!("{}: not a vector: {vector:?}", vector.id));
    };
    let affinity = merge(policy, &numa, &resources);
    if affinity == (Affinity { hint: vector.hint.hint(), admit: vector.admit }) {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{}: {affinity:?} for {vector:?}", vector.id))
    }
}
