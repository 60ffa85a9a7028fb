//! What was decided is not so any more: the plugin sees it in the groups' files and in the processes, says so, and repairs
//! it. On real containerd, with the damage done as anybody with root could do it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::process::Command;
use std::time::Duration;

use lab::cgroup;
use lab::containerd::Version;
use lab::process;
use support::{Bench, exclusive, shared};

/// Two looks, and the time until the first one.
const PATIENCE: Duration = Duration::from_secs(30);

fn pid(bench: &Bench, pod: &str) -> u32 {
    let pod = bench.host.node.pods().iter().find(|running| running.pod.name == pod).unwrap();
    pod.containers[0].pid
}

fn set_affinity(pid: u32, cpus: &str) {
    let done = Command::new("taskset").args(["-apc", cpus, &pid.to_string()]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Somebody writes a shared container's cpuset. containerd 2.1 could lock up if it were told at once, so it is told with
/// the next answer.
#[test]
fn a_cpuset_that_somebody_wrote() {
    let mut bench = Bench::new(Version::V2_1);
    let mut plugin = bench.plugin();
    bench.run(&shared("web"));
    bench.run(&exclusive("db"));
    assert_eq!(bench.allowed("web").to_string(), "0");
    let group = cgroup::of_process(pid(&bench, "web"), "cpuset").unwrap();
    fs::write(group.join("cpuset.cpus"), "0-1").unwrap();
    assert_eq!(bench.allowed("web").to_string(), "0-1");

    plugin
        .wait_for("decided were CPUs 0, but CPUs 0-1 are set for its group", 1, PATIENCE)
        .unwrap();
    assert_eq!(bench.allowed("web").to_string(), "0-1", "no unsolicited update with NRI 0.8");
    bench.run(&shared("another"));
    assert_eq!(bench.allowed("web").to_string(), "0");
    assert_eq!(bench.allowed("db").to_string(), "1");
}

/// The runtime itself may not run everywhere, and what it starts inherits that.
#[test]
fn an_affinity_that_was_inherited() {
    let mut bench = Bench::new(Version::V1_7);
    let mut plugin = bench.plugin();
    bench.run(&shared("web"));
    bench.run(&shared("modest"));
    assert_eq!(bench.allowed("web").to_string(), "0-1");
    // One that has chosen for itself, though its parent may run everywhere.
    set_affinity(pid(&bench, "modest"), "1");
    let process = pid(&bench, "web");
    set_affinity(process::parent(process).unwrap(), "0");
    set_affinity(process, "0");

    plugin
        .wait_for("it inherited the affinity of the runtime that started it: widened", 1, PATIENCE)
        .unwrap();
    assert_eq!(bench.allowed("web").to_string(), "0-1");
    assert_eq!(bench.allowed("modest").to_string(), "1");
    let log = plugin.log();
    assert!(!log.contains("modest"), "what a process chooses is no drift: {log}");
}
