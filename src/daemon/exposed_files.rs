//! [`ExposedFiles`]: which CPUs the files of containers name.
//!
//! A program must never run on a CPU that its file does not name. So the file names old and new CPUs
//! before cgroups change, and only the new ones when the kernel has them in force.

use super::blocking;
use crate::cpuset::CpuSet;
use crate::exposed::{Content, Directories};
use crate::ledger::environment::Description;
use crate::ledger::{ContainerId, MovePlan};
use crate::topology::Topology;
use std::collections::BTreeMap;
use std::future::pending;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How often to check whether a container has left its old CPUs.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct ExposedFiles {
    pub(super) directories: Directories,
    pub(super) shown: BTreeMap<ContainerId, Shown>,
    /// Moves that programs have notice of, and when they are to be made.
    pub(super) noticed: Option<(MovePlan, Instant)>,
    /// When to check the containers that may still be on old CPUs.
    due: Option<Instant>,
    /// The ledger's revision that the files follow.
    pub(super) revision: Option<u64>,
}

/// What a container's files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    /// Where it may still run, as far as the kernel was asked.
    pub(super) held: CpuSet,
    pub(super) decided: CpuSet,
    /// Where a move that has not been decided yet would bring it.
    pub(super) planned: Option<CpuSet>,
}

impl Shown {
    pub(super) fn is_settled(&self) -> bool {
        self.held == self.decided
    }

    fn content(&self, machine: &Topology) -> Content {
        let cpus = self.held | self.decided;
        let stays = self.planned.map_or(self.decided, |planned| planned & self.decided);
        Content { cpus: Description::of(machine, cpus), leaving: (cpus - stays).to_string() }
    }
}

impl ExposedFiles {
    pub(super) fn below(state: &Path) -> ExposedFiles {
        ExposedFiles {
            directories: Directories::below(state),
            shown: BTreeMap::new(),
            noticed: None,
            due: None,
            revision: None,
        }
    }

    /// Waits until something is to be checked or a notice has run out. Cancel safe.
    pub(super) async fn next(&self) {
        let ended = self.noticed.as_ref().map(|(_, at)| *at);
        match self.due.into_iter().chain(ended).min() {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Whether a notice has run out.
    pub(super) fn is_time_up(&self) -> bool {
        self.noticed.as_ref().is_some_and(|(_, at)| *at <= Instant::now())
    }

    pub(super) fn all(&self) -> Vec<(ContainerId, Shown)> {
        self.shown.iter().map(|(id, shown)| (id.clone(), *shown)).collect()
    }

    pub(super) async fn write(&mut self, id: ContainerId, shown: Shown, machine: &Topology) {
        if self.shown.insert(id.clone(), shown) == Some(shown) {
            return;
        }
        let (directories, name) = (self.directories.clone(), id.clone());
        let content = shown.content(machine);
        if let Err(error) = blocking(move || directories.write(&name, &content)).await {
            log::error!("exposeCpus: cannot write the files of container {}: {error}", id.0);
        }
    }

    pub(super) async fn remove(&mut self, id: &ContainerId) {
        self.shown.remove(id);
        let (directories, name) = (self.directories.clone(), id.clone());
        if let Err(error) = blocking(move || directories.remove(&name)).await {
            log::error!("exposeCpus: cannot remove the files of container {}: {error}", id.0);
        }
    }

    pub(super) fn schedule(&mut self) {
        let is_open = self.shown.values().any(|shown| !shown.is_settled());
        self.due = if is_open { Some(Instant::now() + PAUSE) } else { None };
    }
}
