//! [`Figures`]: integer sums of one run, which add up over seeds.

use placement::quality::LiveScore;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// Sums over the scored arrivals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    /// Scores of the running containers, taken after each arrival.
    pub(crate) live: LiveScore,
    /// Exclusive CPUs, added up after each arrival.
    used: u64,
    /// CPUs that may be exclusive, added up after each arrival.
    capacity: u64,
    pub(super) refused: Refused,
    pub(super) moved: MoveTotals,
    pub(crate) decision_times: Times,
    /// Times of planning moves.
    pub(crate) plan_times: Times,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refused {
    /// Refusals with as many CPUs free as requested.
    pub(super) enough: u64,
    pub(super) too_few: u64,
}

/// Moves of running containers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MoveTotals {
    pub(super) containers: u64,
    pub(super) cpus: u64,
}

impl Figures {
    /// Adds the use of the CPUs after an arrival.
    pub(super) fn use_of(&mut self, used: usize, capacity: usize) {
        self.used += used as u64;
        self.capacity += capacity as u64;
    }

    /// Percentage of the containers that fit into an uncore cache and are in one.
    pub(crate) fn aligned(&self) -> f64 {
        100.0 * ratio(self.live.in_one_uncore_cache, self.live.fit_one_uncore_cache)
    }

    /// Per container.
    pub(crate) fn excess_caches(&self) -> f64 {
        ratio(self.live.excess_uncore_caches, self.live.containers)
    }

    /// Per container.
    pub(crate) fn excess_nodes(&self) -> f64 {
        ratio(self.live.excess_numa_nodes, self.live.containers)
    }

    /// Per container.
    pub(crate) fn shared_cores(&self) -> f64 {
        ratio(self.live.shared_cores, self.live.containers)
    }

    /// Percentage of the CPUs.
    pub(crate) fn used(&self) -> f64 {
        100.0 * ratio(self.used, self.capacity)
    }

    /// Percentage of the arrivals.
    pub(crate) fn refused_with_enough(&self) -> f64 {
        100.0 * ratio(self.refused.enough, self.live.samples)
    }

    /// Container moves per 100 arrivals.
    pub(crate) fn moved_containers(&self) -> f64 {
        100.0 * ratio(self.moved.containers, self.live.samples)
    }

    /// CPUs of moved containers per 100 arrivals.
    pub(crate) fn moved_cpus(&self) -> f64 {
        100.0 * ratio(self.moved.cpus, self.live.samples)
    }

    /// Percentage of the arrivals.
    pub(crate) fn refused_with_too_few(&self) -> f64 {
        100.0 * ratio(self.refused.too_few, self.live.samples)
    }
}

fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, other: &Figures) {
        let LiveScore {
            samples,
            containers,
            fit_one_uncore_cache,
            in_one_uncore_cache,
            excess_uncore_caches,
            excess_numa_nodes,
            shared_cores,
        } = &other.live;
        self.live.samples += samples;
        self.live.containers += containers;
        self.live.fit_one_uncore_cache += fit_one_uncore_cache;
        self.live.in_one_uncore_cache += in_one_uncore_cache;
        self.live.excess_uncore_caches += excess_uncore_caches;
        self.live.excess_numa_nodes += excess_numa_nodes;
        self.live.shared_cores += shared_cores;
        self.used += other.used;
        self.capacity += other.capacity;
        self.refused.enough += other.refused.enough;
        self.refused.too_few += other.refused.too_few;
        self.moved.containers += other.moved.containers;
        self.moved.cpus += other.moved.cpus;
        self.decision_times += &other.decision_times;
        self.plan_times += &other.plan_times;
    }
}

/// The integers, for comparisons: everything but times.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { live, used, capacity, refused, moved, .. } = self;
        write!(
            f,
            "samples={} containers={} fit={} in-one={} excess-caches={} excess-nodes={} \
             shared-cores={} used={used}/{capacity} refused={}+{} moved={}/{}",
            live.samples,
            live.containers,
            live.fit_one_uncore_cache,
            live.in_one_uncore_cache,
            live.excess_uncore_caches,
            live.excess_numa_nodes,
            live.shared_cores,
            refused.enough,
            refused.too_few,
            moved.containers,
            moved.cpus,
        )
    }
}

/// A histogram of durations; the index is in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Vec<u64>);

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        let micros = time.as_micros() as usize;
        if self.0.len() <= micros {
            self.0.resize(micros + 1, 0);
        }
        self.0[micros] += 1;
    }

    /// The 99th percentile in microseconds, rounded up; `None` for an empty histogram.
    pub(crate) fn p99(&self) -> Option<usize> {
        let total: u64 = self.0.iter().sum();
        let mut so_far = 0;
        for (micros, times) in self.0.iter().enumerate() {
            so_far += times;
            if so_far > 0 && so_far * 100 >= total * 99 {
                return Some(micros + 1);
            }
        }
        None
    }
}

impl AddAssign<&Times> for Times {
    fn add_assign(&mut self, other: &Times) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (sum, times) in self.0.iter_mut().zip(&other.0) {
            *sum += times;
        }
    }
}
