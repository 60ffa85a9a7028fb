//! Where observers connect: an address for scrapers and probes, and a socket beside the state for
//! people with root.

use super::connections::Connections;
use super::figures::Figures;
use super::http::{self, Request, Response, StatusCode};
use super::question::{NodeView, Observer};
use super::{health, metrics, page, report};
use serde::Serialize;
use std::fmt;
use std::fs::{self, Permissions};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

/// How long to wait for an address that is in use: another instance may be ending right now.
const BIND_PATIENCE: Duration = Duration::from_secs(3);
/// A pause after which taking connections is tried again, when there were no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const PATHS: &str = "/             the node's picture, as a page that refreshes itself\n\
                     /picture.svg  the picture alone\n\
                     /metrics      figures in Prometheus' text form\n\
                     /healthz      whether the plugin works at all\n\
                     /readyz       whether it can place containers";

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

/// The address cannot be listened on.
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

/// Listens; `None` if the address is `none`.
///
/// # Errors
/// If the address cannot be had, and not within a few seconds if another process has it.
pub async fn listen(address: Address) -> Result<Option<TcpListener>, BindError> {
    let Some(mut address) = address.0 else { return Ok(None) };
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
            // Every address is meant, and there is no IPv6 here.
            Err(error)
                if error.kind() != io::ErrorKind::AddrInUse
                    && address.ip() == Ipv6Addr::UNSPECIFIED =>
            {
                address.set_ip(Ipv4Addr::UNSPECIFIED.into());
            }
            Err(source) => return Err(BindError { address, source }),
        }
    }
}

/// The socket's name in the state directory.
pub const SOCKET: &str = "status.sock";

/// Listens on a socket in the state directory, for this user alone. The directory is locked for
/// this process, so a socket that is there has been left by one that is gone.
///
/// # Errors
/// If it cannot be made; one that is too long for a socket's path (107 bytes), among other things.
pub fn listen_locally(state_dir: &Path) -> io::Result<UnixListener> {
    let (path, new) = (state_dir.join(SOCKET), state_dir.join(format!("{SOCKET}.new")));
    // Whatever is left of an attempt that was cut short.
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, &path)?;
    Ok(listener)
}

/// Who connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Every client that reaches the address.
    Remote,
    /// A process on the node itself, or in the pod's network (`kubectl port-forward`).
    Nearby,
    /// The plugin's own user, on this node.
    Ourselves,
}

/// Answers scrapers and probes. Never ends.
pub async fn serve(listener: TcpListener, observer: Observer) {
    let accept = move |cx: &mut Context<'_>| {
        listener.poll_accept(cx).map_ok(|(stream, address)| {
            let peer = address.ip().to_canonical();
            let who = if peer.is_loopback() { Who::Nearby } else { Who::Remote };
            (stream, who, Some(peer))
        })
    };
    serve_each(accept, observer).await;
}

/// Answers people on this node, who may know everything. Never ends.
pub async fn serve_locally(listener: UnixListener, observer: Observer) {
    let accept = move |cx: &mut Context<'_>| {
        listener.poll_accept(cx).map_ok(|(stream, _)| (stream, Who::Ourselves, None))
    };
    serve_each(accept, observer).await;
}

async fn serve_each<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    accept: impl Fn(&mut Context<'_>) -> Poll<io::Result<(S, Who, Option<IpAddr>)>>,
    observer: Observer,
) {
    let mut connections = Connections::default();
    loop {
        match poll_fn(&accept).await {
            Ok((stream, who, peer)) => {
                let observer = observer.clone();
                connections
                    .add(peer, http::serve(stream, move |request| answer(request, who, observer)));
                // Before the next one: many that come at once would take its place before its
                // request is read.
                yield_now().await;
            }
            Err(error) => {
                log::debug!("cannot take a connection of an observer: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(request: Request, who: Who, observer: Observer) -> Response {
    let view = observer.view();
    let seen = |view: &NodeView| seen(&request, who, view);
    let result = match (request.path.as_str(), who) {
        ("/metrics", _) => view.await.map(|view| match metrics::text(&view.figures) {
            Ok(body) => Response { status: StatusCode::Ok, media_type: metrics::MEDIA_TYPE, body },
            Err(error) => Response::text(StatusCode::Internal, error.to_string()),
        }),
        ("/healthz", _) => view.await.map(|view| well(&view.figures)),
        ("/readyz", _) => {
            view.await.map(|view| match health::obstacles(&view.figures).as_slice() {
                [] => well(&view.figures),
                obstacles => Response::text(StatusCode::Unavailable, obstacles.join("\n")),
            })
        }
        ("/status", Who::Ourselves) => view.await.map(|view| json(&view.status())),
        ("/explain", Who::Ourselves) => view.await.map(|view| json(&view.explain(&request.query))),
        ("/", _) => view.await.map(|view| html(page::page(&seen(&view)))),
        ("/fragment", _) => view.await.map(|view| html(page::fragment(&seen(&view)))),
        ("/picture.svg", _) => view.await.map(|view| match page::picture(&seen(&view)) {
            Ok(picture) => svg(picture),
            Err(why) => Response::text(StatusCode::Unavailable, why),
        }),
        ("/icon.svg", _) => Ok(svg(page::ICON.to_owned())),
        ("/page.js", _) => Ok(of_type("text/javascript; charset=utf-8", page::SCRIPT.to_owned())),
        _ => Ok(Response::text(StatusCode::NotFound, format!("there is only\n{PATHS}"))),
    };
    result.unwrap_or_else(|why| Response::text(StatusCode::Unavailable, why.to_string()))
}

/// `ok`, and below it what a person should see to all the same.
fn well(figures: &Figures) -> Response {
    let mut lines = vec!["ok".to_owned()];
    lines.extend(health::warnings(figures).iter().map(|warning| format!("warning: {warning}")));
    Response::text(StatusCode::Ok, lines.join("\n"))
}

/// What a client may see of the node on the page: the pods' names only from nearby. A site that has
/// its own name point here could have a browser nearby read it; so the browser has to call this by
/// an address, or as localhost.
fn seen(request: &Request, who: Who, view: &NodeView) -> report::Status {
    let name = request.host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let name = name.map_or(request.host.as_str(), |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let direct = name.is_empty() || name == "localhost" || address.is_ok();
    let may = who == Who::Ourselves || (who == Who::Nearby && direct);
    let status = view.status();
    if may { status } else { status.without_names() }
}

fn html(body: String) -> Response {
    of_type("text/html; charset=utf-8", body)
}

fn svg(body: String) -> Response {
    of_type("image/svg+xml", body)
}

fn of_type(media_type: &'static str, body: String) -> Response {
    Response { status: StatusCode::Ok, media_type, body: body.into_bytes() }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => Response { status: StatusCode::Ok, media_type: "application/json", body },
        Err(error) => Response::text(StatusCode::Internal, error.to_string()),
    }
}
