//! The node that a command is about, for the configuration's `nodes`.

use crate::config::{Config, ConfigError, Labels, NodeIdentity};
use clap::Args;

/// Arguments that describe the node.
#[derive(Debug, Clone, Default, Args)]
pub struct NodeArgs {
    /// The node's name in Kubernetes, for `nodes` in the configuration
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// The node's labels, for `nodes` in the configuration
    #[arg(long, value_name = "KEY=VALUE,...", env = "NODE_LABELS")]
    pub node_labels: Option<Labels>,
}

impl NodeArgs {
    /// An empty name counts as none: a manifest that does not fill in its variable passes one.
    pub fn identity(&self) -> NodeIdentity {
        NodeIdentity {
            name: self.node_name.clone().filter(|name| !name.is_empty()),
            labels: self.node_labels.clone(),
        }
    }

    /// The configuration of this node; of an unknown node, the configuration without overrides.
    ///
    /// # Errors
    /// If an entry needs an unknown fact of the node, or entries contradict each other.
    pub(super) fn pick(&self, document: &Config) -> Result<Config, ConfigError> {
        let node = self.identity();
        match node.is_unknown() {
            true => document.with(&[]),
            false => document.for_node(&node),
        }
    }
}

/// The lines of the applied overrides, for the end of a sentence; empty without overrides.
pub(super) fn overrides(lines: &[usize]) -> String {
    let list: Vec<String> = lines.iter().map(ToString::to_string).collect();
    match lines {
        [] => String::new(),
        [line] => format!(", with the override on line {line}"),
        _ => format!(", with the overrides on lines {}", list.join(", ")),
    }
}
