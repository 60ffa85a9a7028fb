//! In-place resizes.

use super::*;

impl Node {
    /// Growth keeps every CPU, shrinking adds none, no other container's exclusive CPUs change but of
    /// one that waits for some, and a refusal changes nothing.
    pub(super) fn resize(&mut self, container: usize, halves: u8, resizes_pod: bool) {
        let Some(id) = self.pick(container).filter(|id| !self.instances[id].stopped) else {
            return;
        };
        let Instance { pod, container, adjustment: was, .. } = self.instances[&id].clone();
        if resizes_pod {
            let budget = pod.budget.map(|budget| MilliCpu(budget.0.max(u64::from(halves) * 500)));
            self.event(Event::UpdatePod(Pod { budget, ..pod.clone() }));
        }
        let before = self.instances.clone();
        let ids = self.instances.values().map(|instance| instance.container.id.clone());
        let waiting: Vec<ContainerId> = ids.filter(|id| self.ledger.is_waiting(id)).collect();
        let claims = self.claims();
        let amount = Some(MilliCpu(u64::from(halves) * 500));
        let cpu = CpuRequest { request: amount, limit: amount };
        let wanted = Wanted { cpu, sets_quota: true, cpus: None };
        if self.admit(Admission::Update { pod, container, wanted }).is_none() {
            assert_eq!(self.claims(), claims, "a refused resize changed something");
            return;
        }
        let resized = self.instances.get_mut(&id).unwrap();
        resized.container.cpu = cpu;
        // A container that shares just the CPUs that were exclusive to it gets no update.
        if amount.and_then(MilliCpu::whole_cpus).is_none() {
            resized.adjustment =
                resized.adjustment.and_then(|adjustment| Adjustment::shared(adjustment.cpus()));
        }
        if let (Some(was), Some(is)) = (exclusive(was), exclusive(self.instances[&id].adjustment)) {
            assert!(was.is_subset(&is) || is.is_subset(&was), "{id} from {was} to {is}");
        }
        for (other, instance) in before.iter().filter(|(other, _)| **other != id) {
            let was = exclusive(instance.adjustment);
            let is = exclusive(self.instances[other].adjustment);
            assert!(
                was.is_none()
                    || instance.stopped
                    || waiting.contains(&instance.container.id)
                    || is == was,
                "{other} from {was:?} to {is:?}"
            );
        }
    }
}
