//! The plugin starts anew.

use super::wishes::opts_out;
use super::{Instance, Node, PodSpec, exclusive, ledger};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::model::ContainerId;
use nri_cpu_manager::ledger::{
    Claim, Container, CpuRequest, Event, MilliCpu, Pod, Policy, Qos, SandboxId, Target,
};
use std::collections::BTreeMap;

impl Node {
    /// With its checkpoint, without one, or with an old one. It moves no container.
    pub(super) fn restart(&mut self, memory: u8) {
        // Where the rules of today give nobody such CPUs, only the memory tells that they are
        // exclusive.
        let remembered = memory == 0;
        let fixed = self.settings.policy == Policy::Static;
        let wishes = !self.settings.namespaces.is_empty();
        let asks = |pod: &Pod| match wishes {
            true => fixed && !opts_out(pod),
            false => fixed && pod.qos == Qos::Guaranteed,
        };
        let claims: Vec<Claim> = self.ledger.claims().collect();
        let memory = match memory {
            0 => claims.clone(),
            1 => Vec::new(),
            _ => std::mem::replace(&mut self.old_memory, claims),
        };
        let before = self.instances.clone();
        let partitions: Vec<ContainerId> = self
            .ledger
            .targets()
            .filter(Target::is_partition)
            .map(|placed| placed.subject.id)
            .collect();
        let runs_on: BTreeMap<String, CpuSet> = self
            .instances
            .iter()
            .filter_map(|(id, instance)| {
                Some((id.clone(), self.runs_on(&instance.container.id, instance.adjustment?)))
            })
            .collect();
        self.ledger = ledger(&self.topology, &self.settings, self.mechanism, memory);
        // CRI-O lists what it created, whatever became of it by resizes; and a quota that has been
        // lifted is in no list.
        let outdated = remembered && self.serial.is_multiple_of(3);
        let tells_less =
            |instance: &Instance| remembered && exclusive(instance.adjustment).is_some();
        let listed = |instance: &Instance| match tells_less(instance) {
            true if outdated => CpuRequest { request: Some(MilliCpu(1000)), limit: None },
            true => CpuRequest { limit: None, ..instance.container.cpu },
            false => instance.container.cpu,
        };
        let report = |instance: &Instance| Container {
            cpus: instance.adjustment.map(|adjustment| adjustment.cpus()),
            runs_on: runs_on.get(&instance.container.id.0).copied(),
            cpu: listed(instance),
            partitioned: partitions.contains(&instance.container.id),
            outdated: outdated && tells_less(instance),
            ..instance.container.clone()
        };
        let containers: Vec<Container> =
            self.instances.values().filter(|instance| !instance.stopped).map(report).collect();
        // After a reboot each pod has a dead sandbox as well, which is listed before or after the
        // one in use.
        let with_dead = |spec: &PodSpec| {
            let pod = spec.pod.clone();
            let dead = SandboxId(format!("dead-{}", pod.sandbox));
            let dead = Pod { sandbox: dead, ..pod.clone() };
            let in_use = containers.iter().any(|container| container.sandbox == pod.sandbox);
            match (in_use, (pod.name.len() + self.serial).is_multiple_of(2)) {
                (false, _) => vec![pod],
                (true, true) => vec![pod, dead],
                (true, false) => vec![dead, pod],
            }
        };
        let pods = self.pods.iter().flat_map(with_dead).collect();
        self.event(Event::Synchronize { pods, containers });
        self.unclaimed_share();
        for (id, instance) in before {
            // One that lost CPUs for good may be completed.
            let was =
                exclusive(instance.adjustment).filter(|was| instance.wanted() == Some(was.len()));
            let is = self.instances[&id].adjustment.map(|adjustment| adjustment.cpus());
            assert!(
                !(remembered || asks(&instance.pod)) || was.is_none() || is == was,
                "{id} was moved from {was:?} to {is:?} by a restart"
            );
        }
    }
}
