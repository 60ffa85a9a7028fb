//! `nri-cpu-manager uninstall --stay`. Not in one process with the other tests of `uninstall`: a child
//! process holds the locks of its parent until it executes the new program.

use state::checkpoint::StateDir;
use state::disk::Disk;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn uninstall_stays_until_sigterm_without_the_lock() {
    let node = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    fs::write(node.path().join("cgroup.controllers"), "cpuset cpu\n").unwrap();
    let directory = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let mut process = Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
        .args(["uninstall", "--stay"])
        .arg(directory("state-dir", state.path()))
        .args(["cgroup-root", "sysfs-root", "proc-root"].map(|name| directory(name, node.path())))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let last = lines.map(Result::unwrap).find(|line| line.starts_with("done; "));
    assert_eq!(last.as_deref(), Some("done; waiting for SIGTERM"));
    assert!(process.try_wait().unwrap().is_none(), "it has ended by itself");
    StateDir::open(state.path(), &Disk::start().unwrap()).unwrap();
    assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert!(process.wait().unwrap().success());
}
