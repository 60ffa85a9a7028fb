//! NRI, the edge to the container runtime: the only room that knows protobuf and ttrpc.
//!
//! ```text
//! runtime ── socket ── mux ──┬── conn 1 ── rpc ── service ── exchange ──► Message ──► owner of the
//!                            │                       ▲                                ledger │
//!                            │                       └── exchange ◄──── reply ◄──────────────┘
//!                            └── conn 2 ── RegisterPlugin, UpdateContainers
//! ```
//!
//! [`run`] keeps a connection for as long as the process lives; each connection is a numbered
//! [`Session`](super::Session). Every call goes as a [`Message`](super::Message) to the task that
//! owns the ledger, in the order of arrival, and its reply becomes the answer. Only the fields of a
//! message that are [read](projection) are decoded. The edge holds no state of the node.

mod cgroup;
pub mod exchange;
pub mod frame;
mod identity;
mod incoming;
mod launched;
pub mod mux;
mod outgoing;
pub mod projection;
mod rpc;
mod service;
mod session;
mod supervisor;
mod updater;
pub mod wire;

pub use identity::{Identity, IdentityError};
pub use launched::{LaunchError, Launched};
pub use session::{Ended, SessionError, run as run_session};
pub use supervisor::{Endpoint, RunError, run};
