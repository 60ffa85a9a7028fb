//! The plugin on virtual machines. A boot takes as long as a scenario, so parts for the same
//! machine share one, each starting from an empty node. As many VMs run at the same time as there
//! are test threads: at most two.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod part;
mod partitions;
mod privileges;
mod scenarios;
mod shipped;
#[path = "../support/mod.rs"]
mod support;
