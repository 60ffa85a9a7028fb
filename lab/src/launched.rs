//! The plugin launched by the runtime, out of the runtime's own directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use nri_cpu_manager::checkpoint::StateDir;

use crate::cache;
use crate::instance::Instance;
use crate::node::Node;
use crate::plugin::Word;

/// Includes the time on emulated CPUs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A plugin that containerd starts and ends.
#[derive(Debug)]
pub struct Launched {
    executable: PathBuf,
    config: PathBuf,
    state: PathBuf,
    /// Only the state: it logs to the system's log.
    word: Word,
}

impl Launched {
    /// Puts an executable and its configuration where a runtime looks for them whose root directory
    /// is `root`; it does so when it is started. `state` is where that plugin keeps its state,
    /// which is removed.
    pub fn install(root: &Path, executable: &[u8], config: &str, state: &Path) -> Result<Self> {
        let launched = Self {
            executable: root.join("opt/nri/plugins/90-cpu-manager"),
            config: root.join("etc/nri/conf.d/cpu-manager.conf"),
            state: state.to_path_buf(),
            word: Word::at(None, state.to_path_buf()),
        };
        cache::remove(state)?;
        write(&launched.config, config.as_bytes())?;
        write(&launched.executable, executable)?;
        fs::set_permissions(&launched.executable, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot permit {}", launched.executable.display()))?;
        Ok(launched)
    }

    /// The runtime does not launch it again.
    pub fn uninstall(&self) -> Result<()> {
        cache::remove(&self.executable)?;
        cache::remove(&self.config)
    }

    /// Waits until it has ended, as it does with its connection: its state is free for another
    /// instance.
    pub fn wait_for_end(&self) -> Result<()> {
        let start = Instant::now();
        while let Err(error) = StateDir::open(&self.state) {
            ensure!(
                start.elapsed() < PATIENCE,
                "the plugin outlives the runtime that launched it: {error}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// It starts and ends with the runtime, so signals of its own are not supported.
impl Instance for Launched {
    fn start(&mut self, node: &mut Node) -> Result<()> {
        node.restart_runtime()
    }

    fn end(&mut self, _: &mut Node, signal: Signal) -> Result<()> {
        bail!("the plugin ends with the runtime that launched it, and gets no {signal} of its own")
    }

    fn configure(&mut self, config: &str) -> Result<()> {
        write(&self.config, config.as_bytes())
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
        bail!("the process that the runtime has launched is not known")
    }

    fn word(&self) -> &Word {
        &self.word
    }

    fn log(&self) -> String {
        self.word.log()
    }

    /// A runtime that is ready has synchronised with the plugins it launched.
    fn wait_for_synchronisation(&mut self, _: &Node, _: usize, _: Duration) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
