//! Lost and surplus events: every way in which a runtime's story differs from what has happened,
//! with every generation.

use crate::node::Node;
use crate::runtime::{ALL, cpu};
use nri::wire;
use wire::Event as Kind;

/// containerd takes a failed creation back with a stop and a removal.
#[tokio::test(start_paused = true)]
async fn a_failed_creation_that_is_undone() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.ask(&a, "c", "1", 4000).await.unwrap();
        node.stop("1").await;
        node.remove("1").await;
        assert_eq!(node.held(), 0);
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
    }
}

/// Stop and removal also go to plugins that were never asked, when an earlier one has refused.
#[tokio::test(start_paused = true)]
async fn an_undo_of_what_was_never_asked() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.create(&a, "c", "1", 4000).await.unwrap();
        let stranger = node.container(&a, "c", "refused by another plugin", 4000);
        node.tell_stop(&a, &stranger.wire).await;
        node.runtime.tell(Kind::REMOVE_CONTAINER, &a, Some(&stranger.wire)).await.unwrap();
        assert_eq!(node.held(), 4);
        node.check();
    }
}

/// CRI-O takes nothing back: not what we refused, nor what another plugin, the OCI runtime or a
/// time limit ended. The next instance has the CPUs of the one that never was; if there is none,
/// they come back with the pod's end.
#[tokio::test(start_paused = true)]
async fn a_failed_creation_that_nobody_tells_of() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let (a, b) = (node.run_pod("a", 4000).await, node.run_pod("b", 10_000).await);
        node.ask(&a, "c", "1", 4000).await.unwrap();
        node.containers.remove("1");
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        assert_eq!(node.held(), 4);

        node.ask(&b, "c", "3", 10_000).await.unwrap();
        node.containers.remove("3");
        assert_eq!(node.held(), 14);
        node.stop_pod(&b).await;
        assert_eq!(node.held_after_next_write().await, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn what_we_refuse_leaves_nothing() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 10_000).await;
        node.create(&a, "c", "1", 10_000).await.unwrap();
        let b = node.run_pod("b", 8000).await;
        let refused = node.create(&b, "c", "2", 8000).await.unwrap_err();
        assert!(refused.contains("UnexpectedAdmissionError"), "{refused}");
        assert_eq!(node.held(), 10);
        node.stop_pod(&a).await;
        assert!(node.create(&b, "c", "3", 8000).await.is_ok());
        assert_eq!(node.held(), 8);
    }
}

/// CRI-O gave up on a creation, but the container exists; or it was created while a plugin
/// registered. It is in no list and in no creation, and known from its first event on.
#[tokio::test(start_paused = true)]
async fn containers_that_only_a_later_event_tells_of() {
    for generation in ALL {
        for by_update in [false, true] {
            let mut node = Node::start(generation).await;
            let shared = node.run_pod("s", 500).await;
            node.create(&shared, "c", "s", 500).await.unwrap();
            let pod = crate::runtime::pod("unseen", 4000);
            node.pods.insert(pod.id.clone(), pod.clone());
            let unseen = node.container(&pod, "c", "u", 4000);
            node.containers.insert("u".into(), unseen);
            if by_update {
                node.update("u", cpu(4000)).await.unwrap();
            } else {
                node.started("u").await;
                // A start cannot carry updates; where the plugin may not ask by itself, the next
                // answer that can does.
                node.obey_unasked().await;
                node.tell_stop(&shared, &wire::Container { id: "?".into(), ..Default::default() })
                    .await;
            }
            assert_eq!((node.cpus("u"), node.cpus("s")), ("2-5".into(), "0-1,6-15".into()));
            node.check();
        }
    }
}

/// Stop and removal of such a container, and the end of an unknown pod, change nothing.
#[tokio::test(start_paused = true)]
async fn ends_of_what_was_never_seen() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.create(&a, "c", "1", 4000).await.unwrap();
        let pod = crate::runtime::pod("unseen", 4000);
        let unseen = node.container(&pod, "c", "u", 4000);
        node.tell_stop(&pod, &unseen.wire).await;
        for event in [Kind::REMOVE_CONTAINER, Kind::STOP_POD_SANDBOX, Kind::REMOVE_POD_SANDBOX] {
            let container = (event == Kind::REMOVE_CONTAINER).then_some(&unseen.wire);
            node.runtime.tell(event, &pod, container).await.unwrap();
        }
        assert_eq!(node.held(), 4);
        assert_eq!(node.cpus("1"), "2-5");
    }
}

/// The task of a container could not be made: it has been created, never starts, and its successor
/// comes first.
#[tokio::test(start_paused = true)]
async fn a_container_that_never_starts() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.ask(&a, "c", "1", 4000).await.unwrap();
        node.containers.get_mut("1").unwrap().alive = false;
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        // Only now does the kubelet remove the first.
        node.stop("1").await;
        node.remove("1").await;
        assert_eq!((node.held(), node.cpus("2")), (4, "2-5".into()));
        node.check();
    }
}

/// A container's process ends, and its event comes only after the creation of its successor.
#[tokio::test(start_paused = true)]
async fn a_late_stop_of_the_instance_before() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let (a, b) = (node.run_pod("a", 4000).await, node.run_pod("b", 10_000).await);
        node.create(&a, "c", "1", 4000).await.unwrap();
        node.containers.get_mut("1").unwrap().alive = false;
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        node.stop("1").await;
        node.remove("1").await;
        node.create(&b, "c", "3", 10_000).await.unwrap();
        assert_eq!(node.cpus("2"), "2-5");
        node.check();
    }
}

/// The same container is stopped and created again, under a new id and under the old one.
#[tokio::test(start_paused = true)]
async fn created_again_after_its_stop() {
    for generation in ALL {
        for next in ["2", "1"] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.create(&a, "c", "1", 4000).await.unwrap();
            node.stop("1").await;
            assert_eq!(node.create(&a, "c", next, 4000).await.unwrap(), "2-5");
            node.stop(next).await;
            node.stop_pod(&a).await;
            assert_eq!(node.held_after_next_write().await, 0);
        }
    }
}

/// A stop that overtakes its creation.
#[tokio::test(start_paused = true)]
async fn stopped_before_it_is_created() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let early = node.container(&a, "c", "1", 4000);
        node.tell_stop(&a, &early.wire).await;
        node.ask(&a, "c", "1", 4000).await.unwrap();
        node.containers.get_mut("1").unwrap().alive = false;
        assert_eq!(node.held(), 4);
        node.stop_pod(&a).await;
        assert_eq!(node.held_after_next_write().await, 0);
    }
}

/// The runtime restarts: it tells no end of what ended meanwhile, and of no pod that is older than
/// itself.
#[tokio::test(start_paused = true)]
async fn what_ended_while_the_runtime_was_away() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let mut pods = Vec::new();
        for uid in ["gone", "half", "kept"] {
            let pod = node.run_pod(uid, 4000).await;
            node.create(&pod, "c", uid, 4000).await.unwrap();
            pods.push(pod);
        }
        node.pods.remove(&pods[0].id);
        node.containers.remove("gone");
        node.containers.get_mut("half").unwrap().alive = false;
        let (half, kept) = (node.cpus("half"), node.cpus("kept"));
        node.reconnect().await;
        let pods: Vec<_> = node.on_disk().into_iter().map(|claim| claim.pod_uid.0).collect();
        assert_eq!(pods, ["half", "kept"]);
        assert_eq!(node.cpus("kept"), kept);
        // The pod that is still there gets the same CPUs for its container's next instance.
        let pod = node.pods["sandbox-half"].clone();
        assert_eq!(node.create(&pod, "c", "half again", 4000).await.unwrap(), half);
        node.check();
    }
}

/// No events arrive while the plugin is away: what was made meanwhile is pinned, and what ended is
/// free.
#[tokio::test(start_paused = true)]
async fn what_happened_while_the_plugin_was_away() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let (a, gone) = (node.run_pod("a", 4000).await, node.run_pod("gone", 4000).await);
        node.create(&a, "c", "1", 4000).await.unwrap();
        node.create(&gone, "c", "2", 4000).await.unwrap();
        node.kill().await;
        node.pods.remove(&gone.id);
        node.containers.remove("2");
        let late = crate::runtime::pod("late", 6000);
        node.pods.insert(late.id.clone(), late.clone());
        let unpinned = node.container(&late, "c", "3", 6000);
        node.containers.insert("3".into(), unpinned);
        node.restart().await;
        assert_eq!(node.cpus("1"), "2-5");
        assert_eq!(node.containers["3"].cpus().len(), 6);
        assert_eq!(node.held(), 10);
        node.check();
    }
}

/// A pod is deleted while its container is being created: only the pod's end is reported, or also
/// the container's.
#[tokio::test(start_paused = true)]
async fn evicted_while_being_created() {
    for generation in ALL {
        for told in [false, true] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.ask(&a, "c", "1", 4000).await.unwrap();
            if told {
                node.stop("1").await;
                node.remove("1").await;
            }
            node.stop_pod(&a).await;
            assert_eq!(node.held_after_next_write().await, 0);
        }
    }
}

/// A removal without a stop, a pod's end without those of its containers, its removal without its
/// end.
#[tokio::test(start_paused = true)]
async fn ends_that_leave_steps_out() {
    for generation in ALL {
        for end in [Kind::REMOVE_CONTAINER, Kind::STOP_POD_SANDBOX, Kind::REMOVE_POD_SANDBOX] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.create(&a, "c", "1", 4000).await.unwrap();
            let container = node.containers.remove("1").unwrap();
            let container = (end == Kind::REMOVE_CONTAINER).then_some(container.wire);
            node.runtime.tell(end, &a, container.as_ref()).await.unwrap();
            assert_eq!(node.held_after_next_write().await, 0, "{end:?}");
        }
    }
}

/// containerd has forgotten the sandbox: its pod has an id and nothing else in these events, or not
/// even that.
#[tokio::test(start_paused = true)]
async fn events_with_empty_pods() {
    for generation in ALL {
        for empty in [
            wire::PodSandbox::new(),
            wire::PodSandbox { id: "sandbox-a".into(), ..Default::default() },
        ] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.ask(&a, "c", "1", 4000).await.unwrap();
            let container = node.containers["1"].wire.clone();
            node.runtime.tell(Kind::POST_START_CONTAINER, &empty, Some(&container)).await.unwrap();
            node.containers.get_mut("1").unwrap().pod = empty.clone();
            node.update("1", cpu(4000)).await.unwrap();
            assert_eq!((node.held(), node.cpus("1")), (4, "2-5".into()));
            let name = &node.on_disk()[0];
            assert_eq!((&*name.pod_uid.0, &*name.pod), ("a", "pod-a"));
            node.stop("1").await;
            node.remove("1").await;
            assert_eq!(node.held_after_next_write().await, 0);
        }
    }
}
