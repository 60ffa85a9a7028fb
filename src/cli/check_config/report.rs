//! What was found, for people and for programs.

use crate::cli::node::overrides;
use crate::config::{Config, Override};
use crate::ledger::Settings;
use crate::observe::report::{BoundsReport, ConfigStatus, Indented, OwnSettings};
use crate::topology::Topology;
use crate::wording;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// Everything that a file means. The names are a promise to scripts; docs/configuration.md is the
/// reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// What the machine was called that it was checked against; `null` if it is this one.
    pub machine: Option<String>,
    /// The node's name; `null` if it was not told.
    pub node: Option<String>,
    /// Whether nothing was told of it, its labels neither.
    #[serde(skip)]
    pub unknown: bool,
    /// What would be in force on this node; if nothing was told of it, on one that no override
    /// matches.
    pub settings: SettingsReport,
    /// Which of `overrides`, counted from 0, are in that, the most specific last.
    pub applied: Vec<usize>,
    /// The entries of `nodes`.
    pub overrides: Vec<OverrideReport>,
    /// What would change for containers; `null` if no state was named.
    pub outlook: Option<Outlook>,
}

/// Settings in the configuration's own words. Whether the kernel can keep exclusivity is seen only
/// where the plugin runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingsReport {
    /// What the status tells of a running plugin, too.
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
    /// What would be in force on this machine if it alone matched; `null` if it alone cannot be.
    pub settings: Option<SettingsReport>,
    /// Why it alone cannot be in force on this machine: it may be for another one, or for nodes
    /// that others match too.
    pub error: Option<String>,
}

/// What would change for containers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// Exclusive CPUs that are assigned now.
    pub assignments: Vec<AssignmentReport>,
    /// The shared pool now; `null` if no plugin runs that could tell.
    pub shared_now: Option<String>,
    /// The shared pool then.
    pub shared_then: String,
}

/// A container's exclusive CPUs, and what would become of them.
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
    /// What would become of them.
    #[serde(flatten)]
    pub effect: Effect,
}

/// What would become of exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// The container keeps them.
    Stays,
    /// It has to have others.
    Moves {
        /// Which, if nothing else happens before.
        to: String,
        /// Why.
        why: String,
    },
    /// It shares CPUs with others.
    Shares {
        /// Why.
        why: String,
    },
}

impl SettingsReport {
    /// Of a configuration and what it means on a machine.
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
    /// Of an entry, and of the configuration with it alone.
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
    /// Writes it for people; of namespaces only if they are not as `here`.
    fn write(&self, f: &mut Formatter<'_>, here: &[BoundsReport]) -> fmt::Result {
        let whom = [("names", &self.names), ("labels", &self.labels)];
        let whom = whom.iter().filter(|(_, list)| !list.is_empty());
        let whom: Vec<String> =
            whom.map(|(what, list)| format!("{what} {}", list.join(", "))).collect();
        let matches = if self.matches { "matches this node" } else { "not this node" };
        writeln!(f, "override on line {}: {} ({matches})", self.line, whom.join("; "))?;
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
        let or_none =
            |list: &str| if list.is_empty() { "none".to_owned() } else { list.to_owned() };
        if self.assignments.is_empty() {
            writeln!(f, "exclusive CPUs are assigned to no container")?;
        }
        for one in &self.assignments {
            writeln!(f, "{one}")?;
        }
        let now = match &self.shared_now {
            Some(now) => or_none(now),
            None => "not known (no plugin runs with this state)".to_owned(),
        };
        writeln!(f, "shared pool: {now} -> {}", or_none(&self.shared_then))
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let machine = self.machine.as_ref().map(|machine| format!(" on the machine {machine}"));
        writeln!(f, "{}: no mistakes found{}", self.file, machine.unwrap_or_default())?;
        let lines = self.applied.iter().filter_map(|at| Some(self.overrides.get(*at)?.line));
        let lines: Vec<usize> = lines.collect();
        let whose = match &self.node {
            None if self.overrides.is_empty() => "every node".to_owned(),
            None if self.unknown => {
                "a node that no override matches (--node-name was not given)".to_owned()
            }
            None => format!("a node with these labels{}", overrides(&lines)),
            Some(node) => format!("node {node}{}", overrides(&lines)),
        };
        writeln!(f, "\nin force on {whose}:\n  {}", self.settings)?;
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
