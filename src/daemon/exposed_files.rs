//! [`ExposedFiles`]: which CPUs the files of containers name.
//!
//! A program must never run on a CPU that its file does not name. So the file names old and new CPUs
//! before cgroups change, and only the new ones when the kernel has them in force.

use crate::cpuset::CpuSet;
use crate::exposed::{Content, Directories};
use crate::ledger::environment::Description;
use crate::ledger::{ContainerId, MovePlan, Reach};
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often to check whether a container has left its old CPUs.
const PAUSE: Duration = Duration::from_millis(200);
/// How long after files could not be written to try again.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ExposedFiles {
    pub(super) directories: Directories,
    pub(super) shown: BTreeMap<ContainerId, Shown>,
    /// Containers whose files may say something else.
    unwritten: BTreeSet<ContainerId>,
    /// Directories of an earlier process, of containers about which nothing is decided now.
    pub(super) undecided: BTreeSet<ContainerId>,
    /// Containers that are gone, and whose directories could not be removed.
    leftover: BTreeSet<ContainerId>,
    /// The moves that programs have notice of, and when they are to be made.
    pub(super) noticed: Option<(MovePlan, Instant)>,
    /// When to check the containers that may still be on old CPUs.
    due: Option<Instant>,
    /// Whether the CPUs of containers may be others than the files name.
    pub(super) outdated: bool,
    /// Whether containers may have files that are not among `shown`: those that ran while the
    /// kubelet's CPU manager was active.
    pub(super) unadopted: bool,
}

/// What a container's files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    /// Where it may still run, as far as the kernel was asked.
    pub(super) held: CpuSet,
    pub(super) decided: Reach,
    /// The exclusive CPUs that a move which has not been decided yet would give it.
    pub(super) planned: Option<CpuSet>,
}

impl Shown {
    pub(super) fn is_settled(&self) -> bool {
        self.held == self.decided.all()
    }

    fn content(&self, machine: &Topology) -> Content {
        let Reach { exclusive, shared } = self.decided;
        let all = self.held | self.decided.all();
        let stays = shared | self.planned.map_or(exclusive, |planned| planned & exclusive);
        let shared = if shared.is_empty() { shared } else { all - exclusive };
        Content {
            cpus: Description::of(machine, all - shared),
            shared: shared.to_string(),
            leaving: (all - stays).to_string(),
        }
    }
}

impl ExposedFiles {
    pub(super) fn new(directories: Directories) -> ExposedFiles {
        ExposedFiles {
            directories,
            shown: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            undecided: BTreeSet::new(),
            leftover: BTreeSet::new(),
            noticed: None,
            due: None,
            outdated: false,
            unadopted: false,
        }
    }

    /// When something is to be checked or a notice runs out.
    pub(super) fn due(&self) -> Option<Instant> {
        let ended = self.noticed.as_ref().map(|(_, at)| *at);
        self.due.into_iter().chain(ended).min()
    }

    pub(super) fn all(&self) -> Vec<(ContainerId, Shown)> {
        self.shown.iter().map(|(id, shown)| (id.clone(), *shown)).collect()
    }

    /// Returns whether the files say `shown`; if they do not, it is tried again later.
    pub(super) fn write(&mut self, id: ContainerId, shown: Shown, machine: &Topology) -> bool {
        let same = self.shown.insert(id.clone(), shown) == Some(shown);
        if same && !self.unwritten.contains(&id) {
            return true;
        }
        match self.directories.write(&id, &shown.content(machine)) {
            Ok(()) => {
                self.unwritten.remove(&id);
                true
            }
            Err(error) => {
                log::error!("exposeCpus: cannot write the files of container {}: {error}", id.0);
                self.unwritten.insert(id);
                false
            }
        }
    }

    /// Containers whose files say more than they need to, or not what they should.
    pub(super) fn open(&self) -> Vec<ContainerId> {
        let open = self
            .shown
            .iter()
            .filter(|(id, shown)| !shown.is_settled() || self.unwritten.contains(*id));
        open.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn remove(&mut self, id: &ContainerId) {
        self.shown.remove(id);
        self.unwritten.remove(id);
        self.undecided.remove(id);
        if let Err(error) = self.directories.remove(id) {
            log::error!("exposeCpus: cannot remove the files of container {}: {error}", id.0);
            self.leftover.insert(id.clone());
        }
    }

    pub(super) fn has(&self, id: &ContainerId) -> bool {
        self.shown.contains_key(id) || self.undecided.contains(id)
    }

    pub(super) fn remove_leftover(&mut self) {
        for id in std::mem::take(&mut self.leftover) {
            self.remove(&id);
        }
    }

    pub(super) fn schedule(&mut self, now: Instant) {
        let is_open = self.shown.values().any(|shown| !shown.is_settled());
        let failed = !self.unwritten.is_empty() || !self.leftover.is_empty();
        let pause = match (is_open, failed) {
            (_, true) => Some(RETRY),
            (true, false) => Some(PAUSE),
            (false, false) => None,
        };
        self.due = pause.map(|pause| now + pause);
    }
}
