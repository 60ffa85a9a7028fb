//! `take.jsonl`: one allocation from a free set.

use super::{Machines, Outcome};
use cpuset::CpuSet;
use placement::kubelet::take;
use placement::{Strategy, UncoreOrder};
use serde::Deserialize;
use serde::de::IgnoredAny;
use topology::Topology;

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    topology: String,
    available: String,
    n: usize,
    strategy: String,
    uncore: bool,
    distribute: bool,
    group: usize,
    cpus: Option<String>,
    error: Option<String>,
    /// The kubelet's answer has CPUs that were not available.
    r#unsafe: Option<IgnoredAny>,
    /// The kubelet's answer has another number of CPUs.
    wrong_size: Option<IgnoredAny>,
    /// The kubelet's answer without a defect in its search.
    combo_alias: Option<IgnoredAny>,
}

pub(super) fn check(vector: Vector, machines: &Machines) -> Outcome {
    let (Some(topology), Ok(available)) =
        (machines.get(&vector.topology), vector.available.parse::<CpuSet>())
    else {
        return Outcome::Failed(format!("{}: not a vector: {vector:?}", vector.id));
    };
    let uncore = vector.uncore.then_some(UncoreOrder::FewestFree);
    let strategy = match (vector.strategy.as_str(), vector.distribute) {
        ("packed", false) => Strategy::Packed { uncore },
        ("packed", true) => Strategy::AcrossNuma { group: vector.group },
        ("spread", false) => Strategy::Spread,
        _ => return Outcome::Failed(format!("{}: unknown strategy: {vector:?}", vector.id)),
    };
    let answer = take(topology, &available, vector.n, strategy);
    if vector.r#unsafe.is_some() || vector.wrong_size.is_some() || vector.combo_alias.is_some() {
        let legal = answer.is_ok_and(|cpus| cpus.len() == vector.n && cpus.is_subset(&available));
        return if legal {
            Outcome::Excepted
        } else {
            Outcome::Failed(format!("{}: {answer:?} for {vector:?}", vector.id))
        };
    }
    let (text, expect) = match &answer {
        Ok(cpus) => (cpus.to_string(), &vector.cpus),
        Err(error) => (error.to_string(), &vector.error),
    };
    let theirs = vector.cpus.as_ref().and_then(|cpus| cpus.parse::<CpuSet>().ok());
    let equally_good = match (&answer, theirs) {
        (Ok(ours), Some(theirs)) if vector.distribute => {
            is_as_balanced(topology, &available, ours, &theirs)
        }
        _ => false,
    };
    if Some(&text) == expect.as_ref() || equally_good {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{}: {text} for {vector:?}", vector.id))
    }
}

/// Whether two distributions over NUMA nodes are equally good: as many CPUs, as many nodes, and
/// equally balanced free CPUs. Of several equally good ones the kubelet means to keep the first,
/// but overwrites it in part.
pub(super) fn is_as_balanced(
    topology: &Topology,
    available: &CpuSet,
    ours: &CpuSet,
    theirs: &CpuSet,
) -> bool {
    balance(topology, available, ours) == balance(topology, available, theirs)
}

/// The number of CPUs and of their nodes, a measure of the imbalance of the free CPUs, and whether
/// the CPUs were available.
fn balance(topology: &Topology, available: &CpuSet, cpus: &CpuSet) -> (usize, usize, usize, bool) {
    let free = *available - *cpus;
    let nodes = topology.nodes();
    let used = nodes.iter().filter(|node| !(node.cpus & *cpus).is_empty()).count();
    let squares = nodes.iter().map(|node| (node.cpus & free).len().pow(2)).sum();
    (cpus.len(), used, squares, cpus.is_subset(available))
}
