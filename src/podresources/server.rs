//! The server: connections and their limits.
//!
//! A client may send anything, slowly or never, and may never read its answer: the number of
//! connections, their streams, bytes and time are bounded.

use super::authority::{MAX_BLOCK, Readable};
use super::connections::{Activity, Connections};
use super::grpc::{self, Code, MEDIA_TYPE, Status};
use super::kubelet_configuration;
use super::service::Service;
use super::socket::Socket;
use crate::config::PodResources;
use crate::files;
use crate::serve::ViewSource;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use ledger::Settings;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at a time. One more takes the place of an idle one.
const MAX_CONNECTIONS: usize = 16;
/// Calls at a time on one connection.
const MAX_STREAMS: u32 = 4;
/// The longest request, in bytes. The largest has two names of Kubernetes.
const MAX_REQUEST: usize = 4096;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a client may take to send a request, and to take its answer.
const TRANSFER: Duration = Duration::from_secs(10);
/// A connection without calls ends after this time. gRPC's clients connect again for the next one.
const IDLE: Duration = Duration::from_secs(600);
/// The pause after a failure: no place for the socket, no free file descriptors.
const PAUSE: Duration = Duration::from_secs(10);

/// What the daemon tells the server: the policy in force, for the file beside the socket.
#[derive(Debug)]
pub struct PolicyFile(watch::Sender<String>);

impl PolicyFile {
    /// Has the file renewed if these settings change it; waits for nothing.
    pub fn follow(&self, settings: &Settings) {
        let text = kubelet_configuration::text(settings);
        self.0.send_if_modified(|current| {
            let changed = *current != text;
            *current = text;
            changed
        });
    }
}

/// Serves until the runtime ends, and removes the socket then.
pub fn start(place: &PodResources, view: ViewSource, settings: &Settings) -> PolicyFile {
    let (policy, changes) = watch::channel(kubelet_configuration::text(settings));
    let service = Arc::new(Service::new(view, place.kubelet.clone()));
    tokio::spawn(serve(place.socket(), service));
    tokio::spawn(write_policy(place.config_file(), changes));
    PolicyFile(policy)
}

async fn write_policy(path: PathBuf, mut changes: watch::Receiver<String>) {
    loop {
        let text = changes.borrow_and_update().clone();
        let to = path.clone();
        let written = tokio::task::spawn_blocking(move || replace(&to, &text)).await;
        if let Ok(Err(error)) = written {
            log::warn!("podresources: cannot write {}: {error}", path.display());
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Replaces a file at once: a reader sees the old text or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    files::replace(path, &path.with_extension("yaml.new"), 0o644, text.as_bytes())
}

async fn serve(path: PathBuf, service: Arc<Service>) {
    let socket = loop {
        match Socket::bind(&path) {
            Ok(socket) => break socket,
            Err(error) => {
                log::warn!("podresources: cannot listen on {}: {error}", path.display());
                sleep(PAUSE).await;
            }
        }
    };
    log::info!("podresources: listening on {}", path.display());
    let mut connections = Connections::at_most(MAX_CONNECTIONS);
    loop {
        let stream = match socket.listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::debug!("podresources: cannot accept a connection: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let service = Arc::clone(&service);
        let added = connections.add(async |activity| {
            if let Err(error) = connection(stream, service, activity).await {
                log::debug!("podresources: a connection has ended: {error}");
            }
        });
        if !added {
            log::debug!("podresources: {MAX_CONNECTIONS} connections have calls: closed a new one");
        }
    }
}

async fn connection(
    stream: UnixStream,
    service: Arc<Service>,
    activity: Activity,
) -> Result<(), h2::Error> {
    let handshake = server::Builder::new()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_BLOCK as u32)
        .initial_window_size(2 * MAX_REQUEST as u32)
        .max_send_buffer_size(64 << 10)
        .handshake::<_, Bytes>(Readable::new(stream));
    let Ok(connection) = timeout(HANDSHAKE, handshake).await else { return Ok(()) };
    let mut connection = connection?;
    let mut calls = JoinSet::new();
    loop {
        activity.set(calls.is_empty());
        tokio::select! {
            call = connection.accept() => match call {
                Some(call) => {
                    let (request, respond) = call?;
                    calls.spawn(answer(request, respond, Arc::clone(&service)));
                }
                None => return Ok(()),
            },
            Some(_) = calls.join_next() => {}
            () = sleep(IDLE), if calls.is_empty() => break,
        }
    }
    connection.graceful_shutdown();
    // A call may be under way.
    let ended = async {
        while let Some(call) = connection.accept().await {
            let (request, respond) = call?;
            calls.spawn(answer(request, respond, Arc::clone(&service)));
        }
        Ok(())
    };
    timeout(TRANSFER, ended).await.unwrap_or(Ok(()))
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    service: Arc<Service>,
) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let late = || Status::new(Code::DEADLINE_EXCEEDED, "the request does not arrive");
    let request = timeout(TRANSFER, grpc::message(&mut body, MAX_REQUEST)).await;
    let result = match request.unwrap_or_else(|_| Err(late())) {
        Ok(request) => service.call(&path, &request).await,
        Err(status) => Err(status),
    };
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", http::HeaderValue::from_static(MEDIA_TYPE));
    let message = match result {
        Ok(message) => message,
        Err(status) => {
            head.headers_mut().extend(Status::trailers(&Err(status)));
            // The client may have gone.
            let _ = respond.send_response(head, true);
            return;
        }
    };
    let Ok(mut stream) = respond.send_response(head, false) else { return };
    match timeout(TRANSFER, send(&mut stream, grpc::framed(&message))).await {
        Ok(_) => {}
        Err(_) => stream.send_reset(Reason::CANCEL),
    }
}

/// Sends no faster than the client reads.
async fn send(stream: &mut SendStream<Bytes>, mut message: Bytes) -> Result<(), h2::Error> {
    while !message.is_empty() {
        stream.reserve_capacity(message.len());
        let Some(capacity) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        let some = capacity?.min(message.len());
        stream.send_data(message.split_to(some), false)?;
    }
    stream.send_trailers(Status::trailers(&Ok(())))
}
