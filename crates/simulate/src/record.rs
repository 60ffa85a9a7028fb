//! [`Recorder`]: collects the figures of a simulation.

use crate::engine::{Happening, OUT_OF_CPU, StepObserver};
use crate::figures::{ExclusiveCounts, Figures, Moves, Pods, Values};
use crate::workload::{PodSpec, Time, Workload};
use cpuset::CpuSet;
use ledger::{Ledger, Phase};
use placement::quality::{Scorer, fragmentation};
use topology::{Tally, Topology};

/// The number of samples over time.
const SAMPLES: usize = 60;

/// Observes a simulation and returns its [`Figures`] at the end.
#[derive(Debug)]
pub struct Recorder {
    /// The counts so far. Values over time and at the end are added last.
    figures: Figures,
    /// The counts of exclusive and of shared containers after the last arrival. A pod that is
    /// turned away, which happens only at its arrival, resets them.
    settled: (ExclusiveCounts, usize),
    /// The sum of the waiting times of all pods.
    waited: Time,
    exclusive: ValueOverTime,
    /// The fragmentation of free CPUs by uncore cache.
    by_cache: ValueOverTime,
    /// The fragmentation of free CPUs by NUMA node.
    by_node: ValueOverTime,
    /// CPUs that can be exclusive.
    assignable: Tally,
    /// The time between two samples.
    step: Time,
    scorer: Scorer,
    /// Live containers are scored from this arrival on, counted from 1.
    score_from: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ValueOverTime {
    /// The sum of each value times its duration.
    sum: f64,
    /// The sum of durations.
    time: Time,
    /// The largest value with a duration above zero.
    most: f64,
    /// The value at regular intervals, from the beginning on.
    samples: Vec<f64>,
}

impl ValueOverTime {
    /// The mean over time; 0 if no time has passed.
    fn mean(&self) -> f64 {
        if self.time == 0 { 0.0 } else { self.sum / self.time as f64 }
    }

    fn values(self, last: f64) -> Values {
        let mean = self.mean();
        Values {
            mean: rounded(mean),
            most: rounded(self.most.max(last)),
            last: rounded(last),
            samples: self.samples.into_iter().map(rounded).collect(),
        }
    }

    /// Adds a value that add for a span.
    fn add(&mut self, value: f64, (from, to): (Time, Time), step: Time) {
        self.sum += value * (to - from) as f64;
        self.time += to - from;
        self.most = self.most.max(value);
        // Samples are at multiples of the step, up to the end of this value.
        while self.samples.len() < SAMPLES && self.samples.len() as Time * step < to {
            self.samples.push(value);
        }
    }
}

impl ExclusiveCounts {
    fn count(&mut self, topology: &Topology, cpus: &CpuSet) {
        let used = topology.tally(cpus);
        let all = topology.sizes();
        let fewest = |used: &[usize], all: &[usize]| {
            let mut sizes = all.to_vec();
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            let mut rest = cpus.len();
            let needed = sizes.iter().take_while(|size| {
                let more = rest > 0;
                rest = rest.saturating_sub(**size);
                more
            });
            usize::from(used.iter().filter(|count| **count > 0).count() <= needed.count())
        };
        self.containers += 1;
        self.fewest_sockets += fewest(&used.sockets, &all.sockets);
        self.fewest_numa_nodes += fewest(&used.nodes, &all.nodes);
        self.fewest_uncore_caches += fewest(&used.uncores, &all.uncores);
        self.whole_cores += usize::from(used.is_whole_cores(all));
    }
}

impl Recorder {
    /// For a simulation of `workload` until `end`. Live containers are scored after each arrival
    /// from number `score_from` on, counted from 1.
    pub fn new(workload: &Workload, ledger: &Ledger, end: Time, score_from: usize) -> Recorder {
        let topology = ledger.topology();
        let settings = &ledger.settings().placement;
        let assignable = topology.online() - settings.reserved;
        let assignable = settings.isolated.allowed(topology, &assignable);
        let arrived = workload.pods.iter().filter(|pod| pod.arrive <= end).count();
        Recorder {
            figures: Figures {
                end: seconds(end),
                pods: Pods { arrived, ..Pods::default() },
                ..Figures::default()
            },
            settled: Default::default(),
            waited: 0,
            exclusive: ValueOverTime::default(),
            by_cache: ValueOverTime::default(),
            by_node: ValueOverTime::default(),
            assignable: topology.tally(&assignable),
            step: (end / SAMPLES as Time).max(1),
            scorer: Scorer::new(topology),
            score_from,
        }
    }

    /// The result. `ledger` must be in its state at the end.
    pub fn figures(self, ledger: &Ledger) -> Figures {
        let (by_cache, by_node) = self.fragmentation(ledger);
        let mut figures = self.figures;
        let mean_wait = seconds(self.waited) / figures.pods.waited.max(1) as f64;
        figures.pods.mean_wait = rounded(mean_wait);
        figures.exclusive_cpus = self.exclusive.values(exclusive_cpus(ledger));
        figures.fragmentation.insert("numa_node", self.by_node.values(by_node));
        figures.fragmentation.insert("uncore_cache", self.by_cache.values(by_cache));
        figures.moves = Moves::of(ledger);
        figures
    }

    /// The fragmentation of free CPUs now, by uncore cache and by NUMA node.
    fn fragmentation(&self, ledger: &Ledger) -> (f64, f64) {
        let free = ledger.topology().tally(&ledger.free());
        let all = &self.assignable;
        (by_domain(&all.uncores, &free.uncores), by_domain(&all.nodes, &free.nodes))
    }
}

/// How many CPUs a container of this pod could get: free ones, and those of the pod's ended
/// containers.
fn free_for(ledger: &Ledger, pod: &PodSpec) -> usize {
    let mut free = ledger.free();
    for container in &ledger.view().containers {
        let is_own = container.pod.name == pod.name && container.pod.namespace == pod.namespace;
        if is_own && container.phase == Phase::Ended {
            free |= container.exclusive.unwrap_or_default();
        }
    }
    free.len()
}

/// The number of exclusive CPUs, without those that ended containers have lent to the shared pool.
fn exclusive_cpus(ledger: &Ledger) -> f64 {
    (ledger.exclusive() - ledger.pool()).len() as f64
}

/// Three digits after the point, as many as times have.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn seconds(time: Time) -> f64 {
    time as f64 / 1000.0
}

fn by_domain(all: &[usize], free: &[usize]) -> f64 {
    let pairs: Vec<(usize, usize)> = all.iter().copied().zip(free.iter().copied()).collect();
    fragmentation(&pairs)
}

impl StepObserver for Recorder {
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>) {
        let figures = &mut self.figures;
        match happening {
            Happening::Passes(from, to) => {
                let (by_cache, by_node) = self.fragmentation(ledger);
                let span = (*from, *to);
                self.exclusive.add(exclusive_cpus(ledger), span, self.step);
                self.by_cache.add(by_cache, span, self.step);
                self.by_node.add(by_node, span, self.step);
            }
            Happening::Planned(_) => {}
            Happening::Decided(_, answer) => {
                figures.updates += answer.as_ref().map_or(0, |decision| decision.due.updates.len());
            }
            Happening::Recorded(_, updates) => {
                figures.updates += updates.len();
            }
            Happening::Placed { exclusive: Some(cpus), .. } => {
                figures.exclusive.count(ledger.topology(), cpus);
            }
            Happening::Placed { .. } => figures.shared += 1,
            Happening::Refused { again: true, .. } => figures.refused_again += 1,
            Happening::Refused { pod, container, why, .. } => {
                *figures.refused.entry(why.reason.name()).or_default() += 1;
                if container.request <= free_for(ledger, pod) as u64 * 1000 {
                    figures.refused_by_free_cpus.enough += 1;
                } else {
                    figures.refused_by_free_cpus.too_few += 1;
                }
            }
            Happening::Full { .. } => {
                *figures.refused.entry(OUT_OF_CPU).or_default() += 1;
                figures.refused_by_free_cpus.too_few += 1;
            }
            Happening::TurnedAway(_) => (figures.exclusive, figures.shared) = self.settled,
            Happening::Arrived(number) => {
                self.settled = (figures.exclusive, figures.shared);
                if *number >= self.score_from {
                    let live = ledger.live_exclusive();
                    self.scorer.sample(ledger.topology(), live, &mut figures.live);
                }
            }
            Happening::Complete(pod) => {
                figures.pods.complete += 1;
                let wait = now - pod.arrive;
                if wait > 0 {
                    figures.pods.waited += 1;
                    figures.pods.longest_wait = figures.pods.longest_wait.max(seconds(wait));
                    self.waited += wait;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::synthetic::Machine;

    #[test]
    fn mean_maximum_and_samples_follow_durations() {
        let mut value = ValueOverTime::default();
        value.add(1.0, (0, 10), 10);
        value.add(4.0, (10, 40), 10);
        assert_eq!((value.mean(), value.most), (3.25, 4.0));
        assert_eq!(value.samples, [1.0, 4.0, 4.0, 4.0]);
        assert_eq!(ValueOverTime::default().mean(), 0.0);
    }

    #[test]
    fn containers_in_the_fewest_domains_are_counted() {
        let topology = "pack:2 l3:2 core:2 pu:2".parse::<Machine>().unwrap().topology().unwrap();
        let check = |cpus: &str, expect: [usize; 4]| {
            let mut sets = ExclusiveCounts::default();
            sets.count(&topology, &cpus.parse().unwrap());
            let ExclusiveCounts {
                fewest_sockets,
                fewest_numa_nodes,
                fewest_uncore_caches,
                whole_cores,
                ..
            } = sets;
            let actual = [fewest_sockets, fewest_numa_nodes, fewest_uncore_caches, whole_cores];
            assert_eq!(actual, expect, "{cpus}");
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
