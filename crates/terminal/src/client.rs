//! Asks a running plugin through the socket in its state directory.

use serde::de::DeserializeOwned;
use serde_json::Value;
use status::socket::SOCKET;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wording::printable;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a program in the plugin's pod on NODE: the start of a command. `exec daemonset/...` takes the
/// pod of any node.
pub const IN_POD: &str = "kubectl -n kube-system exec -i $(kubectl -n kube-system get pod \
    -l app.kubernetes.io/name=nri-cpu-manager --field-selector spec.nodeName=NODE \
    -o jsonpath='{.items[0].metadata.name}') -- ";
/// Ends of such commands.
const COMMANDS: &str = "/nri-cpu-manager status, or /cpuctl check-config - --live <FILE";

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot connect to {}: {source}. Is the plugin running on this node, with this --state-dir? In Kubernetes: {IN_POD}{COMMANDS}", path.display()
    )]
    Connect { path: PathBuf, source: io::Error },
    #[error("no answer from the plugin for {} s: it may be stopped or busy", TIMEOUT.as_secs())]
    Timeout,
    #[error("no answer from the plugin: {0}")]
    Answer(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error(
        "invalid answer from the plugin ({0}): it may have another version than this program: run the one in the plugin's image. In Kubernetes: {IN_POD}{COMMANDS}"
    )]
    Form(#[from] serde_json::Error),
}

/// Sends a request for `target` and returns the body of the answer.
pub fn ask(state_dir: &Path, target: &str) -> Result<String, ClientError> {
    answer(state_dir, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

/// As [`ask`], with a body.
pub fn ask_about(state_dir: &Path, target: &str, body: &str) -> Result<String, ClientError> {
    let length = body.len();
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    answer(state_dir, &(head + body))
}

fn answer(state_dir: &Path, request: &str) -> Result<String, ClientError> {
    let path = state_dir.join(SOCKET);
    let stream =
        UnixStream::connect(&path).map_err(|source| ClientError::Connect { path, source })?;
    let answer = exchange(stream, request, TIMEOUT)?;
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or(ErrorKind::UnexpectedEof).map_err(io::Error::from)?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(ClientError::Refused(body.trim_end().to_owned())),
    }
}

/// The whole answer. `timeout` is for each single read or write.
fn exchange(
    mut stream: UnixStream,
    request: &str,
    timeout: Duration,
) -> Result<String, ClientError> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut answer = String::new();
    let sent = stream.write_all(request.as_bytes());
    match sent.and_then(|()| stream.read_to_string(&mut answer)) {
        // The system's errors for a timeout.
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            Err(ClientError::Timeout)
        }
        done => Ok(done.map(|_| answer)?),
    }
}

/// The answer for a terminal: its texts hold names that others have chosen.
pub fn read<T: DeserializeOwned>(answer: &str) -> Result<T, ClientError> {
    let mut value = serde_json::from_str(answer)?;
    make_printable(&mut value);
    Ok(serde_json::from_value(value)?)
}

fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut value)| {
                    make_printable(&mut value);
                    (printable(&name), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;

    #[test]
    fn texts_for_a_terminal_have_no_control_characters() {
        let answer = r#"{"a\u001b": ["b\nc", {"d": "\u009be"}], "f": 1}"#;
        let found: Value = read(answer).unwrap();
        let expect = serde_json::json!({
            "a\u{fffd}": ["b\u{fffd}c", {"d": "\u{fffd}e"}], "f": 1
        });
        assert_eq!(found, expect);
    }

    /// In a cluster the cause is usually a program outside of the plugin's pod.
    #[test]
    fn an_error_to_connect_has_the_command_for_the_pod_of_a_node() {
        let directory = tempfile::tempdir().unwrap();
        let error = ask(directory.path(), "/status").unwrap_err().to_string();
        let in_pod = "In Kubernetes: kubectl -n kube-system exec -i $(kubectl -n kube-system get pod -l app.kubernetes.io/name=nri-cpu-manager --field-selector spec.nodeName=NODE -o jsonpath='{.items[0].metadata.name}') -- /nri-cpu-manager status, or /cpuctl check-config - --live <FILE";
        assert!(error.ends_with(in_pod), "{error}");
    }

    #[test]
    fn a_plugin_that_is_stopped_or_ends_gives_an_error() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = exchange(ours, "GET / HTTP/1.1\r\n\r\n", Duration::from_millis(10))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "no answer from the plugin for 10 s: it may be stopped or busy");
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = exchange(ours, "GET / HTTP/1.1\r\n\r\n", Duration::from_millis(10))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("no answer from the plugin: "), "{error}");
    }
}
