//! The order in which containers get to their CPUs.

use super::{Instance, Node, exclusive};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::model::ContainerId;
use nri_cpu_manager::ledger::{Adjustment, Channel, Event, Mechanism, Update};
use std::collections::{BTreeMap, HashSet};

impl Node {
    /// What no answer carries: sent or written, until nothing waits.
    pub(super) fn carry_out_pending(&mut self) {
        for round in 0.. {
            let channel =
                if self.serial.is_multiple_of(2) { Channel::Runtime } else { Channel::Groups };
            self.send(&channel);
            self.follow_groups();
            if !self.ledger.waits() {
                break;
            }
            assert!(round < 4, "containers wait for ever");
        }
        self.send(&Channel::Runtime);
    }

    /// Sends what is due. Now and then the last update is lost at first, and stays due.
    fn send(&mut self, channel: &Channel) {
        let mut due = self.ledger.due(channel);
        if self.serial.is_multiple_of(3) {
            let lost = due.updates.last().map(|update| update.container.clone());
            due.hold_back(|id| Some(id) == lost.as_ref());
            self.carry_out(&due.updates, None);
            self.ledger.apply(Event::Sent(due));
            due = self.ledger.due(channel);
        }
        self.carry_out(&due.updates, None);
        self.ledger.apply(Event::Sent(due));
    }

    /// Does what an answer says, one change after the other, `last` after all others. No container
    /// comes onto a CPU that another one has and that one of the two has for itself.
    pub(super) fn carry_out(&mut self, changes: &[Update], last: Option<&ContainerId>) {
        let holders = self.kept_by_runtime();
        let (own, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|update| Some(&update.container) == last);
        let mut told = HashSet::new();
        for update in others.into_iter().chain(own) {
            assert!(
                told.insert(update.container.clone()),
                "{} is told twice in one answer",
                update.container
            );
            self.check_gain(update, &holders);
            if let Some(instance) = self.instances.get_mut(&update.container.0) {
                instance.adjustment = Some(update.adjustment);
                self.set_group(&update.container.0);
            }
        }
    }

    /// Containers that have exclusive CPUs, and that the runtime keeps others off.
    fn kept_by_runtime(&self) -> HashSet<String> {
        let kept: BTreeMap<String, Mechanism> =
            self.ledger.targets().map(|placed| (placed.subject.id.0, placed.enforced_by)).collect();
        let holders = self.claims().into_iter().map(|claim| claim.id.0);
        holders.filter(|id| kept.get(id) == Some(&Mechanism::Runtime)).collect()
    }

    fn check_gain(&self, update: &Update, holders: &HashSet<String>) {
        let Some(instance) = self.instances.get(&update.container.0) else { return };
        let Some(before) = instance.adjustment.as_ref().map(Adjustment::cpus) else { return };
        let gains = update.adjustment.cpus() - before;
        let alone = update.adjustment.is_exclusive() && holders.contains(&update.container.0);
        let running = |instance: &&Instance| !instance.stopped;
        for other in self.instances.values().filter(running) {
            let id = &other.container.id;
            let Some(has) = other.adjustment.map(|adjustment| adjustment.cpus()) else { continue };
            let own = exclusive(other.adjustment).is_some() && holders.contains(&id.0);
            let both: CpuSet = gains & has;
            assert!(
                *id == update.container || !(alone || own) || both.is_empty(),
                "{} comes onto CPUs {both}, which {id} has not left",
                update.container
            );
        }
    }
}
