//! [`Status`]: the node and its containers as `nri-cpu-manager status` shows them. The names are a
//! promise to scripts; docs/status.md is the reference.

mod bounds;
mod config;
mod own;

pub use bounds::{BoundsReport, Indented};
pub use config::{ConfigSourceStatus, ConfigStatus};
pub use own::OwnSettings;

use super::figures::{Domain, Figures, Link, NodeFigures};

use super::health::obstacles;
use super::history::{Happened, History, Record};
use crate::clock::Moment;
use crate::cpuset::CpuSet;
use crate::ledger::{ContainerView, Stance, Subject, View, What};
use crate::snapshot::Snapshot;
use crate::topology::Sizes;
use crate::topology::Topology;
use crate::wording;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the form. It changes when something is taken away or means something else, not
/// when something is added.
pub const VERSION: u32 = 1;

/// Everything that observers see of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// See [`VERSION`].
    pub version: u32,
    /// The plugin's version.
    pub plugin_version: String,
    /// When this was written, in RFC 3339 as all moments here.
    pub at: String,
    /// Whether the plugin can place containers as configured.
    pub ready: bool,
    /// Why not, a sentence each.
    pub obstacles: Vec<String>,
    /// The connection to the runtime.
    pub runtime: RuntimeStatus,
    /// The node; `null` before there is a configuration.
    pub node: Option<NodeStatus>,
}

/// The connection to the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeStatus {
    /// Whether it is connected.
    pub connected: bool,
    /// Whether it has listed its containers since.
    pub synchronized: bool,
    /// The number of connections since the start.
    pub connections: u64,
    /// Its name; `null` if there has been none.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its NRI version, if it reports one.
    pub nri_version: Option<String>,
}

/// The node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The configuration in force.
    pub config: ConfigStatus,
    /// Its source, and the result of the last change.
    pub config_source: ConfigSourceStatus,
    /// `assign`; beside an active kubelet `refuse` or `observe`.
    pub stance: String,
    /// How the CPUs are used.
    pub cpus: CpuStatus,
    /// The NUMA nodes that have CPUs.
    pub numa_nodes: Vec<DomainStatus>,
    /// The uncore caches.
    pub uncore_caches: Vec<DomainStatus>,
    /// How scattered free CPUs are, by boundary: `numa_node`, `uncore_cache`.
    pub fragmentation: BTreeMap<String, f64>,
    /// The machine; `null` from versions without this field.
    #[serde(default)]
    pub machine: Option<Snapshot>,
    /// The containers, by namespace, pod and name.
    pub containers: Vec<ContainerStatus>,
    /// The last refusals, the oldest first.
    pub refusals: Vec<RecordStatus>,
    /// The last drifts and other troubles, the oldest first.
    pub troubles: Vec<RecordStatus>,
    /// Containers that differ from the decision now, in spite of repairs.
    #[serde(default)]
    pub drifting: usize,
    /// Containers that differ from the decision because the runtime has not changed them yet.
    #[serde(default)]
    pub late: usize,
    /// How long the runtime takes to change a container, in seconds; `null` before the first
    /// measurement.
    #[serde(default)]
    pub runtime_change_seconds: Option<f64>,
    /// Containers moved while they ran, by reason.
    pub moves: BTreeMap<String, u64>,
    /// Times that the kernel refused to keep others off.
    pub kernel_refusals: u64,
    /// Why the checkpoint could not be written the last time; `null` if it could.
    pub checkpoint_error: Option<String>,
    /// Why control groups cannot be written, and what that means; `null` if they can.
    #[serde(default)]
    pub cgroups_error: Option<String>,
    /// Why the runtime keeps exclusivity though groups were to; `null` if they do.
    #[serde(default)]
    pub groups_given_up: Option<String>,
    /// Why exclusivity is not kept by what the configuration names first; `null` if it is.
    #[serde(default)]
    pub exclusivity_because: Option<String>,
    /// Cgroups that cannot be relied on at present, with the reason: those below are bound instead.
    #[serde(default)]
    pub distrusted_groups: BTreeMap<String, String>,
    /// Pods that the runtime keeps off exclusive CPUs though cgroups do so for others, by uid, with
    /// the reason.
    #[serde(default)]
    pub unbound_pods: BTreeMap<String, String>,
    /// What other programs allow groups in which containers share CPUs: lists of CPUs by group.
    #[serde(default)]
    pub group_bounds: BTreeMap<String, String>,
}

/// CPUs by use, as lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Online.
    pub online: String,
    /// Never exclusive.
    pub reserved: String,
    /// Exclusive to a container.
    pub exclusive: String,
    /// Could become exclusive now.
    pub free: String,
    /// What shared containers run on.
    pub shared: String,
}

/// A NUMA node or an uncore cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainStatus {
    /// Its number.
    pub id: usize,
    /// Its online CPUs.
    pub cpus: String,
    /// Of these, the exclusive ones.
    pub exclusive: String,
    /// Of these, those that could become exclusive now.
    pub free: String,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Its letters in pictures, if it has exclusive CPUs.
    #[serde(default)]
    pub badge: Option<String>,
    /// Its pod's namespace.
    pub namespace: String,
    /// Its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
    /// Its pod's uid.
    pub pod_uid: String,
    /// The runtime's id.
    pub id: String,
    /// `created`, `running`, or `ended` (its CPUs are kept until its pod ends).
    pub state: String,
    /// Whether it has exclusive CPUs.
    pub exclusive: bool,
    /// Where it runs.
    pub cpus: String,
    /// SMT siblings of its exclusive CPUs that stay idle for it.
    #[serde(default)]
    pub idle: String,
    /// How many exclusive CPUs it asks for by the kubelet's rule; `null` if none.
    pub asks: Option<usize>,
    /// The NUMA nodes of its exclusive CPUs.
    pub numa_nodes: Vec<usize>,
    /// The uncore caches of its exclusive CPUs.
    pub uncore_caches: Vec<usize>,
    /// Whether its exclusive CPUs are whole cores.
    pub whole_cores: bool,
    /// `runtime` or `kernel`, for exclusive CPUs.
    pub kept_by: Option<String>,
    /// When it was created, if the runtime reports that.
    pub created: Option<String>,
    /// Since when it has these exclusive CPUs, if this process knows.
    pub since: Option<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordStatus {
    /// When.
    pub at: String,
    /// Its pod's namespace.
    pub namespace: String,
    /// Its pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// `assigned`, `kept`, `adopted`, `moved`, `resized`, `shared`, `refused`, `released`,
    /// `contested`, `drifted`, `kernel_refused`.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
}

impl Status {
    /// `node` is the view of the ledger's owner.
    pub fn of(now: Moment, figures: &Figures, node: Option<(&View, &History)>) -> Status {
        let obstacles = obstacles(figures);
        let node = node.zip(figures.node.as_ref().ok());
        Status {
            version: VERSION,
            plugin_version: env!("CARGO_PKG_VERSION").to_owned(),
            at: now.to_string(),
            ready: obstacles.is_empty(),
            obstacles,
            runtime: RuntimeStatus::of(&figures.link),
            node: node.map(|((view, history), figures)| NodeStatus::of(figures, view, history)),
        }
    }

    /// The same without names and without texts that may quote names, for clients that may not see
    /// what runs on the node.
    #[must_use]
    pub fn without_names(mut self) -> Status {
        if let Some(node) = &mut self.node {
            for one in &mut node.containers {
                for name in [
                    &mut one.namespace,
                    &mut one.pod,
                    &mut one.container,
                    &mut one.pod_uid,
                    &mut one.id,
                ] {
                    name.clear();
                }
            }
            node.config.namespaces.clear();
            node.refusals.clear();
            node.troubles.clear();
            node.config_source.error = None;
        } else if let Some(why) = self.obstacles.last_mut() {
            // The last obstacle may quote a configuration that the plugin refused.
            *why = "there is no configuration that can be used".to_owned();
        }
        self
    }
}

impl RuntimeStatus {
    fn of(link: &Link) -> RuntimeStatus {
        let runtime = link.runtime();
        RuntimeStatus {
            connected: link.is_connected(),
            synchronized: link.is_synchronized(),
            connections: link.connections(),
            name: runtime.map(|runtime| runtime.name.clone()),
            version: runtime.map(|runtime| runtime.version.clone()),
            nri_version: runtime
                .map(|runtime| runtime.nri_version.clone())
                .filter(|version| !version.is_empty()),
        }
    }
}

impl NodeStatus {
    fn of(figures: &NodeFigures, view: &View, history: &History) -> NodeStatus {
        let topology = &*view.topology;
        let domain = |id: usize, cpus: CpuSet| DomainStatus {
            id,
            cpus: cpus.to_string(),
            exclusive: (cpus & figures.exclusive).to_string(),
            free: (cpus & figures.free).to_string(),
        };
        let mut containers: Vec<ContainerStatus> = view
            .containers
            .iter()
            .map(|seen| ContainerStatus::of(seen, topology, history))
            .collect();
        let name = |c: &ContainerStatus| (c.namespace.clone(), c.pod.clone(), c.container.clone());
        containers.sort_by_cached_key(name);
        let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
        NodeStatus {
            config: ConfigStatus::in_force(figures),
            config_source: ConfigSourceStatus::of(&figures.config),
            stance: match figures.stance {
                Stance::Assign => "assign",
                Stance::Refuse => "refuse",
                Stance::Observe => "observe",
            }
            .to_owned(),
            cpus: CpuStatus {
                online: figures.online.to_string(),
                reserved: figures.settings.placement.reserved.to_string(),
                exclusive: figures.exclusive.to_string(),
                free: figures.free.to_string(),
                shared: figures.pool.to_string(),
            },
            numa_nodes: nodes.map(|node| domain(node.id, node.cpus)).collect(),
            uncore_caches: topology.uncores().iter().map(|one| domain(one.id, one.cpus)).collect(),
            fragmentation: BTreeMap::from([
                ("numa_node".to_owned(), Domain::fragmentation(&figures.nodes)),
                ("uncore_cache".to_owned(), Domain::fragmentation(&figures.uncores)),
            ]),
            machine: Some(Snapshot::of(topology, &Sizes::default())),
            containers,
            refusals: history.refusals().map(RecordStatus::of).collect(),
            troubles: history.troubles().map(RecordStatus::of).collect(),
            drifting: figures.drifting,
            late: figures.late,
            runtime_change_seconds: figures.change_takes.map(|takes| takes.as_secs_f64()),
            moves: figures
                .moves
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(reason, count)| (reason.name().to_owned(), *count))
                .collect(),
            kernel_refusals: figures.kernel_refusals,
            checkpoint_error: figures.checkpoint_error.clone(),
            cgroups_error: figures.cannot_write_groups.clone(),
            groups_given_up: figures.given_up(),
            exclusivity_because: figures.exclusivity_because.clone(),
            distrusted_groups: figures.distrusted_groups.iter().cloned().collect(),
            unbound_pods: figures.unbound_pods.iter().cloned().collect(),
            group_bounds: figures
                .group_bounds
                .iter()
                .map(|(group, cpus)| (group.clone(), cpus.to_string()))
                .collect(),
        }
    }
}

impl ContainerStatus {
    fn of(seen: &ContainerView, topology: &Topology, history: &History) -> ContainerStatus {
        let exclusive = seen.exclusive.unwrap_or_default();
        let subject = subject(seen);
        let badge = history.badges.of(seen).filter(|_| seen.exclusive.is_some());
        let since = history.of_living(&subject).last().filter(|_| seen.exclusive.is_some());
        ContainerStatus {
            badge: badge.map(|badge| badge.to_string()),
            namespace: subject.namespace,
            pod: subject.pod,
            container: subject.container,
            pod_uid: seen.pod.uid.to_string(),
            id: seen.id.to_string(),
            state: seen.phase.name().to_owned(),
            exclusive: seen.exclusive.is_some(),
            cpus: seen.runs_on.to_string(),
            idle: seen.idle.to_string(),
            asks: seen.asks,
            numa_nodes: nodes_of(topology, &exclusive),
            uncore_caches: uncores_of(topology, &exclusive),
            whole_cores: !exclusive.is_empty() && are_whole_cores(topology, &exclusive),
            kept_by: seen.exclusive.map(|_| seen.enforced_by.to_string()),
            created: seen.created_at.map(|nanos| Moment::from_nanos(nanos).to_string()),
            since: since.map(|record| record.at.to_string()),
        }
    }
}

impl RecordStatus {
    pub(super) fn of(record: &Record) -> RecordStatus {
        let Subject { namespace, pod, container, .. } = record.subject.clone();
        let (kind, text) = words(&record.happened);
        RecordStatus {
            at: record.at.to_string(),
            namespace,
            pod,
            container,
            kind: kind.to_owned(),
            text,
        }
    }
}

fn words(happened: &Happened) -> (&'static str, String) {
    match happened {
        Happened::Decided { what, done } => {
            let kind = match what {
                What::Assigned { .. } => "assigned",
                What::Kept(_) => "kept",
                What::Adopted(_) => "adopted",
                What::Moved { .. } => "moved",
                What::Resized { .. } => "resized",
                What::LeftShared(_) => "shared",
                What::Refused { .. } => "refused",
                What::Released(_) => "released",
                What::Contested(_) => "contested",
            };
            (kind, format!("{}{what}", if *done { "" } else { "observing, not done: " }))
        }
        Happened::Drifted { decided, found, action } => {
            let (were, cpus) = (wording::agree(decided, "was", "were"), wording::cpus(decided));
            ("drifted", format!("decided {were} {cpus}, but {found}: {action}"))
        }
        Happened::KernelRefused(why) => {
            let text = format!("no partition, cgroups keep others off its CPUs: {why}");
            ("kernel_refused", text)
        }
    }
}

pub(super) fn subject(seen: &ContainerView) -> Subject {
    Subject {
        namespace: seen.pod.namespace.clone(),
        pod: seen.pod.name.clone(),
        container: seen.name.to_owned(),
        id: seen.id.clone(),
    }
}

pub(super) fn nodes_of(topology: &Topology, cpus: &CpuSet) -> Vec<usize> {
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus));
    nodes.map(|node| node.id).collect()
}

pub(super) fn uncores_of(topology: &Topology, cpus: &CpuSet) -> Vec<usize> {
    let uncores = topology.uncores().iter().filter(|uncore| !uncore.cpus.is_disjoint(cpus));
    uncores.map(|uncore| uncore.id).collect()
}

pub(super) fn are_whole_cores(topology: &Topology, cpus: &CpuSet) -> bool {
    let touched = topology.cores().iter().filter(|core| !core.cpus.is_disjoint(cpus));
    touched.map(|core| core.cpus).all(|core| core.is_subset(cpus))
}
