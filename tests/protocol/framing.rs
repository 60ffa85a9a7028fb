//! Frames in both directions: the plugin's suit the strictest reader, the runtime's may be cut
//! anywhere.

use crate::go::TtrpcMessage;
use crate::owner::{at_once, connect, connect_through, no_change, shared};
use crate::runtime::{Framing, Generation, PLUGIN, RUNTIME, container, frame, of, pod};
use edge::Response;
use ledger::{Admission, Call, ContainerId, Event};
use proptest::prelude::*;
use protobuf::Message as _;
use std::time::Duration;
use ttrpc::proto::{Code, Request};

/// Sizes around every border of the reader's buffer, up to the longest message. The reader asserts
/// that each frame fits (`go`).
#[tokio::test(start_paused = true)]
async fn answers_of_every_size_are_readable() {
    let sized = |call: &Call| match call {
        Call::Event(Event::Stop(ContainerId(size))) => {
            let id = "x".repeat(size.parse().unwrap());
            at_once(Response { updates: vec![shared(&id, "0")], ..Response::default() })
        }
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect(Generation::V0_8, sized);
    runtime.handshake().await;
    let sizes = (1..20).chain(4030..4110).chain(8120..8200).chain([
        65_400,
        65_535,
        65_536,
        70_000,
        1 << 20,
        (4 << 20) - 60,
    ]);
    let mut longest = 0;
    for size in sizes {
        runtime.readers.get_mut(&PLUGIN).unwrap().frames.clear();
        let answer =
            runtime.stop(&pod("a", 1), &container(&size.to_string(), "a", 1)).await.unwrap();
        assert_eq!(answer.update[0].container_id.len(), size);
        let frames = &runtime.readers[&PLUGIN].frames;
        assert!(frames.len() < 256, "{} frames for {size} bytes overflow the reader", frames.len());
        longest = longest.max(frames.iter().copied().max().unwrap());
    }
    assert!(longest > 4096, "no long frame was sent");
}

/// The connection stays open.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_long_becomes_an_error() {
    let long = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => at_once(Response {
            updates: vec![shared(&"x".repeat(4 << 20), "0")],
            ..Response::default()
        }),
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect(Generation::V0_8, long);
    runtime.handshake().await;
    let pod = pod("a", 1000);
    let container = container("c", "a", 1000);
    let status = runtime.create(&pod, &container).await.unwrap_err();
    assert_eq!(status.code.enum_value_or_default(), Code::RESOURCE_EXHAUSTED);
    runtime.stop(&pod, &container).await.unwrap();
}

/// The runtime does not read for a minute, and loses no answer.
#[tokio::test(start_paused = true)]
async fn answers_wait_for_their_reader() {
    let long = |call: &Call| match call {
        Call::Event(Event::Stop(_)) => at_once(Response {
            updates: vec![shared(&"x".repeat(100_000), "0")],
            ..Response::default()
        }),
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect_through(4096, Generation::V0_8, long);
    runtime.handshake().await;
    let request = of(&pod("a", 1), &container("c", "a", 1)).write_to_bytes().unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(runtime.send("StopContainer", &request).await);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for stream in streams {
        runtime.reply(stream).await.unwrap();
    }
}

/// The bytes of a call that stops the container with this id.
fn stop(stream: u32, id: &str) -> Vec<u8> {
    let mut request = Request::new();
    request.service = "nri.pkg.api.v1alpha1.Plugin".into();
    request.method = "StopContainer".into();
    request.payload = of(&pod("a", 1), &container(id, "a", 1)).write_to_bytes().unwrap();
    let payload = request.write_to_bytes().unwrap();
    TtrpcMessage { stream, kind: 1, payload }.bytes()
}

#[tokio::test(start_paused = true)]
async fn several_calls_in_one_frame_are_answered() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.handshake().await;
    let calls: Vec<u8> = (0..50).flat_map(|call| stop(1001 + 2 * call, "c")).collect();
    runtime.stream(PLUGIN, &calls).await;
    for call in 0..50 {
        runtime.reply(1001 + 2 * call).await.unwrap();
    }
    assert_eq!(plugin.log.events().len(), 51);
}

/// The runtime makes more calls than the plugin accepts at once; the plugin still reads the answer
/// to its own call.
#[tokio::test(start_paused = true)]
async fn neither_connection_blocks_the_other() {
    let never = |call: &Call| match call {
        Call::Event(Event::Stop(_)) => (Duration::from_secs(86_400), Ok(Response::default())),
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_12, never);
    runtime.handshake().await;
    let updater = plugin.log.updater().unwrap();
    let update = edge::nri::updates(&[shared("s", "0")]);
    let changed = tokio::spawn(async move { updater.update(update).await });
    let (stream, request) = runtime.called().await.unwrap();
    assert_eq!(request.method, "UpdateContainers");
    // All at one moment: no answer is due before the clock moves, and it does not move while a task
    // can run.
    for call in 0..200 {
        runtime.stream(PLUGIN, &stop(1001 + 2 * call, "c")).await;
    }
    runtime.respond(stream, Ok(Vec::new())).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(changed.await.unwrap(), Ok(Vec::new()));
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
}

/// How the runtime's bytes arrive: in frames of these sizes, among frames of other connections,
/// over a pipe of this width.
#[derive(Debug, Clone)]
struct Cut {
    sizes: Vec<usize>,
    /// The connection of each frame, and the length of its payload.
    others: Vec<(u32, usize)>,
    pipe: usize,
}

fn cut() -> impl Strategy<Value = Cut> {
    let sizes = prop::collection::vec(prop_oneof![1_usize..12, 1_usize..3000], 1..20);
    let others =
        prop::collection::vec((prop_oneof![Just(1), Just(2), 3_u32..9], 0_usize..30), 1..10);
    (sizes, others, prop_oneof![1_usize..50, 50_usize..10_000])
        .prop_map(|(sizes, others, pipe)| Cut { sizes, others, pipe })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn calls_in_any_frames_are_answered(cut in cut(), ids in prop::collection::vec("[a-z]{1,400}", 1..8)) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        clock.block_on(async {
            let (mut runtime, plugin) = connect_through(cut.pipe, Generation::V0_8, no_change);
            runtime.framing = Framing::Pieces(cut.sizes[0]);
            runtime.handshake().await;
            let mut bytes = Vec::new();
            for (index, id) in ids.iter().enumerate() {
                bytes.extend(stop(1001 + 2 * index as u32, id));
            }
            let mut rest = &bytes[..];
            let mut step = 0;
            while !rest.is_empty() {
                let size = cut.sizes[step % cut.sizes.len()].min(rest.len());
                let (conn, length) = cut.others[step % cut.others.len()];
                // Frames without payload are legal everywhere, others only on unknown connections.
                let length = if conn == PLUGIN || conn == RUNTIME { 0 } else { length };
                runtime.raw(&frame(conn, &vec![0xff; length])).await;
                let (now, later) = rest.split_at(size);
                runtime.raw(&frame(PLUGIN, now)).await;
                rest = later;
                step += 1;
            }
            for index in 0..ids.len() {
                runtime.reply(1001 + 2 * index as u32).await.unwrap();
            }
            let stopped: Vec<_> = ids.into_iter().map(|id| Call::Event(Event::Stop(ContainerId(id.into())))).collect();
            assert_eq!(plugin.log.events()[1..], stopped);
        });
    }
}
