//! [`ExposedFiles`]: keeps the files that name containers' CPUs (`exposeCPUs: file`) up to date.
//!
//! A program must never run on a CPU that its file does not name. So the file names old and new CPUs
//! before cgroups change, and only the new ones when the container has left the old ones.

use crate::exposed::{Content, Directories};
use cpuset::CpuSet;
use exclusivity::verify::Verifier;
use ledger::environment::Description;
use ledger::{ContainerId, Ledger, Reach, Target};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology::Topology;
use wording::{Repeats, short_id};

/// How often to check whether a container has left its old CPUs.
const PAUSE: Duration = Duration::from_millis(200);
/// How long after files could not be written to try again.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ExposedFiles {
    directories: Directories,
    /// For each container that has a directory.
    files: BTreeMap<ContainerId, Files>,
    /// When to check the containers that may still be on old CPUs.
    due: Option<Instant>,
    /// Whether the files may differ from the ledger.
    pub(super) outdated: bool,
    /// Whether containers may have directories that are not among `files`: those that ran while the
    /// kubelet's CPU manager was active.
    pub(super) unadopted: bool,
    repeats: Repeats,
}

#[derive(Debug, Clone, Copy)]
enum Files {
    /// They say `shown`; with `written: false` the write has failed and is due again.
    Follow { shown: Shown, written: bool },
    /// Nothing is decided about the container now: the files stay as they are.
    Stay,
    /// The container is gone, and its files could not be removed.
    Left,
}

/// What a container's files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    /// The CPUs on which it may still run, by the last read of the kernel.
    held: CpuSet,
    target: Reach,
    /// The exclusive CPUs that it keeps when an announced shrink is made.
    announced: Option<CpuSet>,
    /// The CPUs that a planned move, which is not decided yet, would give it.
    planned: Option<CpuSet>,
    /// The exclusive CPUs on which interrupts may stay.
    housekeeping: CpuSet,
}

impl Shown {
    fn is_settled(&self) -> bool {
        self.held == self.target.all()
    }

    fn content(&self, machine: &Topology) -> Content {
        let Reach { exclusive, shared } = self.target;
        let all = self.held | self.target.all();
        let soon = self.announced.or(self.planned);
        let stays = shared | soon.map_or(exclusive, |soon| soon & exclusive);
        // A container with shared CPUs lists the CPUs that it still has to leave among them, as it no
        // longer has them alone. A container without shared CPUs lists them among its own.
        let shared = if shared.is_empty() { shared } else { all - exclusive };
        Content {
            cpus: Description::of(machine, all - shared),
            shared: shared.to_string(),
            leaving: (all - stays).to_string(),
            housekeeping: self.housekeeping.to_string(),
        }
    }
}

impl ExposedFiles {
    pub(super) fn new(directories: Directories) -> ExposedFiles {
        ExposedFiles {
            directories,
            files: BTreeMap::new(),
            due: None,
            outdated: false,
            unadopted: false,
            repeats: Repeats::default(),
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a container has files that follow the ledger.
    pub(super) fn has(&self, id: &ContainerId) -> bool {
        matches!(self.files.get(id), Some(Files::Follow { .. }))
    }

    /// Writes files for a container that is being created. Returns its directory; `None` if they
    /// cannot be written: the container is created without them.
    pub(super) fn begin(
        &mut self,
        id: &ContainerId,
        reach: Reach,
        housekeeping: CpuSet,
        machine: &Topology,
        now: Instant,
    ) -> Option<String> {
        let held = reach.all();
        let shown = Shown { held, target: reach, announced: None, planned: None, housekeeping };
        if !self.write(id, shown, machine, now) {
            self.remove(id, now);
            return None;
        }
        self.directories.path(id)?.into_os_string().into_string().ok()
    }

    /// Adds the target CPUs to files, before anything else changes.
    pub(super) fn show_target(
        &mut self,
        ledger: &Ledger,
        verifier: Option<&Verifier>,
        now: Instant,
    ) {
        if std::mem::take(&mut self.unadopted) {
            self.adopt(ledger, verifier, now);
        }
        self.outdated = false;
        for (id, files) in self.files.clone() {
            let shown = match files {
                Files::Left => continue,
                _ if !ledger.knows(&id) => {
                    self.remove(&id, now);
                    continue;
                }
                Files::Stay => continue,
                Files::Follow { shown, .. } => shown,
            };
            let Some(target) = ledger.target(&id) else { continue };
            let reach = reach_of(ledger, &target);
            let announced = ledger.announced(&id);
            let housekeeping = ledger.housekeeping(&id);
            if reach != shown.target
                || announced != shown.announced
                || housekeeping != shown.housekeeping
            {
                // Until a check shows more, it may be on all CPUs that its files have named.
                let held = shown.held | shown.target.all();
                let shown = Shown { held, target: reach, announced, planned: None, housekeeping };
                self.write(&id, shown, ledger.topology(), now);
            }
        }
        self.schedule(now);
    }

    /// Takes over the directories of an earlier process. The containers may not have reached the
    /// their target CPUs.
    fn adopt(&mut self, ledger: &Ledger, verifier: Option<&Verifier>, now: Instant) {
        for id in self.directories.list() {
            let Some(target) = ledger.target(&id) else {
                // While the kubelet's CPU manager is active, a running container has no decision.
                if ledger.knows(&id) {
                    self.files.insert(id, Files::Stay);
                } else {
                    self.remove(&id, now);
                }
                continue;
            };
            let reach = reach_of(ledger, &target);
            let held = runs_on(verifier, &target).unwrap_or(reach.all());
            let announced = ledger.announced(&id);
            let housekeeping = ledger.housekeeping(&id);
            let shown = Shown { held, target: reach, announced, planned: None, housekeeping };
            self.write(&id, shown, ledger.topology(), now);
        }
    }

    /// Marks the CPUs that these planned moves would take away as leaving, and no others.
    pub(super) fn show_planned(
        &mut self,
        planned: &BTreeMap<ContainerId, CpuSet>,
        machine: &Topology,
        now: Instant,
    ) {
        for (id, files) in self.files.clone() {
            if let Files::Follow { shown, .. } = files {
                let planned = planned.get(&id).copied();
                self.write(&id, Shown { planned, ..shown }, machine, now);
            }
        }
    }

    /// Removes the CPUs from files that containers have left.
    pub(super) fn settle_all(
        &mut self,
        ledger: &Ledger,
        verifier: Option<&Verifier>,
        now: Instant,
    ) {
        for (id, files) in self.files.clone() {
            match files {
                Files::Left => self.remove(&id, now),
                Files::Follow { shown, written } if !written || !shown.is_settled() => {
                    self.settle(&id, ledger, verifier, now);
                }
                Files::Follow { .. } | Files::Stay => {}
            }
        }
        self.schedule(now);
    }

    /// Reduces a container's files to its target CPUs, if it cannot run on others any more.
    pub(super) fn settle(
        &mut self,
        id: &ContainerId,
        ledger: &Ledger,
        verifier: Option<&Verifier>,
        now: Instant,
    ) {
        let Some(Files::Follow { shown, .. }) = self.files.get(id).copied() else { return };
        let Some(target) = ledger.target(id) else { return };
        let all = shown.target.all();
        let is_there = runs_on(verifier, &target).is_some_and(|on| on.is_subset(&all));
        // With a decision that its files do not show yet, it may be about to move: nothing is removed.
        let held =
            if is_there && reach_of(ledger, &target) == shown.target { all } else { shown.held };
        self.write(id, Shown { held, ..shown }, ledger.topology(), now);
    }

    /// Removes the files of a container that the runtime has removed. The ledger may still know it:
    /// its claim stays until its pod ends.
    pub(super) fn end(&mut self, id: &ContainerId, now: Instant) {
        if self.files.contains_key(id) {
            self.remove(id, now);
            self.schedule(now);
        }
    }

    /// Returns whether the files say `shown`; if not, the write is tried again later.
    fn write(&mut self, id: &ContainerId, shown: Shown, machine: &Topology, now: Instant) -> bool {
        let before = self.files.get(id).copied();
        if matches!(before, Some(Files::Follow { shown: same, written: true }) if same == shown) {
            return true;
        }
        let result = self.directories.write(id, &shown.content(machine));
        if let Err(error) = &result {
            let line = format!("{}: {error}", short_id(&id.0));
            if let Some(times) = self.repeats.occurred(&line, now) {
                log::error!("exposeCPUs: cannot write the files of container {line}{times}");
            }
        }
        let written = result.is_ok();
        self.files.insert(id.clone(), Files::Follow { shown, written });
        written
    }

    fn remove(&mut self, id: &ContainerId, now: Instant) {
        self.files.remove(id);
        if let Err(error) = self.directories.remove(id) {
            let line = format!("{}: {error}", short_id(&id.0));
            if let Some(times) = self.repeats.occurred(&line, now) {
                log::error!("exposeCPUs: cannot remove the files of container {line}{times}");
            }
            self.files.insert(id.clone(), Files::Left);
        }
    }

    fn schedule(&mut self, now: Instant) {
        let pause = self.files.values().filter_map(|files| match files {
            Files::Left | Files::Follow { written: false, .. } => Some(RETRY),
            Files::Follow { shown, .. } if !shown.is_settled() => Some(PAUSE),
            Files::Follow { .. } | Files::Stay => None,
        });
        // The longest pause: nothing is tried more often on a disk that fails. A time that is set stays:
        // each decision comes here, and many of them would put it off again and again.
        let earlier = self.due.filter(|due| now < *due);
        self.due = pause.max().map(|pause| {
            let next = now + pause;
            earlier.map_or(next, |due| due.min(next))
        });
    }
}

/// A container without exclusive CPUs shares all that it runs on.
fn reach_of(ledger: &Ledger, target: &Target) -> Reach {
    let shared = Reach::shared(target.runs_on);
    ledger.reach(&target.subject.id).unwrap_or(shared)
}

/// Where the kernel lets a container run.
fn runs_on(verifier: Option<&Verifier>, target: &Target) -> Option<CpuSet> {
    let found = verifier?.observe(target.cgroup.as_ref()?)?;
    Some(found.runs_on.unwrap_or(found.cpus))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test needs some moment to start from")]
mod tests {
    use super::*;
    use state::disk::Disk;
    use std::path::Path;
    use std::sync::Arc;

    /// docs/security.md has this figure.
    #[test]
    fn a_container_with_files_takes_at_most_4_kib() {
        // Nodes of the map are at least half full.
        let most = 2 * size_of::<(ContainerId, Files)>() + "0123456789abcdef".len() * 4;
        assert!(most <= 4 << 10, "{most} bytes");
    }

    #[test]
    fn decisions_do_not_put_off_the_next_try() {
        let start = Instant::now();
        let disk = Disk::start().unwrap();
        let directories = Directories::below(Path::new("/state"), Arc::new(disk));
        let mut files = ExposedFiles::new(directories);
        files.files.insert(ContainerId("a".into()), Files::Left);
        for seconds in 0..5 {
            files.schedule(start + Duration::from_secs(seconds));
            assert_eq!(files.due(), Some(start + RETRY));
        }
        files.schedule(start + RETRY);
        assert_eq!(files.due(), Some(start + RETRY * 2));
    }
}
