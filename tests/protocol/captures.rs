//! What real runtimes sent under real kubelets, played again: one line for each event that the ledger hears.
//!
//! The recordings hold only what the edge reads, with ids cut short. The lines beside them were read through by hand.

use crate::owner::{connect, content};
use crate::runtime::{Generation, Runtime};
use nri_cpu_manager::ledger::{Container, CpuRequest, Event, MilliCpu, Pod};
use nri_cpu_manager::nri::wire::{self, Event as Kind};
use serde_json::Value;
use tokio::io::DuplexStream;

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
    for line in recorded.lines() {
        play(&mut runtime, &serde_json::from_str(line).unwrap()).await;
    }
    let heard: String = plugin.log.events().iter().map(|event| line(event) + "\n").collect();
    assert!(heard == expected, "expected:\n{expected}\nheard:\n{heard}");
}

async fn play(runtime: &mut Runtime<DuplexStream>, recorded: &Value) {
    let pod = pod(&recorded["pod"]);
    let container = recorded.get("container").map(container);
    let created = || container.clone().expect("a container");
    let resources = Some(resources(&recorded["cpu"]));
    match text(&recorded["event"]) {
        "Configure" => {
            let request = wire::ConfigureRequest {
                runtime_name: text(&recorded["runtime"]).into(),
                runtime_version: text(&recorded["version"]).into(),
                ..Default::default()
            };
            runtime.call::<wire::ConfigureResponse>("Configure", &request).await.unwrap();
        }
        "CreateContainer" => drop(runtime.create(&pod, &created()).await.unwrap()),
        "StopContainer" => drop(runtime.stop(&pod, &created()).await.unwrap()),
        "UpdateContainer" => {
            let request = wire::UpdateContainerRequest {
                pod: Some(pod).into(),
                container: container.into(),
                linux_resources: resources.into(),
                ..Default::default()
            };
            runtime
                .call::<wire::UpdateContainerResponse>("UpdateContainer", &request)
                .await
                .unwrap();
        }
        "UpdatePodSandbox" => {
            let request = wire::UpdatePodSandboxRequest {
                pod: Some(pod).into(),
                linux_resources: resources.into(),
                ..Default::default()
            };
            runtime.call::<wire::Empty>("UpdatePodSandbox", &request).await.unwrap();
        }
        name => {
            let event = match name {
                "RunPodSandbox" => Kind::RUN_POD_SANDBOX,
                "StopPodSandbox" => Kind::STOP_POD_SANDBOX,
                "RemovePodSandbox" => Kind::REMOVE_POD_SANDBOX,
                "PostStartContainer" => Kind::POST_START_CONTAINER,
                "RemoveContainer" => Kind::REMOVE_CONTAINER,
                name => panic!("{name} is in no recording"),
            };
            runtime.tell(event, &pod, container.as_ref()).await.unwrap();
        }
    }
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
