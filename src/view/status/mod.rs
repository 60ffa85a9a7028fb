//! [`Status`]: the node and its containers as `nri-cpu-manager status` shows them. The names are a
//! promise to scripts; docs/status.md is the reference.

pub(super) mod config;
pub(super) mod cpus;
mod interrupts;
pub(super) mod memory;
mod rebalance;

pub use config::{BoundsReport, ConfigSourceStatus, ConfigStatus, Indented, OwnSettings};
pub use cpus::{CpuStatus, DomainStatus, PlacementStatus};
pub use interrupts::{InterruptStatus, InterruptsStatus, QuietStatus};
pub use memory::{
    ContainerMemoryStatus, JointMemoryStatus, MemoryStatus, MemoryTypeStatus, NodeMemoryStatus,
};
pub use rebalance::{PlanStatus, RebalanceStatus, StayStatus};

use super::badge::Badge;
use super::history::{Happened, HistoryRecord};
use super::node::{GroupBound, Link, NodeFigures, NodeView};
use super::noise::NoiseFigures;
use super::picture::Usage;
use crate::clock::Moment;
use crate::exclusivity::Isolation;
use crate::snapshot::Snapshot;
use cpus::live_score;
use cpuset::CpuSet;
use ledger::{ContainerView, PoolKind, Stance, Subject, What};
use noise::NoiseReport;
use placement::quality::LiveScore;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use topology::Sizes;
use wording::{count, natural_order, printable};

/// The version of the format. It changes when a field is removed or changes its meaning, not when one
/// is added.
pub const VERSION: u32 = 1;

/// What everything in a status means in this mode.
pub(crate) const OBSERVES: &str =
    "mode: observe: the plugin changes nothing, and shows what it would decide";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// See [`VERSION`].
    pub version: u32,
    pub plugin_version: String,
    /// `null` if the plugin does not know it.
    pub node_name: Option<String>,
    /// When this was written, in RFC 3339 as all moments here.
    pub at: String,
    /// Whether the plugin can place containers as configured.
    pub ready: bool,
    /// Why the plugin cannot, a sentence each.
    pub obstacles: Vec<String>,
    pub runtime: RuntimeStatus,
    /// `null` without a configuration.
    pub node: Option<NodeStatus>,
}

/// The connection to the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeStatus {
    pub connected: bool,
    /// Whether the runtime has listed its containers on this connection.
    pub synchronized: bool,
    /// The number of connections since the start.
    pub connections: u64,
    /// `null` if no runtime has connected yet, like the versions.
    pub name: Option<String>,
    pub version: Option<String>,
    /// Also `null` if the runtime does not report it.
    pub nri_version: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The configuration in force.
    pub config: ConfigStatus,
    pub config_source: ConfigSourceStatus,
    /// `assign`; `observe` with this mode; `refuse` while the kubelet's CPU manager is active.
    pub stance: String,
    pub cpus: CpuStatus,
    pub numa_nodes: Vec<DomainStatus>,
    pub uncore_caches: Vec<DomainStatus>,
    /// How scattered free CPUs are, by boundary: `numa_node`, `uncore_cache`.
    pub fragmentation: BTreeMap<String, f64>,
    /// Absent if memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    pub machine: Snapshot,
    /// By namespace, pod and name, in natural order.
    pub containers: Vec<ContainerStatus>,
    /// The last refusals, the oldest first.
    pub refusals: Vec<RecordStatus>,
    /// The last drifts and other troubles, the oldest first.
    pub troubles: Vec<RecordStatus>,
    /// Containers that differ from the decision now, despite repairs.
    pub drifting_containers: usize,
    /// Containers that differ from the decision because the runtime has not changed them yet.
    pub late_containers: usize,
    /// How long the runtime takes to change a container; `null` before the first measurement.
    pub runtime_change_seconds: Option<f64>,
    /// Containers moved while they ran, by reason.
    pub moves: BTreeMap<String, u64>,
    /// Moves of running containers to better CPUs; `null` if not configured.
    pub rebalance: Option<RebalanceStatus>,
    /// The placement quality of existing containers with exclusive CPUs.
    pub alignment: LiveScore,
    /// That all CPUs of the machine are reserved, and the effect; `null` if some can be assigned.
    #[serde(default)]
    pub nothing_to_assign: Option<String>,
    /// Pods that were refused for lack of CPUs at least twice, and that wait for some.
    #[serde(default)]
    pub pods_lacking_cpus: usize,
    /// How often the kernel refused a partition for a container.
    pub partition_refusals: u64,
    /// Why the last write of the checkpoint failed; `null` if it succeeded.
    pub checkpoint_error: Option<String>,
    /// Why cgroups are not writable, and the effect; `null` if they are.
    pub cgroups_error: Option<String>,
    /// Why the runtime enforces exclusivity although cgroups were configured to; `null` otherwise.
    pub exclusivity_fallback: Option<String>,
    /// Why the mechanism is not the configuration's first choice; `null` if it is.
    pub exclusivity_because: Option<String>,
    /// Cgroups that cannot be relied on at present, with the reason: each child cgroup is bound
    /// individually.
    pub distrusted_cgroups: BTreeMap<String, String>,
    /// Pods, by uid, whose shared containers the runtime updates although cgroups bind others, with
    /// the reason.
    pub unbound_pods: BTreeMap<String, String>,
    /// Upper bounds that other programs set on cgroups in which containers share CPUs.
    pub cgroup_bounds: BTreeMap<String, CpuSet>,
    /// When each of these bounds was found, and what removes it, by cgroup.
    pub cgroup_bound_details: BTreeMap<String, BoundDetails>,
    /// Whether the kubelet says on which NUMA nodes devices are: `unasked`, `unmounted`, `answers`, or
    /// `fails: ` and why.
    pub kubelet_devices: String,
    /// Cpuset partitions of other programs, by cgroup: no container can run on their CPUs.
    pub foreign_partitions: BTreeMap<String, CpuSet>,
    /// Interrupts on exclusive CPUs; absent while no container asks for quiet CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<InterruptsStatus>,
    /// What ran or fired on exclusive CPUs in the last minute besides their containers, as `noise --output
    /// json` has it, without what is expected. Absent without exclusive CPUs, and while nothing was
    /// observed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseReport>,
    /// Why nothing can be observed on exclusive CPUs, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_error: Option<String>,
    /// What the kernel keeps away from isolated partitions, a sentence each; empty without
    /// `cpusetPartition: isolated`.
    pub isolation: Vec<String>,
    /// Set by [`NodeStatus::show_only`]; the plugin itself always sends all namespaces.
    #[serde(skip)]
    pub filter: Option<NamespaceFilter>,
}

/// What a reader has left out of a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceFilter {
    pub namespaces: Vec<String>,
    /// CPUs that containers of other namespaces have for themselves.
    pub elsewhere: CpuSet,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundDetails {
    pub since: String,
    /// The shell command that removes the bound.
    pub remove_with: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// The letters in pictures of a container with exclusive CPUs.
    pub badge: Option<Badge>,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub pod_uid: String,
    /// The runtime's id.
    pub id: String,
    /// Its cgroup, below the root of the hierarchy; `null` if the runtime does not report it.
    pub cgroup: Option<String>,
    /// `created`, `running`, or `ended` (its CPUs are kept until its pod ends).
    pub state: String,
    pub exclusive: bool,
    /// Where it runs.
    pub cpus: CpuSet,
    /// Whether its pod is for the reserved CPUs, and so gets no exclusive ones.
    pub reserved: bool,
    /// Why it stays on CPUs that another program has set for it; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<String>,
    /// Of `cpus`, those that it shares although it has exclusive ones (`cpus: exclusive+shared`).
    pub shared: CpuSet,
    /// Of `cpus`, those that it shares with containers of its pod only.
    pub own_pool: CpuSet,
    /// The letters of `own_pool` in pictures.
    pub pool_badge: Option<Badge>,
    /// Of `cpus`, those that it loses soon, after a resize.
    pub leaving: CpuSet,
    /// SMT siblings of its exclusive CPUs, or the rest of their uncore caches, that stay idle for it.
    pub idle: CpuSet,
    /// How many exclusive CPUs it asks for by the kubelet's rule; `null` if none.
    pub requested: Option<usize>,
    /// Where its exclusive CPUs are.
    #[serde(flatten)]
    pub placement: PlacementStatus,
    /// Absent if its memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ContainerMemoryStatus>,
    /// `kernel`, `groups` or `runtime`, for exclusive CPUs.
    pub mechanism: Option<String>,
    /// Interrupts and latency knobs of its exclusive CPUs; absent if it asks for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietStatus>,
    /// When it was created, if the runtime reports that.
    pub created: Option<String>,
    /// Since when it has these exclusive CPUs, if this process knows.
    pub since: Option<String>,
    /// Why `rebalance` does not move it now; `null` if it may, or nothing moves.
    pub stays: Option<StayStatus>,
}

/// Something that happened to a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordStatus {
    pub at: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// `assigned`, `kept`, `adopted`, `moved`, `resized`, `shared`, `refused`, `released`,
    /// `contested`, `left_alone`, `too_many`, `drifted`, `partition_refused`.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
}

impl NodeView {
    /// The status, with the date `at`.
    pub fn status(&self, at: Moment) -> Status {
        let obstacles = self.health.obstacles.clone();
        Status {
            version: VERSION,
            plugin_version: env!("CARGO_PKG_VERSION").to_owned(),
            node_name: self.node_name.clone(),
            at: at.to_string(),
            ready: obstacles.is_empty(),
            obstacles,
            runtime: RuntimeStatus::of(&self.link),
            node: self.node.as_ref().ok().map(|node| NodeStatus::of(node, &self.noise)),
        }
    }
}

impl Status {
    /// Removes names, and texts that may quote names, for clients that may not see what runs on the
    /// node.
    #[must_use]
    pub fn without_names(mut self) -> Status {
        if let Some(node) = &mut self.node {
            for one in &mut node.containers {
                one.namespace.clear();
                one.pod.clear();
                one.container.clear();
                one.pod_uid.clear();
                one.id.clear();
                if let Some(quiet) = &mut one.quiet {
                    // A reason may name another container.
                    quiet.knobs_refused.clear();
                }
                // It has the uid of the pod and the id.
                one.cgroup = None;
            }
            node.noise = node.noise.take().map(NoiseReport::without_names);
            node.config.namespaces.clear();
            node.config.own.reserved_namespaces.clear();
            node.refusals.clear();
            node.troubles.clear();
            node.foreign_partitions.clear();
            let plans = node.rebalance.iter_mut().flat_map(|moves| &mut moves.last_plans);
            plans.for_each(|plan| plan.why = None);
            node.config_source.error = None;
        } else if let Some(why) = self.obstacles.last_mut() {
            // The last obstacle may quote a configuration that the plugin refused.
            *why = "there is no usable configuration".to_owned();
        }
        self
    }
}

impl RuntimeStatus {
    fn of(link: &Link) -> RuntimeStatus {
        let runtime = link.runtime.as_ref();
        let nri_version = runtime.map(|runtime| runtime.nri_version.clone());
        RuntimeStatus {
            connected: link.connected,
            synchronized: link.synchronized,
            connections: link.connections,
            name: runtime.map(|runtime| runtime.name.clone()),
            version: runtime.map(|runtime| runtime.version.clone()),
            nri_version: nri_version.filter(|version| !version.is_empty()),
        }
    }
}

impl fmt::Display for RuntimeStatus {
    /// `containerd v2.1.9, connected`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.version) {
            (Some(name), Some(version)) => write!(f, "{name} {version}")?,
            _ => f.write_str("none yet")?,
        }
        f.write_str(match (self.connected, self.synchronized) {
            (true, true) => ", connected",
            (true, false) => ", connected, containers not listed yet",
            (false, _) => ", not connected",
        })
    }
}

impl NodeStatus {
    /// What the stance means, if the plugin assigns no CPUs.
    pub fn why_not_assigning(&self) -> Option<&'static str> {
        if self.stance == Stance::Observe.name() {
            Some(OBSERVES)
        } else if self.stance == Stance::Refuse.name() {
            Some("the kubelet's own CPU manager is active")
        } else {
            None
        }
    }

    /// The containers as lists below a picture have them: by their letters, then those in the shared
    /// pool by name.
    pub fn listed(&self) -> Vec<&ContainerStatus> {
        let mut containers: Vec<&ContainerStatus> = self.containers.iter().collect();
        containers.sort_by(|a, b| {
            let group = |one: &ContainerStatus| {
                let is_shared = !one.exclusive && one.pool_badge.is_none();
                (is_shared, if one.exclusive { one.badge } else { one.pool_badge })
            };
            group(a).cmp(&group(b)).then_with(|| by_name(a.name_parts(), b.name_parts()))
        });
        containers
    }

    /// Leaves out containers and records of other namespaces.
    pub fn show_only(&mut self, namespaces: &[String]) {
        let others = self.containers.iter().filter(|one| !namespaces.contains(&one.namespace));
        let elsewhere = others
            .map(|one| {
                let exclusive = if one.exclusive { one.cpus - one.shared } else { CpuSet::EMPTY };
                exclusive | one.idle | one.own_pool
            })
            .fold(CpuSet::EMPTY, |all, cpus| all | cpus);
        self.containers.retain(|one| namespaces.contains(&one.namespace));
        if let Some(noise) = &mut self.noise {
            let of = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
            noise.containers.retain(|one| namespaces.contains(&of(&one.name)));
        }
        self.refusals.retain(|one| namespaces.contains(&one.namespace));
        self.troubles.retain(|one| namespaces.contains(&one.namespace));
        self.filter = Some(NamespaceFilter { namespaces: namespaces.to_owned(), elsewhere });
    }

    /// What the check passes found and repairs did not change; `None` if nothing.
    pub fn drift(&self) -> Option<String> {
        if self.drifting_containers == 0 {
            return None;
        }
        let containers = count(self.drifting_containers, "container");
        Some(format!("{containers} not as decided, despite repairs"))
    }

    fn of(node: &NodeFigures, noise: &NoiseFigures) -> NodeStatus {
        let NodeFigures { view, history, own } = node;
        let cpus = CpuStatus::of(view, own.foreign());
        let numa_nodes = DomainStatus::numa_nodes(view);
        let uncore_caches = DomainStatus::uncore_caches(view);
        let scattered = [("numa_node", &numa_nodes), ("uncore_cache", &uncore_caches)];
        let scattered = scattered.map(|(boundary, domains)| {
            (boundary.to_owned(), DomainStatus::fragmentation(view, domains))
        });
        let moves = view.moves.iter().filter(|(_, count)| **count > 0);
        NodeStatus {
            config: ConfigStatus::in_force(node),
            config_source: ConfigSourceStatus::of(&own.config),
            stance: view.stance.name().to_owned(),
            cpus,
            numa_nodes,
            uncore_caches,
            fragmentation: scattered.into(),
            memory: MemoryStatus::of(view),
            machine: Snapshot::of(&view.topology, &Sizes::default()),
            containers: ContainerStatus::all(node),
            refusals: history.refusals().map(RecordStatus::of).collect(),
            troubles: history.troubles().map(RecordStatus::of).collect(),
            drifting_containers: own.drifting,
            late_containers: own.late,
            runtime_change_seconds: own.change_takes.map(|takes| takes.as_secs_f64()),
            moves: moves.map(|(reason, count)| (reason.name().to_owned(), *count)).collect(),
            rebalance: RebalanceStatus::of(node),
            alignment: live_score(view),
            nothing_to_assign: own.config.nothing_to_assign.clone(),
            pods_lacking_cpus: view.pods_lacking_cpus,
            partition_refusals: own.partition_refusals,
            checkpoint_error: own.checkpoint_error.clone(),
            cgroups_error: own.cannot_write_groups.clone(),
            exclusivity_fallback: node.given_up().map(str::to_owned),
            exclusivity_because: own.exclusivity_because.clone(),
            distrusted_cgroups: own.distrusted_cgroups.iter().cloned().collect(),
            unbound_pods: own.unbound_pods.iter().cloned().collect(),
            cgroup_bounds: own.cgroup_bounds.iter().map(|b| (b.group.clone(), b.cpus)).collect(),
            cgroup_bound_details: own
                .cgroup_bounds
                .iter()
                .map(|bound| (bound.group.clone(), BoundDetails::of(bound)))
                .collect(),
            kubelet_devices: own.kubelet_devices.to_string(),
            foreign_partitions: own.foreign_partitions.iter().cloned().collect(),
            interrupts: InterruptsStatus::of(&own.quiet),
            noise: noise.recent.clone(),
            noise_error: noise.obstacle.clone(),
            isolation: own.quiet.isolation.as_ref().map(Isolation::facts).unwrap_or_default(),
            filter: None,
        }
    }
}

impl BoundDetails {
    fn of(bound: &GroupBound) -> BoundDetails {
        BoundDetails { since: bound.since.to_string(), remove_with: bound.removal.clone() }
    }
}

impl ContainerStatus {
    /// All of the node, by namespace, pod and name, in natural order.
    pub(crate) fn all(node: &NodeFigures) -> Vec<ContainerStatus> {
        ContainerStatus::of_those(node, |_| true)
    }

    /// Those with exclusive CPUs or an own pool, and not only in the decisions of an observer.
    pub(crate) fn with_own_cpus(node: &NodeFigures) -> Vec<ContainerStatus> {
        let is_real = node.view.stance != Stance::Observe;
        ContainerStatus::of_those(node, |one| {
            is_real && (one.exclusive.is_some() || !one.own_pool.is_empty())
        })
    }

    fn of_those(
        node: &NodeFigures,
        is_one: impl Fn(&ContainerView) -> bool,
    ) -> Vec<ContainerStatus> {
        let containers = node.view.containers.iter().filter(|one| is_one(one));
        let mut all: Vec<ContainerStatus> =
            containers.map(|one| ContainerStatus::of(one, node)).collect();
        all.sort_by(|a, b| by_name(a.name_parts(), b.name_parts()));
        all
    }

    fn of(container: &ContainerView, node: &NodeFigures) -> ContainerStatus {
        let NodeFigures { view, history, own } = node;
        let subject = subject(container);
        let exclusive = container.exclusive.unwrap_or_default();
        let has_exclusive = container.exclusive.is_some();
        let badge = history.badges.of(container);
        let since = history.of_living(&subject).last().map(|record| record.at.to_string());
        ContainerStatus {
            badge: if has_exclusive { badge } else { None },
            namespace: subject.namespace,
            pod: subject.pod,
            container: subject.container,
            pod_uid: container.pod.uid.to_string(),
            id: container.id.to_string(),
            cgroup: container.cgroup.as_ref().map(ToString::to_string),
            state: container.phase.name().to_owned(),
            exclusive: has_exclusive,
            cpus: *container.runs_on,
            reserved: container.pool == PoolKind::Reserved,
            left_alone: container.left_alone.map(|why| why.to_string()),
            shared: *container.shared,
            own_pool: *container.own_pool,
            pool_badge: history.badges.of_own_pool(container),
            leaving: *container.leaving,
            idle: *container.idle,
            requested: container.asks,
            placement: PlacementStatus::of(&view.topology, &exclusive),
            memory: view.memory_of(container).map(ContainerMemoryStatus::of),
            mechanism: container.exclusive.map(|_| container.enforced_by.to_string()),
            quiet: QuietStatus::of(container, &own.quiet),
            created: container.created_at.map(|nanos| Moment::from_nanos(nanos).to_string()),
            since: if has_exclusive { since } else { None },
            stays: container.stays.as_ref().map(StayStatus::of),
        }
    }

    fn name_parts(&self) -> [&str; 3] {
        [&self.namespace, &self.pod, &self.container]
    }

    /// Empty if the status has no names.
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.pod, &self.container)
    }

    /// The sign of its CPUs in a picture; `None` from versions without pictures.
    pub fn usage(&self) -> Option<Usage> {
        if self.exclusive {
            self.badge.map(Usage::Held)
        } else if !self.own_pool.is_empty() {
            self.pool_badge.map(Usage::Held)
        } else if self.reserved {
            Some(Usage::Reserved)
        } else {
            Some(Usage::Shared)
        }
    }
}

/// The order of containers in lists for people: namespace, pod, container.
pub fn by_name(a: [&str; 3], b: [&str; 3]) -> Ordering {
    let orders = a.iter().zip(b).map(|(a, b)| natural_order(a, b));
    orders.fold(Ordering::Equal, Ordering::then)
}

/// `NAMESPACE/POD/CONTAINER` for people, or `NAMESPACE/POD`; empty if these are. The author of a pod, or a hostile
/// runtime, chooses names.
pub fn full_name(namespace: &str, pod: &str, container: &str) -> String {
    if pod.is_empty() && container.is_empty() {
        return String::new();
    }
    if container.is_empty() {
        return printable(&format!("{namespace}/{pod}"));
    }
    printable(&format!("{namespace}/{pod}/{container}"))
}

impl RecordStatus {
    /// The name of the container that it is about.
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.pod, &self.container)
    }

    pub(super) fn of(record: &HistoryRecord) -> RecordStatus {
        let Subject { namespace, pod, container, .. } = record.subject.clone();
        let (kind, text) = describe(&record.happened);
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

/// The kind of a record, and its sentence.
fn describe(happened: &Happened) -> (&'static str, String) {
    match happened {
        Happened::Decided { what, done } => {
            let kind = match what {
                What::Assigned { .. } | What::PodAssigned { .. } => "assigned",
                What::SharesOwnPool(_) => "own_pool",
                What::Kept(_) => "kept",
                What::Held(_) => "held",
                What::Outlasts(_) => "outlasts",
                What::Adopted(_) => "adopted",
                What::Moved { .. } => "moved",
                What::Rebalanced { .. } => "rebalanced",
                What::Suggested { .. } => "suggested",
                What::Resized { .. } | What::Announced { .. } => "resized",
                What::LeftShared(_) => "shared",
                What::Refused { .. } => "refused",
                What::Released(_) => "released",
                What::Contested(_) => "contested",
                What::LeftAlone { .. } => "left_alone",
                What::NoEffect { .. } => "no_effect",
                What::LeftToRuntime => "left_to_runtime",
                What::TooMany(_) => "too_many",
            };
            (kind, format!("{}{what}", if *done { "" } else { "observing, not done: " }))
        }
        Happened::Drifted { target, observed, action } => {
            ("drifted", format!("should have {}, but {observed}: {action}", wording::cpus(target)))
        }
        Happened::KernelRefused(why) => (
            "partition_refused",
            format!("no cpuset partition, cgroups keep other containers off its CPUs: {why}"),
        ),
    }
}

pub(super) fn subject(container: &ContainerView) -> Subject {
    Subject {
        namespace: container.pod.namespace.clone(),
        pod: container.pod.name.clone(),
        container: container.name.clone(),
        id: container.id.clone(),
    }
}
