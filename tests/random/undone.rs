//! The runtime cannot create a container that was let in.

use super::{Node, exclusive};
use nri_cpu_manager::ledger::{Claim, Event};

impl Node {
    /// What its name had stays its name's.
    pub(super) fn undone(&mut self, pod: usize, container: usize, stops: bool) {
        let Some(instance) = self.instance(pod, container) else { return };
        let id = instance.container.id.clone();
        let of = instance.clone();
        let its = |claims: Vec<Claim>| {
            let mut all = claims.into_iter();
            all.find(|claim| {
                (&claim.pod_uid, &claim.container) == (&of.pod.uid, &of.container.name)
            })
        };
        let before = its(self.claims());
        self.create(instance);
        let Some(failed) = self.instances.remove(&id.0) else { return };
        if stops {
            self.event(Event::Stop(id.clone()));
        }
        self.event(Event::Remove(id));
        let kept = exclusive(failed.adjustment)
            .filter(|cpus| before.as_ref().is_some_and(|b| b.cpus == *cpus));
        if kept.is_some() {
            assert_eq!(its(self.claims()).map(|claim| claim.cpus), kept, "{of:?}");
        }
    }
}
