//! One connection, from its first byte to its end.

use crate::identity::Identity;
use crate::plugin::Plugin;
use crate::rpc::RpcRequest;
use crate::service::{Handshake, Service};
use crate::updater::{Updater, message_of};
use crate::wire::{RegisterPluginRequest, RuntimeClient};
use crate::{mux, rpc};
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use ttrpc::r#async::transport::Socket;
use wording::Repeats;

/// The NRI version that this implements. Runtimes only log it.
const NRI_VERSION: &str = "v0.12.2";
/// The time from connecting to the runtime's configuration after which this logs a warning.
const CONFIGURE_PATIENCE: Duration = Duration::from_secs(10);
/// The time from connecting after which this gives up, a minute after the warning: a runtime may leave
/// a registration unanswered, or accept it and do nothing.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(70);
/// The time without a list of containers after which this logs that it waits. The interval doubles with
/// each reminder.
const SYNCHRONIZE_REMINDER: Duration = Duration::from_secs(30);
/// How long answers under way may take at a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The number of a connection to the runtime, in the order of connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The runtime has closed the connection.
    Closed,
    /// The plugin has stopped.
    Stopped,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Mux(#[from] mux::MuxError),
    #[error("cannot serve the runtime: {0}")]
    Serve(#[from] io::Error),
    #[error("the runtime refused to register this plugin: {0}")]
    Registration(String),
    #[error("the runtime has not configured this plugin for {} s", CONFIGURE_LIMIT.as_secs())]
    NeverConfigured,
}

/// Runs a connection to the runtime over `trunk`, its socket, until either side ends it; `stop` ends it
/// after the answers under way.
///
/// `session` is the connection's number in messages. The last call of `plugin` is
/// [`Plugin::disconnected`], unless this future is dropped. After an error the connection is closed,
/// too.
///
/// # Errors
/// If the connection fails, or the runtime breaks the protocol, refuses the registration or never
/// configures the plugin.
pub async fn run(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    plugin: &impl Plugin,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    run_next(trunk, session, identity, plugin, &mut Repeats::default(), stop).await
}

/// [`run`] for the next one of several connections, which share what the log has already.
pub(crate) async fn run_next(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    plugin: &impl Plugin,
    repeats: &mut Repeats,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    let ended = connected(trunk, session, identity, plugin, repeats, stop).await;
    plugin.disconnected();
    ended
}

async fn connected(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    plugin: &impl Plugin,
    repeats: &mut Repeats,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    let (mux, plugin_conn, runtime_conn) = mux::split(trunk);
    let runtime = RuntimeClient::new(ttrpc::r#async::Client::new(Socket::new(runtime_conn)));
    let (sender, progress) = watch::channel(Handshake::Connected);
    let updater = Updater::new(runtime.clone());
    let mut service = Service::new(plugin, sender, updater);
    let (finish, finishing) = oneshot::channel::<()>();
    let mut mux = pin!(mux);
    // Ready before the registration: the runtime's first call can overtake the answer to it.
    let handle = |request: &RpcRequest<'_>, arrived| service.call(request, arrived);
    let serving = rpc::serve(plugin_conn, handle, repeats, finishing);
    let mut serving = pin!(serving);
    tokio::select! {
        // The end of `mux` ends `serving`, too, and only `mux` knows why. A stop is last: after an end
        // there are no answers to finish.
        biased;
        end = &mut mux => {
            // Calls that arrived before the end still go to the plugin, until an answer fails, whose
            // error says nothing new. This ends: the stream has ended, and answers have a time limit.
            let _ = serving.await;
            return Ok(end.map(|()| Ended::Closed)?);
        }
        end = &mut serving => return Ok(end.map(|()| Ended::Closed)?),
        // Without time for answers under way: a runtime that has not registered or configured the plugin
        // asks for none.
        end = handshake(&runtime, identity, progress) => match end? {},
        _ = stop => {}
    }
    log::debug!("{session}: stopping");
    drop(finish);
    // After the last answer `serving` drops its connection, and the multiplexer ends when it has
    // sent the answer.
    let answers = async { tokio::join!(serving, mux) };
    if timeout(STOP_GRACE, answers).await.is_err() {
        log::warn!("{session}: stopped before the last answers were sent");
    }
    Ok(Ended::Stopped)
}

/// Registers, and watches the progress of the handshake. Ends only with an error.
async fn handshake(
    runtime: &RuntimeClient,
    identity: &Identity,
    progress: watch::Receiver<Handshake>,
) -> Result<Infallible, SessionError> {
    let registration = async {
        let request = RegisterPluginRequest {
            plugin_name: identity.name().to_owned(),
            plugin_idx: identity.index().to_owned(),
            NRI_version: NRI_VERSION.to_owned(),
            ..Default::default()
        };
        match runtime.register_plugin(ttrpc::context::Context::default(), &request).await {
            Ok(_) => pending().await,
            Err(error) => Err(SessionError::Registration(message_of(error))),
        }
    };
    tokio::select! {
        end = registration => end,
        end = watchdog(progress) => end,
    }
}

async fn watchdog(mut progress: watch::Receiver<Handshake>) -> Result<Infallible, SessionError> {
    let started = Instant::now();
    if !reaches(&mut progress, Handshake::Configured, CONFIGURE_PATIENCE).await {
        log::warn!(
            "connected to the runtime, but it has not configured this plugin for {} s; is another plugin holding it up?",
            CONFIGURE_PATIENCE.as_secs()
        );
        let rest = CONFIGURE_LIMIT.saturating_sub(CONFIGURE_PATIENCE);
        if !reaches(&mut progress, Handshake::Configured, rest).await {
            return Err(SessionError::NeverConfigured);
        }
    }
    // No limit from here on: containerd synchronizes one plugin after the other, and first waits for the
    // grace periods of all containers that it stops. A new connection would wait behind all others.
    let mut reminder = SYNCHRONIZE_REMINDER;
    while !reaches(&mut progress, Handshake::Synchronized, reminder).await {
        log::info!(
            "waiting for the runtime to list its containers, {} s since connecting; it may be waiting for one to stop",
            started.elapsed().as_secs()
        );
        reminder = reminder.saturating_mul(2);
    }
    pending().await
}

/// Whether the handshake reaches a step in time. The sender lives as long as the connection, so the wait
/// does not end otherwise.
async fn reaches(
    progress: &mut watch::Receiver<Handshake>,
    step: Handshake,
    limit: Duration,
) -> bool {
    timeout(limit, progress.wait_for(|now| *now >= step)).await.is_ok()
}
