//! [`Snapshot`]: the node at one moment, as clients see it. The names are a promise to scripts;
//! docs/status.md says which.

use super::badge::Badge;
use super::config_status::ConfigStatus;
use super::health::Health;
use super::history::{Happened, History, HistoryRecord};
use super::memory::MemoryStatus;
use super::node::{Link, NodeFigures, NodeView, Parts};
use super::noise::NoiseFigures;
use super::picture::Usage;
use crate::machine_file::MachineFile;
use cpuset::CpuSet;
use ledger::{ContainerView, Figures, PoolKind, Subject, What};
use placement::OddSizes;
use placement::cores::CoreSizes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use topology::{Sizes, Topology};
use wording::Moment;
use wording::{natural_order, printable};

/// The version of the format. It changes when a field is removed or changes its meaning, not when one
/// is added.
pub const VERSION: u32 = 1;

/// What everything in a status means in this mode.
pub(crate) const OBSERVES: &str =
    "mode: observe: the plugin changes nothing, and shows what it would decide";

/// A node at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// Of this form; it changes when a field is removed or changes its meaning, not when one is added.
    pub version: u32,
    /// Of the plugin that made it.
    pub plugin_version: String,
    /// `null` if the plugin does not know it.
    pub node_name: Option<String>,
    /// When this was made, in RFC 3339 as all moments here.
    pub at: Moment,
    /// Whether the plugin can place containers as configured: `health` has no obstacle.
    pub ready: bool,
    /// What keeps the plugin from placing containers as configured (`obstacle`), and what needs attention
    /// although it places them (`warning`).
    pub health: Health,
    pub runtime: Link,
    /// `null` without a configuration.
    pub node: Option<Node>,
}

/// A node with a configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// The settings in force.
    pub config: ConfigStatus,
    #[serde(flatten)]
    pub figures: Figures,
    /// What the parts of the plugin say of themselves.
    // Flattened, maps with numbers as keys could not be read.
    #[serde(rename = "plugin")]
    pub parts: Parts,
    pub machine: Machine,
    /// How many cores have a number of online CPUs, by that number; empty where cores do not differ.
    pub core_sizes: BTreeMap<usize, usize>,
    /// Numbers of CPUs that no container gets here, not even without others; a list like `1,3-7`.
    pub never_fit: String,
    /// Absent if memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// By namespace, pod and name, in natural order.
    pub containers: Vec<Container>,
    /// The last refusals, the oldest first.
    pub refusals: Vec<Record>,
    /// The last drifts and other troubles, the oldest first.
    pub troubles: Vec<Record>,
    /// What ran or fired on exclusive CPUs besides their containers.
    pub noise: Arc<NoiseFigures>,
    /// Set by [`Node::show_only`]; the plugin itself always sends all namespaces.
    #[serde(skip)]
    pub filter: Option<NamespaceFilter>,
}

/// The machine, in the form of `topology --save`.
#[derive(Debug, Clone)]
pub struct Machine(Arc<Topology>);

impl Deref for Machine {
    type Target = Topology;

    fn deref(&self) -> &Topology {
        &self.0
    }
}

impl Machine {
    pub(crate) fn shared(&self) -> Arc<Topology> {
        Arc::clone(&self.0)
    }
}

impl Serialize for Machine {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        MachineFile::of(self, &Sizes::default()).serialize(to)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Machine {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Machine".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        MachineFile::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Machine {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Machine, D::Error> {
        let file = MachineFile::deserialize(from)?;
        let (topology, _) = file.read().map_err(D::Error::custom)?;
        Ok(Machine(topology.into()))
    }
}

/// What a reader has left out of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceFilter {
    pub namespaces: Vec<String>,
    /// CPUs that containers of other namespaces have for themselves.
    pub elsewhere: CpuSet,
}

/// A container, with what the ledger does not know of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Container {
    #[serde(flatten)]
    pub view: ContainerView,
    /// The letters in pictures of a container with exclusive CPUs.
    pub badge: Option<Badge>,
    /// The letters of `own_pool` in pictures.
    pub pool_badge: Option<Badge>,
    /// When it was created, if the runtime reports that.
    pub created: Option<Moment>,
    /// Since when it has these exclusive CPUs, if this process knows.
    pub since: Option<Moment>,
}

impl Deref for Container {
    type Target = ContainerView;

    fn deref(&self) -> &ContainerView {
        &self.view
    }
}

/// Something that happened to a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// When it happened.
    pub at: Moment,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Empty if it is about the whole pod.
    pub container: String,
    /// `assigned`, `kept`, `adopted`, `moved`, `resized`, `shared`, `refused`, `released`,
    /// `contested`, `left_alone`, `too_many`, `drifted`, `partition_refused`.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// Whether this is a refusal of a container that was admitted later.
    pub settled: bool,
}

impl NodeView {
    /// The node as it was when this view was made, `at` that moment.
    pub fn snapshot(&self, at: Moment) -> Snapshot {
        Snapshot {
            version: VERSION,
            plugin_version: env!("CARGO_PKG_VERSION").to_owned(),
            node_name: self.node_name.clone(),
            at,
            ready: self.health.is_ready(),
            health: Health::clone(&self.health),
            runtime: self.link.clone(),
            node: self.node.as_ref().ok().map(|node| Node::of(node, &self.noise)),
        }
    }
}

impl Node {
    fn of(node: &NodeFigures, noise: &Arc<NoiseFigures>) -> Node {
        let NodeFigures { view, history, daemon, parts } = node;
        let sizes = OddSizes::of(&view.topology, &view.settings.placement);
        let containers = view.containers.iter().map(|one| Container::of(one, history));
        let mut containers: Vec<Container> = containers.collect();
        containers.sort_by(|a, b| by_name(a.name_parts(), b.name_parts()));
        Node {
            config: ConfigStatus::in_force(view, *daemon),
            figures: view.figures.clone(),
            parts: parts.clone(),
            machine: Machine(Arc::clone(&view.topology)),
            never_fit: sizes.numbers(),
            core_sizes: sizes.cores.iter().flat_map(CoreSizes::counts).collect(),
            memory: MemoryStatus::of(view),
            containers,
            refusals: history.refusals().map(Record::of).collect(),
            troubles: history.troubles().map(Record::of).collect(),
            noise: Arc::clone(noise),
            filter: None,
        }
    }

    /// The containers as lists below a picture have them: by their letters, then those in the shared
    /// pool by name.
    pub fn listed(&self) -> Vec<&Container> {
        let mut containers: Vec<&Container> = self.containers.iter().collect();
        containers.sort_by_key(|one| (one.letters().is_none(), one.letters()));
        containers
    }

    /// Whether a reader has not left out the container with this full name.
    pub(super) fn shows(&self, name: &str) -> bool {
        let is_shown = |filter: &NamespaceFilter| {
            filter.namespaces.iter().any(|one| one == namespace_of(name))
        };
        self.filter.as_ref().is_none_or(is_shown)
    }

    /// Leaves out containers and records of other namespaces.
    pub fn show_only(&mut self, namespaces: &[String]) {
        let is_shown = |namespace: &str| namespaces.iter().any(|one| one == namespace);
        let others = self.containers.iter().filter(|one| !is_shown(&one.pod.namespace));
        let elsewhere = others.map(|one| one.own_cpus()).collect();
        self.containers.retain(|one| is_shown(&one.pod.namespace));
        if let Some(noise) = &mut Arc::make_mut(&mut self.noise).recent {
            noise.containers.retain(|one| is_shown(namespace_of(&one.name)));
        }
        self.refusals.retain(|one| is_shown(&one.namespace));
        self.troubles.retain(|one| is_shown(&one.namespace));
        self.filter = Some(NamespaceFilter { namespaces: namespaces.to_owned(), elsewhere });
    }
}

impl Container {
    pub(crate) fn of(container: &ContainerView, history: &History) -> Container {
        let has_exclusive = container.exclusive.is_some();
        let last = history.of_living(&subject(container)).last();
        Container {
            badge: history.badges.of(container).filter(|_| has_exclusive),
            pool_badge: history.badges.of_own_pool(container),
            created: container.created_at.map(Moment::from_nanos),
            since: last.map(|record| record.at).filter(|_| has_exclusive),
            view: container.clone(),
        }
    }

    fn name_parts(&self) -> [&str; 3] {
        [&self.pod.namespace, &self.pod.name, &self.name]
    }

    pub fn full_name(&self) -> String {
        full_name(&self.pod.namespace, &self.pod.name, &self.name)
    }

    /// Its exclusive CPUs; none if it has none.
    pub fn exclusive_cpus(&self) -> CpuSet {
        self.exclusive.unwrap_or_default()
    }

    /// All CPUs that no container of another pod gets.
    fn own_cpus(&self) -> CpuSet {
        self.exclusive_cpus() | *self.idle | *self.own_pool
    }

    /// The letters of its exclusive CPUs, or else of the own pool of its pod.
    pub fn letters(&self) -> Option<Badge> {
        self.badge.or(self.pool_badge)
    }

    /// The sign of its CPUs in a picture.
    pub fn usage(&self) -> Usage {
        match self.letters() {
            Some(badge) => Usage::Held(badge),
            None if self.view.pool == PoolKind::Reserved => Usage::Reserved,
            None => Usage::Shared,
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

/// The namespace in a full name.
pub fn namespace_of(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

impl Record {
    /// The name of the container that it is about.
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.pod, &self.container)
    }

    pub(super) fn of(record: &HistoryRecord) -> Record {
        let Subject { namespace, pod, container, .. } = record.subject.clone();
        let (kind, text) = describe(&record.happened);
        Record {
            at: record.at,
            namespace,
            pod,
            container,
            kind: kind.to_owned(),
            text,
            settled: record.settled,
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
