//! Tests within one process: properties, histories, the daemon with fake files, and the pages
//! against the program. `tests/programs` starts other programs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_types, reason = "tests share with their tasks what these observe")]

mod absences;
mod admission_policy;
mod architecture;
mod best_hint;
mod bounds;
mod checkpoint;
mod conformance;
mod daemon;
mod devices;
mod doctor;
mod documentation;
mod drifts;
mod every_machine;
mod explain;
mod exposed;
mod foreign_partitions;
mod fuzz;
#[path = "../fuzz_bodies/mod.rs"]
mod fuzz_bodies;
mod groups;
mod instruction_figures;
mod json;
mod live;
mod log_volume;
mod manifests;
mod metrics;
mod metrics_http;
mod noise;
mod placement_quality;
mod placement_requests;
mod reference;
#[allow(dead_code, reason = "shared with the example, which uses the rest")]
#[path = "../../examples/conformance/runner.rs"]
mod runner;
mod simulate;
mod simulate_live;
mod small_machines;
mod snapshot;
mod status;
mod status_reference;
#[allow(dead_code, reason = "other test programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod sysfs;
mod uninstall;
mod worked_examples;
mod workflows;
