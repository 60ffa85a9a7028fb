//! `cpuctl check-config` as a user runs it.

use crate::support::events::{create, local};
use crate::support::json_names::{names, undocumented};
use crate::support::observed::{CONFIG, ObservedDaemon};
use ledger::Qos;
use serde_json::{Value, json};
use status::snapshot::Node;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use terminal::client;

/// Runs `check-config`; returns its output, or its error. The machine is the daemon's,
/// with 16 CPUs in two NUMA nodes, unless the arguments name another one.
fn check(daemon: &ObservedDaemon, text: &str, arguments: &[&str]) -> Result<String, String> {
    let file = daemon.paths.state_dir.with_file_name("new.yaml");
    fs::write(&file, text).unwrap();
    let here = [Path::new("--sysfs-root"), &daemon.paths.sysfs_root];
    let another = arguments.contains(&"--topology");
    let output = Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .arg("check-config")
        .arg(&file)
        .args(arguments)
        .args(if another { &[][..] } else { &here })
        .env_remove("NODE_NAME")
        .env_remove("NODE_LABELS")
        .output()
        .unwrap();
    answer(output, &file)
}

/// What a command printed, or its error.
fn answer(output: Output, file: &Path) -> Result<String, String> {
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).unwrap().replace(&file.display().to_string(), "new.yaml")
    };
    let out = text(output.stdout);
    let error = text(output.stderr);
    match output.status.code() {
        Some(0) => {
            let json = out.starts_with('{');
            assert!(json || out.lines().all(|line| line.chars().count() <= 100), "{out}");
            Ok(out)
        }
        code => {
            assert_eq!((code, &*out), (Some(1), ""), "{error}");
            assert!(error.lines().all(|line| line.starts_with("cpuctl: ")), "{error}");
            Err(error)
        }
    }
}

/// The text without the ends of its lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The files of a directory with their contents.
fn below(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), fs::read(&path).unwrap_or_default())).collect()
}

#[test]
fn a_missing_file_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .args(["check-config", "/nonexistent/new.yaml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "cpuctl: cannot read /nonexistent/new.yaml: No such file or directory (os error 2)\n"
    );
}

/// Files that are large or deep, on purpose or by mistake: each is rejected with one line, within
/// two seconds of CPU time and 32 MiB of memory, without the program's own text.
#[test]
fn odd_files_are_rejected_with_little_time_and_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("odd.yaml");
    let labels: String = (0..1000).map(|i| format!("k{i}: v,")).collect();
    let aliases = format!("nodes:\n- labels: &l {{{labels}}}\n{}", "- labels: *l\n".repeat(4000));
    let mebibyte = |text: &str| text.repeat((1 << 20) / text.len());
    let namespaces: String =
        (0..5000).map(|i| format!("- {{names: [n{i}], allow: {{smt: [isolate]}}}}\n")).collect();
    for (text, expect) in [
        (format!("a: {}", "[".repeat(60_000)), "more than 32 lists and maps in each other"),
        (mebibyte("["), "more than 32 lists and maps in each other"),
        (mebibyte("- "), "more than 32 lists and maps in each other"),
        (mebibyte("{a: "), "more than 32 lists and maps in each other"),
        (aliases, "anchors and aliases are not supported"),
        (mebibyte("- &a b\n"), "anchors and aliases are not supported"),
        (format!("names: [{}]", mebibyte("a,").get(20..).unwrap()), "more than 50000 values"),
        (format!("kubeletStateDir: {}", "x".repeat(20 << 20)), "larger than 1048576 bytes"),
        (format!("strict: {}", "x".repeat(1_000_000)), "is unknown, expected true or false"),
        (format!("{}: true", "x".repeat(1000)), "unknown field"),
        (format!("namespaces:\n{namespaces}nodes: true\n"), "nodes: expected a list"),
        (
            format!("nodes:\n{}strict: 1\n", "- names: [a]\n".repeat(10_000)),
            "strict: \"1\" is unknown",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        let output = Command::new("sh")
            .args(["-c", "ulimit -d 32768; ulimit -t 2; exec \"$0\" check-config \"$1\" --topology epyc-9654"])
            .arg(env!("CARGO_BIN_EXE_cpuctl"))
            .arg(&file)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.contains(expect) && error.len() < 5000, "{expect}: {error}");
    }
}

#[tokio::test]
async fn a_reserved_half_of_a_core_gets_a_warning() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let text = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n";
        let machine = ["--topology", "epyc-9654"];
        let here = check(&daemon, text, &machine).unwrap();
        let warning =
            "warning: line 2: reservedSystemCPUs: SMT siblings of reserved CPUs are not reserved";
        assert!(here.contains(warning) && here.contains("share cores"), "{here}");
        let entry = format!(
            "{text}nodes:\n- names: [b]\n  cpuManagerPolicyOptions: {{full-pcpus-only: true}}\n"
        );
        let there = check(&daemon, &entry, &machine).unwrap();
        assert!(there.contains("with full-pcpus-only no container"), "{there}");
    })
    .await;
}

#[test]
fn a_file_may_be_a_pipe_or_standard_input() {
    for (file, name) in [("/dev/stdin", "/dev/stdin"), ("-", "standard input")] {
        let check = |text: &'static str| {
            Command::new("sh")
                .args(["-c", "printf %b \"$1\" | \"$0\" check-config \"$2\" --topology epyc-9654"])
                .args([env!("CARGO_BIN_EXE_cpuctl"), text, file])
                .output()
                .unwrap()
        };
        let valid = check("strict: true\\n");
        assert!(valid.stdout.starts_with(format!("{name}: valid").as_bytes()), "{valid:?}");
        let wrong = check("strict: true\\n# \\0377\\n");
        let error = format!(
            "cpuctl: {name}, line 2: byte 0xFF is not UTF-8: save the text as UTF-8. Nothing was changed\n"
        );
        assert_eq!(String::from_utf8(wrong.stderr).unwrap(), error);
    }
}

#[tokio::test]
async fn settings_of_this_node_and_of_each_override_are_printed() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let text = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nnodes:\n\
                    - names: [\"gpu-*\"]\n  cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n\
                    - labels: {pool: big}\n  reservedSystemCPUs: \"0-1,64-65\"\n";
        let settings = |options: &str| {
            format!(
                "cpuManagerPolicy static ({options}), topologyManagerPolicy none (scope container, no options), \
                 reserved CPUs 0-1, exclusivity auto, strict false\n"
            )
        };
        let plain = settings("no options");
        let whole = settings("full-pcpus-only");
        let overrides = |first: &str| {
            format!(
                "override on line 4: names gpu-* ({first})\n  alone: {whole}\
                 override on line 6: labels pool=big (not this node)\n  alone, not valid on this machine: new.yaml, line 7: \
                 reservedSystemCPUs: CPUs 64-65 do not exist; online CPUs: 0-15. Nothing was changed\n"
            )
        };
        let named = ["--node-name", "gpu-1", "--node-labels", "pool=small"];
        let output = check(&daemon, text, &named).unwrap();
        assert_eq!(
            words(&output),
            words(&format!(
                "new.yaml: valid\n\nsettings on node gpu-1, with the override on line 4:\n  {whole}\n{}",
                overrides("matches this node")
            ))
        );
        let list = "\n  cpuManagerPolicy static (full-pcpus-only), topologyManagerPolicy none (scope container, no\n    \
                    options), reserved CPUs 0-1, exclusivity auto, strict false\n\noverride";
        assert!(output.contains(list), "{output}");
        assert_eq!(
            words(&check(&daemon, text, &[]).unwrap()),
            words(&format!(
                "new.yaml: valid\n\nsettings on a node without matching overrides (--node-name not given):\n  {plain}\n{}",
                overrides("not this node")
            ))
        );
        let by_label = "nodes:\n- labels: {pool: big}\n  exposeCPUs: environment\n";
        for (labels, expect) in [
            ("pool=big", "settings on a node with these labels, with the override on line 2:"),
            ("pool=small", "settings on a node with these labels:"),
            ("", "settings on a node without matching overrides (--node-name not given):"),
        ] {
            let output = check(&daemon, by_label, &["--node-labels", labels]).unwrap();
            assert_eq!(output.lines().nth(2), Some(expect));
        }
        assert_eq!(
            check(&daemon, "", &[]).unwrap().lines().nth(2),
            Some("settings on every node:")
        );
        let error =
            check(&daemon, text, &["--node-name", "x", "--node-labels", "pool=big"]).unwrap_err();
        assert_eq!(
            error,
            "cpuctl: new.yaml, line 7: reservedSystemCPUs: CPUs 64-65 do not exist; online CPUs: 0-15. Nothing was changed\n"
        );
        let error = check(&daemon, "strict: no\nreserved: 1\n", &[]).unwrap_err();
        let mut lines = error.lines();
        for start in ["line 1: strict: \"no\" is unknown", "line 2: unknown field \"reserved\""] {
            let line = lines.next().unwrap();
            assert!(line.starts_with(&format!("cpuctl: new.yaml, {start}")), "{error}");
        }
        assert_eq!(lines.next(), None, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_file_can_be_checked_for_another_machine() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let large = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0,383\"\n";
        let output = check(&daemon, large, &["--topology", "epyc-9654"]).unwrap();
        let start = "new.yaml: valid on machine epyc-9654\n\nsettings on every node:\n";
        assert!(
            output.starts_with(start) && words(&output).contains("reserved CPUs 0,383,"),
            "{output}"
        );
        let json = check(&daemon, large, &["--topology", "epyc-9654", "--output", "json"]).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["machine"], "epyc-9654");
        // A copy of this machine's /sys gives the error of this machine.
        let sysfs = daemon.paths.sysfs_root.to_str().unwrap();
        let error = check(&daemon, large, &["--topology", sysfs]).unwrap_err();
        assert_eq!(error, check(&daemon, large, &[]).unwrap_err());
        assert!(error.contains("line 2: reservedSystemCPUs: CPU 383 does not exist"), "{error}");
        for (what, part) in [
            ("nothing", "unknown machine \"nothing\""),
            (
                "epyc-7303-nps8",
                "of this kind are epyc-7303, epyc-7303-nosmt, epyc-7303-nps0, epyc-7303-nosmt-nps0",
            ),
            ("/dev/null", "is not a machine saved by `cpuctl topology --save`"),
            ("core:0", "core:0"),
        ] {
            let error = check(&daemon, large, &["--topology", what]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn allowed_pod_options_are_printed_for_each_namespace() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let text = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nexclusiveMemoryNodes: follow-cpus\n\
                    namespaces:\n\
                    - names: [\"hpc-*\", trading]\n  allow: {uncore: [require, prefer]}\n  defaults: {smt: full-cores}\n\
                    - names: [\"hpc-test-*\"]\n  cpuManagerPolicy: none\n\
                    nodes:\n\
                    - names: [plain]\n  exposeCPUs: environment\n\
                    - names: [open]\n  namespaces: [{names: [\"*\"], allow: {cpus: [exclusive]}}]\n";
        let pod_options = "pods may use uncore: prefer, uncore: require; default smt: full-cores";
        let settings = "cpuManagerPolicy static (no options), topologyManagerPolicy none (scope container, no options), \
                        reserved CPUs 0-1, exclusivity auto, strict false";
        assert_eq!(
            words(&check(&daemon, text, &["--node-name", "n1"]).unwrap()),
            words(&format!(
                "new.yaml: valid\n\nsettings on node n1:\n  {settings}, exclusiveMemoryNodes follow-cpus\n  \
                 namespaces (the first match applies):\n    trading: {pod_options}\n    \
                 hpc-test-*: cpuManagerPolicy none, no exclusive CPUs\n    hpc-*: {pod_options}\n    \
                 all others: no pod options allowed\n\n\
                 override on line 11: names plain (not this node)\n  \
                 alone: {settings}, exposeCPUs environment, exclusiveMemoryNodes follow-cpus\n\
                 override on line 13: names open (not this node)\n  \
                 alone: {settings}, exclusiveMemoryNodes follow-cpus\n  \
                 namespaces (the first match applies):\n    *: pods may use cpus: exclusive\n"
            ))
        );
    })
    .await;
}

/// Asks the daemon, which runs in this thread, what a configuration would change.
async fn outlook(daemon: &ObservedDaemon, text: &str) -> Result<String, String> {
    let report = live(daemon, text, &[]).await?;
    Ok(report.rsplit_once("\n\n").unwrap().1.to_owned())
}

async fn live(daemon: &ObservedDaemon, text: &str, more: &[&str]) -> Result<String, String> {
    let file = daemon.paths.state_dir.with_file_name("new.yaml");
    fs::write(&file, text).unwrap();
    let output = output("check-config", |command| {
        command.arg(&file).args(["--live", "--state-dir"]).arg(&daemon.paths.state_dir);
        command.arg("--sysfs-root").arg(&daemon.paths.sysfs_root).args(more);
    });
    answer(output.await, &file)
}

/// Runs a command on another thread.
async fn output(name: &str, prepare: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpuctl"));
    command.arg(name).env_remove("NODE_NAME").env_remove("NODE_LABELS");
    prepare(&mut command);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The daemon's status once it has followed a configuration that changes the reserved CPUs.
async fn followed(daemon: &ObservedDaemon, text: &str) -> Node {
    let before = daemon.status().await.node.unwrap().figures.cpus.reserved;
    daemon.swap_config(text);
    loop {
        let node = daemon.status().await.node.unwrap();
        if node.figures.cpus.reserved != before {
            return node;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn predicted_changes_of_running_containers_are_those_that_happen() {
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        daemon.create("web", Qos::Burstable, 500).await.unwrap();
        daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        daemon.create("b", Qos::Guaranteed, 2000).await.unwrap();
        daemon.create("c", Qos::Guaranteed, 8000).await.unwrap();
        let state = &daemon.paths.state_dir;
        let before = below(state);
        let text = "kubeletStateDir: \"\"\ncpuManagerPolicy: static\nreservedSystemCPUs: \"0-3\"\n\
                    cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\nstrict: true\n";
        assert_eq!(
            outlook(&daemon, text).await.unwrap(),
            "ns/a/c: CPUs 2-3 would become 6-7: some of its CPUs are now reserved\n\
             ns/b/c: CPUs 4-5 stay\nns/c/c: CPUs 8-15 stay\n\
             shared pool: 0-1,6-7 -> none; 0-1,6-7 are no longer shared\n\
             1 container on shared CPUs would follow\n\
             after a restart of the plugin only: strict\n"
        );
        assert_eq!(below(state), before, "check-config changed something");
        let less = text.replace("0-3", "0-9");
        assert!(
            outlook(&daemon, &less)
                .await
                .unwrap()
                .contains("ns/c/c: CPUs 8-15 would be lost, and it would run in the shared pool: ")
        );

        let node = followed(&daemon, text).await;
        let cpus: Vec<String> = node.containers.iter().map(|one| one.runs_on.to_string()).collect();
        assert_eq!(
            (cpus.join(" ").as_str(), node.figures.cpus.shared.len()),
            ("6-7 4-5 8-15 0-3", 0)
        );
    })
    .await;
}

#[tokio::test]
async fn containers_that_would_be_pinned_and_refused_are_named() {
    local(async {
        let daemon = ObservedDaemon::following("cpuManagerPolicy: none\n").await;
        daemon.event(create("a", Qos::Guaranteed, 2000)).await.unwrap();
        daemon.event(create("b", Qos::Guaranteed, 4000)).await.unwrap();
        daemon.event(create("web", Qos::Burstable, 500)).await.unwrap();
        let text = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-11\"\n";
        let said = words(&outlook(&daemon, text).await.unwrap());
        let expect = "ns/a/c: would get CPUs 12-13 and leave 0-15: created while no plugin pinned containers";
        assert!(said.starts_with(expect), "{said}");
        let refused =
            "ns/b/c: would go on in the shared pool, and a new one like it would be refused: ";
        assert!(said.contains(refused), "{said}");
        assert!(
            said.contains("shared pool: 0-15 -> 0-11,14-15; 12-13 are no longer shared"),
            "{said}"
        );
        assert!(said.contains("2 containers on shared CPUs would follow"), "{said}");

        let node = followed(&daemon, text).await;
        let cpus: Vec<String> = node.containers.iter().map(|one| one.runs_on.to_string()).collect();
        assert_eq!(cpus.join(" "), "12-13 0-11,14-15 0-11,14-15");
    })
    .await;
}

#[tokio::test]
async fn a_question_about_a_change_gets_the_errors_of_check_config() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let error = live(&daemon, CONFIG, &[]).await.unwrap_err();
        assert!(error.contains("the runtime has not listed its containers yet"), "{error}");
        daemon.connect_runtime(1).await;
        daemon.synchronize().await;
        for wrong in ["strict: no\nreserved: 1\n", "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-99\"\n"] {
            let error = live(&daemon, wrong, &[]).await.unwrap_err();
            assert_eq!(error, check(&daemon, wrong, &[]).unwrap_err());
        }
        let here = "nodes:\n- names: [node]\n  strict: true\n";
        let error = live(&daemon, here, &[]).await.unwrap_err();
        assert!(
            error.contains("runs on node node, and other overrides of this file apply there, with the override on line 2"),
            "{error}"
        );
        live(&daemon, here, &["--node-name", "node"]).await.unwrap();

        // What this program does not find is in the plugin's answer.
        let state = daemon.paths.state_dir.clone();
        let ask = move |target: &'static str, body: String| {
            let state = state.clone();
            let answer =
                tokio::task::spawn_blocking(move || client::ask_about(&state, target, &body));
            async move { answer.await.unwrap().map_err(|error| error.to_string()) }
        };
        let error = ask("/try", "strict: no\nreserved: 1\n".to_owned()).await.unwrap_err();
        assert!(
            error.starts_with("configuration, line 1: strict: \"no\" is unknown")
                && error.contains("\nconfiguration, line 2: unknown field \"reserved\""),
            "{error}"
        );
        let full = format!("#{}", "x".repeat((1 << 20) - 1));
        assert!(ask("/try", full).await.is_ok());
        assert!(ask("/status", String::new()).await.is_err());
    })
    .await;
}

/// The configuration is valid, but no container would ever move.
#[tokio::test]
async fn settings_that_prevent_every_move_get_a_warning() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let base = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nrebalance: {movesPer100Starts: 10}\n";
        let of = |more: &str| words(&check(&daemon, &format!("{base}{more}"), &[]).unwrap());
        let environment = "warning: line 3: rebalance: with exposeCPUs: environment, the environment of exclusive \
                           containers lists their CPUs, and these never move. Use exposeCPUs: file, which \
                           follows moves, or remove rebalance";
        assert!(of("exposeCPUs: environment\n").contains(environment), "{}", of("exposeCPUs: environment\n"));
        // The warning on an entry for other nodes is below that entry.
        let other = of("nodes:\n- names: [a]\n  exposeCPUs: environment\n");
        let (here, entry) = other.split_once("override on line 5").unwrap();
        assert!(!here.contains("warning") && entry.contains(environment), "{other}");
        for quiet in ["exclusivity: kernel\n", "exposeCPUs: file\n", "nodes: []\n"] {
            assert!(!of(quiet).contains("warning"), "{quiet}");
        }
        let off = base.replace("10}", "10, mode: 'off'}") + "exposeCPUs: environment\n";
        assert!(!check(&daemon, &off, &[]).unwrap().contains("warning"));
        let text = format!("{base}exposeCPUs: environment\n");
        let report: Value =
            serde_json::from_str(&check(&daemon, &text, &["--output", "json"]).unwrap()).unwrap();
        assert_eq!(report["warnings"].as_array().unwrap().len(), 1, "{report}");
    })
    .await;
}

#[tokio::test]
async fn the_json_is_complete_without_a_running_plugin() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let text = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nexclusivity: auto\n";
        let report: Value =
            serde_json::from_str(&check(&daemon, text, &["--output", "json"]).unwrap()).unwrap();
        let expect = json!({
            "version": 1, "file": "new.yaml", "machine": null, "node": null, "applied": [], "overrides": [], "warnings": [],
            "settings": {
                "cpu_manager_policy": "static", "cpu_manager_policy_options": "no options",
                "topology_manager_policy": "none", "topology_manager_policy_options": "no options", "topology_manager_scope": "container", "memory_manager_policy": "None",
                "reserved_cpus": "0-1", "exclusivity": "auto", "strict": false,
                "placement": "kubelet", "isolated_cpus": "exclude", "pod_level_resources": "shared", "cpuset_partition": "root", "mode": "enforce", "expose_cpus": "none", "notice_seconds": 0,
                "exclusive_memory_nodes": "all", "memory_only_nodes": "", "rebalance": "off", "reserved_namespaces": "none", "interrupts": "leave", "compatibility": "none", "log_level": "info", "namespaces": [],
            },
            "outlook": null,
        });
        assert_eq!(report, expect);
        let error = check(&daemon, text, &["--live", "--state-dir", "/nonexistent"]).unwrap_err();
        assert!(error.contains("/nonexistent/status.sock") && error.contains("--state-dir"), "{error}");
        let error = program(&["new.yaml", "--live", "--topology", "epyc-9654"]);
        assert_eq!(error.status.code(), Some(2), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn every_name_in_the_json_is_documented() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        for pod in ["a", "b"] {
            daemon.create(pod, Qos::Guaranteed, 2000).await.unwrap();
        }
        let text = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-3\"\n\
                    namespaces:\n- names: [hpc]\n  allow: {uncore: [prefer]}\n\
                    nodes:\n- names: [other]\n  reservedSystemCPUs: \"0-99\"\n";
        let report = live(&daemon, text, &["--output", "json"]).await.unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        // The report has every part that can have names.
        assert_eq!(report["outlook"]["assignments"][0]["effect"], "moves", "{report}");
        assert!(report["overrides"][0]["error"].is_string(), "{report}");
        let all = names(&report);
        assert!(all.len() > 25, "{all:?}");
        let text = include_str!("../../../docs/configuration.md");
        let (_, text) = text.split_once("\n## JSON of check-config\n").unwrap();
        let missing = undocumented(&all, text.split("\n## ").next().unwrap());
        assert!(missing.is_empty(), "not in docs/configuration.md: {missing:?}");
    })
    .await;
}

/// Files like those of four distributions, with the CPUs of 384 that they reserve.
const OF_KUBELETS: [(&str, &str); 4] = [
    ("kubeadm.yaml", "CPUs 0-1,192-193"),
    ("k3s.yaml", "CPUs none"),
    ("eks.json", "CPU 0"),
    ("gke.yaml", "CPUs 0,192"),
];

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .arg("check-config")
        .args(arguments)
        .env_remove("NODE_NAME")
        .env_remove("NODE_LABELS")
        .output()
        .unwrap()
}

/// Saves a preset with 64 GiB in each NUMA node.
fn save_with_memory(preset: &str, file: &Path) {
    let saved = Command::new(env!("CARGO_BIN_EXE_cpuctl"))
        .args(["topology", "--from", preset, "--save"])
        .arg(file)
        .status()
        .unwrap();
    assert!(saved.success());
    let mut machine: Value = serde_yaml::from_slice(&fs::read(file).unwrap()).unwrap();
    for node in machine["numa_nodes"].as_array_mut().unwrap() {
        node["memory_bytes"] = json!(64u64 << 30);
    }
    fs::write(file, serde_yaml::to_string(&machine).unwrap()).unwrap();
}

#[test]
fn a_kubelets_file_and_the_block_made_of_it_give_the_same_settings() {
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("machine.yaml");
    save_with_memory("epyc-9654", &machine);
    let machine = machine.to_str().unwrap();
    for (name, reserved) in OF_KUBELETS {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kubelet").join(name);
        let file = file.to_str().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let checked = |file: &str| {
            let output = program(&[file, "--topology", machine]);
            assert_eq!((output.status.code(), text(output.stderr)), (Some(0), String::new()));
            text(output.stdout)
        };
        let settings = |report: &str| {
            let (_, settings) = report.split_once("cpuManagerPolicy ").unwrap();
            words(settings.split("\n  warning:").next().unwrap())
        };
        let pasted = checked(file);
        assert!(settings(&pasted).contains(&format!("reserved {reserved},")), "{pasted}");
        let warnings = pasted.lines().filter(|line| line.ends_with(": not used here"));
        assert!(warnings.count() >= 20, "{pasted}");

        let output = program(&["--kubelet", file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let block = text(output.stdout);
        let left_out = text(output.stderr);
        assert!(
            left_out.lines().all(|line| line.starts_with(&format!("{file}, line "))),
            "{left_out}"
        );
        assert_eq!(
            settings(&pasted).contains("memoryManagerPolicy Static"),
            name == "kubeadm.yaml"
        );
        let migrate = "# cpuManagerPolicy: none and topologyManagerPolicy: none";
        assert_eq!(block.contains(migrate), name != "k3s.yaml", "{block}");
        let written = dir.path().join("config.yaml");
        fs::write(&written, &block).unwrap();
        let of_block = checked(written.to_str().unwrap());
        assert_eq!(settings(&of_block), settings(&pasted), "{block}");
        assert!(!of_block.contains("not used"), "{of_block}");
    }
}

#[test]
fn no_block_is_made_of_a_file_with_fields_of_the_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubelet.yaml");
    fs::write(&file, "kind: KubeletConfiguration\nexclusivity: groups\n").unwrap();
    let output = program(&["--kubelet", file.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len(), error.lines().count()), (Some(1), 0, 1));
    assert!(error.contains("kubelet.yaml, line 2: exclusivity: a field of this plugin"), "{error}");
}

#[tokio::test]
async fn unused_fields_of_the_kubelet_get_a_warning_below_their_settings() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let text = "port: 10250\nnodes:\n- names: [a]\n  maxPods: 9\n";
        let warning = |line: &str| format!("  warning: {line}: not used here\n");
        let port = warning("line 1: port");
        let pods = warning("line 4: maxPods");
        for (name, twice) in [("a", true), ("b", false)] {
            let output = check(&daemon, text, &["--node-name", name]).unwrap();
            assert_eq!(output.matches(&port).count(), 1, "{output}");
            assert_eq!(output.matches(&pods).count(), if twice { 2 } else { 1 }, "{output}");
        }
    })
    .await;
}
