//! Changes of the node while containers run: CPU hotplug and new settings.

use super::machines::Change;
use super::*;
use std::collections::BTreeSet;

impl Node {
    /// A container that neither loses nor lacks CPUs does not move. One that loses some keeps the
    /// others, except for halves of cores where it has whole ones.
    pub(super) fn hotplug(&mut self, cpu: usize) {
        let all: Vec<usize> = self.whole.online().iter().collect();
        let mut online = self.topology.online();
        let cpu = all[cpu % all.len()];
        if !online.contains(cpu) {
            online.insert(cpu).unwrap();
        } else if online.len() > 1 {
            online.remove(cpu);
        }
        self.topology = machines::with_online(&self.whole, online);
        let before = self.instances.clone();
        self.event(Event::Machine(self.topology.clone()));
        self.carry_out_pending();
        for (id, instance) in before {
            let Some(was) = exclusive(instance.adjustment) else { continue };
            let complete = instance.wanted() == Some(was.len()) && was.is_subset(&online);
            let is = exclusive(self.instances[&id].adjustment);
            assert!(!complete || instance.stopped || is == Some(was), "{id} from {was} to {is:?}");
            let whole_cores = self.settings.placement.options.full_pcpus_only
                || instance.pod.annotations.of("c0").wishes.smt.is_some();
            let keeps_others = is.is_none_or(|is| (was & online).is_subset(&is));
            assert!(keeps_others || whole_cores || instance.stopped, "{id} from {was} to {is:?}");
        }
    }

    /// No container with legal exclusive CPUs moves.
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

    /// Containers without a claim share. One that shares just the CPUs that were exclusive to it gets
    /// no update, so the runtime's record of it is corrected here.
    pub(super) fn unclaimed_share(&mut self) {
        let holders: BTreeSet<String> = self.claims().into_iter().map(|claim| claim.id.0).collect();
        for (_, instance) in self.instances.iter_mut().filter(|(id, _)| !holders.contains(*id)) {
            instance.adjustment =
                instance.adjustment.and_then(|adjustment| Adjustment::shared(adjustment.cpus()));
        }
    }

    /// A restarted plugin's ledger with these settings, on the node as it is.
    pub(super) fn restarted_with(&self, settings: &Settings) -> Ledger {
        let claims = self.claims();
        let mut ledger = ledger(&self.topology, settings, self.mechanism, claims.clone());
        let of_claims = claims.iter().map(|claim| &claim.pod_uid);
        let known: BTreeSet<PodUid> =
            self.instances.values().map(|i| &i.pod.uid).chain(of_claims).cloned().collect();
        let pods = self.pods.iter().map(|spec| &spec.pod).filter(|pod| known.contains(&pod.uid));
        let alive = self.instances.values().filter(|instance| !instance.stopped);
        let containers = alive.map(|instance| Container {
            cpus: instance.adjustment.map(|adjustment| adjustment.cpus()),
            ..instance.container.clone()
        });
        let pods = pods.cloned().collect();
        let containers = containers.collect();
        ledger.apply(Event::Synchronize { pods, containers });
        ledger
    }
}
