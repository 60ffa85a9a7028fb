//! HTTP clients that send anything, slowly or never: one at a time with a paused clock, many at
//! once with the real one.

use proptest::prelude::*;
use serve::http::{self, Response, StatusCode};
use serve::{Observers, Question, endpoint, questions};
use state::worker::Worker;
use status::{Health, Link, NodeView};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, interval, sleep};

/// Longer than any connection may last.
const LIMIT: Duration = Duration::from_secs(6);

/// Returns what a client receives that sends these pieces, with a pause after each. The server must
/// end the connection in time.
fn exchange(pieces: Vec<Vec<u8>>, pause: Duration, close: bool) -> String {
    exchange_with(0, pieces, pause, close)
}

/// As [`exchange`], with a server that takes a body of so many bytes.
fn exchange_with(most: usize, pieces: Vec<Vec<u8>>, pause: Duration, close: bool) -> String {
    let mut clock = tokio::runtime::Builder::new_current_thread();
    clock.enable_time().start_paused(true).build().unwrap().block_on(async {
        let (ours, theirs) = duplex(1 << 20);
        let client = tokio::spawn(client(theirs, pieces, pause, close));
        let started = Instant::now();
        http::serve(ours, most, |request| async move {
            let body = request.body.map(|body| String::from_utf8(body).unwrap());
            Response::text(StatusCode::Ok, body.unwrap_or(request.path))
        })
        .await;
        assert!(started.elapsed() < LIMIT, "it took {:?}", started.elapsed());
        client.await.unwrap()
    })
}

async fn client(
    stream: DuplexStream,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
    close: bool,
) -> String {
    let (mut from, mut to) = tokio::io::split(stream);
    let send = async {
        for piece in pieces {
            // The server may have closed the connection.
            if to.write_all(&piece).await.is_err() {
                break;
            }
            sleep(pause).await;
        }
        if close {
            let _ = to.shutdown().await;
        }
    };
    let mut answer = Vec::new();
    let (_, read) = tokio::join!(send, from.read_to_end(&mut answer));
    read.unwrap();
    String::from_utf8(answer).unwrap()
}

fn at_once(text: impl AsRef<[u8]>) -> String {
    exchange(vec![text.as_ref().to_vec()], Duration::ZERO, true)
}

#[track_caller]
fn check(request: impl AsRef<[u8]>, status: u16, text: &str) {
    let answer = at_once(request);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains(text), "{answer}");
}

#[test]
fn requests_are_answered_or_rejected_with_a_reason() {
    check("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", 200, "\r\n\r\n/metrics\n");
    check("GET /a HTTP/1.0\r\n\r\n", 200, "\r\n\r\n/a\n");
    check("GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", 200, "Content-Length: 2\r\n");
    check("POST / HTTP/1.1\r\n\r\n", 405, "GET or HEAD");
    check("GET\r\n\r\n", 400, "not HTTP");
    check("\x16\x03\x01\x02\x00\x01", 400, "not HTTP");
    check(format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(65)), 431, "64 header fields");
    check(format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(9000)), 431, "8192 bytes");
    let head = at_once("HEAD /a HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_body_is_read_up_to_its_bound() {
    let post = |length: &str, pieces: &[&str]| {
        let head = format!("POST /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec());
        let pieces = [head.into_bytes()].into_iter().chain(pieces).collect();
        exchange_with(8, pieces, Duration::from_millis(10), true)
    };
    assert!(post("8", &["1234", "5678"]).ends_with("\r\n\r\n12345678\n"));
    assert!(post("2", &["12345678"]).ends_with("\r\n\r\n12\n"), "the rest is discarded");
    assert!(post("0", &[]).ends_with("\r\n\r\n\n"));
    assert_eq!(post("8", &["1234"]), "", "it ends too early");
    for (length, status) in [("9", "413"), ("99999999999999999999", "400"), ("-1", "400")] {
        let answer = post(length, &["123456789"]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
    }
}

#[test]
fn a_client_without_a_whole_request_gets_no_answer() {
    assert_eq!(exchange(vec![], Duration::ZERO, false), "");
    assert_eq!(exchange(vec![], Duration::ZERO, true), "");
    assert_eq!(at_once("GET / HTTP/1.1\r\nHost:"), "");
}

#[test]
fn a_client_that_is_too_slow_gets_no_answer() {
    let request = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    let letters = || request.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
    assert!(exchange(letters(), Duration::from_millis(10), false).ends_with("/slow\n"));
    assert_eq!(exchange(letters(), Duration::from_secs(1), false), "", "it is given up");
}

#[test]
fn a_client_that_keeps_sending_after_its_answer_is_disconnected() {
    let mut pieces = vec![b"GET /a HTTP/1.1\r\n\r\n".to_vec()];
    pieces.extend(vec![vec![b'x'; 8 << 10]; 64]);
    assert!(exchange(pieces.clone(), Duration::ZERO, false).ends_with("/a\n"));
    assert!(exchange(pieces, Duration::from_millis(500), false).ends_with("/a\n"));
}

/// A server on one thread.
fn server() -> SocketAddr {
    counting_server().0
}

/// A server, and how many views it has asked for.
fn counting_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let (sender, address) = mpsc::channel();
    let counter = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&counter);
    thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let anywhere = "127.0.0.1:0".parse().unwrap();
            let listener = endpoint::listen(anywhere).await.unwrap().unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let (observer, mut observers) = questions();
            let pages = Worker::start("pages").unwrap();
            tokio::spawn(endpoint::serve(listener, observer, pages));
            let health = Arc::new(Health::default());
            let mut beat = interval(Observers::BEAT);
            loop {
                observers.beat(Arc::clone(&health));
                tokio::select! {
                    _ = beat.tick() => {}
                    Some(question) = observers.asked() => {
                        asked.fetch_add(1, Ordering::Relaxed);
                        let view = NodeView {
                            node_name: None,
                            link: Link::default(),
                            health: Arc::clone(&health),
                            node: Err(String::new()),
                            noise: Arc::default(),
                        };
                        // The client may be gone.
                        let Question::View(reply) = question else { continue };
                        let _ = reply.send(Arc::new(view));
                    }
                }
            }
        });
    });
    (address.recv().unwrap(), counter)
}

/// Connects and sends this part of a request.
fn request(to: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    // The server may have closed the connection already, to make room for others.
    let _ = stream.write_all(text.as_bytes());
    stream
}

/// A probe gets its answer within a second.
#[track_caller]
fn is_well(server: SocketAddr) {
    let mut probe = request(server, "GET /healthz HTTP/1.1\r\n\r\n");
    probe.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut answer = [0; 12];
    probe.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"HTTP/1.1 200");
}

/// Asks for this path as often as the server answers, until this time. Returns the number of answers.
fn flood(server: SocketAddr, path: &str, end: std::time::Instant) -> usize {
    let mut answers = 0;
    while std::time::Instant::now() < end {
        let mut stream =
            request(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let mut answer = Vec::new();
        // The server may have closed the connection, to make room for others.
        let _ = stream.read_to_end(&mut answer);
        answers += usize::from(answer.starts_with(b"HTTP/1.1 200"));
    }
    answers
}

#[test]
fn readers_cost_the_owner_a_view_a_second_and_probes_none() {
    let (server, asked) = counting_server();
    let begun = std::time::Instant::now();
    assert!(flood(server, "/healthz", begun + Duration::from_millis(300)) > 10);
    assert!(flood(server, "/readyz", begun + Duration::from_millis(600)) > 10);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    for path in ["/", "/metrics", "/fragment"] {
        asked.store(0, Ordering::Relaxed);
        let begun = std::time::Instant::now();
        let end = begun + Duration::from_millis(1500);
        let answers: usize = thread::scope(|scope| {
            let readers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| flood(server, path, end))).collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        assert!(answers > 20, "{path}: {answers}");
        let most = begun.elapsed().as_secs() as usize + 1;
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked <= most, "{path}: {asked} views for {answers} answers");
    }
}

/// Some clients do not finish their request, others do not read the answer.
#[test]
fn connections_that_stay_open_keep_no_probe_waiting() {
    let server = server();
    for text in ["GET /x", "GET /x HTTP/1.1\r\n\r\n"] {
        let silent: Vec<TcpStream> = (0..100).map(|_| request(server, text)).collect();
        (0..3).for_each(|_| is_well(server));
        drop(silent);
    }
}

#[test]
fn a_flood_of_new_connections_keeps_no_probe_waiting() {
    let server = server();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = VecDeque::new();
            while !end.load(Ordering::Relaxed) {
                held.push_back(request(server, "GET /x"));
                if held.len() > 100 {
                    held.pop_front();
                }
            }
        });
        thread::sleep(Duration::from_millis(200));
        let probed = thread::spawn(move || (0..20).for_each(|_| is_well(server))).join();
        end.store(true, Ordering::Relaxed);
        probed.unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_get_an_answer_in_http_or_none(
        start in prop::sample::select(vec!["", "GET / HTTP/1.1\r\n", "GET /", "HEAD / HTTP/1.1\r\nA: "]),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..24),
        pause in 0u64..800,
        close: bool,
    ) {
        let mut all = vec![start.as_bytes().to_vec()];
        all.extend(pieces);
        let answer = exchange(all, Duration::from_millis(pause), close);
        prop_assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{answer}");
    }
}
