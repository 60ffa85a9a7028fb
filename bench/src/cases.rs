//! The cases: one decision each, on machines of several sizes with few and many NUMA nodes.

use super::callgrind::case;
use super::node::{Node, Size};
use cpuset::CpuSet;
use ledger::annotations::MAX_ANNOTATIONS;
use ledger::{Admission, CpuSetting, Event, Ledger, Mechanism, Qos};
use placement::kubelet::{Demand, take};
use placement::{
    EngineKind, NumaNodes, Rejection, Strategy, TopologyManager, TopologyPolicy, UncoreOrder,
};
use std::error::Error;
use std::hint::black_box;

const CPUS: [usize; 3] = [32, 128, 384];
const NODES: [usize; 3] = [2, 8, 16];

/// Shared containers that run when another container is created.
const SHARED: [usize; 3] = [0, 100, 1000];

/// Annotations of a pod that is reported again.
const POD_OPTIONS: [usize; 2] = [0, MAX_ANNOTATIONS];

/// Runs all cases and prints their names.
pub(super) fn run() -> Result<(), Box<dyn Error>> {
    grid(Size { cpus: 64, nodes: 1 })?;
    for cpus in CPUS {
        for nodes in NODES {
            grid(Size { cpus, nodes })?;
        }
    }
    let size = Size { cpus: 128, nodes: 8 };
    for count in POD_OPTIONS {
        let (mut ledger, event) =
            black_box(Node::half_full(size, Mechanism::Runtime)?.known_pod(count));
        case(&format!("known-pod/{count}-pod-options"), || ledger.apply(event))?;
    }
    for exclusivity in [Mechanism::Runtime, Mechanism::Partitions] {
        for count in SHARED {
            let node = Node::half_full(size, exclusivity)?.with_shared(count)?;
            admissions(&node, size, &format!("{count}-shared-run/{exclusivity}"))?;
        }
    }
    Ok(())
}

fn grid(size: Size) -> Result<(), Box<dyn Error>> {
    let Size { cpus, nodes } = size;
    let at = format!("{cpus}-cpus/{nodes}-nodes");
    let node = Node::half_full(size, Mechanism::Runtime)?;
    let topology = node.ledger.topology();
    let reserved = node.ledger.settings().placement.reserved;
    let free = topology.online() - node.ledger.exclusive() - reserved;
    let n = size.request();
    for (name, uncore) in [("take-packed", None), ("take-uncore", Some(UncoreOrder::FewestFree))] {
        let strategy = Strategy::Packed { uncore };
        case(&format!("{name}/{at}"), || take(topology, black_box(&free), n, strategy))??;
    }
    let manager = TopologyManager::default();
    case(&format!("best-hint/{at}"), || {
        let demand = Demand::new(topology, black_box(&free), &CpuSet::EMPTY, n, false);
        demand.best(TopologyPolicy::BestEffort, &NumaNodes::of(topology, &manager))
    })?;
    admissions(&node, size, &at)?;
    compact(size, &at)
}

/// The engine `compact`, and a plan of moves for a container that needs more CPUs than any cache
/// has free.
fn compact(size: Size, at: &str) -> Result<(), Box<dyn Error>> {
    let node = Node::half_full_by(EngineKind::Compact, size, Mechanism::Groups)?;
    let milli = size.request() as u64 * 1000;
    let (mut ledger, creation) = black_box(node.admission(Qos::Guaranteed, milli)?);
    case(&format!("plan-moves/{at}"), || ledger.plan_arrival(&creation).ok())?;
    case(&format!("admit-compact/{at}"), || admit(&mut ledger, creation))??;
    Ok(())
}

/// What the plugin computes for a creation: the decision, and its record once it is answered.
fn admit(ledger: &mut Ledger, admission: Admission) -> Result<Option<CpuSetting>, Rejection> {
    let decision = ledger.admit(admission)?;
    let setting = decision.setting();
    ledger.apply(Event::Answered(decision));
    Ok(setting)
}

/// Admits an exclusive container, and a shared one.
fn admissions(node: &Node, size: Size, at: &str) -> Result<(), Box<dyn Error>> {
    for (name, exclusive, qos, milli) in [
        ("admit-exclusive", true, Qos::Guaranteed, size.request() as u64 * 1000),
        ("admit-shared", false, Qos::Burstable, 500),
    ] {
        let name = format!("{name}/{at}");
        let (mut ledger, event) = black_box(node.clone().admission(qos, milli)?);
        let answer = case(&name, || admit(&mut ledger, event))?;
        match answer? {
            Some(setting) if setting.is_exclusive() == exclusive => {}
            setting => return Err(format!("{name}: pinned to {setting:?}").into()),
        }
    }
    Ok(())
}
