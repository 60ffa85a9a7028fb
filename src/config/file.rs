//! The file as YAML.

use super::memory_only;
use super::namespaces::{Entry, EntryPolicy};
use super::pasted;
use super::pod_resources;
use super::rebalance;
use super::source::{ConfigError, Source};
use super::values::{CpuList, Pairs, Text, shared, shared_if_set};
use placement::{Options, TopologyManager};
use serde::Deserialize;
use std::sync::Arc;

/// The resources that a kubelet can reserve. Only `cpu` counts here.
const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// Names and meaning of the first fields are KubeletConfiguration's
/// (`kubelet.config.k8s.io/v1beta1`), so that users can paste a block from there. The plugin's own
/// fields follow; docs/configuration.md is their reference.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) cpu_manager_policy: Option<Text>,
    pub(super) cpu_manager_policy_options: Pairs,
    pub(super) topology_manager_policy: Option<Text>,
    pub(super) topology_manager_scope: Option<Text>,
    pub(super) topology_manager_policy_options: Pairs,
    #[serde(rename = "reservedSystemCPUs")]
    pub(super) reserved_system_cpus: Option<Box<CpuList>>,
    pub(super) system_reserved: Pairs,
    pub(super) kube_reserved: Pairs,
    pub(super) uncore_cache_order: Option<Text>,
    pub(super) placement: Option<Text>,
    pub(super) kubelet_state_dir: Option<Text>,
    pub(super) on_active_kubelet: Option<Text>,
    pub(super) exclusivity: Option<Text>,
    pub(super) cpuset_partition: Option<Text>,
    pub(super) strict: Option<Text>,
    pub(super) expose_cpus: Option<Text>,
    pub(super) notice_seconds: Option<Text>,
    pub(super) exclusive_mems: Option<Text>,
    pub(super) memory_only_nodes: Option<memory_only::List>,
    pub(super) rebalance: Option<rebalance::Fields>,
    pub(super) pod_resources: Option<pod_resources::Fields>,
    #[serde(deserialize_with = "shared_if_set")]
    pub(super) namespaces: Option<Arc<[Entry]>>,
    /// Only in an entry of `nodes`.
    pub(super) names: Vec<Text>,
    /// Only in an entry of `nodes`.
    pub(super) labels: Pairs,
    /// Overrides for nodes, in the same format.
    #[serde(deserialize_with = "shared")]
    pub(super) nodes: Arc<[File]>,
}

impl File {
    pub(super) fn parse(source: &Source) -> Result<File, ConfigError> {
        pasted::refuse(source)?;
        // An empty document, or one of comments only, is null to YAML.
        let file = Option::<File>::deserialize(&*source.root);
        let file = file.map_err(|mistake| source.mistaken(&mistake))?.unwrap_or_default();
        file.check_pairs(source)?;
        for (at, entry) in file.nodes.iter().enumerate() {
            entry.check_pairs(&source.entry(at))?;
        }
        file.check_namespaces(source)?;
        Ok(file)
    }

    /// The amounts that are reserved, by field.
    pub(super) fn amounts(&self) -> [(&'static str, &Pairs); 2] {
        [("systemReserved", &self.system_reserved), ("kubeReserved", &self.kube_reserved)]
    }

    fn is_static(&self) -> Option<bool> {
        self.cpu_manager_policy.as_ref().map(|Text(policy)| policy == "static")
    }

    /// Refuses `cpuManagerPolicy: static` in an entry of `namespaces` if every node with this list has
    /// the policy `none`: the entry could have no effect.
    fn check_namespaces(&self, source: &Source) -> Result<(), ConfigError> {
        let somewhere = self.is_static() == Some(true)
            || self.nodes.iter().any(|node| node.is_static() == Some(true));
        self.check_namespaces_under(source, somewhere)?;
        for (at, node) in self.nodes.iter().enumerate() {
            node.check_namespaces_under(&source.entry(at), node.is_static().unwrap_or(somewhere))?;
        }
        Ok(())
    }

    fn check_namespaces_under(&self, source: &Source, is_static: bool) -> Result<(), ConfigError> {
        for (at, entry) in self.namespaces.iter().flat_map(|entries| entries.iter()).enumerate() {
            if !is_static && matches!(entry.cpu_manager_policy, Some(EntryPolicy::Static)) {
                let first = entry.names.first().map_or("", |Text(name)| name);
                let why = format!(
                    "{first:?} has cpuManagerPolicy: static on a node with none. For exclusive CPUs in some namespaces \
                     only, set static and reserved CPUs for the node, and none for {{names: [\"*\"]}}"
                );
                return Err(source.at_item("namespaces", at, why));
            }
        }
        Ok(())
    }

    /// Checks names and values under every policy. Whether the options of several entries go together
    /// shows only where they are in force.
    fn check_pairs(&self, source: &Source) -> Result<(), ConfigError> {
        for (field, amounts) in self.amounts() {
            let unknown = amounts.0.iter().find(|(name, _)| !RESOURCES.contains(&name.as_str()));
            if let Some((name, _)) = unknown {
                return Err(source.at(field, wording::unknown(name, &RESOURCES)));
            }
        }
        Options::parse(self.cpu_manager_policy_options.borrowed())
            .map_err(|error| source.cpu_option(&error))?;
        TopologyManager::parse_options(self.topology_manager_policy_options.borrowed())
            .map_err(|error| source.topology_manager(&error))?;
        Ok(())
    }
}
