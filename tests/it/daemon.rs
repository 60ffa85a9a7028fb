//! The daemon's owner with a real state directory, on a synthetic machine.

use crate::support::daemon::{Daemon, updates};
use crate::support::events::{create, local};
use edge::Message;
use ledger::model::ContainerId;
use ledger::{Event, Qos};
use nri::Session;
use std::fs;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_decision_is_on_disk_before_it_is_answered() {
    local(async {
        let daemon = Daemon::start();
        for (name, milli) in [("a", 4000), ("b", 2000)] {
            let cpus = daemon.create(name, Qos::Guaranteed, milli).await.unwrap();
            let claim = daemon.on_disk().into_iter().find(|claim| claim.pod == name).unwrap();
            assert_eq!(claim.cpus.to_string(), cpus);
        }
    })
    .await;
}

/// Only after the decision does the plugin find that no cgroup can confine the container.
#[tokio::test]
async fn a_container_that_no_cgroup_confines_starts_in_the_pool() {
    local(async {
        let daemon = Daemon::with_kubelet("exclusivity: groups\n", None);
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        assert_eq!(daemon.create("s", Qos::Burstable, 500).await.unwrap(), "0-1,6-15");
    })
    .await;
}

#[tokio::test]
async fn a_shared_container_does_not_write_the_checkpoint() {
    local(async {
        let daemon = Daemon::start();
        daemon.create("a", Qos::Guaranteed, 4000).await.unwrap();
        fs::remove_file(daemon.paths.state_dir.join("checkpoint.json")).unwrap();
        daemon.create("s", Qos::Burstable, 500).await.unwrap();
        assert!(!daemon.paths.state_dir.join("checkpoint.json").exists());
    })
    .await;
}

#[tokio::test]
async fn a_container_is_refused_if_the_checkpoint_cannot_be_written() {
    local(async {
        let daemon = Daemon::start();
        assert_eq!(daemon.create("s", Qos::Burstable, 500).await.unwrap(), "0-15");
        // A directory in its place makes the write fail for root too.
        let obstacle = daemon.paths.state_dir.join("checkpoint.json.new");
        fs::create_dir(&obstacle).unwrap();
        let refused = daemon.create("a", Qos::Guaranteed, 4000).await.unwrap_err();
        assert!(refused.starts_with("UnexpectedAdmissionError: "), "{refused}");
        assert!(refused.contains("checkpoint.json.new"), "{refused}");
        assert_eq!(daemon.create("t", Qos::Burstable, 500).await.unwrap(), "0-15");
        fs::remove_dir(&obstacle).unwrap();
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        assert_eq!(daemon.on_disk().len(), 1);
    })
    .await;
}

/// The edge drops an answer that comes too late, so the runtime has not received its updates.
#[tokio::test]
async fn updates_of_a_dropped_answer_are_sent_again() {
    local(async {
        let daemon = Daemon::start();
        daemon.create("s", Qos::Burstable, 500).await.unwrap();
        let (reply, answer) = oneshot::channel();
        drop(answer);
        let call = create("a", Qos::Guaranteed, 4000).into();
        daemon.messages.send(Message::Call { session: Session(0), call, reply }).unwrap();
        let stop = daemon.event(Event::Stop(ContainerId("unknown".into()))).await.unwrap();
        assert_eq!(updates(&stop), ["id-s 0-1,6-15"]);
    })
    .await;
}

#[tokio::test]
async fn calls_of_another_session_are_dropped() {
    local(async {
        let daemon = Daemon::start();
        let (reply, answer) = oneshot::channel();
        let call = create("a", Qos::Guaranteed, 4000).into();
        daemon.messages.send(Message::Call { session: Session(7), call, reply }).unwrap();
        assert!(answer.await.is_err());
        assert_eq!(daemon.create("s", Qos::Burstable, 500).await.unwrap(), "0-15");
    })
    .await;
}

/// State files of a kubelet that has assigned CPUs 8-11, and of one with policy none.
const STATIC: &str = r#"{"policyName":"static","defaultCpuSet":"0-7,12-15","entries":{"uid-k":{"c":"8-11"}},"checksum":0}"#;
const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;

#[tokio::test]
async fn new_exclusive_containers_are_refused_while_the_kubelet_assigns_cpus() {
    local(async {
        let daemon = Daemon::with_kubelet("", Some(STATIC));
        let refused = daemon.create_with_cpus("a", 4000, "2-5").await.unwrap_err();
        for word in ["cpuManagerPolicy: none", "cpu_manager_state", "restart"] {
            assert!(refused.contains(word), "{refused}");
        }
        assert_eq!(daemon.create_with_cpus("f", 500, "0-7,12-15").await, Ok(None));
    })
    .await;
}

/// The kubelet is reconfigured while the plugin runs; the plugin takes over within seconds.
#[tokio::test]
async fn the_plugin_takes_over_when_the_kubelets_manager_stops() {
    local(async {
        let daemon = Daemon::with_kubelet("", Some(STATIC));
        assert_eq!(daemon.create_with_cpus("k", 500, "0-7,12-15").await, Ok(None));
        daemon.kubelet_writes(NONE);
        let start = std::time::Instant::now();
        let mut turn = 0;
        let mut pinned = None;
        while pinned.is_none() {
            assert!(start.elapsed().as_secs() < 10, "the plugin has not taken over");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            turn += 1;
            let event = create(&format!("n{turn}"), Qos::Burstable, 100);
            pinned = daemon.event(event).await.unwrap().setting;
        }
        assert_eq!(pinned.unwrap().cpus().to_string(), "0-15");
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        assert_eq!(daemon.claims_on_disk(), ["a 2-5"]);
    })
    .await;
}

/// The kubelet's directory is not mounted: CPUs in its requests show that its manager is active.
#[tokio::test]
async fn the_kubelets_requests_show_whether_it_is_active_if_its_state_file_is_missing() {
    local(async {
        let daemon = Daemon::start();
        assert_eq!(daemon.create("a", Qos::Guaranteed, 2000).await.unwrap(), "2-3");
        // One pod is no sign of it: the container keeps its CPUs.
        assert_eq!(daemon.create_with_cpus("b", 4000, "8-11").await, Ok(None));
        assert_eq!(daemon.create_with_cpus("s", 500, "0-7").await, Ok(None));
        assert!(daemon.create_with_cpus("d", 4000, "12-15").await.is_err());
        // This request names no CPUs: the kubelet's policy is none now.
        assert_eq!(daemon.create("c", Qos::Guaranteed, 4000).await.unwrap(), "4-7");
    })
    .await;
}

#[tokio::test]
async fn an_unreadable_state_file_is_ignored_and_a_damaged_one_still_shows_its_policy() {
    local(async {
        let daemon = Daemon::with_kubelet("", Some("{\"policyName\":\"sta"));
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        // Its checksum is wrong, but the policy is static.
        let daemon = Daemon::with_kubelet("", Some(&STATIC.replace(":0}", ":7}")));
        assert!(daemon.create("a", Qos::Guaranteed, 4000).await.is_err());
    })
    .await;
}
