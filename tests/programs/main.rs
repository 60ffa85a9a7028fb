//! Tests that start programs: the plugin as users run it, browsers, clients of podresources, tools
//! that read machines. They do not run in one process with `tests/it`: a child process holds the
//! locks of its parent until it executes the new program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_types, reason = "tests share with their tasks what these observe")]

mod command_line;
mod corpus;
mod kubelet_state;
mod page;
mod page_widths;
mod picture;
mod podresources;
mod reconnect;
mod run;
#[allow(dead_code, reason = "other test programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod uninstall_stay;
