//! The plugin launched by the runtime from its plugin directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use state::checkpoint::StateDir;
use state::disk::Disk;

use crate::cache;
use crate::command::poll;
use crate::files;
use crate::instance::Instance;
use crate::node::Node;
use crate::plugin::PluginFiles;

/// Includes the time on emulated CPUs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A plugin that containerd starts and ends.
#[derive(Debug)]
pub struct Launched {
    executable: PathBuf,
    config: PathBuf,
    state: PathBuf,
    /// Only the state: it logs to the system's log.
    files: PluginFiles,
}

impl Launched {
    /// Installs the plugin and its configuration below the root directory of a runtime, which
    /// launches it at its next start. Removes the state in `state`.
    pub fn install(root: &Path, executable: &[u8], config: &str, state: &Path) -> Result<Self> {
        let launched = Self {
            executable: root.join("opt/nri/plugins/90-cpu-manager"),
            config: root.join("etc/nri/conf.d/cpu-manager.conf"),
            state: state.to_path_buf(),
            files: PluginFiles::at(None, state.to_path_buf()),
        };
        cache::remove(state)?;
        files::write(&launched.config, config)?;
        files::write(&launched.executable, executable)?;
        fs::set_permissions(&launched.executable, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} executable", launched.executable.display()))?;
        Ok(launched)
    }

    /// The runtime does not launch it again.
    pub fn uninstall(&self) -> Result<()> {
        cache::remove(&self.executable)?;
        cache::remove(&self.config)
    }

    /// Waits until it has ended with its connection, and its state directory is free.
    pub fn wait_for_end(&self) -> Result<()> {
        let disk = Disk::start()?;
        poll(PATIENCE, || Ok(StateDir::open(&self.state, &disk).ok()))?
            .context("the plugin outlives the runtime that launched it: its state is in use")?;
        Ok(())
    }
}

/// It starts and ends with the runtime, so signals of its own are not supported.
impl Instance for Launched {
    fn start(&mut self, node: &mut Node) -> Result<()> {
        node.restart_runtime()
    }

    fn end(&mut self, _: &mut Node, signal: Signal) -> Result<()> {
        bail!("cannot send {signal}: the plugin ends with the runtime that launched it")
    }

    fn configure(&mut self, config: &str) -> Result<()> {
        files::write(&self.config, config)
    }

    fn remove(&mut self, node: &mut Node) -> Result<()> {
        self.uninstall()?;
        node.restart_runtime()?;
        self.wait_for_end()
    }

    fn ended(&mut self, _: &Node) -> Result<Option<String>> {
        Ok(None)
    }

    fn pid(&self) -> Result<u32> {
        bail!("the pid of a launched plugin is not known")
    }

    fn files(&self) -> &PluginFiles {
        &self.files
    }

    fn log(&self) -> String {
        self.files.log()
    }

    /// A runtime that is ready has synchronised with the plugins it launched.
    fn wait_for_synchronisation(&mut self, _: &Node, _: usize, _: Duration) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}
