//! What the outside sees of the node: metrics, health, status, explanations and pictures, as pure
//! functions of one immutable [`NodeView`].
//!
//! `history` keeps what later explanations need; `counters` is what the ledger's owner counts.

pub mod badge;
pub(crate) mod config_state;
pub(crate) mod counters;
pub(crate) mod explanation;
pub mod figures;
pub(crate) mod fragmentation;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod metrics;
pub mod picture;
pub mod report;

pub(crate) use counters::Counters;
pub(crate) use figures::NodeFigures;
pub use figures::{Figures, Link};
pub(crate) use history::History;
pub use report::Status;

use crate::clock::Moment;
use crate::ledger::View;
use explanation::{Explanation, explain};
use std::sync::Arc;

/// All that can be shown of the node, as of one moment.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The data of metrics and health.
    pub figures: Figures,
    /// The ledger and the containers' history; `None` before there is a configuration.
    pub node: Option<(Arc<View>, Arc<History>)>,
}

impl NodeView {
    /// The status, with the date `at`.
    pub fn status(&self, at: Moment) -> Status {
        let node = self.node.as_ref().map(|(view, history)| (&**view, &**history));
        Status::of(at, &self.figures, node)
    }

    /// The explanations of all containers that `name` fits, see [`explain`].
    pub fn explain(&self, name: &str) -> Vec<Explanation> {
        match &self.node {
            Some((view, history)) => explain(view, history, name),
            None => Vec::new(),
        }
    }
}
