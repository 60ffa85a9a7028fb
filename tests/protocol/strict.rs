//! `strict: true`: the plugin approves what all plugins together have adjusted.

use crate::node::Node;
use crate::owner::{connect, no_change};
use crate::runtime::{ALL, Generation, container, cpu, pod};
use edge::Response;
use ledger::{Admission, Call};
use nri::wire;
use std::time::Duration;
use tokio::time::Instant;

const STRICT: &str =
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nstrict: true\nkubeletStateDir: \"\"\n";
const VALIDATE: i32 = 0x2000;

fn can_validate(generation: Generation) -> bool {
    matches!(generation, Generation::V0_10 | Generation::V0_12)
}

/// The runtime's call when all plugins have answered: the container as the kubelet requested it,
/// and the adjustments of all plugins.
async fn validate(
    node: &mut Node,
    id: &str,
    cpus: &str,
) -> wire::ValidateContainerAdjustmentResponse {
    let pod = node.pods.values().next().unwrap().clone();
    let mut container = node.container(&pod, "c", id, 4000);
    container.wire.linux.mut_or_insert_default().resources = Some(cpu(4000)).into();
    let mut adjusted = wire::LinuxResources::new();
    adjusted.cpu.mut_or_insert_default().cpus = cpus.into();
    let linux =
        wire::LinuxContainerAdjustment { resources: Some(adjusted).into(), ..Default::default() };
    let adjust = wire::ContainerAdjustment { linux: Some(linux).into(), ..Default::default() };
    let request = wire::ValidateContainerAdjustmentRequest {
        pod: Some(pod).into(),
        container: Some(container.wire).into(),
        adjust: (!cpus.is_empty()).then_some(adjust).into(),
        ..Default::default()
    };
    node.runtime.call("ValidateContainerAdjustment", &request).await.unwrap()
}

/// And only with a runtime that knows validations: an unknown event bit would end the connection.
#[tokio::test(start_paused = true)]
async fn only_a_strict_plugin_subscribes_to_validations() {
    for generation in ALL {
        for strict in [false, true] {
            let mut node = if strict {
                Node::start_with(generation, STRICT).await
            } else {
                Node::start(generation).await
            };
            node.drop_connection();
            node.runtime.registration().await;
            let events = node.runtime.configure().await;
            let subscribes = events & VALIDATE != 0;
            let expect = strict && can_validate(generation);
            assert_eq!(subscribes, expect, "{generation:?}: {events:#x}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_containers_as_decided_are_approved() {
    for generation in ALL.into_iter().filter(|generation| can_validate(*generation)) {
        let mut node = Node::start_with(generation, STRICT).await;
        let a = node.run_pod("a", 5000).await;
        node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
        node.create_unstarted(&a, "s", "2", 500).await.unwrap();
        for (id, cpus, refused) in [
            ("1", "2-5", None),
            ("1", "5,2-4", None),
            (
                "1",
                "2-6",
                Some("CPUs 2-5 were decided for this container, but it would run on CPUs 2-6"),
            ),
            ("1", "2-4", Some("CPUs 2-4")),
            ("1", "", Some("would run on any")),
            ("1", "everywhere", Some("would run on any")),
            ("2", "0-1,6-15", None),
            ("2", "0-15", Some("CPUs 0-1,6-15 were decided")),
            ("unknown", "2-5", Some("no CPUs were decided")),
            ("unknown", "", Some("no CPUs were decided")),
        ] {
            let answer = validate(&mut node, id, cpus).await;
            assert_eq!(answer.reject, refused.is_some(), "{id} on {cpus}: {}", answer.reason);
            assert!(answer.reason.contains(refused.unwrap_or_default()), "{}", answer.reason);
        }
        // The kubelet creates a rejected container again, under another id, and it is approved.
        let again = node.create(&a, "c", "3", 4000).await.unwrap();
        assert!(!validate(&mut node, "3", &again).await.reject);
        assert_eq!(node.held(), 4);
    }
}

/// Even if a runtime asks it; so does a strict plugin with policy none.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_not_strict_approves_everything() {
    for config in
        ["cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nstrict: false\n", "strict: true\n"]
    {
        let mut node = Node::start_with(Generation::V0_12, config).await;
        let a = node.run_pod("a", 4000).await;
        let _ = node.runtime.create(&a, &node.container(&a, "c", "1", 4000).wire).await.unwrap();
        for cpus in ["", "0-15", "7"] {
            assert!(!validate(&mut node, "1", cpus).await.reject, "{config}");
        }
    }
}

/// The plugin was restarted between the container's creation and its approval.
#[tokio::test(start_paused = true)]
async fn a_container_whose_decision_was_lost_is_rejected() {
    let mut node = Node::start_with(Generation::V0_12, STRICT).await;
    let a = node.run_pod("a", 4000).await;
    node.create_unstarted(&a, "c", "1", 4000).await.unwrap();
    node.containers.clear();
    node.restart().await;
    let answer = validate(&mut node, "1", "").await;
    assert!(answer.reject && answer.reason.contains("Trying again is safe"), "{}", answer.reason);
    assert_eq!(node.create(&a, "c", "2", 4000).await.unwrap(), "2-5");
}

#[tokio::test(start_paused = true)]
async fn a_late_approval_is_a_rejection() {
    let slow = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => {
            (Duration::from_secs(5), Ok(Response::default()))
        }
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect(Generation::V0_10, slow);
    runtime.handshake().await;
    let container = container("c", "a", 1000);
    runtime.create(&pod("a", 1000), &container).await.unwrap_err();
    let request = wire::ValidateContainerAdjustmentRequest {
        container: Some(container).into(),
        ..Default::default()
    };
    let started = Instant::now();
    let answer: wire::ValidateContainerAdjustmentResponse =
        runtime.call("ValidateContainerAdjustment", &request).await.unwrap();
    assert!(answer.reject && answer.reason.contains("did not decide in time"), "{}", answer.reason);
    assert!(started.elapsed() < Duration::from_millis(1210), "{:?}", started.elapsed());
}
