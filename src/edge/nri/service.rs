//! The meaning of each of the runtime's calls, and its answer.

use super::rpc::{Answer, Reply, status};
use super::wire::{self, Event as EventType};
use super::{incoming, outgoing};
use crate::edge::{
    BEFORE_START, Capabilities, DaemonSender, Message, Refusal, Runtime, Session, Subscriptions,
    Updater, VALIDATE,
};
use crate::ledger::{Admission, Call, Container, ContainerId, Decision, Event, Pod, SandboxId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use ttrpc::proto::{Code, Request};

/// The plugin's ttrpc service.
const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The runtime's default time limit for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest accepted time limit.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The part of the runtime's time limit after which the plugin answers in any case: after the limit
/// the runtime drops the plugin and goes on without it.
const REPLY_PART: f64 = 0.6;
/// The most pods and containers in a synchronisation, far more than a node can hold.
const MAX_LISTED: usize = 1 << 16;

/// The progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Connected,
    Configured,
    Synchronized,
}

/// Answers the calls of one connection.
pub(super) struct Service {
    session: Session,
    owner: DaemonSender,
    phase: watch::Sender<Phase>,
    updater: Arc<dyn Updater>,
    timeout: Duration,
    /// The parts of a synchronisation so far.
    pods: Vec<Pod>,
    containers: Vec<Container>,
}

type Later = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The kind of answer that a decision becomes.
#[derive(Debug)]
enum Outcome {
    Synchronize,
    Create(ContainerId),
    Update,
    Stop,
    /// The answer is empty.
    Empty,
}

impl Service {
    pub(super) fn new(
        session: Session,
        owner: DaemonSender,
        phase: watch::Sender<Phase>,
        updater: Arc<dyn Updater>,
    ) -> Service {
        let (pods, containers) = (Vec::new(), Vec::new());
        Service { session, owner, phase, updater, timeout: REQUEST_TIMEOUT, pods, containers }
    }

    /// Handles a call that arrived at this moment.
    pub(super) fn call(&mut self, request: &Request, arrived: Instant) -> Answer<Later> {
        if request.service != SERVICE {
            return unimplemented(format!("there is no service {:?} here", request.service));
        }
        let limit = match u64::try_from(request.timeout_nano) {
            Ok(nanos @ 1..) => self.timeout.min(Duration::from_nanos(nanos)),
            _ => self.timeout,
        };
        let deadline = arrived + limit.mul_f64(REPLY_PART);
        self.dispatch(&request.method, &request.payload, deadline)
            .unwrap_or_else(|error| Answer::Now(Err(status(Code::INVALID_ARGUMENT, error))))
    }

    fn dispatch(
        &mut self,
        method: &str,
        payload: &[u8],
        deadline: Instant,
    ) -> protobuf::Result<Answer<Later>> {
        Ok(match method {
            "Configure" => self.configure(parse(payload)?, deadline),
            "Synchronize" => self.synchronize(parse(payload)?, deadline),
            "CreateContainer" => self.create(parse(payload)?, deadline),
            "UpdateContainer" => self.update(parse(payload)?, deadline),
            "UpdatePodSandbox" => self.update_pod(parse(payload)?, deadline),
            "RunPodSandbox" => self.pod_event(EventType::RUN_POD_SANDBOX, payload, deadline)?,
            "PostUpdatePodSandbox" => {
                self.pod_event(EventType::POST_UPDATE_POD_SANDBOX, payload, deadline)?
            }
            "StopPodSandbox" => self.pod_event(EventType::STOP_POD_SANDBOX, payload, deadline)?,
            "RemovePodSandbox" => {
                self.pod_event(EventType::REMOVE_POD_SANDBOX, payload, deadline)?
            }
            "PostCreateContainer" => {
                self.container_event(EventType::POST_CREATE_CONTAINER, payload, deadline)?
            }
            "StartContainer" => {
                self.container_event(EventType::START_CONTAINER, payload, deadline)?
            }
            "PostStartContainer" => {
                self.container_event(EventType::POST_START_CONTAINER, payload, deadline)?
            }
            "PostUpdateContainer" => {
                self.container_event(EventType::POST_UPDATE_CONTAINER, payload, deadline)?
            }
            "StopContainer" => {
                self.container_event(EventType::STOP_CONTAINER, payload, deadline)?
            }
            "RemoveContainer" => {
                self.container_event(EventType::REMOVE_CONTAINER, payload, deadline)?
            }
            "StateChange" => {
                let change: wire::StateChangeEvent = parse(payload)?;
                let kind = change.event.enum_value().unwrap_or(EventType::UNKNOWN);
                self.lifecycle(kind, &change.pod, &change.container, deadline)
            }
            "ValidateContainerAdjustment" => self.validate(&parse(payload)?, deadline),
            "Shutdown" => {
                log::info!("the runtime says that it is shutting down");
                nothing()
            }
            method => unimplemented(format!("there is no call {method:?} here")),
        })
    }

    fn configure(&mut self, request: wire::ConfigureRequest, deadline: Instant) -> Answer<Later> {
        (self.pods, self.containers) = (Vec::new(), Vec::new());
        if let Ok(millis @ 1..) = u64::try_from(request.request_timeout) {
            self.timeout = Duration::from_millis(millis).min(MAX_REQUEST_TIMEOUT);
        }
        let runtime = Runtime {
            name: request.runtime_name,
            version: request.runtime_version,
            nri_version: request.NRI_version,
        };
        let capabilities = Capabilities::of(&runtime);
        let (mut events, can_validate) = (capabilities.events, capabilities.validation);
        let (reply, answer) = oneshot::channel();
        self.tell(Message::Configure {
            session: self.session,
            runtime,
            updater: capabilities.unsolicited_updates.then(|| Arc::clone(&self.updater)),
            capabilities,
            config: request.config,
            reply,
        });
        let phase = self.phase.clone();
        Answer::Later(Box::pin(async move {
            match timeout_at(deadline, answer).await {
                Ok(Ok(Ok(Subscriptions { before_start, validation }))) => {
                    phase.send_replace(Phase::Configured);
                    events |= if before_start { BEFORE_START } else { 0 };
                    events |= if validation && can_validate { VALIDATE } else { 0 };
                    encode(&wire::ConfigureResponse { events, ..Default::default() })
                }
                Ok(Ok(Err(Refusal(why)))) => Err(status(Code::FAILED_PRECONDITION, why)),
                Ok(Err(_)) => Err(gone()),
                Err(_) => Err(late()),
            }
        }))
    }

    fn synchronize(&mut self, part: wire::SynchronizeRequest, deadline: Instant) -> Answer<Later> {
        let listed = self.pods.len() + self.containers.len();
        if listed + part.pods.len() + part.containers.len() > MAX_LISTED {
            let error = format!("more than {MAX_LISTED} pods and containers are listed");
            return Answer::Now(Err(status(Code::RESOURCE_EXHAUSTED, error)));
        }
        self.pods.extend(part.pods.iter().map(|pod| incoming::pod(pod, None)));
        // A container may come before its pod, so its own fields have to name the sandbox.
        let unknown = wire::PodSandbox::new();
        self.containers.extend(part.containers.iter().map(|c| incoming::container(c, &unknown)));
        if part.more {
            return now(&wire::SynchronizeResponse { more: true, ..Default::default() });
        }
        let (mut pods, mut containers) =
            (std::mem::take(&mut self.pods), std::mem::take(&mut self.containers));
        let listed = pods.len() + containers.len();
        // A change needs an id.
        pods.retain(|pod| !pod.sandbox.0.is_empty());
        containers.retain(|container| !container.id.0.is_empty());
        if let left_out @ 1.. = listed - pods.len() - containers.len() {
            log::warn!("the runtime lists {left_out} pods and containers without an id: left out");
        }
        let event = Event::Synchronize { pods, containers };
        self.phase.send_replace(Phase::Synchronized);
        self.ask(event, Outcome::Synchronize, deadline)
    }

    fn create(&mut self, request: wire::ContainerRequest, deadline: Instant) -> Answer<Later> {
        let Some(container) = known(&request.container) else { return unnamed() };
        let id = ContainerId(container.id.clone());
        let admission = Admission::Create {
            pod: incoming::pod(&request.pod, Some(container)),
            container: incoming::container(container, &request.pod),
        };
        self.ask(admission, Outcome::Create(id), deadline)
    }

    /// A late approval is a refusal: the runtime asks only plugins that subscribed.
    fn validate(
        &mut self,
        request: &wire::ValidateContainerAdjustmentRequest,
        deadline: Instant,
    ) -> Answer<Later> {
        let Some(container) = known(&request.container) else { return unnamed() };
        let (reply, answer) = oneshot::channel();
        self.tell(Message::Validate {
            session: self.session,
            container: ContainerId(container.id.clone()),
            cpus: incoming::final_cpus(container, &request.adjust),
            reply,
        });
        Answer::Later(Box::pin(async move {
            let refused = match timeout_at(deadline, answer).await {
                Ok(Ok(answer)) => answer.err().map(|Refusal(why)| why),
                Ok(Err(_)) => Some(gone().message),
                Err(_) => Some(late().message),
            };
            encode(&wire::ValidateContainerAdjustmentResponse {
                reject: refused.is_some(),
                reason: refused.unwrap_or_default(),
                ..Default::default()
            })
        }))
    }

    fn update(
        &mut self,
        request: wire::UpdateContainerRequest,
        deadline: Instant,
    ) -> Answer<Later> {
        let Some(container) = known(&request.container) else { return unnamed() };
        let admission = Admission::Update {
            pod: incoming::pod(&request.pod, Some(container)),
            container: incoming::container(container, &request.pod),
            wanted: incoming::wanted(&request.linux_resources, container),
        };
        self.ask(admission, Outcome::Update, deadline)
    }

    /// The pod of the event has the new budget.
    fn update_pod(
        &mut self,
        request: wire::UpdatePodSandboxRequest,
        deadline: Instant,
    ) -> Answer<Later> {
        if request.pod.id.is_empty() {
            return nothing();
        }
        let mut pod = incoming::pod(&request.pod, None);
        pod.budget = request.linux_resources.cpu.as_ref().and_then(incoming::budget);
        self.ask(Event::UpdatePod(pod), Outcome::Empty, deadline)
    }

    fn pod_event(
        &mut self,
        kind: EventType,
        payload: &[u8],
        deadline: Instant,
    ) -> protobuf::Result<Answer<Later>> {
        let request: wire::PodRequest = parse(payload)?;
        Ok(self.lifecycle(kind, &request.pod, &wire::Container::new(), deadline))
    }

    fn container_event(
        &mut self,
        kind: EventType,
        payload: &[u8],
        deadline: Instant,
    ) -> protobuf::Result<Answer<Later>> {
        let request: wire::ContainerRequest = parse(payload)?;
        Ok(self.lifecycle(kind, &request.pod, &request.container, deadline))
    }

    /// An event with pod and container only, from either form of call. Events about an end use the
    /// id alone, as other fields may be missing.
    fn lifecycle(
        &mut self,
        kind: EventType,
        pod: &wire::PodSandbox,
        container: &wire::Container,
        deadline: Instant,
    ) -> Answer<Later> {
        let id = || Some(ContainerId(known(container)?.id.clone()));
        let both = || {
            let container = known(container)?;
            Some((incoming::pod(pod, Some(container)), incoming::container(container, pod)))
        };
        let sandbox = || (!pod.id.is_empty()).then(|| SandboxId(pod.id.clone()));
        let event = match kind {
            EventType::RUN_POD_SANDBOX => {
                sandbox().map(|_| Event::RunPod(incoming::pod(pod, None)))
            }
            EventType::STOP_POD_SANDBOX => sandbox().map(Event::StopPod),
            EventType::REMOVE_POD_SANDBOX => sandbox().map(Event::RemovePod),
            EventType::START_CONTAINER => {
                both().map(|(pod, container)| Event::Starting { pod, container })
            }
            EventType::POST_START_CONTAINER => {
                both().map(|(pod, container)| Event::Started { pod, container })
            }
            EventType::STOP_CONTAINER => id().map(Event::Stop),
            EventType::REMOVE_CONTAINER => id().map(Event::Remove),
            // The ledger does not need these, and cannot know those of a later protocol.
            _ => {
                self.tell(Message::WentOn { session: self.session });
                return nothing();
            }
        };
        let outcome =
            if kind == EventType::STOP_CONTAINER { Outcome::Stop } else { Outcome::Empty };
        match event {
            Some(event) => self.ask(event, outcome, deadline),
            None => {
                log::warn!("the runtime sent {kind:?} without saying for what");
                nothing()
            }
        }
    }

    /// Asks the ledger's owner. The call is in the queue when this returns, even if the answer comes
    /// too late.
    fn ask(&mut self, call: impl Into<Call>, outcome: Outcome, deadline: Instant) -> Answer<Later> {
        let (reply, answer) = oneshot::channel();
        self.tell(Message::Call { session: self.session, call: call.into(), reply });
        Answer::Later(Box::pin(async move {
            let problem = match timeout_at(deadline, answer).await {
                Ok(Ok(Ok(decision))) => return outcome.encode(&decision),
                Ok(Ok(Err(Refusal(why)))) => status(Code::FAILED_PRECONDITION, why),
                Ok(Err(_)) => gone(),
                Err(_) => late(),
            };
            // An error on any other call leaks sandboxes, keeps pods from ending, or gets lost.
            if matches!(outcome, Outcome::Create(_) | Outcome::Update) {
                return Err(problem);
            }
            log::warn!("answered {outcome:?} with nothing to change: {}", problem.message);
            outcome.encode(&Decision::default())
        }))
    }

    /// If the owner has ended, the reply fails as well.
    fn tell(&self, message: Message) {
        let _ = self.owner.send(message);
    }
}

impl Outcome {
    fn encode(&self, decision: &Decision) -> Reply {
        let update = |without| outgoing::updates(&decision.updates, without);
        match self {
            Outcome::Synchronize => {
                encode(&wire::SynchronizeResponse { update: update(None), ..Default::default() })
            }
            Outcome::Create(id) => encode(&wire::CreateContainerResponse {
                adjust: decision
                    .adjustment
                    .as_ref()
                    .map(|adjustment| {
                        outgoing::container_adjustment(adjustment, &decision.environment)
                    })
                    .into(),
                update: update(Some(id)),
                ..Default::default()
            }),
            Outcome::Update => encode(&wire::UpdateContainerResponse {
                update: update(None),
                ..Default::default()
            }),
            Outcome::Stop => {
                encode(&wire::StopContainerResponse { update: update(None), ..Default::default() })
            }
            Outcome::Empty => encode(&wire::Empty::new()),
        }
    }
}

fn parse<M: protobuf::Message>(payload: &[u8]) -> protobuf::Result<M> {
    M::parse_from_bytes(payload)
}

fn encode(message: &impl protobuf::Message) -> Reply {
    message.write_to_bytes().map_err(|error| status(Code::INTERNAL, error))
}

fn known(container: &wire::Container) -> Option<&wire::Container> {
    (!container.id.is_empty()).then_some(container)
}

fn now(message: &impl protobuf::Message) -> Answer<Later> {
    Answer::Now(encode(message))
}

fn nothing() -> Answer<Later> {
    now(&wire::Empty::new())
}

fn unnamed() -> Answer<Later> {
    Answer::Now(Err(status(Code::INVALID_ARGUMENT, "the call names no container")))
}

/// On this code only, a runtime since NRI 0.12 repeats the call as `StateChange`.
fn unimplemented(what: String) -> Answer<Later> {
    Answer::Now(Err(status(Code::UNIMPLEMENTED, what)))
}

fn gone() -> ttrpc::proto::Status {
    status(Code::UNAVAILABLE, "the CPU manager is stopping")
}

fn late() -> ttrpc::proto::Status {
    status(Code::UNAVAILABLE, "the CPU manager did not decide in time; trying again is safe")
}
