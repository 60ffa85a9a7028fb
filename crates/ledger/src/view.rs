//! [`View`]: an immutable picture of the ledger's state.

use super::books::{Books, ContainerRef, Phase, containers_of};
use super::device::Device;
use super::due::Targets;
use super::model::{ContainerId, CpuRequest, LeftAlone, Pod, PoolKind};
use super::moves::{MoveTotals, StayReason};
use super::node::{Node, Pool};
use super::note::MoveReason;
use super::pod_option::Cpus;
use super::policy::{Mechanism, Stance};
use super::quieting;
use super::rebalance::stays;
use super::settings::{RebalanceMode, Settings};
use super::target::effective_cpus;
use cpuset::{CgroupPath, CpuSet};
use placement::memory_manager::{MemoryKind, NodeMemoryClaim};
use placement::pod_options::Margin;
use quiet::{InterruptMode, Knobs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::Topology;

#[derive(Debug, Clone)]
pub struct View {
    pub topology: Arc<Topology>,
    pub settings: Arc<Settings>,
    pub figures: Figures,
    /// All containers, in order of pod uid and container name.
    pub containers: Vec<ContainerView>,
}

/// Figures of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figures {
    pub stance: Stance,
    pub mechanism: Mechanism,
    pub cpus: CpuFigures,
    /// Pods that exist.
    pub pods: usize,
    /// Pods that were refused for lack of CPUs at least twice, and that wait for some.
    pub pods_lacking_cpus: usize,
    /// How many running containers were moved because they could not keep their CPUs, by reason.
    pub moves: BTreeMap<MoveReason, u64>,
    /// Moves to better CPUs; `null` without `rebalance` in the configuration.
    pub rebalance: Option<MoveFigures>,
}

/// CPUs by use. One may be in several sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuFigures {
    /// Without CPUs of other programs' cpuset partitions.
    pub online: CpuSet,
    /// Never exclusive.
    pub reserved: CpuSet,
    /// Could be exclusive to a container without a pod option if no container had any.
    pub assignable: CpuSet,
    /// Exclusive to a container, or in the own pool of a pod: with idle and lent ones.
    pub exclusive: CpuSet,
    /// Could become exclusive now, to a container without a pod option.
    pub free: CpuSet,
    /// The shared pool: online CPUs that are exclusive to no container or pod, without the isolated
    /// ones, and without the reserved ones under strict reservation. CPUs of an ended container that are
    /// lent until it is back are in it, too.
    pub shared: CpuSet,
    /// The kernel was booted to isolate them (`isolcpus=`). Online and not reserved; in no pool.
    pub isolated: CpuSet,
    /// Of `isolated`, those that could become exclusive now, at least with a pod option.
    pub isolated_free: CpuSet,
}

impl CpuFigures {
    /// CPUs of ended containers, which the shared pool uses until these are back or their pods end.
    pub fn lent(&self) -> CpuSet {
        self.exclusive & self.shared
    }
}

/// Moves of running containers to better CPUs (`rebalance`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveFigures {
    /// Whether containers move.
    pub mode: RebalanceMode,
    /// How many containers may move for every 100 containers with exclusive CPUs that start.
    pub moves_per_100_starts: u32,
    /// How long containers stay after their start and after a move.
    pub min_stay_seconds: u64,
    /// How many containers may move now.
    pub moves_left: usize,
    /// How many of these may move though no new container needs it.
    pub spare_moves: usize,
    /// The most containers that may move at once.
    pub moves_at_most: usize,
    /// Moves since the start.
    pub totals: MoveTotals,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    pub exclusive: usize,
    pub shared: usize,
    pub reserved: usize,
}

/// A container that exists, or has ended and keeps its CPUs. The sets that most containers have in common
/// are kept once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainerView {
    /// Its pod.
    pub pod: Arc<Pod>,
    /// Its name in its pod.
    pub name: String,
    /// Of the present or last instance.
    pub id: ContainerId,
    /// As the runtime reports it.
    pub cgroup: Option<CgroupPath>,
    pub cpu: CpuRequest,
    /// Whether it has a limit of memory.
    #[serde(skip)]
    pub has_memory_limit: bool,
    /// Its counted memory; `null` if its memory is not counted.
    pub memory: Option<NodeMemoryClaim>,
    /// How many exclusive CPUs it asks for, by the kubelet's rule or a pod option.
    pub asks: Option<usize>,
    /// Its exclusive CPUs; `null` if it has none. Those of an ended container are lent to the shared pool, or kept for it.
    pub exclusive: Option<CpuSet>,
    /// The exclusive CPUs that it leaves after the notice of a resize.
    pub leaving: Arc<CpuSet>,
    /// Which CPUs containers of its pod share.
    pub pool: PoolKind,
    /// The shared CPUs that a container with exclusive CPUs also uses (`cpus: exclusive+shared`).
    pub shared: Arc<CpuSet>,
    /// The own pool of its pod, which it shares; empty if it has only exclusive CPUs or shares the
    /// node's pool.
    pub own_pool: Arc<CpuSet>,
    /// SMT siblings of its exclusive CPUs, or the rest of their uncore caches, that stay idle.
    pub idle: Arc<CpuSet>,
    /// Which of these stay idle.
    #[serde(skip)]
    pub margin: Margin,
    /// The pod option for exclusive or shared CPUs; without one the kubelet's rule decides.
    #[serde(skip)]
    pub cpus_pod_option: Option<Cpus>,
    /// Where it runs.
    pub runs_on: Arc<CpuSet>,
    /// Why it stays on CPUs that another program has set; `null` if it does not.
    pub left_alone: Option<LeftAlone>,
    /// Whether it runs.
    pub phase: Phase,
    /// What keeps others off its exclusive CPUs.
    pub enforced_by: Mechanism,
    /// Why `rebalance` does not move it now; `null` if it may, or there is nothing to move.
    pub stays: Option<StayReason>,
    /// The devices whose NUMA nodes count for its NUMA affinity.
    #[serde(skip)]
    pub devices: Vec<Device>,
    /// When it was created, in nanoseconds since 1970; `None` if the runtime does not report it.
    #[serde(skip)]
    pub created_at: Option<i64>,
    /// What happens to device interrupts on its exclusive CPUs; `leave` without any, or if they are
    /// lent.
    pub interrupts: InterruptMode,
    /// The latency knobs of its exclusive CPUs; none without any, or if they are lent.
    pub knobs: Knobs,
}

impl ContainerCounts {
    /// Counts the containers that have not ended.
    pub fn of<'a>(containers: impl Iterator<Item = &'a ContainerView>) -> ContainerCounts {
        let mut counts = ContainerCounts::default();
        for container in containers.filter(|one| one.phase != Phase::Ended) {
            let count = match (container.exclusive, container.pool) {
                (Some(_), _) => &mut counts.exclusive,
                (None, PoolKind::General) => &mut counts.shared,
                (None, PoolKind::Reserved) => &mut counts.reserved,
            };
            *count += 1;
        }
        counts
    }
}

impl View {
    /// A container's counted memory; `None` if memory is not counted now.
    pub fn memory_of<'a>(&self, container: &'a ContainerView) -> Option<&'a NodeMemoryClaim> {
        if self.settings.memory.is_some() { container.memory.as_ref() } else { None }
    }

    pub(super) fn of(node: &Node, books: &Books, pool: &Pool) -> View {
        let mut containers = Vec::with_capacity(books.containers().count());
        let mut sets = Sets::default();
        for of in books.pods() {
            let targets = Targets::of(node, pool, of.1);
            let pod = Arc::new(of.1.pod.clone());
            for container in containers_of(of) {
                let pod = Arc::clone(&pod);
                containers.push(container_view(node, &targets, pod, container, &mut sets));
            }
        }
        let (settings, moves) = (&node.settings, &books.moves);
        let rebalance = settings.rebalance.as_ref().map(|rebalance| MoveFigures {
            mode: rebalance.mode,
            moves_per_100_starts: rebalance.moves_per_100_starts,
            min_stay_seconds: rebalance.min_stay.as_secs(),
            moves_left: moves.moves_left(rebalance),
            spare_moves: moves.spare_moves(rebalance),
            moves_at_most: moves.burst(rebalance),
            totals: moves.totals.clone(),
        });
        let figures = Figures {
            stance: node.stance,
            mechanism: node.mechanism,
            cpus: CpuFigures::of(node, books, pool),
            pods: books.pods().len(),
            pods_lacking_cpus: books.pods().filter(|(_, pod)| pod.lacks_cpus).count(),
            moves: books.journal.moves().clone(),
            rebalance,
        };
        let (topology, settings) = (Arc::clone(&node.topology), Arc::clone(settings));
        View { topology, settings, figures, containers }
    }
}

impl CpuFigures {
    fn of(node: &Node, books: &Books, pool: &Pool) -> CpuFigures {
        let online = node.topology.online();
        let isolated = (node.isolated() & online) - node.reserved();
        let allowed = node.settings.placement.isolated;
        CpuFigures {
            online,
            reserved: node.reserved(),
            assignable: allowed.allowed(&node.topology, &(online - node.reserved())),
            exclusive: node.exclusive(books),
            free: node.free_without_pod_option(books),
            shared: pool.cpus,
            isolated,
            isolated_free: node.free(books) & isolated,
        }
    }
}

/// Sets of CPUs that containers of a view have: those of the last ones are kept once.
#[derive(Default)]
struct Sets {
    empty: Arc<CpuSet>,
    last: Arc<CpuSet>,
}

impl Sets {
    fn keep(&mut self, cpus: CpuSet) -> Arc<CpuSet> {
        if cpus.is_empty() {
            return Arc::clone(&self.empty);
        }
        if *self.last != cpus {
            self.last = Arc::new(cpus);
        }
        Arc::clone(&self.last)
    }
}

fn container_view(
    node: &Node,
    targets: &Targets<'_>,
    described: Arc<Pod>,
    ContainerRef { pod, name, entry, .. }: ContainerRef<'_>,
    sets: &mut Sets,
) -> ContainerView {
    // Unless the ledger assigns CPUs, it decides nothing.
    let shares = || {
        let to = if node.assigns() { targets.setting(entry)? } else { return None };
        Some(effective_cpus(node, &targets.bound.shared, &to))
    };
    let claim = if entry.is_mixed() { None } else { entry.claim() };
    let runs_on = claim.or_else(shares).or(entry.applied.certain_cpus());
    // A container without a cpuset runs on all CPUs.
    let runs_on = runs_on.unwrap_or(node.topology.online());
    let shared = if entry.is_mixed() { runs_on - entry.held() } else { CpuSet::EMPTY };
    let taken = node.taken(entry);
    let can_move = node.settings.rebalance.is_some() && entry.claim().is_some();
    ContainerView {
        name: name.to_owned(),
        id: entry.id().clone(),
        cgroup: entry.cgroup.clone(),
        cpu: entry.cpu,
        has_memory_limit: entry.limits.contains_key(&MemoryKind::Memory),
        memory: entry.memory.clone(),
        asks: entry.asks(pod.pod.qos),
        exclusive: entry.claim(),
        leaving: sets.keep(entry.notice().map_or(CpuSet::EMPTY, |notice| entry.held() - notice.to)),
        pool: pod.pool,
        shared: sets.keep(shared),
        own_pool: sets.keep(if claim.is_none() { pod.own_pool() } else { CpuSet::EMPTY }),
        idle: sets.keep(taken - entry.held()),
        margin: entry.margin(),
        cpus_pod_option: entry.terms.cpus,
        runs_on: sets.keep(runs_on),
        left_alone: entry.left_alone,
        phase: entry.phase(),
        enforced_by: entry.enforced_by,
        stays: if can_move { stays(node, pod, entry) } else { None },
        devices: pod.counted_devices(name, &entry.devices).cloned().collect(),
        created_at: entry.created_at,
        interrupts: quieting::interrupts(node, entry),
        knobs: quieting::knobs(node, entry),
        pod: described,
    }
}
