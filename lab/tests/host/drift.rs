//! Drift on real containerd: the plugin finds it in cgroup files and processes, reports it and
//! repairs it. The tests write what any root user could write.

use std::fs;
use std::time::{Duration, Instant};

use crate::bench::{Bench, exclusive, set_affinity, shared};
use lab::cgroup;
use lab::containerd::Version;
use lab::process;

/// Two check passes, and the time until the first one.
const PATIENCE: Duration = Duration::from_secs(30);

fn pid(bench: &Bench, pod: &str) -> u32 {
    let pod = bench.host.node.pods().iter().find(|running| running.pod.name == pod).unwrap();
    pod.containers[0].pid
}

/// A root user writes a shared container's cpuset. containerd 2.1 could deadlock on an unsolicited
/// update, so the plugin writes the cgroup itself, and updates containerd with its next answer.
#[test]
fn a_cpuset_written_by_another_program_is_repaired() {
    let mut bench = Bench::new(Version::V2_1);
    let mut plugin = bench.plugin();
    bench.run(&shared("web"));
    bench.run(&exclusive("db"));
    let (online, reserved) = (bench.online(), bench.reserved());
    assert_eq!(bench.allowed("web"), reserved);
    let group = cgroup::of_process(pid(&bench, "web"), "cpuset").unwrap();
    fs::write(group.join("cpuset.cpus"), online.to_string()).unwrap();
    assert_eq!(bench.allowed("web"), online);

    let decided = wording::cpus(reserved);
    let drift = format!("decided {decided}, but its cgroup has CPUs {online} set");
    plugin.wait_for(&format!("{drift}: set again"), 1, PATIENCE).unwrap();
    assert_eq!(bench.allowed("web"), reserved);
    bench.run(&shared("another"));
    assert_eq!(bench.allowed("web"), reserved);
    assert_eq!(bench.allowed("db"), bench.assignable());
}

/// A container from before the plugin. Its quota is set again after it was lifted, as by systemd or
/// another runtime.
#[test]
fn a_quota_from_before_the_plugin_is_lifted() {
    let mut bench = Bench::new(Version::V2_1);
    bench.run(&exclusive("db"));
    let pid = pid(&bench, "db");
    let group = cgroup::of_process(pid, "cpu").unwrap();
    let (file, quota) = if cgroup::is_v2() {
        (group.join("cpu.max"), "100000 100000")
    } else {
        (group.join("cpu.cfs_quota_us"), "100000")
    };
    assert_eq!(cgroup::quota(pid).unwrap(), Some(1000));
    let mut plugin = bench.plugin();
    lifted_within(pid, Duration::from_secs(5));
    fs::write(&file, quota).unwrap();
    let drift = format!("but it has the CFS quota {quota:?}: set again");
    plugin.wait_for(&drift, 1, Duration::from_secs(15)).unwrap();
    lifted_within(pid, Duration::ZERO);
    assert_eq!(plugin.files().log().matches("but ").count(), 1, "{}", plugin.files().log());
}

#[track_caller]
fn lifted_within(pid: u32, patience: Duration) {
    let end = Instant::now() + patience;
    while cgroup::quota(pid).unwrap().is_some() {
        assert!(Instant::now() < end, "the quota is still set after {patience:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The runtime's own affinity is limited, and its children inherit it.
#[test]
fn an_inherited_affinity_is_widened() {
    let mut bench = Bench::new(Version::V1_7);
    let mut plugin = bench.plugin();
    bench.run(&shared("web"));
    bench.run(&shared("modest"));
    assert_eq!(bench.allowed("web"), bench.online());
    // Its own choice: its parent may run everywhere.
    set_affinity(pid(&bench, "modest"), bench.assignable());
    let process = pid(&bench, "web");
    set_affinity(process::parent(process).unwrap(), bench.reserved());
    set_affinity(process, bench.reserved());

    plugin.wait_for("it inherited the runtime's affinity: widened", 1, PATIENCE).unwrap();
    assert_eq!(bench.allowed("web"), bench.online());
    assert_eq!(bench.allowed("modest"), bench.assignable());
    let log = plugin.files().log();
    assert!(!log.contains("modest"), "a process's own affinity was reported as a drift: {log}");
}
