//! A connection that comes back, over real sockets.

use crate::owner::{Answer, Log, Received, identity, no_change, owner, shared};
use crate::runtime::{Generation, Runtime, container, of, pod};
use edge::Response;
use edge::nri::run;
use ledger::{Admission, Call, Event};
use nri::Session;
use nri::{Endpoint, RunError};
use protobuf::Message as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Daemon {
    log: Log,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), RunError>>,
}

fn daemon(endpoint: Endpoint, script: impl FnMut(&Call) -> Answer + Send + 'static) -> Daemon {
    let (owner, log) = owner(script);
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(async move { run(endpoint, &identity(), owner, stopped).await });
    Daemon { log, stop, ended }
}

/// Replaces the socket, as a runtime does when it starts.
fn listen(path: &Path) -> UnixListener {
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).unwrap()
}

async fn accept(listener: &UnixListener) -> Runtime<UnixStream> {
    let accepted = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await;
    Runtime::new(accepted.expect("a connection within 5 s").unwrap().0, Generation::V0_8)
}

fn socket() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nri.sock");
    (directory, path)
}

async fn within<T>(seconds: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), what).await.expect("in time")
}

/// The runtime restarts twice: between two messages, and before its first message.
#[tokio::test]
async fn the_plugin_reconnects_to_a_new_socket() {
    let (_directory, path) = socket();
    let listener = listen(&path);
    let daemon = daemon(Endpoint::Socket(path.clone()), no_change);
    let mut runtime = accept(&listener).await;
    runtime.handshake().await;
    drop((runtime, listener));

    let listener = listen(&path);
    drop((accept(&listener).await, listener));
    tokio::time::sleep(Duration::from_millis(300)).await;

    let listener = listen(&path);
    let mut runtime = accept(&listener).await;
    runtime.handshake().await;
    runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
    daemon.stop.send(()).unwrap();
    assert!(runtime.closed().await);
    within(5, daemon.ended).await.unwrap().unwrap();

    let numbers: Vec<_> = daemon
        .log
        .received()
        .iter()
        .map(|message| match message {
            Received::Configure { session, .. } => (session.0, "configure"),
            Received::Call { session, call: Call::Event(Event::Synchronize { .. }), .. } => {
                (session.0, "sync")
            }
            Received::Call { session, .. } => (session.0, "event"),
            Received::WentOn(session) => (session.0, "on"),
            Received::Disconnected(session) => (session.0, "end"),
        })
        .collect();
    let expected = [
        (1, "configure"),
        (1, "sync"),
        (1, "end"),
        (2, "end"),
        (3, "configure"),
        (3, "sync"),
        (3, "event"),
        (3, "end"),
    ];
    assert_eq!(numbers, expected);
}

/// After a first connection, the plugin waits for the runtime without a limit.
#[tokio::test]
async fn the_plugin_waits_for_a_runtime_that_is_away_for_long() {
    let (_directory, path) = socket();
    let listener = listen(&path);
    let daemon = daemon(Endpoint::Socket(path.clone()), no_change);
    accept(&listener).await.handshake().await;
    drop(listener);
    tokio::time::sleep(Duration::from_millis(4500)).await;
    let listener = listen(&path);
    accept(&listener).await.handshake().await;
    assert!(!daemon.ended.is_finished());
}

/// A decision made after the end of its connection is not sent on the next one.
#[tokio::test]
async fn a_decision_is_dropped_with_its_connection() {
    let slow = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => {
            let updates = vec![shared("s", "0")];
            (Duration::from_millis(900), Ok(Response { updates, ..Response::default() }))
        }
        _ => no_change(call),
    };
    let (_directory, path) = socket();
    let listener = listen(&path);
    let daemon = daemon(Endpoint::Socket(path), slow);
    let mut runtime = accept(&listener).await;
    runtime.handshake().await;
    let request = of(&pod("a", 1000), &container("c", "a", 1000)).write_to_bytes().unwrap();
    runtime.send("CreateContainer", &request).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(runtime);

    // The test reads every message of this connection: an answer to the old call would fail it.
    let mut runtime = accept(&listener).await;
    runtime.handshake().await;
    let answer = runtime.stop(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
    assert!(answer.update.is_empty());
    assert_eq!(daemon.log.in_time(), [true, false, true, true]);
}

/// The error says what to check.
#[tokio::test(start_paused = true)]
async fn a_missing_socket_is_an_error_after_a_while() {
    let (_directory, path) = socket();
    let daemon = daemon(Endpoint::Socket(path.clone()), no_change);
    let error = daemon.ended.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RunError::Dial { .. }));
    assert!(text.contains(path.to_str().unwrap()) && text.contains("Is NRI enabled"), "{text}");
    assert!(daemon.log.received().is_empty());
}

/// The runtime starts a moment after the plugin.
#[tokio::test]
async fn the_plugin_waits_for_a_socket_that_appears_late() {
    let (_directory, path) = socket();
    let _daemon = daemon(Endpoint::Socket(path.clone()), no_change);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let listener = listen(&path);
    accept(&listener).await.handshake().await;
}

#[tokio::test]
async fn the_plugin_stops_between_connections() {
    let (_directory, path) = socket();
    let listener = listen(&path);
    let daemon = daemon(Endpoint::Socket(path), no_change);
    accept(&listener).await.handshake().await;
    drop(listener);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    daemon.stop.send(()).unwrap();
    within(1, daemon.ended).await.unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_millis(500));
}

/// The runtime launches a plugin for one connection.
#[tokio::test]
async fn launched_plugins_end_with_their_connection() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let daemon = daemon(Endpoint::Launched(ours), no_change);
    let mut runtime = Runtime::new(UnixStream::from_std(theirs).unwrap(), Generation::V0_8);
    runtime.handshake().await;
    drop(runtime);
    within(5, daemon.ended).await.unwrap().unwrap();
    assert_eq!(daemon.log.received().last(), Some(&Received::Disconnected(Session(1))));
}
