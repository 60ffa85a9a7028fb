//! A peer at the kubelet's socket that sends any frames, as fast as it can: each call ends in time, with an error that
//! names what happened, and in bounded memory.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test"
)]

use podresources::Kubelet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a peer goes on, and the most that a call may take: its second, and what has arrived until then.
const LONG: Duration = Duration::from_secs(2);
/// The client reads a mebibyte before it discards the answers that only announce another one (1xx).
const MOST_KIB: u64 = 24 << 10;
const LATE: &str = "no answer within 1 s";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// What the peer does after its first settings: sends a beginning, and then the same again and again with pauses.
struct Peer {
    begins: Vec<u8>,
    repeats: Vec<u8>,
    pause: Duration,
}

fn sends(begins: &[Vec<u8>]) -> Peer {
    Peer { begins: begins.concat(), repeats: Vec::new(), pause: Duration::ZERO }
}

fn floods(begins: &[Vec<u8>], repeats: Vec<u8>) -> Peer {
    let times = (64 << 10) / repeats.len() + 1;
    Peer { repeats: repeats.repeat(times), ..sends(begins) }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field without compression.
fn field(name: &str, value: &[u8]) -> Vec<u8> {
    fn text(text: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        if text.len() < 127 {
            encoded.push(text.len() as u8);
        } else {
            encoded.push(127);
            let mut rest = text.len() - 127;
            while rest > 127 {
                encoded.push(rest as u8 & 127 | 128);
                rest >>= 7;
            }
            encoded.push(rest as u8);
        }
        encoded.extend(text);
        encoded
    }
    [vec![0], text(name.as_bytes()), text(value)].concat()
}

/// The headers of an answer.
fn head(flags: u8, more: &[u8]) -> Vec<u8> {
    let block = [&*field(":status", b"200"), &field("content-type", b"application/grpc"), more];
    frame(HEADERS, flags, 1, &block.concat())
}

fn trailers(code: &str, message: &[u8]) -> Vec<u8> {
    let block = [field("grpc-status", code.as_bytes()), field("grpc-message", message)].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
}

/// Reads up to the end of the client's request.
fn await_request(reader: &mut impl Read) -> io::Result<()> {
    const PREFACE: usize = 24;
    reader.read_exact(&mut [0; PREFACE])?;
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        reader.read_exact(&mut vec![0; length])?;
        if kind == DATA && flags & END_STREAM != 0 {
            return Ok(());
        }
    }
}

/// Answers one connection.
fn serve(listener: UnixListener, peer: Peer) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = stream.try_clone().unwrap();
    await_request(&mut reader).unwrap();
    // Never waits for the client to read, and reads what it answers.
    let drained = thread::spawn(move || while reader.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {});
    let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat();
    // The client may have ended the connection.
    let _ = stream.write_all(&[settings, peer.begins].concat());
    let until = Instant::now() + LONG;
    while !peer.repeats.is_empty() && Instant::now() < until {
        if stream.write_all(&peer.repeats).is_err() {
            break;
        }
        thread::sleep(peer.pause);
    }
    drained.join().unwrap();
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The result of a call to this peer, the time that it took, and the memory.
fn called(dir: &Path, peer: Peer) -> (Result<usize, String>, Duration, u64) {
    let socket = dir.join("kubelet.sock");
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let serving = thread::spawn(move || serve(listener, peer));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The next peak is that of this call.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_kib();
    let started = Instant::now();
    let result = runtime.block_on(Kubelet::new(socket).devices());
    let took = started.elapsed();
    let peak = peak_kib() - before;
    drop(runtime);
    serving.join().unwrap();
    (result.map(|listed| listed.pods.len()), took, peak)
}

#[test]
fn nothing_that_a_kubelet_sends_takes_long_or_much_memory() {
    let started = || head(END_HEADERS, &[]);
    let slow = |repeats| Peer { repeats, pause: Duration::from_millis(50), ..sends(&[started()]) };
    let long_field = || frame(CONTINUATION, 0, 1, &field("x", &[b'y'; 16000]));
    let informed = field(":status", b"103");
    // The shortest form: the name is number 8 of the static table.
    let short_inform = b"\x08\x03103";
    let long_inform = [&*informed, &field("x", &[b'y'; 4000])].concat();
    let message = |length: u32| {
        let body = vec![0; (5 + length) as usize];
        let mut body = body.chunks(16384).map(|part| frame(DATA, 0, 1, part)).collect::<Vec<_>>();
        body[0][10..14].copy_from_slice(&length.to_be_bytes());
        body
    };
    let random: Vec<u8> =
        (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let evil = [&b"\xc2\x9b evil%1b[31m%0aERROR fake%e2%80%ae"[..], &[b'z'; 6000]].concat();
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (case, peer, expect) in [
        (
            "an empty list",
            sends(&[started(), frame(DATA, 0, 1, &[0; 5]), trailers("0", b"")]),
            "0 pods",
        ),
        ("slow", slow(frame(DATA, 0, 1, &[0])), LATE),
        ("empty data", floods(&[started()], frame(DATA, 0, 1, &[])), "too_many"),
        ("silent", sends(&[]), LATE),
        ("silent after the head", sends(&[started()]), LATE),
        (
            "continuation",
            floods(&[head(0, &[])], frame(CONTINUATION, 0, 1, &[])),
            "too_many_continuations",
        ),
        ("headers", floods(&[head(0, &[])], long_field()), "too_many_continuations"),
        ("long headers", sends(&[head(END_HEADERS, &field("x", &[b'y'; 9000]))]), "error detected"),
        ("informational", floods(&[], frame(HEADERS, END_HEADERS, 1, short_inform)), LATE),
        ("long informational", floods(&[], frame(HEADERS, END_HEADERS, 1, &long_inform)), LATE),
        ("ping", floods(&[started()], frame(PING, 0, 0, b"12345678")), LATE),
        ("settings", floods(&[started()], frame(SETTINGS, 0, 0, &[])), LATE),
        ("window", floods(&[started()], frame(WINDOW, 0, 0, &[0, 0, 0, 1])), LATE),
        ("priority", floods(&[started()], frame(PRIORITY, 0, 5, &[0, 0, 0, 0, 1])), LATE),
        ("unknown", floods(&[started()], frame(77, 0, 0, &[7; 16000])), LATE),
        (
            "other streams",
            floods(&[started()], frame(HEADERS, 5, 3, &field(":status", b"200"))),
            "error",
        ),
        ("reset", sends(&[frame(RESET, 0, 1, &[0, 0, 0, 8])]), "stream no longer needed"),
        ("goaway", sends(&[frame(GOAWAY, 0, 0, &[0; 8])]), "not a result of an error"),
        (
            "long goaway",
            sends(&[frame(GOAWAY, 0, 0, &[&[0; 8][..], &[7; 16000]].concat())]),
            "not a result of an error",
        ),
        (
            "push",
            sends(&[frame(PUSH, 4, 1, &[&[0, 0, 0, 2], &*field(":status", b"200")].concat())]),
            "error",
        ),
        (
            "hugeframe",
            sends(&[b"\xff\xff\xff\0\0\0\0\0\x01".to_vec(), vec![b'a'; 100_000]]),
            "invalid size",
        ),
        ("message", sends(&[started(), trailers("13", &evil)]), "(gRPC code 13)"),
        ("a long message", sends(&[vec![started()], message(900_000)].concat()), LATE),
        ("random", sends(&[random]), "error detected"),
    ] {
        let (result, took, peak) = called(dir.path(), peer);
        let text = result.map_or_else(|why| why, |pods| format!("{pods} pods"));
        println!("{case}: {text} ({took:?}, {peak} KiB)");
        let odd = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        if !text.contains(expect) || text.contains(odd) || text.len() > 400 {
            wrong.push(format!("{case}: {text:?}, expected {expect:?}"));
        }
        if took > LONG || peak > MOST_KIB {
            wrong.push(format!("{case}: {took:?}, {peak} KiB"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
