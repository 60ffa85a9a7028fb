//! The server. A client may send anything, slowly or never, and may never read its answer: the number of
//! connections, their streams, bytes and time are bounded.

use crate::authority::{MAX_BLOCK, Readable};
use crate::connections::{Activity, Connections};
use crate::grpc::{self, Code, MEDIA_TYPE, Status};
use crate::known::Source;
use crate::service::Service;
use crate::socket::Socket;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use std::convert::Infallible;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wording::Repeats;

/// Connections at a time. A new one replaces an idle one.
const MAX_CONNECTIONS: usize = 16;
/// Calls at a time on one connection.
const MAX_STREAMS: u32 = 4;
/// The longest request in bytes: a request has two names of Kubernetes at most.
const MAX_REQUEST: usize = 4096;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a client may take to send a request, and to read its answer.
const TRANSFER: Duration = Duration::from_secs(10);
/// A connection without calls ends after this time. gRPC's clients reconnect for their next call.
const IDLE: Duration = Duration::from_secs(600);
/// The pause after a failed `bind` or `accept`, as where no file descriptor is free.
const PAUSE: Duration = Duration::from_secs(10);

/// Paths of unix sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets {
    /// Where clients connect. Its directory is created if it is missing. Only its owner may connect, as
    /// to the kubelet's socket.
    pub listen: PathBuf,
    /// Where the kubelet listens.
    pub kubelet: PathBuf,
}

/// Serves until the future is dropped, which closes all connections and removes the socket. If it cannot
/// listen, for example because another process listens there, it logs why and tries again. Connections are
/// tasks of `runtime`: an answer is up to 4 MiB long, and takes milliseconds.
pub async fn serve(sockets: Sockets, source: impl Source, runtime: Handle) -> Infallible {
    let Sockets { listen: path, kubelet } = sockets;
    let service = Arc::new(Service::new(source, kubelet));
    let mut repeats = Repeats::default();
    let socket = loop {
        match Socket::bind(&path) {
            Ok(socket) => break socket,
            Err(error) => {
                if let Some(times) = repeats.occurred(&error.to_string(), Instant::now()) {
                    log::warn!("podresources: cannot listen on {}: {error}{times}", path.display());
                }
                sleep(PAUSE).await;
            }
        }
    };
    log::info!("podresources: listening on {}", path.display());
    let mut connections = Connections::at_most(MAX_CONNECTIONS, runtime);
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
    service: Arc<Service<impl Source>>,
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
    // Calls that the client sent before it got the GOAWAY frame are still answered.
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
    service: Arc<Service<impl Source>>,
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
            // Fails if the client has closed the stream.
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
