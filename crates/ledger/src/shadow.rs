//! [`Shadow`]: what the ledger would decide if it assigned CPUs, while it only observes.

use crate::books::Books;
use crate::event::{Admission, Call, Channel, Event};
use crate::life;
use crate::model::{Container, Pod};
use crate::node::Node;
use crate::note::{Note, What};
use crate::policy::Stance;
use crate::view::{Figures, View};
use crate::{KubeletClaim, Ledger};

/// Rounds of updates after an event: a container leaves CPUs, and another one gets them.
const ROUNDS: usize = 4;

/// A ledger that assigns CPUs, and whose decisions nobody carries out. It gets every event of the ledger that it belongs
/// to. Its updates count as made at once.
#[derive(Debug, Clone)]
pub(super) struct Shadow(Box<Ledger>);

impl Shadow {
    /// Takes over what runs, as `observer`, which has no shadow yet, would if it assigned CPUs from now on.
    pub(super) fn of(observer: &Ledger, claims: Vec<KubeletClaim>) -> Shadow {
        let mut ledger = Box::new(observer.clone());
        ledger.take_notes();
        ledger.apply(Event::Stance { stance: Stance::Assign, claims });
        let mut shadow = Shadow(ledger);
        shadow.settle();
        shadow
    }

    pub(super) fn follow(&mut self, call: Call) {
        match call {
            Call::Admission(admission) => self.admit(admission),
            // What became of the observer's own decisions, and of cgroups that it does not write.
            Call::Event(
                Event::Answered(_)
                | Event::Sent(_)
                | Event::Revoked(_)
                | Event::Stance { .. }
                | Event::Unbound(_)
                | Event::Distrusted(_)
                | Event::PartitionRefused(_)
                | Event::Move(_)
                | Event::Suggested(_)
                | Event::Drifted(_),
            ) => return,
            Call::Event(Event::Synchronize { pods, mut containers }) => {
                containers.iter_mut().for_each(|container| self.set_in_list(container));
                let installing = self.0.books.journal.installing;
                self.0.apply(Event::Synchronize { pods, containers });
                // The installation is when the observer assigns CPUs.
                self.0.books.journal.installing = installing;
            }
            Call::Event(event) => drop(self.0.apply(event)),
        }
        self.settle();
    }

    /// Gives a listed container the CPUs that the runtime would have set for it.
    fn set_in_list(&self, container: &mut Container) {
        if let Some(known) = self.0.books.find(&container.id) {
            (container.cpus, container.runs_on) = (known.entry.applied.cpus(), None);
        }
    }

    fn admit(&mut self, admission: Admission) {
        let created = match &admission {
            Admission::Create { pod, container } => Some((pod.clone(), container.clone())),
            Admission::Update { .. } => None,
        };
        match self.0.admit(admission) {
            Ok(decision) => drop(self.0.apply(Event::Answered(decision))),
            Err(_) => created.into_iter().for_each(|(pod, container)| self.share(pod, container)),
        }
    }

    /// A container that would be refused runs all the same: with the shared CPUs.
    fn share(&mut self, pod: Pod, container: Container) {
        let Ledger { node, books, .. } = &mut *self.0;
        let assigns_none = Node { stance: Stance::Refuse, ..node.clone() };
        life::starting(&assigns_none, books, pod, container);
        self.0.recompute();
    }

    fn settle(&mut self) {
        let ledger = &mut self.0;
        if ledger.next_notice().is_some_and(|at| at <= ledger.node.now) {
            ledger.apply(Event::NoticeOver);
        }
        for _ in 0..ROUNDS {
            if !ledger.owes() {
                break;
            }
            let due = ledger.due(&Channel::Runtime);
            ledger.apply(Event::Sent(due));
        }
    }

    /// Returns and removes the notes about what would have been done.
    pub(super) fn take_notes(&mut self) -> impl Iterator<Item = Note> {
        use What::{
            Assigned, LeftShared, Moved, PodAssigned, Refused, Released, Resized, SharesOwnPool,
        };
        let is_a_deed = |note: &Note| {
            matches!(
                note.what,
                Assigned { .. }
                    | PodAssigned { .. }
                    | SharesOwnPool(_)
                    | Moved { .. }
                    | Resized { .. }
                    | LeftShared(_)
                    | Refused { .. }
                    | Released(_)
            )
        };
        let notes = self.0.take_notes().into_iter().filter(is_a_deed);
        notes.map(|note| Note { done: false, ..note })
    }

    /// No container has been moved that `observer` has not moved.
    pub(super) fn view(&self, observer: &Books) -> View {
        let moves = observer.journal.moves().clone();
        let mut view = View::clone(&self.0.view());
        view.figures = Figures { stance: Stance::Observe, moves, ..view.figures };
        view
    }
}
