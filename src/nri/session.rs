//! One connection, from its first byte to its end.

use super::service::{Phase, Service};
use super::updater::words;
use super::wire::{RegisterPluginRequest, RuntimeClient};
use super::{DaemonSender, Identity, Message, Session, Updater, mux, rpc};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use ttrpc::r#async::transport::Socket;

/// The NRI version whose protocol we speak; runtimes only log it.
const NRI_VERSION: &str = "v0.12.2";
/// How long the runtime may take to configure us before it is said in the log.
const CONFIGURE_PATIENCE: Duration = Duration::from_secs(10);
/// How long before we give up: a runtime may take our registration and forget about it.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(70);
/// When waiting for the list of containers is mentioned for the first time; later ones take twice
/// as long each.
const SYNCHRONIZE_REMINDER: Duration = Duration::from_secs(30);
/// How long answers under way may take when we stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How a connection ended, other than by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The runtime closed it.
    Closed,
    /// We were told to stop.
    Stopped,
}

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or what came from it is not the protocol.
    #[error(transparent)]
    Mux(#[from] mux::MuxError),
    /// A call could not be read or answered.
    #[error("cannot serve the runtime: {0}")]
    Serve(#[from] io::Error),
    /// The runtime did not take our registration.
    #[error("the runtime refused to register this plugin: {0}")]
    Registration(String),
    /// The runtime went silent after we registered.
    #[error("the runtime has not configured this plugin for {} s", CONFIGURE_LIMIT.as_secs())]
    NeverConfigured,
}

/// Runs a connection over `trunk` until either side ends it; `stop` ends it after the answers under
/// way.
///
/// Sends everything to the owner under the number `session`, and at last that it is over.
///
/// # Errors
///
/// When the connection had to be given up. It is closed in any case.
pub async fn run(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    owner: &DaemonSender,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    let ended = connected(trunk, session, identity, owner, stop).await;
    // A closed channel is fine: then the process is ending.
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
    let mut service = Service::new(session, owner.clone(), phase, Updater::new(runtime.clone()));
    let (finish, finishing) = oneshot::channel::<()>();
    let mut mux = pin!(mux.run());
    // Ready before we register: the runtime's first call can overtake the answer to ours.
    let serving = rpc::serve(served, |request, arrived| service.call(&request, arrived), finishing);
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        end = &mut mux => {
            // What arrived before the end has happened, and is delivered; answering it fails.
            let _ = serving.await;
            return Ok(end.map(|()| Ended::Closed)?);
        }
        end = &mut serving => return Ok(end.map(|()| Ended::Closed)?),
        end = handshake(&runtime, identity, progress) => match end? {},
        _ = stop => {}
    }
    log::debug!("{session}: stopping");
    drop(finish);
    // When the last answer is written, serving drops its connection; that ends the multiplexer once
    // it is on its way.
    let answers = async { tokio::join!(serving, mux) };
    if timeout(STOP_GRACE, answers).await.is_err() {
        log::warn!("{session}: stopped before the last answers were given");
    }
    Ok(Ended::Stopped)
}

/// Registers, and watches how the handshake goes on. Never ends well: it only ends when there is a
/// reason to give up.
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
    // No limit from here on: containerd first waits for every container that is being stopped, for
    // as long as its grace period is, and connecting again would only put us at the end of the
    // queue.
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
