//! A simulated node around the plugin's core, in virtual time: kernel, runtime, kubelet, systemd and
//! their faults. All choices follow from a seed.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a world that contradicts itself ends the run"
)]

pub mod administrator;
pub mod calls;
pub mod configuration;
pub mod devices;
pub mod dice;
mod fingerprint;
pub mod foreseen;
pub mod history;
pub mod kernel;
pub mod kubelet;
pub mod lives;
pub mod node;
pub mod oracle;
pub mod plugin;
pub mod pods;
mod reader;
pub mod refusals;
pub mod runtime;
pub mod settings;
pub mod small;
pub mod trace;
pub mod world;
