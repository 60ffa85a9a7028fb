//! What all threads of a storm share.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::summary::{Settings, Summary};
use super::witness::Witness;

/// Where the pods are that come and go: the lab's other pods are elsewhere, and so is the plugin's
/// own.
pub(super) const NAMESPACE: &str = "storm";

/// A storm that goes on.
pub(super) struct Storm<'a> {
    pub(super) settings: &'a Settings,
    pub(super) witness: Witness,
    /// A thread that changes something on the node holds it for reading; it is held for writing
    /// while all have to rest.
    pub(super) rest: RwLock<()>,
    pub(super) over: AtomicBool,
    pub(super) creations: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) spoiled: AtomicU64,
    pub(super) reborn: AtomicU64,
    pub(super) relapsed: AtomicU64,
    pub(super) initialised: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Storm<'_> {
    /// How it goes, in words.
    pub(super) fn state(&self, kills: u64) -> String {
        let mut summary = Summary {
            kills,
            creations: self.creations.load(Ordering::Relaxed),
            ..Summary::default()
        };
        self.witness.testify(&mut summary);
        summary.line()
    }

    /// The largest container that the storm has: a quarter of what there is.
    pub(super) fn most(&self) -> i64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        i64::try_from(cpus / 4).unwrap_or(1).max(1)
    }

    pub(super) fn count(counter: &AtomicU64) -> u64 {
        counter.fetch_add(1, Ordering::Relaxed) + 1
    }
}
