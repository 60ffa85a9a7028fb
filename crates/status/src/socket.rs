//! The socket of a running plugin in its state directory, and what only its clients may ask.

/// The socket's name in the state directory.
pub const SOCKET: &str = "status.sock";

/// The target of questions with a configuration as their body.
pub const TRY: &str = "/try";
/// The target of questions about `uninstall`, with or without `--containers`.
pub const TRY_UNINSTALL: &str = "/try-uninstall";
/// The query of [`TRY_UNINSTALL`] for `--containers`.
pub const CONTAINERS: &str = "containers";
