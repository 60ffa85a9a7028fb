//! The command line as a user and a script see it: exit status, standard input, completions.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cpuctl");

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
    format!("{}/../examples/simulate/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_wrong_command_line_has_an_exit_status_of_its_own() {
    let config = example("packed.yaml");
    let pods = example("pods.yaml");
    let simulate = ["simulate", "--topology", "kep-4800", "--config", &config];
    let with = |more: &[&'static str]| [&simulate[..], &["--workload", &pods], more].concat();
    let two = with(&["--picture", "/nonexistent/a", "--picture", "/nonexistent/b"]);
    let cases: [(&[&str], i32, &str); 7] = [
        (&["topolgy"], 2, "topology"),
        (&["topology", "--list", "--save", "-"], 2, "cannot be used with"),
        (&["check-config", "-", "--topology", "-"], 2, "standard input is one file"),
        (&simulate, 2, "--config and --workload are required"),
        (&two, 2, "once for each --config"),
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
fn a_shell_completes_every_command_and_option() {
    let script = |shell: &str| {
        let output = run(&["completion", shell], "");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let text = script(shell);
        for word in ["check-config", "enable-nri", "schema", "workload"] {
            assert!(text.contains(word), "{word} is not in {shell}'s");
        }
    }
    let complete = |words: &str, at: usize| {
        let read = format!(
            "source <(\"$0\" completion bash); COMP_WORDS=({words}); COMP_CWORD={at}; \
             _cpuctl cpuctl \"${{COMP_WORDS[$COMP_CWORD]}}\" \"${{COMP_WORDS[$COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &read, PROGRAM]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("cpuctl top", 1), "topology\n");
    assert_eq!(complete("cpuctl check-config --topo", 2), "--topology\n");
    assert_eq!(complete("cpuctl topology --output ''", 3), "text json svg\n");
    assert_eq!(complete("cpuctl schema ''", 2), "-h --help config status\n");
}

#[test]
fn schemas_are_json_with_an_id() {
    for document in ["config", "status"] {
        let output = run(&["schema", document], "");
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let id = schema["$id"].as_str().unwrap();
        assert!(id.ends_with(&format!("/{document}.json")), "{id}");
    }
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
