//! Which node a command is about, for the configuration's `nodes`.

use crate::config::{Config, ConfigError, Labels, NodeIdentity};
use clap::Args;

/// Arguments that tell the node.
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
    /// What was told. An empty name is none: so a variable arrives that was not filled in.
    pub fn identity(&self) -> NodeIdentity {
        NodeIdentity {
            name: self.node_name.clone().filter(|name| !name.is_empty()),
            labels: self.node_labels.clone(),
        }
    }

    /// What of a configuration is for this node. Where nothing is known of the node it is open
    /// which overrides are its: it is one that none matches then.
    ///
    /// # Errors
    /// If an entry asks for what was not told, or what entries say does not go together.
    pub(super) fn pick(&self, document: &Config) -> Result<Config, ConfigError> {
        let node = self.identity();
        match node.is_unknown() {
            true => document.with(&[]),
            false => document.for_node(&node),
        }
    }
}

/// Which overrides a configuration has in it, for the end of a sentence; nothing if none.
pub(super) fn overrides(lines: &[usize]) -> String {
    let list: Vec<String> = lines.iter().map(ToString::to_string).collect();
    match lines {
        [] => String::new(),
        [line] => format!(", with the override on line {line}"),
        _ => format!(", with the overrides on lines {}", list.join(", ")),
    }
}
