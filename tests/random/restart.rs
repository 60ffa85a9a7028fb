//! Restarts of the plugin.

use super::wishes::{is_mixed, opts_out};
use super::{Node, PodSpec, exclusive, ledger};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::model::ContainerId;
use nri_cpu_manager::ledger::{
    Adjustment, Claim, Container, Event, MilliCpu, Pod, Policy, Qos, SandboxId, Target,
};
use std::collections::BTreeMap;

impl Node {
    /// Restarts with the checkpoint (0), without one (1), or with an old one. It moves no container.
    pub(super) fn restart(&mut self, checkpoint: u8) {
        let current = checkpoint == 0;
        let claims: Vec<Claim> = self.ledger.claims().collect();
        let remembered = match checkpoint {
            0 => claims.clone(),
            1 => Vec::new(),
            _ => std::mem::replace(&mut self.old_checkpoint, claims),
        };
        if !current {
            // Nothing else tells which CPUs of a mixed container are its own.
            for instance in self.instances.values_mut().filter(|i| is_mixed(&i.pod)) {
                let all = instance.adjustment.map(|adjustment| adjustment.cpus());
                instance.adjustment = all.and_then(Adjustment::shared);
            }
        }
        let before = self.instances.clone();
        let partitions: Vec<ContainerId> = self
            .ledger
            .targets()
            .filter(Target::is_partition)
            .map(|target| target.subject.id)
            .collect();
        let runs_on: BTreeMap<String, CpuSet> = self
            .instances
            .iter()
            .filter_map(|(id, instance)| {
                Some((id.clone(), self.runs_on(&instance.container.id, instance.adjustment?)))
            })
            .collect();
        self.ledger = ledger(&self.topology, &self.settings, self.mechanism, remembered);
        self.distrusted.clear();
        // No list has the lifted quota of an exclusive container, and CRI-O lists containers as it
        // created them, before any resize. The checkpoint makes up for both.
        let outdated_list = current && self.serial.is_multiple_of(3);
        let mut containers = Vec::new();
        for instance in self.instances.values().filter(|instance| !instance.stopped) {
            let mut cpu = instance.container.cpu;
            let incomplete = current && exclusive(instance.adjustment).is_some();
            if incomplete {
                cpu.limit = None;
                if outdated_list {
                    cpu.request = Some(MilliCpu(1000));
                }
            }
            containers.push(Container {
                cpus: instance.adjustment.map(|adjustment| adjustment.cpus()),
                runs_on: runs_on.get(&instance.container.id.0).copied(),
                cpu,
                partitioned: partitions.contains(&instance.container.id),
                outdated: outdated_list && incomplete,
                ..instance.container.clone()
            });
        }
        // After a reboot each pod has a dead sandbox as well, listed before or after the one in use.
        let mut pods = Vec::new();
        for PodSpec { pod, .. } in &self.pods {
            pods.push(pod.clone());
            if containers.iter().any(|container| container.sandbox == pod.sandbox) {
                let sandbox = SandboxId(format!("dead-{}", pod.sandbox));
                let after = (pod.name.len() + self.serial).is_multiple_of(2);
                let at = if after { pods.len() } else { pods.len() - 1 };
                pods.insert(at, Pod { sandbox, ..pod.clone() });
            }
        }
        self.event(Event::Synchronize { pods, containers });
        self.unclaimed_share();
        for (id, instance) in before {
            // A container that lost CPUs may be completed.
            let was =
                exclusive(instance.adjustment).filter(|was| instance.wanted() == Some(was.len()));
            let now = self.instances[&id].adjustment;
            let all = now.map(|adjustment| adjustment.cpus());
            let is = if is_mixed(&instance.pod) { exclusive(now) } else { all };
            // Only the checkpoint shows exclusive CPUs that today's settings would not assign.
            let keeps = current || self.may_be_exclusive(&instance.pod);
            // One that was created while the plugin was down may reuse the CPUs of an ended one.
            let keeps = keeps && !instance.stopped;
            assert!(
                !keeps || was.is_none() || is == was,
                "{id} was moved from {was:?} to {is:?} by a restart"
            );
        }
    }

    /// Whether the settings may give containers of this pod exclusive CPUs.
    fn may_be_exclusive(&self, pod: &Pod) -> bool {
        if self.settings.policy != Policy::Static {
            false
        } else if self.settings.namespaces.is_empty() {
            pod.qos == Qos::Guaranteed
        } else {
            !opts_out(pod)
        }
    }
}
