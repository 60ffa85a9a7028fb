//! The life of a container, event by event.

use super::Ledger;
use super::entry::{Entry, Life};
use super::event::{Decision, Wanted};
use super::grant::Grant;
use super::hands_off::Stance;
use super::model::{Container, ContainerId, Pod, PodUid, SandboxId};
use super::note::{Note, Subject, What};
use super::scene::{Refused, Scene};
use crate::cpuset::CpuSet;
use crate::placement::{Allocation, Rejection};

/// Which instance of its name a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instance {
    /// The one that is in the books.
    Present,
    /// The one before that: what is told of it comes late, and must not touch its successor.
    Replaced,
    /// One that nobody has told of.
    Unknown,
}

impl Ledger {
    pub(super) fn create(&mut self, pod: Pod, container: Container) -> Result<Decision, Rejection> {
        let uid = self.upsert_pod(pod);
        self.recall(&uid, &container.name);
        if self.stance != Stance::Assign {
            return self.create_untouched(&uid, &container);
        }
        let granted = self
            .terms(&uid, &container)
            .map_err(|rejection| Refused { rejection, scene: None })
            .and_then(|terms| Ok((terms, self.grant(&uid, &container, &terms)?)));
        let (terms, grant) = match granted {
            Ok(granted) => granted,
            Err(Refused { rejection, scene }) => {
                if let Some(mut pod) = self.pods.change(&uid) {
                    pod.refused = true;
                }
                return Err(self.refuse(&uid, &container, rejection, scene));
            }
        };
        self.supersede(&container.id, &uid, &container.name);
        let (claim, inherited) = (grant.claim(), matches!(grant, Grant::Kept(_)));
        let taken = self.with_idle(&claim.unwrap_or_default(), terms.wishes.isolates());
        self.contested(&uid, &container, container.cpus);
        let kept_by = self.settings.exclusivity;
        let subject = self.subject(&uid, &container);
        let mut kept = None;
        if let Some(mut pod) = self.pods.change(&uid) {
            kept = pod.counted.has_exclusive().then(|| pod.kept_by_kernel());
            let before = pod.containers.remove(&container.name);
            let mut entry = Entry {
                before: before.as_ref().map(|before| before.id.clone()),
                claim,
                inherited,
                terms,
                ..Entry::new(&container, Life::Created { updated: false }, kept_by)
            };
            entry.restarted = before
                .as_ref()
                .is_some_and(|before| before.life == Life::Stopped || before.restarted);
            let what = match grant {
                Grant::Shared => None,
                Grant::Kept(cpus) => {
                    entry.isolated = before.as_ref().is_some_and(|before| before.isolated);
                    Some(What::Kept(cpus))
                }
                Grant::Chosen(Allocation { cpus, hint }, scene) => {
                    entry.isolated = terms.wishes.isolates();
                    pod.hand_over(&self.topology, &container.name, taken);
                    if terms.wishes.shares_affinity() {
                        pod.affinity = pod.demand().map(|total| (total, hint));
                    }
                    Some(What::Assigned { cpus, within: hint, scene })
                }
            };
            self.notes.extend(what.map(|what| Note::new(false, subject, what)));
            if claim.is_some() || before.as_ref().is_some_and(|before| before.claim.is_some()) {
                self.revision += 1;
            }
            if let Some(before) = before {
                self.ids.remove(&before.id);
            }
            pod.refused = false;
            pod.containers.insert(container.name.clone(), entry);
            self.ids.insert(container.id.clone(), (uid.clone(), container.name.clone()));
        }
        self.refresh_pool();
        let pod = self.pods.get(&uid);
        self.pending |= pod.is_some_and(|pod| {
            pod.is_in_its_own_way()
                || kept.is_some_and(|kept| !kept.is_subset(&pod.kept_by_kernel()))
        });
        let pin = pod.and_then(|pod| self.wish(pod, pod.containers.get(&container.name)?));
        // The new container is not among the updates: what it is told is the pin itself.
        if let Some(pin) = &pin {
            self.pods.change_entry(&uid, &container.name, |entry| entry.hear(pin));
        }
        let environment = self.environment(pin.as_ref());
        Ok(Decision { pin, environment, updates: self.take_updates() })
    }

    pub(super) fn started(&mut self, pod: Pod, mut container: Container) {
        let uid = self.whose(pod, &mut container);
        match self.instance(&uid, &container) {
            Instance::Present => {}
            Instance::Replaced => return,
            Instance::Unknown => return self.adopt_late(&uid, &container),
        }
        self.pods.change_entry(&uid, &container.name, |entry| {
            entry.inherited = false;
            // A process that ends at once may have its start told after its end, and no second end.
            if entry.life == Life::Stopped {
                return;
            }
            // An update before this moment may have changed the runtime's books only: say it again.
            if entry.life == (Life::Created { updated: true }) {
                entry.doubt();
                self.pending = true;
            }
            entry.life = Life::Running;
        });
    }

    pub(super) fn update(
        &mut self,
        pod: Pod,
        mut container: Container,
        wanted: Wanted,
    ) -> Result<Decision, Rejection> {
        let uid = self.whose(pod, &mut container);
        match self.instance(&uid, &container) {
            Instance::Present => {}
            Instance::Replaced => return Ok(Decision::default()),
            Instance::Unknown => self.adopt_late(&uid, &container),
        }
        if self.stance != Stance::Assign {
            self.update_untouched(&uid, &container, wanted);
            return Ok(Decision::default());
        }
        self.contested(&uid, &container, wanted.cpus);
        if let Err(rejection) = self.resize(&uid, &container, wanted.cpu) {
            return Err(self.refuse(&uid, &container, rejection, None));
        }
        self.pods.change_entry(&uid, &container.name, |entry| {
            entry.lifted &= !wanted.sets_quota;
            // What the kubelet asks for is written over what was set: its quota would throttle exclusive CPUs, its
            // CPUs are not the ones decided here.
            if wanted.cpus.is_some() || (wanted.sets_quota && entry.claim.is_some()) {
                entry.doubt();
                self.pending = true;
            }
        });
        let updates = self.take_updates_with(Some(&container.id));
        Ok(Decision { updates, ..Decision::default() })
    }

    pub(super) fn stop(&mut self, id: &ContainerId) {
        let Some((uid, name)) = self.ids.get(id) else { return };
        if let Some(mut pod) = self.pods.change(uid) {
            pod.end(name);
        }
        self.refresh_pool();
    }

    /// An instance is gone for good, or was never created. Its exclusive CPUs stay its name's for the life of its pod,
    /// as the kubelet has it: creations can fail several times in a row, and old instances are removed between them.
    pub(super) fn remove(&mut self, id: &ContainerId) {
        let Some((uid, name)) = self.ids.get(id).cloned() else { return self.forget_claim(id) };
        let Some(mut pod) = self.pods.change(&uid) else { return };
        pod.end(&name);
        match pod.containers.get_mut(&name) {
            Some(entry) if entry.claim.is_some() => entry.removed = true,
            _ => {
                pod.containers.remove(&name);
                self.ids.remove(id);
            }
        }
        let (over, sandbox) = (pod.containers.is_empty(), pod.pod.sandbox.clone());
        drop(pod);
        if over {
            self.sandboxes.remove(&sandbox);
            self.pods.remove(&uid);
        }
        self.refresh_pool();
    }

    /// Some time has passed: what containers that stay away have for themselves is lent to the shared pool.
    pub(super) fn lull(&mut self) {
        self.pods.change_all(|_, pod| pod.lull());
        self.refresh_pool();
    }

    pub(super) fn end_pod(&mut self, sandbox: &SandboxId) {
        let Some(uid) = self.sandboxes.remove(sandbox) else { return };
        let Some(pod) = self.pods.remove(&uid) else { return };
        for (name, entry) in pod.containers {
            self.ids.remove(&entry.id);
            self.released(&pod.pod, name, entry);
        }
        self.refresh_pool();
    }

    /// Takes note that a container's exclusive CPUs, if it had any, are free again.
    pub(super) fn released(&mut self, pod: &Pod, container: String, entry: Entry) {
        let Some(cpus) = entry.claim else { return };
        let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
        let subject = Subject { namespace, pod, container, id: entry.id };
        self.notes.push(Note::new(false, subject, What::Released(cpus)));
        self.revision += 1;
    }

    /// Which instance of its name a container is that an event is about.
    pub(super) fn instance(&self, uid: &PodUid, container: &Container) -> Instance {
        match self.entry(uid, &container.name) {
            Some(entry) if entry.id == container.id => Instance::Present,
            Some(entry) if entry.before.as_ref() == Some(&container.id) => Instance::Replaced,
            _ => Instance::Unknown,
        }
    }

    /// Takes note of a refusal.
    pub(super) fn refuse(
        &mut self,
        uid: &PodUid,
        container: &Container,
        why: Rejection,
        scene: Option<Box<Scene>>,
    ) -> Rejection {
        let subject = self.subject(uid, container);
        let what = What::Refused { why: why.to_string(), scene };
        self.notes.push(Note::new(true, subject, what));
        why
    }

    /// Warns if somebody else names CPUs for a container.
    fn contested(&mut self, uid: &PodUid, container: &Container, cpus: Option<CpuSet>) {
        let Some(cpus) = cpus else { return };
        let subject = self.subject(uid, container);
        self.notes.push(Note::new(true, subject, What::Contested(cpus)));
    }

    pub(super) fn subject(&self, uid: &PodUid, container: &Container) -> Subject {
        let pod = self.pods.get(uid).map(|entry| &entry.pod);
        Subject {
            namespace: pod.map_or_else(String::new, |pod| pod.namespace.clone()),
            pod: pod.map_or_else(|| uid.to_string(), |pod| pod.name.clone()),
            container: container.name.clone(),
            id: container.id.clone(),
        }
    }

    pub(super) fn entry(&self, uid: &PodUid, name: &str) -> Option<&Entry> {
        self.pods.get(uid)?.containers.get(name)
    }
}
