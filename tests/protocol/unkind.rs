//! A runtime that repeats itself, gives up, hangs, restarts in the middle, or is wrong about what
//! has ended.

use crate::node::Node;
use crate::runtime::{ALL, Generation, cpu, of};
use nri::wire;
use protobuf::Message as _;
use std::time::Duration;
use wire::Event as Kind;

/// Every event twice: nothing is given twice, nothing freed that is still used.
#[tokio::test(start_paused = true)]
async fn everything_twice() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let other = node.run_pod("other", 2000).await;
        node.create(&other, "c", "o", 2000).await.unwrap();
        let a = node.run_pod("a", 4000).await;
        node.run_pod("a", 4000).await;
        for _ in 0..2 {
            node.ask(&a, "c", "1", 4000).await.unwrap();
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
        node.runtime.tell(Kind::REMOVE_CONTAINER, &a, Some(&container)).await.unwrap();
        for _ in 0..2 {
            node.stop_pod(&a).await;
            node.runtime.tell(Kind::REMOVE_POD_SANDBOX, &a, None).await.unwrap();
        }
        assert_eq!((node.held_after_next_write().await, node.cpus("o")), (2, "2-3".into()));
        node.check();
    }
}

/// The runtime gives up on a creation and goes on to the next one; both decisions stand, and do not
/// meet.
#[tokio::test(start_paused = true)]
async fn given_up_and_gone_on() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let (a, b) = (node.run_pod("a", 4000).await, node.run_pod("b", 4000).await);
        let given_up = node.container(&a, "c", "1", 4000);
        let payload = of(&a, &given_up.wire).write_to_bytes().unwrap();
        let stream = node.runtime.send("CreateContainer", &payload).await;
        let next = of(&b, &node.container(&b, "c", "2", 4000).wire).write_to_bytes().unwrap();
        let next = node.runtime.send("CreateContainer", &next).await;
        let cpus = |answer: Vec<u8>| {
            let answer = wire::CreateContainerResponse::parse_from_bytes(&answer).unwrap();
            answer.adjust.linux.resources.cpu.cpus.clone()
        };
        // The first answer still comes; Go's client drops it.
        assert_eq!(cpus(node.runtime.reply(stream).await.unwrap()), "2-5");
        assert_eq!(cpus(node.runtime.reply(next).await.unwrap()), "6-9");
        assert_eq!(node.create(&a, "c", "3", 4000).await.unwrap(), "2-5");
        assert_eq!(node.held(), 8);
    }
}

/// A stop is only the word of a runtime that may have been wrong (a stop that was cancelled counts
/// as one with CRI-O). CPUs become another pod's only when container or pod is gone for good.
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

/// The kubelet's writes of a quota are overridden, by an update that names the container; a growth
/// without room fails the resize. CPUs that it writes are another matter: then it assigns CPUs
/// itself, and the plugin stands back.
#[tokio::test(start_paused = true)]
async fn updates_by_the_kubelet() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let (a, b) = (node.run_pod("a", 4000).await, node.run_pod("b", 8000).await);
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

/// The list of containers ends in the middle: the runtime has restarted. What came of it does not
/// count.
#[tokio::test(start_paused = true)]
async fn restarts_in_the_middle_of_a_list() {
    for generation in [Generation::V0_8, Generation::V0_10, Generation::V0_12] {
        let mut node = Node::start(generation).await;
        let (a, b) = (node.run_pod("a", 4000).await, node.run_pod("b", 4000).await);
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

/// The answer to a list is lost with the connection: what it was to repair is repaired by the next
/// one.
#[tokio::test(start_paused = true)]
async fn restarts_before_the_answer_to_a_list() {
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

/// A runtime that hangs in the middle of a creation, and never reads its answer, and dies.
#[tokio::test(start_paused = true)]
async fn hangs_and_dies_with_an_answer_unread() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let shared = node.run_pod("s", 500).await;
        node.create(&shared, "c", "s", 500).await.unwrap();
        let a = node.run_pod("a", 4000).await;
        let payload = of(&a, &node.container(&a, "c", "1", 4000).wire).write_to_bytes().unwrap();
        node.runtime.send("CreateContainer", &payload).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // The shared container has not been told to leave the CPUs, and the other one does not
        // exist.
        node.reconnect().await;
        assert_eq!(node.cpus("s"), "0-15", "nobody else is there");
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        assert_eq!(node.cpus("s"), "0-1,6-15");
        node.check();
    }
}
