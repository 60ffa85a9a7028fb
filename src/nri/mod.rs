//! The edge to the container runtime: the only room that knows protobuf and ttrpc.
//!
//! ```text
//!   runtime ── socket ── mux ──┬── conn 1 ── rpc ── service ── incoming ──► Message ──► the ledger's owner
//!                              │                       ▲                                   │
//!                              │                       └── outgoing ◄──── reply ◄──────────┘
//!                              └── conn 2 ── RegisterPlugin, UpdateContainers
//! ```
//!
//! [`run`] keeps a connection for as long as the process lives; each connection is a [`Session`]
//! with a number of its own. Everything that happens is sent as a [`Message`] to the one task that
//! owns the ledger, in the order in which it arrived; that task answers through the message's
//! reply. The edge holds no state of the node.

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

/// Where the edge sends what happens: to the one owner of the ledger.
///
/// Unbounded, so that no event can be lost to a full queue or to a caller that has given up; the
/// runtime makes one call after the other, so hardly anything ever waits.
pub type DaemonSender = mpsc::UnboundedSender<Message>;

/// What the edge tells the ledger's owner. In each session: `Configure`, then events, then
/// `Disconnected`.
///
/// An event's reply has a time limit, of which the owner need not know. If it comes too late,
/// sending it fails: then the runtime has *not* heard the decision, and changes for other
/// containers have to go along with a later one.
#[derive(Debug)]
pub enum Message {
    /// The runtime introduces itself.
    Configure {
        /// The connection.
        session: Session,
        /// Who it says it is.
        runtime: Runtime,
        /// What it can do.
        capabilities: Capabilities,
        /// The configuration's text, for a plugin that the runtime launched; empty else.
        config: String,
        /// For changing containers without an event; only where that is safe.
        updater: Option<Updater>,
        /// A refusal ends the connection; its text goes to the runtime's log.
        reply: oneshot::Sender<Result<Subscriptions, Refusal>>,
    },
    /// Something happened to a pod or container, or all of them are listed.
    Event {
        /// The connection.
        session: Session,
        /// What happened.
        event: Event,
        /// A refusal fails the creation or update that it answers; for any other event it is logged
        /// only.
        reply: oneshot::Sender<Result<Decision, Refusal>>,
    },
    /// The runtime asks for approval of what all its plugins together made of a new container. It
    /// is about to be created; [`Event::Create`] was answered before.
    Validate {
        /// The connection.
        session: Session,
        /// The container.
        container: ContainerId,
        /// The CPUs that it is going to have; `None` if none are set, or what is set is no list of
        /// CPUs.
        cpus: Option<CpuSet>,
        /// A refusal fails the creation.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// Something happened that other events tell as well, or that decides nothing. It still tells
    /// that the runtime has done what the last answer asked for: it makes one call after the other.
    WentOn {
        /// The connection.
        session: Session,
    },
    /// The connection has ended. Nothing that belongs to it comes after this.
    Disconnected {
        /// The connection.
        session: Session,
    },
}

/// What the owner wants to be told beyond what it always is: each of it costs every container a
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscriptions {
    /// That a container is about to run, while it waits for the answer ([`Event::Starting`]).
    pub before_start: bool,
    /// That a container is about to be created as all plugins together want it
    /// ([`Message::Validate`]). A runtime with NRI before 0.10 cannot ask; see
    /// [`Capabilities::validation`].
    pub validation: bool,
}

/// Why something is not allowed, in words for the person who wanted it: they appear in the pod's
/// events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);
