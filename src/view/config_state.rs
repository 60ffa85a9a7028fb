//! [`ConfigState`]: which configuration is in force, and what became of the last change of it.

use crate::clock::Moment;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigState {
    /// The file, or a name for the runtime if the configuration came from there.
    pub source: String,
    /// The lines of the overrides for this node that are in force, the most specific last.
    pub overrides: Vec<usize>,
    /// When the plugin read the configuration in force.
    pub loaded: Moment,
    /// Why the present configuration is not in force; `None` if it is.
    pub fault: Option<Fault>,
    /// Changed fields that the plugin follows only after a restart.
    pub waiting: Vec<&'static str>,
    /// Changes since the start, by result.
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

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It changed the settings in force.
    Applied,
    /// It means the same as before.
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

    /// The plugin follows a change, but for the fields that are `waiting`.
    pub fn reloaded(&mut self, reload: Reload, waiting: Vec<&'static str>, now: Moment) {
        (self.loaded, self.fault, self.waiting) = (now, None, waiting);
        *self.reloads.entry(reload.name()).or_default() += 1;
    }

    /// The plugin ignores a change that it cannot use.
    pub fn rejected(&mut self, fault: Fault) {
        self.fault = Some(fault);
        *self.reloads.entry(REJECTED).or_default() += 1;
    }
}

pub(crate) fn cannot_be_used(fault: &Fault) -> String {
    format!(
        "the configuration was changed and cannot be used, the last good one stays in force: {}",
        fault.why
    )
}

pub(crate) fn needs_restart(fields: &[&str]) -> String {
    format!(
        "the configuration was changed, and the plugin has to be restarted to follow it in {}",
        fields.join(", ")
    )
}
