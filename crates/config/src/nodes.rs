//! Overrides for nodes: the fields of an entry of `nodes` replace those of the file on the nodes
//! that its names and labels match.
//!
//! All entries that match a node apply, and more specific ones replace others: a name is more
//! specific than a pattern, then a pattern with more characters that are not wildcards, then more
//! labels. Of equals the later one in the file wins.

use super::fields::HEADER;
use super::given::Given;
use super::not_used;
use super::source::{ConfigError, Source, Warning};
use super::values::{Pairs, Text};
use super::yaml::YamlNode;
use ledger::pattern::{Closeness, closeness};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: Option<String>,
    /// At least those that the configuration uses.
    pub labels: Option<Labels>,
}

impl NodeIdentity {
    /// Whether nothing is known. An empty list of labels counts as unknown: a manifest that does
    /// not fill in its variable passes one.
    pub fn is_unknown(&self) -> bool {
        self.name.is_none() && self.labels.as_ref().is_none_or(|labels| labels.0.is_empty())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

impl FromStr for Labels {
    type Err = String;

    /// Reads `KEY=VALUE,KEY=VALUE`.
    fn from_str(text: &str) -> Result<Labels, String> {
        let label = |part: &str| match part.trim().split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("invalid label {part:?}: expected KEY=VALUE,KEY=VALUE")),
        };
        text.split(',')
            .filter(|part| !part.trim().is_empty())
            .map(label)
            .collect::<Result<_, _>>()
            .map(Labels)
    }
}

/// An entry of `nodes`: which nodes it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The line it begins on, counted from 1.
    pub line: usize,
    /// Names and patterns of nodes; an empty list matches all.
    pub names: Vec<String>,
    /// Labels that a node must have, with patterns of their values.
    pub labels: Vec<(String, String)>,
    /// Fields of the kubelet in the entry that mean nothing here.
    pub not_used: Vec<Warning>,
}

/// How specific an entry is for a node; greater is more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Specificity {
    by_name: Closeness,
    labels: usize,
}

/// How specific an entry is for a node; `None` if it does not match.
///
/// # Errors
/// The field that needs an unknown fact of the node, and what to do.
fn specificity(
    entry: &Override,
    node: &NodeIdentity,
) -> Result<Option<Specificity>, (&'static str, &'static str)> {
    let by_name = match (entry.names.as_slice(), &node.name) {
        ([], _) => Some(Closeness::Pattern(0)),
        (_, None) => {
            let why = "this node's name is unknown: set NODE_NAME or --node-name";
            return Err(("names", why));
        }
        (names, Some(name)) => names.iter().filter_map(|one| closeness(one, name)).max(),
    };
    let labels = match (entry.labels.as_slice(), &node.labels) {
        ([], _) => true,
        (_, None) => {
            let why = "this node's labels are unknown: set NODE_LABELS or --node-labels";
            return Err(("labels", why));
        }
        (patterns, Some(Labels(labels))) => patterns.iter().all(|(key, pattern)| {
            labels.get(key).is_some_and(|value| closeness(pattern, value).is_some())
        }),
    };
    let labels = labels.then_some(entry.labels.len());
    Ok(by_name.zip(labels).map(|(by_name, labels)| Specificity { by_name, labels }))
}

/// The positions of the entries that match a node, the most specific last.
pub(super) fn matching(
    source: &Source,
    overrides: &[Override],
    node: &NodeIdentity,
) -> Result<Vec<usize>, ConfigError> {
    let mut matches = Vec::new();
    for (at, entry) in overrides.iter().enumerate() {
        let closeness =
            specificity(entry, node).map_err(|(field, why)| source.entry(at).at(field, why))?;
        matches.extend(closeness.map(|closeness| (closeness, at)));
    }
    matches.sort_unstable();
    Ok(matches.into_iter().map(|(_, at)| at).collect())
}

/// The entries of `nodes` in the file. An entry that is for no node, and a field in a place where it
/// means nothing, are mistakes.
pub(crate) fn overrides(source: &Source, mistakes: &mut Vec<ConfigError>) -> Vec<Override> {
    let (names, labels) = selected(source).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        Selection::default()
    });
    for (field, there) in [("names", !names.is_empty()), ("labels", !labels.is_empty())] {
        if there {
            mistakes.push(source.at(field, "only valid in an entry of nodes"));
        }
    }
    let mut overrides = Vec::new();
    for at in 0..entries(source).map_or(0, <[YamlNode]>::len) {
        match entry(&source.entry(at)) {
            Ok(one) => overrides.push(one),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    overrides
}

fn entry(source: &Source) -> Result<Override, ConfigError> {
    if !entries(source)?.is_empty() {
        return Err(source.at("nodes", "nested entries are not supported"));
    }
    if let Some(field) = HEADER.into_iter().find(|field| source.scope().field(field).is_some()) {
        return Err(source.at(field, "only valid for the whole file"));
    }
    let (names, labels) = selected(source)?;
    if names.iter().any(String::is_empty) {
        let why = "empty name: expected one like \"worker-1\" or \"gpu-*\"";
        return Err(source.at("names", why));
    }
    if names.is_empty() && labels.is_empty() {
        let why = "this entry matches no node: set names, labels or both";
        return Err(source.at("nodes", why));
    }
    let not_used = not_used::warnings(source.scope());
    Ok(Override { line: source.first_line(), names, labels, not_used })
}

pub(super) fn entries(source: &Source) -> Result<&[YamlNode], ConfigError> {
    let Some((key, nodes)) = source.scope().field("nodes") else { return Ok(&[]) };
    nodes.expect_items().map_err(|mistake| source.mistaken(mistake.on(key.line).within("nodes")))
}

type Selection = (Vec<String>, Vec<(String, String)>);
fn selected(source: &Source) -> Result<Selection, ConfigError> {
    let names: Vec<Text> = optional(source, "names")?;
    let Pairs(labels) = optional(source, "labels")?;
    Ok((names.into_iter().map(|Text(name)| name).collect(), labels))
}

/// The value of a field; empty without it.
fn optional<'a, T>(source: &'a Source, field: &'a str) -> Result<T, ConfigError>
where
    T: Deserialize<'a> + Default,
{
    let Some((key, node)) = source.scope().field(field) else { return Ok(T::default()) };
    Given { source, field, line: key.line, node }.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_text() {
        let labels: Labels = "pool=gpu, topology.kubernetes.io/zone=a,empty=".parse().unwrap();
        assert_eq!(labels.0.len(), 3);
        assert_eq!("".parse(), Ok(Labels::default()));
        for wrong in ["pool", "=gpu", "a=b,c"] {
            assert!(wrong.parse::<Labels>().unwrap_err().contains("KEY=VALUE"), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_with_more_literal_characters_is_closer() {
        let of = |pattern| closeness(pattern, "gpu-worker-12");
        assert_eq!(of("gpu-worker-1"), None);
        let order = ["*", "*-12", "gpu-*", "gpu-worker-??", "gpu-worker-12"].map(of);
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
    }
}
