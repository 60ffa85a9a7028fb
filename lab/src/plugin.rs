//! The plugin as a process: started, killed, and its log and state file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cpuset::CpuSet;
use nix::sys::signal::Signal;
use noise::NoiseReport;
use serde::Deserialize;
use serde_json::Value;
use status::outlook::Outlook;
use status::socket::{CONTAINERS, TRY, TRY_UNINSTALL};
use terminal::client;

use crate::command::{command, last_lines, run};
use crate::kubelet::write_config_map;
use crate::{files, process};

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9479);

/// Logged when the plugin has taken over the node.
pub(crate) const READY: &str = "synchronised with";

/// How to start a plugin.
#[derive(Debug, Clone)]
pub struct PluginSetup {
    pub program: PathBuf,
    /// Configuration, state and log; kept between starts.
    pub directory: PathBuf,
    pub socket: PathBuf,
    pub config: String,
}

/// Laid out like a mounted ConfigMap.
const CONFIG: &str = "config/config.yaml";

impl PluginSetup {
    /// Like a kubelet that changes a mounted ConfigMap.
    pub fn write_config(&self) -> Result<()> {
        write_config_map(&self.directory.join("config"), [("config.yaml", self.config.as_str())])
    }

    /// Over all starts.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("plugin.log")
    }
}

#[derive(Debug)]
pub struct Plugin {
    child: Child,
    files: PluginFiles,
}

/// The log and the state file of a plugin, however it was started.
#[derive(Debug, Clone)]
pub struct PluginFiles {
    /// None if it logs to the system's log, which the lab does not read.
    log: Option<PathBuf>,
    /// Offset of this start in the log.
    start: usize,
    /// The state directory.
    state: PathBuf,
}

/// An entry of the state file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Assignment {
    pub pod: String,
    pub container: String,
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
    pub fn start(setup: &PluginSetup) -> Result<Self> {
        let mut plugin = Self::launch(setup)?;
        plugin.wait_for(READY, 1, Duration::from_secs(30))?;
        Ok(plugin)
    }

    pub fn launch(setup: &PluginSetup) -> Result<Self> {
        let config = setup.directory.join(CONFIG);
        let state = setup.directory.join("state");
        files::make_directory(&state)?;
        setup.write_config()?;
        let log_path = setup.log_path();
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .context("cannot open the plugin's log")?;
        let start = fs::read_to_string(&log_path).map_or(0, |text| text.len());
        let child = command(&setup.program, ["run"])
            .args([Path::new("--config"), &config, Path::new("--state-dir"), &state])
            .args([Path::new("--socket"), &setup.socket])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", setup.program.display()))?;
        Ok(Self { child, files: PluginFiles { log: Some(log_path), start, state } })
    }

    pub fn wait_for(&mut self, text: &str, count: usize, patience: Duration) -> Result<Duration> {
        let files = self.files.clone();
        files.wait_for(text, count, patience, || self.ended())
    }

    pub fn ended(&mut self) -> Result<Option<String>> {
        let ended = self.child.try_wait().context("cannot observe the plugin")?;
        Ok(ended.map(|status| status.to_string()))
    }

    /// The first synchronisation, and one per reconnection, count.
    pub fn wait_for_synchronisation(
        &mut self,
        count: usize,
        patience: Duration,
    ) -> Result<Duration> {
        self.wait_for(READY, count, patience)
    }

    /// Sends a signal and waits for its end.
    pub fn end(mut self, signal: Signal) -> Result<ExitStatus> {
        process::end(&mut self.child, signal, Duration::from_secs(10))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn files(&self) -> &PluginFiles {
        &self.files
    }
}

impl PluginFiles {
    /// Without a log file if it logs to the system's log.
    pub fn at(log: Option<PathBuf>, state: PathBuf) -> Self {
        Self { log, start: 0, state }
    }

    pub fn log_path(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Runs `nri-cpu-manager status` on the node, as in a terminal that is wide enough for every line.
    pub fn status(&self, program: &Path) -> Result<String> {
        run(command(program, ["status", "--state-dir"]).arg(&self.state).env("COLUMNS", "1000"))
    }

    /// What the plugin says that a configuration would change.
    pub fn outlook(&self, config: &str) -> Result<Outlook> {
        let answer = client::ask_about(&self.state, TRY, config)?;
        client::read(&answer).context("unexpected outlook")
    }

    /// What the plugin says that its removal would change.
    pub fn uninstall_outlook(&self, containers: bool) -> Result<Outlook> {
        let query = if containers { format!("?{CONTAINERS}") } else { String::new() };
        let answer = client::ask(&self.state, &format!("{TRY_UNINSTALL}{query}"))?;
        client::read(&answer).context("unexpected outlook")
    }

    /// Runs `nri-cpu-manager noise` on the node. It fails if it finds any, after its report.
    pub fn noise(&self, program: &Path, seconds: u64) -> Result<NoiseReport> {
        let output = command(program, ["noise", "--output", "json", "--seconds"])
            .arg(seconds.to_string())
            .arg("--state-dir")
            .arg(&self.state)
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!("no report of noise: {}", String::from_utf8_lossy(&output.stderr))
        })
    }

    /// What the plugin has observed on exclusive CPUs in the last minute; `None` before its second
    /// sample.
    pub fn recent_noise(&self, program: &Path) -> Result<Option<NoiseReport>> {
        let mut command = command(program, ["status", "--output", "json", "--state-dir"]);
        let mut status: Value = serde_json::from_str(&run(command.arg(&self.state))?)
            .context("the status is not JSON")?;
        serde_json::from_value(status["node"]["noise"]["recent"].take()).context("unexpected noise")
    }

    /// Since this start.
    pub fn log(&self) -> String {
        let text = self.log_path().and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
        text.get(self.start..).unwrap_or_default().to_owned()
    }

    pub fn synchronisations(&self) -> usize {
        self.log().matches(READY).count()
    }

    pub fn wait_for(
        &self,
        text: &str,
        count: usize,
        patience: Duration,
        mut ended: impl FnMut() -> Result<Option<String>>,
    ) -> Result<Duration> {
        let start = Instant::now();
        while self.log().matches(text).count() < count {
            let ended = ended()?;
            if ended.is_some() || start.elapsed() > patience {
                bail!(
                    "the plugin did not log {text:?} ({count} times) within {:.1} s ({}); end of its log:\n{}",
                    start.elapsed().as_secs_f64(),
                    ended.unwrap_or_else(|| "still running".to_owned()),
                    last_lines(&self.log(), 15)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(start.elapsed())
    }

    pub fn assignments(&self) -> Result<Vec<Assignment>> {
        let path = self.state.join("checkpoint.json");
        let text = files::read(&path)?;
        let checkpoint: Checkpoint = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a state file", path.display()))?;
        Ok(checkpoint.state.containers)
    }

    /// The exclusive CPUs of a container.
    pub fn claimed(&self, pod: &str, container: &str) -> Result<Option<CpuSet>> {
        let assignments = self.assignments()?;
        let assignment = assignments.iter().find(|a| a.pod == pod && a.container == container);
        let Some(Assignment { cpus, .. }) = assignment else { return Ok(None) };
        let parsed = cpus.parse();
        let parsed = parsed.with_context(|| format!("unexpected CPUs in the state file: {cpus:?}"));
        Ok(Some(parsed?))
    }
}

/// The answer to `GET path` at the plugin's default address: status line, headers and body.
pub fn fetch(path: &str) -> Result<String> {
    fetch_from(ADDRESS, path, Duration::from_secs(60))
}

/// As [`fetch`], from another address. `patience` applies to the connection and to each read.
pub fn fetch_from(address: SocketAddr, path: &str, patience: Duration) -> Result<String> {
    let mut answer = String::new();
    let mut fetch = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        stream.read_to_string(&mut answer).map(|_| ())
    };
    fetch().with_context(|| format!("cannot get http://{address}{path}"))?;
    Ok(answer)
}

/// Ends with its test.
impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, Signal::SIGKILL, Duration::from_secs(5));
    }
}
