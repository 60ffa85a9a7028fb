//! The configuration in the status.

use crate::node::DaemonSettings;
use cpuset::PartitionType;
use ledger::pod_option::PodOption;
use ledger::{Mechanism, Namespaces, Policy, Rebalance, RebalanceMode, Settings, View};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// The settings in force. The log, the status, the metrics, `check-config` and `simulate` describe
/// settings by this type alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigStatus {
    /// `none` or `static`.
    pub cpu_manager_policy: String,
    /// The options that are on.
    pub cpu_manager_policy_options: String,
    /// `none`, `best-effort`, `restricted` or `single-numa-node`.
    pub topology_manager_policy: String,
    /// The topology manager's options that are on.
    pub topology_manager_policy_options: String,
    /// `container` or `pod`.
    pub topology_manager_scope: String,
    /// `None` or `Static`: whether memory is counted by NUMA node.
    pub memory_manager_policy: String,
    /// `kernel`, `groups` or `runtime`; `auto` only if this describes a file.
    pub exclusivity: String,
    /// Whether the plugin refuses containers that do not run as decided.
    pub strict: bool,
    #[serde(flatten)]
    pub own: OwnSettings,
    /// The most specific namespace or pattern first. Pods of all others may have no pod options.
    pub namespaces: Vec<BoundsReport>,
}

impl ConfigStatus {
    pub fn in_force(view: &View, daemon: DaemonSettings) -> ConfigStatus {
        ConfigStatus::of(&view.settings, &view.figures.mechanism.to_string(), daemon)
    }

    pub fn of(settings: &Settings, exclusivity: &str, daemon: DaemonSettings) -> ConfigStatus {
        let manager = &settings.placement.topology_manager;
        let memory_manager_policy = if settings.memory.is_some() { "Static" } else { "None" };
        ConfigStatus {
            cpu_manager_policy: settings.policy.name().to_owned(),
            cpu_manager_policy_options: settings.placement.options.to_string(),
            topology_manager_policy: manager.policy.name().to_owned(),
            topology_manager_policy_options: manager.options().to_owned(),
            topology_manager_scope: manager.scope.name().to_owned(),
            memory_manager_policy: memory_manager_policy.to_owned(),
            exclusivity: exclusivity.to_owned(),
            strict: daemon.strict,
            own: OwnSettings::of(settings, daemon),
            namespaces: BoundsReport::of(&settings.namespaces, settings.policy),
        }
    }

    /// The settings in force as a line for the log.
    pub fn log_line(settings: &Settings, mechanism: Mechanism, daemon: DaemonSettings) -> String {
        let config = ConfigStatus::of(settings, &mechanism.to_string(), daemon);
        let line = config.line(Some(&settings.placement.reserved.to_string()));
        match settings.namespaces.len() {
            0 => line,
            1 => format!("{line}, namespaces with 1 entry"),
            entries => format!("{line}, namespaces with {entries} entries"),
        }
    }

    /// One line for people, with the reserved CPUs if they are given.
    pub fn line(&self, reserved: Option<&str>) -> String {
        let reserved = match reserved {
            None => String::new(),
            Some("") => ", reserved CPUs none".to_owned(),
            Some(reserved) => format!(", reserved {}", wording::cpus(reserved)),
        };
        let memory = if self.memory_manager_policy == "Static" {
            ", memoryManagerPolicy Static"
        } else {
            ""
        };
        format!(
            "cpuManagerPolicy {}, topologyManagerPolicy {}{reserved}{memory}, exclusivity {}, strict {}{}",
            self.cpu_manager(),
            self.topology_manager(),
            self.exclusivity,
            self.strict,
            self.own
        )
    }

    /// The type of cpuset partitions.
    pub fn partition(&self) -> PartitionType {
        let mut kinds = PartitionType::ALL.into_iter();
        kinds.find(|kind| kind.name() == self.own.cpuset_partition).unwrap_or_default()
    }

    /// The policy and its options that are on.
    pub fn cpu_manager(&self) -> String {
        format!("{} ({})", self.cpu_manager_policy, self.cpu_manager_policy_options)
    }

    /// The policy, its scope and its options that are on.
    pub fn topology_manager(&self) -> String {
        format!(
            "{} (scope {}, {})",
            self.topology_manager_policy,
            self.topology_manager_scope,
            self.topology_manager_policy_options
        )
    }
}

/// Settings for which the kubelet has no names. The default is the configuration's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnSettings {
    /// `kubelet` or `compact`: how exclusive CPUs are chosen.
    pub placement: String,
    /// `exclude`, `prefer` or `require`: whether containers get isolated CPUs exclusively.
    pub isolated_cpus: String,
    /// `shared` or `own-pool`: what containers without whole CPUs share in a pod with whole CPUs.
    pub pod_level_resources: String,
    /// `root` or `isolated`: the type of the cpuset partitions under `exclusivity: kernel`.
    pub cpuset_partition: String,
    /// `enforce` or `observe`: whether the plugin carries out what it decides.
    pub mode: String,
    /// How containers learn their exclusive CPUs: `none`, `environment` (variables) or `file`.
    pub expose_cpus: String,
    /// The notice before moves, in seconds.
    pub notice_seconds: u32,
    /// `follow-cpus` or `all`: the NUMA nodes of exclusive containers' memory.
    pub exclusive_memory_nodes: String,
    /// The NUMA nodes without CPUs that may be among these, a list.
    pub memory_only_nodes: String,
    /// The budget of moves of running containers, `off` without any.
    pub rebalance: String,
    /// The namespaces whose containers run on the reserved CPUs, a list; `none` if there is none.
    pub reserved_namespaces: String,
    /// `leave`, `away` or `housekeeping`: device interrupts on exclusive CPUs.
    pub interrupts: String,
    /// The runtimes whose annotations count, a list; `none` if there is none.
    pub compatibility: String,
    /// `error`, `warn`, `info` or `debug`. `RUST_LOG` in the environment has precedence.
    pub log_level: String,
}

impl OwnSettings {
    /// The ledger's settings together with the daemon's.
    fn of(settings: &Settings, daemon: DaemonSettings) -> OwnSettings {
        let DaemonSettings { partition, mode, log_level, strict: _ } = daemon;
        let reserved: Vec<&str> = settings.reserved_namespaces.iter().collect();
        let reserved = if reserved.is_empty() { "none".to_owned() } else { reserved.join(",") };
        let exclusive_memory_nodes = if settings.mems_follow_cpus { "follow-cpus" } else { "all" };
        OwnSettings {
            placement: settings.placement.engine.name().to_owned(),
            isolated_cpus: settings.placement.isolated.name().to_owned(),
            pod_level_resources: settings.pod_level_resources.name().to_owned(),
            cpuset_partition: partition.to_string(),
            mode: mode.name().to_owned(),
            expose_cpus: settings.expose_cpus.name().to_owned(),
            notice_seconds: settings.notice_seconds,
            exclusive_memory_nodes: exclusive_memory_nodes.to_owned(),
            memory_only_nodes: settings.memory_only_nodes.to_string(),
            rebalance: settings.rebalance.as_ref().map_or_else(|| "off".to_owned(), rebalance),
            reserved_namespaces: reserved,
            interrupts: settings.interrupts.name().to_owned(),
            compatibility: if settings.reads_crio { "crio" } else { "none" }.to_owned(),
            log_level: log_level.name().to_owned(),
        }
    }
}

impl Default for OwnSettings {
    fn default() -> OwnSettings {
        OwnSettings::of(&Settings::default(), DaemonSettings::default())
    }
}

impl Display for OwnSettings {
    /// All settings that differ from the defaults, for the end of a line: `, cpusetPartition
    /// isolated`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let fields = |of: &OwnSettings| {
            [
                ("placement", of.placement.clone()),
                ("isolatedCPUs", of.isolated_cpus.clone()),
                ("podLevelResources", of.pod_level_resources.clone()),
                ("cpusetPartition", of.cpuset_partition.clone()),
                ("mode", of.mode.clone()),
                ("exposeCPUs", of.expose_cpus.clone()),
                ("noticeSeconds", of.notice_seconds.to_string()),
                ("exclusiveMemoryNodes", of.exclusive_memory_nodes.clone()),
                ("memoryOnlyNodes", of.memory_only_nodes.clone()),
                ("rebalance", of.rebalance.clone()),
                ("reservedNamespaces", of.reserved_namespaces.clone()),
                ("interrupts", of.interrupts.clone()),
                ("compatibility", of.compatibility.clone()),
                ("logLevel", of.log_level.clone()),
            ]
        };
        let defaults = fields(&OwnSettings::default());
        let mut changed = fields(self).into_iter().filter(|field| !defaults.contains(field));
        changed.try_for_each(|(name, value)| write!(f, ", {name} {value}"))
    }
}

fn rebalance(settings: &Rebalance) -> String {
    let moves = format!("{} moves per 100 starts", settings.moves_per_100_starts);
    match settings.mode {
        RebalanceMode::Move => moves,
        RebalanceMode::Suggest => format!("suggest {moves}"),
    }
}

/// What pods in a namespace, or in all that a pattern matches, may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoundsReport {
    /// The namespace, or the pattern.
    pub name: String,
    /// `none` or `static`: whether pods there can have exclusive CPUs.
    pub cpu_manager_policy: String,
    /// As `POD_OPTION: VALUE`.
    pub allow: Vec<String>,
    /// The pod options there without annotations, likewise.
    pub defaults: Vec<String>,
}

impl BoundsReport {
    /// The rules of all namespaces on a node with this policy, the most specific first: the first
    /// that matches a namespace applies.
    pub fn of(namespaces: &Namespaces, node: Policy) -> Vec<BoundsReport> {
        let sorted = namespaces.by_closeness().into_iter();
        let mut report = Vec::new();
        for (name, bounds) in sorted {
            let mut allow: Vec<String> = bounds.allow.iter().map(PodOption::to_string).collect();
            allow.extend(bounds.knobs.words().into_iter().map(knob));
            let mut defaults: Vec<String> =
                bounds.defaults.iter().map(PodOption::to_string).collect();
            defaults.extend(bounds.default_knobs.words().into_iter().map(knob));
            report.push(BoundsReport {
                name: name.to_owned(),
                cpu_manager_policy: bounds.policy.unwrap_or(node).name().to_owned(),
                allow,
                defaults,
            });
        }
        report
    }
}

fn knob((key, value): (&str, String)) -> String {
    format!("{key}: {value}")
}

impl Display for BoundsReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        if self.cpu_manager_policy == Policy::None.name() {
            return f.write_str("cpuManagerPolicy none, no exclusive CPUs");
        }
        if self.allow.is_empty() {
            f.write_str("no pod options allowed")?;
        } else {
            write!(f, "pods may use {}", self.allow.join(", "))?;
        }
        if !self.defaults.is_empty() {
            write!(f, "; default {}", self.defaults.join(", "))?;
        }
        Ok(())
    }
}

/// Namespaces for people, a line each with this indent; no text without namespaces.
#[derive(Debug, Clone, Copy)]
pub struct Indented<'a>(pub &'a [BoundsReport], pub &'a str);

impl Display for Indented<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Indented(namespaces, indent) = self;
        if namespaces.is_empty() {
            return Ok(());
        }
        writeln!(f, "{indent}namespaces (the first match applies):")?;
        for one in *namespaces {
            writeln!(f, "{indent}  {one}")?;
        }
        if !namespaces.iter().any(|one| one.name == "*") {
            writeln!(f, "{indent}  all others: no pod options allowed")?;
        }
        Ok(())
    }
}
