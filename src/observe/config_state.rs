//! [`ConfigState`]: which configuration is in force, and what became of the last change of it.

use super::time::Moment;
use std::collections::BTreeMap;

/// The configuration as observers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigState {
    /// The file, or who handed the configuration over.
    pub source: String,
    /// The lines of the overrides for this node that are in force, the most specific last.
    pub overrides: Vec<usize>,
    /// When what is in force was read.
    pub loaded: Moment,
    /// Why what is there now is not in force; `None` if it is.
    pub fault: Option<Fault>,
    /// Fields that were changed, and are followed only after a restart.
    pub waiting: Vec<&'static str>,
    /// Changes since the start, by what became of them.
    pub reloads: BTreeMap<&'static str, u64>,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line at fault, counted from 1; `None` if there is no text.
    pub line: Option<usize>,
    /// What is wrong, with file and line.
    pub why: String,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// Something else is in force since.
    Applied,
    /// It means the same.
    Unchanged,
}

const REJECTED: &str = "rejected";

impl Reload {
    fn name(self) -> &'static str {
        match self {
            Reload::Applied => "applied",
            Reload::Unchanged => "unchanged",
        }
    }
}

impl ConfigState {
    /// What the plugin was started with.
    pub fn new(source: &str, overrides: Vec<usize>, now: Moment) -> ConfigState {
        let results = [Reload::Applied.name(), Reload::Unchanged.name(), REJECTED];
        ConfigState {
            source: source.to_owned(),
            overrides,
            loaded: now,
            fault: None,
            waiting: Vec::new(),
            reloads: results.map(|result| (result, 0)).into(),
        }
    }

    /// A change that can be used was followed, but for the fields that are `waiting`.
    pub fn reloaded(&mut self, reload: Reload, waiting: Vec<&'static str>, now: Moment) {
        (self.loaded, self.fault, self.waiting) = (now, None, waiting);
        *self.reloads.entry(reload.name()).or_default() += 1;
    }

    /// A change that cannot be used changed nothing.
    pub fn rejected(&mut self, fault: Fault) {
        self.fault = Some(fault);
        *self.reloads.entry(REJECTED).or_default() += 1;
    }
}

/// Says what follows from a fault.
pub fn cannot_be_used(fault: &Fault) -> String {
    format!(
        "the configuration was changed and cannot be used, the last good one stays in force: {}",
        fault.why
    )
}

/// Says what follows for fields that are not followed.
pub fn needs_restart(fields: &[&str]) -> String {
    format!(
        "the configuration was changed, and the plugin has to be restarted to follow it in {}",
        fields.join(", ")
    )
}
