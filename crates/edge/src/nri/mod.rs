//! Between the [NRI library](nri) and the ledger: the only module that knows the protocol's messages.
//!
//! ```text
//! runtime ── library ── Edge ── asked ───► Message ──► owner of the
//!                        ▲                                ledger │
//!                        └── answer ◄───── reply ◄───────────────┘
//! ```
//!
//! [`run`] keeps a connection for as long as the process lives; each connection is a numbered
//! [`Session`]. Every call goes as a [`Message`](super::Message) to the task that owns the ledger,
//! in the order of arrival, and its reply becomes the answer. Only the fields of a message that are
//! [read](projection) are decoded. The edge holds no state of the node.

mod cgroup;
pub mod exchange;
mod incoming;
mod mounts;
mod outgoing;
mod plugin;
pub mod projection;

pub use outgoing::updates;
pub use plugin::events;
pub use projection::reads;

use super::DaemonSender;
use nri::{Ended, Endpoint, Identity, RunError, Session, SessionError};
use plugin::Edge;
use std::future::Future;
use tokio::io::{AsyncRead, AsyncWrite};

/// Stays connected to the runtime until `shutdown`, and then finishes the answers under way.
///
/// Sends all messages to `owner`, with a new [`Session`] for each connection.
///
/// # Errors
/// If there never was a connection, or that of a launched plugin failed.
pub async fn run(
    endpoint: Endpoint,
    identity: &Identity,
    owner: DaemonSender,
    shutdown: impl Future,
) -> Result<(), RunError> {
    nri::run(endpoint, identity, |session| Edge::new(session, owner.clone()), shutdown).await
}

/// Runs one connection over `trunk` until either side ends it, see [`nri::run_session`].
///
/// # Errors
/// Those of [`nri::run_session`].
pub async fn run_session(
    trunk: impl AsyncRead + AsyncWrite,
    session: Session,
    identity: &Identity,
    owner: &DaemonSender,
    stop: impl Future,
) -> Result<Ended, SessionError> {
    let edge = Edge::new(session, owner.clone());
    nri::run_session(trunk, session, identity, &edge, stop).await
}
