//! Where observers connect: an address for scrapers and probes.

use super::http::{self, Request, Response, Status};
use super::question::Observer;
use super::{health, metrics};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// Connections served at a time; more wait in the kernel's queue. Each has a time limit.
const MAX_CONNECTIONS: usize = 16;
/// How long to wait for an address that is in use: another instance may be ending right now.
const BIND_PATIENCE: Duration = Duration::from_secs(3);
/// A pause after which taking connections is tried again, when there were no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const PATHS: &str = "/metrics  figures in Prometheus' text form\n\
                     /healthz  whether the plugin works at all\n\
                     /readyz   whether it can place containers";

/// Where to listen: an address and port, or nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(Option<SocketAddr>);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if text == "none" {
            return Ok(Address(None));
        }
        let address = text.parse().map_err(|_| {
            "expected an address and a port like 127.0.0.1:9479 or [::1]:9479, or none".to_owned()
        })?;
        Ok(Address(Some(address)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// Nobody can connect.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for metrics: {source}. Name another address with --metrics-address, or none"
)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub source: io::Error,
}

/// Listens; `None` if nobody is to.
///
/// # Errors
/// If the address cannot be had, and not within a few seconds if somebody else has it.
pub async fn listen(address: Address) -> Result<Option<TcpListener>, BindError> {
    let Some(address) = address.0 else { return Ok(None) };
    let started = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                log::info!("metrics: http://{bound}/metrics");
                return Ok(Some(listener));
            }
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && started.elapsed() < BIND_PATIENCE =>
            {
                sleep(PAUSE).await;
            }
            Err(source) => return Err(BindError { address, source }),
        }
    }
}

/// Answers whoever connects. Never ends.
pub async fn serve(listener: TcpListener, observer: Observer) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let observer = observer.clone();
                tokio::spawn(async move {
                    http::serve(stream, |request| answer(request, observer)).await;
                    drop(place);
                });
            }
            Err(error) => {
                log::debug!("cannot take a connection for metrics: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(request: Request, observer: Observer) -> Response {
    let figures = match request.path.as_str() {
        "/metrics" | "/healthz" | "/readyz" => observer.figures().await,
        "/" => return Response::text(Status::Ok, PATHS),
        _ => return Response::text(Status::NotFound, format!("there is only\n{PATHS}")),
    };
    let figures = match figures {
        Ok(figures) => figures,
        Err(why) => return Response::text(Status::Unavailable, why.to_string()),
    };
    match request.path.as_str() {
        "/metrics" => match metrics::text(&figures) {
            Ok(body) => Response { status: Status::Ok, media_type: metrics::MEDIA_TYPE, body },
            Err(error) => Response::text(Status::Internal, error.to_string()),
        },
        "/healthz" => Response::text(Status::Ok, "ok"),
        _ => match health::obstacles(&figures).as_slice() {
            [] => Response::text(Status::Ok, "ok"),
            obstacles => Response::text(Status::Unavailable, obstacles.join("\n")),
        },
    }
}
