//! A containerd with NRI in its own directories, which are removed with all its processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cgroup::Driver;
use crate::command::{command, last_lines, poll, run};
use crate::cri::{Cri, wire};
use crate::{files, process};

mod config;
mod leftovers;
mod version;

pub use version::Version;

/// Where one containerd lives and how it is set up.
#[derive(Debug, Clone)]
pub struct ContainerdSetup {
    /// Version of the programs, which determines the configuration format.
    pub version: Version,
    /// Directory with `containerd`, `containerd-shim-runc-v2` and `ctr`.
    pub programs: PathBuf,
    pub runc: PathBuf,
    /// Images and snapshots. Removed at the end.
    pub data: PathBuf,
    /// Sockets and state; a short path, because the names of sockets are limited. Removed at the
    /// end.
    pub run: PathBuf,
    /// Stands for the node's root directory: `/` in a virtual machine, a directory in `run` on the
    /// host. NRI's socket and plugins and containerd's configuration are at their default paths
    /// below it.
    pub root: PathBuf,
    /// `overlayfs`, or `native` where overlays cannot be stacked.
    pub snapshotter: &'static str,
    /// cgroup driver.
    pub driver: Driver,
    /// For machines that cannot lower OOM scores (without CAP_SYS_RESOURCE).
    pub restrict_oom_score: bool,
}

#[derive(Debug)]
pub struct Containerd {
    setup: ContainerdSetup,
    child: Option<Child>,
    /// False once the lab has disabled NRI in the configuration.
    nri: bool,
}

/// Generous: emulated CPUs need seconds for what takes a tenth of a second on the host.
const READY: Duration = Duration::from_secs(60);

impl Containerd {
    /// Waits until it is ready for pods. First ends and removes what an interrupted run left in the
    /// same directories.
    pub fn start(setup: ContainerdSetup) -> Result<Self> {
        leftovers::remove(&setup).context("cannot remove what an earlier run left")?;
        for directory in ["etc/containerd", "opt/nri/plugins", "etc/nri/conf.d"] {
            files::make_directory(&setup.root.join(directory))?;
        }
        files::make_directory(&setup.data)?;
        files::make_directory(&setup.run)?;
        let mut containerd = Self { setup, child: None, nri: true };
        containerd.configure(&config::text(&containerd.setup, true))?;
        containerd.launch()?;
        Ok(containerd)
    }

    /// Restarts without NRI in the configuration, which is containerd 1.7's default. From then on
    /// the lab does not wait for NRI's socket.
    pub fn restart_without_nri(&mut self) -> Result<()> {
        self.nri = false;
        self.configure(&config::text(&self.setup, false))?;
        self.restart()
    }

    fn configure(&self, text: &str) -> Result<()> {
        files::write(&self.config_path(), text)
    }

    pub fn config_path(&self) -> PathBuf {
        self.setup.root.join("etc/containerd/config.toml")
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.setup.programs.join(name)
    }

    /// Stands for the node's root directory.
    pub fn root(&self) -> &Path {
        &self.setup.root
    }

    pub fn socket(&self) -> PathBuf {
        self.setup.run.join("containerd.sock")
    }

    pub fn nri_socket(&self) -> PathBuf {
        self.setup.root.join("var/run/nri/nri.sock")
    }

    /// Imports an image and waits until the CRI lists it: containerd 1.7 does so with a delay.
    pub fn import(&self, archive: &Path, name: &str) -> Result<()> {
        // The CRI unpacks with its own snapshotter when the first container needs it.
        let import = "-n k8s.io images import --label io.cri-containerd.image=managed --no-unpack";
        run(command(self.program("ctr"), ["-a"])
            .arg(self.socket())
            .args(import.split(' '))
            .arg(archive))?;
        let cri = Cri::connect(&self.socket())?;
        let is_listed = || {
            let images = cri.list_images(wire::ListImagesRequest {})?.images;
            let mut names = images.iter().flat_map(|image| &image.repo_tags);
            Ok(names.any(|known| known == name).then_some(()))
        };
        poll(READY, is_listed)?
            .with_context(|| format!("the CRI does not list the imported image {name}"))
    }

    /// Like a crash: containers keep running.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Signal::SIGKILL)
    }

    /// Starts it again after [`kill`](Self::kill), with the same directories.
    pub fn restart(&mut self) -> Result<()> {
        self.end(Signal::SIGTERM)?;
        self.launch()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn launch(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .context("cannot open the log")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let child = command(self.program("containerd"), ["--config"])
            .arg(self.config_path())
            // containerd looks for its shim in PATH.
            .env("PATH", format!("{}:{path}", self.setup.programs.display()))
            // On many emulated CPUs the Go runtime spends its time waking threads; this is
            // inherited by shims and runc.
            .env("GOMAXPROCS", "2")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| {
                format!("cannot start containerd of {}", self.setup.programs.display())
            })?;
        self.child = Some(child);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            let failure = match self.readiness() {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let ended = match &mut self.child {
                Some(child) => child.try_wait().context("cannot observe containerd")?,
                None => None,
            };
            if ended.is_some() || start.elapsed() > READY {
                bail!(
                    "containerd is not ready ({}): {failure:#}\nend of its log:\n{}",
                    ended.map_or("still running".to_owned(), |status| status.to_string()),
                    last_lines(&self.log(), 15)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn readiness(&self) -> Result<()> {
        if self.nri && !self.nri_socket().exists() {
            bail!("NRI does not listen");
        }
        let status = Cri::connect(&self.socket())?
            .status(wire::StatusRequest {})?
            .status
            .unwrap_or_default();
        match status.conditions.iter().find(|c| c.r#type == "RuntimeReady") {
            Some(condition) if condition.status => Ok(()),
            Some(condition) => bail!("not ready: {} {}", condition.reason, condition.message),
            None => bail!("no RuntimeReady condition"),
        }
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        process::end(&mut child, signal, Duration::from_secs(15))
            .context("cannot end containerd")?;
        // The next process creates them; until then they must not look like a running one.
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_file(self.nri_socket());
        Ok(())
    }

    pub fn log_path(&self) -> PathBuf {
        self.setup.run.join("containerd.log")
    }
}

/// Removes process, shims, containers, mounts and directories. Failures are only reported.
impl Drop for Containerd {
    fn drop(&mut self) {
        if let Err(error) = self.end(Signal::SIGTERM).and_then(|()| leftovers::remove(&self.setup))
        {
            crate::command::progress(format!("containerd was not removed completely: {error:#}"));
        }
    }
}
