//! What pods may wish for, namespace by namespace.

use crate::ledger::wish::Wish;
use crate::ledger::{Bounds, Namespaces, Policy};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// The rules of a namespace, or of all that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundsReport {
    /// The namespace's name, or the pattern.
    pub name: String,
    /// `none` or `static`: whether pods there can have exclusive CPUs.
    pub cpu_manager_policy: String,
    /// What pods there may wish for, as `WISH: VALUE`.
    pub allow: Vec<String>,
    /// The wishes of pods there without annotations, likewise.
    pub defaults: Vec<String>,
}

impl BoundsReport {
    /// The rules of all namespaces on a node with this policy, the most specific first: the first
    /// that matches a namespace counts.
    pub fn of(namespaces: &Namespaces, node: Policy) -> Vec<BoundsReport> {
        let named = namespaces.by_closeness().into_iter();
        named.map(|(name, bounds)| BoundsReport::one(name, bounds, node)).collect()
    }

    fn one(name: &str, bounds: &Bounds, node: Policy) -> BoundsReport {
        let texts = |wishes: &mut dyn Iterator<Item = &Wish>| wishes.map(Wish::to_string).collect();
        BoundsReport {
            name: name.to_owned(),
            cpu_manager_policy: bounds.policy.unwrap_or(node).name().to_owned(),
            allow: texts(&mut bounds.allow.iter()),
            defaults: texts(&mut bounds.defaults.iter()),
        }
    }
}

impl Display for BoundsReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        if self.cpu_manager_policy == Policy::None.name() {
            return f.write_str("cpuManagerPolicy none, no exclusive CPUs");
        }
        match self.allow.is_empty() {
            true => f.write_str("pods may wish for nothing")?,
            false => write!(f, "pods may wish for {}", self.allow.join(", "))?,
        }
        match self.defaults.is_empty() {
            true => Ok(()),
            false => write!(f, "; those that say nothing have {}", self.defaults.join(", ")),
        }
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
        writeln!(f, "{indent}in namespaces, of those that fit the first one counts:")?;
        for one in *namespaces {
            writeln!(f, "{indent}  {one}")?;
        }
        match namespaces.iter().any(|one| one.name == "*") {
            true => Ok(()),
            false => writeln!(f, "{indent}  all others: pods may wish for nothing"),
        }
    }
}
