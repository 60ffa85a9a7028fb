//! What would happen: the same ledger as on a node, over a described workload on a described
//! machine.
//!
//! ```text
//!   pods' YAML ── manifests ─┐
//!   CSV ───────── table ─────┴─► Workload ── engine ── Event ──► ledger ── Decision ──► Recorder ──► Report
//!                                   (arrivals, departures)                                (figures, picture)
//! ```
//!
//! [`engine`] tells the ledger what a kubelet and a runtime would, in their words and order, so a
//! decision here is the decision on a node with the same events (`tests/simulate_live.rs` compares
//! them). Nothing here reads a file or a clock.

pub mod engine;
pub mod manifests;
pub mod record;
pub mod report;
pub mod table;
pub mod workload;

pub use engine::{Happening, Observer, Waiting};
pub use record::Recorder;
pub use report::{Report, RunReport};
pub use workload::{Time, Workload, WorkloadError};
