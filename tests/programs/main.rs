//! What starts programs: the plugin as users run it, browsers, clients of podresources, tools that
//! read machines. Not in one process with `tests/it`: until it runs the new program, a child process
//! has the locks of its parent.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_types, reason = "what a test has seen is shared with the test")]

mod check_config;
mod corpus;
mod kubelet_state;
mod page;
mod picture;
mod podresources;
mod reconnect;
mod release_stay;
mod run;
#[allow(dead_code, reason = "other test programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod topology;
