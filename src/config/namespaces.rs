//! `namespaces`: what pods may wish for, namespace by namespace.

use super::entry::{Entry, EntryPolicy};
use super::error::{ConfigError, Source};
use super::file::File;
use super::values::Text;
use crate::ledger::{Bounds, Namespaces, Policy};

/// Finds an entry with `cpuManagerPolicy: static` that could have an effect on no node, because
/// every node with this list has the policy `none`.
///
/// # Errors
/// That entry.
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

/// # Errors
/// The first entry with a mistake, and the mistake.
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
