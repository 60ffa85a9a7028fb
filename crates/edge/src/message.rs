//! Messages between an edge and the one owner of the ledger.

use cpuset::CpuSet;
use ledger::environment::Variable;
use ledger::{Call, ContainerId, CpuSetting, Update};
use nri::{Capabilities, Runtime, Session, Updater};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The edge's channel to the one owner of the ledger.
///
/// It is unbounded, so that neither a full queue nor a caller that has given up can lose an event.
/// The runtime makes one call after the other, so the queue stays short.
pub type DaemonSender = mpsc::UnboundedSender<Message>;

/// A message from the edge to the ledger's owner. In each session: `Configure`, then events, then
/// `Disconnected`.
///
/// An event's reply has a time limit, which the edge enforces: a late `send` fails. Then the
/// runtime did *not* get the decision, and a later one has to carry the changes for other
/// containers.
#[derive(Debug)]
pub enum Message {
    /// The runtime introduces itself.
    Configure {
        session: Session,
        runtime: Runtime,
        capabilities: Capabilities,
        /// The text of the configuration for a plugin that the runtime launched; otherwise empty.
        config: String,
        /// How long the runtime waits for an answer.
        answer_within: Duration,
        /// Changes containers without an event; `None` where that is not safe.
        updater: Option<Updater>,
        /// A refusal ends the connection; its text goes to the runtime's log.
        reply: oneshot::Sender<Result<Subscriptions, Refusal>>,
    },
    /// A request, an event of a pod or container, or the list of all.
    Call {
        session: Session,
        call: Call,
        /// A refusal fails a creation or an update; the owner refuses nothing else.
        reply: oneshot::Sender<Result<Response, Refusal>>,
    },
    /// The runtime asks for approval of a new container with the changes of all plugins, after the
    /// answer to [`Admission::Create`](ledger::Admission::Create).
    Validate {
        session: Session,
        container: ContainerId,
        /// The CPUs that it is going to have; `None` if none are set or the list is not valid.
        cpus: Option<CpuSet>,
        /// A refusal fails the creation.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// Another call, without an event for the ledger. It shows that the runtime has applied the
    /// last answer, because it makes one call after the other.
    WentOn { session: Session },
    /// The last message of a connection.
    Disconnected { session: Session },
}

/// What the runtime gets for a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// For [`Admission::Create`](ledger::Admission::Create): where the new container runs;
    /// `None` leaves it alone.
    pub setting: Option<CpuSetting>,
    /// Environment variables for the new container.
    pub environment: Vec<Variable>,
    /// A directory of the host that the new container gets, read-only.
    pub directory: Option<String>,
    /// Changes for containers that exist, in the order in which they must be made. For
    /// [`Admission::Update`](ledger::Admission::Update) the container's own change is among
    /// them.
    pub updates: Vec<Update>,
}

/// Optional calls that the owner subscribes to, each of which costs every container a call, and what it
/// reads only if the configuration says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscriptions {
    /// [`Event::Starting`](ledger::Event::Starting): a container is about to run and waits for the answer.
    pub before_start: bool,
    /// [`Message::Validate`]. Runtimes with NRI before 0.10 lack this call, see
    /// [`Capabilities::validation`].
    pub validation: bool,
    /// Pods' annotations for CRI-O (`compatibility: [crio]`).
    pub for_crio: bool,
}

/// Why the plugin refuses something, in words for the user: the kubelet shows them in the pod's
/// events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);
