//! Single cases ([`cases`]), and comparisons with all subsets of CPUs of small machines
//! ([`subsets`]) and with what the kubelet's engine admits ([`admission`]).

mod admission;
mod cases;
mod running;
mod subsets;

use crate::{EngineKind, PlacementSettings, PodOptions, Request, TopologyManager, TopologyPolicy};
use cpuset::CpuSet;

/// A request without pod options, devices, a pod and CPUs of ended containers.
fn request(n: usize, free: CpuSet, reserved: CpuSet, policy: TopologyPolicy) -> Request {
    let settings = PlacementSettings {
        engine: EngineKind::Compact,
        topology_manager: TopologyManager { policy, ..TopologyManager::default() },
        reserved,
        ..PlacementSettings::default()
    };
    Request::new(n, free, PodOptions::NONE, &settings)
}

/// The CPUs whose bits are set.
fn cpus(bits: u64) -> CpuSet {
    (0..64).filter(|cpu| bits >> cpu & 1 == 1).map(|cpu| CpuSet::of(cpu).unwrap()).collect()
}
