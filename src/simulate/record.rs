//! [`Recorder`]: the figures of a simulation, added up while it runs.

use super::engine::{Happening, OUT_OF_CPU, Observer};
use super::workload::Time;
use crate::cpuset::CpuSet;
use crate::ledger::Ledger;
use crate::observe::fragmentation::fragmentation;
use crate::topology::{Tally, Topology};
use std::collections::BTreeMap;

/// How many samples of the course of time are kept.
pub const SAMPLES: usize = 60;

/// What is counted, and integrated over time.
#[derive(Debug)]
pub struct Recorder {
    /// Pods that were not let onto the node, and containers that were not let in, by reason; again
    /// and again counts once.
    pub refused: BTreeMap<&'static str, usize>,
    /// How often a container that had been refused was refused again.
    pub refused_again: usize,
    /// Pods all of whose containers were let in.
    pub complete: usize,
    /// Pods of those that had to wait.
    pub waited: Waited,
    /// Containers without exclusive CPUs that were let in.
    pub shared: usize,
    /// How exclusive CPUs lay when they were given.
    pub alignment: Alignment,
    /// Changes for containers that existed already.
    pub updates: usize,
    /// Exclusive CPUs over time.
    pub exclusive: Course,
    /// Fragmentation of free CPUs by uncore cache over time.
    pub by_cache: Course,
    /// The same by NUMA node.
    pub by_node: Course,
    /// CPUs that may be exclusive at all.
    assignable: Tally,
    /// The time between two samples.
    step: Time,
}

/// Pods that got in later than they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waited {
    /// How many.
    pub pods: usize,
    /// For how long, all together.
    pub sum: Time,
    /// The longest.
    pub most: Time,
}

/// Exclusive sets counted: how many there were, and how many lay in as few domains as sets of their
/// size can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alignment {
    /// Containers that got exclusive CPUs.
    pub containers: usize,
    /// In as few sockets as so many CPUs need.
    pub sockets: usize,
    /// In as few NUMA nodes.
    pub numa_nodes: usize,
    /// In as few uncore caches.
    pub uncore_caches: usize,
    /// Of whole cores.
    pub whole_cores: usize,
}

/// A value over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// The value times the time it lasted.
    sum: f64,
    time: Time,
    /// The largest value that lasted.
    pub most: f64,
    /// The value at regular moments, the first of them at the beginning.
    pub samples: Vec<f64>,
}

impl Course {
    /// The mean over time; 0 if no time has passed.
    pub fn mean(&self) -> f64 {
        if self.time == 0 { 0.0 } else { self.sum / self.time as f64 }
    }

    fn lasted(&mut self, value: f64, (from, to): (Time, Time), step: Time) {
        self.sum += value * (to - from) as f64;
        self.time += to - from;
        self.most = self.most.max(value);
        // Samples are at multiples of the step, up to where this value ends.
        while self.samples.len() < SAMPLES && self.samples.len() as Time * step < to {
            self.samples.push(value);
        }
    }
}

impl Alignment {
    fn count(&mut self, topology: &Topology, cpus: &CpuSet) {
        let (lie, all) = (topology.tally(cpus), topology.sizes());
        let least = |lie: &[usize], all: &[usize]| {
            let mut sizes = all.to_vec();
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            let mut rest = cpus.len();
            let needed = sizes.iter().take_while(|size| {
                let more = rest > 0;
                rest = rest.saturating_sub(**size);
                more
            });
            usize::from(lie.iter().filter(|count| **count > 0).count() <= needed.count())
        };
        self.containers += 1;
        self.sockets += least(&lie.sockets, &all.sockets);
        self.numa_nodes += least(&lie.nodes, &all.nodes);
        self.uncore_caches += least(&lie.uncores, &all.uncores);
        let mut cores = lie.cores.iter().zip(&all.cores);
        self.whole_cores += usize::from(cores.all(|(lie, all)| *lie == 0 || lie == all));
    }
}

impl Recorder {
    /// For a simulation of the ledger that lasts so long.
    pub fn new(ledger: &Ledger, end: Time) -> Recorder {
        let topology = ledger.topology();
        let assignable = topology.online() - ledger.settings().placement.reserved;
        Recorder {
            refused: BTreeMap::new(),
            refused_again: 0,
            complete: 0,
            waited: Waited::default(),
            shared: 0,
            alignment: Alignment::default(),
            updates: 0,
            exclusive: Course::default(),
            by_cache: Course::default(),
            by_node: Course::default(),
            assignable: topology.tally(&assignable),
            step: (end / SAMPLES as Time).max(1),
        }
    }

    /// How scattered the free CPUs are now: by uncore cache, and by NUMA node.
    pub fn scattered(&self, ledger: &Ledger) -> (f64, f64) {
        let free = ledger.topology().tally(&ledger.free());
        let scattered = |all: &[usize], free: &[usize]| {
            let pairs: Vec<(usize, usize)> =
                all.iter().copied().zip(free.iter().copied()).collect();
            fragmentation(&pairs)
        };
        let all = &self.assignable;
        (scattered(&all.uncores, &free.uncores), scattered(&all.nodes, &free.nodes))
    }
}

impl Observer for Recorder {
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>) {
        match happening {
            Happening::Passes(from, to) => {
                let (by_cache, by_node) = self.scattered(ledger);
                let (span, step) = ((*from, *to), self.step);
                self.exclusive.lasted(ledger.exclusive().len() as f64, span, step);
                self.by_cache.lasted(by_cache, span, step);
                self.by_node.lasted(by_node, span, step);
            }
            Happening::Decided(_, answer) => {
                self.updates += answer.as_ref().map_or(0, |decision| decision.updates.len());
            }
            Happening::Placed { exclusive: Some(cpus), .. } => {
                self.alignment.count(ledger.topology(), cpus);
            }
            Happening::Placed { .. } => self.shared += 1,
            Happening::Refused { again: true, .. } => self.refused_again += 1,
            Happening::Refused { why, .. } => {
                *self.refused.entry(why.reason.name()).or_default() += 1;
            }
            Happening::Full { .. } => *self.refused.entry(OUT_OF_CPU).or_default() += 1,
            Happening::Complete(pod) => {
                self.complete += 1;
                let waited = now - pod.arrive;
                if waited > 0 {
                    self.waited.pods += 1;
                    self.waited.sum += waited;
                    self.waited.most = self.waited.most.max(waited);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic::Machine;

    #[test]
    fn a_course() {
        let mut course = Course::default();
        course.lasted(1.0, (0, 10), 10);
        course.lasted(4.0, (10, 40), 10);
        assert_eq!((course.mean(), course.most), (3.25, 4.0));
        assert_eq!(course.samples, [1.0, 4.0, 4.0, 4.0]);
        assert_eq!(Course::default().mean(), 0.0);
    }

    #[test]
    fn alignment() {
        let topology = "pack:2 l3:2 core:2 pu:2".parse::<Machine>().unwrap().topology().unwrap();
        let check = |cpus: &str, expect: [usize; 4]| {
            let mut found = Alignment::default();
            found.count(&topology, &cpus.parse().unwrap());
            let Alignment { sockets, numa_nodes, uncore_caches, whole_cores, .. } = found;
            assert_eq!([sockets, numa_nodes, uncore_caches, whole_cores], expect, "{cpus}");
        };
        check("0-3", [1, 1, 1, 1]);
        check("2-5", [1, 1, 0, 1]);
        check("1-2", [1, 1, 1, 0]);
        check("6-9", [0, 0, 0, 1]);
        check("0-5", [1, 1, 1, 1]);
        check("0-9", [1, 1, 1, 1]);
        check("0-5,8-11", [1, 1, 1, 1]);
        check("0-1,4-5,8-9", [0, 0, 0, 1]);
    }
}
