//! Simulation of a node: its ledger, with a workload on a machine that need not exist.
//!
//! ```text
//! YAML ── manifests ─┐
//! CSV ─── table ─────┴─► Workload ── engine ── Event ──► ledger ── Decision ──► Recorder ─► SimulationReport
//! ```
//!
//! [`engine`] sends the ledger the events of a kubelet and a runtime in their order, so a decision
//! here is the decision on a node with the same events (`tests/it/simulate_live.rs` compares them).
//! This room reads no file and no clock.

pub mod engine;
pub mod manifests;
mod record;
pub(crate) mod report;
pub mod table;
mod workload;

pub use crate::view::status::alignment::{LiveScore, Scorer};
pub use engine::{Happening, NoRoom, StepObserver};
pub use record::Recorder;
pub use report::{RunReport, Setup, SimulationReport};
pub use workload::{ContainerSpec, PodSpec, Time, Workload, WorkloadError};
