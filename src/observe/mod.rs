//! What the outside can see of the daemon.

pub mod log;
