//! CPUs near the devices that the kubelet names, with a kubelet that works or fails.

use super::client::LIST;
use super::kubelet::Kubelet;
use super::messages::{field, pod};
use super::{Node, config};
use crate::support::commands::{command, has};
use crate::support::events::{local, pod_and_container};
use crate::support::observed::ObservedDaemon;
use ledger::{Event, Qos};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A network card on a NUMA node, as the kubelet lists it: a node is field 1 of a topology, and its
/// number is field 1 of that.
fn nic(node: u8) -> Vec<u8> {
    let topology = field(3, &[&field(1, &[&[0x08, node]])]);
    field(2, &[&field(1, &[b"acme.com/nic"]), &field(2, &[b"eth1"]), &topology])
}

impl Node {
    /// Starts with this policy of the topology manager. CPUs 8-15 are on NUMA node 1.
    async fn under(policy: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), &format!("topologyManagerPolicy: {policy}\n"));
        let daemon = ObservedDaemon::following(&config).await;
        Node { daemon, dir }
    }

    /// Starts a pod's sandbox, upon which the plugin asks the kubelet.
    async fn run_pod(&self, name: &str) {
        let (pod, _) = pod_and_container(name, Qos::Guaranteed, 2000);
        self.daemon.event(Event::RunPod(pod)).await.unwrap();
    }

    /// As the status has it in JSON.
    async fn kubelet_is(&self, state: Value) {
        for _ in 0..100 {
            let parts = self.daemon.status().await.node.unwrap().parts;
            if serde_json::to_value(parts.kubelet_devices).unwrap() == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let parts = self.daemon.status().await.node.unwrap().parts;
        panic!("not {state:?}: {:?}", parts.kubelet_devices);
    }

    async fn created(&self, name: &str) -> Result<String, String> {
        self.daemon.create(name, Qos::Guaranteed, 2000).await
    }
}

#[tokio::test]
async fn cpus_are_on_the_node_that_the_kubelet_names() {
    local(async {
        let node = Node::under("single-numa-node").await;
        let list = [pod("a", &[&nic(1)]), pod("b", &[&nic(0)]), pod("far", &[&nic(7)])].concat();
        let _kubelet = Kubelet::start(&node.kubelet(), [(LIST, Ok(list))].into());
        node.run_pod("a").await;
        node.kubelet_is("answers".into()).await;
        assert_eq!(node.created("a").await.unwrap(), "8-9");
        node.run_pod("b").await;
        node.kubelet_is("answers".into()).await;
        assert_eq!(node.created("b").await.unwrap(), "2-3");
        // A NUMA node that does not exist, and a pod that is not listed.
        assert_eq!(node.created("far").await.unwrap(), "4-5");
        assert_eq!(node.created("unlisted").await.unwrap(), "6-7");
        let why = command(&node.daemon.paths.state_dir, &["explain", "a"]).await.unwrap();
        has(&why, &["Devices on NUMA node 1: acme.com/nic eth1, as the kubelet says."]);
    })
    .await;
}

#[tokio::test]
async fn a_failing_kubelet_delays_no_container() {
    local(async {
        let broken = pod("a", &[&[0xff]]);
        let answers = [
            (Ok(broken), "its answer is not a valid message"),
            (
                Ok(vec![0; (4 << 20) + 1]),
                "it answered the message is longer than 4194304 bytes (gRPC code 8)",
            ),
            (Err((8, "too many requests")), "it answered too many requests (gRPC code 8)"),
        ];
        for (answer, why) in answers {
            let node = Node::under("single-numa-node").await;
            let _kubelet = Kubelet::start(&node.kubelet(), [(LIST, answer)].into());
            node.run_pod("a").await;
            node.kubelet_is(json!({"fails": why})).await;
            assert_eq!(node.created("a").await.unwrap(), "2-3");
        }
        let node = Node::under("single-numa-node").await;
        let _kubelet = Kubelet::silent(&node.kubelet());
        let started = Instant::now();
        node.run_pod("a").await;
        assert_eq!(node.created("a").await.unwrap(), "2-3");
        // The plugin waits a second for the kubelet's answer, but this container did not.
        assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
        node.kubelet_is(json!({"fails": "no answer within 1 s"})).await;
    })
    .await;
}

#[tokio::test]
async fn the_kubelet_is_asked_again_after_it_was_away() {
    local(async {
        let node = Node::under("single-numa-node").await;
        node.run_pod("a").await;
        assert_eq!(node.created("a").await.unwrap(), "2-3");
        let _kubelet = Kubelet::start(&node.kubelet(), [(LIST, Ok(pod("b", &[&nic(1)])))].into());
        node.run_pod("b").await;
        node.kubelet_is("answers".into()).await;
        assert_eq!(node.created("b").await.unwrap(), "8-9");
    })
    .await;
}
