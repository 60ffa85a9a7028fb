//! Starts of the plugin that fail: with one error, a non-zero exit code, and no call to the
//! runtime.

use crate::support::fake_sysfs;
use machines::synthetic::Machine;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// A machine of 16 CPUs with a listener on the runtime's socket.
struct Place {
    dir: tempfile::TempDir,
    listener: UnixListener,
    metrics_address: String,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine { cores: 16, ..Machine::default() };
        fake_sysfs::write(&dir.path().join("sys"), &fake_sysfs::files(&machine.facts().unwrap()));
        let listener = UnixListener::bind(dir.path().join("nri.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        Place { dir, listener, metrics_address: "none".to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, config: &str, state_dir: PathBuf, socket: PathBuf) -> Output {
        fs::write(self.path("config.yaml"), config).unwrap();
        Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
            .arg("run")
            .args(["--config".into(), self.path("config.yaml")])
            .args(["--state-dir".into(), state_dir])
            .args(["--socket".into(), socket])
            .args(["--sysfs-root".into(), self.path("sys")])
            .args(["--metrics-address", self.metrics_address.as_str()])
            .env_remove("RUST_LOG")
            .output()
            .unwrap()
    }

    /// Runs the plugin, which must fail; returns its error.
    #[track_caller]
    fn refuses(&self, config: &str, state_dir: PathBuf, socket: PathBuf) -> String {
        let output = self.run(config, state_dir, socket);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{config:?}: {stderr}");
        assert!(self.listener.accept().is_err(), "{config:?}: it called the runtime");
        let errors: Vec<&str> =
            stderr.lines().filter(|line| line.starts_with("nri-cpu-manager: ")).collect();
        assert_eq!(errors.len(), 1, "{config:?}: not one error: {stderr}");
        assert_eq!(stderr.lines().last(), Some(errors[0]), "{config:?}");
        errors[0].to_owned()
    }
}

const GOOD: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n";

#[test]
fn a_wrong_configuration_fails_the_start() {
    let place = Place::new();
    let with_option = |option: &str| format!("{GOOD}cpuManagerPolicyOptions: {{{option}}}\n");
    for (config, line, text) in [
        ("cpuManagerPolicy: static\n  reservedSystemCPUs: 0\n".to_owned(), 2, "mapping values"),
        ("cpuManagerPolicy: static\nreservedSystemCpu: \"0\"\n".to_owned(), 2, "did you mean"),
        (with_option("full-pcpu-only: \"true\""), 3, "did you mean full-pcpus-only?"),
        (
            with_option(
                "distribute-cpus-across-numa: true, prefer-align-cpus-by-uncorecache: true",
            ),
            3,
            "exclude each other",
        ),
        (
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"14-17\"\n".to_owned(),
            2,
            "CPUs 16-17 do not exist; online CPUs: 0-15",
        ),
        ("cpuManagerPolicy: static\nreservedSystemCPUs: \" \"\n".to_owned(), 2, "empty list"),
        ("cpuManagerPolicy: static\n".to_owned(), 1, "needs reserved CPUs"),
    ] {
        let error = place.refuses(&config, place.path("state"), place.path("nri.sock"));
        assert!(error.contains(&format!("config.yaml, line {line}: ")), "{error}");
        assert!(error.contains(text), "{error}");
    }
    assert!(!place.path("state").exists(), "the configuration is checked before anything is made");
}

#[test]
fn an_unwritable_state_directory_fails_the_start() {
    let place = Place::new();
    // Not even root can create a directory below a file.
    let state = place.path("config.yaml").join("state");
    let error = place.refuses(GOOD, state.clone(), place.path("nri.sock"));
    assert!(
        error.contains(&state.display().to_string()) && error.contains("--state-dir"),
        "{error}"
    );
}

#[test]
fn a_missing_socket_fails_the_start() {
    let place = Place::new();
    let socket = place.path("no.sock");
    let error = place.refuses(GOOD, place.path("state"), socket.clone());
    assert!(error.contains(&socket.display().to_string()) && error.contains("NRI"), "{error}");
}

#[test]
fn an_address_in_use_fails_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut place = Place::new();
    place.metrics_address = taken.local_addr().unwrap().to_string();
    let error = place.refuses(GOOD, place.path("state"), place.path("nri.sock"));
    assert!(
        error.contains(&place.metrics_address) && error.contains("--metrics-address"),
        "{error}"
    );
}

/// systemd puts the device and inode of the journal's stream into `JOURNAL_STREAM`.
#[test]
fn log_lines_carry_their_time_unless_the_journal_adds_it() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let first_line = |journal: Option<(u64, u64)>| {
        log.as_file().set_len(0).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"));
        command.args(["run", "--node-name", "worker-1", "--config", "/nonexistent/config.yaml"]);
        command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM");
        if let Some((device, inode)) = journal {
            command.env("JOURNAL_STREAM", format!("{device}:{inode}"));
        }
        command.stderr(log.reopen().unwrap()).status().unwrap();
        fs::read_to_string(log.path()).unwrap().lines().next().unwrap().to_owned()
    };
    let own = log.as_file().metadata().map(|file| (file.dev(), file.ino())).unwrap();
    let plain = first_line(Some(own));
    assert!(plain.starts_with("INFO  nri-cpu-manager "), "{plain}");
    assert!(plain.ends_with(" on node worker-1"), "{plain}");
    for journal in [None, Some((own.0, own.1 + 1))] {
        let timed = first_line(journal);
        let (time, rest) = timed.split_once(' ').unwrap();
        assert_eq!(rest, plain);
        let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(form, "0000-00-00T00:00:00.000Z");
    }
}

/// It is intended if the plugin only observes, or assigns no CPUs.
#[test]
fn an_active_kubelet_is_logged_as_an_error_unless_it_is_intended() {
    let place = Place::new();
    let state = r#"{"policyName":"static","defaultCpuSet":"0-15","checksum":0}"#;
    fs::write(place.path("cpu_manager_state"), state).unwrap();
    let kubelet = format!("kubeletStateDir: {}\n", place.dir.path().display());
    for (config, level) in [
        (format!("{GOOD}{kubelet}"), "ERROR"),
        (format!("{GOOD}{kubelet}mode: observe\n"), "INFO "),
        (format!("cpuManagerPolicy: none\n{kubelet}"), "INFO "),
    ] {
        let output = place.run(&config, place.path("state"), place.path("no.sock"));
        let log = String::from_utf8(output.stderr).unwrap();
        for text in ["the kubelet's own CPU manager is active", "while the kubelet assigns CPUs"] {
            let line = log.lines().find(|line| line.contains(text)).unwrap();
            assert!(line.contains(&format!(" {level} ")), "{config}: {line}");
        }
    }
}

#[test]
fn a_missing_configuration_fails_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
        .args(["run", "--config", "/nonexistent/config.yaml"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("/nonexistent/config.yaml") && stderr.contains("--config"), "{stderr}");
}

/// A plugin that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Twice the time between two readings of the configuration.
const RELOADED: Duration = Duration::from_secs(4);

/// The runtime accepts the connection and says nothing more.
#[test]
fn the_log_is_json_and_follows_the_level_in_the_configuration() {
    let place = Place::new();
    let config = place.path("config.yaml");
    for (variable, before_reload) in
        [(None, "nri-cpu-manager "), (Some("info"), "config: in force")]
    {
        fs::write(&config, format!("{GOOD}logLevel: error\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"));
        command
            .args(["run", "--log-format", "json", "--metrics-address", "none"])
            .args(["--config".into(), config.clone()])
            .args(["--state-dir".into(), place.path("state")])
            .args(["--socket".into(), place.path("nri.sock")])
            .args(["--sysfs-root".into(), place.path("sys")])
            .args(["--cgroup-root".into(), place.path("cgroup")])
            .env_remove("RUST_LOG")
            .envs(variable.map(|level| ("RUST_LOG", level)))
            .stderr(Stdio::piped());
        let mut plugin = Running(command.spawn().unwrap());
        let lines = BufReader::new(plugin.0.stderr.take().unwrap()).lines();
        let mut records = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        // Without the variable the first line, from before the configuration, is the only one.
        let first = records.find(|record| message(record).starts_with(before_reload)).unwrap();
        assert_eq!(first["level"], "info");
        assert!(first["time"].as_str().unwrap().ends_with('Z'), "{first}");
        // It has read the configuration by then.
        while !place.path("state/lock").exists() {
            thread::sleep(Duration::from_millis(10));
        }
        // The reload that raises the level is logged at the level before it, the next one is seen.
        for level in ["info", "debug"] {
            fs::write(&config, format!("{GOOD}logLevel: {level}\n")).unwrap();
            thread::sleep(RELOADED);
        }
        let next = records.find(|record| !message(record).starts_with("connected ")).unwrap();
        assert!(message(&next).starts_with("config: reloaded"), "{next}");
        fs::remove_dir_all(place.path("state")).unwrap();
    }
}

fn message(record: &Value) -> &str {
    record["message"].as_str().unwrap()
}
