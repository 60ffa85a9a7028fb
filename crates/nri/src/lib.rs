//! Plugins for NRI, the Node Resource Interface of containerd and CRI-O: the runtime calls a plugin
//! for each pod and container, and makes the changes in its answers.
//!
//! A plugin implements [`Plugin`]: a method for each event, with defaults that change nothing.
//! [`run`] connects to the runtime, registers, and connects again whenever the runtime restarts.
//!
//! ```
//! use nri::wire::{Container, ContainerAdjustment, KeyValue, PodSandbox};
//! use nri::{Answer, CallError, Ended, Identity, Plugin, Session};
//! use std::time::Duration;
//!
//! /// Refuses containers of the pod `secret`, and gives all others a variable.
//! struct Greeter;
//!
//! impl Plugin for Greeter {
//!     async fn create_container(
//!         &self,
//!         pod: PodSandbox,
//!         _container: Container,
//!     ) -> Result<Answer, CallError> {
//!         if pod.name == "secret" {
//!             return Err(CallError::Refused("not on this node".to_owned()));
//!         }
//!         let hello = KeyValue { key: "HELLO".into(), value: pod.name, ..Default::default() };
//!         let adjust = ContainerAdjustment { env: vec![hello], ..Default::default() };
//!         Ok(Answer { adjust: Some(adjust), ..Answer::default() })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One connection, whose other end is closed. `nri::run` connects to a runtime's socket.
//! let (trunk, runtime) = tokio::net::UnixStream::pair()?;
//! let identity = Identity::new("greeter", "10")?;
//! drop(runtime);
//! let stop = tokio::time::sleep(Duration::from_secs(9));
//! let ended = nri::run_session(trunk, Session(1), &identity, &Greeter, stop).await;
//! assert!(matches!(ended, Ok(Ended::Closed) | Err(_)));
//! # Ok(())
//! # }
//! ```
//!
//! What the library does for every plugin:
//!
//! * It serves two connections over one socket, sends frames that the runtime's reader accepts, and
//!   accepts calls of any length that a runtime sends.
//! * It knows what a runtime can do ([`Capabilities`]): it does not subscribe to events for which the
//!   runtime would disconnect the plugin, and offers changes without an event only where they cannot
//!   deadlock the runtime.
//! * It accepts lifecycle events in both forms in which runtimes send them.
//! * It answers within the runtime's time limit, whatever the plugin does. After the limit the runtime
//!   would disconnect the plugin and continue without it.
//! * It sends errors only where they help: see [`CallError`].
//! * It passes calls to the plugin in the runtime's order: see [`Plugin`].
//!
//! It never keeps state of the node from one connection to the next, reads no file but the socket, and
//! changes nothing on the node by itself. Its only output is [`log`].
//!
//! Tests and tools that have no connection use [`Exchange`], from bytes to [`Call`]s and from
//! [`Answer`]s to bytes, and [`frame`].

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
pub use exchange::{Answer, AnswerKind, Call, Decoded, Exchange, Update};
pub use identity::{Identity, IdentityError};
pub use launched::{LaunchError, Launched};
pub use mux::MuxError;
pub use plugin::{CallError, Configuration, Plugin};
pub use projection::{Field, Fields, Reads, Request, RequestField};
pub use session::{Ended, Session, SessionError, run as run_session};
pub use supervisor::{Endpoint, RunError, run};
pub use updater::{UpdateError, Updater};

/// Where runtimes listen for plugins by default.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";
