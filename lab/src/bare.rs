//! The plugin as a plain process with full root privileges, where the shipped pod does not serve.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::instance::Instance;
use crate::node::Node;
use crate::plugin::{Plugin, PluginFiles, PluginSetup};

/// The plugin as a plain process with full root privileges.
#[derive(Debug)]
pub struct Bare {
    setup: PluginSetup,
    /// None while it is ended.
    process: Option<Plugin>,
    files: PluginFiles,
}

impl Bare {
    /// Starts it with this configuration and no state. Does not wait until it is ready.
    pub fn install(node: &Node, program: &Path, config: &str) -> Result<Self> {
        let setup = node.plugin(program, config)?;
        let process = Plugin::launch(&setup)?;
        let files = process.files().clone();
        Ok(Self { setup, process: Some(process), files })
    }
}

impl Instance for Bare {
    fn start(&mut self, _: &mut Node) -> Result<()> {
        ensure!(self.process.is_none(), "the plugin still runs");
        let process = Plugin::launch(&self.setup)?;
        self.files = process.files().clone();
        self.process = Some(process);
        Ok(())
    }

    fn end(&mut self, _: &mut Node, signal: Signal) -> Result<()> {
        let process = self.process.take().context("the plugin does not run")?;
        let status = process.end(signal)?;
        let killed = signal != Signal::SIGKILL && status.code().is_none();
        ensure!(!killed, "the plugin did not end on {signal} and was killed");
        Ok(())
    }

    fn configure(&mut self, config: &str) -> Result<()> {
        config.clone_into(&mut self.setup.config);
        self.setup.write_config()
    }

    fn remove(&mut self, node: &mut Node) -> Result<()> {
        if self.process.is_some() { self.end(node, Signal::SIGTERM) } else { Ok(()) }
    }

    fn ended(&mut self, _: &Node) -> Result<Option<String>> {
        match &mut self.process {
            Some(process) => process.ended(),
            None => Ok(Some("ended by the lab".to_owned())),
        }
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.process.as_ref().context("the plugin does not run")?.pid())
    }

    fn files(&self) -> &PluginFiles {
        &self.files
    }

    fn log(&self) -> String {
        self.setup.log()
    }
}
