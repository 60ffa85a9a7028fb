//! Recorded calls, as a generation of the protocol makes them.

use crate::runtime::Generation;
use nri::wire::{self, Event as Kind};
use protobuf::MessageField;
use serde_json::Value;
use std::time::Duration;

/// A line of a recording.
pub(super) struct Recorded(Value);

impl Recorded {
    /// The calls of a recording, in the order in which they were made.
    pub(super) fn all(recording: &str) -> Vec<Recorded> {
        recording.lines().map(|line| Recorded(serde_json::from_str(line).unwrap())).collect()
    }

    /// The time of the call since the first one.
    pub(super) fn at(&self) -> Duration {
        Duration::from_millis(self.0["ms"].as_u64().unwrap())
    }

    /// The name of the call that NRI 0.12 makes.
    pub(super) fn name(&self) -> &str {
        text(&self.0["event"])
    }

    /// The event that the call reports; `None` for the handshake.
    pub(super) fn kind(&self) -> Option<Kind> {
        Some(match self.name() {
            "Configure" | "Synchronize" => return None,
            "RunPodSandbox" => Kind::RUN_POD_SANDBOX,
            "UpdatePodSandbox" => Kind::UPDATE_POD_SANDBOX,
            "PostUpdatePodSandbox" => Kind::POST_UPDATE_POD_SANDBOX,
            "StopPodSandbox" => Kind::STOP_POD_SANDBOX,
            "RemovePodSandbox" => Kind::REMOVE_POD_SANDBOX,
            "CreateContainer" => Kind::CREATE_CONTAINER,
            "PostCreateContainer" => Kind::POST_CREATE_CONTAINER,
            "StartContainer" => Kind::START_CONTAINER,
            "PostStartContainer" => Kind::POST_START_CONTAINER,
            "UpdateContainer" => Kind::UPDATE_CONTAINER,
            "PostUpdateContainer" => Kind::POST_UPDATE_CONTAINER,
            "StopContainer" => Kind::STOP_CONTAINER,
            "RemoveContainer" => Kind::REMOVE_CONTAINER,
            name => panic!("{name} is in no recording"),
        })
    }

    pub(super) fn pod(&self) -> wire::PodSandbox {
        pod(&self.0["pod"])
    }

    /// `None` for the handshake and for events of pods.
    pub(super) fn container(&self) -> Option<wire::Container> {
        self.0.get("container").map(container)
    }

    /// Method and payload, with the container as the runtime knows it.
    pub(super) fn call(
        &self,
        generation: Generation,
        container: Option<wire::Container>,
    ) -> (&str, Vec<u8>) {
        let pod = || MessageField::some(self.pod());
        let container = MessageField::from_option(container);
        let linux_resources = || MessageField::some(resources(&self.0["cpu"]));
        let Some(kind) = self.kind() else { return (self.name(), self.handshake(generation)) };
        let payload = match kind {
            Kind::UPDATE_CONTAINER => bytes(&wire::UpdateContainerRequest {
                pod: pod(),
                container,
                linux_resources: linux_resources(),
                ..Default::default()
            }),
            Kind::UPDATE_POD_SANDBOX => bytes(&wire::UpdatePodSandboxRequest {
                pod: pod(),
                linux_resources: linux_resources(),
                ..Default::default()
            }),
            kind if generation == Generation::V0_12 || has_own_call(kind) => {
                // Without a container these are the bytes of a `PodRequest` too.
                bytes(&wire::ContainerRequest { pod: pod(), container, ..Default::default() })
            }
            kind => {
                let change = wire::StateChangeEvent {
                    event: kind.into(),
                    pod: pod(),
                    container,
                    ..Default::default()
                };
                return ("StateChange", bytes(&change));
            }
        };
        (self.name(), payload)
    }

    /// Time limits and the version of NRI were not recorded: they are the generation's.
    fn handshake(&self, generation: Generation) -> Vec<u8> {
        if self.name() == "Configure" {
            return bytes(&wire::ConfigureRequest {
                runtime_name: text(&self.0["runtime"]).into(),
                runtime_version: text(&self.0["version"]).into(),
                ..generation.configure()
            });
        }
        let list = |name| self.0[name].as_array().into_iter().flatten();
        bytes(&wire::SynchronizeRequest {
            pods: list("pods").map(pod).collect(),
            containers: list("containers").map(container).collect(),
            ..Default::default()
        })
    }
}

/// Whether the event had its own call before NRI 0.12, too, instead of a `StateChange`.
fn has_own_call(kind: Kind) -> bool {
    matches!(kind, Kind::CREATE_CONTAINER | Kind::STOP_CONTAINER)
}

fn bytes(message: &impl protobuf::Message) -> Vec<u8> {
    message.write_to_bytes().unwrap()
}

fn pod(recorded: &Value) -> wire::PodSandbox {
    wire::PodSandbox {
        id: text(&recorded["id"]).into(),
        name: text(&recorded["name"]).into(),
        uid: text(&recorded["uid"]).into(),
        namespace: text(&recorded["namespace"]).into(),
        annotations: map(&recorded["annotations"]),
        linux: MessageField::some(wire::LinuxPodSandbox {
            cgroup_parent: text(&recorded["cgroup_parent"]).into(),
            pod_resources: MessageField::some(resources(&recorded["cpu"])),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container(recorded: &Value) -> wire::Container {
    wire::Container {
        id: text(&recorded["id"]).into(),
        pod_sandbox_id: text(&recorded["sandbox"]).into(),
        name: text(&recorded["name"]).into(),
        labels: map(&recorded["labels"]),
        annotations: map(&recorded["annotations"]),
        linux: MessageField::some(wire::LinuxContainer {
            resources: MessageField::some(resources(&recorded["cpu"])),
            cgroups_path: text(&recorded["cgroups_path"]).into(),
            ..Default::default()
        }),
        created_at: recorded["created_at"].as_i64().unwrap_or_default(),
        ..Default::default()
    }
}

fn resources(recorded: &Value) -> wire::LinuxResources {
    let unsigned = |value: &Value| {
        value.as_u64().map(|value| wire::OptionalUInt64 { value, ..Default::default() })
    };
    let quota = recorded["quota"].as_i64();
    let quota = quota.map(|value| wire::OptionalInt64 { value, ..Default::default() });
    let cpu = wire::LinuxCPU {
        shares: unsigned(&recorded["shares"]).into(),
        quota: quota.into(),
        period: unsigned(&recorded["period"]).into(),
        ..Default::default()
    };
    wire::LinuxResources { cpu: MessageField::some(cpu), ..Default::default() }
}

fn map(recorded: &Value) -> std::collections::HashMap<String, String> {
    let entries = recorded.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
