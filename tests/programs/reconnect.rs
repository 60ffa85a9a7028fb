//! The plugin as a process: the runtime closes its connection, its configuration file is replaced,
//! it gets a SIGTERM.

use crate::support::fake_sysfs;
use machines::synthetic::Machine;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Replaces the socket, as a runtime does when it starts.
fn listen(socket: &Path) -> UnixListener {
    let _ = fs::remove_file(socket);
    UnixListener::bind(socket).unwrap()
}

/// Accepts a connection, and closes it with the plugin's first bytes unread, as a kill does.
fn reset(listener: &UnixListener) {
    let (connection, _) = listener.accept().unwrap();
    sleep(Duration::from_millis(200));
    drop(connection);
}

fn start(dir: &Path) -> Child {
    let machine = Machine { cores: 16, ..Machine::default() };
    fake_sysfs::write(&dir.join("sys"), &fake_sysfs::files(&machine.facts().unwrap()));
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nexclusivity: runtime\n";
    fs::write(dir.join("config.yaml"), config).unwrap();
    Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
        .arg("run")
        .args(["--config".into(), dir.join("config.yaml")])
        .args(["--state-dir".into(), dir.join("state")])
        .args(["--socket".into(), dir.join("nri.sock")])
        .args(["--sysfs-root".into(), dir.join("sys")])
        .args(["--metrics-address", "none"])
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The configuration of the running plugin becomes a text for which a YAML parser takes long, and a
/// FIFO. The plugin parses a text when two reads, a second apart, have returned it.
#[test]
fn sigterm_ends_the_process_with_any_file_as_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    let listener = listen(&dir.path().join("nri.sock"));
    let deep = || fs::write(dir.path().join("new"), format!("a: {}", "[".repeat(1 << 19)));
    let fifo = || Command::new("mkfifo").arg(dir.path().join("new")).status().map(drop);
    let replacements: [(&dyn Fn() -> std::io::Result<()>, &str); 2] =
        [(&deep, "lists and maps in each other"), (&fifo, "a FIFO, not a regular file")];
    for (replacement, why) in replacements {
        let mut plugin = start(dir.path());
        let connection = listener.accept().unwrap();
        replacement().unwrap();
        fs::rename(dir.path().join("new"), &config).unwrap();
        sleep(Duration::from_millis(2500));
        let term = Command::new("kill").arg(plugin.id().to_string()).status().unwrap();
        assert!(term.success());
        let start = Instant::now();
        while plugin.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(5), "{why}: it still runs");
            sleep(Duration::from_millis(20));
        }
        drop(connection);
        let log = String::from_utf8(plugin.wait_with_output().unwrap().stderr).unwrap();
        assert!(log.contains(why) && log.contains("SIGTERM: stopping"), "{log}");
        fs::remove_file(&config).unwrap();
    }
}

#[test]
fn a_restart_of_the_runtime_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let listener = listen(&socket);
    let mut plugin = start(dir.path());
    reset(&listener);
    drop(listener);
    let listener = listen(&socket);
    reset(&listener);
    // The runtime closes the connection without a restart.
    reset(&listener);
    let last = listener.accept().unwrap();
    // The plugin logs after it has connected.
    sleep(Duration::from_millis(200));
    plugin.kill().unwrap();
    let log = String::from_utf8(plugin.wait_with_output().unwrap().stderr).unwrap();
    drop(last);
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    // The next ones within a minute are only counted.
    assert_eq!(count("the runtime closed the connection ("), 1, "{log}");
    assert_eq!(count("without a restart"), 1, "{log}");
    assert_eq!(count("ERROR"), 0, "{log}");
    let warnings = log.lines().filter(|line| line.contains("WARN") && line.contains("connection"));
    assert_eq!(warnings.count(), 1, "{log}");
}
