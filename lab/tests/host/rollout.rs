//! Roll-outs as shipped: the pod of the manifests takes over from the one before it, on real
//! containerd.

use std::time::Duration;

use crate::bench::{Bench, shipped};
use crate::daemonset::overlay;
use lab::containerd::Version;
use lab::daemonset::DaemonPod;
use lab::instance::Instance as _;
use lab::manifests::Manifests;
use lab::process;
use nix::sys::signal::Signal;

on_both!(a_roll_out_leaves_no_container_unpinned);

const PATIENCE: Duration = Duration::from_secs(60);

/// The pod of the nth roll-out. Two run at a time, and pods of the lab share the host's network:
/// each has another port than the one before it.
fn manifests(bench: &Bench, number: u16) -> Manifests {
    let mut manifests = overlay("base", bench.reserved());
    manifests.daemon_set.metadata.name = format!("nri-cpu-manager-{number}");
    let main = &mut manifests.pod_mut().containers[0];
    let port = 9479 + number % 2;
    main.args = vec!["run".to_owned(), format!("--metrics-address=[::]:{port}")];
    main.ports[0].container_port = port;
    manifests
}

/// Keeps the state of the one before.
fn surge(bench: &mut Bench, number: u16) -> DaemonPod {
    let manifests = manifests(bench, number);
    let pod = DaemonPod::apply(&mut bench.host.node, &shipped().image, &manifests);
    pod.unwrap_or_else(|error| panic!("{error:#}"))
}

/// While pods of the plugin are replaced as `maxSurge: 1` does, exclusive containers start without
/// a pause: each runs on its own CPU from its first instruction.
fn a_roll_out_leaves_no_container_unpinned(version: Version) {
    let mut bench = Bench::new(version);
    let first = manifests(&bench, 0);
    bench.install(&first).unwrap_or_else(|error| panic!("{error:#}"));
    let (daemon, node) = bench.daemon();
    daemon.wait_until_ready(node).unwrap();
    let own = bench.assignable();
    let mut started = 0;
    for number in 1..=5 {
        let mut new = surge(&mut bench, number);
        for text in ["waiting for its end", "runtime: "] {
            new.wait_for(&bench.host.node, text, 1, PATIENCE).unwrap();
        }
        let mut old = bench.daemon.replace(new).unwrap();
        // With both connected, with the old one ending, and with the new one alone.
        for phase in ["both", "change", "new"] {
            if phase == "change" {
                process::signal(old.pid().unwrap(), Signal::SIGTERM);
            }
            let name = format!("db-{number}-{phase}");
            let report = bench.run_first(&name);
            assert_eq!(report.own, own, "{name}");
            bench.host.node.remove(&name).unwrap();
            started += 1;
        }
        let (new, node) = bench.daemon();
        new.wait_for(node, "taking the node over", 1, PATIENCE).unwrap();
        new.wait_until_ready(node).unwrap();
        assert_eq!(old.wait_for_end(node.kubelet()).unwrap(), 0);
        old.remove(node).unwrap();
    }
    println!("roll-outs=5 started={started} unpinned=0");
}
