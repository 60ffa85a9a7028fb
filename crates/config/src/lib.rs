//! The configuration file: one YAML document in KubeletConfiguration's own field names.
//!
//! [`Config::parse`] finds mistakes of the text alone, [`Config::resolve`] what does not fit the
//! machine. Both name the file, the line and the field, and both run before the plugin touches any
//! container.

mod compatibility;
mod exposure;
mod fields;
mod follow;
mod from_kubelet;
mod given;
mod kubelet;
mod log_level;
mod memory;
mod memory_only;
mod mode;
mod namespaces;
mod nodes;
mod not_used;
mod own_pool;
mod pasted;
mod pod_resources;
mod policy_options;
mod rebalance;
mod reserved;
mod source;
mod values;
mod yaml;

pub use fields::{Declaration, declarations};
pub use follow::{Follower, INTERVAL};
pub use follow::{Mistake, Reading};
pub use from_kubelet::{FromKubelet, from_kubelet};
pub use log_level::LogLevel;
pub use memory::{EvictionThreshold, memory_amount};
pub use mode::Mode;
pub use nodes::{Labels, NodeIdentity, Override};
pub use not_used::NOT_USED;
pub use pod_resources::PodResources;
pub use source::{ConfigError, Mistakes, Warning};
pub use yaml::MAX_SIZE;

use cpuset::{CpuSet, PartitionType};
use exclusivity::Exclusivity;
use fields::Values;
use ledger::{Exposure, Policy, Settings};
use memory::MemoryPolicy;
use placement::memory_manager::{
    Capacity, CapacityError, MAX_MEMORY_NODES, MAX_OFFERED_NODES, MemoryConfigError,
    MemoryManagerConfig,
};
use placement::{
    IsolatedCpus, NodeLimit, OddSizes, Options, ReserveError, SettingsError, TopologyManager,
    TopologyPolicy,
};
use quiet::InterruptMode;
use source::Source;
use state::files;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use topology::Topology;

/// The JSON schema of the file, for editors and the chart.
pub const SCHEMA: &str = include_str!("../schema.json");

/// A configuration with a valid text.
#[derive(Debug, Clone)]
pub struct Config {
    source: Source,
    overrides: Arc<[Override]>,
    /// The positions of the applied entries of `nodes`, the most specific last.
    applied: Vec<usize>,
    values: Values,
}

impl Config {
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        Config::parse(&path.display().to_string(), &Config::text_of(path)?)
    }

    fn text_of(path: &Path) -> Result<String, ConfigError> {
        let bytes = files::read_regular(path, MAX_SIZE)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        source::decode(&path.display().to_string(), bytes)
    }

    /// `name` is the text's name in errors. As [`Config::parse_whole`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Config, Mistakes> {
        Config::parse_whole(name, &source::decode(name, bytes)?)
    }

    /// `name` is the text's name in errors. An empty text is the default configuration.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
        Ok(Config::parse_whole(name, text)?)
    }

    /// As [`Config::parse`], with every mistake that can be found without the others being mended:
    /// one in each field, and of fields that contradict each other only once each is valid.
    pub fn parse_whole(name: &str, text: &str) -> Result<Config, Mistakes> {
        let source = Source::new(name, text)?;
        pasted::check(&source)?;
        let mut mistakes = Vec::new();
        let values = Values::default().over_all(&source, &mut mistakes);
        let entries = nodes::entries(&source).unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            &[]
        });
        // A mistake in an entry is an error on every node.
        let mut overridden = Vec::new();
        for at in 0..entries.len() {
            overridden.push(values.clone().over_all(&source.entry(at), &mut mistakes));
        }
        let overrides = nodes::overrides(&source, &mut mistakes).into();
        Mistakes::none_of(mistakes)?;
        let mut mistakes = Vec::new();
        namespaces::check_policies(&source, &mut mistakes);
        values.check_all(&source, &mut mistakes);
        for (at, values) in overridden.iter().enumerate() {
            values.check_all(&source.clone().with_entry(at), &mut mistakes);
        }
        Mistakes::none_of(mistakes)?;
        Ok(Config { source, overrides, applied: Vec::new(), values })
    }

    /// The configuration of this node: with the entries of `nodes` that match it. [`Config::parse`]
    /// applies none.
    ///
    /// # Errors
    /// If an entry needs an unknown fact of the node, or entries contradict each other.
    pub fn for_node(&self, node: &NodeIdentity) -> Result<Config, ConfigError> {
        self.with(&nodes::matching(&self.source, &self.overrides, node)?)
    }

    /// With the entries of `nodes` at these positions, the later ones over the earlier ones.
    pub fn with(&self, entries: &[usize]) -> Result<Config, ConfigError> {
        let mut values = self.values.clone();
        let mut source = self.source.clone();
        for &at in entries {
            values = values.over(&self.source.entry(at))?;
            source = source.with_entry(at);
        }
        let mut mistakes = Vec::new();
        values.check_all(&source, &mut mistakes);
        Mistakes::none_of(mistakes)?;
        let overrides = Arc::clone(&self.overrides);
        Ok(Config { source, overrides, applied: entries.to_owned(), values })
    }

    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// The first lines of the applied entries of `nodes`, the most specific last.
    pub fn applied_lines(&self) -> Vec<usize> {
        self.applied.iter().map(|&at| self.overrides[at].line).collect()
    }

    /// The positions of the applied entries of `nodes`, the most specific last.
    pub fn applied(&self) -> &[usize] {
        &self.applied
    }

    /// The text's name in errors.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    pub fn text(&self) -> &str {
        &self.source.text
    }

    pub fn policy(&self) -> Policy {
        self.values.settings.policy
    }

    /// `None` if the plugin ignores the kubelet's state files.
    pub fn kubelet_state_dir(&self) -> Option<&Path> {
        self.values.kubelet_state_dir.0.as_deref()
    }

    pub fn mode(&self) -> Mode {
        self.values.mode
    }

    pub fn exclusivity(&self) -> Exclusivity {
        self.values.exclusivity
    }

    pub fn partition(&self) -> PartitionType {
        self.values.partition
    }

    pub fn log_level(&self) -> LogLevel {
        self.values.log_level
    }

    pub fn strict(&self) -> bool {
        self.values.strict
    }

    /// Whether annotations for CRI-O count (`compatibility: [crio]`).
    pub fn reads_crio(&self) -> bool {
        self.values.settings.reads_crio
    }

    /// `None` if the plugin serves no podresources.
    pub fn pod_resources(&self) -> Option<&PodResources> {
        self.values.pod_resources.served.as_ref()
    }

    /// Whether its `podResources` says the same.
    pub fn has_same_pod_resources(&self, other: &Config) -> bool {
        self.values.pod_resources == other.values.pod_resources
    }

    /// The pods that get the plugin's files in the place of the kubelet's.
    /// The kubelet's own podresources socket.
    pub fn kubelet_socket(&self) -> &Path {
        &self.values.pod_resources.kubelet
    }

    /// The error for `exclusivity: kernel` on a node whose kernel cannot do it.
    pub fn kernel_cannot(&self, why: impl fmt::Display) -> ConfigError {
        let why = format!(
            "the kernel cannot enforce exclusivity on this node: {why}. \"auto\" falls back to cgroups or the runtime"
        );
        self.source.at("exclusivity", why)
    }

    /// Settings that are valid and contradict each other.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let settings = &self.values.settings;
        if self.source.root.fields().is_empty() {
            let text = "the file sets nothing: cpuManagerPolicy is none, and no container gets exclusive CPUs";
            warnings.push(Warning { line: 1, text: text.to_owned() });
        }
        let moves = settings.policy == Policy::Static && settings.rebalance.is_some();
        let mut warn = |applies: bool, why: &str| {
            if moves && applies {
                warnings.push(self.source.warning("rebalance", why));
            }
        };
        warn(
            settings.expose_cpus == Exposure::Environment,
            "with exposeCPUs: environment, the environment of exclusive containers lists their CPUs, and \
             these never move. Use exposeCPUs: file, which follows moves, or remove rebalance",
        );
        if settings.policy == Policy::None && !settings.reserved_namespaces.is_empty() {
            let why = "no effect without cpuManagerPolicy: static and its reserved CPUs";
            warnings.push(self.source.warning("reservedNamespaces", why));
        }
        if settings.policy == Policy::None && settings.interrupts != InterruptMode::Leave {
            let why = "no effect without cpuManagerPolicy: static: no container has exclusive CPUs";
            warnings.push(self.source.warning("interrupts", why));
        }
        let memory = &self.values.memory;
        if memory.policy == MemoryPolicy::None {
            let why = "no effect without memoryManagerPolicy: Static";
            warnings.extend(memory.given().map(|field| self.source.warning(field, why)));
        }
        warnings
    }

    /// The fields of the kubelet in the file and in the applied entries of `nodes` that mean nothing
    /// here.
    pub fn not_used(&self) -> Vec<Warning> {
        let mut warnings = not_used::warnings(&self.source.root);
        for &at in &self.applied {
            warnings.extend_from_slice(&self.overrides[at].not_used);
        }
        warnings
    }

    /// The warning that reserved CPUs take a part of cores of this machine, where `settings` are the
    /// resolved ones.
    pub fn split_cores(&self, topology: &Topology, settings: &Settings) -> Option<Warning> {
        let Settings { policy: Policy::Static, placement: settings, .. } = settings else {
            return None;
        };
        let whole = topology
            .cores()
            .iter()
            .map(|core| core.cpus)
            .filter(|core| !core.is_disjoint(&settings.reserved))
            .fold(CpuSet::EMPTY, |all, core| all | core);
        let siblings = whole - settings.reserved;
        if siblings.is_empty() {
            return None;
        }
        let effect = if settings.options.full_pcpus_only {
            "and with full-pcpus-only no container can have them exclusively"
        } else {
            "so containers that get them exclusively share cores with what runs there"
        };
        let why = format!(
            "SMT siblings of reserved CPUs are not reserved ({}), {effect}. reservedSystemCPUs: \"{whole}\" reserves whole cores",
            wording::cpus(siblings)
        );
        Some(self.source.warning(self.values.reserved.field(), &why))
    }

    /// The warning about isolated CPUs of this machine, where `settings` are the resolved ones: that
    /// reserved ones are among them, or that no container can have exclusive CPUs without a pod option.
    pub fn isolated_cpus(&self, topology: &Topology, settings: &Settings) -> Option<Warning> {
        let Settings { policy: Policy::Static, placement: settings, .. } = settings else {
            return None;
        };
        let reserved = topology.isolated() & settings.reserved;
        if !reserved.is_empty() {
            let are = wording::agree(reserved, "is", "are");
            let go = wording::agree(reserved, "it", "them");
            let why = format!(
                "reserved {} {are} isolated (isolcpus=): the kernel does not balance what runs there, so shared containers use {go} only where no other CPU is left. Reserve CPUs that are not isolated: {}",
                wording::cpus(reserved),
                wording::or_none(topology.online() - topology.isolated())
            );
            return Some(self.source.warning(self.values.reserved.field(), &why));
        }
        let assignable = topology.online() - settings.reserved;
        if assignable.is_empty() || !settings.isolated.allowed(topology, &assignable).is_empty() {
            return None;
        }
        let why = match settings.isolated {
            IsolatedCpus::Exclude => {
                "all CPUs but the reserved ones are isolated (isolcpus=): no container gets exclusive CPUs without the pod option isolated-cpus; prefer and require give them to all"
            }
            IsolatedCpus::Prefer => return None,
            IsolatedCpus::Require => {
                "the kernel was booted to isolate no CPU that is not reserved (isolcpus=): every container that asks for exclusive CPUs is refused"
            }
        };
        Some(self.source.warning("isolatedCPUs", why))
    }

    /// The warning that not every number of CPUs can be exclusive on this machine, where `settings`
    /// are the resolved ones.
    pub fn odd_sizes(&self, topology: &Topology, settings: &Settings) -> Option<Warning> {
        let Settings { policy: Policy::Static, placement: settings, .. } = settings else {
            return None;
        };
        let sizes = OddSizes::of(topology, settings);
        if sizes.is_empty() {
            return None;
        }
        Some(self.source.warning("cpuManagerPolicy", &sizes.to_string()))
    }

    /// The warning that all CPUs of this machine are reserved, so that `static` has none to assign.
    pub fn nothing_to_assign(&self, topology: &Topology) -> Option<Warning> {
        if self.policy() != Policy::Static {
            return None;
        }
        let Values { reserved, strict, .. } = &self.values;
        let taken = reserved.takes_all(topology)?;
        let effect = if *strict {
            "strict refuses containers that ask for exclusive CPUs"
        } else {
            "the policy in force is none, and no container gets exclusive CPUs"
        };
        let advice = match topology.online().len() {
            0 | 1 => "",
            _ => ". To assign some, reserve fewer here, by an entry of nodes for this node",
        };
        let why = format!("{taken}, so none is left to assign: {effect}{advice}");
        Some(self.source.warning(reserved.field(), &why))
    }

    /// The settings on this machine. A machine on which all CPUs are reserved has the policy `none`,
    /// so that one configuration fits machines of every size; with `strict` it keeps `static`, which
    /// then refuses every container that asks for exclusive CPUs.
    ///
    /// # Errors
    /// If options or the reservation contradict each other or need what the machine lacks.
    pub fn resolve(&self, topology: &Topology) -> Result<Settings, ConfigError> {
        let Values { settings, cpu_manager_options, topology_manager_options, reserved, .. } =
            &self.values;
        if settings.policy == Policy::None {
            self.check_without_policy()?;
            let listed = match reserved.list {
                Some(_) => reserved.on(topology, &self.source)?.cpus,
                None => CpuSet::EMPTY,
            };
            return self.without_policy(topology, listed);
        }
        let placement = &settings.placement;
        let written = placement::CpuManagerConfig {
            cpu_options: &cpu_manager_options.borrowed(),
            topology_policy: placement.topology_manager.policy.name(),
            topology_scope: placement.topology_manager.scope.name(),
            topology_options: &topology_manager_options.borrowed(),
            reservation: reserved.on(topology, &self.source)?,
        };
        let checked =
            written.check(topology, NodeLimit::Lifted).map_err(|error| self.explain(&error))?;
        let uncore_order = placement.options.uncore_order;
        let options = Options { uncore_order, ..checked.options };
        let placement::PlacementSettings { engine, isolated, .. } = *placement;
        let placement = placement::PlacementSettings { engine, isolated, options, ..checked };
        placement
            .check_engine()
            .map_err(|conflict| self.source.at(conflict.option, conflict.to_string()))?;
        if reserved.takes_all(topology).is_some() && !self.values.strict {
            return self.without_policy(topology, CpuSet::EMPTY);
        }
        Ok(Settings { placement, memory: self.memory_on(topology)?, ..settings.clone() })
    }

    /// What containers can be given of this machine's memory; `None` if it is not counted.
    ///
    /// The kubelet also refuses to start if more is reserved than the machine has although it counts
    /// no memory. Then the amounts have no effect here, and need no known machine.
    fn memory_on(&self, topology: &Topology) -> Result<Option<Capacity>, ConfigError> {
        let Values { settings, reserved, memory, .. } = &self.values;
        if memory.policy == MemoryPolicy::None {
            return Ok(None);
        }
        let nodes = memory::nodes(topology).map_err(|node| {
            let why = format!(
                "the memory of NUMA node {node} is unknown: Static needs its MemTotal in \
                 /sys/devices/system/node/node{node}/meminfo, memory_bytes in a file of topology --save, or a preset"
            );
            self.source.at(memory::POLICY, why)
        })?;
        let is_aligned = settings.placement.topology_manager.policy != TopologyPolicy::None;
        let most = if is_aligned { MAX_OFFERED_NODES } else { MAX_MEMORY_NODES };
        if is_aligned && topology.cpu_nodes() > most {
            let why = format!(
                "with memoryManagerPolicy: Static, a machine of more than {most} NUMA nodes with CPUs \
                 needs none, and this one has {}",
                topology.cpu_nodes()
            );
            return Err(self.source.at("topologyManagerPolicy", why));
        }
        let total = nodes.iter().fold(0u64, |sum, node| sum.saturating_add(node.total));
        let written = MemoryManagerConfig {
            policy: memory.policy.name(),
            reserved: &memory.reserved,
            node_allocatable: reserved.memory().plus(memory.threshold().of(total)),
        };
        let has_cpus =
            |id| topology.nodes().iter().any(|node| node.id == id && !node.cpus.is_empty());
        // So many nodes are the memory of GPUs, which a kubelet would give to containers.
        let counted = |id| nodes.len() <= most || has_cpus(id);
        written.check(&nodes, counted).map_err(|error| self.explain_memory(&error))
    }

    fn topology_manager_on(&self, topology: &Topology) -> Result<TopologyManager, ConfigError> {
        let Values { settings, topology_manager_options, .. } = &self.values;
        let topology_manager = &settings.placement.topology_manager;
        let options = topology_manager_options.borrowed();
        TopologyManager::parse(
            topology_manager.policy.name(),
            topology_manager.scope.name(),
            options,
            topology,
            NodeLimit::Lifted,
        )
        .map_err(|error| self.source.topology_manager(&error))
    }

    /// Under policy `none` there are no options, as for the kubelet, and no own pools of pods.
    fn check_without_policy(&self) -> Result<(), ConfigError> {
        match self.values.cpu_manager_options.names().next() {
            Some(name) if self.policy() == Policy::None => {
                let why = format!("{name:?} needs cpuManagerPolicy: static");
                Err(self.source.at("cpuManagerPolicyOptions", why))
            }
            _ => own_pool::check_policy(&self.values.settings)
                .map_err(|why| self.source.at(own_pool::FIELD, why)),
        }
    }

    /// The settings under policy `none`.
    fn without_policy(
        &self,
        topology: &Topology,
        reserved: CpuSet,
    ) -> Result<Settings, ConfigError> {
        let uncore_order = self.values.settings.placement.options.uncore_order;
        let options = Options { uncore_order, ..Options::default() };
        let memory = self.memory_on(topology)?;
        let topology_manager = match memory {
            Some(_) => self.topology_manager_on(topology)?,
            None => TopologyManager::default(),
        };
        let placement = placement::PlacementSettings {
            options,
            reserved,
            topology_manager,
            ..placement::PlacementSettings::default()
        };
        Ok(Settings { placement, memory, ..Settings::default() })
    }

    /// Adds file, line and field to the kubelet's message about memory.
    fn explain_memory(&self, error: &MemoryConfigError) -> ConfigError {
        let is_given = !self.values.memory.reserved.is_empty();
        let field =
            match error {
                MemoryConfigError::UnknownPolicy(_)
                | MemoryConfigError::BestEffort
                | MemoryConfigError::NothingReserved
                | MemoryConfigError::Capacity(CapacityError::TooManyNodes(_)) => memory::POLICY,
                MemoryConfigError::Limits(_)
                | MemoryConfigError::UnknownNode(_)
                | MemoryConfigError::Sum { .. }
                | MemoryConfigError::Fraction
                | MemoryConfigError::ExceedsMachine { .. }
                | MemoryConfigError::Capacity(CapacityError::ReservedTooMuch { .. }) => {
                    if is_given { memory::RESERVED } else { memory::POLICY }
                }
            };
        let hint = match error {
            MemoryConfigError::Sum { kind, .. } if kind == memory::MEMORY => {
                " (the sum of reservedMemory has to be the memory of systemReserved and kubeReserved plus \
                 memory.available of evictionHard, 100Mi without that field)"
            }
            MemoryConfigError::Sum { .. } => " (only memory can be reserved, no huge pages)",
            MemoryConfigError::NothingReserved => {
                " (set reservedMemory, and systemReserved: {memory: ...} to its sum)"
            }
            _ => "",
        };
        self.source.at(field, format!("{error}{hint}"))
    }

    /// Adds file, line and field to the kubelet's message.
    fn explain(&self, error: &SettingsError) -> ConfigError {
        match error {
            SettingsError::Options(error) => self.source.cpu_option(error),
            SettingsError::TopologyManager(error) => self.source.topology_manager(error),
            SettingsError::NothingReserved | SettingsError::Reserve(ReserveError::Nothing) => {
                let why = "the static policy needs reserved CPUs, so that shared containers always have some: \
                           set reservedSystemCPUs: \"0-1\", or systemReserved: {cpu: 500m}";
                self.source.at("cpuManagerPolicy", why.to_owned())
            }
            SettingsError::Reserve(_) => {
                self.source.at(self.values.reserved.field(), error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests;
