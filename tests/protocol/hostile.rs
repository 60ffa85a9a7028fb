//! A peer that breaks the protocol: no panic, no hang, bounded memory, and a clear end.

use crate::go::TtrpcMessage;
use crate::owner::{connect, no_change};
use crate::runtime::{Generation, PLUGIN, RUNTIME, container, frame, of, pod};
use edge::Response;
use ledger::{Call, Event};
use nri::frame::FrameError;
use nri::{Ended, MuxError, SessionError};
use proptest::prelude::*;
use protobuf::Message as _;
use std::time::Duration;
use ttrpc::proto::{Code, Request};

#[tokio::test(start_paused = true)]
async fn broken_frames_end_the_connection_with_an_error() {
    type Check = fn(&SessionError) -> bool;
    let table: [(Vec<u8>, Check); 5] = [
        (frame(0, b"hello"), |error| {
            matches!(error, SessionError::Mux(MuxError::Frame(FrameError::ReservedConnection)))
        }),
        ([0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff].to_vec(), |error| {
            matches!(error, SessionError::Mux(MuxError::Frame(FrameError::TooLong(0xffff_ffff))))
        }),
        ([0, 0, 0, 9, 1, 0, 0x10, 1].to_vec(), |error| {
            matches!(error, SessionError::Mux(MuxError::Frame(FrameError::TooLong(_))))
        }),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), |error| {
            matches!(error, SessionError::Mux(MuxError::Frame(FrameError::TooLong(_))))
        }),
        // A message of 4 GiB.
        (frame(PLUGIN, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1, 0]), |error| {
            matches!(error, SessionError::Serve(_))
        }),
    ];
    for handshake in [false, true] {
        for (bytes, check) in &table {
            let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
            if handshake {
                runtime.handshake().await;
            }
            runtime.raw(bytes).await;
            assert!(runtime.closed().await);
            let (_, ended) = plugin.ended().await;
            let error = ended.expect_err("a broken connection");
            assert!(check(&error), "{error:?}");
        }
    }
}

/// An end between frames is orderly.
#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_within_a_frame_is_an_error() {
    for (bytes, orderly) in [
        (&[][..], true),
        (&[0, 0, 0, 1, 0, 0, 0, 0], true),
        (&[0, 0, 0], false),
        (&[0, 0, 0, 1, 0, 0, 0, 9], false),
        (&[0, 0, 0, 1, 0, 0, 0, 2, 7], false),
        (&[0, 0, 0, 5, 0, 0, 0, 2, 7], false),
        // Half a message in a whole frame: the runtime died, but its frames are complete.
        (&[0, 0, 0, 1, 0, 0, 0, 2, 7, 7], true),
    ] {
        let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
        runtime.handshake().await;
        runtime.raw(bytes).await;
        drop(runtime);
        let (_, ended) = plugin.ended().await;
        match ended {
            Ok(Ended::Closed) => assert!(orderly, "{bytes:?}"),
            Err(SessionError::Mux(MuxError::Truncated)) => assert!(!orderly, "{bytes:?}"),
            ended => panic!("{bytes:?}: {ended:?}"),
        }
    }
}

/// Calls that are not protobuf, or have invalid text, fail, and the connection goes on.
#[tokio::test(start_paused = true)]
async fn broken_messages_fail_alone() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.handshake().await;
    let methods = [
        "Configure",
        "Synchronize",
        "RunPodSandbox",
        "UpdatePodSandbox",
        "PostUpdatePodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "CreateContainer",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "UpdateContainer",
        "PostUpdateContainer",
        "StopContainer",
        "RemoveContainer",
        "StateChange",
        "ValidateContainerAdjustment",
    ];
    for method in methods {
        for garbage in [
            &b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            // A field of an unknown type.
            b"\x0f\x00",
            // Field 1 with a text that is not UTF-8, such as the id of a pod.
            b"\x0a\x03\x0a\x01\xff\x12\x02\x0a\xff",
        ] {
            let stream = runtime.send(method, garbage).await;
            let Err(status) = runtime.reply(stream).await else {
                panic!("{method} takes {garbage:x?}")
            };
            assert_eq!(status.code.enum_value_or_default(), Code::INVALID_ARGUMENT, "{method}");
        }
    }
    // The envelope itself.
    for payload in [&b"\xff\xff"[..], b"\x0a\x01\xff"] {
        let message = TtrpcMessage { stream: 9001, kind: 1, payload: payload.to_vec() };
        runtime.stream(PLUGIN, &message.bytes()).await;
        let status = runtime.reply(9001).await.unwrap_err();
        assert_eq!(status.code.enum_value_or_default(), Code::INVALID_ARGUMENT);
    }
    runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
    assert_eq!(plugin.log.events().len(), 2);
}

/// Messages of other kinds, and answers without a call.
#[tokio::test(start_paused = true)]
async fn messages_that_are_no_calls_are_ignored() {
    let (mut runtime, _plugin) = connect(Generation::V0_8, no_change);
    runtime.handshake().await;
    for kind in [0, 2, 3, 77] {
        let message = TtrpcMessage { stream: 5, kind, payload: b"whatever".to_vec() };
        runtime.stream(PLUGIN, &message.bytes()).await;
        runtime.stream(RUNTIME, &message.bytes()).await;
    }
    runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_to_the_registration_ends_the_connection() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    let (stream, _) = runtime.called().await.unwrap();
    let message = TtrpcMessage { stream, kind: 2, payload: b"\xff\xff\xff".to_vec() };
    runtime.stream(RUNTIME, &message.bytes()).await;
    assert!(runtime.closed().await);
    let (_, ended) = plugin.ended().await;
    assert!(matches!(ended, Err(SessionError::Registration(_))), "{ended:?}");
}

/// No call is ever answered; what waits is bounded.
#[tokio::test]
async fn a_flood_of_calls_is_bounded_and_ends_the_connection() {
    let never = |call: &Call| match call {
        Call::Event(Event::Stop(_)) => (Duration::from_secs(86_400), Ok(Response::default())),
        _ => no_change(call),
    };
    for piece in [1 << 20, 1 << 10] {
        let (mut runtime, plugin) = connect(Generation::V0_8, never);
        runtime.handshake().await;
        let mut request = Request::new();
        request.service = "nri.pkg.api.v1alpha1.Plugin".into();
        request.method = "StopContainer".into();
        request.payload = of(&pod("a", 1), &container("c", "a", 1)).write_to_bytes().unwrap();
        for _ in 0..100 {
            runtime.send_request(&request).await;
        }
        let flood = frame(PLUGIN, &vec![0; piece]);
        let flood = flood.repeat((1_usize << 16).div_ceil(flood.len()));
        let mut sent = 0_usize;
        while tokio::io::AsyncWriteExt::write_all(&mut runtime.trunk, &flood).await.is_ok() {
            sent += flood.len();
            assert!(sent < 64 << 20, "{sent} bytes in frames of {piece} wait in memory");
        }
        assert!(sent > 16 << 20, "only {sent} bytes may wait");
        let (_, ended) = plugin.ended_now().await;
        assert!(matches!(ended, Err(SessionError::Mux(MuxError::Overrun(PLUGIN)))), "{ended:?}");
    }
}

fn in_paused_time(test: impl Future<Output = ()>) {
    let clock = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    clock.block_on(test);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Before or after the handshake.
    #[test]
    fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), handshake in any::<bool>()) {
        in_paused_time(async {
            let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
            if handshake {
                runtime.handshake().await;
            }
            runtime.raw(&bytes).await;
            drop(runtime);
            // `ended` fails if the session hangs or panics.
            let (log, _) = plugin.ended().await;
            assert_eq!(log.events().len(), usize::from(handshake));
        });
    }

    /// Calls in valid frames.
    #[test]
    fn any_calls_leave_the_connection_usable(calls in prop::collection::vec((method(), prop::collection::vec(any::<u8>(), 0..80)), 1..20)) {
        in_paused_time(async {
            let (mut runtime, _plugin) = connect(Generation::V0_8, no_change);
            runtime.handshake().await;
            for (method, payload) in calls {
                let stream = runtime.send(&method, &payload).await;
                let _ = runtime.reply(stream).await;
            }
            runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
        });
    }
}

fn method() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("Configure".to_owned()),
        Just("Synchronize".to_owned()),
        Just("CreateContainer".to_owned()),
        Just("UpdateContainer".to_owned()),
        Just("StopContainer".to_owned()),
        Just("StateChange".to_owned()),
        Just("UpdatePodSandbox".to_owned()),
        "[A-Za-z]{0,12}",
    ]
}
