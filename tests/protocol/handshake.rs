//! Register, configure, synchronise: with every generation, in every order, and with an end at
//! every point.

use crate::owner::{Told, at_once, connect, connect_through, content, shared};
use crate::runtime::{ALL, Framing, Generation, container, pod};
use ledger::{Admission, Call, Event};
use nri::Session;
use nri::{Ended, SessionError, wire};
use nri_cpu_manager::edge::Response;
use std::time::Duration;
use tokio::time::Instant;
use ttrpc::proto::Code;

#[tokio::test(start_paused = true)]
async fn every_generation() {
    for generation in ALL {
        let (mut runtime, plugin) = connect(generation, content);
        let registered = runtime.registration().await;
        assert_eq!((&*registered.plugin_idx, &*registered.plugin_name), ("90", "cpu-manager"));
        let events = runtime.configure().await;
        let wanted = if generation.known_events() == 0x7ff { 0x7df } else { 0x1fdf };
        assert_eq!(events, wanted, "{generation:?}");

        let pods = [pod("a", 2000), pod("b", 3000)];
        let containers = [container("c1", "a", 1000), container("c2", "a", 1000)];
        assert!(runtime.synchronize(&pods, &containers, 100).await.is_empty());
        let known = runtime.generation.configure();
        drop(runtime);
        let (log, ended) = plugin.ended().await;
        assert_eq!(ended.unwrap(), Ended::Closed);
        let told = log.told();
        assert_eq!(told.len(), 3, "{told:?}");
        let version = &known.runtime_version;
        assert!(matches!(&told[0], Told::Configure { session: Session(7), runtime, updater, .. }
            if runtime.contains(version) && *updater == (generation == Generation::V0_12)));
        let [Call::Event(Event::Synchronize { pods, containers })] = &log.events()[..] else {
            panic!("{:?}", log.events())
        };
        assert_eq!(pods.iter().map(|pod| &*pod.uid.0).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(containers.iter().map(|c| &*c.id.0).collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(told[2], Told::Disconnected(Session(7)));
    }
}

/// A runtime can call before we have heard that our own call went well.
#[tokio::test(start_paused = true)]
async fn configured_before_the_registration_is_answered() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
    let (stream, _) = runtime.called().await.unwrap();
    runtime.configure().await;
    runtime.synchronize(&[pod("a", 1000)], &[], 1).await;
    runtime.respond(stream, Ok(Vec::new())).await;
    runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
    assert_eq!(plugin.log.events().len(), 2);
}

/// Calls that are there before anything of ours is.
#[tokio::test(start_paused = true)]
async fn configured_before_registering() {
    let (mut runtime, _plugin) = connect(Generation::V0_8, content);
    let request = runtime.generation.configure();
    let payload = protobuf::Message::write_to_bytes(&request).unwrap();
    let stream = runtime.send("Configure", &payload).await;
    runtime.registration().await;
    runtime.reply(stream).await.unwrap();
}

/// NRI 0.6.1 lists a whole node in one message, also where that is far more than ttrpc's 4 MiB.
#[tokio::test(start_paused = true)]
async fn one_list_of_fifteen_megabytes() {
    let update = |call: &Call| match call {
        Call::Event(Event::Synchronize { containers, .. }) => at_once(Response {
            updates: vec![shared(&containers[0].id.0, "0-3")],
            ..Response::default()
        }),
        _ => content(call),
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

/// Parts are collected; pods and containers need not come together.
#[tokio::test(start_paused = true)]
async fn lists_in_parts() {
    let update = |call: &Call| match call {
        Call::Event(Event::Synchronize { containers, .. }) => {
            let all = containers.iter().map(|container| shared(&container.id.0, "0-3"));
            at_once(Response { updates: all.collect(), ..Response::default() })
        }
        _ => content(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, update);
    runtime.registration().await;
    runtime.configure().await;
    let mut pods: Vec<_> = (0..3).map(|index| pod(&index.to_string(), 1000)).collect();
    let mut containers: Vec<_> =
        (0..20).map(|index| container(&format!("c{index}"), "2", 1000)).collect();
    // One without an id is left out: no update could name it.
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
    assert!(containers.iter().all(|container| container.sandbox.0 == "sandbox-2"));
}

/// What came before another `Configure` does not count.
#[tokio::test(start_paused = true)]
async fn configure_begins_the_list_anew() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
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
    runtime.synchronize(&[pod("kept", 1000)], &[], 1).await;
    let [Call::Event(Event::Synchronize { pods, .. })] = &plugin.log.events()[..] else { panic!() };
    assert_eq!(pods.iter().map(|pod| &*pod.uid.0).collect::<Vec<_>>(), ["kept"]);
}

/// Two long names take more memory than all containers of a node.
#[tokio::test(start_paused = true)]
async fn a_list_is_bounded_by_its_bytes() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
    runtime.registration().await;
    runtime.configure().await;
    let part = |bytes: usize| wire::SynchronizeRequest {
        pods: vec![wire::PodSandbox { name: "x".repeat(bytes), ..pod("long", 1000) }],
        more: true,
        ..Default::default()
    };
    for (bytes, fits) in [(4 << 20, true), (3 << 20, true), (1 << 20, false), (1, false)] {
        let answer: Result<wire::SynchronizeResponse, _> =
            runtime.call("Synchronize", &part(bytes)).await;
        match answer {
            Ok(answer) => assert!(answer.more && fits, "{bytes}"),
            Err(status) => {
                assert!(!fits && status.message.contains("8 MiB of names"), "{}", status.message);
            }
        }
    }
    assert!(plugin.log.events().is_empty());
}

/// Many empty parts in a row, as a runtime with few pods and many containers sends them.
#[tokio::test(start_paused = true)]
async fn ten_thousand_empty_parts() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
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

/// A list that has no end does not fill the memory.
#[tokio::test(start_paused = true)]
async fn endless_lists_are_refused() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
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

/// The runtime goes away at every point of the handshake: always an orderly end, always reported.
#[tokio::test(start_paused = true)]
async fn ends_at_every_point() {
    for steps in 0..7 {
        let (mut runtime, plugin) = connect(Generation::V0_8, content);
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
        let told = log.told();
        assert_eq!(told.last(), Some(&Told::Disconnected(Session(7))), "after {steps} steps");
        let configured = told.iter().filter(|told| matches!(told, Told::Configure { .. })).count();
        assert_eq!(configured, usize::from(steps >= 3), "after {steps} steps");
        assert_eq!(log.events().len(), usize::from(steps >= 6), "after {steps} steps");
    }
}

/// A runtime leaves the connection open when it refuses a plugin; we do not.
#[tokio::test(start_paused = true)]
async fn refused_registrations_end_the_connection() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
    let (stream, _) = runtime.called().await.unwrap();
    let refusal = ttrpc::get_status(Code::UNKNOWN, "invalid plugin index");
    runtime.respond(stream, Err(refusal)).await;
    assert!(runtime.closed().await);
    let (log, ended) = plugin.ended().await;
    assert!(
        matches!(&ended, Err(SessionError::Registration(why)) if why == "invalid plugin index"),
        "{ended:?}"
    );
    assert_eq!(log.told(), [Told::Disconnected(Session(7))]);
}

/// The text of a refused configuration reaches the runtime.
#[tokio::test(start_paused = true)]
async fn refused_configurations() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
    runtime.registration().await;
    let mut request = runtime.generation.configure();
    request.config = "refuse me".into();
    let refused = runtime.call::<wire::ConfigureResponse>("Configure", &request).await.unwrap_err();
    assert_eq!(refused.message, "bad configuration");
    let told = plugin.log.told();
    assert!(matches!(&told[..], [Told::Configure { config, .. }] if config == "refuse me"));
}

/// A runtime that accepts a plugin and forgets it is given up after more than a minute, and not
/// before.
#[tokio::test(start_paused = true)]
async fn silence_after_registering() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
    let started = Instant::now();
    runtime.registration().await;
    assert!(runtime.closed().await);
    assert!((60..100).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    let (_, ended) = plugin.ended().await;
    assert!(matches!(ended, Err(SessionError::NeverConfigured)), "{ended:?}");
}

/// The list of containers may legitimately take hours: containerd waits for grace periods to end.
#[tokio::test(start_paused = true)]
async fn a_list_that_comes_after_hours() {
    let (mut runtime, plugin) = connect(Generation::V0_8, content);
    runtime.registration().await;
    runtime.configure().await;
    tokio::time::sleep(Duration::from_secs(5 * 3600)).await;
    runtime.synchronize(&[pod("a", 1000)], &[], 1).await;
    assert_eq!(plugin.log.events().len(), 1);
}

/// A stop: answers under way go out, then the connection closes.
#[tokio::test(start_paused = true)]
async fn stops_after_the_answers_under_way() {
    let slow = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => {
            (Duration::from_millis(500), Ok(Response::default()))
        }
        _ => content(call),
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

/// The whole handshake byte by byte, through the narrowest pipe.
#[tokio::test(start_paused = true)]
async fn byte_by_byte() {
    for (pipe, piece) in [(1, 1), (7, 3), (4096, 10), (13, 5000)] {
        let (mut runtime, plugin) = connect_through(pipe, Generation::V0_12, content);
        runtime.framing = Framing::Pieces(piece);
        runtime.registration().await;
        runtime.configure().await;
        runtime.synchronize(&[pod("a", 1000)], &[container("c", "a", 1000)], 1).await;
        assert_eq!(plugin.log.events().len(), 1);
    }
}
