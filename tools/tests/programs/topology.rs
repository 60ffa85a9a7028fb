//! `cpuctl topology` as a user runs it.

use crate::support::fake_sysfs;
use machines::synthetic::Machine;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn topology(root: &Path, more: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_cpuctl");
    Command::new(program).args(["topology", "--sysfs-root"]).arg(root).args(more).output().unwrap()
}

/// The files of a machine that has everything: offline and isolated CPUs, a NUMA node without CPUs.
fn machine() -> tempfile::TempDir {
    let machine = Machine {
        sockets: 2,
        caches: 2,
        cores: 2,
        threads: 2,
        memory_only: 1,
        offline: "3,4".parse().unwrap(),
        isolated: "6-7".parse().unwrap(),
        ..Machine::default()
    };
    let root = fake_sysfs::scratch();
    fake_sysfs::write(root.path(), &fake_sysfs::files(&machine.facts().unwrap()));
    root
}

/// Scripts rely on the names, units and types.
#[test]
fn the_json_has_stable_names_and_types() {
    let root = machine();
    let output = topology(root.path(), &["--output", "json"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cpu = |cpu: usize, core: usize, uncore: usize, numa: usize| json!({"cpu": cpu, "core": core, "uncore_cache": uncore, "numa_node": numa, "socket": numa, "online": true});
    let offline = |cpu: usize, numa: usize| json!({"cpu": cpu, "core": null, "uncore_cache": null, "numa_node": numa, "socket": null, "online": false});
    let expect = json!({
        "cpus": [
            cpu(0, 0, 0, 0), cpu(1, 0, 0, 0), cpu(2, 2, 2, 0), offline(3, 0),
            offline(4, 1), cpu(5, 5, 5, 1), cpu(6, 6, 6, 1), cpu(7, 6, 6, 1),
        ],
        "numa_nodes": [
            {"id": 0, "cpus": "0-2", "distances": [10, 32, 32]},
            {"id": 1, "cpus": "5-7", "distances": [32, 10, 32]},
            {"id": 2, "cpus": "", "distances": [32, 32, 10]},
        ],
        "version": 1,
        "smt": 2,
        "isolated": "6-7",
        "online": "0-2,5-7",
        "offline": "3-4",
    });
    assert_eq!(report, expect);
}

#[test]
fn text_is_the_default_and_warnings_go_to_standard_error() {
    let root = machine();
    std::fs::remove_file(root.path().join("devices/system/node/node2/distance")).unwrap();
    let output = topology(root.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("2 sockets, 3 NUMA nodes, 4 uncore caches, 4 cores, 6 CPUs"),
        "{text}"
    );
    assert!(text.contains("from node 2  unknown"), "{text}");
    let warnings = String::from_utf8(output.stderr).unwrap();
    assert!(warnings.starts_with("warning: NUMA distances (node 2): "), "{warnings}");
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
}

#[test]
fn an_error_is_one_line_with_a_non_zero_exit_code() {
    let empty = fake_sysfs::scratch();
    let output = topology(empty.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("cpuctl: no machine in "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty());

    let output = topology(empty.path(), &["--output", "yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("json"));
}

/// As in `cpuctl topology | head -1`.
#[test]
fn a_reader_that_closes_the_pipe_causes_no_failure() {
    let root = machine();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .args(["topology", "--sysfs-root"])
        .arg(root.path())
        .stdout(Stdio::from(writer))
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let root = machine();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .args(["topology", "--sysfs-root"])
        .arg(root.path())
        .stdout(Stdio::from(full))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot write the output"));
}

#[test]
fn an_error_that_cannot_be_written_still_sets_the_exit_code() {
    let root = fake_sysfs::scratch();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .args(["topology", "--sysfs-root"])
        .arg(root.path())
        .stderr(Stdio::from(full))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

/// The text is a table; only `svg` is a picture.
#[test]
fn help_describes_the_output() {
    let machine = machine();
    let [help, text] = [&["--help"][..], &[]]
        .map(|more| topology(machine.path(), more).stdout)
        .map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(!text.contains('┌'), "{text}");
    assert!(help.contains("- text: For people\n"), "{help}");
    assert!(help.contains("--list"), "{help}");
    // Some paragraphs are longer.
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}
