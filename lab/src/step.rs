//! What happens on a node, as data: a script of steps, and what came of each.
//!
//! The same script runs on this machine and in a virtual server; only its outcomes travel back.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::node::Node;
use crate::plugin::{self, Plugin};
use crate::pod::Pod;
use crate::process;
use crate::view::View;

/// One thing to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// Start the plugin with this configuration and no memory of earlier runs.
    StartPlugin(String),
    /// Kill the plugin with SIGKILL and start it again, with the memory it has.
    KillPlugin,
    /// Kill the runtime with SIGKILL and start it again: the plugin has to come back by itself.
    KillRuntime,
    /// Start a pod; refusing it is an outcome, not a failure.
    Run(Pod),
    /// Remove a pod.
    Remove(String),
    /// Look at the node: what the processes say, beside what was decided.
    Look,
    /// How much memory the plugin uses.
    Measure,
    /// Remove every pod and end the plugin: the next step starts with an empty node.
    Clear,
}

/// What came of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The runtime refused the pod, with these words.
    Refused(String),
    /// After how many milliseconds the plugin had synchronised with the runtime that came back.
    Reconnected(u64),
    /// What the node looks like.
    View(View),
    /// The plugin's resident memory in KiB.
    Resident(u64),
}

/// Carries out steps on a node, with one plugin at most.
#[derive(Debug)]
pub struct Player<'a> {
    node: &'a mut Node,
    program: &'a Path,
    plugin: Option<(plugin::Setup, Plugin)>,
}

impl<'a> Player<'a> {
    /// On this node, with the plugin of this program.
    #[must_use]
    pub fn new(node: &'a mut Node, program: &'a Path) -> Self {
        Self { node, program, plugin: None }
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// When the lab, the runtime or the plugin fails at it.
    pub fn play(&mut self, step: &Step) -> Result<Outcome> {
        let what = step.describe();
        self.act(step).with_context(|| format!("step failed: {what}")).map_err(|error| match &self
            .plugin
        {
            Some((_, plugin)) => error.context(format!(
                "the plugin's last words:\n{}",
                crate::command::last_lines(&plugin.log(), 10)
            )),
            None => error,
        })
    }

    fn act(&mut self, step: &Step) -> Result<Outcome> {
        match step {
            Step::StartPlugin(config) => {
                self.plugin = None;
                let setup = self.node.plugin(self.program, config)?;
                let plugin = Plugin::start(&setup)?;
                self.plugin = Some((setup, plugin));
            }
            Step::KillPlugin => {
                let (setup, plugin) = self.plugin.take().context("there is no plugin to kill")?;
                plugin.end(Signal::SIGKILL)?;
                let plugin = Plugin::start(&setup)?;
                self.plugin = Some((setup, plugin));
            }
            Step::KillRuntime => return self.kill_runtime(),
            Step::Run(pod) => {
                if let Err(error) = self.node.run(pod) {
                    return Ok(Outcome::Refused(format!("{error:#}")));
                }
            }
            Step::Remove(pod) => self.node.remove(pod)?,
            Step::Look => {
                let plugin = self.plugin.as_ref().map(|(_, plugin)| plugin);
                return View::of(self.node, plugin).map(Outcome::View);
            }
            Step::Measure => {
                let (_, plugin) = self.plugin.as_ref().context("there is no plugin to measure")?;
                return process::resident_kib(plugin.pid()).map(Outcome::Resident);
            }
            Step::Clear => {
                self.node.remove_all()?;
                if let Some((_, plugin)) = self.plugin.take() {
                    plugin.end(Signal::SIGTERM)?;
                }
            }
        }
        Ok(Outcome::Done)
    }

    fn kill_runtime(&mut self) -> Result<Outcome> {
        let (_, plugin) =
            self.plugin.as_mut().context("there is no plugin that could come back")?;
        let before = plugin.synchronisations();
        self.node.kill_runtime()?;
        self.node.restart_runtime()?;
        let waited = plugin.wait_for_synchronisation(before + 1, Duration::from_secs(30))?;
        Ok(Outcome::Reconnected(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Step {
    /// In a person's words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::StartPlugin(_) => "start the plugin".to_owned(),
            Self::KillPlugin => "kill the plugin and start it again".to_owned(),
            Self::KillRuntime => "kill containerd and start it again".to_owned(),
            Self::Run(pod) => {
                format!("start pod {} ({:?}, {})", pod.name, pod.qos(), pod.describe_cpus())
            }
            Self::Remove(pod) => format!("remove pod {pod}"),
            Self::Look => "look at every container's process".to_owned(),
            Self::Measure => "measure the plugin's memory".to_owned(),
            Self::Clear => "empty the node".to_owned(),
        }
    }
}
