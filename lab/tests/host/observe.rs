//! The plugin's output with real containerd: metrics and alert rules, checked by Prometheus' parser
//! (`promtool` of Debian's package).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::{Bench, exclusive, shared};
use image::Platform;
use lab::containerd::Version;
use lab::debian;

fn promtool() -> PathBuf {
    let root = debian::unpacked(&["prometheus"], "bookworm", Platform::HERE).unwrap();
    root.join("usr/bin/promtool")
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

/// Grafana shows a panel with an invalid query empty, with a small sign.
#[test]
fn prometheus_accepts_the_dashboards_queries() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/grafana/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_reader(File::open(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    // promtool reads queries only in rules.
    let rules: Vec<serde_json::Value> = targets
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "5m"))
        .enumerate()
        .map(|(at, query)| serde_json::json!({"record": format!("query:{at}"), "expr": query}))
        .collect();
    assert!(rules.len() > 20, "only {} queries found", rules.len());
    let rules = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    serde_json::to_writer(File::create(&file).unwrap(), &rules).unwrap();
    let output = Command::new(promtool()).args(["check", "rules"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
