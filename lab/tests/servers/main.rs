//! The plugin on virtual servers. A boot takes as long as a scenario, so what can be on the same
//! machine shares one: its parts, each from an empty node on. Servers run beside each other, as
//! many as the tests have threads: two at most.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod exact;
mod part;
mod partitions;
mod privileges;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;
