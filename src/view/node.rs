//! [`NodeView`]: everything that clients can see of the node, at one moment. The ledger's owner makes
//! it when a client asks, and does not know the formats.

use super::config_state::ConfigState;
use super::counters::Counters;
use super::health::Health;
use super::history::History;
use super::noise::NoiseFigures;
use super::quiet::QuietFigures;
use crate::clock::Moment;
use crate::config::{LogLevel, Mode};
use cpuset::{CpuSet, PartitionType};
use ledger::{Mechanism, Occasion, View};
use nri::Runtime;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use topology::Topology;
use wording::count;

#[derive(Debug, Clone)]
pub struct NodeView {
    /// If the plugin knows it.
    pub node_name: Option<String>,
    pub link: Link,
    pub health: Arc<Health>,
    /// The node, or why there is none: a plugin that the runtime launched has no configuration
    /// before the runtime sends one.
    pub node: Result<NodeFigures, String>,
    /// What ran or fired on exclusive CPUs besides their containers.
    pub noise: Arc<NoiseFigures>,
}

/// Whatever follows from the ledger is computed from `view` when it is shown.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    pub view: Arc<View>,
    pub history: Arc<History>,
    pub own: OwnFigures,
}

/// What the owner knows and the ledger does not.
#[derive(Debug, Clone)]
pub struct OwnFigures {
    /// Source and last change of the configuration.
    pub config: ConfigState,
    pub strict: bool,
    /// The setting `cpusetPartition`.
    pub partition: PartitionType,
    pub mode: Mode,
    pub log_level: LogLevel,
    pub counters: Counters,
    /// Confirmed drifts, by kind.
    pub drifts: BTreeMap<&'static str, u64>,
    /// Repairs, by kind of drift and by action.
    pub repairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Times that a pod's CFS quota was lifted after something had set it again.
    pub pod_quotas_lifted_again: u64,
    /// Containers that differ from the decision now, despite repairs.
    pub drifting: usize,
    /// Containers whose change the runtime had not made yet at the last check pass.
    pub late: usize,
    /// Times that a check pass found a container whose change the runtime had not made yet.
    pub times_late: u64,
    /// How long the runtime takes to change a container; `None` before the first measurement.
    pub change_takes: Option<Duration>,
    /// How often the kernel refused a partition for a container.
    pub partition_refusals: u64,
    /// What follows from cgroups that are not writable; `None` if they are.
    pub cannot_write_groups: Option<String>,
    /// Why the mechanism is not the configuration's first choice; `None` if it is.
    pub exclusivity_because: Option<String>,
    /// Cgroups that cannot be relied on at present, and why: each child cgroup is bound
    /// individually.
    pub distrusted_cgroups: Vec<(String, String)>,
    /// Pods, by uid, whose shared containers the runtime updates although cgroups bind others, and
    /// why.
    pub unbound_pods: Vec<(String, String)>,
    /// Upper bounds that other programs set on cgroups in which containers share CPUs.
    pub cgroup_bounds: Vec<GroupBound>,
    /// Cpuset partitions of other programs, by cgroup.
    pub foreign_partitions: Vec<(String, CpuSet)>,
    /// Whether the kubelet says where devices are.
    pub kubelet_devices: KubeletDevices,
    /// Writes of the shared pool into cgroups.
    pub pool_writes: u64,
    pub group_write_errors: u64,
    /// Why the last write of the checkpoint failed; `None` if it succeeded.
    pub checkpoint_error: Option<String>,
    /// The directory on the disk that is busy with a write, and for how long; the write has taken so
    /// long that nothing waits for it any more.
    pub stalled_disk: Option<String>,
    /// When moves were last planned on each occasion, and the result.
    pub last_plans: Vec<LastPlan>,
    /// Whether containers move only in the response to the creation of another one.
    pub moves_only_at_creations: bool,
    /// Whether containers move although the CPU affinities of their threads cannot be seen.
    pub threads_unseen: bool,
    /// Interrupts and latency knobs of exclusive CPUs.
    pub quiet: QuietFigures,
}

#[derive(Debug, Clone)]
pub struct LastPlan {
    pub at: Moment,
    pub occasion: Occasion,
    /// Containers that moved.
    pub moved: usize,
    /// Why no more moved; `None` if all of the plan was carried out. May name containers.
    pub why: Option<String>,
}

/// Whether the kubelet says where devices are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KubeletDevices {
    /// It has not answered yet.
    #[default]
    Unasked,
    /// The directory of its socket is not there.
    Unmounted,
    Answers,
    /// Why the last answer is missing.
    Fails(String),
}

impl fmt::Display for KubeletDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KubeletDevices::Unasked => f.write_str("unasked"),
            KubeletDevices::Unmounted => f.write_str("unmounted"),
            KubeletDevices::Answers => f.write_str("answers"),
            KubeletDevices::Fails(why) => write!(f, "fails: {why}"),
        }
    }
}

/// An upper bound that another program has set on a cgroup, and sets again after each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupBound {
    pub group: String,
    pub cpus: CpuSet,
    pub since: Moment,
    /// The shell command that removes it.
    pub removal: String,
}

/// The likely cause of pods that are refused again and again for lack of CPUs, with the remedy.
pub(crate) fn lack_of_cpus(reserved: CpuSet) -> String {
    format!(
        "pods wait for CPUs after several refusals: the scheduler counts CPUs that are reserved here, unless the kubelet \
         reserves {} too (systemReserved: {{cpu: \"{}\"}})",
        reserved.len(),
        reserved.len()
    )
}

impl OwnFigures {
    /// The CPUs of other programs' partitions.
    pub fn foreign(&self) -> CpuSet {
        self.foreign_partitions.iter().map(|(_, cpus)| *cpus).collect()
    }
}

impl NodeFigures {
    /// Why the runtime enforces exclusivity although the configuration prefers cgroups.
    pub fn given_up(&self) -> Option<&str> {
        if self.view.mechanism == Mechanism::Runtime {
            self.own.exclusivity_because.as_deref()
        } else {
            None
        }
    }
}

/// The state of the connection to the runtime; only its methods change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub(super) connected: bool,
    /// Whether the runtime has listed its containers on this connection.
    pub(super) synchronized: bool,
    /// Whether a runtime has listed its containers since the start.
    listed: bool,
    /// The present or last runtime.
    pub(super) runtime: Option<Runtime>,
    /// The number of the present or last connection.
    session: Option<u64>,
    /// Connections since the start.
    pub(super) connections: u64,
}

impl Link {
    pub fn introduced(&mut self, session: u64, runtime: Runtime) {
        self.connected = true;
        self.synchronized = false;
        self.runtime = Some(runtime);
        self.connections += u64::from(self.session != Some(session));
        self.session = Some(session);
    }

    pub fn synchronized(&mut self) {
        self.synchronized = self.connected;
        self.listed |= self.connected;
    }

    /// Whether a runtime has listed its containers since the start, on this connection or an
    /// earlier one.
    pub fn has_listed(&self) -> bool {
        self.listed
    }

    /// A connection has ended; the runtime may have opened the next one before.
    pub fn ended(&mut self, session: u64) {
        if self.session == Some(session) {
            self.connected = false;
            self.synchronized = false;
        }
    }
}

/// A machine in a line, such as `2 sockets, 2 NUMA nodes, 4 uncore caches, 32 cores, CPUs 0-63`.
pub(crate) fn machine_line(topology: &Topology) -> String {
    format!(
        "{}, {}, {}, {}, {}",
        count(topology.sockets().len(), "socket"),
        count(topology.nodes().len(), "NUMA node"),
        count(topology.uncores().len(), "uncore cache"),
        count(topology.cores().len(), "core"),
        wording::cpus(topology.online()),
    )
}
