//! Machines, settings, and changes of settings.

use super::wishes;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::{
    Exposure, Mechanism, Namespaces, Policy, Rebalance, RebalanceMode, Settings,
};
use nri_cpu_manager::nodeset::NodeSet;
use nri_cpu_manager::placement::{
    self, Options, Scope, TopologyManager, TopologyPolicy, UncoreOrder,
};
use nri_cpu_manager::topology::Topology;
use nri_cpu_manager::topology::model::{Cpu, Facts, NodeFacts, OfflineCpu};
use nri_cpu_manager::topology::synthetic::Machine;
use proptest::prelude::*;
use std::time::Duration;

pub(super) fn machine() -> impl Strategy<Value = (Topology, Settings, Mechanism)> {
    let shape = (1..3usize, 1..3usize, 1..3usize, 2..5usize, 1..3usize);
    let mechanism =
        prop_oneof![Just(Mechanism::Runtime), Just(Mechanism::Groups), Just(Mechanism::Partitions)];
    (shape, options(), topology_manager(), 1..4usize, mechanism).prop_map(
        |(
            (sockets, nodes, caches, cores, threads),
            mut options,
            topology_manager,
            reserved,
            mechanism,
        )| {
            let machine =
                Machine { sockets, nodes, caches, cores: cores * 2, threads, ..Machine::default() };
            let topology = machine.topology().unwrap();
            options.align_by_socket &=
                options.check_machine(&topology, topology_manager.policy).is_ok();
            // Half of the nodes move containers: those that do not tell them their CPUs.
            let moves = reserved % 2 == 1;
            let reserved = topology.online().lowest(reserved);
            let placement = placement::Settings {
                options,
                topology_manager,
                reserved,
                ..placement::Settings::default()
            };
            (
                topology,
                Settings {
                    policy: Policy::Static,
                    placement,
                    expose_cpus: if moves { Exposure::None } else { Exposure::Environment },
                    notice_seconds: 0,
                    mems_follow_cpus: true,
                    memory_only_nodes: NodeSet::EMPTY,
                    namespaces: wishes::all_allowed(),
                    rebalance: moves.then(rebalance),
                },
                mechanism,
            )
        },
    )
}

/// Nearly every container may move at any time.
pub(super) fn rebalance() -> Rebalance {
    Rebalance {
        mode: RebalanceMode::Move,
        moves_per_100_starts: 100,
        across_numa_nodes: true,
        min_stay: Duration::ZERO,
    }
}

/// A later change of the settings, for any machine: see [`Change::settings`].
#[derive(Debug, Clone)]
pub(super) struct Change {
    policy: Policy,
    options: Options,
    topology_manager: TopologyManager,
    /// The first reserved CPU, as an index into those online, and their number.
    reserved: (usize, usize),
    /// Whether all wishes are allowed, or none.
    wishes: bool,
    mems_follow_cpus: bool,
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let policy = prop_oneof![4 => Just(Policy::Static), 1 => Just(Policy::None)];
    let reserved = (0..64usize, 1..4usize);
    (policy, options(), topology_manager(), reserved, any::<[bool; 2]>()).prop_map(
        |(policy, options, topology_manager, reserved, [wishes, mems_follow_cpus])| Change {
            policy,
            options,
            topology_manager,
            reserved,
            wishes,
            mems_follow_cpus,
        },
    )
}

impl Change {
    /// The settings on this machine; `None` if they would reserve all its CPUs.
    pub(super) fn settings(&self, topology: &Topology, now: &Settings) -> Option<Settings> {
        let Change { policy, mut options, topology_manager, reserved, wishes, mems_follow_cpus } =
            self.clone();
        let (first, count) = reserved;
        options.align_by_socket &= options.check_machine(topology, topology_manager.policy).is_ok();
        let online: Vec<usize> = topology.online().iter().collect();
        let mut set = CpuSet::EMPTY;
        for at in 0..count {
            set.insert(online[(first + at) % online.len()]).unwrap();
        }
        let reserved = placement::Settings { reserved: set, ..placement::Settings::default() };
        let placement = match policy {
            Policy::Static => placement::Settings { options, topology_manager, ..reserved },
            Policy::None => reserved,
        };
        let namespaces = if wishes { wishes::all_allowed() } else { Namespaces::default() };
        let settings = Settings { policy, placement, mems_follow_cpus, namespaces, ..now.clone() };
        if set == topology.online() { None } else { Some(settings) }
    }
}

/// Options that may be used together.
fn options() -> impl Strategy<Value = Options> {
    (any::<[bool; 5]>(), 0..4u8).prop_map(|(o, spread)| {
        let options = Options {
            full_pcpus_only: o[0],
            strict_cpu_reservation: o[1],
            prefer_align_cpus_by_uncorecache: o[2],
            uncore_order: if o[3] { UncoreOrder::Numerical } else { UncoreOrder::FewestFree },
            align_by_socket: o[4],
            ..Options::default()
        };
        let other = match spread {
            0 => Options { distribute_cpus_across_numa: true, ..options },
            1 => Options { distribute_cpus_across_cores: true, ..options },
            _ => options,
        };
        if other.check_exclusive().is_ok() { other } else { options }
    })
}

fn topology_manager() -> impl Strategy<Value = TopologyManager> {
    let policy = prop_oneof![
        Just(TopologyPolicy::None),
        Just(TopologyPolicy::BestEffort),
        Just(TopologyPolicy::Restricted),
        Just(TopologyPolicy::SingleNumaNode),
    ];
    let scope = prop_oneof![Just(Scope::Container), Just(Scope::Pod)];
    (policy, scope, any::<bool>()).prop_map(|(policy, scope, closest)| TopologyManager {
        policy,
        scope,
        prefer_closest_numa_nodes: closest,
        ..TopologyManager::default()
    })
}

/// The machine with only these CPUs online.
pub(super) fn with_online(whole: &Topology, online: CpuSet) -> Topology {
    let (on, off): (Vec<&Cpu>, Vec<&Cpu>) =
        whole.cpus().iter().partition(|cpu| online.contains(cpu.id));
    let offline = off.into_iter().map(|cpu| OfflineCpu {
        id: cpu.id,
        numa: Some(cpu.numa),
        socket: Some(cpu.socket),
    });
    let nodes = whole.nodes().iter().map(|n| NodeFacts {
        id: n.id,
        distances: n.distances.clone(),
        memoryless: n.memoryless,
    });
    let facts = Facts {
        cpus: on.into_iter().copied().collect(),
        offline: offline.collect(),
        nodes: nodes.collect(),
        isolated: whole.isolated(),
    };
    Topology::build(facts).unwrap()
}
