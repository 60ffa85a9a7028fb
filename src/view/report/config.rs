//! The configuration in the status.

use super::super::config_state::ConfigState;
use super::super::figures::NodeFigures;
use super::{BoundsReport, OwnSettings};
use crate::ledger::{Mechanism, Settings};
use crate::wording;
use serde::{Deserialize, Serialize};

/// The settings in force, in the configuration's own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// `none` or `static`.
    pub cpu_manager_policy: String,
    /// The options that are on.
    pub cpu_manager_policy_options: String,
    /// The topology manager's policy.
    pub topology_manager_policy: String,
    /// Its options that are on.
    #[serde(default)]
    pub topology_manager_policy_options: String,
    /// `container` or `pod`.
    pub topology_manager_scope: String,
    /// `runtime` or `kernel` where the plugin runs; of a file also `auto`.
    pub exclusivity: String,
    /// Whether the plugin refuses containers that do not run as decided.
    pub strict: bool,
    /// The plugin's own settings.
    #[serde(flatten)]
    pub own: OwnSettings,
    /// What pods may wish for, the most specific namespace or pattern first. In all others they may
    /// wish for nothing.
    #[serde(default)]
    pub namespaces: Vec<BoundsReport>,
}

/// Where the configuration comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigSourceStatus {
    /// The file, or a name for the runtime if the configuration came from there.
    pub source: String,
    /// `in-force`; `rejected` if the file cannot be used and the last good one is in force;
    /// `restart-needed` if the plugin follows some of its fields only after a restart.
    pub state: String,
    /// The lines of the overrides for this node that are in force, the most specific last.
    pub overrides: Vec<usize>,
    /// When the plugin read the configuration in force.
    pub loaded: String,
    /// What is wrong with the file; `null` if nothing.
    pub error: Option<String>,
    /// The line at fault, counted from 1.
    pub error_line: Option<usize>,
    /// Fields that the plugin follows only after a restart.
    pub waiting_for_restart: Vec<String>,
}

impl ConfigStatus {
    /// The settings that are in force.
    pub fn in_force(figures: &NodeFigures) -> ConfigStatus {
        let settings = &figures.settings;
        let own = OwnSettings::of(settings, figures.partition, figures.on_active_kubelet);
        ConfigStatus::of(settings, &figures.mechanism.to_string(), figures.strict, own)
    }

    /// The settings of the ledger and of the daemon. The log, the status, the metrics,
    /// `check-config` and `simulate` describe settings by this type alone.
    pub fn of(
        settings: &Settings,
        exclusivity: &str,
        strict: bool,
        own: OwnSettings,
    ) -> ConfigStatus {
        let manager = &settings.placement.topology_manager;
        ConfigStatus {
            cpu_manager_policy: settings.policy.name().to_owned(),
            cpu_manager_policy_options: settings.placement.options.to_string(),
            topology_manager_policy: manager.policy.name().to_owned(),
            topology_manager_policy_options: manager.options().to_owned(),
            topology_manager_scope: manager.scope.name().to_owned(),
            exclusivity: exclusivity.to_owned(),
            strict,
            own,
            namespaces: BoundsReport::of(&settings.namespaces, settings.policy),
        }
    }

    /// The settings in force as a line for the log.
    pub fn log_line(
        settings: &Settings,
        mechanism: Mechanism,
        strict: bool,
        own: OwnSettings,
    ) -> String {
        let config = ConfigStatus::of(settings, &mechanism.to_string(), strict, own);
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
        format!(
            "cpuManagerPolicy {} ({}), topologyManagerPolicy {} (scope {}, {}){reserved}, exclusivity {}, strict {}{}",
            self.cpu_manager_policy,
            self.cpu_manager_policy_options,
            self.topology_manager_policy,
            self.topology_manager_scope,
            self.topology_manager_policy_options,
            self.exclusivity,
            self.strict,
            self.own
        )
    }
}

impl ConfigSourceStatus {
    pub(super) fn of(config: &ConfigState) -> ConfigSourceStatus {
        let state = match (&config.fault, config.waiting.is_empty()) {
            (Some(_), _) => "rejected",
            (None, false) => "restart-needed",
            (None, true) => "in-force",
        };
        ConfigSourceStatus {
            source: config.source.clone(),
            state: state.to_owned(),
            overrides: config.overrides.clone(),
            loaded: config.loaded.to_string(),
            error: config.fault.as_ref().map(|fault| fault.why.clone()),
            error_line: config.fault.as_ref().and_then(|fault| fault.line),
            waiting_for_restart: config.waiting.iter().map(|&field| field.to_owned()).collect(),
        }
    }
}
