//! CPUs that go offline and come back.

use super::*;

impl Node {
    /// A container that loses no CPU, and lacks none, does not move; one that loses some keeps the
    /// others, but for halves of cores.
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
            let by_cores = |(name, _): &(String, String)| name.starts_with("smt.");
            let halves = self.settings.placement.options.full_pcpus_only
                || instance.pod.annotations.iter().any(by_cores);
            let kept = is.is_none_or(|is| (was & online).is_subset(&is));
            assert!(kept || halves || instance.stopped, "{id} from {was} to {is:?}");
        }
    }
}
