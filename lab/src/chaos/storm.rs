//! The state that all threads of a storm share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use nri_cpu_manager::cpuset::CpuSet;

use super::summary::{StormSettings, Summary};
use super::witness::Witness;
use crate::cgroup::Driver;
use crate::node::Node;

/// Only the workers' pods are in this namespace.
pub(super) const NAMESPACE: &str = "storm";

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
    pub(super) creations: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) spoiled: AtomicU64,
    pub(super) reborn: AtomicU64,
    pub(super) relapsed: AtomicU64,
    pub(super) initialised: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) realised: AtomicU64,
}

impl<'a> Storm<'a> {
    pub(super) fn new(settings: &'a StormSettings, node: &Node, reserved: CpuSet) -> Self {
        Self {
            settings,
            driver: node.driver(),
            socket: node.containerd().socket(),
            witness: Witness::new(reserved),
            turns: AtomicU64::new(0),
            hopeless: Mutex::default(),
            rest: RwLock::new(()),
            over: AtomicBool::new(false),
            creations: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
            reborn: AtomicU64::new(0),
            relapsed: AtomicU64::new(0),
            initialised: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            realised: AtomicU64::new(0),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A call has failed. Where the first creations all do, the storm ends.
    pub(super) fn failed_at(&self, what: &str) {
        let failures = Self::count(&self.failed) + self.refused.load(Ordering::Relaxed);
        self.witness.note(&format!("failed: {what}"));
        if is_hopeless(self.creations.load(Ordering::Relaxed), failures) {
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

    pub(super) fn state(&self, kills: u64) -> String {
        let mut summary = Summary {
            kills,
            creations: self.creations.load(Ordering::Relaxed),
            ..Summary::default()
        };
        self.witness.testify(&mut summary);
        summary.line()
    }

    /// Size of the largest container: a quarter of all CPUs.
    pub(super) fn most(&self) -> i64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        i64::try_from(cpus / 4).unwrap_or(i64::MAX).max(1)
    }

    pub(super) fn count(counter: &AtomicU64) -> u64 {
        counter.fetch_add(1, Ordering::Relaxed) + 1
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
