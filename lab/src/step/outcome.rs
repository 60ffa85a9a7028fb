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

/// What came of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The runtime refused the pod or the resize, with these words.
    Refused(String),
    /// After how many milliseconds the plugin had synchronised with the runtime that came back.
    Reconnected(u64),
    /// What the node looks like.
    View(View),
    /// Whether the node has come to be as decided.
    Settled(Settled),
    /// What was seen while other steps were carried out.
    Watched(Watched),
    /// What a container's first process saw.
    First(First),
    /// What a file or the plugin's log says.
    Text(String),
    /// What the process in the plugin's pod may do.
    Confinement(Confinement),
    /// Whether it has.
    KernelWarned(bool),
    /// The plugin's resident memory in KiB.
    Resident(u64),
    /// Periods in which a container and its pod were throttled.
    Throttled {
        /// By the container's own quota.
        container: u64,
        /// By the pod's.
        pod: u64,
    },
    /// How long exclusive containers took.
    Latency(Vec<latency::Row>),
    /// How long writes to a class took.
    ClassWrites(Vec<latency::ClassWrite>),
    /// What came of a storm.
    Storm(chaos::Summary),
    /// Whether the kernel's groups are as the model's.
    Cgroups(Comparison),
    /// What all cgroups say.
    Groups(GroupTree),
}

/// How a node has come to be as decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settled {
    /// After how many milliseconds it was; or that the time was over.
    pub millis: u64,
    /// What was not as decided at the first look, in words.
    pub first: Vec<String>,
    /// What was not at the last one.
    pub last: Vec<String>,
}
