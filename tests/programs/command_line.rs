//! The command line as a user and a script see it: exit status, standard input, `status --watch`.

use crate::support::events::local;
use crate::support::observed::{CONFIG, ObservedDaemon};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};

#[allow(dead_code, reason = "the example's own main")]
#[path = "../../examples/completions.rs"]
mod completions;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nri-cpu-manager");

/// Runs a command with this text on its standard input.
fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .env_remove("NODE_NAME")
        .env_remove("NODE_LABELS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn example(name: &str) -> String {
    format!("{}/examples/simulate/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_wrong_command_line_has_an_exit_status_of_its_own() {
    let config = example("packed.yaml");
    let pods = example("pods.yaml");
    let simulate = ["simulate", "--topology", "kep-4800", "--config", &config];
    let with = |more: &[&'static str]| [&simulate[..], &["--workload", &pods], more].concat();
    let two = with(&["--picture", "/nonexistent/a", "--picture", "/nonexistent/b"]);
    let cases: [(&[&str], i32, &str); 11] = [
        (&["stauts"], 2, "status"),
        (&["status", "--output", "yaml"], 2, "json"),
        (&["status", "--watch=0"], 2, "expected seconds"),
        (&["status", "--watch", "-o", "svg"], 2, "--watch repeats text or JSON"),
        (&["topology", "--list", "--save", "-"], 2, "cannot be used with"),
        (&["check-config", "-", "--topology", "-"], 2, "standard input is one file"),
        (&simulate, 2, "--config and --workload are required"),
        (&two, 2, "once for each --config"),
        (&["status", "--state-dir", "/nonexistent"], 1, "Is the plugin running"),
        (&["topology", "--from", "nothing"], 1, "unknown machine"),
        (&["check-config", "/nonexistent"], 1, "No such file"),
    ];
    for (arguments, status, part) in cases {
        let output = run(arguments, "");
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert!(error.contains(part) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
    assert_eq!(run(&with(&[]), "").status.code(), Some(0));
}

/// Every name that users of other programs, or of other commands, have written.
#[test]
fn a_name_that_is_nearly_right_gets_a_suggestion() {
    let cases: [(&[&str], &str, &str); 5] = [
        (&["check-config", "-"], "exclusivity: partitions\n", "(did you mean kernel?)"),
        (
            &["check-config", "-"],
            "topologyManagerPolicy: single-numa\n",
            "(did you mean single-numa-node?)",
        ),
        (&["topology", "epyc9654"], "", "(did you mean --from epyc-9654?)"),
        (&["topology", "epyc-7303"], "", "(did you mean --from epyc-7303?)"),
        (&["topology", "--from", "epyc9654"], "", "(did you mean epyc-9654?)"),
    ];
    for (arguments, input, suggestion) in cases {
        let output = run(arguments, input);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {error}");
        assert!(error.contains(suggestion), "{arguments:?}: {error}");
    }
}

#[test]
fn a_release_has_completions_of_every_command_and_option() {
    let dir = tempfile::tempdir().unwrap();
    completions::write(dir.path()).unwrap();
    for file in ["nri-cpu-manager.bash", "_nri-cpu-manager", "nri-cpu-manager.fish"] {
        let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
        for word in ["kubelet-state", "check-config", "noise", "watch", "metrics-address"] {
            assert!(text.contains(word), "{word} is not in {file}");
        }
    }
    let complete = |words: &str, at: usize| {
        let script = format!(
            "source {}/nri-cpu-manager.bash; COMP_WORDS=({words}); COMP_CWORD={at}; \
             function=$(complete -p nri-cpu-manager | grep -o '_nri[^ ]*'); \
             $function nri-cpu-manager \"${{COMP_WORDS[$COMP_CWORD]}}\" \"${{COMP_WORDS[$COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            dir.path().display()
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("nri-cpu-manager sta", 1), "status\n");
    assert_eq!(complete("nri-cpu-manager status --nam", 2), "--namespace\n");
    assert_eq!(complete("nri-cpu-manager status --output ''", 3), "text wide json svg\n");
    let script = include_str!("../../hack/release");
    assert!(script.contains("--example completions -- \"$out/completions\"\npack completions\n"));
}

#[test]
fn a_hyphen_is_standard_input() {
    let config = example("packed.yaml");
    let pods = example("pods.yaml");
    let text = |file: &str| std::fs::read_to_string(file).unwrap();
    let simulate = |topology: &str, config: &str, pods: &str, input: &str| {
        let arguments =
            ["simulate", "--topology", topology, "--config", config, "--workload", pods];
        let output = run(&[&arguments[..], &["-o", "json"]].concat(), input);
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["runs"][0]["placements"].is_array(), "{report}");
        report["runs"][0]["placements"].clone()
    };
    let expect = simulate("kep-4800", &config, &pods, "");
    assert_eq!(simulate("kep-4800", "-", &pods, &text(&config)), expect);
    assert_eq!(simulate("kep-4800", &config, "-", &text(&pods)), expect);
    let saved = run(&["topology", "--from", "kep-4800", "--save", "-"], "").stdout;
    let saved = String::from_utf8(saved).unwrap();
    assert_eq!(simulate("-", &config, &pods, &saved), expect);
    let table = "pod,cpu,arrive\na,4,0\n";
    assert_eq!(simulate("kep-4800", &config, "-", table)[0]["pod"], "a");

    let of_saved = run(&["topology", "--from", "-"], &saved);
    assert_eq!(of_saved.stdout, run(&["topology", "--from", "kep-4800"], "").stdout);
    let wrong = run(&["topology", "--from", "-"], "x: 1\n");
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.contains("standard input is not a machine saved by"), "{error}");
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
