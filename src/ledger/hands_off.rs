//! Standing back while the kubelet's own CPU manager assigns the node's CPUs, and taking over when it no longer does.
//!
//! While it stands back the ledger changes nothing, but follows: what the kubelet sets is taken note of like what is
//! found at the start. So taking over needs no list from the runtime, and moves nobody whose CPUs are legal.

use super::entry::{Applied, Certainty, Entry, Life};
use super::event::{Decision, Wanted};
use super::model::{Container, ContainerId, PodUid};
use super::note::{Note, What};
use super::{Event, Ledger};
use crate::cpuset::CpuSet;
use crate::placement::{Reason, Rejection};
use std::fmt;

/// Who assigns the node's CPUs, and what follows for new containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stance {
    /// The ledger does.
    #[default]
    Assign,
    /// Somebody else does: new containers that ask for exclusive CPUs are refused, all else is left as it is.
    Refuse,
    /// Somebody else does: all is left as it is, and what would be decided is told.
    Observe,
}

/// Exclusive CPUs that the kubelet's own CPU manager gave to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletClaim {
    /// Whose they are.
    pub of: Named,
    /// The CPUs.
    pub cpus: CpuSet,
}

/// How the kubelet names a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Named {
    /// By its pod's uid and its name in the pod.
    Container(PodUid, String),
    /// By the runtime's id, as kubelets before 1.18.
    Id(ContainerId),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Container(uid, name) => write!(f, "{uid}/{name}"),
            Named::Id(id) => write!(f, "container {id}"),
        }
    }
}

/// What a person has to change.
const KUBELET_ACTIVE: &str = "the CPUs of this node are assigned by someone else: the kubelet's own CPU manager, or another \
     NRI plugin. Set cpuManagerPolicy: none in the kubelet's configuration, delete its cpu_manager_state file and restart it; \
     running containers keep their CPUs";

impl Ledger {
    /// Takes a stance. What the kubelet assigned is taken over at the change to [`Stance::Assign`], or, if nothing is
    /// known of the node yet, with its first list of containers.
    pub(super) fn stand(&mut self, stance: Stance, claims: Vec<KubeletClaim>) {
        let before = std::mem::replace(&mut self.stance, stance);
        self.kubelet = claims;
        if stance == Stance::Assign && before != stance && !self.pods.is_empty() {
            // Whatever somebody else has set since has ended the claim.
            self.adopt_anew(|entry| entry.claim.or(entry.told()));
        }
    }

    /// What would be done with an event, without doing it.
    pub(super) fn rehearse(&mut self, event: Event) {
        use What::{Assigned, LeftShared, Moved, Refused, Resized};
        if !matches!(event, Event::Create { .. } | Event::Update { .. } | Event::Synchronize { .. })
        {
            return;
        }
        let mut trial = Ledger { stance: Stance::Assign, notes: Vec::new(), ..self.clone() };
        // A refusal is among the notes.
        let _ = trial.handle(event);
        let told = |note: &Note| {
            matches!(
                note.what,
                Assigned { .. } | Moved { .. } | Resized { .. } | LeftShared(_) | Refused { .. }
            )
        };
        let notes = trial.take_notes().into_iter().filter(told);
        self.notes.extend(notes.map(|note| Note { done: false, ..note }));
    }

    /// A new container that gets what somebody else decided. A restarted one is not new: it is let through.
    pub(super) fn create_untouched(
        &mut self,
        uid: &PodUid,
        container: &Container,
    ) -> Result<Decision, Rejection> {
        let known = self.entry(uid, &container.name).is_some();
        let terms = self.standing_terms(uid, container);
        let asks = match self.grant(uid, container, &terms) {
            Ok(grant) => grant.claim().is_some(),
            Err(_) => true,
        };
        if self.stance == Stance::Refuse && asks && !known {
            if let Some(mut pod) = self.pods.change(uid) {
                pod.refused = true;
            }
            let message = KUBELET_ACTIVE.to_owned();
            let rejection = Rejection { reason: Reason::UnexpectedAdmission, message };
            return Err(self.refuse(uid, container, rejection, None));
        }
        self.supersede(&container.id, uid, &container.name);
        let Some(mut pod) = self.pods.change(uid) else { return Ok(Decision::default()) };
        let before = pod.containers.remove(&container.name);
        let life = Life::Created { updated: false };
        let mut entry = Entry::new(container, life, self.settings.exclusivity);
        entry.restarted =
            before.as_ref().is_some_and(|before| before.life == Life::Stopped || before.restarted);
        // One that comes back without CPUs has a right to those of its name, as soon as they are assigned here.
        if let Some(before) = before.as_ref().filter(|_| container.cpus.is_none()) {
            (entry.claim, entry.isolated) = (before.claim, before.isolated);
        }
        entry.before = before.as_ref().map(|before| before.id.clone());
        entry.inherited = entry.claim.is_some();
        entry.terms = terms;
        pod.refused = false;
        pod.containers.insert(container.name.clone(), entry);
        drop(pod);
        if let Some(before) = before {
            self.ids.remove(&before.id);
        }
        self.ids.insert(container.id.clone(), (uid.clone(), container.name.clone()));
        self.follow(uid, container);
        Ok(Decision::default())
    }

    /// Takes note of what somebody else sets for a container that exists.
    pub(super) fn update_untouched(&mut self, uid: &PodUid, container: &Container, wanted: Wanted) {
        let changed = self.pods.change_entry(uid, &container.name, |entry| {
            entry.cpu = entry.cpu.changed_by(wanted.cpu);
            entry.lifted &= !wanted.sets_quota;
            let cpus = wanted.cpus.filter(|cpus| !entry.is_on(cpus, Certainty::Told))?;
            entry.applied = Some(Applied::told(cpus, false));
            entry.claim = None;
            Some(Container { cpus: Some(cpus), cpu: entry.cpu, ..container.clone() })
        });
        if let Some(container) = changed.flatten() {
            self.follow(uid, &container);
        }
    }

    /// Makes the claims fit what is set for a container now.
    fn follow(&mut self, uid: &PodUid, container: &Container) {
        self.adopt_set(uid, container);
        self.revision += 1;
        self.refresh_pool();
    }
}
