//! Whether the first processes of a new pod run on exclusive CPUs of others: its pause container
//! runs before the runtime reports the pod.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use cpuset::CpuSet;

use super::Node;
use crate::command::millis;
use crate::pod::Pod;
use crate::{cgroup, process};

const PAUSE: Duration = Duration::from_micros(200);
/// A process that is just being moved into its cgroup has its earlier CPUs for an instant.
const INSTANT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct Strayed {
    /// Processes of the pod that were seen.
    pub processes: usize,
    /// How many of them were seen on these CPUs.
    pub strayed: usize,
    /// The longest time for one of them.
    pub millis: u64,
}

impl Node {
    /// Starts a pod, and watches where its processes may run until it has started.
    pub fn run_watched(&mut self, pod: &Pod, taken: CpuSet) -> Result<Strayed> {
        let group = cgroup::of_pod(&Pod { driver: self.driver, ..pod.clone() });
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&group, taken, &done));
            let started = self.run(pod);
            done.store(true, Ordering::Relaxed);
            let strayed = watching.join().map_err(|_| anyhow!("the watching thread panicked"))?;
            started.map(|_| strayed)
        })
    }
}

fn watch(group: &Path, taken: CpuSet, done: &AtomicBool) -> Strayed {
    let mut first: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut longest: BTreeMap<u32, Duration> = BTreeMap::new();
    while !done.load(Ordering::Relaxed) {
        for pid in processes_in(group) {
            let first = *first.entry(pid).or_insert_with(Instant::now);
            if process::allowed(pid).is_ok_and(|allowed| !allowed.is_disjoint(&taken)) {
                longest.insert(pid, first.elapsed());
            }
        }
        thread::sleep(PAUSE);
    }
    longest.retain(|_, time| *time > INSTANT);
    Strayed {
        processes: first.len(),
        strayed: longest.len(),
        millis: longest.into_values().max().map_or(0, millis),
    }
}

/// Processes in the cgroups directly below.
fn processes_in(group: &Path) -> Vec<u32> {
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    let lists =
        below.filter_map(|entry| fs::read_to_string(entry.path().join("cgroup.procs")).ok());
    lists
        .flat_map(|list| list.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}
