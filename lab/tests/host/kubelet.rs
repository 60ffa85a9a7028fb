//! A kubelet with the static policy next to the plugin, on real containerd: the lab requests
//! containers like such a kubelet and writes its state file; the processes show where they may run.
//!
//! The kubelet, too, has assigned the only assignable CPU; all others are its shared pool.

use std::time::Duration;

use crate::bench::{Bench, exclusive, shared};
use cpuset::CpuSet;
use lab::containerd::Version;
use lab::pod::{Container, Pod};
use lab::process;

/// As a kubelet with policy none writes it.
const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;

on_both!(
    a_kubelets_node_is_taken_over_without_a_move,
    a_node_is_moved_from_the_kubelet_while_the_plugin_runs,
);

/// As a kubelet with the static policy writes it, with the assignable CPU given to this pod.
fn assigned(bench: &Bench, pod: &Pod) -> String {
    let (uid, default, own) = (&pod.uid, bench.reserved(), bench.assignable());
    format!(
        r#"{{"policyName":"static","defaultCpuSet":"{default}","entries":{{"{uid}":{{"main":"{own}"}}}},"checksum":0}}"#
    )
}

/// The pod as a kubelet requests it after assigning these CPUs.
fn on(cpus: CpuSet, pod: Pod) -> Pod {
    let on = |container: Container| container.on(&cpus.to_string());
    let containers = pod.containers.into_iter().map(on);
    Pod { containers: containers.collect(), ..pod }
}

fn cpus(bench: &Bench, pods: &[&str]) -> Vec<CpuSet> {
    pods.iter().map(|pod| bench.allowed(pod)).collect()
}

/// The kubelet was reconfigured before the plugin started; its pods kept running.
fn a_kubelets_node_is_taken_over_without_a_move(version: Version) {
    let mut bench = Bench::new(version);
    let (own, reserved) = (bench.assignable(), bench.reserved());
    bench.run(&on(own, exclusive("db")));
    bench.run(&on(reserved, shared("web")));
    assert_eq!(cpus(&bench, &["db", "web"]), [own, reserved]);
    bench.host.node.kubelet_state(Some(NONE)).unwrap();
    let plugin = bench.plugin();
    assert_eq!(cpus(&bench, &["db", "web"]), [own, reserved]);
    let log = plugin.files().log();
    let taken_over = format!(
        "exclusive CPU {own}, shared pool {reserved}, first time on this node: 0 containers pinned, 0 moved, "
    );
    assert!(log.contains(&taken_over), "{log}");
    assert_eq!(plugin.files().claimed("db", "main").unwrap(), Some(own));

    let refused = format!("{:#}", bench.host.node.run(&exclusive("next")).unwrap_err());
    assert!(refused.contains("not enough"), "its CPU was assigned again: {refused}");
    bench.host.node.remove("next").unwrap();
    bench.host.node.remove("db").unwrap();
    bench.run(&exclusive("later"));
    assert_eq!(cpus(&bench, &["later", "web"]), [own, reserved]);
}

/// The plugin starts while the kubelet's static policy is active, the kubelet is reconfigured, and
/// the plugin takes over, as in docs/migrating.md.
fn a_node_is_moved_from_the_kubelet_while_the_plugin_runs(version: Version) {
    let mut bench = Bench::new(version);
    let (own, reserved) = (bench.assignable(), bench.reserved());
    let db = on(own, exclusive("db"));
    let running = bench.run(&db);
    bench.run(&on(reserved, shared("web")));
    bench.host.node.kubelet_state(Some(&assigned(&bench, &db))).unwrap();
    let mut plugin = bench.plugin();
    assert!(
        plugin.files().log().contains("the kubelet's own CPU manager is active"),
        "{}",
        plugin.files().log()
    );

    // 1. Standing by: shared and restarted containers get the kubelet's CPUs, new exclusive ones
    // are    refused.
    let refused = bench.host.node.run(&on(own, exclusive("new"))).unwrap_err();
    let refused = format!("{refused:#}");
    assert!(refused.starts_with("create_container"), "{refused}");
    assert!(refused.contains("cpuManagerPolicy: none"), "{refused}");
    bench.host.node.remove("new").unwrap();
    bench.run(&on(bench.online(), shared("wide")));
    bench.host.node.kubelet().stop_container(&running.containers[0].id).unwrap();
    let again = bench
        .host
        .node
        .start_container(&running.pod, &running.pod.containers[0], &running.sandbox, 1)
        .unwrap();
    assert_eq!(process::allowed(again.pid).unwrap(), own);
    assert_eq!(cpus(&bench, &["web", "wide"]), [reserved, bench.online()]);

    // 2. Policy none: the file is deleted, and the restarted kubelet writes a new one.
    bench.host.node.kubelet_state(None).unwrap();
    bench.host.node.kubelet_state(Some(NONE)).unwrap();
    plugin.wait_for("no longer active", 1, Duration::from_secs(10)).unwrap();
    assert_eq!(process::allowed(again.pid).unwrap(), own);
    assert_eq!(plugin.files().claimed("db", "main").unwrap(), Some(own));

    // 3. The next container completes the takeover.
    bench.run(&shared("late"));
    assert_eq!(cpus(&bench, &["late", "web", "wide"]), [reserved; 3]);
    assert_eq!(process::allowed(again.pid).unwrap(), own);
    assert!(!plugin.files().log().contains(": moved"), "{}", plugin.files().log());
}
