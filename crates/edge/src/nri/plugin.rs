//! The plugin as NRI sees it: each call becomes a message to the ledger's owner.

use super::exchange::{Asked, answer, asked};
use super::mounts::obstacle;
use super::projection::reads;
use crate::{DaemonSender, Message, Refusal, Response, Subscriptions};
use nri::wire::Event;
use nri::{Answer, CallError, Configuration, Events, Plugin, Reads, Session};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// A container is about to run and waits for the answer.
const BEFORE_START: Events = Events::of(&[Event::START_CONTAINER]);
/// How CRI-O names itself.
const CRIO: &str = "cri-o";
/// One more call for every container, since NRI 0.10.
const VALIDATE: Events = Events::of(&[Event::VALIDATE_CONTAINER_ADJUSTMENT]);

/// One connection of the runtime.
pub(super) struct Edge {
    session: Session,
    owner: DaemonSender,
    /// Set before any other call: the runtime names itself first.
    on_crio: AtomicBool,
    /// Whether pods' annotations for CRI-O are read. Set before any call about a pod.
    for_crio: AtomicBool,
}

impl Edge {
    pub(super) fn new(session: Session, owner: DaemonSender) -> Edge {
        let (on_crio, for_crio) = (AtomicBool::new(false), AtomicBool::new(false));
        Edge { session, owner, on_crio, for_crio }
    }

    /// If the owner has ended, the reply fails as well.
    fn send(&self, message: Message) {
        let _ = self.owner.send(message);
    }
}

impl Plugin for Edge {
    const LATE: &'static str = "the CPU manager did not decide in time";

    fn reads(&self) -> Reads<'static> {
        reads(self.for_crio.load(Ordering::Relaxed))
    }

    fn configure(
        &self,
        configuration: Configuration,
    ) -> impl Future<Output = Result<Events, CallError>> + Send {
        let Configuration { runtime, capabilities, config, answer_within, updater } = configuration;
        self.on_crio.store(runtime.name == CRIO, Ordering::Relaxed);
        let (reply, events_reply) = oneshot::channel();
        self.send(Message::Configure {
            session: self.session,
            runtime,
            capabilities,
            config,
            answer_within,
            updater,
            reply,
        });
        async move {
            let subscriptions = decided(events_reply).await?;
            self.for_crio.store(subscriptions.for_crio, Ordering::Relaxed);
            Ok(events(subscriptions))
        }
    }

    /// The message is in the owner's queue when this returns, even if the reply comes too late.
    fn call(&self, call: nri::Call) -> impl Future<Output = Result<Answer, CallError>> + Send {
        let session = self.session;
        let obstacle = obstacle(&call);
        let waits = match asked(call, self.on_crio.load(Ordering::Relaxed)) {
            Asked::Call(call) => {
                let (reply, response) = oneshot::channel();
                self.send(Message::Call { session, call, reply });
                Waits::Response(response)
            }
            Asked::Validate(container, cpus) => {
                let (reply, approval) = oneshot::channel();
                self.send(Message::Validate { session, container, cpus, reply });
                Waits::Approval(approval)
            }
            Asked::WentOn => {
                self.send(Message::WentOn { session });
                Waits::Nothing
            }
        };
        async move {
            match waits {
                Waits::Response(response) => {
                    Ok(answer(&decided(response).await?, obstacle.as_deref()))
                }
                Waits::Approval(approval) => Ok(decided(approval).await?.into()),
                Waits::Nothing => Ok(Answer::default()),
            }
        }
    }

    fn disconnected(&self) {
        self.send(Message::Disconnected { session: self.session });
    }
}

type PendingReply<T> = oneshot::Receiver<Result<T, Refusal>>;
enum Waits {
    Response(PendingReply<Response>),
    Approval(PendingReply<()>),
    Nothing,
}

/// The owner's reply; an error if it refuses or has ended.
async fn decided<T>(reply: PendingReply<T>) -> Result<T, CallError> {
    match reply.await {
        Ok(reply) => reply.map_err(|Refusal(why)| CallError::Refused(why)),
        Err(_) => Err(CallError::Unavailable("the CPU manager is stopping".to_owned())),
    }
}

/// The events that the owner gets with these optional calls, as far as a runtime has them.
pub fn events(subscriptions: Subscriptions) -> Events {
    let Subscriptions { before_start, validation, for_crio: _ } = subscriptions;
    let mut events = Events::ALL.without(BEFORE_START | VALIDATE);
    if before_start {
        events = events | BEFORE_START;
    }
    if validation {
        events = events | VALIDATE;
    }
    events
}
