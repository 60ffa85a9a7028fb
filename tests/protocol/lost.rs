//! Lost and surplus events: every way in which a runtime's reports differ from what has happened,
//! with every generation.

use crate::node::Node;
use crate::runtime::{ALL, cpu};
use nri::wire;
use wire::Event as Kind;

/// containerd undoes a failed creation with a stop and a removal.
#[tokio::test(start_paused = true)]
async fn an_undone_creation_frees_its_cpus() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
        node.stop("1").await;
        node.remove("1").await;
        assert_eq!(node.held(), 0);
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
    }
}

/// When a plugin refuses a creation, later plugins get the stop and the removal without the
/// creation.
#[tokio::test(start_paused = true)]
async fn an_undo_of_an_unknown_creation_changes_nothing() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.create(&a, "c", "1", 4000).await.unwrap();
        let refused = node.container(&a, "c", "refused by another plugin", 4000);
        node.report_stop(&a, &refused.wire).await;
        node.runtime.report(Kind::REMOVE_CONTAINER, &a, Some(&refused.wire)).await.unwrap();
        assert_eq!(node.held(), 4);
        node.check();
    }
}

/// CRI-O undoes no creation, whether this plugin, another plugin, the OCI runtime or a time limit
/// ended it. The next instance gets the CPUs; without one they are free at the pod's end.
#[tokio::test(start_paused = true)]
async fn an_unreported_failed_creation_leaves_its_cpus_to_the_next_instance() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let b = node.run_pod("b", 10_000).await;
        node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
        node.containers.remove("1");
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        assert_eq!(node.held(), 4);

        node.create_unstarted(&b, "c", "3", 10_000).await.unwrap();
        node.containers.remove("3");
        assert_eq!(node.held(), 14);
        node.stop_pod(&b).await;
        assert_eq!(node.held_after_next_write().await, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_leaves_nothing() {
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

/// CRI-O gave up on a creation but the container exists, or it was created while a plugin
/// registered: the plugin gets neither a list with it nor its creation.
#[tokio::test(start_paused = true)]
async fn an_unlisted_container_is_pinned_at_its_first_event() {
    for generation in ALL {
        for by_update in [false, true] {
            let mut node = Node::start(generation).await;
            let shared = node.run_pod("s", 500).await;
            node.create(&shared, "c", "s", 500).await.unwrap();
            let pod = crate::runtime::pod("unlisted", 4000);
            node.pods.insert(pod.id.clone(), pod.clone());
            let unlisted = node.container(&pod, "c", "u", 4000);
            node.containers.insert("u".into(), unlisted);
            if by_update {
                node.update("u", cpu(4000)).await.unwrap();
            } else {
                node.started("u").await;
                // The answer to a start cannot carry updates. If the plugin may not send any
                // unsolicited, the next answer that can carries them.
                node.apply_unsolicited().await;
                node.report_stop(
                    &shared,
                    &wire::Container { id: "?".into(), ..Default::default() },
                )
                .await;
            }
            assert_eq!((node.cpus("u"), node.cpus("s")), ("2-5".into(), "0-1,6-15".into()));
            node.check();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ends_of_unknown_containers_and_pods_change_nothing() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.create(&a, "c", "1", 4000).await.unwrap();
        let pod = crate::runtime::pod("unknown", 4000);
        let unknown = node.container(&pod, "c", "u", 4000);
        node.report_stop(&pod, &unknown.wire).await;
        for event in [Kind::REMOVE_CONTAINER, Kind::STOP_POD_SANDBOX, Kind::REMOVE_POD_SANDBOX] {
            let container = (event == Kind::REMOVE_CONTAINER).then_some(&unknown.wire);
            node.runtime.report(event, &pod, container).await.unwrap();
        }
        assert_eq!(node.held(), 4);
        assert_eq!(node.cpus("1"), "2-5");
    }
}

/// The container was created, but its task could not be made. Its successor is created before its
/// stop is reported.
#[tokio::test(start_paused = true)]
async fn a_container_that_never_starts_leaves_its_cpus_to_its_successor() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
        node.containers.get_mut("1").unwrap().alive = false;
        assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
        // Only now does the kubelet remove the first container.
        node.stop("1").await;
        node.remove("1").await;
        assert_eq!((node.held(), node.cpus("2")), (4, "2-5".into()));
        node.check();
    }
}

/// The event arrives only after the creation of the container's successor.
#[tokio::test(start_paused = true)]
async fn a_late_stop_of_the_previous_instance_changes_nothing() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let b = node.run_pod("b", 10_000).await;
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

/// Under a new id, and under the old one.
#[tokio::test(start_paused = true)]
async fn a_container_created_again_after_its_stop_gets_its_cpus_back() {
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

/// The stop overtakes the creation. The CPUs are free at the pod's end.
#[tokio::test(start_paused = true)]
async fn a_stop_before_the_creation_frees_nothing_later() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let early = node.container(&a, "c", "1", 4000);
        node.report_stop(&a, &early.wire).await;
        node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
        node.containers.get_mut("1").unwrap().alive = false;
        assert_eq!(node.held(), 4);
        node.stop_pod(&a).await;
        assert_eq!(node.held_after_next_write().await, 0);
    }
}

/// A restarted runtime reports neither what ended meanwhile, nor ends of pods that are older than
/// itself.
#[tokio::test(start_paused = true)]
async fn pods_that_ended_during_a_restart_of_the_runtime_hold_no_cpus() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let mut pods = Vec::new();
        for uid in ["gone", "half", "running"] {
            let pod = node.run_pod(uid, 4000).await;
            node.create(&pod, "c", uid, 4000).await.unwrap();
            pods.push(pod);
        }
        node.pods.remove(&pods[0].id);
        node.containers.remove("gone");
        node.containers.get_mut("half").unwrap().alive = false;
        let half = node.cpus("half");
        let running = node.cpus("running");
        node.reconnect().await;
        let pods: Vec<_> =
            node.on_disk().into_iter().map(|claim| claim.pod_uid.to_string()).collect();
        assert_eq!(pods, ["half", "running"]);
        assert_eq!(node.cpus("running"), running);
        // Of the pod `half`, only the container has ended: its next instance gets the same CPUs.
        let pod = node.pods["sandbox-half"].clone();
        assert_eq!(node.create(&pod, "c", "half again", 4000).await.unwrap(), half);
        node.check();
    }
}

/// A container created meanwhile is pinned, and CPUs of a pod that ended are free.
#[tokio::test(start_paused = true)]
async fn changes_during_a_restart_of_the_plugin_are_taken_over() {
    for generation in ALL {
        let mut node = Node::start(generation).await;
        let a = node.run_pod("a", 4000).await;
        let gone = node.run_pod("gone", 4000).await;
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

/// The runtime reports only the pod's end, or also the container's.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_evicted_during_a_creation_holds_no_cpus() {
    for generation in ALL {
        for container_is_reported in [false, true] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
            if container_is_reported {
                node.stop("1").await;
                node.remove("1").await;
            }
            node.stop_pod(&a).await;
            assert_eq!(node.held_after_next_write().await, 0);
        }
    }
}

/// A container's removal without its stop, a pod's stop without those of its containers, a pod's
/// removal without its stop.
#[tokio::test(start_paused = true)]
async fn each_kind_of_end_alone_frees_the_cpus() {
    for generation in ALL {
        for end in [Kind::REMOVE_CONTAINER, Kind::STOP_POD_SANDBOX, Kind::REMOVE_POD_SANDBOX] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.create(&a, "c", "1", 4000).await.unwrap();
            let container = node.containers.remove("1").unwrap();
            let container = (end == Kind::REMOVE_CONTAINER).then_some(container.wire);
            node.runtime.report(end, &a, container.as_ref()).await.unwrap();
            assert_eq!(node.held_after_next_write().await, 0, "{end:?}");
        }
    }
}

/// containerd has forgotten the sandbox: the pod in these events has only an id, or nothing.
#[tokio::test(start_paused = true)]
async fn events_with_empty_pods_find_their_container() {
    for generation in ALL {
        for empty in [
            wire::PodSandbox::new(),
            wire::PodSandbox { id: "sandbox-a".into(), ..Default::default() },
        ] {
            let mut node = Node::start(generation).await;
            let a = node.run_pod("a", 4000).await;
            node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
            let container = node.containers["1"].wire.clone();
            node.runtime
                .report(Kind::POST_START_CONTAINER, &empty, Some(&container))
                .await
                .unwrap();
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
