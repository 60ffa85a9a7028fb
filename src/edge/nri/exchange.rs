//! What a call of the runtime asks, and how the answer is written: pure, without a connection.

use super::projection::parse;
use super::rpc::status;
use super::wire::{self, Event as EventType};
use super::{incoming, outgoing};
use crate::edge::Response;
use cpuset::CpuSet;
use ledger::{Admission, Call, Container, ContainerId, Event, Pod, SandboxId, Update};
use ttrpc::proto::{Code, Status};

/// The most pods and containers in a synchronisation, far more than a node can hold.
const MAX_LISTED: usize = 1 << 16;
/// The most bytes of them that the plugin reads: some thousand containers have one MiB, and a byte
/// takes up to four of memory.
const MAX_LISTED_BYTES: u64 = 8 << 20;

/// What a call asks.
#[derive(Debug)]
pub enum Asked {
    Call(Call, AnswerKind),
    /// Whether a container may have these CPUs, see [`validated`].
    Validate(ContainerId, Option<CpuSet>),
    /// Nothing, but it shows that the runtime has made the updates of the last answer. The answer is
    /// empty.
    WentOn,
    /// Nothing: this is the answer.
    Nothing(Vec<u8>),
}

/// The message that answers a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerKind {
    Synchronize,
    Create(ContainerId),
    Update,
    Stop,
    Empty,
}

/// The calls of one connection, without those about the connection itself.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The parts of a synchronisation so far.
    pods: Vec<Pod>,
    containers: Vec<Container>,
    listed_bytes: u64,
}

impl Exchange {
    /// # Errors
    /// The answer to a call that is malformed or not known.
    pub fn decode(&mut self, method: &str, payload: &[u8]) -> Result<Asked, Status> {
        match method {
            "Synchronize" => self.synchronize(read(payload)?),
            "CreateContainer" => create(read(payload)?),
            "UpdateContainer" => update(read(payload)?),
            "UpdatePodSandbox" => update_pod(read(payload)?),
            "ValidateContainerAdjustment" => validate(&read(payload)?),
            "StateChange" => {
                let change: wire::StateChangeEvent = read(payload)?;
                let kind = change.event.enum_value().unwrap_or(EventType::UNKNOWN);
                lifecycle(kind, &change.pod, &change.container)
            }
            method => match event_type(method) {
                Some(kind) if method.ends_with("PodSandbox") => {
                    let request: wire::PodRequest = read(payload)?;
                    lifecycle(kind, &request.pod, &wire::Container::new())
                }
                Some(kind) => {
                    let request: wire::ContainerRequest = read(payload)?;
                    lifecycle(kind, &request.pod, &request.container)
                }
                // On this code only, a runtime since NRI 0.12 repeats the call as `StateChange`.
                None => Err(status(Code::UNIMPLEMENTED, format!("unknown call {method:?}"))),
            },
        }
    }

    fn synchronize(&mut self, part: wire::SynchronizeRequest) -> Result<Asked, Status> {
        let listed = self.pods.len() + self.containers.len();
        self.listed_bytes =
            self.listed_bytes.saturating_add(protobuf::Message::compute_size(&part));
        let is_long = listed + part.pods.len() + part.containers.len() > MAX_LISTED;
        if is_long || self.listed_bytes > MAX_LISTED_BYTES {
            // Also of all parts that follow: a list without some containers would end those.
            let error = format!(
                "the list has more than {MAX_LISTED} pods and containers, or more than {} MiB of names",
                MAX_LISTED_BYTES >> 20
            );
            log::error!("synchronisation: {error}");
            return Err(status(Code::RESOURCE_EXHAUSTED, error));
        }
        self.pods.extend(part.pods.iter().map(|pod| incoming::pod(pod, None)));
        // A container may come before its pod, so its own fields have to name the sandbox.
        let unknown = wire::PodSandbox::new();
        self.containers.extend(part.containers.iter().map(|c| incoming::container(c, &unknown)));
        if part.more {
            let more = wire::SynchronizeResponse { more: true, ..Default::default() };
            return Ok(Asked::Nothing(encode(&more)?));
        }
        self.listed_bytes = 0;
        let mut pods = std::mem::take(&mut self.pods);
        let mut containers = std::mem::take(&mut self.containers);
        let listed = pods.len() + containers.len();
        // A change needs an id.
        pods.retain(|pod| !pod.sandbox.0.is_empty());
        containers.retain(|container| !container.id.0.is_empty());
        if let ignored @ 1.. = listed - pods.len() - containers.len() {
            log::warn!("ignoring {ignored} listed pods and containers without an id");
        }
        asks(Event::Synchronize { pods, containers }, AnswerKind::Synchronize)
    }
}

fn create(request: wire::ContainerRequest) -> Result<Asked, Status> {
    let Some(id) = id(&request.container) else { return Err(unnamed()) };
    let (pod, container) = incoming::pod_and_container(&request.pod, &request.container);
    asks(Admission::Create { pod, container }, AnswerKind::Create(id))
}

fn validate(request: &wire::ValidateContainerAdjustmentRequest) -> Result<Asked, Status> {
    let Some(container) = id(&request.container) else { return Err(unnamed()) };
    Ok(Asked::Validate(container, incoming::final_cpus(&request.container, &request.adjust)))
}

fn update(request: wire::UpdateContainerRequest) -> Result<Asked, Status> {
    if id(&request.container).is_none() {
        return Err(unnamed());
    }
    let (pod, container) = incoming::pod_and_container(&request.pod, &request.container);
    let wanted = incoming::wanted(&request.linux_resources, &request.container);
    asks(Admission::Update { pod, container, wanted }, AnswerKind::Update)
}

/// The pod of the event has the new budget.
fn update_pod(request: wire::UpdatePodSandboxRequest) -> Result<Asked, Status> {
    if request.pod.id.is_empty() {
        return nothing();
    }
    let mut pod = incoming::pod(&request.pod, None);
    pod.budget = request.linux_resources.cpu.as_ref().and_then(incoming::budget);
    asks(Event::UpdatePod(pod), AnswerKind::Empty)
}

/// An event with pod and container only, from either form of call. Events about an end use the
/// id alone, as other fields may be missing.
fn lifecycle(
    kind: EventType,
    pod: &wire::PodSandbox,
    container: &wire::Container,
) -> Result<Asked, Status> {
    let sandbox = if pod.id.is_empty() { None } else { Some(SandboxId(pod.id.clone())) };
    let id = id(container);
    let event = match kind {
        EventType::RUN_POD_SANDBOX => sandbox.map(|_| Event::RunPod(incoming::pod(pod, None))),
        EventType::STOP_POD_SANDBOX => sandbox.map(Event::StopPod),
        EventType::REMOVE_POD_SANDBOX => sandbox.map(Event::RemovePod),
        EventType::START_CONTAINER => id.map(|_| {
            let (pod, container) = incoming::pod_and_container(pod, container);
            Event::Starting { pod, container }
        }),
        EventType::POST_START_CONTAINER => id.map(|_| {
            let (pod, container) = incoming::pod_and_container(pod, container);
            Event::Started { pod, container }
        }),
        EventType::STOP_CONTAINER => id.map(Event::Stop),
        EventType::REMOVE_CONTAINER => id.map(Event::Remove),
        // The ledger does not need these, and cannot know those of a later protocol.
        _ => return Ok(Asked::WentOn),
    };
    let Some(event) = event else {
        log::warn!("ignoring {kind:?} without an id");
        return nothing();
    };
    let is_stop = kind == EventType::STOP_CONTAINER;
    asks(event, if is_stop { AnswerKind::Stop } else { AnswerKind::Empty })
}

impl AnswerKind {
    /// Whether a refusal of this call is an error. On any other call an error leaks sandboxes, keeps
    /// pods from ending, or gets lost.
    pub fn can_be_refused(&self) -> bool {
        matches!(self, AnswerKind::Create(_) | AnswerKind::Update)
    }

    /// # Errors
    /// If the response cannot be written.
    pub fn encode(&self, response: &Response) -> Result<Vec<u8>, Status> {
        let without = if let AnswerKind::Create(id) = self { Some(id) } else { None };
        let update = outgoing::updates(&response.updates, without);
        match self {
            AnswerKind::Synchronize => {
                encode(&wire::SynchronizeResponse { update, ..Default::default() })
            }
            AnswerKind::Create(_) => {
                let adjust = response.setting.as_ref().map(|setting| {
                    let Response { environment, directory, .. } = response;
                    outgoing::container_adjustment(setting, environment, directory.as_deref())
                });
                encode(&wire::CreateContainerResponse {
                    adjust: adjust.into(),
                    update,
                    ..Default::default()
                })
            }
            AnswerKind::Update => {
                encode(&wire::UpdateContainerResponse { update, ..Default::default() })
            }
            AnswerKind::Stop => {
                encode(&wire::StopContainerResponse { update, ..Default::default() })
            }
            AnswerKind::Empty => encode(&wire::Empty::new()),
        }
    }
}

/// The answer to [`Asked::Validate`].
///
/// # Errors
/// If it cannot be written.
pub fn validated(refused: Option<String>) -> Result<Vec<u8>, Status> {
    encode(&wire::ValidateContainerAdjustmentResponse {
        reject: refused.is_some(),
        reason: refused.unwrap_or_default(),
        ..Default::default()
    })
}

/// Changes of existing containers without a call of the runtime.
pub fn updates(updates: &[Update]) -> Vec<wire::ContainerUpdate> {
    outgoing::updates(updates, None)
}

/// The event of a call for a pod, or for a container and its pod.
fn event_type(method: &str) -> Option<EventType> {
    Some(match method {
        "RunPodSandbox" => EventType::RUN_POD_SANDBOX,
        "PostUpdatePodSandbox" => EventType::POST_UPDATE_POD_SANDBOX,
        "StopPodSandbox" => EventType::STOP_POD_SANDBOX,
        "RemovePodSandbox" => EventType::REMOVE_POD_SANDBOX,
        "PostCreateContainer" => EventType::POST_CREATE_CONTAINER,
        "StartContainer" => EventType::START_CONTAINER,
        "PostStartContainer" => EventType::POST_START_CONTAINER,
        "PostUpdateContainer" => EventType::POST_UPDATE_CONTAINER,
        "StopContainer" => EventType::STOP_CONTAINER,
        "RemoveContainer" => EventType::REMOVE_CONTAINER,
        _ => return None,
    })
}

fn asks(call: impl Into<Call>, kind: AnswerKind) -> Result<Asked, Status> {
    Ok(Asked::Call(call.into(), kind))
}

fn nothing() -> Result<Asked, Status> {
    Ok(Asked::Nothing(encode(&wire::Empty::new())?))
}

fn read<M: super::projection::Projected>(payload: &[u8]) -> Result<M, Status> {
    parse(payload).map_err(|error| status(Code::INVALID_ARGUMENT, error))
}

pub(super) fn encode(message: &impl protobuf::Message) -> Result<Vec<u8>, Status> {
    message.write_to_bytes().map_err(|error| status(Code::INTERNAL, error))
}

fn id(container: &wire::Container) -> Option<ContainerId> {
    if container.id.is_empty() { None } else { Some(ContainerId(container.id.clone())) }
}

fn unnamed() -> Status {
    status(Code::INVALID_ARGUMENT, "the call has no container id")
}
