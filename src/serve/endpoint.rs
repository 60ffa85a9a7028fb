//! Where observers connect: a TCP address for scrapers and probes, and a socket in the state
//! directory for root.

use super::connections::Connections;
use super::http::{self, Request, Response, StatusCode};
use super::page;
use super::question::Observer;
use crate::clock::now;
use crate::view::figures::Figures;
use crate::view::{NodeView, health, metrics, report};
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

/// How long to wait for an address in use: another instance may be about to end.
const BIND_PATIENCE: Duration = Duration::from_secs(3);
/// The pause after a failed `accept` or `bind`, for example without free file descriptors.
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
    /// The system's error.
    pub source: io::Error,
}

/// Listens; `None` if the address is `none`.
///
/// # Errors
/// If the address is not available; if another process uses it, after a few seconds.
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
            // `[::]` means every address, and this node has no IPv6.
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

/// Listens on a socket in the state directory, for this user alone. This process holds the lock of
/// the directory, so an existing socket is left over from a process that has ended.
///
/// # Errors
/// If the socket cannot be made, for example because its path is longer than 107 bytes.
pub fn listen_locally(state_dir: &Path) -> io::Result<UnixListener> {
    let (path, new) = (state_dir.join(SOCKET), state_dir.join(format!("{SOCKET}.new")));
    // An earlier start may have ended before its rename.
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, &path)?;
    Ok(listener)
}

/// How far an observer is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Any client of the address.
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
            let client = if peer.is_loopback() { Client::Nearby } else { Client::Remote };
            (stream, client, Some(peer))
        })
    };
    serve_each(accept, observer).await;
}

/// Answers clients of the socket, which may see everything. Never ends.
pub async fn serve_locally(listener: UnixListener, observer: Observer) {
    let accept = move |cx: &mut Context<'_>| {
        listener.poll_accept(cx).map_ok(|(stream, _)| (stream, Client::Ourselves, None))
    };
    serve_each(accept, observer).await;
}

async fn serve_each<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    accept: impl Fn(&mut Context<'_>) -> Poll<io::Result<(S, Client, Option<IpAddr>)>>,
    observer: Observer,
) {
    let mut connections = Connections::default();
    loop {
        match poll_fn(&accept).await {
            Ok((stream, client, peer)) => {
                let observer = observer.clone();
                connections.add(
                    peer,
                    http::serve(stream, move |request| answer(request, client, observer)),
                );
                // This task runs before the next connection comes: otherwise many at once would end
                // it before it has read its request.
                yield_now().await;
            }
            Err(error) => {
                log::debug!("cannot take a connection of an observer: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(request: Request, client: Client, observer: Observer) -> Response {
    let view = observer.view();
    let seen = |view: &NodeView| seen(&request, client, view);
    let result = match (request.path.as_str(), client) {
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
        ("/status", Client::Ourselves) => observer.status().await.map(|status| json(&status)),
        ("/explain", Client::Ourselves) => {
            view.await.map(|view| json(&view.explain(&request.query)))
        }
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

/// `ok`, and the warnings below it.
fn well(figures: &Figures) -> Response {
    let mut lines = vec!["ok".to_owned()];
    lines.extend(health::warnings(figures).iter().map(|warning| format!("warning: {warning}")));
    Response::text(StatusCode::Ok, lines.join("\n"))
}

/// What a client may see of the node on the page. Only clients on the node see the pods' names. A
/// browser there has to use an address or `localhost`: a web site whose name resolves to this
/// address could read the page otherwise (DNS rebinding).
fn seen(request: &Request, client: Client, view: &NodeView) -> report::Status {
    let name = request.host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let name = name.map_or(request.host.as_str(), |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let direct = name.is_empty() || name == "localhost" || address.is_ok();
    let may = client == Client::Ourselves || (client == Client::Nearby && direct);
    let status = view.status(now());
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
