//! The configuration file: one YAML document in KubeletConfiguration's own field names.
//!
//! [`Config::parse`] finds mistakes of the text alone, [`Config::resolve`] what does not fit the
//! machine. Both name the file, the line and the field, and both run before the plugin touches any
//! container.

mod exposure;
mod file;
mod follow;
mod memory_only;
mod namespaces;
mod nodes;
mod pasted;
mod pod_resources;
mod rebalance;
mod source;
mod values;
mod yaml;

pub(crate) use follow::{Follower, INTERVAL};
pub use follow::{Mistake, Reading};
pub use nodes::{Labels, NodeIdentity, Override};
pub use pod_resources::PodResources;
pub use source::{ConfigError, Warning};
pub(crate) use yaml::MAX_SIZE;

use crate::exclusivity::Exclusivity;
use crate::files;
use cpuset::{CpuSet, NodeSet, PartitionType};
use file::File;
use ledger::{Exposure, Namespaces, Policy, Rebalance, Settings, Stance};
use placement::{
    self, EngineKind, NodeLimit, Options, Reservation, ReserveError, Scope, SettingsError,
    TopologyPolicy, UncoreOrder,
};
use source::Source;
use std::fmt;
use std::path::{Path, PathBuf};
use topology::Topology;

/// The kubelet's default `--root-dir`.
const KUBELET_STATE_DIR: &str = "/var/lib/kubelet";

/// A configuration with a valid text.
#[derive(Debug, Clone)]
pub struct Config {
    source: Source,
    file: File,
    policy: Policy,
    topology_policy: TopologyPolicy,
    topology_scope: Scope,
    reserved: Option<CpuSet>,
    /// `systemReserved` plus `kubeReserved`, in thousandths of a CPU.
    reserved_milli: u64,
    uncore_order: UncoreOrder,
    engine: EngineKind,
    kubelet_state_dir: Option<PathBuf>,
    on_active_kubelet: Stance,
    exclusivity: Exclusivity,
    partition: PartitionType,
    strict: bool,
    /// The positions of the applied entries of `nodes`, the most specific last.
    applied: Vec<usize>,
    expose_cpus: Exposure,
    notice_seconds: u32,
    /// `exclusiveMems`.
    mems_follow_cpus: bool,
    memory_only_nodes: NodeSet,
    rebalance: Option<Rebalance>,
    pod_resources: Option<PodResources>,
    namespaces: Namespaces,
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

    /// `name` is the text's name in errors.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Config, ConfigError> {
        Config::parse(name, &source::decode(name, bytes)?)
    }

    /// `name` is the text's name in errors. An empty text is the default configuration.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
        let source = Source::new(name, text)?;
        let file = File::parse(&source)?;
        nodes::check(&source, &file)?;
        let namespaces =
            namespaces::resolve(&source, file.namespaces.as_deref().unwrap_or_default())?;
        let config = Config::of(source, file, namespaces)?;
        // A mistake in an entry is an error on every node.
        for at in 0..config.file.nodes.len() {
            config.with(&[at])?;
        }
        Ok(config)
    }

    /// The configuration of this node: with the entries of `nodes` that match it. [`Config::parse`]
    /// applies none.
    ///
    /// # Errors
    /// If an entry needs an unknown fact of the node, or entries contradict each other.
    pub fn for_node(&self, node: &NodeIdentity) -> Result<Config, ConfigError> {
        self.with(&nodes::matching(&self.source, &self.file, node)?)
    }

    /// With the entries of `nodes` at these positions, the later ones over the earlier ones.
    pub fn with(&self, entries: &[usize]) -> Result<Config, ConfigError> {
        let mut source = self.source.clone();
        let mut file = self.file.clone();
        // There can be thousands of namespaces: they are resolved again only if an entry has others.
        let mut namespaces = None;
        for &at in entries {
            let entry = &self.file.nodes[at];
            source = source.with_entry(at);
            file = nodes::overlaid(file, entry);
            namespaces = entry.namespaces.as_deref().or(namespaces);
        }
        let namespaces = match namespaces {
            Some(entries) => namespaces::resolve(&source, entries)?,
            None => self.namespaces.clone(),
        };
        Ok(Config { applied: entries.to_owned(), ..Config::of(source, file, namespaces)? })
    }

    pub fn overrides(&self) -> Vec<Override> {
        nodes::overrides(&self.source, &self.file)
    }

    /// The first lines of the applied entries of `nodes`, the most specific last.
    pub fn applied_lines(&self) -> Vec<usize> {
        let overrides = self.overrides();
        self.applied.iter().map(|&at| overrides[at].line).collect()
    }

    /// The positions of the applied entries of `nodes`, the most specific last.
    pub fn applied(&self) -> &[usize] {
        &self.applied
    }

    fn of(source: Source, file: File, namespaces: Namespaces) -> Result<Config, ConfigError> {
        let reserved = file.reserved_system_cpus.as_ref().map(|list| list.0);
        // The kubelet reads an empty string as none.
        let policies = [("none", Policy::None), ("", Policy::None), ("static", Policy::Static)];
        let policy = source.one_of("cpuManagerPolicy", &file.cpu_manager_policy, &policies)?;
        let policies = TopologyPolicy::ALL.map(|policy| (policy.name(), policy));
        let policies = [[("", TopologyPolicy::None)].as_slice(), &policies].concat();
        let topology_policy =
            source.one_of("topologyManagerPolicy", &file.topology_manager_policy, &policies)?;
        let scopes = Scope::ALL.map(|scope| (scope.name(), scope));
        let scopes = [[("", Scope::Container)].as_slice(), &scopes].concat();
        let topology_scope =
            source.one_of("topologyManagerScope", &file.topology_manager_scope, &scopes)?;
        let mut reserved_milli: u64 = 0;
        for (field, amounts) in file.amounts() {
            let amount = amounts.get("cpu").map_or(Ok(0), values::parse_milli_cpus);
            let amount = amount.map_err(|why| source.at(field, why))?;
            reserved_milli = reserved_milli.saturating_add(amount);
        }
        let orders =
            [("fewest-free", UncoreOrder::FewestFree), ("numerical", UncoreOrder::Numerical)];
        let uncore_order = source.one_of("uncoreCacheOrder", &file.uncore_cache_order, &orders)?;
        let engines = EngineKind::ALL.map(|engine| (engine.name(), engine));
        let engine = source.one_of("placement", &file.placement, &engines)?;
        let dir = file.kubelet_state_dir.as_ref().map_or(KUBELET_STATE_DIR, |dir| dir.0.as_str());
        let kubelet_state_dir = if dir.is_empty() {
            None
        } else {
            let path = values::absolute_path(dir).map_err(|why| {
                let expected = format!("expected one like {KUBELET_STATE_DIR:?}, or \"\" for none");
                source.at("kubeletStateDir", format!("{why}: {expected}"))
            });
            Some(path?)
        };
        let stances = [("refuse", false), ("observe", true)];
        let observe = source.one_of("onActiveKubelet", &file.on_active_kubelet, &stances)?;
        let on_active_kubelet = if observe { Stance::Observe } else { Stance::Refuse };
        let kinds = Exclusivity::ALL.map(|kind| (kind.name(), kind));
        let exclusivity = source.one_of("exclusivity", &file.exclusivity, &kinds)?;
        let kinds = PartitionType::ALL.map(|kind| (kind.name(), kind));
        let partition = source.one_of("cpusetPartition", &file.cpuset_partition, &kinds)?;
        let booleans = [("true", true), ("false", false)];
        let strict = source.one_of("strict", &file.strict, &booleans)?;
        let exposures = Exposure::ALL.map(|exposure| (exposure.name(), exposure));
        let expose_cpus = source.one_of("exposeCpus", &file.expose_cpus, &exposures)?;
        let notice_seconds = exposure::notice_seconds(&source, &file, expose_cpus)?;
        let mems = [("all", false), ("follow-cpus", true)];
        let mems_follow_cpus = source.one_of("exclusiveMems", &file.exclusive_mems, &mems)?;
        let memory_only_nodes =
            memory_only::nodes(&source, file.memory_only_nodes, mems_follow_cpus)?;
        let rebalance = rebalance::resolve(&source, file.rebalance.as_ref())?;
        let pod_resources = pod_resources::resolve(&source, file.pod_resources.as_ref())?;
        Ok(Config {
            source,
            file,
            policy,
            topology_policy,
            topology_scope,
            reserved,
            reserved_milli,
            uncore_order,
            engine,
            kubelet_state_dir,
            on_active_kubelet,
            exclusivity,
            partition,
            strict,
            applied: Vec::new(),
            expose_cpus,
            notice_seconds,
            mems_follow_cpus,
            memory_only_nodes,
            rebalance,
            pod_resources,
            namespaces,
        })
    }

    /// The text's name in errors.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    pub fn text(&self) -> &str {
        &self.source.text
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// `None` if the plugin ignores the kubelet's state files.
    pub fn kubelet_state_dir(&self) -> Option<&Path> {
        self.kubelet_state_dir.as_deref()
    }

    pub fn on_active_kubelet(&self) -> Stance {
        self.on_active_kubelet
    }

    pub fn exclusivity(&self) -> Exclusivity {
        self.exclusivity
    }

    pub fn partition(&self) -> PartitionType {
        self.partition
    }

    pub fn strict(&self) -> bool {
        self.strict
    }

    /// `None` if the plugin serves no podresources.
    pub fn pod_resources(&self) -> Option<&PodResources> {
        self.pod_resources.as_ref()
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
        let moves = self.policy == Policy::Static && self.rebalance.is_some();
        let mut warn = |applies: bool, why: &str| {
            if moves && applies {
                warnings.push(self.source.warning("rebalance", why));
            }
        };
        warn(
            self.expose_cpus == Exposure::Environment,
            "with exposeCpus: true, the environment of exclusive containers lists their CPUs, and \
             these never move. Use exposeCpus: file, which follows moves, or remove rebalance",
        );
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
        Some(self.source.warning(self.reservation_field(), &why))
    }

    /// The settings on this machine.
    ///
    /// # Errors
    /// If options or the reservation contradict each other or need what the machine lacks.
    pub fn resolve(&self, topology: &Topology) -> Result<Settings, ConfigError> {
        let policy = self.policy;
        if policy == Policy::None {
            if let Some((name, _)) = self.file.cpu_manager_policy_options.0.first() {
                let why = format!("{name:?} needs cpuManagerPolicy: static");
                return Err(self.source.at("cpuManagerPolicyOptions", why));
            }
            let placement = self.without_policy(topology)?;
            return Ok(Settings { policy, placement, ..Settings::default() });
        }
        let wanted = placement::Wanted {
            cpu_options: &self.file.cpu_manager_policy_options.borrowed(),
            topology_policy: self.topology_policy.name(),
            topology_scope: self.topology_scope.name(),
            topology_options: &self.file.topology_manager_policy_options.borrowed(),
            reservation: self.reservation(topology)?,
        };
        let mut settings =
            wanted.check(topology, NodeLimit::Lifted).map_err(|error| self.explain(&error))?;
        settings.options.uncore_order = self.uncore_order;
        settings.engine = self.engine;
        settings
            .check_engine()
            .map_err(|conflict| self.source.at(conflict.option, conflict.to_string()))?;
        if settings.reserved == topology.online() {
            let why = format!(
                "all online CPUs ({}) are reserved, none is left to assign",
                topology.online()
            );
            return Err(self.source.at(self.reservation_field(), why));
        }
        Ok(Settings {
            policy,
            placement: settings,
            expose_cpus: self.expose_cpus,
            notice_seconds: self.notice_seconds,
            mems_follow_cpus: self.mems_follow_cpus,
            memory_only_nodes: self.memory_only_nodes,
            namespaces: self.namespaces.clone(),
            rebalance: self.rebalance.clone(),
        })
    }

    fn without_policy(&self, topology: &Topology) -> Result<placement::Settings, ConfigError> {
        let reserved = match self.reserved {
            Some(_) => self.reservation(topology)?.cpus,
            None => CpuSet::EMPTY,
        };
        let options = Options { uncore_order: self.uncore_order, ..Options::default() };
        Ok(placement::Settings { options, reserved, ..placement::Settings::default() })
    }

    /// The list, or without one the sum of the amounts, as in the kubelet.
    fn reservation(&self, topology: &Topology) -> Result<Reservation, ConfigError> {
        let Some(list) = self.reserved else {
            self.check_amounts(topology)?;
            return Ok(Reservation::amount(self.reserved_milli));
        };
        let absent = list - topology.online();
        if !absent.is_empty() {
            let offline = topology.offline().iter().any(|cpu| absent.contains(cpu.id));
            let what = if offline {
                wording::agree(
                    absent,
                    "does not exist or is offline",
                    "do not exist or are offline",
                )
            } else {
                wording::agree(absent, "does not exist", "do not exist")
            };
            let cpus = wording::cpus(absent);
            let why = format!("{cpus} {what}; online CPUs: {}", topology.online());
            return Err(self.source.at("reservedSystemCPUs", why));
        }
        Ok(Reservation::list(list))
    }

    /// A kubelet does not start either if more is reserved than there is.
    fn check_amounts(&self, topology: &Topology) -> Result<(), ConfigError> {
        let online = topology.online().len();
        let exceeds = |milli: u64| milli > online as u64 * 1000;
        for (field, amounts) in self.file.amounts() {
            let Some(text) = amounts.get("cpu") else { continue };
            if values::parse_milli_cpus(text).is_ok_and(exceeds) {
                // A plain number is often meant as thousandths.
                let plain = text.bytes().all(|byte| byte.is_ascii_digit());
                let hint = if plain { format!(" (did you mean {text}m?)") } else { String::new() };
                let why = format!("{text:?} is more CPUs than this machine has ({online}){hint}");
                return Err(self.source.at(field, why));
            }
        }
        if exceeds(self.reserved_milli) {
            let why = format!(
                "with both amounts, {} thousandths of a CPU are reserved, more than this machine has ({} CPUs)",
                self.reserved_milli, online
            );
            return Err(self.source.at(self.reservation_field(), why));
        }
        Ok(())
    }

    fn reservation_field(&self) -> &'static str {
        match self.reserved {
            Some(_) => "reservedSystemCPUs",
            None if self.file.system_reserved.get("cpu").is_some() => "systemReserved",
            None => "kubeReserved",
        }
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
                self.source.at(self.reservation_field(), error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests;
