//! Overrides for nodes: the fields of an entry of `nodes` replace those of the file on the nodes
//! that its names and labels match.
//!
//! All entries that match a node apply, and more specific ones replace others: a name is more
//! specific than a pattern, then a pattern with more characters that are not wildcards, then more
//! labels. Of equals the later one in the file wins.

use super::file::File;
use super::source::{ConfigError, Source};
use super::values::{Pairs, Text};
use ledger::pattern::{Closeness, closeness};
use std::collections::BTreeMap;
use std::str::FromStr;

/// What is known of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: Option<String>,
    /// Those that the configuration uses suffice.
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
    entry: &File,
    node: &NodeIdentity,
) -> Result<Option<Specificity>, (&'static str, &'static str)> {
    let by_name = match (entry.names.as_slice(), &node.name) {
        ([], _) => Some(Closeness::Pattern(0)),
        (_, None) => {
            let why = "this node's name is unknown: set NODE_NAME or --node-name";
            return Err(("names", why));
        }
        (names, Some(name)) => names.iter().filter_map(|Text(one)| closeness(one, name)).max(),
    };
    let labels = match (entry.labels.0.as_slice(), &node.labels) {
        ([], _) => true,
        (_, None) => {
            let why = "this node's labels are unknown: set NODE_LABELS or --node-labels";
            return Err(("labels", why));
        }
        (wanted, Some(Labels(labels))) => wanted.iter().all(|(key, pattern)| {
            labels.get(key).is_some_and(|value| closeness(pattern, value).is_some())
        }),
    };
    let labels = labels.then_some(entry.labels.0.len());
    Ok(by_name.zip(labels).map(|(by_name, labels)| Specificity { by_name, labels }))
}

/// The positions of the entries that match a node, the most specific last.
pub(super) fn matching(
    source: &Source,
    file: &File,
    node: &NodeIdentity,
) -> Result<Vec<usize>, ConfigError> {
    let mut matches = Vec::new();
    for (at, entry) in file.nodes.iter().enumerate() {
        let closeness = specificity(entry, node)
            .map_err(|(field, why)| source.entry(at).at(field, why.to_owned()))?;
        matches.extend(closeness.map(|closeness| (closeness, at)));
    }
    matches.sort_unstable();
    Ok(matches.into_iter().map(|(_, at)| at).collect())
}

/// Checks the fields that only entries, or only the file itself, may have.
pub(super) fn check(source: &Source, file: &File) -> Result<(), ConfigError> {
    for (field, there) in [("names", !file.names.is_empty()), ("labels", !file.labels.0.is_empty())]
    {
        if there {
            return Err(source.at(field, "only valid in an entry of nodes".to_owned()));
        }
    }
    for (at, entry) in file.nodes.iter().enumerate() {
        let wrong = |field, why: &str| Err(source.entry(at).at(field, why.to_owned()));
        if !entry.nodes.is_empty() {
            return wrong("nodes", "nested entries are not supported");
        }
        if entry.names.iter().any(|name| name.0.is_empty()) {
            return wrong("names", "empty name: expected one like \"worker-1\" or \"gpu-*\"");
        }
        if entry.names.is_empty() && entry.labels.0.is_empty() {
            return wrong("nodes", "this entry matches no node: set names, labels or both");
        }
    }
    Ok(())
}

/// The file with the fields of an entry instead of its own.
///
/// Options and amounts merge by their names, as maps do in Helm and kustomize. The result lacks
/// what the entry made meaningless: options of a policy that it ends, and the list of reserved CPUs
/// if it gives an amount.
pub(super) fn overlaid(base: File, entry: &File) -> File {
    // The pattern names every field, so that the compiler finds a forgotten one.
    let File {
        cpu_manager_policy,
        cpu_manager_policy_options,
        topology_manager_policy,
        topology_manager_scope,
        topology_manager_policy_options,
        reserved_system_cpus,
        system_reserved,
        kube_reserved,
        uncore_cache_order,
        placement,
        kubelet_state_dir,
        on_active_kubelet,
        exclusivity,
        cpuset_partition,
        strict,
        expose_cpus,
        notice_seconds,
        exclusive_mems,
        memory_only_nodes,
        rebalance,
        pod_resources,
        namespaces,
        names: _,
        labels: _,
        nodes: _,
    } = entry.clone();
    let ends_policy = cpu_manager_policy.as_ref().is_some_and(|policy| policy.0 != "static");
    let amount = !(system_reserved.0.is_empty() && kube_reserved.0.is_empty());
    let options = if ends_policy { Pairs::default() } else { base.cpu_manager_policy_options };
    let list = if amount { None } else { base.reserved_system_cpus };
    File {
        cpu_manager_policy: cpu_manager_policy.or(base.cpu_manager_policy),
        cpu_manager_policy_options: options.merged(cpu_manager_policy_options),
        topology_manager_policy: topology_manager_policy.or(base.topology_manager_policy),
        topology_manager_scope: topology_manager_scope.or(base.topology_manager_scope),
        topology_manager_policy_options: base
            .topology_manager_policy_options
            .merged(topology_manager_policy_options),
        reserved_system_cpus: reserved_system_cpus.or(list),
        system_reserved: base.system_reserved.merged(system_reserved),
        kube_reserved: base.kube_reserved.merged(kube_reserved),
        uncore_cache_order: uncore_cache_order.or(base.uncore_cache_order),
        placement: placement.or(base.placement),
        kubelet_state_dir: kubelet_state_dir.or(base.kubelet_state_dir),
        on_active_kubelet: on_active_kubelet.or(base.on_active_kubelet),
        exclusivity: exclusivity.or(base.exclusivity),
        cpuset_partition: cpuset_partition.or(base.cpuset_partition),
        strict: strict.or(base.strict),
        expose_cpus: expose_cpus.or(base.expose_cpus),
        notice_seconds: notice_seconds.or(base.notice_seconds),
        exclusive_mems: exclusive_mems.or(base.exclusive_mems),
        memory_only_nodes: memory_only_nodes.or(base.memory_only_nodes),
        rebalance: rebalance.or(base.rebalance),
        pod_resources: pod_resources.or(base.pod_resources),
        // The list is one value: a merged list would allow wishes that the override does not show.
        namespaces: namespaces.or(base.namespaces),
        names: base.names,
        labels: base.labels,
        nodes: base.nodes,
    }
}

/// An entry, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The line it begins on, counted from 1.
    pub line: usize,
    /// Names and patterns of nodes; an empty list matches all.
    pub names: Vec<String>,
    /// Labels that a node must have, with patterns of their values.
    pub labels: Vec<(String, String)>,
}

pub(super) fn overrides(source: &Source, file: &File) -> Vec<Override> {
    let entry = |(at, entry): (usize, &File)| Override {
        line: source.entry(at).first_line(),
        names: entry.names.iter().map(|name| name.0.clone()).collect(),
        labels: entry.labels.0.clone(),
    };
    file.nodes.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_as_text() {
        let labels: Labels = "pool=gpu, topology.kubernetes.io/zone=a,empty=".parse().unwrap();
        assert_eq!(labels.0.len(), 3);
        assert_eq!("".parse(), Ok(Labels::default()));
        for wrong in ["pool", "=gpu", "a=b,c"] {
            assert!(wrong.parse::<Labels>().unwrap_err().contains("KEY=VALUE"), "{wrong}");
        }
    }

    #[test]
    fn closer_and_less_close() {
        let of = |pattern| closeness(pattern, "gpu-worker-12");
        assert_eq!(of("gpu-worker-1"), None);
        let order = ["*", "*-12", "gpu-*", "gpu-worker-??", "gpu-worker-12"].map(of);
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
    }
}
