//! `namespaces`: what pods may wish for, namespace by namespace.

use super::ConfigError;
use super::error::Source;
use super::file::{File, Pairs, Text};
use crate::ledger::wishes::{Wish, contradiction};
use crate::ledger::{Bounds, Namespaces, Policy};
use crate::placement::Wishes;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::fmt;

/// An entry of the list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Entry {
    /// Names, or patterns with `*` and `?`.
    names: Vec<Text>,
    /// Whether pods there can have exclusive CPUs, where that is not as on the rest of the node.
    cpu_manager_policy: Option<EntryPolicy>,
    /// What pods may wish for.
    allow: Allowed,
    /// What holds for pods that say nothing.
    defaults: Defaults,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EntryPolicy {
    None,
    Static,
}

/// `uncore: [prefer, require]`, and so on.
#[derive(Debug, Clone, Default)]
struct Allowed(Vec<Wish>);

/// `uncore: prefer`, and so on.
#[derive(Debug, Clone, Default)]
struct Defaults(Vec<Wish>);

impl<'de> Deserialize<'de> for Allowed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Allowed, D::Error> {
        struct AllowedVisitor;
        impl<'de> Visitor<'de> for AllowedVisitor {
            type Value = Allowed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("wishes and lists of their values like {uncore: [prefer, require]}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Allowed, A::Error> {
                let mut wishes = Vec::new();
                while let Some((Text(key), values)) = access.next_entry::<Text, Vec<Text>>()? {
                    for Text(value) in values {
                        wishes.push(Wish::parse(&key, &value).map_err(de::Error::custom)?);
                    }
                }
                Ok(Allowed(wishes))
            }
        }
        deserializer.deserialize_map(AllowedVisitor)
    }
}

impl<'de> Deserialize<'de> for Defaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Defaults, D::Error> {
        let pairs = Pairs::deserialize(deserializer)?;
        if let Some(key) = pairs.twice() {
            return Err(de::Error::custom(format!("{key:?} stands twice")));
        }
        let wishes: Result<Vec<Wish>, String> =
            pairs.0.iter().map(|(key, value)| Wish::parse(key, value)).collect();
        let wishes = wishes.map_err(de::Error::custom)?;
        let mut both = Wishes::NONE;
        for wish in &wishes {
            match *wish {
                Wish::Uncore(uncore) => both.uncore = Some(uncore),
                Wish::Numa(numa) => both.numa = Some(numa),
                Wish::Smt(_) | Wish::Cpus(_) => {}
            }
        }
        match contradiction(&both) {
            Some((one, other)) => {
                let why = format!("defaults: {one} and {other} contradict each other");
                Err(de::Error::custom(why))
            }
            None => Ok(Defaults(wishes)),
        }
    }
}

/// Whether a list lets pods have exclusive CPUs that no node can have with which it is in force. On others than those it
/// says nothing.
///
/// # Errors
/// Which entry does.
pub(super) fn check(source: &Source, file: &File) -> Result<(), ConfigError> {
    let policy =
        |file: &File| file.cpu_manager_policy.as_ref().map(|Text(policy)| policy == "static");
    let somewhere =
        policy(file) == Some(true) || file.nodes.iter().any(|entry| policy(entry) == Some(true));
    let overrides = file.nodes.iter().enumerate();
    let overrides = overrides.map(|(at, entry)| (source.entry(at), entry, policy(entry)));
    for (source, file, policy) in [(source.clone(), file, None)].into_iter().chain(overrides) {
        let entries = file.namespaces.as_deref().unwrap_or_default();
        let fixed = |entry: &Entry| matches!(entry.cpu_manager_policy, Some(EntryPolicy::Static));
        let Some(at) = entries.iter().position(fixed).filter(|_| !policy.unwrap_or(somewhere))
        else {
            continue;
        };
        let first = entries.get(at).and_then(|entry| entry.names.first());
        let first = first.map(|Text(name)| name.as_str()).unwrap_or_default();
        let why = format!(
            "{first:?} has cpuManagerPolicy: static on a node with none. For exclusive CPUs in some namespaces only, set \
             static with reserved CPUs for the node, and none for {{names: [\"*\"]}}"
        );
        return Err(source.at_item("namespaces", at, why));
    }
    Ok(())
}

/// What the list of a file says.
///
/// # Errors
/// What cannot be, in which entry.
pub(super) fn resolve(source: &Source, file: &File) -> Result<Namespaces, ConfigError> {
    let entries = file.namespaces.as_deref().unwrap_or_default();
    let bounds = |entry: &Entry| {
        if entry.names.is_empty() {
            return Err(
                "an entry has no names: expected some like [\"hpc\", \"team-*\"]".to_owned()
            );
        }
        let names: Vec<String> = entry.names.iter().map(|Text(name)| name.clone()).collect();
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-*?".contains(c);
        if let Some(name) = names.iter().find(|name| name.is_empty() || !name.chars().all(legal)) {
            return Err(format!(
                "{name:?} is no namespace: expected lower case letters, digits and -, or a pattern with * and ?"
            ));
        }
        let policy = entry.cpu_manager_policy.map(|policy| match policy {
            EntryPolicy::None => Policy::None,
            EntryPolicy::Static => Policy::Static,
        });
        let allow = entry.allow.0.iter().copied().collect();
        Ok((names, Bounds { policy, allow, defaults: entry.defaults.0.clone() }))
    };
    let bounds = |(at, entry): (usize, &Entry)| {
        bounds(entry).map_err(|why| source.at_item("namespaces", at, why))
    };
    let entries: Result<Vec<_>, ConfigError> = entries.iter().enumerate().map(bounds).collect();
    Namespaces::new(entries?).map_err(|tie| {
        let (first, second) = tie.entries;
        let why = format!(
            "{tie} (the other one is in namespaces[{second}]). Leave one out, or give one more characters of its own"
        );
        source.at_item("namespaces", first, why)
    })
}
