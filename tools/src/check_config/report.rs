//! The result of a check, for people and for programs.

use config::{Config, Override};
use ledger::Settings;
use serde::Serialize;
use status::config_state::overrides;
use status::config_status::{BoundsReport, ConfigStatus, Indented};
use status::outlook::Outlook;
use std::fmt::{self, Display, Formatter};
use topology::Topology;

pub(super) const VERSION: u32 = 1;

/// The names are a promise to scripts; docs/configuration.md is the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CheckReport {
    /// Changes when a field is removed or changes its meaning, not when one is added.
    pub version: u32,
    pub file: String,
    /// `null` for this machine.
    pub machine: Option<String>,
    pub node: Option<String>,
    /// Neither name nor labels are known.
    #[serde(skip)]
    pub unknown: bool,
    /// On an unknown node, without overrides.
    pub settings: SettingsReport,
    /// Fields that have not the effect under these settings that they seem to have, with their lines.
    pub warnings: Vec<String>,
    /// The positions in `overrides`, from 0, of those that apply, the most specific last.
    pub applied: Vec<usize>,
    pub overrides: Vec<OverrideReport>,
    /// `null` without `--live`.
    pub outlook: Option<Outlook>,
    /// Whether interrupts can be moved on this node; absent for another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<String>,
}

/// The settings by the names in the file. `exclusivity: auto` stays `auto`: what the kernel can do
/// shows only where the plugin runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SettingsReport {
    #[serde(flatten)]
    pub config: ConfigStatus,
    pub reserved_cpus: String,
}

/// An entry of `nodes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OverrideReport {
    pub line: usize,
    pub names: Vec<String>,
    /// `KEY=PATTERN`.
    pub labels: Vec<String>,
    /// Whether it is for this node.
    pub matches: bool,
    /// The settings on this machine if it alone matched; `null` if they are not valid.
    pub settings: Option<SettingsReport>,
    /// As for the node's own settings.
    pub warnings: Vec<String>,
    /// Why these settings are not valid on this machine: the override may be for another one, or
    /// for nodes that other overrides match too.
    pub error: Option<String>,
}

impl SettingsReport {
    pub(crate) fn of(config: &Config, settings: &Settings) -> SettingsReport {
        let exclusivity = config.exclusivity().name();
        SettingsReport {
            config: ConfigStatus::of(settings, exclusivity, config.into()),
            reserved_cpus: settings.placement.reserved.to_string(),
        }
    }

    fn line(&self) -> String {
        self.config.line(Some(&self.reserved_cpus))
    }
}

/// The warnings about a configuration. Some need valid settings: without, they are left out.
pub(super) fn warnings(
    config: &Config,
    topology: &Topology,
    settings: Option<&Settings>,
) -> Vec<String> {
    let split = settings.and_then(|settings| config.split_cores(topology, settings));
    let isolated = settings.and_then(|settings| config.isolated_cpus(topology, settings));
    let sizes = settings.and_then(|settings| config.odd_sizes(topology, settings));
    let nothing = config.nothing_to_assign(topology);
    let on_this_machine = nothing.iter().chain(&split).chain(&isolated).chain(&sizes);
    config.warnings().iter().chain(on_this_machine).map(ToString::to_string).collect()
}

impl OverrideReport {
    /// `alone` is the configuration with this entry alone.
    pub(crate) fn of(
        entry: &Override,
        matches: bool,
        alone: &Config,
        topology: &Topology,
    ) -> OverrideReport {
        let settings = alone.resolve(topology);
        let mut warnings = warnings(alone, topology, settings.as_ref().ok());
        warnings.extend(entry.not_used.iter().map(ToString::to_string));
        let labels = entry.labels.iter().map(|(key, value)| format!("{key}={value}"));
        OverrideReport {
            line: entry.line,
            labels: labels.collect(),
            names: entry.names.clone(),
            matches,
            error: settings.as_ref().err().map(ToString::to_string),
            settings: settings.ok().map(|settings| SettingsReport::of(alone, &settings)),
            warnings,
        }
    }

    /// Writes it for people, the namespaces only if they differ from `here`.
    fn write(&self, f: &mut Formatter<'_>, here: &[BoundsReport]) -> fmt::Result {
        let nodes = [("names", &self.names), ("labels", &self.labels)];
        let nodes = nodes.iter().filter(|(_, list)| !list.is_empty());
        let nodes: Vec<String> =
            nodes.map(|(what, list)| format!("{what} {}", list.join(", "))).collect();
        let matches = if self.matches { "matches this node" } else { "not this node" };
        writeln!(f, "override on line {}: {} ({matches})", self.line, nodes.join("; "))?;
        if let Some(error) = &self.error {
            writeln!(f, "  alone, not valid on this machine: {error}")?;
        }
        if let Some(settings) = &self.settings {
            writeln!(f, "  alone: {}", settings.line())?;
            for warning in &self.warnings {
                writeln!(f, "  warning: {warning}")?;
            }
            if settings.config.namespaces != here {
                write!(f, "{}", Indented(&settings.config.namespaces, "  "))?;
            }
        }
        Ok(())
    }
}

impl Display for CheckReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let machine = match &self.machine {
            Some(machine) => format!(" on machine {machine}"),
            None => String::new(),
        };
        writeln!(f, "{}: valid{machine}", self.file)?;
        let lines: Vec<usize> = self.applied.iter().map(|&at| self.overrides[at].line).collect();
        let node = match &self.node {
            None if self.overrides.is_empty() => "every node".to_owned(),
            None if self.unknown => {
                "a node without matching overrides (--node-name not given)".to_owned()
            }
            None => format!("a node with these labels{}", overrides(&lines)),
            Some(node) => format!("node {node}{}", overrides(&lines)),
        };
        writeln!(f, "\nsettings on {node}:\n  {}", self.settings.line())?;
        for warning in &self.warnings {
            writeln!(f, "  warning: {warning}")?;
        }
        if let Some(interrupts) = &self.interrupts {
            writeln!(f, "  interrupts on this node: {interrupts}")?;
        }
        let namespaces = &self.settings.config.namespaces;
        write!(f, "{}", Indented(namespaces, "  "))?;
        if !self.overrides.is_empty() {
            writeln!(f)?;
        }
        for one in &self.overrides {
            one.write(f, namespaces)?;
        }
        if let Some(outlook) = &self.outlook {
            write!(f, "\n{outlook}")?;
        }
        Ok(())
    }
}
