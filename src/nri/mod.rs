//! The edge to the container runtime: the only room that knows protobuf and ttrpc.
//!
//! ```text
//! runtime ── socket ── mux ──┬── conn 1 ── rpc ── service ── incoming ──► Message ──► owner of the
//!                            │                       ▲                                ledger │
//!                            │                       └── outgoing ◄──── reply ◄──────────────┘
//!                            └── conn 2 ── RegisterPlugin, UpdateContainers
//! ```
//!
//! [`run`] keeps a connection for as long as the process lives; each connection is a [`Session`]
//! with a number of its own. The edge sends every call as a [`Message`] to the one task that owns
//! the ledger, in the order of arrival. That task answers through the message's reply. The edge
//! holds no state of the node.

mod capabilities;
mod cgroup;
pub mod frame;
mod identity;
mod incoming;
mod launched;
pub mod mux;
mod outgoing;
mod qos;
mod rpc;
mod service;
mod session;
mod supervisor;
mod updater;
pub mod wire;

pub use capabilities::{Capabilities, Runtime, Version};
pub use identity::{Identity, IdentityError};
pub use launched::{LaunchError, Launched};
pub use session::{Ended, SessionError, run as run_session};
pub use supervisor::{Endpoint, RunError, run};
pub use updater::{UpdateError, Updater};

use crate::cpuset::CpuSet;
use crate::ledger::{ContainerId, Decision, Event};
use std::fmt;
use tokio::sync::{mpsc, oneshot};

/// The number of a connection to the runtime; later ones have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// The edge's channel to the one owner of the ledger.
///
/// It is unbounded, so that neither a full queue nor a caller that has given up can lose an event.
/// The runtime makes one call after the other, so the queue stays short.
pub type DaemonSender = mpsc::UnboundedSender<Message>;

/// A message from the edge to the ledger's owner. In each session: `Configure`, then events, then
/// `Disconnected`.
///
/// An event's reply has a time limit, which the edge enforces: a late `send` fails. Then the
/// runtime did *not* get the decision, and a later one has to carry the changes for other
/// containers.
#[derive(Debug)]
pub enum Message {
    /// The runtime introduces itself.
    Configure {
        /// The connection.
        session: Session,
        /// Its name and versions.
        runtime: Runtime,
        /// Its capabilities.
        capabilities: Capabilities,
        /// The text of the configuration for a plugin that the runtime launched; otherwise empty.
        config: String,
        /// Changes containers without an event; `None` where that is not safe.
        updater: Option<Updater>,
        /// A refusal ends the connection; its text goes to the runtime's log.
        reply: oneshot::Sender<Result<Subscriptions, Refusal>>,
    },
    /// An event of a pod or container, or the list of all.
    Event {
        /// The connection.
        session: Session,
        /// What happened.
        event: Event,
        /// A refusal fails a creation or an update; the edge only logs that of another event.
        reply: oneshot::Sender<Result<Decision, Refusal>>,
    },
    /// The runtime asks for approval of a new container with the changes of all plugins, after the
    /// answer to [`Event::Create`].
    Validate {
        /// The connection.
        session: Session,
        /// The container.
        container: ContainerId,
        /// The CPUs that it is going to have; `None` if none are set or the list is not valid.
        cpus: Option<CpuSet>,
        /// A refusal fails the creation.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// Another call, without an event for the ledger. It shows that the runtime has applied the
    /// last answer, because it makes one call after the other.
    WentOn {
        /// The connection.
        session: Session,
    },
    /// The connection has ended; this is its last message.
    Disconnected {
        /// The connection.
        session: Session,
    },
}

/// Optional calls that the owner subscribes to; each costs every container a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscriptions {
    /// [`Event::Starting`]: a container is about to run and waits for the answer.
    pub before_start: bool,
    /// [`Message::Validate`]. Runtimes with NRI before 0.10 lack this call, see
    /// [`Capabilities::validation`].
    pub validation: bool,
}

/// Why the plugin refuses something, in words for the user: the kubelet shows them in the pod's
/// events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);
