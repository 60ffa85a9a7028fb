//! A kubelet whose static policy is active for a while.

use super::wishes::opts_out;
use super::{Instance, Node, exclusive};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::model::ContainerId;
use nri_cpu_manager::ledger::{Adjustment, Admission, Claim, Event, Policy, Qos, Stance};

impl Node {
    /// Whether a kubelet can have admitted a pod with this container: the exclusive CPUs of all of
    /// them fit the pod's budget.
    fn fits_budget(&self, instance: &Instance, n: usize) -> bool {
        let of_pod = |claim: &Claim| claim.pod_uid == instance.pod.uid;
        let others = self.claims().into_iter().filter(of_pod);
        let others = others.filter(|claim| claim.container != instance.container.name);
        let held: usize = others.map(|claim| claim.cpus.len()).sum();
        instance.pod.budget.is_none_or(|budget| (held + n) as u64 * 1000 <= budget.0)
    }

    /// While the kubelet assigns CPUs, the ledger sends no updates. When it stops, no container with
    /// exclusive CPUs moves.
    pub(super) fn kubelet(&mut self, observe: bool, creates: &[(usize, usize)]) {
        let stance = if observe { Stance::Observe } else { Stance::Refuse };
        self.event(Event::Kubelet { stance, claims: Vec::new() });
        for &(pod, container) in creates {
            let Some(mut instance) = self.instance(pod, container) else { continue };
            // A kubelet ignores wishes, and a pod that opted out shares once it stops.
            if opts_out(&instance.pod) {
                continue;
            }
            let guaranteed = instance.pod.qos == Qos::Guaranteed;
            let wanted = if guaranteed { instance.wanted() } else { None };
            let wanted = wanted.filter(|n| self.fits_budget(&instance, *n));
            // A kubelet assigns idle siblings too.
            let claims = self.ledger.claims().map(|claim| claim.cpus);
            let pins =
                self.instances.values().filter_map(|instance| exclusive(instance.adjustment));
            let taken: CpuSet = claims.chain(pins).collect();
            let free = self.topology.online() - taken - self.settings.placement.reserved;
            instance.adjustment = wanted.filter(|n| *n <= free.len()).and_then(|n| {
                Adjustment::exclusive((free - free.lowest(free.len() - n)).lowest(n))
            });
            instance.container.cpus = instance.adjustment.map(|adjustment| adjustment.cpus());
            instance.running = true;
            let pod = instance.pod.clone();
            let container = instance.container.clone();
            if let Some(decision) =
                self.admit(Admission::Create { pod: pod.clone(), container: container.clone() })
            {
                let changes = (decision.adjustment(), decision.due.updates);
                assert_eq!(changes, (None, Vec::new()), "{} was not left alone", container.id);
                self.replace(instance);
                self.event(Event::Started { pod, container });
            }
        }
        let before = self.instances.clone();
        self.event(Event::Kubelet { stance: Stance::Assign, claims: Vec::new() });
        self.event(Event::Stop(ContainerId("unknown".to_owned())));
        for (id, instance) in before.iter().filter(|(_, instance)| !instance.stopped) {
            let was = exclusive(instance.adjustment);
            let is = exclusive(self.instances[id].adjustment);
            // A container that lost CPUs keeps the others, and may get new ones.
            let complete = was.map(|was| was.len()) == instance.wanted();
            let completed = !complete && was.zip(is).is_some_and(|(was, is)| was.is_subset(&is));
            let stays = was.is_none() || is == was || completed;
            // Without the kubelet's state file, CPUs count as assigned only under policy `static`.
            let adopts = self.settings.policy == Policy::Static;
            assert!(!adopts || stays, "{id} was moved from {was:?} to {is:?}");
        }
        self.unclaimed_share();
    }
}
