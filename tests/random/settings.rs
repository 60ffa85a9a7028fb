//! The administrator changes the settings while containers run.

use super::machines::Change;
use super::*;
use std::collections::BTreeSet;

impl Node {
    /// No container with legal exclusive CPUs moves, and only moved ones get an update.
    pub(super) fn reconfigure(&mut self, change: &Change) {
        let Some(settings) = change.settings(&self.topology, &self.settings) else { return };
        let reserved = settings.placement.reserved;
        self.settings = settings.clone();
        let before = self.instances.clone();
        self.event(Event::Settings(settings));
        self.carry_out_pending();
        self.unclaimed_share();
        for (id, instance) in before.iter().filter(|(_, instance)| !instance.stopped) {
            let Some(was) = exclusive(instance.adjustment) else { continue };
            let now = &self.instances[id];
            let legal = was.is_disjoint(&reserved) && instance.wanted() == Some(was.len());
            assert!(
                !legal || exclusive(now.adjustment) == Some(was),
                "{id} from {was} to {:?}",
                now.adjustment
            );
        }
    }

    /// A container that lost its exclusive CPUs needs no update if it shares just the CPUs that
    /// were its own.
    pub(super) fn unclaimed_share(&mut self) {
        let holders: BTreeSet<String> = self.claims().into_iter().map(|claim| claim.id.0).collect();
        for (_, instance) in self.instances.iter_mut().filter(|(id, _)| !holders.contains(*id)) {
            instance.adjustment =
                instance.adjustment.and_then(|adjustment| Adjustment::shared(adjustment.cpus()));
        }
    }

    /// The same with a restart: another plugin with these settings finds the node as it is.
    pub(super) fn restarted_with(&self, settings: &Settings) -> Ledger {
        let claims = self.claims();
        let mut ledger = ledger(&self.topology, settings, self.mechanism, claims.clone());
        let of_claims = claims.iter().map(|claim| &claim.pod_uid);
        let known: BTreeSet<PodUid> =
            self.instances.values().map(|i| &i.pod.uid).chain(of_claims).cloned().collect();
        let specs = self.pods.iter().filter(|spec| known.contains(&spec.pod.uid));
        let pods = specs.map(|spec| spec.pod.clone()).collect();
        let alive = self.instances.values().filter(|instance| !instance.stopped);
        let containers = alive.map(|instance| Container {
            cpus: instance.adjustment.map(|adjustment| adjustment.cpus()),
            ..instance.container.clone()
        });
        let event = Event::Synchronize { pods, containers: containers.collect() };
        ledger.handle(event).unwrap();
        ledger
    }
}
