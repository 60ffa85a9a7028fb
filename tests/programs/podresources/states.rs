//! `List` and the status have the same CPUs, in random states.

use super::Node;
use super::client::{Client, LIST};
use super::kubelet::Kubelet;
use super::messages::{listed, pod};
use crate::support::events::{local, pod_and_container};
use crate::support::random::Random;
use ledger::model::{ContainerId, SandboxId};
use ledger::{Admission, CpuRequest, Event, MilliCpu, Qos, RequestedUpdate};
use std::collections::{BTreeMap, BTreeSet};

const STATES: usize = 1000;

/// Makes a random call about one of twelve pods. An invalid call is refused or ignored.
async fn step(node: &Node, random: &mut Random) {
    let name = format!("p{}", random.below(12));
    let id = ContainerId(format!("id-{name}").into());
    let amount = random.below(9) as u64 * 500;
    let qos = if random.below(4) == 0 { Qos::Burstable } else { Qos::Guaranteed };
    let (pod, container) = pod_and_container(&name, qos, amount);
    let sandbox = SandboxId(format!("sandbox-{name}").into());
    let _ = match random.below(10) {
        0..=3 => node.daemon.event(Admission::Create { pod, container }).await,
        4 => node.daemon.event(Event::Started { pod, container }).await,
        5 => node.daemon.event(Event::Stop(id)).await,
        6 => node.daemon.event(Event::Remove(id)).await,
        7 => {
            let amount = Some(MilliCpu(amount));
            let cpu = CpuRequest { request: amount, limit: amount };
            let requested = RequestedUpdate { cpu, sets_quota: true, ..RequestedUpdate::default() };
            node.daemon.event(Admission::Update { pod, container, requested }).await
        }
        8 => node.daemon.event(Event::StopPod(sandbox)).await,
        _ => node.daemon.event(Event::RemovePod(sandbox)).await,
    };
}

#[tokio::test]
async fn list_equals_the_status_in_random_states() {
    local(async {
        let node = Node::start().await;
        let mut client = Client::connect(&node.socket()).await;
        let mut random = Random::new();
        let mut states = BTreeSet::new();
        let mut exclusive = 0;
        for turn in 0..STATES {
            step(&node, &mut random).await;
            // In one turn of four, a kubelet lists some of the pods, with CPUs that were never
            // assigned.
            let bits = random.below(1 << 12);
            let all: Vec<usize> = (0..12).filter(|bit| bits >> bit & 1 == 1).collect();
            let _kubelet = (turn % 4 == 0).then(|| {
                let pods = all.iter().map(|at| pod(&format!("p{at}"), &[&[0x1a, 2, 14, 15]]));
                let answers = [(LIST, Ok(pods.collect::<Vec<_>>().concat()))];
                Kubelet::start(&node.kubelet(), answers.into())
            });
            let mut list = listed(&client.call(LIST, &[]).await.unwrap());
            let status = node.daemon.status().await.node.unwrap();
            let expect: BTreeMap<String, Vec<u64>> = status
                .containers
                .iter()
                .map(|one| {
                    (one.full_name(), one.exclusive_cpus().iter().map(|cpu| cpu as u64).collect())
                })
                .collect();
            if turn % 4 == 0 {
                // Pods that the plugin does not know are listed as by the kubelet.
                for at in &all {
                    let name = format!("ns/p{at}/c");
                    if !expect.contains_key(&name) {
                        assert_eq!(list.remove(&name), Some(vec![14, 15]), "turn {turn}");
                    }
                }
            }
            assert_eq!(list, expect, "turn {turn}");
            exclusive += expect.values().filter(|cpus| !cpus.is_empty()).count();
            states.insert(format!("{expect:?}"));
        }
        assert!(states.len() > STATES / 4, "only {} states", states.len());
        assert!(exclusive > STATES, "only {exclusive} exclusive containers");
    })
    .await;
}
