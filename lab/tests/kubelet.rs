//! A kubelet with its static policy beside the plugin, on real containerd: the lab asks for containers as such a kubelet
//! does and writes its state file, and the processes themselves say where they may run.
//!
//! CPU 0 is reserved, CPU 1 exclusive, so two CPUs are enough.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

#[macro_use]
mod support;

use std::time::Duration;

use lab::containerd::Version;
use lab::plugin::Plugin;
use lab::pod::{Container, Pod};
use lab::process;
use support::{Bench, CONFIG, binaries, exclusive, shared};

/// The state file of a kubelet with policy none, as a real one writes it.
const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;

on_both!(
    a_kubelets_node_is_taken_over_without_a_move,
    a_node_is_moved_from_the_kubelet_while_the_plugin_runs,
    an_active_kubelet_is_observed,
);

/// The state file of a kubelet whose static policy gave this pod CPU 1.
fn assigned(pod: &Pod) -> String {
    format!(
        r#"{{"policyName":"static","defaultCpuSet":"0","entries":{{"{}":{{"main":"1"}}}},"checksum":0}}"#,
        pod.uid
    )
}

/// A pod as a kubelet asks for it that has given its container these CPUs.
fn on(cpus: &str, pod: Pod) -> Pod {
    let containers = pod.containers.into_iter().map(|container: Container| container.on(cpus));
    Pod { containers: containers.collect(), ..pod }
}

fn cpus(bench: &Bench, pods: &[&str]) -> Vec<String> {
    pods.iter().map(|pod| bench.allowed(pod).to_string()).collect()
}

/// The kubelet was configured anew before the plugin came; its pods ran on.
fn a_kubelets_node_is_taken_over_without_a_move(version: Version) {
    let mut bench = Bench::new(version);
    bench.run(&on("1", exclusive("db")));
    bench.run(&on("0", shared("web")));
    assert_eq!(cpus(&bench, &["db", "web"]), ["1", "0"]);
    bench.host.node.kubelet_state(Some(NONE)).unwrap();
    let plugin = bench.plugin();
    assert_eq!(cpus(&bench, &["db", "web"]), ["1", "0"]);
    let log = plugin.log();
    assert!(log.contains("exclusive CPUs 1, shared pool 0, 0 containers changed"), "{log}");
    assert_eq!(plugin.decided("db", "main").unwrap().unwrap().to_string(), "1");

    let refused = format!("{:#}", bench.host.node.run(&exclusive("next")).unwrap_err());
    assert!(refused.contains("not enough"), "its CPU is not given out again: {refused}");
    bench.host.node.remove("next").unwrap();
    bench.host.node.remove("db").unwrap();
    bench.run(&exclusive("later"));
    assert_eq!(cpus(&bench, &["later", "web"]), ["1", "0"]);
}

/// The plugin comes while the kubelet's static policy is active, the kubelet is configured anew, the plugin takes over:
/// docs/migrating.md in small.
fn a_node_is_moved_from_the_kubelet_while_the_plugin_runs(version: Version) {
    let mut bench = Bench::new(version);
    let db = on("1", exclusive("db"));
    let running = bench.run(&db);
    bench.run(&on("0", shared("web")));
    bench.host.node.kubelet_state(Some(&assigned(&db))).unwrap();
    let mut plugin = bench.plugin();
    assert!(plugin.log().contains("the kubelet's own CPU manager is active"), "{}", plugin.log());

    // 1. It stands back: shared containers and those that come back get what the kubelet says, new exclusive ones nothing.
    let refused = bench.host.node.run(&on("1", exclusive("new"))).unwrap_err();
    let refused = format!("{refused:#}");
    assert!(refused.starts_with("create_container"), "{refused}");
    assert!(refused.contains("cpuManagerPolicy: none"), "{refused}");
    bench.host.node.remove("new").unwrap();
    bench.run(&on("0-1", shared("wide")));
    bench.host.node.stop_container(&running.containers[0]).unwrap();
    let again = bench
        .host
        .node
        .start_container(&running.pod, &running.pod.containers[0], &running.sandbox, 1)
        .unwrap();
    assert_eq!(process::allowed(again.pid).unwrap().to_string(), "1");
    assert_eq!(cpus(&bench, &["web", "wide"]), ["0", "0-1"]);

    // 2. Policy none: the file is deleted, the kubelet comes back and writes it anew.
    bench.host.node.kubelet_state(None).unwrap();
    bench.host.node.kubelet_state(Some(NONE)).unwrap();
    plugin.wait_for("no longer active", 1, Duration::from_secs(10)).unwrap();
    assert_eq!(process::allowed(again.pid).unwrap().to_string(), "1");
    assert_eq!(plugin.decided("db", "main").unwrap().unwrap().to_string(), "1");

    // 3. With the next container everything is in order.
    bench.run(&shared("late"));
    assert_eq!(cpus(&bench, &["late", "web", "wide"]), ["0", "0", "0"]);
    assert_eq!(process::allowed(again.pid).unwrap().to_string(), "1");
    assert!(!plugin.log().contains("moved"), "{}", plugin.log());
}

/// `onActiveKubelet: observe`: it only says what it would do. The kubelet's directory is not to be seen here.
fn an_active_kubelet_is_observed(version: Version) {
    let mut bench = Bench::new(version);
    let config = format!("{CONFIG}onActiveKubelet: observe\n");
    let mut setup = bench.host.node.plugin(&binaries().plugin, &config).unwrap();
    setup.config = format!("{config}kubeletStateDir: \"\"\n");
    let plugin = Plugin::start(&setup).unwrap();
    bench.run(&on("0-1", shared("web")));
    bench.run(&on("1", exclusive("db")));
    assert_eq!(cpus(&bench, &["web", "db"]), ["0-1", "1"]);
    let log = plugin.log();
    assert!(log.contains("default/db/main: observing, not done: exclusive CPUs 1"), "{log}");
    // The kubelet's policy is none again: the first container without CPUs tells.
    bench.run(&shared("late"));
    assert_eq!(cpus(&bench, &["late", "web", "db"]), ["0", "0", "1"]);
}
