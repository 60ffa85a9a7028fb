//! `hints.jsonl`: which sets of NUMA nodes can hold a request, in the kubelet's order.

use super::{Machines, Outcome};
use cpuset::CpuSet;
use placement::Hint;
use placement::kubelet::Demand;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    topology: String,
    available: String,
    reusable: String,
    n: usize,
    align_by_socket: bool,
    hints: Vec<(Vec<usize>, u8)>,
}

pub(super) fn check(vector: Vector, machines: &Machines) -> Outcome {
    let (Some(topology), Ok(available), Ok(reusable)) = (
        machines.get(&vector.topology),
        vector.available.parse::<CpuSet>(),
        vector.reusable.parse::<CpuSet>(),
    ) else {
        return Outcome::Failed(format!("{}: not a vector: {vector:?}", vector.id));
    };
    let demand = Demand::new(topology, &available, &reusable, vector.n, vector.align_by_socket);
    let hints = demand.enumerate();
    let expect = vector.hints.iter().map(|(nodes, preferred)| Hint {
        nodes: Some(nodes.iter().copied().collect()),
        preferred: *preferred == 1,
    });
    if hints.iter().copied().eq(expect) {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{}: {hints:?} for {vector:?}", vector.id))
    }
}
