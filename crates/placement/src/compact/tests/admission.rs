//! Under the topology manager's strict policies, `compact` admits what the kubelet's engine admits:
//! these policies promise nodes, and no engine may promise less.

use super::{cpus, request};
use crate::machines::Shape;
use crate::{DeviceNodes, EngineKind, PodDemand, Scope, TopologyPolicy, place};
use cpuset::NodeSet;
use proptest::prelude::*;

proptest! {
    #[test]
    fn strict_policies_admit_what_the_kubelets_engine_admits(
        free in any::<u64>(),
        held in (any::<u64>(), any::<u64>(), any::<u64>()),
        n in 1..12usize,
        more in 0..8usize,
        devices in prop::collection::btree_set(0..4usize, 0..3),
        policy in prop::sample::select(vec![
            TopologyPolicy::Restricted,
            TopologyPolicy::SingleNumaNode,
        ]),
        in_pod in any::<bool>(),
    ) {
        let machine = Shape { sockets: 2, nodes: 2, uncores: 2, cores: 4, threads: 1 }.build();
        let held = cpus(held.0 & held.1 & held.2) & machine.online();
        let free = (cpus(free) & machine.online()) - held;
        let mut request = request(n, free, cpus(0b1), policy);
        request.devices = DeviceNodes::on(devices.into_iter().collect());
        if in_pod {
            let pod = PodDemand { cpus: held.len() + n + more, held, chosen: None };
            request.pod = Some(pod);
            request.settings.topology_manager.scope = Scope::Pod;
        }
        let compact = place(&machine, &request);
        request.settings.engine = EngineKind::Kubelet;
        let kubelet = place(&machine, &request);
        prop_assert_eq!(
            compact.as_ref().err().map(|rejection| rejection.reason),
            kubelet.as_ref().err().map(|rejection| rejection.reason)
        );
        if let (Ok(compact), Ok(kubelet)) = (compact, kubelet) {
            let size = |nodes: Option<NodeSet>| nodes.map(NodeSet::len);
            prop_assert_eq!(size(compact.hint.nodes), size(kubelet.hint.nodes));
            prop_assert!(compact.hint.preferred);
            let nodes = machine.nodes().iter();
            let mut used = nodes.filter(|node| !node.cpus.is_disjoint(&compact.cpus));
            prop_assert!(
                used.all(|node| compact.hint.nodes.is_none_or(|nodes| nodes.contains(node.id)))
            );
        }
    }
}
