//! A kubelet with its static policy that comes and goes.

use super::wishes::opts_out;
use super::{Node, exclusive};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::model::ContainerId;
use nri_cpu_manager::ledger::{
    Adjustment, Admission, Decision, Event, MilliCpu, Policy, Qos, Stance,
};

impl Node {
    /// While the kubelet assigns, there are no updates. When it no longer does, no container with
    /// exclusive CPUs moves.
    pub(super) fn kubelet(&mut self, observe: bool, creates: &[(usize, usize)]) {
        let stance = if observe { Stance::Observe } else { Stance::Refuse };
        self.event(Event::Kubelet { stance, claims: Vec::new() });
        for &(pod, container) in creates {
            let Some(mut instance) = self.instance(pod, container) else { continue };
            let n = instance.container.cpu.limit.and_then(MilliCpu::whole_cpus);
            // A kubelet knows nothing of wishes; a pod that wished to share shares when it is gone.
            if opts_out(&instance.pod) {
                continue;
            }
            let wanted = n.filter(|_| instance.pod.qos == Qos::Guaranteed);
            // Nor does it know of siblings that are kept idle.
            let claims = self.ledger.claims().map(|claim| claim.cpus);
            let pins =
                self.instances.values().filter_map(|instance| exclusive(instance.adjustment));
            let taken: CpuSet = claims.chain(pins).collect();
            let taken = taken | self.settings.placement.reserved;
            let free = self.topology.online() - taken;
            instance.adjustment = wanted.filter(|n| *n <= free.len()).and_then(|n| {
                Adjustment::exclusive((free - free.lowest(free.len() - n)).lowest(n))
            });
            instance.container.cpus = instance.adjustment.map(|adjustment| adjustment.cpus());
            instance.running = true;
            let pod = instance.pod.clone();
            let container = instance.container.clone();
            if let Some(decision) =
                self.event(Admission::Create { pod: pod.clone(), container: container.clone() })
            {
                assert_eq!(decision, Decision::default(), "{} was not left alone", container.id);
                self.replace(instance);
                self.event(Event::Started { pod, container });
            }
        }
        let before = self.instances.clone();
        self.event(Event::Kubelet { stance: Stance::Assign, claims: Vec::new() });
        self.event(Event::Stop(ContainerId("nobody".to_owned())));
        for (id, instance) in before.iter().filter(|(_, instance)| !instance.stopped) {
            let was = instance
                .adjustment
                .filter(Adjustment::is_exclusive)
                .map(|adjustment| adjustment.cpus());
            let is = exclusive(self.instances[id].adjustment);
            // A container that has lost CPUs keeps the others, and may get new ones.
            let complete = was.map(|was| was.len()) == instance.wanted();
            let kept = was.zip(is).is_some_and(|(was, is)| was.is_subset(&is));
            // Whose assignments nobody has told of are assignments only under a policy that would
            // make such.
            let fixed = self.settings.policy == Policy::Static;
            let stays = was.is_none() || is == was || kept && !complete;
            assert!(!fixed || stays, "{id} was moved from {was:?} to {is:?}");
        }
        self.unclaimed_share();
    }
}
