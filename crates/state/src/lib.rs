//! What the plugin keeps on a node: the state file, and the disk that it is on.
//!
//! * `checkpoint` is the state file: versioned, checksummed, replaced at once.
//! * `clock` is that of the log, the status and the history.
//! * `disk` is the thread that writes it; [`disk::Storage`] is what a simulated disk is as well.
//! * `files` reads files that other programs write or replace.
//! * `worker` has threads that exist from the start of a process.

pub mod checkpoint;
pub mod clock;
pub mod disk;
pub mod files;
pub mod worker;
