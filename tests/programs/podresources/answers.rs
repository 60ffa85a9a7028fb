//! Answers to clients, with a kubelet and without one.

use super::client::{ALLOCATABLE, Client, GET, LIST, call};
use super::kubelet::Kubelet;
use super::messages::{field, listed, numbers, pod, request};
use super::{Node, config};
use crate::support::events::local;
use crate::support::observed::ObservedDaemon;
use ledger::Qos;
use std::time::{Duration, Instant};

const DEVICES: &[u8] = &[0x12, 3, 0x0a, 1, b'g'];
/// A field of a later version.
const UNKNOWN: &[u8] = &[0xa5, 0x06, 1, 2, 3, 4];

#[tokio::test]
async fn the_kubelets_answers_have_the_plugins_cpus() {
    local(async {
        let node = Node::start().await;
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        node.daemon.create("s", Qos::Burstable, 500).await.unwrap();
        let other = pod("other", &[DEVICES, UNKNOWN]);
        let of = |cpus: &[u8]| pod("a", &[DEVICES, cpus, UNKNOWN]);
        let memory = field(3, &[&field(1, &[b"memory"])]);
        let _kubelet = Kubelet::start(
            &node.kubelet(),
            [
                (LIST, Ok([UNKNOWN, &other, &of(&[])].concat())),
                (GET, Ok([of(&field(3, &[&[9]])), UNKNOWN.to_vec()].concat())),
                (ALLOCATABLE, Ok([field(1, &[DEVICES]), memory.clone()].concat())),
            ]
            .into(),
        );
        let cpus = field(3, &[&[2, 3]]);
        let mut client = Client::connect(&node.socket()).await;
        let expect = [UNKNOWN, &other, &of(&cpus), &pod("s", &[])].concat();
        assert_eq!(client.call(LIST, &[]).await, Ok(expect));
        let expect = [of(&cpus), UNKNOWN.to_vec()].concat();
        assert_eq!(client.call(GET, &request("a", "ns")).await, Ok(expect));
        let all: Vec<u8> = (2..16).collect();
        let expect = [field(1, &[DEVICES]), field(2, &[&all]), memory].concat();
        assert_eq!(client.call(ALLOCATABLE, &[]).await, Ok(expect));
    })
    .await;
}

/// Without an answer of the kubelet, clients soon get the plugin's part.
async fn check_plugins_part(node: &Node) {
    let started = Instant::now();
    let mut client = Client::connect(&node.socket()).await;
    let list = client.call(LIST, &[]).await.unwrap();
    assert_eq!(listed(&list), [("ns/a/c".to_owned(), vec![2, 3])].into());
    let get = client.call(GET, &request("a", "ns")).await.unwrap();
    assert_eq!(get, list);
    let (_, cpus) =
        super::messages::fields(&client.call(ALLOCATABLE, &[]).await.unwrap()).remove(0);
    assert_eq!(numbers(&cpus), (2..16).collect::<Vec<_>>());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn no_failure_of_the_kubelet_hides_the_plugins_part() {
    local(async {
        let node = Node::start().await;
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        check_plugins_part(&node).await;
        {
            let _silent = Kubelet::silent(&node.kubelet());
            check_plugins_part(&node).await;
        }
        let all = |answer: Result<Vec<u8>, (u32, &'static str)>| {
            [LIST, GET, ALLOCATABLE].map(|method| (method, answer.clone())).into()
        };
        for answer in [Err((14, "busy")), Ok(vec![0x0e])] {
            let _kubelet = Kubelet::start(&node.kubelet(), all(answer));
            check_plugins_part(&node).await;
        }
        // The kubelet is gone, and its socket is left.
        assert!(node.kubelet().exists());
        check_plugins_part(&node).await;
    })
    .await;
}

#[tokio::test]
async fn no_cpu_looks_free_before_the_runtime_has_listed_its_containers() {
    local(async {
        let dir = tempfile::tempdir().unwrap();
        let daemon = ObservedDaemon::start(&config(dir.path(), ""));
        let node = Node { daemon, dir };
        node.listening().await;
        let mut client = Client::connect(&node.socket()).await;
        let unknown = Err((14, "the runtime has not listed its containers yet".to_owned()));
        assert_eq!(client.call(LIST, &[]).await, unknown);
        node.daemon.connect_runtime(1).await;
        assert_eq!(client.call(LIST, &[]).await, unknown);
        node.daemon.synchronize().await;
        assert_eq!(client.call(LIST, &[]).await, Ok(Vec::new()));
        // What the runtime has listed stays known while it restarts.
        node.daemon.connect_runtime(1).await;
        assert_eq!(client.call(LIST, &[]).await, Ok(Vec::new()));
    })
    .await;
}

#[tokio::test]
async fn an_unknown_pod_is_not_found() {
    local(async {
        let node = Node::start().await;
        let unknown = Err((5, "pod x in namespace ns not found".to_owned()));
        assert_eq!(call(&node.socket(), GET, &request("x", "ns")).await, unknown);
        let answers = [(GET, Err((2, "the kubelet's words")))];
        let _kubelet = Kubelet::start(&node.kubelet(), answers.into());
        let theirs = Err((2, "the kubelet's words".to_owned()));
        assert_eq!(call(&node.socket(), GET, &request("x", "ns")).await, theirs);
    })
    .await;
}

#[tokio::test]
async fn invalid_requests_get_an_error_and_the_connection_stays() {
    local(async {
        let node = Node::start().await;
        let mut client = Client::connect(&node.socket()).await;
        let code = |answer: super::client::Answer| answer.unwrap_err().0;
        assert_eq!(code(client.call("/v1.PodResourcesLister/Set", &[]).await), 12);
        assert_eq!(code(client.call("/v1alpha1.PodResourcesLister/List", &[]).await), 12);
        assert_eq!(code(client.call(GET, &[0x0e]).await), 3);
        assert_eq!(code(client.call(LIST, &[0; 5000]).await), 8);
        assert_eq!(code(client.send(LIST, vec![1, 0, 0, 0, 0]).await.unwrap()), 12);
        assert_eq!(code(client.send(LIST, vec![0, 0, 0, 0, 1]).await.unwrap()), 3);
        assert_eq!(code(client.send(LIST, vec![]).await.unwrap()), 3);
        client.call(LIST, &[]).await.unwrap();
    })
    .await;
}
