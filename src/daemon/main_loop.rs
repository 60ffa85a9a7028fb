//! The daemon's main loop: waits for whatever comes next, and has the owner of the ledger see to
//! it.

use super::delivery::Sent;
use super::looks::Findings;
use super::owner::Owner;
use super::paths::{Paths, StartError};
use super::suspects::Finding;
use crate::config::{Config, Reading};
use crate::kubelet::Look;
use crate::ledger::{ContainerId, Event};
use crate::nri::{Capabilities, Message, Refusal, Runtime, Session};
use crate::observe::{Figures, Link, NodeView, Observer, Question, endpoint};
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Everything that wakes the daemon.
#[derive(Debug)]
enum Wake {
    /// The runtime's edge has something to tell.
    Message(Message),
    /// The runtime's edge has ended.
    End,
    /// An observer wants to know how the node is.
    Question(Question),
    /// A container's group has to be made what it should be.
    Settle(ContainerId),
    /// Containers have left something in the groups above them.
    Tidy,
    /// Something was decided that no answer could carry.
    Tell,
    /// A container is not as decided, and that is no delay.
    Repair(Finding),
    /// The kubelet's state file has changed.
    Kubelet(Look),
    /// The configuration file has changed.
    Config(Reading),
    /// It is time to look which CPUs are online.
    Machine,
    /// It is time to look whether containers have left CPUs of the shared pool.
    Pool,
    /// Some time has passed.
    Lull,
    /// A call of the runtime has ended.
    Sent(Sent),
    /// A look at the control groups has ended.
    Looked(Findings),
}

/// Serves messages until the edge has ended, and answers questions while there are no messages.
///
/// `owner` is there from the start, or made by the first `Configure` (of a plugin that the runtime
/// launched and hands the configuration to).
pub async fn serve(
    mut inbox: mpsc::UnboundedReceiver<Message>,
    (observer, mut questions): (Observer, mpsc::Receiver<Question>),
    paths: &Paths,
    owner: Option<Owner>,
) {
    let waiting = "the runtime has not sent the configuration yet".to_owned();
    let (session, link) = (Session(0), Link::default());
    let mut main_loop =
        MainLoop { paths, observer, listening: false, owner, waiting, session, link };
    if main_loop.owner.is_some() {
        main_loop.listen_locally();
    }
    // The last answer to a question, as long as nothing has changed since.
    let mut seen = None;
    loop {
        let wake = wait(&mut inbox, &mut questions, main_loop.owner.as_mut()).await;
        if !matches!(wake, Wake::Question(_)) {
            seen = None;
        }
        match (wake, &mut main_loop.owner) {
            (Wake::End, _) => return,
            (Wake::Message(message), _) => main_loop.receive(message).await,
            (Wake::Question(Question(reply)), _) => {
                let view = seen.get_or_insert_with(|| Arc::new(main_loop.view()));
                // An observer that has gone meanwhile needs no answer.
                let _ = reply.send(Arc::clone(view));
            }
            (Wake::Settle(id), Some(owner)) => owner.settle(&id).await,
            (Wake::Tidy, Some(owner)) => owner.partitions.tidy().await,
            (Wake::Tell, Some(owner)) => owner.flush().await,
            (Wake::Repair(finding), Some(owner)) => owner.repair(finding).await,
            (Wake::Kubelet(look), Some(owner)) => owner.look_at_kubelet(look).await,
            (Wake::Config(reading), Some(owner)) => owner.reconfigure(reading).await,
            (Wake::Machine, Some(owner)) => owner.look_at_machine().await,
            (Wake::Pool, Some(owner)) => owner.follow_pool().await,
            (Wake::Lull, Some(owner)) => owner.lull().await,
            (Wake::Sent(sent), Some(owner)) => owner.sent(sent).await,
            (Wake::Looked(found), Some(owner)) => owner.looked(found).await,
            // There is no work without an owner.
            (_, None) => {}
        }
    }
}

/// Waits for what comes next: messages first, questions then, and work only if there are neither.
/// Nothing is lost if the wait is given up.
async fn wait(
    inbox: &mut mpsc::UnboundedReceiver<Message>,
    questions: &mut mpsc::Receiver<Question>,
    owner: Option<&mut Owner>,
) -> Wake {
    tokio::select! {
        biased;
        message = inbox.recv() => message.map_or(Wake::End, Wake::Message),
        Some(question) = questions.recv() => Wake::Question(question),
        wake = work(owner) => wake,
    }
}

/// Waits for work: the backlog first, which is there at once.
async fn work(owner: Option<&mut Owner>) -> Wake {
    let Some(owner) = owner else { return pending().await };
    let Owner {
        keeper,
        delivery,
        partitions,
        pool,
        kubelet,
        config,
        hotplug,
        looks,
        drift,
        orphans,
        ..
    } = owner;
    if let Some(id) = partitions.next_unsettled() {
        return Wake::Settle(id);
    }
    if partitions.is_untidy() {
        return Wake::Tidy;
    }
    if delivery.is_owing() {
        return Wake::Tell;
    }
    if let Some(finding) = drift.next() {
        return Wake::Repair(finding);
    }
    tokio::select! {
        look = kubelet.next() => Wake::Kubelet(look),
        reading = config.next() => Wake::Config(reading),
        () = hotplug.next() => Wake::Machine,
        () = pool.next() => Wake::Pool,
        () = orphans.lull() => Wake::Lull,
        sent = delivery.next() => Wake::Sent(sent),
        found = looks.next(&keeper.ledger) => Wake::Looked(found),
    }
}

/// What the loop knows beside the owner.
struct MainLoop<'a> {
    paths: &'a Paths,
    /// For the socket beside the state.
    observer: Observer,
    /// Whether that socket is there.
    listening: bool,
    owner: Option<Owner>,
    /// Why there is no owner.
    waiting: String,
    /// The present connection. What belongs to an earlier one counts for nothing.
    session: Session,
    link: Link,
}

impl MainLoop<'_> {
    async fn receive(&mut self, message: Message) {
        match message {
            Message::Configure { session, runtime, capabilities, config, reply, updater } => {
                self.session = session;
                introduce(&runtime, &capabilities);
                self.link.introduced(session.0, runtime);
                let wishes = self.configured(&config);
                let wishes = wishes.map(|owner| owner.connected(updater, &capabilities));
                // A runtime that has gone meanwhile needs no answer.
                let _ = reply.send(wishes);
            }
            Message::Event { session, event, reply } => {
                let Some(owner) = self.owner_of(session) else { return };
                let listed = matches!(event, Event::Synchronize { .. });
                owner.delivery.pace.went_on(Instant::now());
                let answer = owner.handle(event).await;
                let synchronized = listed && answer.is_ok();
                if let Err(Ok(unheard)) = reply.send(answer) {
                    owner.delivery.unheard(unheard.updates, &mut owner.keeper);
                }
                if synchronized {
                    self.link.synchronized();
                }
            }
            Message::Validate { session, container, cpus, reply } => {
                let Some(owner) = self.owner_of(session) else { return };
                let _ = reply.send(owner.validate(&container, cpus));
            }
            Message::WentOn { session } => {
                let Some(owner) = self.owner_of(session) else { return };
                owner.delivery.pace.went_on(Instant::now());
            }
            Message::Disconnected { session } => {
                log::debug!("{session} has ended");
                self.link.ended(session.0);
            }
        }
    }

    /// The owner, if this is the present connection.
    fn owner_of(&mut self, session: Session) -> Option<&mut Owner> {
        self.owner.as_mut().filter(|_| session == self.session)
    }

    /// The owner, if need be with the configuration that the runtime has handed over.
    fn configured(&mut self, text: &str) -> Result<&mut Owner, Refusal> {
        if self.owner.is_none() {
            let config = Config::parse("configuration from the runtime", text);
            let owner = config.map_err(StartError::from);
            let owner = owner.and_then(|config| Owner::start(self.paths, &config));
            self.owner = Some(owner.map_err(|error| {
                log::error!("{error}");
                self.waiting = error.to_string();
                Refusal(error.to_string())
            })?);
        }
        if !self.listening {
            self.listen_locally();
        }
        self.owner.as_mut().ok_or_else(|| Refusal(self.waiting.clone()))
    }

    /// Lets people ask on a socket beside the state, which is locked for this process by now.
    /// Without it all else goes on.
    fn listen_locally(&mut self) {
        match endpoint::listen_locally(&self.paths.state_dir) {
            Ok(listener) => {
                tokio::spawn(endpoint::serve_locally(listener, self.observer.clone()));
                self.listening = true;
            }
            Err(error) => {
                let path = self.paths.state_dir.join(endpoint::SOCKET);
                log::warn!(
                    "the status cannot be asked for here: cannot listen on {}: {error}",
                    path.display()
                );
            }
        }
    }

    /// The node as it is now.
    fn view(&mut self) -> NodeView {
        let link = self.link.clone();
        match self.owner.as_mut().map(Owner::view) {
            Some((figures, view, history)) => NodeView {
                figures: Figures { link, node: Ok(figures) },
                node: Some((view, history)),
            },
            None => {
                NodeView { figures: Figures { link, node: Err(self.waiting.clone()) }, node: None }
            }
        }
    }
}

fn introduce(runtime: &Runtime, capabilities: &Capabilities) {
    log::info!("runtime: {runtime}");
    for warning in &capabilities.warnings {
        log::warn!("{warning}");
    }
}
