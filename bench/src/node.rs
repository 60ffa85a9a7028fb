//! Nodes for the cases: two sockets (one if there is one NUMA node), SMT, uncore caches of up to
//! eight cores, half of the CPUs exclusive.

use ledger::{
    Admission, Container, ContainerId, CpuRequest, Event, Ledger, Mechanism, MilliCpu, Pod, PodUid,
    Policy, Qos, Rebalance, RebalanceMode, SandboxId, Settings,
};
use machines::synthetic::{DescriptionError, Machine, Numbering};
use placement::{self, EngineKind, Options, Rejection, TopologyManager, TopologyPolicy};
use std::time::Duration;

/// A machine's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// A multiple of 4.
    pub(super) cpus: usize,
    /// One, or an even number.
    pub(super) nodes: usize,
}

impl Size {
    fn machine(self) -> Machine {
        let sockets = self.nodes.min(2);
        let cores = self.cpus / 2 / sockets;
        let nodes = self.nodes / sockets;
        Machine {
            sockets,
            nodes,
            // No cache reaches into a second node.
            caches: nodes * cores.div_ceil(nodes * 8),
            cores,
            threads: 2,
            numbering: Numbering::Interleaved,
            ..Machine::default()
        }
    }

    /// The CPUs of a request: an eighth of the machine, more than a node where nodes are small.
    pub(super) fn request(self) -> usize {
        self.cpus / 8
    }
}

#[derive(Clone)]
pub(super) struct Node {
    pub(super) ledger: Ledger,
    /// The pods created so far.
    serial: u64,
}

impl Node {
    /// A node that was filled with pods of 2, 4 and 6 CPUs, every second of which has ended.
    pub(super) fn half_full(size: Size, mechanism: Mechanism) -> Result<Node, DescriptionError> {
        Node::half_full_by(EngineKind::Kubelet, size, mechanism)
    }

    /// Like [`Node::half_full`], with this engine; with `compact`, the node has a budget of moves.
    pub(super) fn half_full_by(
        engine: EngineKind,
        size: Size,
        mechanism: Mechanism,
    ) -> Result<Node, DescriptionError> {
        let topology = size.machine().topology()?;
        let policy = TopologyPolicy::BestEffort;
        let settings = Settings {
            policy: Policy::Static,
            placement: placement::PlacementSettings {
                options: Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() },
                topology_manager: TopologyManager { policy, ..TopologyManager::default() },
                reserved: topology.cores()[0].cpus,
                engine,
                ..placement::PlacementSettings::default()
            },
            rebalance: (engine == EngineKind::Compact).then_some(Rebalance {
                mode: RebalanceMode::Move,
                moves_per_100_starts: 20,
                across_numa_nodes: true,
                min_stay: Duration::ZERO,
            }),
            ..Settings::default()
        };
        let mut node = Node { ledger: Ledger::new(topology, settings, Vec::new()), serial: 0 };
        node.ledger.apply(Event::Mechanism(mechanism));
        let mut pods = Vec::new();
        for cpus in [2, 4, 6].into_iter().cycle() {
            let pod = node.pod(Qos::Guaranteed);
            if node.start(&pod, Some(MilliCpu(cpus * 1000))).is_err() {
                pods.push(pod.sandbox);
                break;
            }
            pods.push(pod.sandbox);
        }
        for sandbox in pods.into_iter().rev().step_by(2) {
            node.ledger.apply(Event::StopPod(sandbox));
        }
        Ok(node)
    }

    /// Starts shared containers, each in its own pod.
    pub(super) fn with_shared(mut self, count: usize) -> Result<Node, Rejection> {
        for _ in 0..count {
            let pod = self.pod(Qos::Burstable);
            self.start(&pod, Some(MilliCpu(500)))?;
        }
        Ok(self)
    }

    /// The admission of a container of a new pod, and the ledger that already has the pod.
    pub(super) fn admission(
        mut self,
        qos: Qos,
        milli: u64,
    ) -> Result<(Ledger, Admission), Rejection> {
        let pod = self.pod(qos);
        self.ledger.apply(Event::RunPod(pod.clone()));
        let container = self.container(&pod, Some(MilliCpu(milli)));
        Ok((self.ledger, Admission::Create { pod, container }))
    }

    /// An event that reports a known pod again; the pod has this many annotations.
    pub(super) fn known_pod(mut self, pod_options: usize) -> (Ledger, Event) {
        let name = |number| format!("cpus.cpu-manager.nri.io/container.container-{number}");
        let mut pod = self.pod(Qos::Burstable);
        pod.annotations = (0..pod_options).map(|number| (name(number), "shared")).collect();
        self.ledger.apply(Event::RunPod(pod.clone()));
        (self.ledger, Event::RunPod(pod))
    }

    fn start(&mut self, pod: &Pod, cpu: Option<MilliCpu>) -> Result<(), Rejection> {
        let container = self.container(pod, cpu);
        let pod = pod.clone();
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let decision = self.ledger.admit(create)?;
        self.ledger.apply(Event::Answered(decision));
        self.ledger.apply(Event::Started { pod, container });
        Ok(())
    }

    /// Ids are as long as the real ones.
    fn pod(&mut self, qos: Qos) -> Pod {
        self.serial += 1;
        let serial = self.serial;
        Pod {
            sandbox: SandboxId(format!("{serial:064x}").into()),
            uid: PodUid(format!("{:08x}-3b1f-4f6e-9f4e-5a8c1d2e7b90", serial).into()),
            namespace: "default".to_owned(),
            name: format!("pod-{serial}"),
            qos,
            budget: None,
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        }
    }

    fn container(&self, pod: &Pod, cpu: Option<MilliCpu>) -> Container {
        let limit = if pod.qos == Qos::Guaranteed { cpu } else { None };
        Container::new(
            ContainerId(format!("{:064x}", u64::MAX - self.serial).into()),
            pod.sandbox.clone(),
            "main",
            CpuRequest { request: cpu, limit },
        )
    }
}
