//! Roll-outs: an instance of the plugin, as it ships, takes over from the previous one.

use crate::node::Node;
use crate::process::PluginProcess;
use crate::runtime::{self, Generation};
use config::Config;
use cpuset::CpuSet;
use daemon::{self, Start, Threads};
use nri::wire;
use protobuf::Message as _;
use serve::questions;
use state::checkpoint::{self, StateDir};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::Event as Kind;

/// The pods and containers that a runtime has created.
#[derive(Default)]
struct Created {
    pods: Vec<wire::PodSandbox>,
    containers: Vec<wire::Container>,
}

impl Created {
    /// Creates a pod with a container of two CPUs, with calls to these instances in this order.
    /// Returns the CPUs that each sets; empty for an answer that sets none.
    async fn create(&mut self, plugins: &mut [&mut PluginProcess]) -> Vec<CpuSet> {
        let name = format!("p{}", self.pods.len());
        let pod = runtime::pod(&name, 2000);
        let mut container = runtime::container(&name, &pod.uid, 2000);
        container.pod_sandbox_id.clone_from(&pod.id);
        let mut answers = Vec::new();
        for plugin in plugins {
            plugin.runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
            let answer = plugin.runtime.create(&pod, &container).await;
            let adjust = answer.unwrap().adjust;
            let cpus = adjust.linux.resources.cpu.cpus.clone();
            answers.push(cpus.parse().unwrap());
        }
        let cpus = answers.iter().find(|cpus: &&CpuSet| !cpus.is_empty());
        if let Some(cpus) = cpus {
            let cpu = container.linux.mut_or_insert_default().resources.mut_or_insert_default();
            cpu.cpu.mut_or_insert_default().cpus = cpus.to_string();
        }
        self.pods.push(pod);
        self.containers.push(container);
        answers
    }
}

/// In each round an instance starts while another one runs, and takes over while containers are
/// created.
#[tokio::test]
async fn no_container_is_created_without_cpus_in_twenty_roll_outs() {
    for generation in [Generation::V0_8, Generation::V0_12] {
        let mut old = PluginProcess::start(generation).await;
        old.runtime.synchronize(&[], &[], 1).await;
        for round in 0..10 {
            let mut node = Created::default();
            let mut taken = BTreeSet::new();
            let mut new = old.successor(&format!("nri-{round}.sock")).await;
            let updates = new.runtime.synchronize(&[], &[], 1).await;
            assert_eq!(updates.len(), 0);
            // While both run, the old one decides, whichever is called first.
            let both = node.create(&mut [&mut new, &mut old]).await;
            assert_eq!((both[0].len(), both[1].len()), (0, 2));
            let both = node.create(&mut [&mut old, &mut new]).await;
            assert_eq!((both[0].len(), both[1].len()), (2, 0));
            old.terminate();
            let started = Instant::now();
            for _ in 0..3 {
                assert_eq!(node.create(&mut [&mut new]).await[0].len(), 2);
            }
            assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
            for container in &node.containers {
                let cpus = &container.linux.resources.cpu.cpus;
                for cpu in cpus.parse::<CpuSet>().unwrap().iter() {
                    assert!(taken.insert(cpu), "CPU {cpu} is exclusive twice");
                }
            }
            for pod in &node.pods {
                new.runtime.report(Kind::STOP_POD_SANDBOX, pod, None).await.unwrap();
                new.runtime.report(Kind::REMOVE_POD_SANDBOX, pod, None).await.unwrap();
            }
            old = new;
        }
    }
}

/// Only one instance decides, whatever was removed of the state directory when it started.
#[tokio::test]
async fn an_instance_that_has_lost_its_state_directory_ends_if_another_one_has_it() {
    let mut old = PluginProcess::start(Generation::V0_12).await;
    old.runtime.synchronize(&[], &[], 1).await;
    let mut node = Created::default();
    assert_eq!(node.create(&mut [&mut old]).await[0].len(), 2);
    fs::remove_file(old.state_dir().join("lock")).unwrap();
    let mut standby = old.successor("second.sock").await;
    standby.runtime.synchronize(&node.pods, &node.containers, 1).await;
    let both = node.create(&mut [&mut standby, &mut old]).await;
    assert_eq!((both[0].len(), both[1].len()), (0, 2), "without the file `lock`");
    drop(standby);

    fs::rename(old.state_dir(), old.state_dir().with_extension("old")).unwrap();
    let mut new = old.successor("third.sock").await;
    new.runtime.synchronize(&node.pods, &node.containers, 1).await;
    assert_eq!(node.create(&mut [&mut new]).await[0].len(), 2);
    let pod = runtime::pod("last", 2000);
    let mut container = runtime::container("last", &pod.uid, 2000);
    container.pod_sandbox_id.clone_from(&pod.id);
    let create = runtime::of(&pod, &container).write_to_bytes().unwrap();
    old.runtime.send("CreateContainer", &create).await;
    assert!(old.runtime.closed().await, "it answers");
    assert_eq!(old.child.wait().unwrap().code(), Some(1));
}

#[tokio::test]
async fn an_instance_that_has_lost_its_state_directory_makes_a_new_one() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    plugin.runtime.synchronize(&[], &[], 1).await;
    let mut node = Created::default();
    node.create(&mut [&mut plugin]).await;
    let state = plugin.state_dir();
    fs::remove_dir_all(&state).unwrap();
    assert_eq!(node.create(&mut [&mut plugin]).await[0].len(), 2);
    assert_eq!(checkpoint::read(&state).unwrap().unwrap().cpus.len(), 2);
    assert!(StateDir::is_locked(&state));
    UnixStream::connect(state.join("status.sock")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_never_gets_the_node_ends_with_an_error() {
    let node = Node::start(Generation::V0_12).await;
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n";
    let config = Config::parse("test", config).unwrap();
    let threads = Threads::start().unwrap();
    let start = Start::new(&node.paths, config, &threads).unwrap();
    let (_messages, inbox) = mpsc::unbounded_channel();
    let since = tokio::time::Instant::now();
    let error = daemon::serve(inbox, questions(), &node.paths, &threads, start).await.unwrap_err();
    assert!(since.elapsed() >= Duration::from_secs(600), "{:?}", since.elapsed());
    let error = error.to_string();
    assert!(error.contains("another nri-cpu-manager uses the state directory"), "{error}");
}
