//! The result of a check, for people and for programs.

use crate::cli::node::overrides;
use crate::config::{Config, Override};
use crate::ledger::Settings;
use crate::topology::Topology;
use crate::view::status::{BoundsReport, ConfigStatus, Indented, OwnSettings};
use crate::wording;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// Everything that a file means. The names are a promise to scripts; docs/configuration.md is the
/// reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// The name of another machine that the check was about; `null` for this one.
    pub machine: Option<String>,
    /// The node's name; `null` if it is unknown.
    pub node: Option<String>,
    /// Whether name and labels are unknown.
    #[serde(skip)]
    pub unknown: bool,
    /// What would be in force on this node; on an unknown node, without overrides.
    pub settings: SettingsReport,
    /// The positions in `overrides`, from 0, of those that apply, the most specific last.
    pub applied: Vec<usize>,
    /// The entries of `nodes`.
    pub overrides: Vec<OverrideReport>,
    /// What would change for containers; `null` without `--state-dir`.
    pub outlook: Option<Outlook>,
}

/// Settings in the configuration's own words. Whether the kernel can keep exclusivity shows only
/// where the plugin runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingsReport {
    /// The settings that the status of a running plugin has too.
    #[serde(flatten)]
    pub config: ConfigStatus,
    /// Never exclusive.
    pub reserved_cpus: String,
}

/// An entry of `nodes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverrideReport {
    /// The line it begins on.
    pub line: usize,
    /// Names and patterns.
    pub names: Vec<String>,
    /// Labels and patterns of their values, as `KEY=VALUE`.
    pub labels: Vec<String>,
    /// Whether it is for this node.
    pub matches: bool,
    /// The settings on this machine if it alone matched; `null` if they are not valid.
    pub settings: Option<SettingsReport>,
    /// Why these settings are not valid on this machine: the override may be for another one, or
    /// for nodes that other overrides match too.
    pub error: Option<String>,
}

/// What would change for containers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// The exclusive CPUs now.
    pub assignments: Vec<AssignmentReport>,
    /// The shared pool now; `null` if no plugin runs.
    pub shared_now: Option<String>,
    /// The shared pool then.
    pub shared_then: String,
}

/// A container's exclusive CPUs, and the effect on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssignmentReport {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// Its CPUs now.
    pub cpus: String,
    /// The effect of the configuration.
    #[serde(flatten)]
    pub effect: Effect,
}

/// The effect of a configuration on a container's exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// The container keeps them.
    Stays,
    /// It gets others.
    Moves {
        /// The new CPUs, if nothing else happens before.
        to: String,
        /// Why.
        why: String,
    },
    /// It loses them and runs in the shared pool.
    Shares {
        /// Why.
        why: String,
    },
}

impl SettingsReport {
    /// `settings` are those of `config` on a machine.
    pub fn of(config: &Config, settings: &Settings) -> SettingsReport {
        let own = OwnSettings::of(settings, config.partition(), config.on_active_kubelet());
        let exclusivity = config.exclusivity().name();
        SettingsReport {
            config: ConfigStatus::of(settings, exclusivity, config.strict(), own),
            reserved_cpus: settings.placement.reserved.to_string(),
        }
    }
}

impl OverrideReport {
    /// `yields` is the configuration with this entry alone.
    pub fn of(
        entry: Override,
        matches: bool,
        yields: &Config,
        topology: &Topology,
    ) -> OverrideReport {
        let settings = yields.resolve(topology);
        let labels = entry.labels.iter().map(|(key, value)| format!("{key}={value}"));
        OverrideReport {
            line: entry.line,
            labels: labels.collect(),
            names: entry.names,
            matches,
            error: settings.as_ref().err().map(ToString::to_string),
            settings: settings.ok().map(|settings| SettingsReport::of(yields, &settings)),
        }
    }
}

impl Display for SettingsReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.config.line(Some(&self.reserved_cpus)))
    }
}

impl OverrideReport {
    /// Writes it for people, the namespaces only if they differ from `here`.
    fn write(&self, f: &mut Formatter<'_>, here: &[BoundsReport]) -> fmt::Result {
        let nodes = [("names", &self.names), ("labels", &self.labels)];
        let nodes = nodes.iter().filter(|(_, list)| !list.is_empty());
        let nodes: Vec<String> =
            nodes.map(|(what, list)| format!("{what} {}", list.join(", "))).collect();
        let matches = if self.matches { "matches this node" } else { "not this node" };
        writeln!(f, "override on line {}: {} ({matches})", self.line, nodes.join("; "))?;
        match (&self.settings, &self.error) {
            (Some(settings), _) => {
                writeln!(f, "  alone: {settings}")?;
                match settings.config.namespaces == here {
                    true => Ok(()),
                    false => write!(f, "{}", Indented(&settings.config.namespaces, "  ")),
                }
            }
            (None, Some(error)) => {
                writeln!(f, "  alone it cannot be in force on this machine: {error}")
            }
            (None, None) => Ok(()),
        }
    }
}

impl Display for AssignmentReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { namespace, pod, container, cpus, effect } = self;
        write!(f, "{namespace}/{pod}/{container}: {} ", wording::cpus(cpus))?;
        match effect {
            Effect::Stays => f.write_str(wording::agree(cpus, "stays", "stay")),
            Effect::Moves { to, why } => write!(f, "would become {to}: {why}"),
            Effect::Shares { why } => write!(f, "would be lost, it would share: {why}"),
        }
    }
}

impl Display for Outlook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.assignments.is_empty() {
            writeln!(f, "exclusive CPUs are assigned to no container")?;
        }
        for one in &self.assignments {
            writeln!(f, "{one}")?;
        }
        let now = match &self.shared_now {
            Some(now) => wording::or_none(now),
            None => "not known (no plugin runs with this state)".to_owned(),
        };
        writeln!(f, "shared pool: {now} -> {}", wording::or_none(&self.shared_then))
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let machine = self.machine.as_ref().map(|machine| format!(" on the machine {machine}"));
        writeln!(f, "{}: no mistakes found{}", self.file, machine.unwrap_or_default())?;
        let lines = self.applied.iter().filter_map(|at| Some(self.overrides.get(*at)?.line));
        let lines: Vec<usize> = lines.collect();
        let node = match &self.node {
            None if self.overrides.is_empty() => "every node".to_owned(),
            None if self.unknown => {
                "a node that no override matches (--node-name was not given)".to_owned()
            }
            None => format!("a node with these labels{}", overrides(&lines)),
            Some(node) => format!("node {node}{}", overrides(&lines)),
        };
        writeln!(f, "\nin force on {node}:\n  {}", self.settings)?;
        let namespaces = &self.settings.config.namespaces;
        write!(f, "{}", Indented(namespaces, "  "))?;
        if !self.overrides.is_empty() {
            writeln!(f)?;
        }
        for one in &self.overrides {
            one.write(f, namespaces)?;
        }
        match &self.outlook {
            Some(outlook) => write!(f, "\n{outlook}"),
            None => Ok(()),
        }
    }
}
