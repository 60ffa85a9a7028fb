//! [`Figures`]: the data of metrics and health. The ledger's owner fills them in when an observer
//! asks.

use super::config_state::ConfigState;
use super::counters::Counters;
use super::fragmentation::fragmentation;
use crate::clock::Moment;
use crate::cpuset::CpuSet;
use crate::edge::Runtime;
use crate::ledger::{Mechanism, MoveReason, Settings, Stance, View};
use crate::partition::PartitionType;
use crate::topology::Tally;
use std::collections::BTreeMap;
use std::time::Duration;

/// What metrics and health show.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The connection to the runtime.
    pub link: Link,
    /// The node, or why there is none: a plugin that the runtime launched has no configuration
    /// before the runtime sends one.
    pub node: Result<NodeFigures, String>,
}

/// The state of the connection to the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    connected: bool,
    synchronized: bool,
    runtime: Option<Runtime>,
    /// The number of the present or last connection.
    session: Option<u64>,
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

    /// Whether the runtime has introduced itself and is still there.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether the runtime has listed its containers on this connection.
    pub fn is_synchronized(&self) -> bool {
        self.synchronized
    }

    /// The present or last runtime.
    pub fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// The number of connections since the start.
    pub fn connections(&self) -> u64 {
        self.connections
    }
}

/// The node's figures.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    /// The settings in force.
    pub settings: Settings,
    /// Their source, and the result of the last change.
    pub config: ConfigState,
    /// Whether the plugin assigns CPUs.
    pub stance: Stance,
    /// The setting `strict`.
    pub strict: bool,
    /// The setting `cpusetPartition`.
    pub partition: PartitionType,
    /// The setting `onActiveKubelet`.
    pub on_active_kubelet: Stance,
    /// Counts of events.
    pub counters: Counters,
    /// Containers moved while they ran, by reason.
    pub moves: BTreeMap<MoveReason, u64>,
    /// Confirmed drifts, by kind.
    pub drifts: BTreeMap<&'static str, u64>,
    /// Repairs, by kind of drift and by action.
    pub repairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Containers that differ from the decision now, in spite of repairs.
    pub drifting: usize,
    /// Containers whose change the runtime had not made yet at the last look.
    pub late: usize,
    /// How often a look found such a container.
    pub times_late: u64,
    /// How long the runtime takes to change a container; `None` before the first measurement.
    pub change_takes: Option<Duration>,
    /// How often the kernel refused to keep others off a container's CPUs.
    pub kernel_refusals: u64,
    /// What follows from control groups that are not writable; `None` if they are.
    pub cannot_write_groups: Option<String>,
    /// What keeps others off exclusive CPUs.
    pub mechanism: Mechanism,
    /// Why that is not what the configuration names first; `None` if it is.
    pub exclusivity_because: Option<String>,
    /// Groups that cannot be relied on at present, and why: those below are bound instead.
    pub distrusted_groups: Vec<(String, String)>,
    /// Pods that the runtime keeps off exclusive CPUs, where groups do so for others, and why.
    pub unbound_pods: Vec<(String, String)>,
    /// What other programs allow groups in which containers share CPUs.
    pub group_bounds: Vec<(String, CpuSet)>,
    /// Writes of the shared pool into groups.
    pub pool_writes: u64,
    /// Failed writes of control groups.
    pub group_write_errors: u64,
    /// Why the last write of the checkpoint failed; `None` if it succeeded.
    pub checkpoint_error: Option<String>,
    /// The number of pods.
    pub pods: usize,
    /// The numbers of containers with exclusive CPUs, and of others.
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

/// The numbers of CPUs of an uncore cache or a NUMA node, by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Its number.
    pub id: usize,
    /// The number of CPUs that may become exclusive: online and not reserved.
    pub assignable: usize,
    /// CPUs that could become exclusive now.
    pub free: usize,
    /// CPUs that are exclusive to a container.
    pub exclusive: usize,
}

impl Domain {
    /// See [`fragmentation()`].
    pub(super) fn fragmentation(domains: &[Domain]) -> f64 {
        let sizes: Vec<_> = domains.iter().map(|one| (one.assignable, one.free)).collect();
        fragmentation(&sizes)
    }
}

impl NodeFigures {
    /// Why the runtime keeps exclusivity though something better was wanted.
    pub fn given_up(&self) -> Option<String> {
        let by_runtime = self.mechanism == Mechanism::Runtime;
        if by_runtime { self.exclusivity_because.clone() } else { None }
    }

    /// The figures that follow from the view of the ledger; the owner's own ones are zero.
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
            mechanism: view.mechanism,
            exclusivity_because: None,
            distrusted_groups: Vec::new(),
            unbound_pods: Vec::new(),
            group_bounds: Vec::new(),
            pool_writes: 0,
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
