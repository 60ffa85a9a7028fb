//! Where clients connect: a TCP address for scrapers, probes and browsers, and a socket in the state
//! directory for root.

use super::connections::Connections;
use super::http::{self, Request, Response, StatusCode};
use super::page;
use super::question::{NoAnswer, ViewSource};
use super::render::{Renderer, What};
use config::MAX_SIZE;
use state::worker::Worker;
use status::Health;
use status::outlook::Change;
use status::socket::{CONTAINERS, SOCKET, TRY, TRY_UNINSTALL};
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

/// How long to wait for an address in use: another instance may be ending.
const BIND_PATIENCE: Duration = Duration::from_secs(3);
/// The pause after a failed `accept` or `bind`, for example without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const NOT_FOUND: &str = "not found; the paths are\n\
                         /             the node as a page that refreshes itself\n\
                         /picture.svg  the picture only\n\
                         /metrics      metrics in Prometheus' text format\n\
                         /healthz      liveness: whether the plugin responds\n\
                         /readyz       readiness: whether it can place containers";

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
            "expected an address with a port, such as 127.0.0.1:9479 or [::1]:9479, or none"
                .to_owned()
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

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for metrics: {source}; set --metrics-address to another address, or to none"
)]
pub struct BindError {
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Listens; `None` if the address is `none`. Waits a few seconds for an address in use.
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

/// Listens on a socket in the state directory, for this user alone. This process holds the lock of
/// the directory, so an existing socket is left over from a process that has ended. One reason to
/// fail is a path of more than 107 bytes.
pub fn listen_locally(state_dir: &Path) -> io::Result<UnixListener> {
    let new = state_dir.join(format!("{SOCKET}.new"));
    // An earlier start may have ended before its rename.
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, state_dir.join(SOCKET))?;
    Ok(listener)
}

/// How far a client is trusted.
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
pub async fn serve(listener: TcpListener, observer: ViewSource, pages: Worker) {
    let accept = move |cx: &mut Context<'_>| {
        listener.poll_accept(cx).map_ok(|(stream, address)| {
            let peer = address.ip().to_canonical();
            let client = if peer.is_loopback() { Client::Nearby } else { Client::Remote };
            (stream, client, Some(peer))
        })
    };
    serve_each(accept, observer, pages).await;
}

/// Answers clients of the socket, which may see everything. Never ends.
pub async fn serve_locally(listener: UnixListener, observer: ViewSource, pages: Worker) {
    let accept = move |cx: &mut Context<'_>| {
        listener.poll_accept(cx).map_ok(|(stream, _)| (stream, Client::Ourselves, None))
    };
    serve_each(accept, observer, pages).await;
}

async fn serve_each<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    accept: impl Fn(&mut Context<'_>) -> Poll<io::Result<(S, Client, Option<IpAddr>)>>,
    observer: ViewSource,
    pages: Worker,
) {
    let renderer = Renderer::start(observer.clone(), pages);
    let mut connections = Connections::default();
    loop {
        match poll_fn(&accept).await {
            Ok((stream, client, peer)) => {
                let (observer, renderer) = (observer.clone(), renderer.clone());
                let most_body = if client == Client::Ourselves { MAX_SIZE } else { 0 };
                let answer = move |request| answer(request, client, observer, renderer);
                connections.add(peer, http::serve(stream, most_body, answer));
                // Lets its task run before the next connection is accepted: otherwise many at once
                // would end it before it has read its request.
                yield_now().await;
            }
            Err(error) => {
                log::debug!("status: cannot accept a connection: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(
    request: Request,
    client: Client,
    observer: ViewSource,
    renderer: Renderer,
) -> Response {
    if let Some(body) = request.body {
        return match (request.path.as_str(), String::from_utf8(body)) {
            (TRY, Ok(text)) => renderer.try_out(Change::Configuration(text)).await,
            (TRY, Err(_)) => Response::text(StatusCode::BadRequest, "the body is not UTF-8"),
            _ => Response::text(StatusCode::NotFound, NOT_FOUND),
        };
    }
    match request.path.as_str() {
        "/healthz" => probed(observer.health().map(|health| well(&health))),
        "/readyz" => probed(observer.health().map(|health| {
            if health.is_ready() {
                return well(&health);
            }
            let obstacles: Vec<&str> = health.obstacles().collect();
            Response::text(StatusCode::Unavailable, obstacles.join("\n"))
        })),
        "/icon.svg" => Response::ok("image/svg+xml", page::ICON),
        "/page.js" => Response::ok("text/javascript; charset=utf-8", page::SCRIPT),
        TRY_UNINSTALL if client == Client::Ourselves => {
            let containers = request.query == CONTAINERS;
            renderer.try_out(Change::Uninstall { containers }).await
        }
        path => {
            let names = sees_names(&request, client);
            let what = match (path, client) {
                ("/metrics", _) => What::Metrics,
                ("/", _) => What::Page { names },
                ("/fragment", _) => What::Fragment { names },
                ("/picture.svg", _) => What::Picture { names },
                ("/status", Client::Ourselves) => What::Status,
                ("/explain", Client::Ourselves) => What::Explain(request.query),
                _ => return Response::text(StatusCode::NotFound, NOT_FOUND),
            };
            renderer.render(what, client != Client::Ourselves).await
        }
    }
}

fn probed(answer: Result<Response, NoAnswer>) -> Response {
    answer.unwrap_or_else(|why| Response::text(StatusCode::Unavailable, why.to_string()))
}

/// `ok`, and the warnings below it.
fn well(health: &Health) -> Response {
    let mut lines = vec!["ok".to_owned()];
    lines.extend(health.warnings().map(|warning| format!("warning: {warning}")));
    Response::text(StatusCode::Ok, lines.join("\n"))
}

/// Whether a client may see the pods' names on the page: only clients on the node may. A browser there has to use an
/// address or `localhost`: otherwise a web site could make its name resolve to this address and read the page (DNS
/// rebinding).
fn sees_names(request: &Request, client: Client) -> bool {
    let name = match request.host.rsplit_once(':') {
        // The last colon of `[::1]` is not before a port.
        Some((name, port)) if !port.contains(']') => name,
        _ => &request.host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let direct = name.is_empty() || name == "localhost" || address.is_ok();
    match client {
        Client::Ourselves => true,
        Client::Nearby => direct,
        Client::Remote => false,
    }
}
