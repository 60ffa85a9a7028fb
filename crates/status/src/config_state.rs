//! [`ConfigState`]: which configuration is in force, and the result of its last change.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wording::Moment;

/// Which configuration is in force, and the result of its last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigState {
    /// The file, or a name for the runtime if the configuration came from there.
    pub source: String,
    /// The lines of the overrides for this node that are in force, the most specific last.
    pub overrides: Vec<usize>,
    /// When the plugin read the configuration in force.
    pub loaded: Moment,
    /// Why the configuration file is not in force; `null` if it is.
    pub fault: Option<Fault>,
    /// That all CPUs of the machine are reserved, and the effect; `null` if some can be assigned.
    pub nothing_to_assign: Option<String>,
    /// Changed fields that take effect only after a restart.
    pub waiting: Vec<String>,
    /// Changes since the start, by result.
    #[serde(skip)]
    pub reloads: BTreeMap<&'static str, u64>,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Counted from 1; `null` if there is no text.
    pub line: Option<usize>,
    /// What is wrong, with file and line.
    pub why: String,
}

/// The result of a valid change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    AppliedSetting,
    /// It means the same as before.
    Unchanged,
}

const APPLIED: &str = "applied";
const UNCHANGED: &str = "unchanged";
const REJECTED: &str = "rejected";

impl ConfigState {
    pub fn new(source: &str, overrides: Vec<usize>, now: Moment) -> ConfigState {
        ConfigState {
            source: source.to_owned(),
            overrides,
            loaded: now,
            fault: None,
            nothing_to_assign: None,
            waiting: Vec::new(),
            reloads: [APPLIED, UNCHANGED, REJECTED].map(|result| (result, 0)).into(),
        }
    }

    /// A change is in force, except for the fields that are `waiting`.
    pub fn reloaded(&mut self, reload: Reload, waiting: Vec<String>, now: Moment) {
        self.loaded = now;
        self.fault = None;
        self.waiting = waiting;
        self.count(match reload {
            Reload::AppliedSetting => APPLIED,
            Reload::Unchanged => UNCHANGED,
        });
    }

    /// A change is invalid, and the plugin ignores it.
    pub fn rejected(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.count(REJECTED);
    }

    fn count(&mut self, result: &'static str) {
        *self.reloads.entry(result).or_default() += 1;
    }
}

pub fn cannot_be_used(fault: &Fault) -> String {
    format!("configuration rejected, the last good one stays in force: {}", fault.why)
}

pub fn needs_restart(fields: &[String]) -> String {
    format!("configuration changed, restart the plugin to apply {}", fields.join(", "))
}

/// The lines of the applied overrides, for the end of a sentence; empty without overrides.
pub fn overrides(lines: &[usize]) -> String {
    let list: Vec<String> = lines.iter().map(ToString::to_string).collect();
    match lines {
        [] => String::new(),
        [line] => format!(", with the override on line {line}"),
        _ => format!(", with the overrides on lines {}", list.join(", ")),
    }
}
