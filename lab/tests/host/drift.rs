//! Drift on real containerd: the plugin finds it in cgroup files, reports it and repairs it. The
//! test writes what any root user could write.

use std::fs;
use std::time::Duration;

use crate::bench::{Bench, eventually, exclusive, shared};
use lab::cgroup;
use lab::containerd::Version;

/// Two check passes, and the time until the first one.
const PATIENCE: Duration = Duration::from_secs(30);

/// containerd 2.1 could deadlock on an unsolicited update, so the plugin writes the cgroup itself,
/// and updates containerd with its next answer. The quota of a container from before the plugin is
/// set again after it was lifted, as by systemd or another runtime.
#[test]
fn cpus_and_quotas_written_by_another_program_are_repaired() {
    let mut bench = Bench::new(Version::V2_1);
    let (online, reserved) = (bench.online(), bench.reserved());
    let db = bench.run(&exclusive("db")).containers[0].pid;
    assert_eq!(cgroup::quota(db).unwrap(), Some(1000));
    let mut plugin = bench.plugin();
    let is_lifted = || cgroup::quota(db).unwrap().is_none();
    assert!(eventually(is_lifted), "the quota is still set");
    let web = bench.run(&shared("web")).containers[0].pid;
    assert_eq!(bench.allowed("web"), reserved);

    let group = cgroup::of_process(web, "cpuset").unwrap();
    fs::write(group.join("cpuset.cpus"), online.to_string()).unwrap();
    assert_eq!(bench.allowed("web"), online);
    let cpus = wording::cpus(reserved);
    let drift = format!("should have {cpus}, but its cgroup has CPUs {online} set");
    plugin.wait_for(&format!("{drift}: set again"), 1, PATIENCE).unwrap();
    assert_eq!(bench.allowed("web"), reserved);

    let (file, quota) =
        if cgroup::is_v2() { ("cpu.max", "100000 100000") } else { ("cpu.cfs_quota_us", "100000") };
    fs::write(cgroup::of_process(db, "cpu").unwrap().join(file), quota).unwrap();
    let drift = format!("but it has the CFS quota {quota:?}: set again");
    plugin.wait_for(&drift, 1, PATIENCE).unwrap();
    assert!(is_lifted(), "the quota is set again");

    bench.run(&shared("another"));
    assert_eq!(bench.allowed("web"), reserved);
    assert_eq!(bench.allowed("db"), bench.assignable());
    assert_eq!(plugin.files().log().matches("but ").count(), 2, "{}", plugin.files().log());
}
