//! [`Workload`]: pods that arrive and depart, as users describe them and as a runtime reports them.

use ledger::{
    Annotations, Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Pod, PodUid, Qos,
    SandboxId,
};
use placement::memory_manager::{self, MemoryKind};
use quantity::Quantity;

/// Milliseconds since the beginning of a workload.
pub type Time = u64;

/// Pods in the order of their arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    pub pods: Vec<PodSpec>,
    /// The parts of the text that were ignored, for display.
    pub ignored: Vec<String>,
}

/// The facts of a pod that matter for CPUs and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    pub namespace: String,
    pub name: String,
    pub qos: Qos,
    pub annotations: Annotations,
    /// In the order of their start.
    pub containers: Vec<ContainerSpec>,
    pub arrive: Time,
    /// `None` if the pod stays.
    pub depart: Option<Time>,
}

/// The facts of a container that matter for CPUs and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    pub name: String,
    /// Never [`ContainerKind::Unknown`].
    pub kind: ContainerKind,
    /// In thousandths of a CPU; 0 for none.
    pub request: u64,
    /// In thousandths of a CPU; 0 for none.
    pub limit: u64,
    /// Limits of memory and huge pages; empty for none.
    pub memory: memory_manager::Amounts,
}

/// Why a text is not a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    #[error("{place}: {why}")]
    Form {
        /// The line, document or object.
        place: String,
        why: String,
    },
    /// The text has no pods; these parts were ignored.
    #[error("no pods found{}", excerpt(.0))]
    Empty(Vec<String>),
}

fn excerpt(ignored: &[String]) -> String {
    const LISTED: usize = 5;
    match ignored {
        [] => String::new(),
        listed if listed.len() <= LISTED => format!("; ignored: {}", listed.join("; ")),
        all => {
            let more = all.len() - LISTED;
            format!("; ignored: {}; and {more} more", all[..LISTED].join("; "))
        }
    }
}

/// Requests and limits of one container, for its pod's class.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Amounts {
    /// Request and limit.
    pub(crate) cpu: (Quantity, Quantity),
    pub(crate) memory: (Quantity, Quantity),
}

impl Amounts {
    /// Checks that no request exceeds its limit, as the API server does.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, (request, limit)) in [("cpu", self.cpu), ("memory", self.memory)] {
            if !limit.is_zero() && request > limit {
                return Err(format!("{what}: the request exceeds the limit"));
            }
        }
        Ok(())
    }
}

impl Workload {
    /// Sorts the pods by arrival. Pods with the same arrival keep their order.
    pub fn new(mut pods: Vec<PodSpec>, ignored: Vec<String>) -> Result<Workload, WorkloadError> {
        if pods.is_empty() {
            return Err(WorkloadError::Empty(ignored));
        }
        pods.sort_by_key(|pod| pod.arrive);
        // The kubelet starts init containers first.
        for pod in &mut pods {
            pod.containers.sort_by_key(|one| one.kind == ContainerKind::App);
        }
        Ok(Workload { pods, ignored })
    }
}

/// The class of a pod by the rule of Kubernetes: BestEffort if nothing is requested or limited;
/// Guaranteed if every container limits CPU and memory and the sums of requests equal the sums of
/// limits; otherwise Burstable.
pub(crate) fn qos(containers: &[Amounts]) -> Qos {
    let pairs = |one: &Amounts| [one.cpu, one.memory];
    let nothing = |(request, limit): &(Quantity, Quantity)| request.is_zero() && limit.is_zero();
    if containers.iter().flat_map(pairs).all(|pair| nothing(&pair)) {
        return Qos::BestEffort;
    }
    let all_limited = containers.iter().flat_map(pairs).all(|(_, limit)| !limit.is_zero());
    let sum = |of: fn(&Amounts) -> (Quantity, Quantity)| {
        containers.iter().map(of).fold((Quantity::default(), Quantity::default()), |sum, one| {
            (sum.0.plus(one.0), sum.1.plus(one.1))
        })
    };
    let equal = |(request, limit): (Quantity, Quantity)| request == limit;
    if all_limited && equal(sum(|one| one.cpu)) && equal(sum(|one| one.memory)) {
        Qos::Guaranteed
    } else {
        Qos::Burstable
    }
}

impl PodSpec {
    /// The request that the scheduler counts, in thousandths of a CPU: the largest sum of
    /// containers that run at the same time.
    pub fn request(&self) -> u64 {
        self.peak(|one| one.request)
    }

    /// The largest sum over containers that run at the same time. An init container runs with the
    /// sidecars that started before it; then all others run with all sidecars.
    fn peak(&self, of: impl Fn(&ContainerSpec) -> u64) -> u64 {
        let mut sidecars = 0u64;
        let mut peak = 0u64;
        let mut apps = 0u64;
        for one in &self.containers {
            match one.kind {
                ContainerKind::Init => peak = peak.max(sidecars.saturating_add(of(one))),
                ContainerKind::RestartableInit => sidecars = sidecars.saturating_add(of(one)),
                ContainerKind::App | ContainerKind::Unknown => apps = apps.saturating_add(of(one)),
            }
        }
        peak.max(sidecars.saturating_add(apps))
    }

    /// The limits of memory and huge pages that the kubelet sets for the pod.
    fn memory(&self) -> memory_manager::Amounts {
        let kinds = self.containers.iter().flat_map(|one| one.memory.keys());
        let sum = |kind: &MemoryKind| self.peak(|one| one.memory.get(kind).copied().unwrap_or(0));
        kinds.map(|kind| (*kind, sum(kind))).collect()
    }

    /// The pod as a runtime reports it: the budget follows from the CFS quota and shares.
    pub fn as_reported(&self, number: usize) -> Pod {
        Pod {
            sandbox: SandboxId(format!("sandbox-{number}").into()),
            uid: PodUid(format!("uid-{number}").into()),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            qos: self.qos,
            budget: as_reported(self.request(), self.peak(|one| one.limit)).budget(),
            limits: self.memory(),
            own_resources: None,
            pool: Default::default(),
            annotations: self.annotations.clone(),
            cgroup: None,
        }
    }
}

impl ContainerSpec {
    /// The container as a runtime reports it, without its kind.
    pub fn as_reported(&self, id: ContainerId, sandbox: SandboxId) -> Container {
        let cpu = as_reported(self.request, self.limit);
        Container {
            limits: self.memory.clone(),
            ..Container::new(id, sandbox, self.name.clone(), cpu)
        }
    }
}

/// Converts request and limit like the kubelet into `cpu.shares` and a quota in periods of 100 ms,
/// and like the plugin back again. Both conversions round.
fn as_reported(request: u64, limit: u64) -> CpuRequest {
    const PERIOD: u64 = 100_000;
    const LEAST_QUOTA: u64 = 1000;
    let shares = (u128::from(request) * 1024 / 1000).clamp(2, 262_144);
    let quota = (u128::from(limit) * u128::from(PERIOD) / 1000).max(u128::from(LEAST_QUOTA));
    let quota = i64::try_from(quota).ok().and_then(|quota| MilliCpu::from_quota(quota, PERIOD));
    CpuRequest {
        request: u64::try_from(shares).ok().and_then(MilliCpu::from_shares),
        limit: if limit > 0 { quota } else { None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(texts: [&str; 4]) -> Amounts {
        let [cpu, cpu_limit, memory, memory_limit] =
            texts.map(|text| Quantity::parse(text).unwrap());
        Amounts { cpu: (cpu, cpu_limit), memory: (memory, memory_limit) }
    }

    /// From the documentation of Kubernetes.
    #[test]
    fn requests_and_limits_decide_the_class_of_a_pod() {
        for (containers, expect) in [
            (vec![["0", "0", "0", "0"]], Qos::BestEffort),
            (vec![["2", "2", "1Gi", "1024Mi"]], Qos::Guaranteed),
            (vec![["2", "2", "1Gi", "1Gi"], ["500m", ".5", "1k", "1000"]], Qos::Guaranteed),
            (vec![["2", "2", "0", "0"]], Qos::Burstable),
            (vec![["2", "3", "1Gi", "1Gi"]], Qos::Burstable),
            (vec![["2", "2", "1Gi", "1Gi"], ["0", "0", "0", "0"]], Qos::Burstable),
            (vec![["0", "0", "1Gi", "0"]], Qos::Burstable),
        ] {
            let containers: Vec<Amounts> = containers.into_iter().map(amounts).collect();
            assert_eq!(qos(&containers), expect, "{containers:?}");
        }
    }

    #[test]
    fn a_runtime_reports_rounded_requests_and_limits() {
        let milli = |cpu: CpuRequest| (cpu.request.map(|one| one.0), cpu.limit.map(|one| one.0));
        assert_eq!(milli(as_reported(0, 0)), (None, None));
        assert_eq!(milli(as_reported(4000, 4000)), (Some(4000), Some(4000)));
        assert_eq!(milli(as_reported(300_000, 300_000)), (None, Some(300_000)));
        assert_eq!(milli(as_reported(250, 0)), (Some(250), None));
        assert_eq!(milli(as_reported(1, 1)), (None, Some(10)));
    }

    #[test]
    fn the_scheduler_counts_the_largest_sum_of_concurrent_containers() {
        let one = |kind, request| ContainerSpec {
            name: "c".into(),
            kind,
            request,
            limit: request,
            memory: [(MemoryKind::Memory, request)].into(),
        };
        let pod = PodSpec {
            namespace: "ns".into(),
            name: "p".into(),
            annotations: Annotations::default(),
            qos: Qos::Guaranteed,
            containers: vec![
                one(ContainerKind::Init, 5000),
                one(ContainerKind::RestartableInit, 1000),
                one(ContainerKind::Init, 2000),
                one(ContainerKind::App, 2000),
                one(ContainerKind::App, 1000),
            ],
            arrive: 0,
            depart: None,
        };
        assert_eq!(pod.request(), 5000);
        let limits = memory_manager::Amounts::from([(MemoryKind::Memory, 5000)]);
        assert_eq!(pod.as_reported(0).limits, limits);
        let later = PodSpec { containers: pod.containers[1..].to_vec(), ..pod };
        assert_eq!(later.request(), 4000);
    }
}
