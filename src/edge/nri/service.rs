//! The runtime's calls on one connection, and their answers in time.

use super::exchange::{self, AnswerKind, Asked, Exchange, encode};
use super::projection::parse;
use super::rpc::{Answer, Request, status};
use super::wire;
use crate::edge::{
    BEFORE_START, Capabilities, DaemonSender, Message, Refusal, Response, Runtime, Session,
    Subscriptions, Updater, VALIDATE,
};
use cpuset::CpuSet;
use ledger::{Call, ContainerId, Event};
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
    exchange: Exchange,
}

impl Service {
    pub(super) fn new(
        session: Session,
        owner: DaemonSender,
        progress: watch::Sender<Handshake>,
        updater: Arc<dyn Updater>,
    ) -> Service {
        let (timeout, exchange) = (REQUEST_TIMEOUT, Exchange::default());
        Service { session, owner, progress, updater, timeout, exchange }
    }

    /// Handles a call that arrived at this moment.
    pub(super) fn call(&mut self, request: &Request<'_>, arrived: Instant) -> Answer {
        if request.service != SERVICE {
            let error = format!("unknown service {:?}", request.service);
            return Answer::Now(Err(status(Code::UNIMPLEMENTED, error)));
        }
        let limit = match u64::try_from(request.timeout_nano) {
            Ok(nanos @ 1..) => self.timeout.min(Duration::from_nanos(nanos)),
            _ => self.timeout,
        };
        let deadline = arrived + limit.mul_f64(REPLY_PART);
        match request.method {
            "Configure" => match parse(request.payload) {
                Ok(configuration) => self.configure(configuration, deadline),
                Err(error) => Answer::Now(Err(status(Code::INVALID_ARGUMENT, error))),
            },
            "Shutdown" => {
                log::info!("the runtime is shutting down");
                Answer::Now(encode(&wire::Empty::new()))
            }
            method => match self.exchange.decode(method, request.payload) {
                Ok(asked) => self.ask(asked, deadline),
                Err(status) => Answer::Now(Err(status)),
            },
        }
    }

    fn configure(&mut self, request: wire::ConfigureRequest, deadline: Instant) -> Answer {
        self.exchange = Exchange::default();
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

    fn ask(&mut self, asked: Asked, deadline: Instant) -> Answer {
        match asked {
            Asked::Call(call, kind) => {
                if matches!(call, Call::Event(Event::Synchronize { .. })) {
                    self.progress.send_replace(Handshake::Synchronized);
                }
                self.ask_owner(call, kind, deadline)
            }
            Asked::Validate(container, cpus) => self.validate(container, cpus, deadline),
            Asked::WentOn => {
                self.send(Message::WentOn { session: self.session });
                Answer::Now(encode(&wire::Empty::new()))
            }
            Asked::Nothing(answer) => Answer::Now(Ok(answer)),
        }
    }

    /// A late approval is a refusal: the runtime asks only plugins that subscribed.
    fn validate(&self, container: ContainerId, cpus: Option<CpuSet>, deadline: Instant) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Validate { session: self.session, container, cpus, reply });
        Answer::Later(Box::pin(async move {
            let refused = answered(answer, deadline).await.err();
            exchange::validated(refused.map(|status| status.message))
        }))
    }

    /// Asks the ledger's owner. The call is in the queue when this returns, even if the answer comes
    /// too late.
    fn ask_owner(&self, call: Call, kind: AnswerKind, deadline: Instant) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Call { session: self.session, call, reply });
        Answer::Later(Box::pin(async move {
            match answered(answer, deadline).await {
                Ok(response) => kind.encode(&response),
                Err(problem) if kind.can_be_refused() => Err(problem),
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
