//! The form of the file.

use super::entry::Entry;
use super::error::{ConfigError, Source};
use super::values::{Pairs, Shared, Text};
use crate::placement::{Options, TopologyManager};
use serde::Deserialize;

/// The file. Names and meaning of the first fields are KubeletConfiguration's
/// (`kubelet.config.k8s.io/v1beta1`), so that users can paste a block from there. The plugin's own
/// fields follow.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) cpu_manager_policy: Option<Text>,
    pub(super) cpu_manager_policy_options: Pairs,
    pub(super) topology_manager_policy: Option<Text>,
    pub(super) topology_manager_scope: Option<Text>,
    pub(super) topology_manager_policy_options: Pairs,
    #[serde(rename = "reservedSystemCPUs")]
    pub(super) reserved_system_cpus: Option<Text>,
    pub(super) system_reserved: Pairs,
    pub(super) kube_reserved: Pairs,
    /// The order in which `prefer-align-cpus-by-uncorecache` tries uncore caches.
    pub(super) uncore_cache_order: Option<Text>,
    /// The directory of the kubelet's state files; empty for none.
    pub(super) kubelet_state_dir: Option<Text>,
    /// What to do while the kubelet's own CPU manager is active.
    pub(super) on_active_kubelet: Option<Text>,
    /// What keeps other containers off exclusive CPUs.
    pub(super) exclusivity: Option<Text>,
    /// The type of an exclusive container's cpuset partition under `exclusivity: kernel`.
    pub(super) cpuset_partition: Option<Text>,
    /// Whether to refuse a container that would not run as decided.
    pub(super) strict: Option<Text>,
    /// Whether exclusive containers get their CPUs in environment variables.
    pub(super) expose_cpus: Option<Text>,
    /// The memory nodes of exclusive containers.
    pub(super) exclusive_mems: Option<Text>,
    /// What pods may wish for.
    pub(super) namespaces: Option<Shared<Entry>>,
    /// In an entry of `nodes` only: patterns of the nodes' names.
    pub(super) names: Vec<Text>,
    /// In an entry of `nodes` only: patterns of the nodes' labels.
    pub(super) labels: Pairs,
    /// Overrides for nodes; each entry has the form of a file.
    pub(super) nodes: Shared<File>,
}

impl File {
    pub(super) fn parse(source: &Source) -> Result<File, ConfigError> {
        // An empty document, or one of comments only, is null to YAML.
        let file: Option<File> =
            serde_yaml::from_str(&source.text).map_err(|error| source.yaml(&error))?;
        let file = file.unwrap_or_default();
        file.check_pairs(source)?;
        for (at, entry) in file.nodes.iter().enumerate() {
            entry.check_pairs(&source.entry(at))?;
        }
        Ok(file)
    }

    /// Checks names and values, whatever the policy is. Whether the options of several entries fit
    /// together shows where they are in force.
    fn check_pairs(&self, source: &Source) -> Result<(), ConfigError> {
        for (field, pairs) in [
            ("cpuManagerPolicyOptions", &self.cpu_manager_policy_options),
            ("topologyManagerPolicyOptions", &self.topology_manager_policy_options),
            ("systemReserved", &self.system_reserved),
            ("kubeReserved", &self.kube_reserved),
            ("labels", &self.labels),
        ] {
            if let Some(name) = pairs.twice() {
                return Err(source.at(field, format!("{name:?} stands twice")));
            }
        }
        Options::parse(self.cpu_manager_policy_options.borrowed())
            .map_err(|error| source.cpu_option(&error))?;
        TopologyManager::parse_options(self.topology_manager_policy_options.borrowed())
            .map_err(|error| source.topology_manager(&error))?;
        Ok(())
    }
}
