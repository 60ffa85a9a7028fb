//! What real runtimes sent under real kubelets, played again: one line for each event that the ledger hears.
//!
//! The recordings hold only what the edge reads, with ids cut short. The lines beside them were read through by hand.

use crate::fuzz_calls;
use crate::go::Message;
use crate::owner::{connect, content};
use crate::runtime::{Generation, PLUGIN, call_name, frame};
use nri_cpu_manager::ledger::{Container, CpuRequest, Event, MilliCpu, Pod};
use nri_cpu_manager::nri::wire::{self, Event as Kind};
use protobuf::{Message as _, MessageField};
use serde_json::Value;
use std::path::Path;
use ttrpc::proto::Request;

#[tokio::test(start_paused = true)]
async fn containerd_2_1() {
    let recorded = include_str!("captures/containerd-2.1.jsonl");
    check(Generation::V0_8, recorded, include_str!("captures/containerd-2.1.txt")).await;
}

#[tokio::test(start_paused = true)]
async fn crio_1_36() {
    let recorded = include_str!("captures/crio-1.36.jsonl");
    check(Generation::V0_10, recorded, include_str!("captures/crio-1.36.txt")).await;
}

/// With resizes of a Guaranteed and a Burstable pod in place, and a container that crashes again and again.
#[tokio::test(start_paused = true)]
async fn containerd_2_4() {
    let recorded = include_str!("captures/containerd-2.4.jsonl");
    check(Generation::V0_12, recorded, include_str!("captures/containerd-2.4.txt")).await;
}

async fn check(generation: Generation, recorded: &str, expected: &str) {
    let (mut runtime, plugin) = connect(generation, content);
    runtime.registration().await;
    for (method, payload) in calls(generation, recorded) {
        let stream = runtime.send(method, &payload).await;
        runtime.reply(stream).await.unwrap();
    }
    let heard: String = plugin.log.events().iter().map(|event| line(event) + "\n").collect();
    assert!(heard == expected, "expected:\n{expected}\nheard:\n{heard}");
}

/// The calls of a recording, as this generation made them.
fn calls(generation: Generation, recorded: &str) -> Vec<(&str, Vec<u8>)> {
    recorded.lines().map(|line| call(generation, &serde_json::from_str(line).unwrap())).collect()
}

fn call(generation: Generation, recorded: &Value) -> (&'static str, Vec<u8>) {
    let pod: MessageField<_> = Some(pod(&recorded["pod"])).into();
    let container: MessageField<_> = recorded.get("container").map(container).into();
    let resources: MessageField<_> = Some(resources(&recorded["cpu"])).into();
    let event = match text(&recorded["event"]) {
        "Configure" => {
            let request = wire::ConfigureRequest {
                runtime_name: text(&recorded["runtime"]).into(),
                runtime_version: text(&recorded["version"]).into(),
                ..Default::default()
            };
            return ("Configure", request.write_to_bytes().unwrap());
        }
        name @ ("CreateContainer" | "StopContainer") => {
            let request = wire::ContainerRequest { pod, container, ..Default::default() };
            let method = if name == "StopContainer" { "StopContainer" } else { "CreateContainer" };
            return (method, request.write_to_bytes().unwrap());
        }
        "UpdateContainer" => {
            let request = wire::UpdateContainerRequest {
                pod,
                container,
                linux_resources: resources,
                ..Default::default()
            };
            return ("UpdateContainer", request.write_to_bytes().unwrap());
        }
        "UpdatePodSandbox" => {
            let request = wire::UpdatePodSandboxRequest {
                pod,
                linux_resources: resources,
                ..Default::default()
            };
            return ("UpdatePodSandbox", request.write_to_bytes().unwrap());
        }
        "RunPodSandbox" => Kind::RUN_POD_SANDBOX,
        "StopPodSandbox" => Kind::STOP_POD_SANDBOX,
        "RemovePodSandbox" => Kind::REMOVE_POD_SANDBOX,
        "PostStartContainer" => Kind::POST_START_CONTAINER,
        "RemoveContainer" => Kind::REMOVE_CONTAINER,
        name => panic!("{name} is in no recording"),
    };
    if generation == Generation::V0_12 {
        // Of requests without a container these are the bytes of a `PodRequest` too.
        let request = wire::ContainerRequest { pod, container, ..Default::default() };
        return (call_name(event), request.write_to_bytes().unwrap());
    }
    let change =
        wire::StateChangeEvent { event: event.into(), pod, container, ..Default::default() };
    ("StateChange", change.write_to_bytes().unwrap())
}

/// The fuzzers start from what real runtimes sent. With `WRITE_SEEDS` in the environment this writes the seeds, without
/// it checks that they are there and are still these.
#[test]
fn seeds_of_the_fuzzers() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, generation, recorded) in [
        ("containerd-2.1", Generation::V0_8, include_str!("captures/containerd-2.1.jsonl")),
        ("crio-1.36", Generation::V0_10, include_str!("captures/crio-1.36.jsonl")),
        ("containerd-2.4", Generation::V0_12, include_str!("captures/containerd-2.4.jsonl")),
    ] {
        // Short ones are tried more often and bent more easily.
        for (part, calls) in calls(generation, recorded).chunks(8).enumerate() {
            let (mut records, mut frames) = (Vec::new(), Vec::new());
            for (index, (method, payload)) in calls.iter().enumerate() {
                fuzz_calls::encode(&mut records, method, payload);
                let stream = 2 * u32::try_from(index).unwrap() + 1;
                let message = Message { stream, kind: 1, payload: request(method, payload) };
                frames.extend(frame(PLUGIN, &message.bytes()));
            }
            seed(&corpus.join(format!("ttrpc/{name}-{part}")), &records);
            seed(&corpus.join(format!("mux/{name}-{part}")), &frames);
        }
    }
}

fn seed(path: &Path, bytes: &[u8]) {
    if std::env::var_os("WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    // The entries of a map have no order.
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    let found = std::fs::read(path).unwrap_or_default();
    let same = sorted(&found) == sorted(bytes);
    assert!(same, "{} is not what was recorded: set WRITE_SEEDS", path.display());
}

fn request(method: &str, payload: &[u8]) -> Vec<u8> {
    let mut request = Request::new();
    request.service = "nri.pkg.api.v1alpha1.Plugin".into();
    request.method = method.into();
    request.payload = payload.to_vec();
    request.timeout_nano = 1_990_000_000;
    request.write_to_bytes().unwrap()
}

fn pod(recorded: &Value) -> wire::PodSandbox {
    wire::PodSandbox {
        id: text(&recorded["id"]).into(),
        name: text(&recorded["name"]).into(),
        uid: text(&recorded["uid"]).into(),
        namespace: text(&recorded["namespace"]).into(),
        linux: Some(wire::LinuxPodSandbox {
            cgroup_parent: text(&recorded["cgroup_parent"]).into(),
            pod_resources: Some(resources(&recorded["cpu"])).into(),
            ..Default::default()
        })
        .into(),
        ..Default::default()
    }
}

fn container(recorded: &Value) -> wire::Container {
    let map = |value: &Value| {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
    };
    wire::Container {
        id: text(&recorded["id"]).into(),
        pod_sandbox_id: text(&recorded["sandbox"]).into(),
        name: text(&recorded["name"]).into(),
        labels: map(&recorded["labels"]),
        annotations: map(&recorded["annotations"]),
        linux: Some(wire::LinuxContainer {
            resources: Some(resources(&recorded["cpu"])).into(),
            ..Default::default()
        })
        .into(),
        created_at: recorded["created_at"].as_i64().unwrap_or_default(),
        ..Default::default()
    }
}

fn resources(recorded: &Value) -> wire::LinuxResources {
    let unsigned = |value: &Value| {
        value.as_u64().map(|value| wire::OptionalUInt64 { value, ..Default::default() })
    };
    let quota =
        recorded["quota"].as_i64().map(|value| wire::OptionalInt64 { value, ..Default::default() });
    let cpu = wire::LinuxCPU {
        shares: unsigned(&recorded["shares"]).into(),
        quota: quota.into(),
        period: unsigned(&recorded["period"]).into(),
        cpus: text(&recorded["cpus"]).into(),
        ..Default::default()
    };
    wire::LinuxResources { cpu: Some(cpu).into(), ..Default::default() }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// An event as a person would tell it. CPU time is request/limit.
fn line(event: &Event) -> String {
    match event {
        Event::RunPod(pod) => {
            format!("pod     {} {:?} budget {}", name(pod), pod.qos, told(pod.budget))
        }
        Event::UpdatePod(pod) => format!("resize  {} to {}", name(pod), told(pod.budget)),
        Event::Create { pod, container } => {
            format!("create  {} {}", of(pod, container), cpu(container.cpu))
        }
        Event::Starting { pod, container } => format!("starts  {}", of(pod, container)),
        Event::Started { pod, container } => format!("started {}", of(pod, container)),
        Event::Update { pod, container, wanted } => {
            let quota = if wanted.sets_quota { " with quota" } else { "" };
            let (before, after) = (cpu(container.cpu), cpu(wanted.cpu));
            format!("update  {} {before} to {after}{quota}", of(pod, container))
        }
        Event::Stop(id) => format!("stop    {id}"),
        Event::Remove(id) => format!("remove  {id}"),
        Event::StopPod(id) => format!("stop pod {id}"),
        Event::RemovePod(id) => format!("remove pod {id}"),
        Event::Synchronize { .. } => "synchronize".to_owned(),
        Event::Kubelet { stance, .. } => format!("kubelet {stance:?}"),
        Event::Machine(machine) => format!("online  {}", machine.online()),
        Event::Settings(settings) => format!("settings {settings}"),
    }
}

fn name(pod: &Pod) -> String {
    let uid: String = pod.uid.0.chars().take(8).collect();
    format!("{}/{} ({} {uid})", pod.namespace, pod.name, pod.sandbox)
}

fn of(pod: &Pod, container: &Container) -> String {
    assert_eq!(pod.sandbox, container.sandbox);
    format!("{}/{} {:?}: {} {}", pod.namespace, pod.name, pod.qos, container.name, container.id)
}

fn cpu(cpu: CpuRequest) -> String {
    format!("{}/{}", told(cpu.request), told(cpu.limit))
}

fn told(milli: Option<MilliCpu>) -> String {
    milli.map_or_else(|| "-".to_owned(), |milli| milli.to_string())
}
