//! [`Wish`]: what one annotation of a pod asks for a container, by key and value.
//!
//! A wish has one of a few values. Latency knobs ([`Knobs`]) have open ones: [`parse`] reads both.

use placement::wishes::{Numa, Smt, Uncore, Wishes};
use placement::{EngineKind, IsolatedCpus};
use quiet::{InterruptMode, Knobs};
use std::fmt;
use wording::unknown;

/// Whether a container gets exclusive CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cpus {
    /// Yes, also in a Burstable pod if its request is a whole number of CPUs.
    Exclusive,
    /// Like `Exclusive`, and the container also uses the shared CPUs.
    Mixed,
    /// No, not even in a Guaranteed pod.
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    Cpus(Cpus),
    Uncore(Uncore),
    Numa(Numa),
    Smt(Smt),
    Placement(EngineKind),
    Isolated(IsolatedCpus),
    /// Whether the container may move to other exclusive CPUs while it runs.
    Movable(bool),
    /// What happens to device interrupts on its exclusive CPUs.
    Interrupts(InterruptMode),
}

pub(super) const ALL: [(&str, &str, Wish); 22] = [
    ("cpus", "exclusive", Wish::Cpus(Cpus::Exclusive)),
    ("cpus", "exclusive+shared", Wish::Cpus(Cpus::Mixed)),
    ("cpus", "shared", Wish::Cpus(Cpus::Shared)),
    ("uncore", "prefer", Wish::Uncore(Uncore::Prefer)),
    ("uncore", "require", Wish::Uncore(Uncore::Require)),
    ("uncore", "ignore", Wish::Uncore(Uncore::Ignore)),
    ("uncore", "exclusive", Wish::Uncore(Uncore::Exclusive)),
    ("numa", "single", Wish::Numa(Numa::Single)),
    ("numa", "closest", Wish::Numa(Numa::Closest)),
    ("numa", "spread", Wish::Numa(Numa::Spread)),
    ("smt", "full-cores", Wish::Smt(Smt::FullCores)),
    ("smt", "isolate", Wish::Smt(Smt::Isolate)),
    ("placement", "kubelet", Wish::Placement(EngineKind::Kubelet)),
    ("placement", "compact", Wish::Placement(EngineKind::Compact)),
    ("isolated-cpus", "exclude", Wish::Isolated(IsolatedCpus::Exclude)),
    ("isolated-cpus", "prefer", Wish::Isolated(IsolatedCpus::Prefer)),
    ("isolated-cpus", "require", Wish::Isolated(IsolatedCpus::Require)),
    ("movable", "true", Wish::Movable(true)),
    ("movable", "false", Wish::Movable(false)),
    ("interrupts", "leave", Wish::Interrupts(InterruptMode::Leave)),
    ("interrupts", "away", Wish::Interrupts(InterruptMode::Away)),
    ("interrupts", "housekeeping", Wish::Interrupts(InterruptMode::Housekeeping)),
];

/// What one key and its value ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    Wish(Wish),
    /// Only the knob of the key.
    Knob(Knobs),
}

/// Parses the key and the value of an annotation.
///
/// # Errors
/// Names the unknown word, the expected ones, and the nearest of these.
pub fn parse(key: &str, value: &str) -> Result<Parsed, String> {
    if !Knobs::KEYS.contains(&key) {
        return Wish::parse(key, value).map(Parsed::Wish);
    }
    let mut knob = Knobs::NONE;
    knob.set(key, value).map_err(|error| error.to_string())?;
    Ok(Parsed::Knob(knob))
}

impl Wish {
    pub fn all() -> impl Iterator<Item = Wish> {
        ALL.iter().map(|(_, _, wish)| *wish)
    }

    /// As [`parse`], without knobs.
    ///
    /// # Errors
    /// Those of [`parse`].
    pub fn parse(key: &str, value: &str) -> Result<Wish, String> {
        if let Some((_, _, wish)) = ALL.iter().find(|(k, v, _)| (*k, *v) == (key, value)) {
            return Ok(*wish);
        }
        let values: Vec<&str> =
            ALL.iter().filter(|(known, ..)| *known == key).map(|(_, value, _)| *value).collect();
        if !values.is_empty() {
            return Err(unknown(value, &values));
        }
        let mut keys: Vec<&str> = ALL.iter().map(|(key, ..)| *key).collect();
        keys.dedup();
        keys.extend(Knobs::KEYS);
        Err(unknown(key, &keys))
    }

    pub(super) fn parts(self) -> (&'static str, &'static str) {
        let found = ALL.iter().find(|(_, _, wish)| *wish == self);
        found.map(|(key, value, _)| (*key, *value)).unwrap_or_default()
    }

    /// The single wishes of which these consist.
    pub fn list(wishes: &Wishes) -> Vec<Wish> {
        let Wishes { uncore, numa, smt, engine, isolated } = *wishes;
        let wishes = [
            uncore.map(Wish::Uncore),
            numa.map(Wish::Numa),
            smt.map(Wish::Smt),
            engine.map(Wish::Placement),
            isolated.map(Wish::Isolated),
        ];
        wishes.into_iter().flatten().collect()
    }
}

impl fmt::Display for Wish {
    /// As in a configuration: `uncore: require`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = self.parts();
        write!(f, "{key}: {value}")
    }
}
