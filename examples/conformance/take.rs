//! `take.jsonl`: one allocation from a free set.

use super::{Machines, Outcome};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::placement::{Strategy, UncoreOrder, take};
use serde::Deserialize;
use serde::de::IgnoredAny;

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
    /// CPUs in the kubelet's answer that were not available.
    r#unsafe: Option<IgnoredAny>,
    /// The kubelet's answer is of another size.
    wrong_size: Option<IgnoredAny>,
    /// What the kubelet would have answered without a defect of its search.
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
        return match legal {
            true => Outcome::Excepted,
            false => Outcome::Failed(format!("{}: {answer:?} for {vector:?}", vector.id)),
        };
    }
    let (text, expect) = match &answer {
        Ok(cpus) => (cpus.to_string(), &vector.cpus),
        Err(error) => (error.to_string(), &vector.error),
    };
    match Some(&text) == expect.as_ref() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!("{}: {text} for {vector:?}", vector.id)),
    }
}
