//! The state that all threads of a storm share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use cpuset::CpuSet;

use super::summary::{StormSettings, Summary};
use super::witness::Witness;
use crate::cgroup::Driver;
use crate::node::Node;

/// Failed creations without a success that end a storm.
const HOPELESS: u64 = 10;

fn is_hopeless(creations: u64, failures: u64) -> bool {
    creations == 0 && failures >= HOPELESS
}

pub(super) struct Storm<'a> {
    pub(super) settings: &'a StormSettings,
    pub(super) driver: Driver,
    /// The runtime's socket.
    pub(super) socket: PathBuf,
    pub(super) witness: Witness,
    /// Kills and restarts of the runtime; odd while it is down.
    pub(super) turns: AtomicU64,
    hopeless: Mutex<Option<String>>,
    /// Held for reading by threads that change the node, for writing while all must rest.
    pub(super) rest: RwLock<()>,
    pub(super) over: AtomicBool,
    counts: Mutex<Summary>,
}

impl<'a> Storm<'a> {
    pub(super) fn new(settings: &'a StormSettings, node: &Node, reserved: CpuSet) -> Self {
        Self {
            settings,
            driver: node.driver(),
            socket: node.containerd().socket(),
            witness: Witness::new(reserved, settings.changes, settings.only_runtime),
            turns: AtomicU64::new(0),
            hopeless: Mutex::default(),
            rest: RwLock::new(()),
            over: AtomicBool::new(false),
            counts: Mutex::new(Summary {
                hotplug: settings.changes.hotplug.then_some(0),
                ..Summary::default()
            }),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A call has failed. Where the first creations all do, the storm ends.
    pub(super) fn failed_at(&self, what: &str) {
        self.witness.note(&format!("failed: {what}"));
        let (creations, failures) = {
            let mut counts = self.counts();
            counts.failed += 1;
            (counts.creations, counts.failed + counts.refused)
        };
        if is_hopeless(creations, failures) {
            let mut why = self.hopeless.lock().unwrap_or_else(PoisonError::into_inner);
            why.get_or_insert_with(|| {
                format!("the first {failures} creations failed, the last one with: {what}")
            });
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Why the storm ended early.
    pub(super) fn hopeless(&self) -> Option<String> {
        self.hopeless.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All counts so far.
    pub(super) fn summary(&self, kills: u64) -> Summary {
        let runtime_kills = self.turns.load(Ordering::Relaxed) / 2;
        let mut summary = Summary { kills, runtime_kills, ..self.counts().clone() };
        self.witness.testify(&mut summary);
        summary
    }

    /// Size of the largest container: a quarter of all CPUs.
    pub(super) fn most(&self) -> i64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        i64::try_from(cpus / 4).unwrap_or(i64::MAX).max(1)
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, Summary> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::is_hopeless;

    #[test]
    fn one_creation_keeps_a_storm_going() {
        assert!(!is_hopeless(0, 9));
        assert!(is_hopeless(0, 10));
        assert!(!is_hopeless(1, 1000));
    }
}
