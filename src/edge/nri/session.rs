//! One connection, from its first byte to its end.

use super::service::{Phase, Service};
use super::updater::{RuntimeUpdater, words};
use super::wire::{RegisterPluginRequest, RuntimeClient};
use super::{Identity, mux, rpc};
use crate::edge::{DaemonSender, Message, Session};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use ttrpc::r#async::transport::Socket;

/// The NRI version of this implementation; runtimes only log it.
const NRI_VERSION: &str = "v0.12.2";
/// The time without a configuration after which the plugin logs a warning.
const CONFIGURE_PATIENCE: Duration = Duration::from_secs(10);
/// The time after which the plugin gives up: a runtime may accept a registration and do nothing.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(70);
/// The time without a list of containers after which the plugin logs that it waits; each later
/// pause is twice as long.
const SYNCHRONIZE_REMINDER: Duration = Duration::from_secs(30);
/// How long answers under way may take at a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How a connection ended, other than by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The runtime closed it.
    Closed,
    /// The plugin stopped.
    Stopped,
}

/// Why the plugin gave up a connection.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or the runtime broke the protocol.
    #[error(transparent)]
    Mux(#[from] mux::MuxError),
    /// The plugin could not read or answer a call.
    #[error("cannot serve the runtime: {0}")]
    Serve(#[from] io::Error),
    /// The runtime refused the registration.
    #[error("the runtime refused to register this plugin: {0}")]
    Registration(String),
    /// The runtime did not answer the registration.
    #[error("the runtime has not configured this plugin for {} s", CONFIGURE_LIMIT.as_secs())]
    NeverConfigured,
}

/// Runs a connection over `trunk` until either side ends it; `stop` ends it after the answers under
/// way.
///
/// Sends all messages to the owner with the number `session`, [`Message::Disconnected`] last.
///
/// # Errors
///
/// If the plugin gave up the connection. It is closed in any case.
pub async fn run(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    owner: &DaemonSender,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    let ended = connected(trunk, session, identity, owner, stop).await;
    // The channel is closed only if the process is ending.
    let _ = owner.send(Message::Disconnected { session });
    ended
}

async fn connected(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    owner: &DaemonSender,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    let (mux, served, called) = mux::new(trunk);
    let runtime = RuntimeClient::new(ttrpc::r#async::Client::new(Socket::new(called)));
    let (phase, progress) = watch::channel(Phase::Connected);
    let mut service =
        Service::new(session, owner.clone(), phase, Arc::new(RuntimeUpdater::new(runtime.clone())));
    let (finish, finishing) = oneshot::channel::<()>();
    let mut mux = pin!(mux.run());
    // Ready before the registration: the runtime's first call can overtake the answer to it.
    let serving = rpc::serve(served, |request, arrived| service.call(&request, arrived), finishing);
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        end = &mut mux => {
            // Events that arrived before the end still go to the owner. Their answers fail.
            let _ = serving.await;
            return Ok(end.map(|()| Ended::Closed)?);
        }
        end = &mut serving => return Ok(end.map(|()| Ended::Closed)?),
        end = handshake(&runtime, identity, progress) => match end? {},
        _ = stop => {}
    }
    log::debug!("{session}: stopping");
    drop(finish);
    // After the last answer `serving` drops its connection, and the multiplexer ends when it has
    // sent the answer.
    let answers = async { tokio::join!(serving, mux) };
    if timeout(STOP_GRACE, answers).await.is_err() {
        log::warn!("{session}: stopped before the last answers were given");
    }
    Ok(Ended::Stopped)
}

/// Registers, and watches the progress of the handshake. Ends only with a reason to give up.
async fn handshake(
    runtime: &RuntimeClient,
    identity: &Identity,
    progress: watch::Receiver<Phase>,
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
            Err(error) => Err(SessionError::Registration(words(error))),
        }
    };
    tokio::select! {
        refused = registration => refused,
        silent = watchdog(progress) => silent,
    }
}

async fn watchdog(mut progress: watch::Receiver<Phase>) -> Result<Infallible, SessionError> {
    let started = Instant::now();
    let configured = |phase: &Phase| *phase >= Phase::Configured;
    if timeout(CONFIGURE_PATIENCE, progress.wait_for(configured)).await.is_err() {
        log::warn!(
            "connected to the runtime, but it has not configured this plugin for {} s; is another plugin holding it up?",
            CONFIGURE_PATIENCE.as_secs()
        );
        let rest = CONFIGURE_LIMIT.saturating_sub(CONFIGURE_PATIENCE);
        if timeout(rest, progress.wait_for(configured)).await.is_err() {
            return Err(SessionError::NeverConfigured);
        }
    }
    // No limit from here on: containerd first waits for the grace periods of all containers that it
    // stops, and a new connection would only start at the end of the queue.
    let mut reminder = SYNCHRONIZE_REMINDER;
    let synchronized = |phase: &Phase| *phase >= Phase::Synchronized;
    while timeout(reminder, progress.wait_for(synchronized)).await.is_err() {
        log::info!(
            "waiting for the runtime to list its containers, {} s since connecting; it may be waiting for one to stop",
            started.elapsed().as_secs()
        );
        reminder = reminder.saturating_mul(2);
    }
    pending().await
}
