//! The whole edge: bytes for a session whose calls go to a real ledger.

use super::calls::{self, Call};
use super::node;
use cpuset::CpuSet;
use edge::nri::run_session;
use edge::{self, Message, Refusal, Subscriptions};
use ledger::{self, Channel, Event, Ledger};
use nri::Session;
use nri::frame::{self, Unframer};
use nri::{Identity, wire};
use protobuf::Message as _;
use std::collections::HashSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use ttrpc::proto::{Code, Request, Response};

const PLUGIN: u32 = frame::PLUGIN_CONN;
/// Larger than the answers to any input: writing to the pipe must never wait for the reader.
const PIPE: usize = 1 << 20;
const TTRPC_HEADER: usize = 10;

/// Raw bytes on the socket: how they are split does not change their frames, and a session that
/// reads them ends.
pub fn mux(bytes: &[u8]) {
    let whole = unframe(&[bytes]);
    let middle = bytes.split_at(bytes.len() / 2);
    assert_eq!(unframe(&[middle.0, middle.1]), whole);
    assert_eq!(unframe(&bytes.chunks(1).collect::<Vec<_>>()), whole);
    in_paused_time(async {
        let (mut trunk, plugin) = start_session();
        trunk.write_all(bytes).await.expect("a pipe that is wide enough");
        drop(trunk);
        plugin.await.expect("no panic");
    });
}

/// The bytes of each connection, and whether the input was whole frames.
fn unframe(parts: &[&[u8]]) -> (Vec<(u32, u8)>, bool) {
    let mut unframer = Unframer::default();
    let mut payload = Vec::new();
    for part in parts {
        let mut part = *part;
        loop {
            match unframer.next(&mut part) {
                Ok(Some((conn, piece))) => payload.extend(piece.iter().map(|byte| (conn, *byte))),
                Ok(None) => break,
                Err(_) => return (payload, false),
            }
        }
    }
    (payload, unframer.between_frames())
}

/// Calls in well-formed frames: each gets an answer that its caller can read.
pub fn ttrpc(bytes: &[u8]) {
    let calls = calls::decode(bytes);
    in_paused_time(async {
        let (mut trunk, plugin) = start_session();
        let mut out = Vec::new();
        let mut stream = 1;
        let mut sent = Vec::new();
        let mut raw = false;
        for call in calls {
            match call {
                Call::Method(method, payload) => {
                    sent.push((stream, method));
                    put(&mut out, PLUGIN, &message(stream, method, payload));
                    stream += 2;
                }
                // Later calls may be read as part of these bytes, so answers are not expected.
                Call::Raw(conn, payload) => {
                    put(&mut out, conn, payload);
                    raw = true;
                }
            }
        }
        trunk.write_all(&out).await.expect("a pipe that is wide enough");
        if !raw {
            answers(&mut trunk, sent).await;
        }
        drop(trunk);
        plugin.await.expect("no panic");
    });
}

/// Reads the answers to these calls, in any order; nothing else may arrive on their connection.
async fn answers(trunk: &mut DuplexStream, sent: Vec<(u32, &str)>) {
    let mut unframer = Unframer::default();
    let mut arrived = Vec::new();
    let mut waiting: HashSet<u32> = sent.iter().map(|(stream, _)| *stream).collect();
    let mut buffer = vec![0; 64 << 10];
    while !waiting.is_empty() {
        let read = tokio::time::timeout(Duration::from_secs(60), trunk.read(&mut buffer)).await;
        let read = read.expect("an answer to every call").expect("a pipe");
        assert_ne!(read, 0, "the connection does not outlive its calls: {waiting:?}");
        let mut part = &buffer[..read];
        while let Some((conn, piece)) = unframer.next(&mut part).expect("frames") {
            if conn == PLUGIN {
                arrived.extend_from_slice(piece);
            }
        }
        while arrived.len() >= TTRPC_HEADER {
            let length = number(&arrived, 0) as usize;
            let stream = number(&arrived, 4);
            if arrived.len() < TTRPC_HEADER + length {
                break;
            }
            assert!(waiting.remove(&stream), "an answer without a call, or a second one");
            let rest = arrived.split_off(TTRPC_HEADER + length);
            let (_, method) = sent.iter().find(|(of, _)| *of == stream).expect("a call");
            check_answer(method, &arrived[TTRPC_HEADER..]);
            arrived = rest;
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The answer must be of the method's type, and its updates must be valid.
fn check_answer(method: &str, answer: &[u8]) {
    let answer = Response::parse_from_bytes(answer).expect("an answer");
    if answer.status().code.enum_value_or_default() != Code::OK {
        assert!(!answer.status().message.is_empty(), "{method}: an error without a message");
        return;
    }
    let bytes = &answer.payload;
    let updates = match method {
        "Configure" => {
            let answer = wire::ConfigureResponse::parse_from_bytes(bytes).expect("its own type");
            assert!(answer.events != 0 && answer.events & !0x3fff == 0);
            return;
        }
        "Synchronize" => {
            wire::SynchronizeResponse::parse_from_bytes(bytes).expect("its own type").update
        }
        "CreateContainer" => {
            let answer =
                wire::CreateContainerResponse::parse_from_bytes(bytes).expect("its own type");
            if let Some(adjust) = answer.adjust.as_ref() {
                check_cpus(&adjust.linux.resources);
            }
            answer.update
        }
        "UpdateContainer" => {
            wire::UpdateContainerResponse::parse_from_bytes(bytes).expect("its own type").update
        }
        "StopContainer" => {
            wire::StopContainerResponse::parse_from_bytes(bytes).expect("its own type").update
        }
        _ => return,
    };
    let mut named = HashSet::new();
    for update in updates {
        assert!(update.ignore_failure && !update.container_id.is_empty(), "{method}: {update:?}");
        assert!(named.insert(update.container_id.clone()), "updated twice in one answer");
        check_cpus(&update.linux.resources);
    }
}

/// The CPUs that are set are online, and at least one; memory nodes are not set.
fn check_cpus(resources: &wire::LinuxResources) {
    let cpus: CpuSet = resources.cpu.cpus.parse().expect("a list of CPUs");
    assert!(!cpus.is_empty() && cpus.is_subset(&node::topology().online()));
    assert!(resources.cpu.mems.is_empty());
}

/// Starts a session and an owner with a real ledger; returns the pipe to them, and their task.
fn start_session() -> (DuplexStream, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let plugin = tokio::spawn(async move {
        let (owner, inbox) = mpsc::unbounded_channel();
        let identity = Identity::new("cpu-manager", "90").expect("a name and an index");
        let session = async move {
            let never = std::future::pending::<()>();
            // It may end with an error; the test is that it ends.
            let _ = run_session(ours, Session(1), &identity, &owner, never).await;
        };
        tokio::join!(session, own(inbox));
    });
    (theirs, plugin)
}

async fn own(mut inbox: mpsc::UnboundedReceiver<Message>) {
    let mut ledger = node::ledger(Vec::new());
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Configure { reply, .. } => drop(reply.send(Ok(Subscriptions {
                before_start: true,
                validation: true,
                for_crio: true,
            }))),
            Message::Call { call, reply, .. } => {
                let (response, sent) = answer(&mut ledger, call);
                drop(ledger.take_notes());
                if reply.send(response).is_ok()
                    && let Some(sent) = sent
                {
                    ledger.apply(sent);
                }
                assert_eq!(ledger.check(), Ok(()));
            }
            Message::Validate { container, cpus, reply, .. } => {
                let decided = ledger.target(&container).map(|target| target.setting.cpus());
                let approved = decided.is_some() && decided == cpus;
                let refusal = Refusal("not as decided".into());
                drop(reply.send(if approved { Ok(()) } else { Err(refusal) }));
            }
            Message::WentOn { .. } | Message::Disconnected { .. } => {}
        }
    }
}

/// The response to a call, and the event that records it once it was sent.
fn answer(
    ledger: &mut Ledger,
    call: ledger::Call,
) -> (Result<edge::Response, Refusal>, Option<Event>) {
    match call {
        ledger::Call::Admission(admission) => match ledger.admit(admission) {
            Ok(decision) => {
                let setting = decision.setting();
                let updates = decision.due.updates.clone();
                let response = edge::Response { setting, updates, ..edge::Response::default() };
                (Ok(response), Some(Event::Answered(decision)))
            }
            Err(rejection) => (Err(Refusal(rejection.to_string())), None),
        },
        ledger::Call::Event(event) => {
            let answer_has_updates = event.answer_has_updates();
            ledger.apply(event);
            if !answer_has_updates {
                return (Ok(edge::Response::default()), None);
            }
            let due = ledger.due(&Channel::Runtime);
            let response =
                edge::Response { updates: due.updates.clone(), ..edge::Response::default() };
            (Ok(response), Some(Event::Sent(due)))
        }
    }
}

fn message(stream: u32, method: &str, payload: &[u8]) -> Vec<u8> {
    let mut request = Request::new();
    request.service = "nri.pkg.api.v1alpha1.Plugin".into();
    request.method = method.into();
    request.payload = payload.to_vec();
    request.timeout_nano = 2_000_000_000;
    let body = request.write_to_bytes().expect("a request");
    let mut bytes = u32::try_from(body.len()).expect("a short one").to_be_bytes().to_vec();
    bytes.extend(stream.to_be_bytes());
    bytes.extend([1, 0]);
    bytes.extend(body);
    bytes
}

fn put(out: &mut Vec<u8>, conn: u32, payload: &[u8]) {
    out.extend(frame::header(conn, payload.len()));
    out.extend(payload);
}

/// Runs with a paused clock, which advances only when all tasks wait: timeouts take no time.
fn in_paused_time(test: impl Future<Output = ()>) {
    let clock = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    clock.block_on(test);
}
