//! How the owner brings due updates to containers: with answers, by calls of the runtime, and by
//! writes into cgroups. What has gone out returns to the ledger.

use super::delivery::Sent;
use super::owner::Owner;
use super::persist::AfterSave;
use super::step::Effect;
use crate::cpuset::CpuSet;
use crate::exclusivity::Scope;
use crate::ledger::{Channel, ContainerId, Event, Mechanism, Target};

/// The most writes of one container in a row: it leaves CPUs, gets some, and gets the rest. The
/// drift watcher repairs what fails.
const ROUNDS: usize = 4;

impl Owner {
    /// The runtime has got an answer.
    pub(super) fn answered(&mut self, sent: Sent) {
        let now = self.now;
        let pace = &mut self.delivery.pace;
        let event = match sent {
            Sent::Nothing => {
                pace.answered(&[], false, now);
                self.delivery.owing |= self.ledger.owes();
                return;
            }
            Sent::Decision(decision) => {
                // After a request the runtime makes its next call as soon as it has made the updates.
                pace.answered(&decision.due.updates, true, now);
                Event::Answered(decision)
            }
            Sent::Due(due) => {
                pace.answered(&due.updates, false, now);
                Event::Sent(due)
            }
        };
        self.apply(event);
        self.delivery.owing |= self.ledger.waits() && self.ledger.owes();
    }

    /// Brings due updates to containers, when the checkpoint is written: at once where that is
    /// safe, otherwise with the next answers.
    pub(super) fn flush(&mut self) {
        // Shared containers leave CPUs before others are moved there.
        self.bind(Scope::Binding);
        self.after_save(AfterSave::Deliver);
    }

    pub(super) fn flush_owed(&mut self) {
        if self.ledger.owes() {
            self.flush();
        }
    }

    /// Calls the runtime with the due updates, or writes cgroups where a call is not safe.
    pub(super) fn deliver(&mut self) {
        self.bring_updates();
        // Shared containers come to the CPUs that others have left.
        self.bind(Scope::Binding);
    }

    fn bring_updates(&mut self) {
        let calls = self.delivery.calls();
        if calls && self.ledger.mechanism() != Mechanism::Groups {
            return self.call();
        }
        // Containers that wait for others have to stay until a check shows that these have left.
        let waits = self.ledger.waits();
        if !waits {
            self.write_cpus();
        }
        if calls {
            self.call();
        }
        if waits {
            self.checks.soon(self.now);
        }
    }

    /// Calls the runtime with all due updates, unless a call is under way or has just failed: the
    /// next event or check pass calls then.
    pub(super) fn call(&mut self) {
        if !self.delivery.is_free(self.now) {
            return;
        }
        let mut due = self.ledger.due(&Channel::Runtime);
        let early = self.enforcement.too_early(&due.updates, &self.ledger);
        due.hold_back(|id| early.contains(id));
        if !early.is_empty() {
            self.enforcement.look_again(self.now);
        }
        if !due.updates.is_empty() {
            self.delivery.called(due.updates.clone(), self.now);
            self.effects.push(Effect::Update(due.updates.clone()));
        }
        self.apply(Event::Sent(due));
    }

    /// A call of the runtime has ended. `made`: whether the runtime says that it has made the
    /// updates.
    pub(super) fn returned(&mut self, made: bool) {
        let updates = self.delivery.returned(made, self.now);
        // Writes of newer decisions may have come before the call, and this call has undone them.
        let stale = updates.into_iter().filter(|update| {
            let target = self.ledger.target(&update.container);
            !made || target.is_some_and(|target| target.adjustment != update.adjustment)
        });
        let stale: Vec<ContainerId> = stale.map(|update| update.container).collect();
        if !stale.is_empty() {
            self.apply(Event::Drifted(stale));
        }
        // Updates that became due during the call had to wait.
        if made {
            self.after_save(AfterSave::Deliver);
        }
    }

    /// Writes due updates into cgroups, in the ledger's order. The next answer repeats them to the
    /// runtime; if cgroups cannot be written, it is the only way.
    pub(super) fn write_cpus(&mut self) {
        if self.enforcement.cannot_write().is_some() {
            return;
        }
        // One that cannot be written holds up no other, but those that are to have CPUs which it does
        // not leave.
        let mut failed = Vec::new();
        let (mut kept, mut kept_exclusively) = (CpuSet::EMPTY, CpuSet::EMPTY);
        for _ in 0..ROUNDS {
            let mut due = self.ledger.due(&Channel::Groups);
            due.hold_back(|id| failed.contains(id));
            if due.updates.is_empty() {
                break;
            }
            for update in &due.updates {
                let Some(target) = self.ledger.target(&update.container) else { continue };
                let target = Target { adjustment: update.adjustment, ..target };
                let exclusive = update.adjustment.is_exclusive();
                let taken = if exclusive { kept } else { kept_exclusively };
                if update.adjustment.cpus().is_disjoint(&taken)
                    && self.enforcement.set_cpus(&target)
                {
                    continue;
                }
                failed.push(update.container.clone());
                let still = self.set_on(&target).unwrap_or_default();
                kept |= still;
                if exclusive {
                    kept_exclusively |= still;
                }
            }
            due.hold_back(|id| failed.contains(id));
            self.apply(Event::Sent(due));
        }
    }

    /// The CPUs that are set for a container's cgroup.
    fn set_on(&self, target: &Target) -> Option<CpuSet> {
        Some(self.checks.verifier()?.set_for(target.cgroup.as_ref()?)?.cpus)
    }
}
