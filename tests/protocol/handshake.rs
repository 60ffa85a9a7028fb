//! Registration, configuration, synchronization: with every generation, in every order, and with an
//! end at every point.

use crate::owner::{Received, at_once, connect, connect_through, no_change, shared};
use crate::runtime::{ALL, Framing, Generation, container, pod};
use edge::Response;
use ledger::{Admission, Call, Event};
use nri::Session;
use nri::{Ended, SessionError, wire};
use std::time::Duration;
use tokio::time::Instant;
use ttrpc::proto::Code;

#[tokio::test(start_paused = true)]
async fn every_generation_configures_the_plugin_and_lists_a_node() {
    for generation in ALL {
        let (mut runtime, plugin) = connect(generation, no_change);
        let registered = runtime.registration().await;
        assert_eq!((&*registered.plugin_idx, &*registered.plugin_name), ("90", "cpu-manager"));
        let events = runtime.configure().await;
        let requested = if generation.known_events() == 0x7ff { 0x7df } else { 0x1fdf };
        assert_eq!(events, requested, "{generation:?}");

        let pods = [pod("a", 2000), pod("b", 3000)];
        let containers = [container("c1", "a", 1000), container("c2", "a", 1000)];
        assert!(runtime.synchronize(&pods, &containers, 100).await.is_empty());
        let known = runtime.generation.configure();
        drop(runtime);
        let (log, ended) = plugin.ended().await;
        assert_eq!(ended.unwrap(), Ended::Closed);
        let received = log.received();
        assert_eq!(received.len(), 3, "{received:?}");
        let version = &known.runtime_version;
        assert!(
            matches!(&received[0], Received::Configure { session: Session(7), runtime, updater, .. }
            if runtime.contains(version) && *updater == (generation == Generation::V0_12))
        );
        let [Call::Event(Event::Synchronize { pods, containers })] = &log.events()[..] else {
            panic!("{:?}", log.events())
        };
        assert_eq!(pods.iter().map(|pod| &*pod.uid.0).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(containers.iter().map(|c| &*c.id.0).collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(received[2], Received::Disconnected(Session(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_may_configure_before_it_answers_the_registration() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    let (stream, _) = runtime.called().await.unwrap();
    runtime.configure().await;
    runtime.synchronize(&[pod("a", 1000)], &[], 1).await;
    runtime.respond(stream, Ok(Vec::new())).await;
    runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
    assert_eq!(plugin.log.events().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_may_configure_before_the_registration() {
    let (mut runtime, _plugin) = connect(Generation::V0_8, no_change);
    let request = runtime.generation.configure();
    let payload = protobuf::Message::write_to_bytes(&request).unwrap();
    let stream = runtime.send("Configure", &payload).await;
    runtime.registration().await;
    runtime.reply(stream).await.unwrap();
}

/// NRI 0.6.1 lists a whole node in one message, even if that is far more than ttrpc's 4 MiB.
#[tokio::test(start_paused = true)]
async fn one_list_of_fifteen_megabytes_is_accepted() {
    let update = |call: &Call| match call {
        Call::Event(Event::Synchronize { containers, .. }) => at_once(Response {
            updates: vec![shared(&containers[0].id.0, "0-3")],
            ..Response::default()
        }),
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_6_1, update);
    runtime.registration().await;
    runtime.configure().await;
    let containers: Vec<_> = (0..1000)
        .map(|index| {
            let mut container = container(&format!("c{index}"), "a", 1000);
            container.annotations.insert("filler".into(), "x".repeat(15_000));
            container
        })
        .collect();
    let updates = runtime.synchronize(&[pod("a", 1000)], &containers, 10).await;
    assert_eq!(updates.len(), 1);
    assert_eq!((&*updates[0].container_id, updates[0].ignore_failure), ("c0", true));
    let [Call::Event(Event::Synchronize { containers, .. })] = &plugin.log.events()[..] else {
        panic!()
    };
    assert_eq!(containers.len(), 1000);
}

/// Pods and containers need not be in the same part.
#[tokio::test(start_paused = true)]
async fn the_parts_of_a_list_are_collected() {
    let update = |call: &Call| match call {
        Call::Event(Event::Synchronize { containers, .. }) => {
            let all = containers.iter().map(|container| shared(&container.id.0, "0-3"));
            at_once(Response { updates: all.collect(), ..Response::default() })
        }
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, update);
    runtime.registration().await;
    runtime.configure().await;
    let mut pods: Vec<_> = (0..3).map(|index| pod(&index.to_string(), 1000)).collect();
    let mut containers: Vec<_> =
        (0..20).map(|index| container(&format!("c{index}"), "2", 1000)).collect();
    // The plugin ignores those without an id: no update could name them.
    pods.push(wire::PodSandbox::new());
    containers.push(wire::Container::new());
    let updates = runtime.synchronize(&pods, &containers, 3).await;
    assert_eq!(updates.len(), 20);
    assert!(updates.iter().all(|update| update.ignore_failure
        && update.linux.resources.cpu.cpus == "0-3"
        && update.linux.resources.cpu.mems.is_empty()));
    let [Call::Event(Event::Synchronize { pods, containers })] = &plugin.log.events()[..] else {
        panic!()
    };
    assert_eq!((pods.len(), containers.len()), (3, 20));
    assert!(containers.iter().all(|container| &*container.sandbox.0 == "sandbox-2"));
}

#[tokio::test(start_paused = true)]
async fn another_configure_discards_the_parts_of_a_list() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.registration().await;
    runtime.configure().await;
    let part = wire::SynchronizeRequest {
        pods: vec![pod("lost", 1000)],
        more: true,
        ..Default::default()
    };
    let answer: wire::SynchronizeResponse = runtime.call("Synchronize", &part).await.unwrap();
    assert!(answer.more);
    runtime.configure().await;
    runtime.synchronize(&[pod("listed", 1000)], &[], 1).await;
    let [Call::Event(Event::Synchronize { pods, .. })] = &plugin.log.events()[..] else { panic!() };
    assert_eq!(pods.iter().map(|pod| &*pod.uid.0).collect::<Vec<_>>(), ["listed"]);
}

/// Two long names take more memory than all containers of a node.
#[tokio::test(start_paused = true)]
async fn a_list_is_bounded_by_its_entries() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.registration().await;
    runtime.configure().await;
    let part = |entries: usize| wire::SynchronizeRequest {
        pods: vec![wire::PodSandbox { id: "p".into(), ..Default::default() }; entries],
        more: true,
        ..Default::default()
    };
    for (entries, fits) in [(1 << 15, true), (1 << 15, true), (1, false)] {
        let answer: Result<wire::SynchronizeResponse, _> =
            runtime.call("Synchronize", &part(entries)).await;
        match answer {
            Ok(answer) => assert!(answer.more && fits, "{entries}"),
            Err(status) => {
                assert!(!fits && status.message.contains("65536 pods"), "{}", status.message);
            }
        }
    }
    assert!(plugin.log.events().is_empty());
}

/// A runtime with few pods and many containers sends empty parts in a row.
#[tokio::test(start_paused = true)]
async fn ten_thousand_empty_parts_are_accepted() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.registration().await;
    runtime.configure().await;
    let empty = wire::SynchronizeRequest { more: true, ..Default::default() };
    for _ in 0..10_000 {
        let answer: wire::SynchronizeResponse = runtime.call("Synchronize", &empty).await.unwrap();
        assert!(answer.more);
    }
    runtime.synchronize(&[], &[], 1).await;
    assert_eq!(plugin.log.events().len(), 1);
}

/// An endless list does not fill the memory.
#[tokio::test(start_paused = true)]
async fn endless_lists_are_refused() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.registration().await;
    runtime.configure().await;
    let part = wire::SynchronizeRequest {
        pods: vec![wire::PodSandbox::new(); 30_000],
        more: true,
        ..Default::default()
    };
    let mut refused = None;
    for _ in 0..3 {
        refused = runtime.call::<wire::SynchronizeResponse>("Synchronize", &part).await.err();
    }
    let refused = refused.expect("the third part is too much");
    assert_eq!(refused.code.enum_value_or_default(), Code::RESOURCE_EXHAUSTED);
    assert!(plugin.log.events().is_empty());
}

/// Each end is orderly.
#[tokio::test(start_paused = true)]
async fn a_disconnect_at_any_point_of_the_handshake_is_reported() {
    for steps in 0..7 {
        let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
        let mut registration = None;
        for step in 0..steps {
            match step {
                0 => registration = runtime.called().await,
                1 => {
                    let (stream, _) = registration.take().unwrap();
                    runtime.respond(stream, Ok(Vec::new())).await;
                }
                2 => {
                    let configure = runtime.generation.configure();
                    let payload = protobuf::Message::write_to_bytes(&configure).unwrap();
                    runtime.send("Configure", &payload).await;
                }
                3 => drop(runtime.message().await.unwrap()),
                4 => {
                    let part = wire::SynchronizeRequest { more: true, ..Default::default() };
                    let answer: wire::SynchronizeResponse =
                        runtime.call("Synchronize", &part).await.unwrap();
                    assert!(answer.more);
                }
                _ => {
                    runtime.synchronize(&[], &[], 1).await;
                }
            }
        }
        drop(runtime);
        let (log, ended) = plugin.ended().await;
        assert_eq!(ended.unwrap(), Ended::Closed, "after {steps} steps");
        let received = log.received();
        let last = received.last();
        assert_eq!(last, Some(&Received::Disconnected(Session(7))), "after {steps} steps");
        let configures = received.iter().filter(|one| matches!(one, Received::Configure { .. }));
        let configured = configures.count();
        assert_eq!(configured, usize::from(steps >= 3), "after {steps} steps");
        assert_eq!(log.events().len(), usize::from(steps >= 6), "after {steps} steps");
    }
}

/// A runtime that refuses a plugin leaves the connection open; the plugin closes it.
#[tokio::test(start_paused = true)]
async fn refused_registrations_end_the_connection() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    let (stream, _) = runtime.called().await.unwrap();
    let refusal = ttrpc::get_status(Code::UNKNOWN, "invalid plugin index");
    runtime.respond(stream, Err(refusal)).await;
    assert!(runtime.closed().await);
    let (log, ended) = plugin.ended().await;
    assert!(
        matches!(&ended, Err(SessionError::Registration(why)) if why == "invalid plugin index"),
        "{ended:?}"
    );
    assert_eq!(log.received(), [Received::Disconnected(Session(7))]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_gives_the_runtime_the_reason() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.registration().await;
    let mut request = runtime.generation.configure();
    request.config = "refuse me".into();
    let refused = runtime.call::<wire::ConfigureResponse>("Configure", &request).await.unwrap_err();
    assert_eq!(refused.message, "bad configuration");
    let received = plugin.log.received();
    assert!(matches!(&received[..], [Received::Configure { config, .. }] if config == "refuse me"));
}

/// The runtime accepts the plugin and then forgets it.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_configures_is_given_up_after_a_minute() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    let started = Instant::now();
    runtime.registration().await;
    assert!(runtime.closed().await);
    assert!((60..100).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    let (_, ended) = plugin.ended().await;
    assert!(matches!(ended, Err(SessionError::NeverConfigured)), "{ended:?}");
}

/// containerd waits for grace periods to end before it lists its containers.
#[tokio::test(start_paused = true)]
async fn a_list_may_come_after_hours() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.registration().await;
    runtime.configure().await;
    tokio::time::sleep(Duration::from_secs(5 * 3600)).await;
    runtime.synchronize(&[pod("a", 1000)], &[], 1).await;
    assert_eq!(plugin.log.events().len(), 1);
}

/// Then the plugin closes the connection.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_answers_under_way() {
    let slow = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => {
            (Duration::from_millis(500), Ok(Response::default()))
        }
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, slow);
    runtime.handshake().await;
    let request = crate::runtime::of(&pod("a", 1000), &container("c", "a", 1000));
    let payload = protobuf::Message::write_to_bytes(&request).unwrap();
    let stream = runtime.send("CreateContainer", &payload).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    plugin.stop.send(()).unwrap();
    runtime.reply(stream).await.unwrap();
    assert!(runtime.closed().await);
    let ended = tokio::time::timeout(Duration::from_secs(10), plugin.ended).await;
    assert_eq!(ended.unwrap().unwrap().unwrap(), Ended::Stopped);
    assert_eq!(plugin.log.in_time(), [true, true]);
}

/// Through the narrowest pipe.
#[tokio::test(start_paused = true)]
async fn the_handshake_works_byte_by_byte() {
    for (pipe, piece) in [(1, 1), (7, 3), (4096, 10), (13, 5000)] {
        let (mut runtime, plugin) = connect_through(pipe, Generation::V0_12, no_change);
        runtime.framing = Framing::Pieces(piece);
        runtime.registration().await;
        runtime.configure().await;
        runtime.synchronize(&[pod("a", 1000)], &[container("c", "a", 1000)], 1).await;
        assert_eq!(plugin.log.events().len(), 1);
    }
}
