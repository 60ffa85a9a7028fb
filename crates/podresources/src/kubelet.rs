//! [`Kubelet`]: a client of the kubelet's podresources API.

use crate::devices::{self, Listed};
use crate::grpc::{self, MEDIA_TYPE, Status};
use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{Method, Request, StatusCode, Version};
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

pub(crate) const LIST: &str = "/v1.PodResourcesLister/List";

/// How long a call may take, including the wait for its turn.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest answer: gRPC's clients accept that by default.
const MAX_ANSWER: usize = 4 << 20;
/// The longest header block in bytes. A gRPC answer has some hundred.
const MAX_HEADERS: u32 = 8 << 10;
/// The longest reason in messages, in characters: the kubelet chooses its text.
const MAX_REASON: usize = 300;
/// Calls at a time, which bounds the memory for answers. The kubelet answers 100 calls a second.
const MAX_CALLS: usize = 2;
/// The interval of warnings that the kubelet's part is missing.
const REMINDER: Duration = Duration::from_secs(60);

/// It connects for each call, as the kubelet makes a new socket when it restarts.
#[derive(Debug)]
pub struct Kubelet {
    socket: PathBuf,
    calls: Semaphore,
    started: Instant,
    /// The time of the next warning, in seconds after `started`.
    next_warning: AtomicU64,
}

#[derive(Debug)]
pub(crate) enum KubeletError {
    /// The kubelet answered with an error.
    Refused(Status),
    Unreachable(String),
}

impl fmt::Display for KubeletError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            KubeletError::Refused(status) => format!("it answered {status}"),
            KubeletError::Unreachable(why) => why.clone(),
        };
        f.write_str(&wording::shortened(&wording::printable(&why), MAX_REASON))
    }
}

impl From<Status> for KubeletError {
    fn from(status: Status) -> KubeletError {
        KubeletError::Refused(status)
    }
}

impl Kubelet {
    /// Does not connect yet.
    pub fn new(socket: PathBuf) -> Kubelet {
        Kubelet {
            socket,
            calls: Semaphore::new(MAX_CALLS),
            started: Instant::now(),
            next_warning: AtomicU64::new(0),
        }
    }

    /// The devices of each pod that the kubelet knows. It takes milliseconds to read a long answer.
    ///
    /// # Errors
    /// Why there is no answer, after a second at most.
    pub async fn devices(&self) -> Result<Listed, String> {
        let answer = self.call(LIST, &[]).await.map_err(|failure| failure.to_string())?;
        devices::of_list(&answer).map_err(|_| "its answer is not a valid message".to_owned())
    }

    /// The answer to a call, as the kubelet sent it.
    pub(crate) async fn call(
        &self,
        path: &'static str,
        message: &[u8],
    ) -> Result<Bytes, KubeletError> {
        let exchange = async {
            // The semaphore is never closed.
            let _turn = self.calls.acquire().await;
            let stream = UnixStream::connect(&self.socket).await.map_err(unreachable)?;
            let (sender, connection) = client::Builder::new()
                .initial_window_size(1 << 20)
                .initial_connection_window_size(MAX_ANSWER as u32)
                .max_header_list_size(MAX_HEADERS)
                .enable_push(false)
                .handshake(stream)
                .await
                .map_err(unreachable)?;
            let mut answer = pin!(unary(sender, path, message));
            tokio::select! {
                biased;
                answer = &mut answer => answer,
                // The connection has ended: what has arrived can still be read.
                _ = connection => answer.await,
            }
        };
        let late =
            || KubeletError::Unreachable(format!("no answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    /// Logs that clients do not get the kubelet's part, unless it was logged within the last minute.
    pub(crate) fn warn(&self, why: impl fmt::Display) {
        let now = self.started.elapsed().as_secs();
        let next = self.next_warning.load(Ordering::Relaxed);
        if now < next {
            return;
        }
        self.next_warning.store(now + REMINDER.as_secs(), Ordering::Relaxed);
        log::warn!(
            "podresources: clients get the plugin's part alone, without devices and memory: kubelet at {}: {why}",
            self.socket.display()
        );
    }
}

async fn unary(
    mut sender: SendRequest<Bytes>,
    path: &'static str,
    message: &[u8],
) -> Result<Bytes, KubeletError> {
    let request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://localhost{path}"))
        .header("content-type", MEDIA_TYPE)
        .header("te", "trailers")
        .body(())
        .map_err(unreachable)?;
    let (response, mut body) = sender.send_request(request, false).map_err(unreachable)?;
    body.send_data(grpc::framed(message), true).map_err(unreachable)?;
    let (head, mut body) = response.await.map_err(unreachable)?.into_parts();
    if head.status != StatusCode::OK {
        return Err(KubeletError::Unreachable(format!("HTTP status {}", head.status)));
    }
    // An error without a body has its status here.
    if let Some(result) = Status::of(&head.headers) {
        result?;
    }
    let answer = grpc::message(&mut body, MAX_ANSWER).await;
    let trailers = body.trailers().await.map_err(unreachable)?;
    if let Some(result) = trailers.as_ref().and_then(Status::of) {
        result?;
    }
    Ok(answer?)
}

fn unreachable(error: impl fmt::Display) -> KubeletError {
    KubeletError::Unreachable(error.to_string())
}
