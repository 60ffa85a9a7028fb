//! The meaning of each of the runtime's calls, and its answer.

use super::projection::parse;
use super::rpc::{Answer, Reply, Request, status};
use super::wire::{self, Event as EventType};
use super::{incoming, outgoing};
use crate::edge::{
    BEFORE_START, Capabilities, DaemonSender, Message, Refusal, Response, Runtime, Session,
    Subscriptions, Updater, VALIDATE,
};
use crate::ledger::{Admission, Call, Container, ContainerId, Event, Pod, SandboxId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use ttrpc::proto::{Code, Status};

const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The runtime's default time limit for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The part of the runtime's time limit after which the plugin answers in any case: after the limit
/// the runtime drops the plugin and goes on without it.
const REPLY_PART: f64 = 0.6;
/// The most pods and containers in a synchronisation, far more than a node can hold.
const MAX_LISTED: usize = 1 << 16;
/// The most bytes of them that the plugin reads: some thousand containers have one MiB, and a byte
/// takes up to four of memory.
const MAX_LISTED_BYTES: u64 = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Handshake {
    Connected,
    Configured,
    Synchronized,
}

pub(super) struct Service {
    session: Session,
    owner: DaemonSender,
    progress: watch::Sender<Handshake>,
    updater: Arc<dyn Updater>,
    timeout: Duration,
    /// The parts of a synchronisation so far.
    pods: Vec<Pod>,
    containers: Vec<Container>,
    listed_bytes: u64,
}

#[derive(Debug)]
enum AnswerKind {
    Synchronize,
    Create(ContainerId),
    Update,
    Stop,
    Empty,
}

impl Service {
    pub(super) fn new(
        session: Session,
        owner: DaemonSender,
        progress: watch::Sender<Handshake>,
        updater: Arc<dyn Updater>,
    ) -> Service {
        Service {
            session,
            owner,
            progress,
            updater,
            timeout: REQUEST_TIMEOUT,
            pods: Vec::new(),
            containers: Vec::new(),
            listed_bytes: 0,
        }
    }

    /// Handles a call that arrived at this moment.
    pub(super) fn call(&mut self, request: &Request<'_>, arrived: Instant) -> Answer {
        if request.service != SERVICE {
            return fail(Code::UNIMPLEMENTED, format!("unknown service {:?}", request.service));
        }
        let limit = match u64::try_from(request.timeout_nano) {
            Ok(nanos @ 1..) => self.timeout.min(Duration::from_nanos(nanos)),
            _ => self.timeout,
        };
        let deadline = arrived + limit.mul_f64(REPLY_PART);
        self.dispatch(request.method, request.payload, deadline)
            .unwrap_or_else(|error| fail(Code::INVALID_ARGUMENT, error))
    }

    fn dispatch(
        &mut self,
        method: &str,
        payload: &[u8],
        deadline: Instant,
    ) -> protobuf::Result<Answer> {
        Ok(match method {
            "Configure" => self.configure(parse(payload)?, deadline),
            "Synchronize" => self.synchronize(parse(payload)?, deadline),
            "CreateContainer" => self.create(parse(payload)?, deadline),
            "UpdateContainer" => self.update(parse(payload)?, deadline),
            "UpdatePodSandbox" => self.update_pod(parse(payload)?, deadline),
            "ValidateContainerAdjustment" => self.validate(&parse(payload)?, deadline),
            "StateChange" => {
                let change: wire::StateChangeEvent = parse(payload)?;
                let kind = change.event.enum_value().unwrap_or(EventType::UNKNOWN);
                self.lifecycle(kind, &change.pod, &change.container, deadline)
            }
            "Shutdown" => {
                log::info!("the runtime is shutting down");
                nothing()
            }
            method => match event_type(method) {
                Some(kind) if method.ends_with("PodSandbox") => {
                    let request: wire::PodRequest = parse(payload)?;
                    self.lifecycle(kind, &request.pod, &wire::Container::new(), deadline)
                }
                Some(kind) => {
                    let request: wire::ContainerRequest = parse(payload)?;
                    self.lifecycle(kind, &request.pod, &request.container, deadline)
                }
                // On this code only, a runtime since NRI 0.12 repeats the call as `StateChange`.
                None => fail(Code::UNIMPLEMENTED, format!("unknown call {method:?}")),
            },
        })
    }

    fn configure(&mut self, request: wire::ConfigureRequest, deadline: Instant) -> Answer {
        self.pods.clear();
        self.containers.clear();
        self.listed_bytes = 0;
        if let Ok(millis @ 1..) = u64::try_from(request.request_timeout) {
            self.timeout = Duration::from_millis(millis).min(MAX_REQUEST_TIMEOUT);
        }
        let runtime = Runtime {
            name: request.runtime_name,
            version: request.runtime_version,
            nri_version: request.NRI_version,
        };
        let capabilities = Capabilities::of(&runtime);
        let Capabilities { mut events, validation: can_validate, unsolicited_updates, .. } =
            capabilities;
        let (reply, answer) = oneshot::channel();
        self.send(Message::Configure {
            session: self.session,
            runtime,
            updater: if unsolicited_updates { Some(Arc::clone(&self.updater)) } else { None },
            capabilities,
            config: request.config,
            answer_within: self.timeout,
            reply,
        });
        let progress = self.progress.clone();
        Answer::Later(Box::pin(async move {
            let Subscriptions { before_start, validation } = answered(answer, deadline).await?;
            progress.send_replace(Handshake::Configured);
            if before_start {
                events |= BEFORE_START;
            }
            if validation && can_validate {
                events |= VALIDATE;
            }
            encode(&wire::ConfigureResponse { events, ..Default::default() })
        }))
    }

    fn synchronize(&mut self, part: wire::SynchronizeRequest, deadline: Instant) -> Answer {
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
            return fail(Code::RESOURCE_EXHAUSTED, error);
        }
        self.pods.extend(part.pods.iter().map(|pod| incoming::pod(pod, None)));
        // A container may come before its pod, so its own fields have to name the sandbox.
        let unknown = wire::PodSandbox::new();
        self.containers.extend(part.containers.iter().map(|c| incoming::container(c, &unknown)));
        if part.more {
            return now(&wire::SynchronizeResponse { more: true, ..Default::default() });
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
        self.progress.send_replace(Handshake::Synchronized);
        self.ask(Event::Synchronize { pods, containers }, AnswerKind::Synchronize, deadline)
    }

    fn create(&mut self, request: wire::ContainerRequest, deadline: Instant) -> Answer {
        let Some(id) = id(&request.container) else { return unnamed() };
        let (pod, container) = incoming::pod_and_container(&request.pod, &request.container);
        self.ask(Admission::Create { pod, container }, AnswerKind::Create(id), deadline)
    }

    /// A late approval is a refusal: the runtime asks only plugins that subscribed.
    fn validate(
        &mut self,
        request: &wire::ValidateContainerAdjustmentRequest,
        deadline: Instant,
    ) -> Answer {
        let Some(container) = id(&request.container) else { return unnamed() };
        let (reply, answer) = oneshot::channel();
        self.send(Message::Validate {
            session: self.session,
            container,
            cpus: incoming::final_cpus(&request.container, &request.adjust),
            reply,
        });
        Answer::Later(Box::pin(async move {
            let refused = answered(answer, deadline).await.err();
            encode(&wire::ValidateContainerAdjustmentResponse {
                reject: refused.is_some(),
                reason: refused.map(|status| status.message).unwrap_or_default(),
                ..Default::default()
            })
        }))
    }

    fn update(&mut self, request: wire::UpdateContainerRequest, deadline: Instant) -> Answer {
        if id(&request.container).is_none() {
            return unnamed();
        }
        let (pod, container) = incoming::pod_and_container(&request.pod, &request.container);
        let wanted = incoming::wanted(&request.linux_resources, &request.container);
        self.ask(Admission::Update { pod, container, wanted }, AnswerKind::Update, deadline)
    }

    /// The pod of the event has the new budget.
    fn update_pod(&mut self, request: wire::UpdatePodSandboxRequest, deadline: Instant) -> Answer {
        if request.pod.id.is_empty() {
            return nothing();
        }
        let mut pod = incoming::pod(&request.pod, None);
        pod.budget = request.linux_resources.cpu.as_ref().and_then(incoming::budget);
        self.ask(Event::UpdatePod(pod), AnswerKind::Empty, deadline)
    }

    /// An event with pod and container only, from either form of call. Events about an end use the
    /// id alone, as other fields may be missing.
    fn lifecycle(
        &mut self,
        kind: EventType,
        pod: &wire::PodSandbox,
        container: &wire::Container,
        deadline: Instant,
    ) -> Answer {
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
            _ => {
                self.send(Message::WentOn { session: self.session });
                return nothing();
            }
        };
        let Some(event) = event else {
            log::warn!("ignoring {kind:?} without an id");
            return nothing();
        };
        let is_stop = kind == EventType::STOP_CONTAINER;
        self.ask(event, if is_stop { AnswerKind::Stop } else { AnswerKind::Empty }, deadline)
    }

    /// Asks the ledger's owner. The call is in the queue when this returns, even if the answer comes
    /// too late.
    fn ask(&mut self, call: impl Into<Call>, kind: AnswerKind, deadline: Instant) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Call { session: self.session, call: call.into(), reply });
        Answer::Later(Box::pin(async move {
            match answered(answer, deadline).await {
                Ok(response) => kind.encode(&response),
                // An error on any other call leaks sandboxes, keeps pods from ending, or gets lost.
                Err(problem) if matches!(kind, AnswerKind::Create(_) | AnswerKind::Update) => {
                    Err(problem)
                }
                Err(problem) => {
                    log::warn!("answering {kind:?} without changes: {}", problem.message);
                    kind.encode(&Response::default())
                }
            }
        }))
    }

    /// If the owner has ended, the reply fails as well.
    fn send(&self, message: Message) {
        let _ = self.owner.send(message);
    }
}

/// The owner's reply; an error if it refuses, has ended, or is late.
async fn answered<T>(
    reply: oneshot::Receiver<Result<T, Refusal>>,
    deadline: Instant,
) -> Result<T, Status> {
    match timeout_at(deadline, reply).await {
        Ok(Ok(reply)) => reply.map_err(|Refusal(why)| status(Code::FAILED_PRECONDITION, why)),
        Ok(Err(_)) => Err(status(Code::UNAVAILABLE, "the CPU manager is stopping")),
        Err(_) => {
            let late = "the CPU manager did not decide in time; trying again is safe";
            Err(status(Code::UNAVAILABLE, late))
        }
    }
}

impl AnswerKind {
    fn encode(&self, response: &Response) -> Reply {
        let without = if let AnswerKind::Create(id) = self { Some(id) } else { None };
        let update = outgoing::updates(&response.updates, without);
        match self {
            AnswerKind::Synchronize => {
                encode(&wire::SynchronizeResponse { update, ..Default::default() })
            }
            AnswerKind::Create(_) => {
                let adjust = response.adjustment.as_ref().map(|adjustment| {
                    let Response { environment, directory, .. } = response;
                    outgoing::container_adjustment(adjustment, environment, directory.as_deref())
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

fn encode(message: &impl protobuf::Message) -> Reply {
    message.write_to_bytes().map_err(|error| status(Code::INTERNAL, error))
}

fn id(container: &wire::Container) -> Option<ContainerId> {
    if container.id.is_empty() { None } else { Some(ContainerId(container.id.clone())) }
}

fn now(message: &impl protobuf::Message) -> Answer {
    Answer::Now(encode(message))
}

fn nothing() -> Answer {
    now(&wire::Empty::new())
}

fn fail(code: Code, why: impl ToString) -> Answer {
    Answer::Now(Err(status(code, why)))
}

fn unnamed() -> Answer {
    fail(Code::INVALID_ARGUMENT, "the call has no container id")
}
