//! What the commands of both programs share.
//!
//! * `client` asks a running plugin through its socket.
//! * `input` reads files that arguments name, `-` among them.
//! * `node` has the options that say which node a configuration is for.
//! * `output` has formats, colours, tables and lines that fit.

pub mod client;
pub mod input;
mod node;
pub mod output;

pub use node::NodeArgs;

/// A mistake on the command line that shows only after parsing: options that contradict each other,
/// or one that another needs. The exit status is that of clap's own errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}. See --help")]
pub struct UsageError(pub String);
