//! How the owner has the files of containers follow the ledger: before anything is changed, and
//! after.

use super::exposed_files::Shown;
use super::owner::Owner;
use crate::cpuset::CpuSet;
use crate::edge::Response;
use crate::ledger::environment::environment;
use crate::ledger::{ContainerId, Exposure, Reach, Target};

impl Owner {
    /// Has a container that is being created with exclusive CPUs learn which they are, as
    /// `exposeCpus` says.
    pub(super) fn expose(&mut self, id: &ContainerId, reach: Reach, response: &mut Response) {
        match self.ledger.settings().expose_cpus {
            Exposure::None => {}
            Exposure::Environment => {
                response.environment = environment(self.ledger.topology(), &reach);
            }
            Exposure::File => response.directory = self.expose_by_files(id, reach),
        }
    }

    /// Files for a container that is being created; returns its directory.
    fn expose_by_files(&mut self, id: &ContainerId, decided: Reach) -> Option<String> {
        let shown = Shown { held: decided.all(), decided, planned: None };
        let machine = self.ledger.topology();
        if !self.exposure.write(id.clone(), shown, machine) {
            // It is created without a directory.
            self.exposure.remove(id);
            return None;
        }
        self.exposure.directories.path(id)?.into_os_string().into_string().ok()
    }

    /// Takes over the directories of an earlier process: the listed containers may still be on the
    /// way to the CPUs that are decided for them.
    pub(super) fn adopt_exposed(&mut self) {
        let directories = self.exposure.directories.clone();
        for id in directories.list() {
            let Some(target) = self.ledger.target(&id) else {
                // Beside an active kubelet a container that runs has no decision, and keeps its files.
                if self.ledger.knows(&id) {
                    self.exposure.undecided.insert(id);
                } else {
                    self.exposure.remove(&id);
                }
                continue;
            };
            let decided = self.reach_of(&target);
            let held = self.runs_on(&target).unwrap_or(decided.all());
            let shown = Shown { held, decided, planned: None };
            self.exposure.write(id, shown, self.ledger.topology());
        }
        self.exposure.schedule(self.now);
    }

    /// Has files name the CPUs that are decided, before anything is changed.
    pub(super) fn show_decided(&mut self) {
        if std::mem::take(&mut self.exposure.unadopted) {
            self.adopt_exposed();
        }
        let outdated = std::mem::take(&mut self.exposure.outdated);
        if !outdated {
            return;
        }
        for id in self.exposure.undecided.clone() {
            if !self.ledger.knows(&id) {
                self.exposure.remove(&id);
            }
        }
        for (id, shown) in self.exposure.all() {
            let Some(target) = self.ledger.target(&id) else {
                if !self.ledger.knows(&id) {
                    self.exposure.remove(&id);
                }
                continue;
            };
            let decided = self.reach_of(&target);
            if decided != shown.decided {
                let held = shown.held | shown.decided.all();
                let now = Shown { held, decided, planned: None };
                self.exposure.write(id, now, self.ledger.topology());
            }
        }
        self.exposure.schedule(self.now);
    }

    /// Removes the files of a container that the runtime has removed. Its CPUs may stay with its pod.
    pub(super) fn unexpose(&mut self, id: &ContainerId) {
        if self.exposure.has(id) {
            self.exposure.remove(id);
            self.exposure.schedule(self.now);
        }
    }

    /// Takes CPUs out of files that containers have left, and makes moves after their notice.
    pub(super) fn follow_exposed(&mut self) {
        self.exposure.remove_leftover();
        for id in self.exposure.open() {
            self.settle_files_of(&id);
        }
        self.exposure.schedule(self.now);
        self.keep_notice();
    }

    /// The files of a container name only its own CPUs as soon as it is on no others.
    pub(super) fn settle_files_of(&mut self, id: &ContainerId) {
        let Some(shown) = self.exposure.shown.get(id).copied() else { return };
        let Some(target) = self.ledger.target(id) else { return };
        let all = shown.decided.all();
        let is_there = self.runs_on(&target).is_some_and(|on| on.is_subset(&all));
        let held =
            if is_there && self.reach_of(&target) == shown.decided { all } else { shown.held };
        self.exposure.write(id.clone(), Shown { held, ..shown }, self.ledger.topology());
    }

    /// All CPUs of a container that has shared ones only are shared.
    fn reach_of(&self, target: &Target) -> Reach {
        let shared = Reach { exclusive: CpuSet::EMPTY, shared: target.runs_on };
        self.ledger.reach(&target.subject.id).unwrap_or(shared)
    }

    /// Where the kernel lets a container run.
    fn runs_on(&self, target: &Target) -> Option<CpuSet> {
        let found = self.checks.verifier()?.set_for(target.cgroup.as_ref()?)?;
        Some(found.runs_on.unwrap_or(found.cpus))
    }
}
