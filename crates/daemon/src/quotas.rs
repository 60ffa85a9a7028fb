//! [`Quotas`]: the CFS quotas of pods with exclusive CPUs stay lifted.
//!
//! The kubelet writes a pod's quota at each try of an in-place resize, systemd at a daemon-reload.
//! That is the rule and no drift: the quota is lifted again within milliseconds, without a line in
//! the log. It is a drift if a check pass finds a quota that the pass before has had lifted. When no
//! container of a pod has exclusive CPUs any more, the next check pass restores its quota.

use cpuset::CgroupPath;
use ledger::{Ledger, Mechanism, Target};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The least time between two reactions, in case that another program reacts to each write, too.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Quotas {
    due: Option<Instant>,
    not_before: Instant,
    /// Times that a quota was lifted which had been lifted before.
    pub(super) lifted_again: u64,
}

impl Quotas {
    pub(super) fn new(now: Instant) -> Quotas {
        Quotas { due: None, not_before: now, lifted_again: 0 }
    }

    /// Another program may have written a quota, or other quotas have to be lifted.
    pub(super) fn check_soon(&mut self, now: Instant) {
        if self.due.is_none() {
            let due = self.not_before.max(now);
            self.due = Some(due);
            self.not_before = due + PAUSE;
        }
    }

    /// When to check the quotas.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn checked(&mut self) {
        self.due = None;
    }
}

/// A running container of each pod whose quota is to be lifted or restored. Where the runtime keeps
/// exclusivity, no quota of a pod is lifted. The quota of a pod whose exclusive containers have ended
/// is restored, if a container that shares CPUs still runs.
pub(super) fn settled(ledger: &Ledger) -> Vec<Target> {
    let targets = ledger.targets().filter(|target| {
        target.running && (!target.lifts_pod_quota || target.enforced_by != Mechanism::Runtime)
    });
    let by_pod = targets.filter_map(|target| Some((target.pod_group()?, target)));
    by_pod.collect::<BTreeMap<CgroupPath, Target>>().into_values().collect()
}
