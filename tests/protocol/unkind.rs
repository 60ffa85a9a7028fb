//! A runtime that repeats events, gives up, hangs, restarts in the middle, or is wrong about what
//! has ended.

use crate::node::Node;
use crate::runtime::{ALL, Generation, cpu, of};
use nri::wire;
use protobuf::Message as _;
use std::time::Duration;
use wire::Event as Kind;

/// No CPU is assigned twice, and none freed that is still in use.
#[tokio::test(start_paused = true)]
async fn every_event_may_arrive_twice() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let other = node.run_pod("other", 2000).await;
        node.create(&other, "c", "o", 2000).await.unwrap();
        let a = node.run_pod("a", 4000).await;
        node.run_pod("a", 4000).await;
        for _ in 0..2 {
            node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
        }
        for _ in 0..2 {
            node.started("1").await;
            node.update("1", cpu(4000)).await.unwrap();
        }
        assert_eq!((node.cpus("1"), node.held()), ("4-7".into(), 6));
        let container = node.containers["1"].wire.clone();
        for _ in 0..2 {
            node.stop("1").await;
        }
        node.remove("1").await;
        node.runtime.report(Kind::REMOVE_CONTAINER, &a, Some(&container)).await.unwrap();
        for _ in 0..2 {
            node.stop_pod(&a).await;
            node.runtime.report(Kind::REMOVE_POD_SANDBOX, &a, None).await.unwrap();
        }
        assert_eq!((node.held_after_next_write().await, node.cpus("o")), (2, "2-3".into()));
        node.check();
    }
}

/// Both decisions are valid, and do not overlap.
#[tokio::test(start_paused = true)]
async fn a_creation_after_one_that_was_given_up_gets_other_cpus() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let b = node.run_pod("b", 4000).await;
        let given_up = node.container(&a, "c", "1", 4000);
        let payload = of(&a, &given_up.wire).write_to_bytes().unwrap();
        let stream = node.runtime.send("CreateContainer", &payload).await;
        let next = of(&b, &node.container(&b, "c", "2", 4000).wire).write_to_bytes().unwrap();
        let next = node.runtime.send("CreateContainer", &next).await;
        let cpus = |answer: Vec<u8>| {
            let answer = wire::CreateContainerResponse::parse_from_bytes(&answer).unwrap();
            answer.adjust.linux.resources.cpu.cpus.clone()
        };
        // The plugin still sends the first answer; Go's client drops it.
        assert_eq!(cpus(node.runtime.reply(stream).await.unwrap()), "2-5");
        assert_eq!(cpus(node.runtime.reply(next).await.unwrap()), "6-9");
        assert_eq!(node.create(&a, "c", "3", 4000).await.unwrap(), "2-5");
        assert_eq!(node.held(), 8);
    }
}

/// A runtime can report a stop wrongly: CRI-O reports one that was cancelled. CPUs go to another
/// pod only when the container or its pod is removed.
#[tokio::test(start_paused = true)]
async fn a_stop_alone_gives_no_cpus_to_another_pod() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 10_000).await;
        node.create(&a, "c", "1", 10_000).await.unwrap();
        node.stop("1").await;
        let b = node.run_pod("b", 10_000).await;
        let refused = node.create(&b, "c", "2", 10_000).await.unwrap_err();
        assert!(refused.contains("requested=10, available=4"), "{refused}");
        node.remove("1").await;
        assert!(node.create(&b, "c", "3", 10_000).await.is_ok());
        node.check();
    }
}

/// An update that names the container overrides the quota. (A kubelet that writes CPUs assigns CPUs
/// itself: then the plugin does not.)
#[tokio::test(start_paused = true)]
async fn quotas_of_the_kubelet_are_overridden_and_growth_without_room_is_refused() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let b = node.run_pod("b", 8000).await;
        node.create(&a, "c", "1", 4000).await.unwrap();
        node.create(&b, "c", "2", 8000).await.unwrap();
        node.update("1", cpu(4000)).await.unwrap();
        assert_eq!((node.cpus("1"), node.containers["1"].exclusive), ("2-5".into(), true));
        let refused = node.update("1", cpu(9000)).await.unwrap_err();
        assert!(refused.contains("UnexpectedAdmissionError"), "{refused}");
        assert_eq!((node.cpus("1"), node.held()), ("2-5".into(), 12));
        node.check();
    }
}

/// The parts that arrived do not count.
#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_list_discards_it() {
    for generation in [Generation::V0_8, Generation::V0_10, Generation::V0_12] {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let b = node.run_pod("b", 4000).await;
        node.create(&a, "c", "1", 4000).await.unwrap();
        node.create(&b, "c", "2", 4000).await.unwrap();
        for silence in [0, 5 * 3600] {
            node.drop_connection();
            node.runtime.registration().await;
            node.runtime.configure().await;
            let part = wire::SynchronizeRequest {
                pods: vec![a.clone()],
                containers: vec![node.containers["1"].wire.clone()],
                more: true,
                ..Default::default()
            };
            let answer: wire::SynchronizeResponse =
                node.runtime.call("Synchronize", &part).await.unwrap();
            assert!(answer.more && answer.update.is_empty());
            tokio::time::sleep(Duration::from_secs(silence)).await;
            node.reconnect().await;
            assert_eq!(
                (node.cpus("1"), node.cpus("2"), node.held()),
                ("2-5".into(), "6-9".into(), 8)
            );
        }
    }
}

/// The answer to the first list is lost with the connection.
#[tokio::test(start_paused = true)]
async fn a_list_whose_answer_was_lost_is_repaired_by_the_next_one() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let late = crate::runtime::pod("late", 4000);
        node.pods.insert(late.id.clone(), late.clone());
        let unpinned = node.container(&late, "c", "1", 4000);
        node.drop_connection();
        node.runtime.registration().await;
        node.runtime.configure().await;
        let list = wire::SynchronizeRequest {
            pods: vec![late.clone()],
            containers: vec![unpinned.wire.clone()],
            ..Default::default()
        };
        node.runtime.send("Synchronize", &list.write_to_bytes().unwrap()).await;
        node.containers.insert("1".into(), unpinned);
        node.reconnect().await;
        assert_eq!((node.cpus("1"), node.held()), ("2-5".into(), 4));
        node.check();
    }
}

/// The runtime hangs in the middle of a creation, and dies.
#[tokio::test(start_paused = true)]
async fn an_answer_that_the_runtime_never_read_has_no_effect() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let shared = node.run_pod("s", 500).await;
        node.create(&shared, "c", "s", 500).await.unwrap();
        let a = node.run_pod("a", 4000).await;
        let payload = of(&a, &node.container(&a, "c", "1", 4000).wire).write_to_bytes().unwrap();
        node.runtime.send("CreateContainer", &payload).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // The shared container has not left the CPUs, and the other one does not exist.
        node.reconnect().await;
        assert_eq!(node.cpus("s"), "0-15", "no other container exists");
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        assert_eq!(node.cpus("s"), "0-1,6-15");
        node.check();
    }
}
