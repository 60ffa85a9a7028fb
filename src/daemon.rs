//! The daemon: one task owns the ledger; everything else sends it messages.
//!
//! ```text
//!   edge ── Message ──► owner: ledger decides ──► checkpoint on disk ──► reply ──► edge
//! ```
//!
//! A decision is on disk before the runtime gets it. Another thread writes the disk than the one
//! that serves the connection, and only if claims have changed: never for a shared container.
//!
//! ```text
//!   main_loop (what wakes the daemon) ──► owner ──► kubelet, reload, hotplug,
//!                                           │        enforcement, drift, orphans
//!                                           │                   │
//!                                           └──► delivery ◄─────┘
//!                                                   │
//!                                                   └──► keeper (ledger, checkpoint, history)
//! ```

mod action;
mod blocking;
mod delivery;
mod drift;
mod enforcement;
mod hotplug;
mod keeper;
mod kubelet;
mod looks;
mod main_loop;
mod orphans;
mod owner;
mod pace;
mod paths;
mod persist;
mod poller;
mod reload;
mod repair;
mod step;
mod suspects;
mod validation;
mod witness;

pub use main_loop::serve;
pub use owner::Owner;
pub use paths::{Paths, StartError};
