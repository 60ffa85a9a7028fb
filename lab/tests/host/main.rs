//! The plugin with containerd of both versions on this machine. Each test starts its own
//! containerd; only one runs at a time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

/// Each test for each containerd version.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod containerd_1_7 { $(#[test] fn $test() { super::$test(lab::containerd::Version::V1_7); })* }
        mod containerd_2_1 { $(#[test] fn $test() { super::$test(lab::containerd::Version::V2_1); })* }
    };
}

mod bench;
mod containerd;
mod daemonset;
mod drift;
mod kubelet;
mod nri_examples;
mod observe;
mod rollout;
#[path = "../support/mod.rs"]
mod support;
