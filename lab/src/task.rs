//! What is done on an empty node: on this machine, or in a virtual machine, which sends the result.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};

use crate::cgroup_model::{self, ComparisonSettings};
use crate::chaos::command::StormTask;
use crate::demo::Example;
use crate::latency::LatencySettings;
use crate::scenario::Scenario;
use crate::scenario::shape::Shape;
use crate::testbed::Testbed;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// By its name.
    Scenario(String, Shape),
    Example(Example),
    Storm(StormTask),
    /// Without a plugin.
    Latency(LatencySettings),
    /// For so many seconds per mode; without a plugin, in virtual machines with devices only.
    Foreign(u64),
    /// Random cgroup actions, each compared with the plugin's model. In virtual machines only.
    CompareCgroups(ComparisonSettings),
    /// Crash the kernel: on virtual machines only.
    Panic,
}

impl Task {
    /// The result is what the caller expects of this kind of task.
    pub fn run(&self, testbed: &mut Testbed<'_>) -> Result<Value> {
        let result = match self {
            Self::Scenario(name, shape) => to_value(Scenario::named(name)?.play(testbed, shape)?),
            Self::Example(example) => to_value(example.play(testbed)?),
            Self::Storm(task) => to_value(task.run(testbed)?),
            Self::Latency(settings) => to_value(testbed.latency(settings)?),
            Self::Foreign(seconds) => to_value(testbed.foreign(*seconds)?),
            Self::CompareCgroups(settings) => {
                testbed.begin("compare the cgroup model with the kernel");
                to_value(cgroup_model::compare(settings)?)
            }
            Self::Panic => {
                testbed.begin("crash the kernel");
                std::fs::write("/proc/sysrq-trigger", "c").context("cannot crash the kernel")?;
                bail!("the kernel has not crashed")
            }
        };
        result.context("cannot encode the result")
    }
}
