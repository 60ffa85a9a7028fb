//! [`Kubelet`]: asks the kubelet's own podresources.

use crate::devices::{self, PodDevices};
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

/// How long a client waits for the kubelet, turn and answer together.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest answer, as long as gRPC's clients accept one by default.
const MAX_ANSWER: usize = 4 << 20;
/// Calls at a time, which bounds the memory for answers. The kubelet itself answers 100 a second.
const MAX_CALLS: usize = 2;
/// The log says at most this often why the kubelet's part is missing.
const REMINDER: Duration = Duration::from_secs(60);

/// A client of the kubelet's socket. It connects for each call, as the kubelet makes the socket anew
/// when it restarts.
#[derive(Debug)]
pub struct Kubelet {
    socket: PathBuf,
    calls: Semaphore,
    started: Instant,
    /// When the log says again why its part is missing, in seconds after `started`.
    next_warning: AtomicU64,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It answered with an error.
    Refused(Status),
    Unreachable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(status) => write!(f, "it answered {status}"),
            Failure::Unreachable(why) => f.write_str(why),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Refused(status)
    }
}

impl Kubelet {
    /// Connects to nothing yet.
    pub fn new(socket: PathBuf) -> Kubelet {
        Kubelet {
            socket,
            calls: Semaphore::new(MAX_CALLS),
            started: Instant::now(),
            next_warning: AtomicU64::new(0),
        }
    }

    /// The devices of all containers, of each pod that the kubelet knows.
    ///
    /// # Errors
    /// Why there is no answer. It comes within a second, like the answer.
    pub async fn devices(&self) -> Result<Vec<PodDevices>, String> {
        let answer = self.call(LIST, &[]).await.map_err(|failure| failure.to_string())?;
        devices::of_list(&answer).map_err(|_| "its answer is not a valid message".to_owned())
    }

    /// The answer to a call, as the kubelet sent it.
    pub(crate) async fn call(&self, path: &'static str, message: &[u8]) -> Result<Bytes, Failure> {
        let exchange = async {
            // It is never closed.
            let _turn = self.calls.acquire().await;
            let stream = UnixStream::connect(&self.socket).await.map_err(unreachable)?;
            let (sender, connection) = client::Builder::new()
                .initial_window_size(1 << 20)
                .initial_connection_window_size(MAX_ANSWER as u32)
                .enable_push(false)
                .handshake(stream)
                .await
                .map_err(unreachable)?;
            let mut answer = pin!(unary(sender, path, message));
            tokio::select! {
                biased;
                answer = &mut answer => answer,
                // What has arrived can still be read.
                _ = connection => answer.await,
            }
        };
        let late = || Failure::Unreachable(format!("no answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    /// Logs, now and then, that clients do not get the kubelet's part.
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
) -> Result<Bytes, Failure> {
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
        return Err(Failure::Unreachable(format!("HTTP status {}", head.status)));
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

fn unreachable(error: impl fmt::Display) -> Failure {
    Failure::Unreachable(error.to_string())
}
