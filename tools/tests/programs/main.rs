//! `cpuctl` as users run it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_types, reason = "tests share with their tasks what these observe")]

mod bench_gain;
mod check_config;
mod command_line;
#[allow(dead_code, reason = "other test programs use the rest")]
#[path = "../../../tests/support/mod.rs"]
mod support;
mod topology;
