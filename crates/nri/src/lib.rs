//! NRI plugins.

mod capabilities;
mod events;
mod exchange;
pub mod frame;
mod identity;
mod launched;
mod mux;
mod plugin;
mod projection;
mod rpc;
mod service;
mod session;
mod supervisor;
mod updater;
pub mod wire;

pub use capabilities::{Capabilities, Runtime, Version};
pub use events::Events;
pub use exchange::{Answer, AnswerKind, Call, Decoded, Exchange};
pub use identity::{Identity, IdentityError};
pub use launched::{LaunchError, Launched};
pub use mux::MuxError;
pub use plugin::{CallError, Configuration, Plugin};
pub use projection::{Field, Fields, Reads, Request};
pub use session::{Ended, Session, SessionError, run as run_session};
pub use supervisor::{Endpoint, RunError, run};
pub use updater::{UpdateError, Updater};
