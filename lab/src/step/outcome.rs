//! What came of steps.

use serde::{Deserialize, Serialize};

use crate::cgroup_model::Comparison;
use crate::chaos::summary as chaos;
use crate::daemonset::Confinement;
use crate::group_tree::GroupTree;
use crate::latency::figures as latency;
use crate::node::First;
use crate::overlap::Watched;
use crate::view::View;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    /// The runtime refused the pod or the resize, with these words.
    Refused(String),
    /// Milliseconds until the plugin had synchronised again.
    Reconnected(u64),
    View(View),
    /// Whether all containers reached their decided state.
    Settled(Settled),
    Watched(Watched),
    First(First),
    Text(String),
    Confinement(Confinement),
    /// Whether the kernel is tainted.
    KernelWarned(bool),
    Resident(u64),
    /// Throttled periods.
    Throttled {
        container: u64,
        pod: u64,
    },
    Latency(Vec<latency::Row>),
    ClassWrites(Vec<latency::ClassWrite>),
    Storm(chaos::Summary),
    /// Comparison of the cgroup model with the kernel.
    Cgroups(Comparison),
    Groups(GroupTree),
}

/// How a node has come to be as decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settled {
    /// Milliseconds.
    pub millis: u64,
    /// What was not as decided at the first look, in words.
    pub first: Vec<String>,
    /// What was not at the last one.
    pub last: Vec<String>,
}
