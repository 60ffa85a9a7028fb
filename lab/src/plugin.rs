//! The plugin as a process: started, killed, and its own word read (log and state file).

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nri_cpu_manager::cpuset::CpuSet;
use serde::Deserialize;

use crate::command::{command, last_lines};
use crate::process;

/// What the plugin's log says when it has taken over the node.
const READY: &str = "synchronised with";

/// How to start a plugin.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The program.
    pub program: PathBuf,
    /// A directory for its configuration, state and log; kept between starts.
    pub directory: PathBuf,
    /// The runtime's NRI socket.
    pub socket: PathBuf,
    /// Its configuration, as YAML.
    pub config: String,
}

/// The configuration's file, in a directory that looks as the kubelet makes one for a ConfigMap.
const CONFIG: &str = "config/config.yaml";

impl Setup {
    /// Writes the configuration as the kubelet changes a mounted ConfigMap: a new directory is filled, then the link
    /// `..data` is renamed over the old one, so that a reader sees all of it or nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_config(&self) -> Result<()> {
        let mount = self.directory.join("config");
        let number = fs::read_dir(&mount).map_or(0, |entries| entries.count());
        let data = format!("..{number}");
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(mount.join(&data))?;
            fs::write(mount.join(&data).join("config.yaml"), &self.config)?;
            symlink(&data, mount.join("..data_tmp"))?;
            fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
            match symlink("..data/config.yaml", mount.join("config.yaml")) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        };
        write().with_context(|| format!("cannot write the configuration to {}", mount.display()))
    }

    /// What plugins of this setup logged, over all starts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("plugin.log")).unwrap_or_default()
    }
}

/// A running plugin.
#[derive(Debug)]
pub struct Plugin {
    setup: Setup,
    child: Child,
    /// Where this start's part of the log begins.
    log_start: usize,
}

/// What the state file says of one container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Assignment {
    /// The pod's name.
    pub pod: String,
    /// The container's name in the pod.
    pub container: String,
    /// Its exclusive CPUs.
    pub cpus: String,
}

#[derive(Deserialize)]
struct Checkpoint {
    state: State,
}

#[derive(Deserialize)]
struct State {
    containers: Vec<Assignment>,
}

impl Plugin {
    /// Starts it and waits until it has synchronised with the runtime.
    ///
    /// # Errors
    /// When it ends or does not synchronise; the error ends with the last lines of its log.
    pub fn start(setup: &Setup) -> Result<Self> {
        let mut plugin = Self::launch(setup)?;
        plugin.wait_for(READY, 1, Duration::from_secs(30))?;
        Ok(plugin)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn launch(setup: &Setup) -> Result<Self> {
        let config = setup.directory.join(CONFIG);
        let state = setup.directory.join("state");
        fs::create_dir_all(&state).with_context(|| format!("cannot make {}", state.display()))?;
        setup.write_config()?;
        let log_path = setup.directory.join("plugin.log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .context("cannot open the plugin's log")?;
        let log_start = fs::read_to_string(&log_path).map_or(0, |text| text.len());
        let child = command(&setup.program, ["run"])
            .args([Path::new("--config"), &config, Path::new("--state-dir"), &state])
            .args([Path::new("--socket"), &setup.socket])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", setup.program.display()))?;
        Ok(Self { setup: setup.clone(), child, log_start })
    }

    /// Waits until the log of this start has said `text` at least `count` times.
    ///
    /// # Errors
    /// When the plugin ends before, or does not say so in time.
    pub fn wait_for(&mut self, text: &str, count: usize, patience: Duration) -> Result<Duration> {
        let start = Instant::now();
        while self.log().matches(text).count() < count {
            let ended = self.child.try_wait().context("cannot look after the plugin")?;
            if ended.is_some() || start.elapsed() > patience {
                bail!(
                    "the plugin did not say {text:?} ({count} times) within {:.1} s ({}); its last words:\n{}",
                    start.elapsed().as_secs_f64(),
                    ended.map_or("still running".to_owned(), |status| status.to_string()),
                    last_lines(&self.log(), 15)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(start.elapsed())
    }

    /// How often it has synchronised with a runtime since this start.
    #[must_use]
    pub fn synchronisations(&self) -> usize {
        self.log().matches(READY).count()
    }

    /// Waits until it has synchronised `count` times since this start: once, and once more for each reconnection.
    ///
    /// # Errors
    /// When it does not do so in time.
    pub fn wait_for_synchronisation(
        &mut self,
        count: usize,
        patience: Duration,
    ) -> Result<Duration> {
        self.wait_for(READY, count, patience)
    }

    /// Waits for it to end by itself.
    ///
    /// # Errors
    /// When it still runs after `patience`.
    pub fn wait_for_end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Some(status) = self.child.try_wait().context("cannot look after the plugin")? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the plugin still runs after {:.1} s", patience.as_secs_f64())
    }

    /// Sends a signal and waits for its end.
    ///
    /// # Errors
    /// When its end cannot be observed.
    pub fn end(mut self, signal: Signal) -> Result<ExitStatus> {
        process::end(&mut self.child, signal, Duration::from_secs(10))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged since this start.
    #[must_use]
    pub fn log(&self) -> String {
        let text = self.setup.log();
        text.get(self.log_start..).unwrap_or_default().to_owned()
    }

    /// The exclusive assignments in its state file.
    ///
    /// # Errors
    /// When the file cannot be read or understood.
    pub fn assignments(&self) -> Result<Vec<Assignment>> {
        let path = self.setup.directory.join("state/checkpoint.json");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let checkpoint: Checkpoint = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a state file", path.display()))?;
        Ok(checkpoint.state.containers)
    }

    /// The exclusive CPUs the state file gives to a container, if any.
    ///
    /// # Errors
    /// As [`assignments`](Self::assignments).
    pub fn decided(&self, pod: &str, container: &str) -> Result<Option<CpuSet>> {
        let assignments = self.assignments()?;
        let found = assignments.iter().find(|a| a.pod == pod && a.container == container);
        found
            .map(|a| a.cpus.parse().with_context(|| format!("the state file says {:?}", a.cpus)))
            .transpose()
    }
}

/// A plugin that nobody ended is ended with its test.
impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, Signal::SIGKILL, Duration::from_secs(5));
    }
}
