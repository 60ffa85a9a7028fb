//! [`Quotas`]: the CFS quotas of pods with exclusive CPUs stay lifted.
//!
//! The kubelet writes a pod's quota at each try of an in-place resize, systemd at a daemon-reload.
//! That is the rule and no drift: the quota is lifted again within milliseconds, without a line in
//! the log. It is a drift if a check pass finds a quota that the pass before has had lifted.

use crate::exclusivity::{Watch, Watched};
use crate::ledger::{CgroupPath, Ledger, Mechanism, Target};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The least time between two reactions, in case that another program reacts, too.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Quotas {
    watch: Watch,
    not_before: Instant,
    /// Times that a quota was lifted which had been lifted before.
    pub(super) lifted_again: u64,
}

impl Quotas {
    pub(super) fn new() -> Quotas {
        Quotas { watch: Watch::default(), not_before: Instant::now(), lifted_again: 0 }
    }

    /// A runtime has connected.
    pub(super) fn connected(&mut self) {
        self.watch = Watch::new();
    }

    pub(super) fn watch(&mut self, files: Vec<PathBuf>) {
        self.watch.set(&files.into_iter().map(|file| (file, Watched::File)).collect());
    }

    /// A write into a pod's quota. Cancel safe.
    pub(super) async fn next(&mut self) {
        sleep_until(self.not_before).await;
        self.watch.next().await;
        self.not_before = Instant::now() + PAUSE;
    }
}

/// A running container of each pod whose quota is lifted.
pub(super) fn lifted(ledger: &Ledger) -> Vec<Target> {
    let targets = ledger.targets().filter(|target| {
        target.running && target.lifts_pod_quota && target.enforced_by != Mechanism::Runtime
    });
    let by_pod = targets.filter_map(|target| Some((target.pod_group()?, target)));
    by_pod.collect::<BTreeMap<CgroupPath, Target>>().into_values().collect()
}
