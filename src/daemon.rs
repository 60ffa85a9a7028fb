//! The wiring: one task owns the ledger; everything else talks to it by messages.
//!
//! ```text
//!   edge ── Message ──► owner: ledger decides ──► checkpoint on disk ──► reply ──► edge
//! ```
//!
//! A decision is on disk before the runtime hears it. The disk is waited for outside the thread
//! that serves the connection, and only if what must outlive the process has changed: never for a
//! shared container.
//!
//! ```text
//!   main_loop (what wakes the daemon) ──► owner ──► kubelet, reload, hotplug, partitions, drift, orphans
//!                                                       │
//!                                                       └──► delivery ──► keeper (ledger, checkpoint, history)
//! ```

mod action;
mod blocking;
mod delivery;
mod drift;
mod groups;
mod hotplug;
mod keeper;
mod kubelet;
mod looks;
mod main_loop;
mod orphans;
mod owner;
mod pace;
mod partitions;
mod paths;
mod persist;
mod poller;
mod pool;
mod reload;
mod repair;
mod suspects;
mod validation;
mod witness;

pub use main_loop::serve;
pub use owner::Owner;
pub use paths::{Paths, StartError};
