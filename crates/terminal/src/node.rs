//! The identity of a node, for `nodes` in the configuration.

use clap::Args;
use config::{Config, ConfigError, Labels, NodeIdentity};

#[derive(Debug, Clone, Default, Args)]
pub struct NodeArgs {
    /// The node's name, for `nodes` in the configuration
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
    pub fn pick(&self, document: &Config) -> Result<Config, ConfigError> {
        let node = self.identity();
        if node.is_unknown() { document.with(&[]) } else { document.for_node(&node) }
    }
}
