//! `nri-cpu-manager release`: nothing is left in control groups.

#![expect(clippy::unwrap_used, reason = "a test")]

use nri_cpu_manager::checkpoint::StateDir;
use nri_cpu_manager::cli::release::{ReleaseArgs, run};
use std::fs;
use std::path::Path;

/// Files like the kernel's.
fn group(root: &Path, group: &str, files: &[(&str, &str)]) {
    fs::create_dir_all(root.join(group)).unwrap();
    for (file, text) in files {
        fs::write(root.join(group).join(file), format!("{text}\n")).unwrap();
    }
}

/// What a plugin has written before: path, bound, values, quota.
fn remember(state: &Path) {
    let text = "nri-cpu-manager cgroups 1 \nkubepods/burstable\t\t\t0-1,4-7\t\nkubepods/poda\t0-7\t0-7\t0-3\t200000 100000\n";
    fs::write(state.join("cgroups"), text).unwrap();
}

fn read(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).unwrap().trim().to_owned()
}

/// A class and a pod that are bound to the shared pool, a partition, a lifted quota, and what
/// others have made.
fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("cgroup.controllers"), "cpuset cpu\n").unwrap();
    let partition = |state| ("cpuset.cpus.partition", state);
    group(
        root,
        "kubepods",
        &[("cpuset.cpus", ""), partition("member"), ("cpuset.cpus.exclusive", "2-3")],
    );
    group(root, "kubepods/burstable", &[("cpuset.cpus", "0-1,4-7"), partition("member")]);
    group(
        root,
        "kubepods/poda",
        &[
            ("cpuset.cpus", "0-3"),
            ("cpu.max", "max 100000"),
            partition("member"),
            ("cpuset.cpus.exclusive", "2-3"),
        ],
    );
    group(
        root,
        "kubepods/poda/c",
        &[("cpuset.cpus", "2-3"), partition("root"), ("cpuset.cpus.exclusive", "2-3")],
    );
    group(
        root,
        "system.slice",
        &[("cpuset.cpus", "0-1"), partition("isolated"), ("cpuset.cpus.exclusive", "0-1")],
    );
    dir
}

fn args(root: &Path, state: &Path) -> ReleaseArgs {
    ReleaseArgs {
        state_dir: state.to_owned(),
        cgroup_root: root.to_owned(),
        sysfs_root: root.to_owned(),
        proc_root: root.to_owned(),
    }
}

#[test]
fn nothing_is_left() {
    let (node, state) = (node(), tempfile::tempdir().unwrap());
    let root = node.path();
    remember(state.path());
    let mut out = Vec::new();
    run(&args(root, state.path()), &mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "shared pool: 2 groups cleared\npartitions:  1 partition ended\nCFS quotas:  1 quota put back\n"
    );
    for (file, text) in [
        ("kubepods/burstable/cpuset.cpus", ""),
        ("kubepods/poda/cpuset.cpus", "0-7"),
        ("kubepods/poda/cpu.max", "200000 100000"),
        ("kubepods/poda/c/cpuset.cpus.partition", "member"),
        ("kubepods/poda/c/cpuset.cpus.exclusive", ""),
        ("kubepods/poda/cpuset.cpus.exclusive", ""),
        ("kubepods/cpuset.cpus.exclusive", ""),
        ("system.slice/cpuset.cpus.partition", "isolated"),
        ("system.slice/cpuset.cpus", "0-1"),
    ] {
        assert_eq!(read(root, file), text, "{file}");
    }
    let mut again = Vec::new();
    run(&args(root, state.path()), &mut again).unwrap();
    assert!(String::from_utf8(again).unwrap().starts_with("shared pool: 0 groups cleared"));
}

#[test]
fn not_while_the_plugin_runs() {
    let (node, state) = (node(), tempfile::tempdir().unwrap());
    let _running = StateDir::open(state.path()).unwrap();
    let error = run(&args(node.path(), state.path()), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("Remove the DaemonSet first"), "{error}");
    assert_eq!(read(node.path(), "kubepods/burstable/cpuset.cpus"), "0-1,4-7");
}

#[test]
fn nowhere() {
    let empty = tempfile::tempdir().unwrap();
    let error = run(&args(empty.path(), empty.path()), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("has no cpuset controller"), "{error}");
}
