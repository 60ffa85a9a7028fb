//! Where containers' processes may run, and ran. All CPUs but one are reserved here.

use std::time::Duration;

use crate::bench::{Bench, eventually, own_cpu};
use lab::containerd::Version;

on_both!(the_exclusive_cpu_is_empty_when_its_container_starts,);

/// Exclusivity: the shared container last ran on the CPU before the exclusive one's first process
/// started, and at that moment none of its threads may run there.
fn the_exclusive_cpu_is_empty_when_its_container_starts(version: Version) {
    let mut bench = Bench::new(version);
    let _plugin = bench.plugin();
    bench.run_busy("busy");
    let first = bench.run_first("lonely");
    let cpu = own_cpu(&first);
    assert!(!first.threads.is_empty(), "the report has no thread of the busy container");
    for (thread, cpus) in &first.threads {
        assert!(
            !cpus.contains(cpu),
            "thread {thread} of the busy container may still run on {cpus}"
        );
    }
    let last_run = bench.last_run(cpu);
    assert!(
        last_run < first.start,
        "the busy container ran on CPU {cpu} {} us after the start of its exclusive container",
        (last_run - first.start) / 1000
    );
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bench.last_run(cpu), last_run, "the busy container returned to CPU {cpu}");
}

/// Without the plugin, the same two containers meet, and the probe detects it.
#[test]
fn containers_share_cpus_without_the_plugin() {
    let mut bench = Bench::new(Version::V2_1);
    bench.run_busy("busy");
    let first = bench.run_first("not-alone");
    for cpu in bench.online().iter() {
        let meet = || bench.last_run(cpu) > first.start;
        assert!(eventually(meet), "the busy container did not run on CPU {cpu} again");
    }
    assert!(first.threads.iter().all(|(_, cpus)| *cpus == bench.online()));
}
