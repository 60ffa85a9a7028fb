//! [`Figures`]: everything that metrics and health tell, as plain data, taken by the ledger's owner when it is asked.

use super::config_state::ConfigState;
use super::counters::Counters;
use super::time::Moment;
use crate::cpuset::CpuSet;
use crate::ledger::{MoveReason, Settings, Stance, View};
use crate::nri::Runtime;
use crate::partition::PartitionType;
use crate::topology::Tally;
use std::collections::BTreeMap;
use std::time::Duration;

/// All figures.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The connection to the runtime.
    pub link: Link,
    /// The node, or why there is none: a plugin that the runtime launched has no configuration
    /// before the runtime sends one.
    pub node: Result<NodeFigures, String>,
}

/// What is known of the connection to the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether the runtime has introduced itself, and not gone since.
    connected: bool,
    /// Whether it has listed its containers since.
    synchronized: bool,
    /// Who is, or was, there.
    runtime: Option<Runtime>,
    /// The number of the present or last connection.
    session: Option<u64>,
    /// How many there have been.
    connections: u64,
}

impl Link {
    /// The runtime introduces itself.
    pub fn introduced(&mut self, session: u64, runtime: Runtime) {
        let connections = self.connections + u64::from(self.session != Some(session));
        *self = Link {
            connected: true,
            synchronized: false,
            runtime: Some(runtime),
            session: Some(session),
            connections,
        };
    }

    /// It has listed its containers.
    pub fn synchronized(&mut self) {
        self.synchronized = self.connected;
    }

    /// A connection has ended.
    pub fn ended(&mut self, session: u64) {
        if self.session == Some(session) {
            (self.connected, self.synchronized) = (false, false);
        }
    }

    /// Whether the runtime has introduced itself, and not gone since.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether it has listed its containers since.
    pub fn is_synchronized(&self) -> bool {
        self.synchronized
    }

    /// Who is, or was, there.
    pub fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.connections
    }
}

/// The node's figures.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    /// The settings in force.
    pub settings: Settings,
    /// Where they come from.
    pub config: ConfigState,
    /// Whether CPUs are assigned here.
    pub stance: Stance,
    /// Whether no container may run otherwise than decided.
    pub strict: bool,
    /// What a container's control group becomes where the kernel keeps exclusivity.
    pub partition: PartitionType,
    /// What is done while the kubelet's own CPU manager is active.
    pub on_active_kubelet: Stance,
    /// What was counted.
    pub counters: Counters,
    /// Containers moved while they ran, by reason.
    pub moves: BTreeMap<MoveReason, u64>,
    /// Drifts that were confirmed, by kind.
    pub drifts: BTreeMap<&'static str, u64>,
    /// What was done about them, by kind and by what it was.
    pub repairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Containers that are not as they were decided at this moment, in spite of all.
    pub drifting: usize,
    /// Containers that the last look found with a change that the runtime is still about to make.
    pub late: usize,
    /// How often a look found one.
    pub times_late: u64,
    /// How long the runtime takes for a change of a container; `None` before one was measured.
    pub change_takes: Option<Duration>,
    /// How often the kernel refused to keep others off a container's CPUs.
    pub kernel_refusals: u64,
    /// What follows from control groups that cannot be written; `None` if they can.
    pub cannot_write_groups: Option<String>,
    /// How often a control group could not be written.
    pub group_write_errors: u64,
    /// Why the last write of the checkpoint failed; `None` if it did not.
    pub checkpoint_error: Option<String>,
    /// Pods.
    pub pods: usize,
    /// Containers that exist: with exclusive CPUs, and others.
    pub containers: (usize, usize),
    /// Online CPUs.
    pub online: CpuSet,
    /// CPUs that are exclusive to a container.
    pub exclusive: CpuSet,
    /// CPUs that could become exclusive now.
    pub free: CpuSet,
    /// CPUs that shared containers run on.
    pub pool: CpuSet,
    /// The uncore caches.
    pub uncores: Vec<Domain>,
    /// The NUMA nodes that have CPUs.
    pub nodes: Vec<Domain>,
}

/// An uncore cache or a NUMA node, and how its CPUs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Its number.
    pub id: usize,
    /// CPUs that may become exclusive at all: online and not reserved.
    pub assignable: usize,
    /// CPUs that could become exclusive now.
    pub free: usize,
    /// CPUs that are exclusive to a container.
    pub exclusive: usize,
}

impl NodeFigures {
    /// What the view of the ledger alone tells; the owner's own figures are still zero.
    pub fn of(view: &View) -> NodeFigures {
        let topology = &view.topology;
        let mut moves: BTreeMap<MoveReason, u64> = MoveReason::ALL.map(|reason| (reason, 0)).into();
        moves.extend(&view.moves);
        let (free, exclusive) = (view.free, view.exclusive);
        let assignable = topology.online() - view.settings.placement.reserved;
        let [all, unused, held] = [assignable, free, exclusive].map(|cpus| topology.tally(&cpus));
        let domains = |ids: Vec<usize>, of: fn(&Tally) -> &Vec<usize>| {
            let counts = of(&all).iter().zip(of(&unused)).zip(of(&held));
            let domain = |(id, ((&assignable, &free), &exclusive))| Domain {
                id,
                assignable,
                free,
                exclusive,
            };
            ids.into_iter().zip(counts).map(domain).collect::<Vec<Domain>>()
        };
        let uncores = topology.uncores().iter().map(|uncore| uncore.id).collect();
        let nodes = topology.nodes().iter().map(|node| node.id).collect();
        let mut nodes = domains(nodes, |tally| &tally.nodes);
        let has_cpus =
            |id| topology.nodes().iter().any(|node| node.id == id && !node.cpus.is_empty());
        nodes.retain(|node| has_cpus(node.id));
        NodeFigures {
            settings: Settings::clone(&view.settings),
            config: ConfigState::new("", Vec::new(), Moment(0)),
            stance: view.stance,
            strict: false,
            partition: PartitionType::default(),
            on_active_kubelet: Stance::Refuse,
            counters: Counters::default(),
            moves,
            drifts: BTreeMap::new(),
            repairs: BTreeMap::new(),
            drifting: 0,
            late: 0,
            times_late: 0,
            change_takes: None,
            kernel_refusals: 0,
            cannot_write_groups: None,
            group_write_errors: 0,
            checkpoint_error: None,
            pods: view.pods,
            containers: view.container_counts(),
            online: topology.online(),
            exclusive,
            free,
            pool: view.pool,
            uncores: domains(uncores, |tally| &tally.uncores),
            nodes,
        }
    }
}
