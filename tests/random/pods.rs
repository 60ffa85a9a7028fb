//! Pods and their containers, as a runtime reports them.

use super::*;

#[derive(Debug, Clone)]
pub(super) struct PodSpec {
    pub(super) pod: Pod,
    /// The request and limit of its two containers, in halves of a CPU.
    pub(super) cpus: [u8; 2],
    pub(super) kinds: [ContainerKind; 2],
    /// Whether it has resources of its own.
    pub(super) resources: bool,
}

impl PodSpec {
    fn kind(&self, container: usize) -> ContainerKind {
        self.kinds.get(container).copied().unwrap_or_default()
    }

    /// What the runtime reports for a container: without resources of its own that is the pod's.
    fn request(&self, container: usize) -> CpuRequest {
        let own = self.cpus.get(container).map(|halves| MilliCpu(u64::from(*halves) * 500));
        let inherited = if self.resources { self.pod.budget } else { None };
        let amount = own.filter(|own| own.0 > 0).or(inherited).or(own);
        CpuRequest { request: amount, limit: amount }
    }
}

impl Node {
    /// A new instance of a pod's container, not yet created.
    pub(super) fn instance(&mut self, pod: usize, container: usize) -> Option<Instance> {
        let serial = self.next();
        let spec = self.pods.get(pod % self.pods.len().max(1))?.clone();
        let (kind, cpu) = (spec.kind(container), spec.request(container));
        let pod = spec.pod;
        let group = format!("{}/c{serial}", pod.cgroup.as_ref().unwrap());
        let container = Container {
            cgroup: CgroupPath::new(&group),
            kind,
            created_at: Some(serial as i64),
            ..Container::new(
                ContainerId(format!("id-{serial}")),
                pod.sandbox.clone(),
                format!("c{container}"),
                cpu,
            )
        };
        Some(Instance { pod, container, adjustment: None, running: false, stopped: false })
    }

    /// The exclusive CPUs of containers that exist and wait for no others.
    pub(super) fn exclusive_alive(&self) -> Vec<(String, CpuSet)> {
        let settled = |i: &Instance| !i.stopped && !self.ledger.is_waiting(&i.container.id);
        let alive = self.instances.iter().filter(|(_, instance)| settled(instance));
        alive.filter_map(|(id, i)| Some((id.clone(), exclusive(i.adjustment)?))).collect()
    }
}
