//! The command line as a user and a script see it: exit status, `status --watch`.

use crate::support::events::local;
use crate::support::observed::{CONFIG, ObservedDaemon};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nri-cpu-manager");

#[test]
fn a_wrong_command_line_has_an_exit_status_of_its_own() {
    let cases: [(&[&str], i32, &str); 5] = [
        (&["stauts"], 2, "status"),
        (&["status", "--output", "yaml"], 2, "json"),
        (&["status", "--watch=0"], 2, "expected seconds"),
        (&["status", "--watch", "-o", "svg"], 2, "--watch repeats text or JSON"),
        (&["status", "--state-dir", "/nonexistent"], 1, "Is the plugin running"),
    ];
    for (arguments, status, part) in cases {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert!(error.contains(part) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
}

/// A plugin that answers this often with this body, and then is gone.
fn plugin(state_dir: &Path, body: &str, times: usize) -> JoinHandle<()> {
    let socket = state_dir.join("status.sock");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let answer = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
    thread::spawn(move || {
        for _ in 0..times {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
        std::fs::remove_file(socket).unwrap();
    })
}

fn interrupt(child: &mut Child) -> Option<i32> {
    let id = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    child.wait().unwrap().code()
}

#[tokio::test]
async fn a_watched_status_outlasts_a_restart_and_ends_with_an_interrupt() {
    let mut body = String::new();
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        body = serde_json::to_string(&daemon.status().await).unwrap();
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let first = plugin(dir.path(), &body, 2);
    let mut child = Command::new(PROGRAM)
        .args(["status", "--watch=0.1", "--state-dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next_block = || {
        let head = lines.find(|line| line.as_ref().unwrap().starts_with("nri-cpu-manager "));
        assert!(!head.unwrap().unwrap().contains('\x1b'), "not a terminal");
    };
    next_block();
    next_block();
    first.join().unwrap();
    let waiting = errors.next().unwrap().unwrap();
    assert!(waiting.starts_with("waiting for the plugin: "), "{waiting}");
    let second = plugin(dir.path(), &body, 1);
    next_block();
    second.join().unwrap();
    assert_eq!(interrupt(&mut child), Some(0));
}
