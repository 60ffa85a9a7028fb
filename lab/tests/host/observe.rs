//! The plugin's output with real containerd: metrics and alert rules, checked by Prometheus' parser
//! (`promtool` of Debian's package), and `status` and `explain` as run on the node.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bench::{Bench, exclusive, shared};
use crate::support::binaries;
use lab::cgroup;
use lab::containerd::Version;
use lab::debian::Debian;
use lab::plugin::PluginSetup;

fn promtool() -> PathBuf {
    Debian::new().unwrap().unpacked("prometheus", "bookworm").unwrap().join("usr/bin/promtool")
}

fn get(path: &str) -> (String, String) {
    let answer = lab::plugin::fetch(path).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn prometheus_parses_the_metrics() {
    let promtool = promtool();
    let mut bench = Bench::new(Version::V2_1);
    let _plugin = bench.plugin();
    bench.run(&shared("web"));
    bench.run(&exclusive("db"));
    let (status, text) = get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    println!("{text}");
    for sample in [
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 1\n",
        "nri_cpu_manager_containers{state=\"exclusive\"} 1\n",
        "nri_cpu_manager_decisions_total{outcome=\"shared\"} 1\n",
        "nri_cpu_manager_synchronized 1\n",
        "nri_cpu_manager_runtime_info{name=\"containerd\"",
    ] {
        assert!(text.contains(sample), "no {sample} in\n{text}");
    }
    let mut check = Command::new(promtool);
    let mut check = check
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let complaints =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    println!("{complaints}");
    // 3 means style; only the kubelet's metric names, which are given, may have such messages.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{complaints}");
    let ours: Vec<&str> = complaints
        .lines()
        .filter(|line| !line.starts_with("kubelet_") && !line.starts_with("resource_manager_"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert_eq!(get("/readyz"), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    assert_eq!(get("/healthz"), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
}

#[test]
fn prometheus_accepts_the_alert_rules() {
    let promtool = promtool();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/prometheus");
    assert!(File::open(rules.join("rules.yaml")).is_ok());
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]] {
        let mut check = Command::new(&promtool);
        let output = check.args(arguments).current_dir(&rules).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

/// Output of a command of the plugin.
fn ask(setup: &PluginSetup, arguments: &[&str]) -> String {
    let state = setup.directory.join("state");
    let mut command = Command::new(&binaries().plugin);
    let output = command.args(arguments).arg("--state-dir").arg(state).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    println!("$ nri-cpu-manager {}\n{text}", arguments.join(" "));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// One admitted, one refused, and one changed by another program.
#[test]
fn status_and_explain() {
    let mut bench = Bench::new(Version::V2_1);
    let (setup, mut plugin) = bench.plugin_setup();
    bench.run(&shared("web"));
    bench.run(&exclusive("db"));
    bench.host.node.run(&exclusive("late")).unwrap_err();
    let (online, reserved, own) = (bench.online(), bench.reserved(), bench.assignable());
    has(
        &ask(&setup, &["explain", "db"]),
        &[
            &format!("/db/main: exclusive, CPU {own}\n"),
            &format!("Free at that time: 1 CPU ({own})."),
        ],
    );
    has(&ask(&setup, &["explain", "late"]), &["/late/main: refused\n", "UnexpectedAdmissionError"]);

    let web = bench.host.node.pods().iter().find(|running| running.pod.name == "web").unwrap();
    let group = cgroup::of_process(web.containers[0].pid, "cpuset").unwrap();
    fs::write(group.join("cpuset.cpus"), online.to_string()).unwrap();
    let drift = format!("but its cgroup has CPUs {online} set");
    plugin.wait_for(&drift, 1, Duration::from_secs(30)).unwrap();
    // Repaired, and not changed again since.
    let repaired = get("/metrics").1;
    has(&repaired, &["nri_cpu_manager_drifting_containers 0\n"]);
    has(&repaired, &["drift_repairs_total{action=\"written\",kind=\"cpuset\"} 1\n"]);
    assert_eq!(bench.allowed("web"), reserved);
    has(
        &ask(&setup, &["explain", "web"]),
        &[
            &format!("/web/main: shared, {}\n", wording::cpus(reserved)),
            &format!("{drift}: set again"),
        ],
    );
    let text = ask(&setup, &["status"]);
    has(&text, &["ready:    yes", "containerd", "/db/main", "/late/main: refused", "troubles"]);
    has(&ask(&setup, &["status", "--output", "json"]), &["\"version\": 1", "\"ready\": true"]);

    bench.host.node.kill_runtime().unwrap();
    plugin.wait_for("closed the connection", 1, Duration::from_secs(10)).unwrap();
    has(&ask(&setup, &["status"]), &["ready:    no, the runtime is not connected"]);
    assert!(get("/readyz").0.contains("503"));
    assert!(get("/healthz").0.contains("200"));
    bench.host.node.restart_runtime().unwrap();
    plugin.wait_for_synchronisation(2, Duration::from_secs(10)).unwrap();
    has(
        &ask(&setup, &["explain", "db"]),
        &[&format!("exclusive, CPU {own}"), "found running, keeps exclusive"],
    );
    has(&get("/metrics").1, &["nri_cpu_manager_reconnects_total 1\n"]);
}
