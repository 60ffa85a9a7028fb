//! The daemon's main loop: waits for what comes next, and has the core take a step.

use super::executor::{Executor, Reply};
use super::paths::{Paths, StartError};
use super::step::Input;
use crate::config::Config;
use crate::edge::{Message, Refusal};
use crate::pod_resources::{self, PolicyFile};
use crate::serve::{Question, ViewSource, endpoint};
use crate::view::{Link, NodeView};
use ledger::{Call, Event};
use nri::{Capabilities, Runtime, Session};
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Serves messages until the NRI layer ends, and answers questions while there are no messages.
///
/// `executor` exists from the start, or the first `Configure` makes it (if the runtime launched the
/// plugin and hands it the configuration).
pub async fn serve(
    mut inbox: mpsc::UnboundedReceiver<Message>,
    (observer, mut questions): (ViewSource, mpsc::Receiver<Question>),
    paths: &Paths,
    executor: Option<Executor>,
) {
    let waiting = "the runtime has not sent the configuration yet".to_owned();
    let (session, link) = (Session(0), Link::default());
    let mut main_loop = MainLoop {
        paths,
        observer,
        listening: false,
        pod_resources: None,
        executor,
        waiting,
        session,
        link,
    };
    if main_loop.executor.is_some() {
        main_loop.listen_locally();
        main_loop.serve_pod_resources();
    }
    // The last answer to a question, while nothing has changed since.
    let mut seen = None;
    loop {
        // Messages first, then questions, and work only if there are neither.
        tokio::select! {
            biased;
            message = inbox.recv() => {
                let Some(message) = message else { return };
                seen = None;
                main_loop.receive(message).await;
            }
            Some(Question(reply)) = questions.recv() => {
                let view = seen.get_or_insert_with(|| Arc::new(main_loop.view()));
                // The observer may have closed its connection.
                let _ = reply.send(Arc::clone(view));
            }
            input = work(main_loop.executor.as_mut()) => {
                seen = None;
                main_loop.work(input).await;
            }
        }
    }
}

/// Waits for work. Cancel safe.
async fn work(executor: Option<&mut Executor>) -> Input {
    match executor {
        Some(executor) => executor.next().await,
        None => pending().await,
    }
}

struct MainLoop<'a> {
    paths: &'a Paths,
    /// For the socket in the state directory.
    observer: ViewSource,
    listening: bool,
    /// The file with the policy in force, if podresources are served.
    pod_resources: Option<PolicyFile>,
    executor: Option<Executor>,
    /// Why there is no executor.
    waiting: String,
    /// The present connection. The loop drops messages of an earlier one.
    session: Session,
    link: Link,
}

impl MainLoop<'_> {
    async fn receive(&mut self, message: Message) {
        match message {
            Message::Configure {
                session,
                runtime,
                capabilities,
                config,
                answer_within,
                updater,
                reply,
            } => {
                self.session = session;
                introduce(&runtime, &capabilities);
                self.link.introduced(session.0, runtime);
                let subscriptions = match self.configured(&config) {
                    Ok(executor) => {
                        let connected = Input::Connected { capabilities, answer_within };
                        Ok(executor.connected(updater, connected).await)
                    }
                    Err(refusal) => Err(refusal),
                };
                // The runtime may have disconnected.
                let _ = reply.send(subscriptions);
            }
            Message::Call { session, call, reply } => {
                let Some(executor) = self.executor_of(session) else { return };
                let synchronized = matches!(call, Call::Event(Event::Synchronize { .. }));
                executor.call(Reply::Answer(reply), |id| Input::Call(id, call)).await;
                if synchronized {
                    self.link.synchronized();
                }
            }
            Message::Validate { session, container, cpus, reply } => {
                let Some(executor) = self.executor_of(session) else { return };
                let input = |id| Input::Validate(id, container, cpus);
                executor.call(Reply::Validated(reply), input).await;
            }
            Message::WentOn { session } => {
                let Some(executor) = self.executor_of(session) else { return };
                executor.take_step(Input::WentOn).await;
            }
            Message::Disconnected { session } => {
                log::debug!("{session} has ended");
                self.link.ended(session.0);
            }
        }
    }

    async fn work(&mut self, input: Input) {
        let reconfigures = matches!(input, Input::Config(_));
        if let Some(executor) = &mut self.executor {
            executor.take_step(input).await;
        }
        if reconfigures {
            self.follow_policy();
        }
    }

    /// The executor, if this is the present connection.
    fn executor_of(&mut self, session: Session) -> Option<&mut Executor> {
        if session == self.session { self.executor.as_mut() } else { None }
    }

    /// The executor; if there is none, starts it with the configuration that the runtime has handed
    /// over.
    fn configured(&mut self, text: &str) -> Result<&mut Executor, Refusal> {
        if self.executor.is_none() {
            let config = Config::parse("configuration from the runtime", text);
            let started = config.map_err(StartError::from);
            let started = started.and_then(|config| Executor::start(self.paths, &config));
            self.executor = Some(started.map_err(|error| {
                log::error!("{error}");
                self.waiting = error.to_string();
                Refusal(error.to_string())
            })?);
        }
        if !self.listening {
            self.listen_locally();
        }
        self.serve_pod_resources();
        self.executor.as_mut().ok_or_else(|| Refusal(self.waiting.clone()))
    }

    /// Serves the status on a socket in the state directory, which this process has locked by now.
    /// A failure is no reason to stop.
    fn listen_locally(&mut self) {
        match endpoint::listen_locally(&self.paths.state_dir) {
            Ok(listener) => {
                tokio::spawn(endpoint::serve_locally(listener, self.observer.clone()));
                self.listening = true;
            }
            Err(error) => {
                let path = self.paths.state_dir.join(endpoint::SOCKET);
                log::warn!(
                    "status: cannot listen on {}: {error}. `nri-cpu-manager status` does not work on this node",
                    path.display()
                );
            }
        }
    }

    /// Answers as the kubelet's podresources do, if the configuration or the command line says so.
    fn serve_pod_resources(&mut self) {
        let Some(owner) = self.executor.as_ref().and_then(Executor::owner) else { return };
        let place = owner.config.pod_resources().or(self.paths.pod_resources.as_ref());
        if let (Some(place), None) = (place, &self.pod_resources) {
            let settings = owner.ledger.settings();
            self.pod_resources = Some(pod_resources::start(place, self.observer.clone(), settings));
        }
    }

    fn follow_policy(&self) {
        let owner = self.executor.as_ref().and_then(Executor::owner);
        if let (Some(policy), Some(owner)) = (&self.pod_resources, owner) {
            policy.follow(owner.ledger.settings());
        }
    }

    fn view(&mut self) -> NodeView {
        let node = match &mut self.executor {
            Some(executor) => executor.view(),
            None => Err(self.waiting.clone()),
        };
        NodeView { link: self.link.clone(), node }
    }
}

fn introduce(runtime: &Runtime, capabilities: &Capabilities) {
    log::info!("runtime: {runtime}");
    for warning in &capabilities.warnings {
        log::warn!("{warning}");
    }
}
