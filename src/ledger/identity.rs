//! Whom an event is about.
//!
//! A container's id and a sandbox's id are the runtime's own and stand in every event. Uid and name may be missing (of
//! a sandbox that has left its books containerd tells the id alone), so they never part what an id says belongs together.

use super::Ledger;
use super::model::{Container, ContainerId, Pod, PodUid};

impl Ledger {
    /// Takes note of a pod, known or not, and says whose it is.
    pub(super) fn upsert_pod(&mut self, mut pod: Pod) -> PodUid {
        if let Some(owner) = self.sandboxes.get(&pod.sandbox).filter(|owner| **owner != pod.uid) {
            let owner = owner.clone();
            // Where an event tells no uid, the edge puts the sandbox's id in its place.
            let nameless = owner.0 == pod.sandbox.0;
            if nameless {
                self.rename_pod(&owner, &pod.uid);
            } else {
                pod.uid = owner;
            }
        }
        let uid = pod.uid.clone();
        if let Some(known) = self.pods.get(&uid) {
            self.sandboxes.remove(&known.pod.sandbox);
        }
        let known = self.pods.hear_of(pod);
        if !known.pod.sandbox.0.is_empty() {
            self.sandboxes.insert(known.pod.sandbox.clone(), uid.clone());
        }
        drop(known);
        self.note_opting_out(&uid);
        uid
    }

    /// The pod and the name of the container that an event is about, by its id if that is known.
    pub(super) fn whose(&mut self, pod: Pod, container: &mut Container) -> PodUid {
        let Some((uid, name)) = self.ids.get(&container.id).cloned() else {
            return self.upsert_pod(pod);
        };
        container.name = name;
        if uid == pod.uid || self.sandboxes.get(&pod.sandbox) == Some(&uid) {
            self.upsert_pod(pod);
        }
        // The pod's uid may have come to be known only now.
        self.ids.get(&container.id).map_or(uid, |(uid, _)| uid.clone())
    }

    /// An id means this container from now on. If it meant another one, that is gone.
    pub(super) fn supersede(&mut self, id: &ContainerId, uid: &PodUid, name: &str) {
        let Some((of, called)) = self.ids.get(id).cloned() else { return };
        if (&of, &*called) == (uid, name) {
            return;
        }
        self.ids.remove(id);
        let Some(mut entry) = self.pods.change(&of) else { return };
        let (gone, pod) = (entry.containers.remove(&called), entry.pod.clone());
        drop(entry);
        if let Some(entry) = gone {
            self.released(&pod, called, entry);
        }
    }

    /// A pod that was known by its sandbox alone has a uid after all.
    fn rename_pod(&mut self, from: &PodUid, to: &PodUid) {
        let Some(mut entry) = self.pods.remove(from) else { return };
        entry.pod.uid = to.clone();
        for (name, container) in &entry.containers {
            self.ids.insert(container.id.clone(), (to.clone(), name.clone()));
        }
        if let Some(mut known) = self.pods.change(to) {
            // Its sandbox was made anew. What both have is the same container, last heard of by the uid.
            for (name, container) in entry.containers {
                if let Some(known) = known.containers.get(&name) {
                    self.ids.remove(&container.id);
                    self.ids.insert(known.id.clone(), (to.clone(), name));
                } else {
                    known.containers.insert(name, container);
                }
            }
        } else {
            self.pods.insert(entry);
        }
        self.revision += 1;
        self.refresh_pool();
    }
}
