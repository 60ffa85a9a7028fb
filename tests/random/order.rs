//! The order in which containers reach their CPUs.

use super::{Node, exclusive};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::model::ContainerId;
use nri_cpu_manager::ledger::{Adjustment, Channel, Event, Mechanism, Update};
use std::collections::HashSet;

impl Node {
    /// Sends or writes updates that no answer carries, until none wait for others.
    pub(super) fn carry_out_pending(&mut self) {
        for round in 0.. {
            // Partitions are not written with the other cgroups.
            let writes = self.mechanism != Mechanism::Partitions;
            let by_runtime = !writes || self.serial.is_multiple_of(2);
            let channel = if by_runtime { Channel::Runtime } else { Channel::Groups };
            self.send(&channel);
            self.follow_groups();
            if !self.ledger.waits() {
                break;
            }
            assert!(round < 4, "updates wait forever");
        }
        self.send(&Channel::Runtime);
    }

    /// Sends what is due. In some histories the last update is lost at first, and stays due.
    fn send(&mut self, channel: &Channel) {
        let mut due = self.ledger.due(channel);
        if self.serial.is_multiple_of(3) {
            let lost = due.updates.last().map(|update| update.container.clone());
            due.hold_back(|id| Some(id) == lost.as_ref());
            self.carry_out(&due.updates, None);
            self.apply(Event::Sent(due));
            due = self.ledger.due(channel);
        }
        self.carry_out(&due.updates, None);
        self.apply(Event::Sent(due));
    }

    /// Applies the updates of an answer one by one, that of `last` after all others. No container
    /// moves onto a CPU that another has set if one of the two has it exclusively.
    pub(super) fn carry_out(&mut self, changes: &[Update], last: Option<&ContainerId>) {
        let holders = self.enforced_by_runtime();
        let (own, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|update| Some(&update.container) == last);
        let mut updated = HashSet::new();
        for update in others.into_iter().chain(own) {
            assert!(
                updated.insert(update.container.clone()),
                "{} is updated twice in one answer",
                update.container
            );
            self.check_gain(update, &holders);
            if let Some(instance) = self.instances.get_mut(&update.container.0) {
                instance.adjustment = Some(update.adjustment);
                self.set_group(&update.container.0);
            }
        }
    }

    /// Containers whose exclusive CPUs only updates by the runtime keep exclusive.
    fn enforced_by_runtime(&self) -> HashSet<String> {
        let targets =
            self.ledger.targets().filter(|target| target.enforced_by == Mechanism::Runtime);
        let enforced: HashSet<String> = targets.map(|target| target.subject.id.0).collect();
        let holders = self.claims().into_iter().map(|claim| claim.id.0);
        holders.filter(|id| enforced.contains(id)).collect()
    }

    fn check_gain(&self, update: &Update, holders: &HashSet<String>) {
        let Some(instance) = self.instances.get(&update.container.0) else { return };
        // An update of a container that has ended moves nobody.
        if instance.stopped {
            return;
        }
        let Some(before) = instance.adjustment.as_ref().map(Adjustment::cpus) else { return };
        let gains = update.adjustment.cpus() - before;
        let alone = if holders.contains(&update.container.0) {
            gains & update.adjustment.exclusive_cpus()
        } else {
            CpuSet::EMPTY
        };
        for other in self.instances.values().filter(|instance| !instance.stopped) {
            let id = &other.container.id;
            let Some(has) = other.adjustment.map(|adjustment| adjustment.cpus()) else { continue };
            let own = exclusive(other.adjustment).filter(|_| holders.contains(&id.0));
            let both = (gains & own.unwrap_or_default()) | (alone & has);
            assert!(
                *id == update.container || both.is_empty() || self.is_last_shared(&has, update),
                "{} moves onto CPUs {both}, which {id} has not left",
                update.container
            );
        }
    }

    /// Whether an exclusive container gets the only CPU that the others leave to shared containers,
    /// and no other one. The shared containers are to have the one that it leaves: as no cpuset can
    /// be empty, either they or it has to move first.
    fn is_last_shared(&self, has: &CpuSet, update: &Update) -> bool {
        let alive = self.instances.values().filter(|instance| !instance.stopped);
        let taken: CpuSet = alive.filter_map(|instance| exclusive(instance.adjustment)).collect();
        has.len() == 1 && update.adjustment.cpus() == *has && self.topology.online() - taken == *has
    }
}
