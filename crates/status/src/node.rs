//! [`NodeView`]: everything that clients can see of the node, at one moment. The ledger's owner makes
//! it when a client asks, and does not know the formats.

use super::config_state::ConfigState;
use super::counters::Counters;
use super::health::Health;
use super::history::History;
use super::noise::NoiseFigures;
use super::quiet::QuietFigures;
use config::{Config, LogLevel, Mode};
use cpuset::{CpuSet, PartitionType};
use exclusivity::verify;
use ledger::{Occasion, View};
use nri::Runtime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use topology::Topology;
use wording::Moment;
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
    pub daemon: DaemonSettings,
    pub parts: Parts,
}

/// Settings in force that the ledger does not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct DaemonSettings {
    pub strict: bool,
    /// The setting `cpusetPartition`.
    pub partition: PartitionType,
    pub mode: Mode,
    pub log_level: LogLevel,
}

impl From<&Config> for DaemonSettings {
    fn from(config: &Config) -> DaemonSettings {
        DaemonSettings {
            strict: config.strict(),
            partition: config.partition(),
            mode: config.mode(),
            log_level: config.log_level(),
        }
    }
}

/// What the parts of the daemon say of themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parts {
    pub config_source: ConfigState,
    pub exclusivity: exclusivity::Figures,
    pub checkpoint: CheckpointFigures,
    pub drift: verify::Figures,
    pub plans: PlanFigures,
    /// Interrupts and latency knobs of exclusive CPUs.
    pub quiet: QuietFigures,
    /// Whether the kubelet says on which NUMA nodes devices are.
    pub kubelet_devices: KubeletDevices,
    #[serde(skip)]
    pub counters: Counters,
}

/// Whether the state is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointFigures {
    /// Why the last write failed; `null` if it succeeded.
    pub error: Option<String>,
    /// The directory whose disk has not finished a write for so long that nothing waits for it any more,
    /// and for how long; `null` otherwise.
    pub stalled: Option<String>,
}

/// Plans of moves of running containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanFigures {
    /// When moves were last planned on each occasion (`arrival`; `departure`: after an end or `minStay`), and the result.
    pub last: BTreeMap<Occasion, LastPlan>,
    /// Whether containers move only in the response to the creation of another one, because the plugin
    /// cannot write cgroups or the runtime enforces exclusivity.
    pub only_at_creations: bool,
    /// Whether containers move although the CPU affinities of their threads cannot be seen.
    pub threads_unseen: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastPlan {
    pub at: Moment,
    /// Containers that moved.
    pub moved: usize,
    /// Why no more moved; `null` if all of the plan was carried out. May name containers.
    pub why: Option<String>,
}

/// Whether the kubelet says where devices are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
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

/// The likely cause of pods that are refused again and again for lack of CPUs, with the remedy.
pub fn lack_of_cpus(reserved: CpuSet) -> String {
    format!(
        "pods wait for CPUs after several refusals: the scheduler counts CPUs that are reserved here, unless the kubelet \
         reserves {} too (systemReserved: {{cpu: \"{}\"}})",
        reserved.len(),
        reserved.len()
    )
}

/// The state of the connection to the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    /// Whether a runtime is connected.
    pub(super) connected: bool,
    /// Whether the runtime has listed its containers on this connection.
    pub(super) synchronized: bool,
    /// Whether a runtime has listed its containers since the start.
    #[serde(skip)]
    listed: bool,
    /// The present or last runtime; `null` before the first.
    #[serde(rename = "program")]
    pub(super) runtime: Option<Runtime>,
    /// The number of the present or last connection.
    #[serde(skip)]
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
pub fn machine_line(topology: &Topology) -> String {
    format!(
        "{}, {}, {}, {}, {}",
        count(topology.sockets().len(), "socket"),
        count(topology.nodes().len(), "NUMA node"),
        count(topology.uncores().len(), "uncore cache"),
        count(topology.cores().len(), "core"),
        wording::cpus(topology.online()),
    )
}

impl fmt::Display for Link {
    /// `containerd v2.1.9, connected`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.runtime {
            Some(Runtime { name, version, .. }) => write!(f, "{name} {version}")?,
            None => f.write_str("none yet")?,
        }
        f.write_str(match (self.connected, self.synchronized) {
            (true, true) => ", connected",
            (true, false) => ", connected, containers not listed yet",
            (false, _) => ", not connected",
        })
    }
}
