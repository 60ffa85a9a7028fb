//! [`View`]: an immutable picture of the ledger's state.

use super::books::{Books, ContainerRef, Phase};
use super::desired::desired;
use super::devices::{Device, counting};
use super::model::{ContainerId, CpuRequest, Pod, PoolKind};
use super::moves::{MoveTotals, StayReason};
use super::node::{Node, Pool};
use super::note::MoveReason;
use super::policy::Mechanism;
use super::policy::Stance;
use super::rebalance::stays;
use super::settings::Settings;
use super::target::left_of;
use super::wish::Cpus;
use cpuset::CpuSet;
use placement::wishes::Margin;
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::Topology;

#[derive(Debug, Clone)]
pub struct View {
    pub topology: Arc<Topology>,
    pub settings: Arc<Settings>,
    pub stance: Stance,
    pub mechanism: Mechanism,
    /// How many containers were moved to other CPUs while they ran, by reason.
    pub moves: BTreeMap<MoveReason, u64>,
    /// Moves to better CPUs, and how many more containers may move now.
    pub rebalanced: MoveTotals,
    pub moves_left: usize,
    /// Those of them that may move without a container that starts.
    pub spare_moves: usize,
    /// The most that may move at once.
    pub most_moves: usize,
    pub pods: usize,
    /// The shared pool: online CPUs that are exclusive to no container, without the isolated ones,
    /// and without the reserved ones under strict reservation.
    pub pool: CpuSet,
    /// All CPUs that are exclusive to a container, those that are lent out too.
    pub exclusive: CpuSet,
    /// CPUs that could become exclusive now to a container without a wish.
    pub free: CpuSet,
    /// Isolated CPUs, without those that are reserved. They are in no pool.
    pub isolated: CpuSet,
    /// Those of them that could become exclusive now, by a wish at least.
    pub free_isolated: CpuSet,
    /// All containers, in order of pod uid and container name.
    pub containers: Vec<ContainerView>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    pub exclusive: usize,
    pub shared: usize,
    pub reserved: usize,
}

/// A container that exists, or has ended and keeps its CPUs.
#[derive(Debug, Clone)]
pub struct ContainerView {
    pub pod: Arc<Pod>,
    pub name: String,
    /// The runtime's id of the present or last instance.
    pub id: ContainerId,
    pub cpu: CpuRequest,
    /// How many exclusive CPUs it asks for, by the kubelet's rule or as its pod wishes; `None` if
    /// none.
    pub asks: Option<usize>,
    pub exclusive: Option<CpuSet>,
    /// Those of them that it loses soon, after a resize.
    pub leaving: CpuSet,
    /// Which CPUs its pod shares.
    pub pool: PoolKind,
    /// Shared CPUs that it uses beside these.
    pub beside: CpuSet,
    /// SMT siblings of its exclusive CPUs, or the rest of their uncore caches, that stay idle for it.
    pub idle: CpuSet,
    /// Why they do.
    pub margin: Margin,
    /// Whether its pod wishes for exclusive or shared CPUs; without a wish the kubelet's rule
    /// decides.
    pub cpus_wish: Option<Cpus>,
    pub runs_on: CpuSet,
    pub phase: Phase,
    /// What keeps others off its exclusive CPUs.
    pub enforced_by: Mechanism,
    /// Why `rebalance` does not move it now; `None` if it may, or has no exclusive CPUs, or nothing
    /// moves.
    pub stays: Option<StayReason>,
    /// Those whose NUMA nodes count for it, with a topology manager.
    pub devices: Vec<Device>,
    /// When it was created, in nanoseconds since 1970, as the runtime says.
    pub created_at: Option<i64>,
}

impl View {
    /// How many containers exist: those with exclusive CPUs, those that share the pool, and those on
    /// the reserved CPUs.
    pub fn container_counts(&self) -> ContainerCounts {
        let mut counts = ContainerCounts::default();
        for one in self.containers.iter().filter(|one| one.phase != Phase::Ended) {
            let count = match (one.exclusive, one.pool) {
                (Some(_), _) => &mut counts.exclusive,
                (None, PoolKind::General) => &mut counts.shared,
                (None, PoolKind::Reserved) => &mut counts.reserved,
            };
            *count += 1;
        }
        counts
    }

    pub(super) fn of(node: &Node, books: &Books, pool: &Pool) -> View {
        let mut containers: Vec<ContainerView> = Vec::new();
        for found in books.containers() {
            let last = containers.last().map(|last| &last.pod);
            let pod = match last.filter(|pod| pod.uid == *found.uid) {
                Some(pod) => Arc::clone(pod),
                None => Arc::new(found.pod.pod.clone()),
            };
            containers.push(container(node, pool, pod, found));
        }
        let rebalance = node.settings.rebalance.as_ref();
        let isolated = (node.isolated() & node.topology.online()) - node.reserved();
        View {
            topology: Arc::clone(&node.topology),
            settings: Arc::clone(&node.settings),
            stance: node.stance,
            mechanism: node.mechanism,
            moves: books.journal.moves().clone(),
            rebalanced: books.moves.totals.clone(),
            moves_left: rebalance.map_or(0, |rebalance| books.moves.left(rebalance)),
            spare_moves: rebalance.map_or(0, |rebalance| books.moves.spare(rebalance)),
            most_moves: rebalance.map_or(0, |rebalance| books.moves.most(rebalance)),
            pods: books.pods().len(),
            pool: pool.cpus,
            exclusive: node.exclusive(books),
            free: node.free_without_wish(books),
            isolated,
            free_isolated: node.free(books) & isolated,
            containers,
        }
    }
}

fn container(
    node: &Node,
    pool: &Pool,
    described: Arc<Pod>,
    ContainerRef { pod, name, entry, .. }: ContainerRef<'_>,
) -> ContainerView {
    // In another stance the ledger decides nothing.
    let shares = || {
        let to = desired(node, pool, pod, entry).filter(|_| node.assigns())?;
        Some(left_of(node, pool.bound_of(pod), &to))
    };
    let claim = if entry.is_mixed() { None } else { entry.claim() };
    let runs_on = claim.or_else(shares).or(entry.applied.certain_cpus());
    let runs_on = runs_on.unwrap_or(node.topology.online());
    let beside = if entry.is_mixed() { runs_on - entry.held() } else { CpuSet::EMPTY };
    let taken = node.taken(entry);
    let can_move = node.settings.rebalance.is_some() && entry.claim().is_some();
    ContainerView {
        name: name.to_owned(),
        id: entry.id().clone(),
        cpu: entry.cpu,
        asks: entry.asks(pod.pod.qos),
        exclusive: entry.claim(),
        leaving: entry.notice().map_or(CpuSet::EMPTY, |notice| entry.held() - notice.to),
        pool: pod.pool,
        beside,
        idle: taken - entry.held(),
        margin: entry.margin(),
        cpus_wish: entry.terms.cpus,
        runs_on,
        phase: entry.phase(),
        enforced_by: entry.enforced_by,
        stays: if can_move { stays(node, pod, entry) } else { None },
        devices: counting(pod, name, &entry.devices).cloned().collect(),
        created_at: entry.created_at,
        pod: described,
    }
}
