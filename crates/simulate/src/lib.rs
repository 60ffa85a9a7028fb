//! Simulates a node: runs a workload through the ledger, on a machine that need not exist.
//!
//! ```text
//! YAML ── manifests ─┐
//! CSV ─── table ─────┴─► Workload ── run ── Event ──► ledger ── Decision ──► Recorder ─► Figures
//! ```
//!
//! [`run`] sends the ledger the events of a kubelet and a runtime in order, so a decision here is
//! the decision on a node with the same events (`tests/it/simulate_live.rs` compares them).
//!
//! ```
//! use ledger::{Ledger, Policy, Settings};
//! use simulate::{NoRoom, Recorder, run, table};
//! use machines::presets::preset;
//!
//! // The second pod has no room on a machine of 32 CPUs before the first one departs.
//! let workload = table::parse("pod,cpu,arrive,depart\nfirst,6,0,10\nsecond,30,5,\n")?;
//! let machine = preset("kep-4800").ok_or("no such machine")?.topology()?;
//! let settings = Settings { policy: Policy::Static, ..Settings::default() };
//! let mut ledger = Ledger::new(machine, settings, Vec::new());
//!
//! let end = table::seconds("20")?;
//! let mut recorder = Recorder::new(&workload, &ledger, end, 1);
//! run(&mut ledger, &workload, NoRoom::Wait, Some(end), &mut recorder);
//!
//! let figures = recorder.figures(&ledger);
//! assert_eq!((figures.pods.complete, figures.pods.waited), (2, 1));
//! assert_eq!(figures.pods.longest_wait, 5.0);
//! assert_eq!(ledger.exclusive().len(), 30);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here decides which CPUs a container gets, reads a file or a clock, or draws: a caller
//! has the texts, and sees each step by a [`StepObserver`].

mod engine;
mod figures;
pub mod manifests;
mod record;
pub mod table;
mod workload;

pub use engine::{Happening, NoRoom, OUT_OF_CPU, StepObserver, run};
pub use figures::{ExclusiveCounts, Figures, Moves, Pods, RefusedByFreeCpus, Values};
pub use record::Recorder;
pub use workload::{ContainerSpec, PodSpec, Time, Workload, WorkloadError};
