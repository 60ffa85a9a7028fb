//! Pods that come and go, from a seed.

use super::machines::NamedMachine;
use super::mixes::Size;
use super::quantiles::{EXPONENTIAL, LOG_NORMAL};
use ledger::{ContainerKind, Qos};
use simulate::{ContainerSpec, PodSpec, Workload};

/// The mean time between two arrivals; every other time follows from it.
const GAP: u64 = 1_000_000;

/// How long a benchmark runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub(crate) arrivals: usize,
    /// Arrivals that fill the machine and are not scored.
    pub(crate) warm_up: usize,
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// One of the quantiles.
    fn one_of(&mut self, quantiles: &[u64; 64]) -> u64 {
        quantiles[self.below(64) as usize]
    }
}

/// Lifetimes are scaled so that pods request `load` percent of the capacity on average.
pub(super) fn workload(
    machine: &NamedMachine,
    sizes: &[Size],
    load: u64,
    seed: u64,
    arrivals: usize,
) -> Workload {
    let weights: u64 = sizes.iter().map(|size| size.weight).sum();
    let weighted: u64 = sizes.iter().map(|size| size.cpus as u64 * size.weight).sum();
    let scale =
        u128::from(GAP) * u128::from(load) * machine.capacity() as u128 * u128::from(weights);
    let divisor = 100 * u128::from(mean(&LOG_NORMAL)) * u128::from(weighted);
    let mut random = Random(seed);
    let mut now = 0;
    let mut pods = Vec::with_capacity(arrivals);
    for number in 0..arrivals {
        // The order of these draws is part of the benchmark.
        now += random.one_of(&EXPONENTIAL) * GAP / mean(&EXPONENTIAL);
        let cpus = pick(sizes, random.below(weights));
        let life = u128::from(random.one_of(&LOG_NORMAL)) * scale / divisor;
        pods.push(pod(number, cpus, now, now + life as u64));
    }
    Workload { pods, ignored: Vec::new() }
}

fn mean(quantiles: &[u64; 64]) -> u64 {
    quantiles.iter().sum::<u64>() / 64
}

/// The size whose share of the sum of all weights contains `x`.
fn pick(sizes: &[Size], mut x: u64) -> u64 {
    for size in sizes {
        if x < size.weight {
            return size.cpus as u64;
        }
        x -= size.weight;
    }
    unreachable!("x is below the sum of the weights")
}

fn pod(number: usize, cpus: u64, arrive: u64, depart: u64) -> PodSpec {
    let container = ContainerSpec {
        name: "main".to_owned(),
        kind: ContainerKind::App,
        request: cpus * 1000,
        limit: cpus * 1000,
        memory: Default::default(),
    };
    PodSpec {
        namespace: "default".to_owned(),
        name: format!("pod-{number}"),
        qos: Qos::Guaranteed,
        annotations: Default::default(),
        containers: vec![container],
        arrive,
        depart: Some(depart),
    }
}
