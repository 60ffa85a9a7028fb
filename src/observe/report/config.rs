//! The configuration in the status.

use super::super::config_state::ConfigState;
use super::super::figures::NodeFigures;
use super::{BoundsReport, OwnSettings};
use crate::ledger::Settings;
use crate::wording;
use serde::{Deserialize, Serialize};

/// The configuration in force, in its own words.
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
    /// Whether no container may run otherwise than decided.
    pub strict: bool,
    /// What few change.
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
    /// The file, or who handed it over.
    pub source: String,
    /// `in-force`; `rejected` if what is there cannot be used and the last good one is in force;
    /// `restart-needed` if some fields of it are followed only after a restart.
    pub state: String,
    /// The lines of the overrides for this node that are in force, the most specific last.
    pub overrides: Vec<usize>,
    /// When what is in force was read.
    pub loaded: String,
    /// What is wrong with what is there; `null` if nothing.
    pub error: Option<String>,
    /// The line at fault, counted from 1.
    pub error_line: Option<usize>,
    /// Fields that are followed only after a restart.
    pub waiting_for_restart: Vec<String>,
}

impl ConfigStatus {
    /// The settings that are in force.
    pub fn in_force(figures: &NodeFigures) -> ConfigStatus {
        let settings = &figures.settings;
        let own = OwnSettings::of(settings, figures.partition, figures.on_active_kubelet);
        ConfigStatus::of(settings, &settings.exclusivity.to_string(), figures.strict, own)
    }

    /// Settings of the ledger, with what is no matter of the ledger's. This is the one description
    /// of settings: the status, metrics and `check-config` tell what is in it.
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

    /// One line for people; `reserved` are the reserved CPUs, where they belong into it.
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
