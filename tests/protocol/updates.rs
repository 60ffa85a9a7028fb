//! Updates of containers without an event.

use crate::node::Node;
use crate::owner::{ScriptedPlugin, connect, no_change, shared};
use crate::runtime::{Generation, RUNTIME, Runtime, container, pod};
use ledger::Update;
use nri::wire;
use nri::{UpdateError, Updater};
use protobuf::Message as _;
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::time::Instant;
use ttrpc::proto::Code;

/// Sends updates; returns the containers that the runtime reports as failed.
async fn update(updater: &Updater, updates: &[Update]) -> Result<Vec<String>, UpdateError> {
    let failed = updater.update(edge::nri::updates(updates)).await?;
    Ok(failed.into_iter().map(|update| update.container_id).collect())
}

async fn connected() -> (Runtime<DuplexStream>, ScriptedPlugin, Updater) {
    let (mut runtime, plugin) = connect(Generation::V0_12, no_change);
    runtime.handshake().await;
    let updater = plugin.log.updater().expect("safe with this generation");
    (runtime, plugin, updater)
}

/// The table of capabilities says which runtimes these are; the plugin has no updater with them.
#[tokio::test(start_paused = true)]
async fn runtimes_that_could_lock_up_get_no_unsolicited_updates() {
    for generation in [Generation::V0_6_1, Generation::V0_8, Generation::V0_10] {
        let (mut runtime, plugin) = connect(generation, no_change);
        runtime.handshake().await;
        assert!(plugin.log.updater().is_none(), "{generation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsolicited_update_names_each_container_once_and_returns_failures() {
    let (mut runtime, _plugin, updater) = connected().await;
    let pending = tokio::spawn(async move {
        update(&updater, &[shared("b", "0-1"), shared("a", "2"), shared("b", "3")]).await
    });
    let (stream, request) = runtime.called().await.unwrap();
    assert_eq!(request.method, "UpdateContainers");
    let request = wire::UpdateContainersRequest::parse_from_bytes(&request.payload).unwrap();
    let updated: Vec<_> = request
        .update
        .iter()
        .map(|up| (&*up.container_id, &*up.linux.resources.cpu.cpus, up.ignore_failure))
        .collect();
    assert_eq!(updated, [("a", "2", true), ("b", "3", true)]);
    let failed = wire::UpdateContainersResponse {
        failed: vec![request.update[0].clone()],
        ..Default::default()
    };
    runtime.respond(stream, Ok(failed.write_to_bytes().unwrap())).await;
    assert_eq!(pending.await.unwrap(), Ok(vec!["a".to_owned()]));
}

/// More updates than fit into one message.
#[tokio::test(start_paused = true)]
async fn sixty_thousand_updates_are_split_into_readable_calls() {
    let (mut runtime, _plugin, updater) = connected().await;
    let updates: Vec<_> =
        (0..60_000).map(|index| shared(&format!("{index:064}"), "0-3,8-11,64-127")).collect();
    let pending = tokio::spawn(async move { update(&updater, &updates).await });
    let pod = pod("a", 1000);
    while !pending.is_finished() {
        // Events go on meanwhile; `create` also answers the plugin's calls.
        runtime.create(&pod, &container("c", "a", 1000)).await.unwrap();
    }
    assert_eq!(pending.await.unwrap(), Ok(Vec::new()));
    let changed: usize = runtime.unsolicited.iter().map(|request| request.update.len()).sum();
    assert_eq!(changed, 60_000);
    assert!(runtime.readers[&RUNTIME].frames.iter().any(|&frame| frame > 4096));
}

/// A runtime that does not answer gets no other update, even if the plugin has stopped waiting.
#[tokio::test(start_paused = true)]
async fn only_one_unsolicited_update_is_under_way_at_a_time() {
    let (mut runtime, _plugin, updater) = connected().await;
    let started = Instant::now();
    let a = [shared("a", "0")];
    let b = [shared("b", "0")];
    let (first, second) = tokio::join!(update(&updater, &a), update(&updater, &b));
    assert_eq!((first, second), (Err(UpdateError::Slow), Err(UpdateError::Busy)));
    assert!(started.elapsed() >= Duration::from_secs(10));
    assert_eq!(update(&updater, &[shared("c", "0")]).await, Err(UpdateError::Busy));

    let (stream, _) = runtime.called().await.unwrap();
    runtime.respond(stream, Ok(Vec::new())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pending = tokio::spawn(async move { update(&updater, &[shared("d", "0")]).await });
    let (stream, request) = runtime.called().await.unwrap();
    let request = wire::UpdateContainersRequest::parse_from_bytes(&request.payload).unwrap();
    assert_eq!(request.update[0].container_id, "d", "a refused update must not be sent later");
    runtime.respond(stream, Ok(Vec::new())).await;
    assert_eq!(pending.await.unwrap(), Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_unsolicited_update_is_an_error() {
    let (mut runtime, plugin, updater) = connected().await;
    let again = updater.clone();
    let pending = tokio::spawn(async move { update(&again, &[shared("a", "0")]).await });
    let (stream, _) = runtime.called().await.unwrap();
    runtime.respond(stream, Err(ttrpc::get_status(Code::UNKNOWN, "no such luck"))).await;
    assert_eq!(pending.await.unwrap(), Err(UpdateError::Failed("no such luck".into())));

    let again = updater.clone();
    let pending = tokio::spawn(async move { update(&again, &[shared("a", "0")]).await });
    runtime.called().await.unwrap();
    drop(runtime);
    assert!(matches!(pending.await.unwrap(), Err(UpdateError::Failed(_))));
    plugin.ended().await.1.unwrap();
    // The connection has ended.
    assert!(matches!(update(&updater, &[shared("a", "0")]).await, Err(UpdateError::Failed(_))));
}

/// The kubelet stops assigning CPUs: no answer carries the updates that follow.
#[tokio::test(start_paused = true)]
async fn unsolicited_updates_are_on_disk_before_they_are_sent_one_by_one() {
    let state =
        |policy: &str| format!(r#"{{"policyName":"{policy}","defaultCpuSet":"","checksum":0}}"#);
    let kubelet = tempfile::tempdir().unwrap();
    let file = kubelet.path().join("cpu_manager_state");
    std::fs::write(&file, state("static")).unwrap();
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n";
    let config = format!("{config}kubeletStateDir: {}\n", kubelet.path().display());
    let mut node = Node::start_with(Generation::V0_12, &config).await;
    let shared = node.run_pod("s", 500).await;
    node.create_unstarted(&shared, "c", "s", 500).await.unwrap();
    let checkpoint = node.paths.state_dir.join("checkpoint.json");
    std::fs::remove_file(&checkpoint).unwrap();
    std::fs::write(&file, state("none")).unwrap();
    let (first, updates) = next_update(&mut node.runtime).await;
    assert_eq!(updates, ["s 0-15"]);
    assert!(checkpoint.exists(), "sent before it was saved");
    // One at a time: further updates are sent when the runtime has answered.
    let a = node.run_pod("a", 4000).await;
    node.create(&a, "c", "a", 4000).await.unwrap();
    assert_eq!(node.cpus("s"), "0-1,6-15");
    node.stop_pod(&a).await;
    node.runtime.respond(first, Ok(Vec::new())).await;
    assert_eq!(next_update(&mut node.runtime).await.1, ["s 0-15"]);
}

/// The stream of the plugin's next call, and its updates, each as "CONTAINER CPUS".
async fn next_update(runtime: &mut Runtime<DuplexStream>) -> (u32, Vec<String>) {
    let called = tokio::time::timeout(Duration::from_secs(3600), runtime.called());
    let (stream, request) = called.await.expect("no update is sent").unwrap();
    let request = wire::UpdateContainersRequest::parse_from_bytes(&request.payload).unwrap();
    let change = |update: &wire::ContainerUpdate| {
        format!("{} {}", update.container_id, update.linux.resources.cpu.cpus)
    };
    (stream, request.update.iter().map(change).collect())
}
