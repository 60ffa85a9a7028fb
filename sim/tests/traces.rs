//! Everything that real runtimes, kubelets and systemd do in recordings, their models can do as well.
//!
//! `traces` has recordings of the lab's storms, `tests/protocol/captures` those of real kubelets.

#![allow(clippy::expect_used, reason = "a test that cannot run fails")]

use serde_json::Value;
use sim::history::{Action, History};
use sim::lives::Lives;
use std::ops::Range;
use std::sync::OnceLock;

/// The name and version of a runtime, and the NRI version that it sends.
type Runtime = (&'static str, &'static str, &'static str);

const CONTAINERD_1_7: Runtime = ("containerd", "v1.7.24", "");
const CONTAINERD_2_1: Runtime = ("containerd", "v2.1.9", "");
const CONTAINERD_2_4: Runtime = ("containerd", "v2.4.0", "v0.12.3");
const CRIO_1_36: Runtime = ("cri-o", "1.36.3", "");

/// The model's lives. Every second history has as many lost connections as a storm of the lab.
fn model(runtime: Runtime, seeds: Range<u64>) -> Lives {
    let mut lives = Lives::default();
    for seed in seeds {
        let mut history = History::roll(seed);
        history.settings.runtime = runtime;
        if seed.is_multiple_of(2) {
            for (number, op) in history.ops.iter_mut().enumerate().skip(2).step_by(3) {
                op.action = match number / 3 % 3 {
                    0 => Action::RestartRuntime,
                    1 => Action::KillPlugin,
                    _ => Action::DropConnection,
                };
            }
        }
        let recording = history.recorded();
        lives.extend(Lives::of(recording.iter().map(String::as_str)));
    }
    lives
}

fn containerd() -> &'static Lives {
    static MODEL: OnceLock<Lives> = OnceLock::new();
    MODEL.get_or_init(|| {
        let newer = std::thread::spawn(|| model(CONTAINERD_2_1, 400..700));
        let mut lives = model(CONTAINERD_1_7, 0..400);
        lives.extend(newer.join().expect("histories end"));
        lives
    })
}

fn check(model: &Lives, recorded: &Lives) {
    let refused = model.refuse(recorded);
    assert!(!recorded.sequences.is_empty());
    println!("{} lives, {} refused", recorded.sequences.len(), refused.len());
    assert!(refused.is_empty(), "the model cannot do this:\n{}", refused.join("\n"));
}

macro_rules! storms {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let text = include_str!(concat!("traces/", stringify!($name), ".trace"));
            check(containerd(), &Lives::of(text.lines()));
        }
    )*};
}

mod the_model_does_everything_in_the_storm_of {
    use super::{Lives, check, containerd};

    storms! {
        containerd_1_7 containerd_2_1 containerd_1_7_restarts containerd_2_1_restarts
        containerd_1_7_systemd containerd_2_1_systemd
    }
}

/// The model resizes containers of Guaranteed pods only.
const KNOWN_GAPS: [&str; 3] = ["UpdateContainer ", "UpdatePodSandbox ", "PostUpdateContainer "];

/// The recording plugin changed nothing, so recorded containers have only the kubelet's resources.
fn check_captured(model: &Lives, name: &str) {
    let mut model = model.clone();
    for description in model.descriptions.clone() {
        if let Some((start, resources)) = description.rsplit_once(' ') {
            let resources = resources.replace(['c', 'm'], "").replace('u', "q");
            model.descriptions.insert(format!("{start} {resources}"));
        }
    }
    let mut recorded = captured(name);
    let is_gap = |what: &str| KNOWN_GAPS.iter().any(|gap| what.starts_with(gap));
    recorded.descriptions.retain(|text| !(text.contains("burstable") && is_gap(text)));
    check(&model, &recorded);
}

fn captured(name: &str) -> Lives {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/protocol/captures/");
    let text = std::fs::read_to_string(format!("{directory}{name}.jsonl")).expect("a recording");
    let calls = text.lines().map(|line| call(&serde_json::from_str(line).expect("JSON")));
    let lines: Vec<String> = calls.collect();
    Lives::of(lines.iter().map(String::as_str))
}

/// A call of these recordings as the lab would record it.
fn call(call: &Value) -> String {
    let mut line = text(&call["event"]).to_owned();
    for pod in call.get("pod").into_iter().chain(call["pods"].as_array().into_iter().flatten()) {
        let parent = text(&pod["cgroup_parent"]).replace(text(&pod["uid"]), "UID");
        let parent = parent.replace(&text(&pod["uid"]).replace('-', "_"), "UID");
        line += &format!("; s{} {parent} {}", text(&pod["id"]), letters(&pod["cpu"]));
    }
    let listed = call["containers"].as_array().into_iter().flatten();
    for container in call.get("container").into_iter().chain(listed) {
        let id = text(&container["id"]);
        let uid = &container["labels"]["io.kubernetes.pod.uid"];
        let path = text(&container["cgroups_path"]).replace(id, "ID").replace(text(uid), "UID");
        let sandbox = text(&container["sandbox"]);
        line += &format!("; c{id} s{sandbox} {path} {}", letters(&container["cpu"]));
    }
    if let Some(wanted) = call.get("cpu") {
        line += &format!("; to {}", letters(wanted));
    }
    line
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn letters(cpu: &Value) -> String {
    let mut letters = String::from("s");
    letters += if cpu["quota"].as_i64().unwrap_or_default() > 0 { "q" } else { "" };
    letters
}

#[test]
fn the_model_does_everything_that_containerd_2_1_does_under_a_kubelet() {
    check_captured(containerd(), "containerd-2.1");
}

#[test]
fn the_model_does_everything_that_containerd_2_4_does_under_kubernetes() {
    check_captured(&model(CONTAINERD_2_4, 0..300), "containerd-2.4");
}

#[test]
fn the_model_does_everything_that_crio_1_36_does_under_a_kubelet() {
    check_captured(&model(CRIO_1_36, 0..40), "crio-1.36");
}

#[test]
fn calls_that_no_runtime_makes_are_refused() {
    let pod = "s1 /kubepods/podUID sq";
    let container = "c1 s1 /kubepods/podUID/ID sq";
    let run = format!("RunPodSandbox; {pod}");
    let [create, stop, remove] = ["CreateContainer", "StopContainer", "RemoveContainer"]
        .map(|event| format!("{event}; {pod}; {container}"));
    let refused =
        |calls: &[&String]| containerd().refuse(&Lives::of(calls.iter().map(|call| call.as_str())));
    assert_eq!(refused(&[&run, &create, &stop, &remove]), Vec::<String>::new());
    assert_eq!(
        refused(&[&run, &stop, &create]).last().map(String::as_str),
        Some("life: RunPodSandbox StopContainer | CreateContainer")
    );
    assert!(!refused(&[&create, &run, &stop]).is_empty());
    assert!(!refused(&[&run, &create, &remove]).is_empty());
    let alone = format!("{}; c1 s1 /kubepods/podUID/ID u", "CreateContainer; s1");
    assert!(!refused(&[&run, &alone]).is_empty());
}
