//! Decodes the runtime's [`Call`]s and encodes [`Answer`]s: pure, without a connection.

use crate::CallError;
use crate::projection::Reads;
use crate::rpc::Remark;
use crate::wire::{
    self, Container, ContainerAdjustment, ContainerUpdate, Event, LinuxContainerUpdate,
    LinuxResources, PodSandbox,
};
use log::Level;
use protobuf::CodedOutputStream;
use protobuf::rt::{WireType, string_size};
use std::collections::HashSet;
use std::sync::Arc;

/// The most pods and containers in a synchronisation, far more than a node can have.
const MAX_LISTED: usize = 1 << 16;

/// A call of the runtime. Pods and containers have an id, except that the pod of a call about a
/// container may be empty.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Everything that exists. The runtime may send it in several parts.
    Synchronize {
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    },
    RunPodSandbox(PodSandbox),
    /// `pod` has its previous resources.
    UpdatePodSandbox {
        pod: PodSandbox,
        overhead: LinuxResources,
        resources: LinuxResources,
    },
    PostUpdatePodSandbox(PodSandbox),
    StopPodSandbox(PodSandbox),
    RemovePodSandbox(PodSandbox),
    CreateContainer(PodSandbox, Container),
    PostCreateContainer(PodSandbox, Container),
    StartContainer(PodSandbox, Container),
    PostStartContainer(PodSandbox, Container),
    /// `container` has its previous resources.
    UpdateContainer {
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    },
    PostUpdateContainer(PodSandbox, Container),
    StopContainer(PodSandbox, Container),
    RemoveContainer(PodSandbox, Container),
    ValidateContainerAdjustment {
        pod: PodSandbox,
        container: Container,
        adjust: ContainerAdjustment,
        updates: Vec<ContainerUpdate>,
    },
    /// An event of a later version of the protocol.
    Unknown,
}

impl Call {
    /// The protocol's name of the call.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Synchronize { .. } => "Synchronize",
            Call::RunPodSandbox(_) => "RunPodSandbox",
            Call::UpdatePodSandbox { .. } => "UpdatePodSandbox",
            Call::PostUpdatePodSandbox(_) => "PostUpdatePodSandbox",
            Call::StopPodSandbox(_) => "StopPodSandbox",
            Call::RemovePodSandbox(_) => "RemovePodSandbox",
            Call::CreateContainer(..) => "CreateContainer",
            Call::PostCreateContainer(..) => "PostCreateContainer",
            Call::StartContainer(..) => "StartContainer",
            Call::PostStartContainer(..) => "PostStartContainer",
            Call::UpdateContainer { .. } => "UpdateContainer",
            Call::PostUpdateContainer(..) => "PostUpdateContainer",
            Call::StopContainer(..) => "StopContainer",
            Call::RemoveContainer(..) => "RemoveContainer",
            Call::ValidateContainerAdjustment { .. } => "ValidateContainerAdjustment",
            Call::Unknown => "StateChange",
        }
    }

    /// The pod that the call concerns, or whose container it concerns.
    pub fn pod(&self) -> Option<&PodSandbox> {
        match self {
            Call::Synchronize { .. } | Call::Unknown => None,
            Call::RunPodSandbox(pod)
            | Call::UpdatePodSandbox { pod, .. }
            | Call::PostUpdatePodSandbox(pod)
            | Call::StopPodSandbox(pod)
            | Call::RemovePodSandbox(pod)
            | Call::CreateContainer(pod, _)
            | Call::PostCreateContainer(pod, _)
            | Call::StartContainer(pod, _)
            | Call::PostStartContainer(pod, _)
            | Call::UpdateContainer { pod, .. }
            | Call::PostUpdateContainer(pod, _)
            | Call::StopContainer(pod, _)
            | Call::RemoveContainer(pod, _)
            | Call::ValidateContainerAdjustment { pod, .. } => Some(pod),
        }
    }

    pub fn container(&self) -> Option<&Container> {
        match self {
            Call::CreateContainer(_, container)
            | Call::PostCreateContainer(_, container)
            | Call::StartContainer(_, container)
            | Call::PostStartContainer(_, container)
            | Call::UpdateContainer { container, .. }
            | Call::PostUpdateContainer(_, container)
            | Call::StopContainer(_, container)
            | Call::RemoveContainer(_, container)
            | Call::ValidateContainerAdjustment { container, .. } => Some(container),
            Call::Synchronize { .. }
            | Call::RunPodSandbox(_)
            | Call::UpdatePodSandbox { .. }
            | Call::PostUpdatePodSandbox(_)
            | Call::StopPodSandbox(_)
            | Call::RemovePodSandbox(_)
            | Call::Unknown => None,
        }
    }
}

/// A change of an existing container.
///
/// If it fails, the call that it answers goes on: otherwise CRI-O would fail the container, or the whole
/// synchronisation.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub container_id: Arc<str>,
    /// Thousands of containers may have the same: it is encoded once for those that follow each other.
    pub linux: Arc<LinuxContainerUpdate>,
}

impl From<&Update> for ContainerUpdate {
    fn from(Update { container_id, linux }: &Update) -> ContainerUpdate {
        ContainerUpdate {
            container_id: container_id.to_string(),
            linux: Some(LinuxContainerUpdate::clone(linux)).into(),
            ignore_failure: true,
            ..Default::default()
        }
    }
}

/// What a plugin answers to a call; the default changes nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Changes of the new container. All calls but `CreateContainer` ignore them.
    pub adjust: Option<ContainerAdjustment>,
    /// Changes of existing containers, which the runtime makes in this order. Calls other than
    /// `Synchronize`, `CreateContainer`, `UpdateContainer` and `StopContainer` ignore them.
    ///
    /// Runtimes refuse an answer with two updates of one container, or with an update of the container
    /// that they are creating. So only the last update of each container is sent, and none of the new one.
    pub updates: Vec<Update>,
    /// A warning about this answer. The log has it as rarely as what a runtime repeats.
    pub warning: Option<String>,
}

impl From<()> for Answer {
    fn from((): ()) -> Answer {
        Answer::default()
    }
}

impl From<Vec<Update>> for Answer {
    fn from(updates: Vec<Update>) -> Answer {
        Answer { updates, ..Answer::default() }
    }
}

/// A decoded message of the runtime.
#[derive(Debug)]
pub enum Decoded {
    Call(Call, AnswerKind),
    /// The answer to a message without a complete call: a part of a longer one, or an event without an
    /// id.
    Answered(Vec<u8>),
}

/// The message that answers a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerKind {
    Synchronize,
    /// For a new container with this id.
    Create(String),
    Update,
    Stop,
    Validate,
    Empty,
}

/// Decodes the calls of one connection, except `Configure` and `Shutdown`.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Parts of a synchronisation that is not complete.
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    /// About the last message.
    pub(crate) remark: Option<Remark>,
}

impl Exchange {
    /// Reads these fields of a call about pods and containers.
    ///
    /// # Errors
    /// If the call is malformed, too long or unknown. The runtime has to get this error.
    pub fn decode(
        &mut self,
        reads: Reads<'_>,
        method: &str,
        payload: &[u8],
    ) -> Result<Decoded, CallError> {
        match method {
            "Synchronize" => {
                let part = reads.parse(payload)?;
                self.synchronize(part)
            }
            "CreateContainer" => {
                let wire::ContainerRequest { pod, container, .. } = reads.parse(payload)?;
                let container = named(container.unwrap_or_default())?;
                let kind = AnswerKind::Create(container.id.clone());
                Ok(Decoded::Call(Call::CreateContainer(pod.unwrap_or_default(), container), kind))
            }
            "UpdateContainer" => {
                let request: wire::UpdateContainerRequest = reads.parse(payload)?;
                let call = Call::UpdateContainer {
                    pod: request.pod.unwrap_or_default(),
                    container: named(request.container.unwrap_or_default())?,
                    resources: request.linux_resources.unwrap_or_default(),
                };
                Ok(Decoded::Call(call, AnswerKind::Update))
            }
            "UpdatePodSandbox" => {
                let request: wire::UpdatePodSandboxRequest = reads.parse(payload)?;
                let pod = request.pod.unwrap_or_default();
                if pod.id.is_empty() {
                    return self.ignored(Event::UPDATE_POD_SANDBOX);
                }
                let call = Call::UpdatePodSandbox {
                    pod,
                    overhead: request.overhead_linux_resources.unwrap_or_default(),
                    resources: request.linux_resources.unwrap_or_default(),
                };
                Ok(Decoded::Call(call, AnswerKind::Empty))
            }
            "ValidateContainerAdjustment" => {
                let request: wire::ValidateContainerAdjustmentRequest = reads.parse(payload)?;
                let call = Call::ValidateContainerAdjustment {
                    pod: request.pod.unwrap_or_default(),
                    container: named(request.container.unwrap_or_default())?,
                    adjust: request.adjust.unwrap_or_default(),
                    updates: request.update,
                };
                Ok(Decoded::Call(call, AnswerKind::Validate))
            }
            "StateChange" => {
                let change: wire::StateChangeEvent = reads.parse(payload)?;
                let event = change.event.enum_value().unwrap_or(Event::UNKNOWN);
                self.lifecycle(
                    event,
                    change.pod.unwrap_or_default(),
                    change.container.unwrap_or_default(),
                )
            }
            method => match event_of(method) {
                Some(event) if method.ends_with("PodSandbox") => {
                    let request: wire::PodRequest = reads.parse(payload)?;
                    self.lifecycle(event, request.pod.unwrap_or_default(), Container::new())
                }
                Some(event) => {
                    let wire::ContainerRequest { pod, container, .. } = reads.parse(payload)?;
                    self.lifecycle(event, pod.unwrap_or_default(), container.unwrap_or_default())
                }
                // After this error, and no other one, a runtime since NRI 0.12 repeats the call as
                // `StateChange`.
                None => Err(CallError::Unknown(format!("call {method:?}"))),
            },
        }
    }

    fn synchronize(&mut self, part: wire::SynchronizeRequest) -> Result<Decoded, CallError> {
        let listed = self.pods.len() + self.containers.len();
        if listed + part.pods.len() + part.containers.len() > MAX_LISTED {
            // The whole list is refused: a plugin that got a list without some containers would treat these
            // as ended.
            let error = format!("the list has more than {MAX_LISTED} pods and containers");
            self.remark = Some((Level::Error, format!("synchronisation: {error}")));
            return Err(CallError::TooLong(error));
        }
        self.pods.extend(part.pods);
        self.containers.extend(part.containers);
        if part.more {
            let more = wire::SynchronizeResponse { more: true, ..Default::default() };
            return Ok(Decoded::Answered(encode(&more)?));
        }
        let mut pods = std::mem::take(&mut self.pods);
        let mut containers = std::mem::take(&mut self.containers);
        let listed = pods.len() + containers.len();
        // Without an id they cannot be changed or recognised.
        pods.retain(|pod| !pod.id.is_empty());
        containers.retain(|container| !container.id.is_empty());
        if let ignored @ 1.. = listed - pods.len() - containers.len() {
            let line = format!("ignoring {ignored} listed pods and containers without an id");
            self.remark = Some((Level::Warn, line));
        }
        Ok(Decoded::Call(Call::Synchronize { pods, containers }, AnswerKind::Synchronize))
    }

    /// The call for an event with a pod and a container, which runtimes send in two forms.
    fn lifecycle(
        &mut self,
        event: Event,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Decoded, CallError> {
        let is_named = match event {
            Event::RUN_POD_SANDBOX | Event::STOP_POD_SANDBOX | Event::REMOVE_POD_SANDBOX => {
                !pod.id.is_empty()
            }
            Event::START_CONTAINER
            | Event::POST_START_CONTAINER
            | Event::STOP_CONTAINER
            | Event::REMOVE_CONTAINER => !container.id.is_empty(),
            _ => true,
        };
        if !is_named {
            return self.ignored(event);
        }
        let call = match event {
            Event::RUN_POD_SANDBOX => Call::RunPodSandbox(pod),
            Event::POST_UPDATE_POD_SANDBOX => Call::PostUpdatePodSandbox(pod),
            Event::STOP_POD_SANDBOX => Call::StopPodSandbox(pod),
            Event::REMOVE_POD_SANDBOX => Call::RemovePodSandbox(pod),
            Event::POST_CREATE_CONTAINER => Call::PostCreateContainer(pod, container),
            Event::START_CONTAINER => Call::StartContainer(pod, container),
            Event::POST_START_CONTAINER => Call::PostStartContainer(pod, container),
            Event::POST_UPDATE_CONTAINER => Call::PostUpdateContainer(pod, container),
            Event::STOP_CONTAINER => {
                return Ok(Decoded::Call(Call::StopContainer(pod, container), AnswerKind::Stop));
            }
            Event::REMOVE_CONTAINER => Call::RemoveContainer(pod, container),
            _ => Call::Unknown,
        };
        Ok(Decoded::Call(call, AnswerKind::Empty))
    }

    /// Answers an event without an id. An error would be lost in the runtime, or make it leak a sandbox.
    fn ignored(&mut self, event: Event) -> Result<Decoded, CallError> {
        self.remark = Some((Level::Warn, format!("ignoring {event:?} without an id")));
        Ok(Decoded::Answered(encode(&wire::Empty::new())?))
    }
}

/// The event of a call with a pod, or with a container and its pod.
fn event_of(method: &str) -> Option<Event> {
    Some(match method {
        "RunPodSandbox" => Event::RUN_POD_SANDBOX,
        "PostUpdatePodSandbox" => Event::POST_UPDATE_POD_SANDBOX,
        "StopPodSandbox" => Event::STOP_POD_SANDBOX,
        "RemovePodSandbox" => Event::REMOVE_POD_SANDBOX,
        "PostCreateContainer" => Event::POST_CREATE_CONTAINER,
        "StartContainer" => Event::START_CONTAINER,
        "PostStartContainer" => Event::POST_START_CONTAINER,
        "PostUpdateContainer" => Event::POST_UPDATE_CONTAINER,
        "StopContainer" => Event::STOP_CONTAINER,
        "RemoveContainer" => Event::REMOVE_CONTAINER,
        _ => return None,
    })
}

fn named(container: Container) -> Result<Container, CallError> {
    if container.id.is_empty() {
        return Err(CallError::Malformed("the call has no container id".to_owned()));
    }
    Ok(container)
}

impl AnswerKind {
    /// The consequence of a call without an answer, for the end of a sentence. Only the kubelet repeats
    /// calls, those that failed.
    pub(crate) fn after_failure(&self) -> &'static str {
        match self {
            AnswerKind::Create(_) | AnswerKind::Update | AnswerKind::Validate => {
                "; trying again is safe"
            }
            AnswerKind::Synchronize | AnswerKind::Stop => {
                "; the runtime goes on, and changes of containers have to follow with a later answer or update"
            }
            AnswerKind::Empty => "; the runtime goes on",
        }
    }

    /// The warning about a call that failed, where the runtime gets no error.
    pub(crate) fn warning(&self, error: &CallError) -> Option<String> {
        match self {
            AnswerKind::Create(_) | AnswerKind::Update | AnswerKind::Validate => None,
            AnswerKind::Synchronize | AnswerKind::Stop | AnswerKind::Empty => {
                Some(format!("{self:?} answered without changes: {error}"))
            }
        }
    }

    /// What the runtime gets instead of an answer: see [`CallError`].
    ///
    /// # Errors
    /// `error` itself, for the calls that the runtime then fails.
    pub fn refused(&self, error: CallError) -> Result<Vec<u8>, CallError> {
        match self {
            AnswerKind::Create(_) | AnswerKind::Update => Err(error),
            AnswerKind::Validate => encode(&wire::ValidateContainerAdjustmentResponse {
                reject: true,
                reason: error.to_string(),
                ..Default::default()
            }),
            AnswerKind::Synchronize | AnswerKind::Stop | AnswerKind::Empty => {
                self.encode(Answer::default())
            }
        }
    }

    pub fn encode(&self, answer: Answer) -> Result<Vec<u8>, CallError> {
        let created = if let AnswerKind::Create(id) = self { Some(&**id) } else { None };
        let updates = legal(answer.updates, created);
        match self {
            AnswerKind::Create(_) => {
                let adjust = answer.adjust.into();
                let mut bytes =
                    encode(&wire::CreateContainerResponse { adjust, ..Default::default() })?;
                append(&updates, 2, &mut bytes).map(|()| bytes)
            }
            // All have the updates in the same field.
            AnswerKind::Synchronize | AnswerKind::Update | AnswerKind::Stop => {
                let mut bytes = Vec::new();
                append(&updates, 1, &mut bytes).map(|()| bytes)
            }
            AnswerKind::Validate => encode(&wire::ValidateContainerAdjustmentResponse::new()),
            AnswerKind::Empty => encode(&wire::Empty::new()),
        }
    }
}

/// The last update of each container, in the given order, without those of the container that the
/// runtime is creating.
pub(crate) fn legal(mut updates: Vec<Update>, created: Option<&str>) -> Vec<Update> {
    let mut named = HashSet::with_capacity(updates.len());
    // From the end, so that `pop` gives the values from the start.
    let mut last: Vec<bool> = updates
        .iter()
        .rev()
        .map(|update| Some(&*update.container_id) != created && named.insert(&*update.container_id))
        .collect();
    updates.retain(|_| last.pop().unwrap_or(true));
    updates
}

pub(crate) fn encode(message: &impl protobuf::Message) -> Result<Vec<u8>, CallError> {
    message.write_to_bytes().map_err(internal)
}

fn internal(error: protobuf::Error) -> CallError {
    CallError::Internal(error.to_string())
}

/// Appends updates to a message, as the field with this number.
fn append(updates: &[Update], number: u32, to: &mut Vec<u8>) -> Result<(), CallError> {
    for same in updates.chunk_by(|one, next| Arc::ptr_eq(&one.linux, &next.linux)) {
        let linux = same.first().map_or_else(|| Ok(Vec::new()), |first| encode(&*first.linux))?;
        let mut common = Vec::new();
        let mut writer = CodedOutputStream::vec(&mut common);
        writer.write_bytes(2, &linux).map_err(internal)?;
        writer.write_bool(3, true).map_err(internal)?;
        drop(writer);
        let mut writer = CodedOutputStream::vec(to);
        let mut write = |id: &str| {
            let length = string_size(1, id) + common.len() as u64;
            writer.write_tag(number, WireType::LengthDelimited)?;
            writer.write_raw_varint64(length)?;
            writer.write_string(1, id)?;
            writer.write_raw_bytes(&common)
        };
        same.iter().try_for_each(|update| write(&update.container_id)).map_err(internal)?;
        writer.flush().map_err(internal)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::Message;

    fn update(id: &str, cpus: &str) -> Update {
        let cpu = wire::LinuxCPU { cpus: cpus.to_owned(), ..Default::default() };
        let resources = LinuxResources { cpu: Some(cpu).into(), ..Default::default() };
        let linux =
            wire::LinuxContainerUpdate { resources: Some(resources).into(), ..Default::default() };
        Update { container_id: id.into(), linux: linux.into() }
    }

    #[test]
    fn an_answer_has_the_last_update_of_each_container_and_none_of_the_new_one() {
        let updates =
            vec![update("a", "0"), update("new", "1"), update("b", "2"), update("a", "3")];
        let answer = Answer::from(updates);
        let bytes = AnswerKind::Create("new".into()).encode(answer).unwrap();
        let sent = wire::CreateContainerResponse::parse_from_bytes(&bytes).unwrap().update;
        let expected = [&update("b", "2"), &update("a", "3")].map(ContainerUpdate::from);
        assert_eq!(sent, expected);
    }

    #[test]
    fn an_event_is_the_same_call_in_both_forms() {
        let pod = PodSandbox { id: "p".into(), ..Default::default() };
        let container = Container { id: "c".into(), ..Default::default() };
        let mut exchange = Exchange::default();
        let mut decode =
            |method: &str, payload: Vec<u8>| match exchange.decode(Reads::All, method, &payload) {
                Ok(Decoded::Call(call, _)) => call,
                other => panic!("{method}: {other:?}"),
            };
        let names = [
            "RunPodSandbox",
            "PostUpdatePodSandbox",
            "StopPodSandbox",
            "RemovePodSandbox",
            "PostCreateContainer",
            "StartContainer",
            "PostStartContainer",
            "PostUpdateContainer",
            "StopContainer",
            "RemoveContainer",
        ];
        for name in names {
            let event = event_of(name).unwrap();
            let change = wire::StateChangeEvent {
                event: event.into(),
                pod: Some(pod.clone()).into(),
                container: Some(container.clone()).into(),
                ..Default::default()
            };
            let request = wire::ContainerRequest {
                pod: Some(pod.clone()).into(),
                container: Some(container.clone()).into(),
                ..Default::default()
            };
            let call = decode(name, request.write_to_bytes().unwrap());
            assert_eq!(decode("StateChange", change.write_to_bytes().unwrap()), call);
            assert_eq!((call.name(), call.pod()), (name, Some(&pod)));
            let expected = if name.ends_with("PodSandbox") { None } else { Some(&container) };
            assert_eq!(call.container(), expected, "{name}");
        }
    }
}
