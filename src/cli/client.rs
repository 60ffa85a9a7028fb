//! Asks a running plugin through the socket in its state directory.

use crate::serve::endpoint::SOCKET;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The plugin's time to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No plugin listens.
    #[error(
        "cannot ask {}: {source}. Is the plugin running on this node, and is --state-dir the one it runs with? In Kubernetes: kubectl exec into its pod", path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The plugin does not answer in time.
    #[error("the plugin has not answered for {} s: is it stopped, or very busy?", PATIENCE.as_secs())]
    Silent,
    /// The connection failed.
    #[error("the plugin did not answer: {0}")]
    Answer(#[from] io::Error),
    /// The plugin answers with an error.
    #[error("{0}")]
    Refused(String),
    /// The answer has an unknown form.
    #[error(
        "the plugin's answer is not understood ({0}): is it of another version than this program?"
    )]
    Form(#[from] serde_json::Error),
}

/// Sends a request for `target` and returns the body of the answer.
///
/// # Errors
/// If no plugin listens, or there is no answer.
pub fn ask(state_dir: &Path, target: &str) -> Result<String, ClientError> {
    let path = state_dir.join(SOCKET);
    let stream =
        UnixStream::connect(&path).map_err(|source| ClientError::Connect { path, source })?;
    let answer = exchange(stream, target, PATIENCE)?;
    let cut_short = || io::Error::from(ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_short)?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(ClientError::Refused(body.trim_end().to_owned())),
    }
}

/// The whole answer. No single read or write may take longer than `patience`.
fn exchange(
    mut stream: UnixStream,
    target: &str,
    patience: Duration,
) -> Result<String, ClientError> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut answer = String::new();
    let sent = stream.write_all(request.as_bytes());
    match sent.and_then(|()| stream.read_to_string(&mut answer)) {
        // The system's errors for a timeout.
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            Err(ClientError::Silent)
        }
        done => Ok(done.map(|_| answer)?),
    }
}

/// Reads an answer.
///
/// # Errors
/// If it has another form.
pub fn read<T: DeserializeOwned>(answer: &str) -> Result<T, ClientError> {
    Ok(serde_json::from_str(answer)?)
}

/// Indented JSON, ending in a new line.
///
/// # Errors
/// If it is no JSON.
pub fn pretty(answer: &str) -> Result<String, ClientError> {
    let value: serde_json::Value = read(answer)?;
    Ok(format!("{value:#}\n"))
}

/// Writes to `out`; a reader that goes away (`| head`) is no error.
///
/// # Errors
/// If it cannot be written.
pub fn show(out: &mut dyn Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Lines of cells as a table, with columns as wide as their longest cell.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;

    #[test]
    fn a_plugin_that_is_stopped() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = exchange(ours, "/status", Duration::from_millis(10)).unwrap_err().to_string();
        assert_eq!(error, "the plugin has not answered for 10 s: is it stopped, or very busy?");
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = exchange(ours, "/status", Duration::from_millis(10)).unwrap_err().to_string();
        assert!(error.starts_with("the plugin did not answer: "), "{error}");
    }
}
