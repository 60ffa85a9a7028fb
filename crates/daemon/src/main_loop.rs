//! The daemon's main loop: waits for what comes next, and has the core take a step.

use super::executor::{Executor, ReplyChannel};
use super::log_repeated;
use super::noise_monitor::{Asked, monitor};
use super::paths::{Paths, StartError};
use super::standby::{self, Connection, Standby};
use super::step::Input;
use super::threads::Threads;
use crate::pod_resources::{self, PolicyFile};
use config::{Config, Mistake};
use edge::{Message, Refusal};
use ledger::{Call, Event};
use log::Level;
use nri::{Capabilities, Runtime, Session};
use serve::{DryRun, Observers, Question, ViewSource, endpoint};
use state::checkpoint::{StateDir, StateError};
use status::noise::NoiseFigures;
use status::outlook::{Change, Outlook};
use status::{Health, Link, NodeView};
use std::future::pending;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use wording::Repeats;

/// How the daemon begins.
#[derive(Debug)]
pub enum Start {
    /// It owns the node.
    Now(Box<Executor>),
    /// With this configuration, when the instance has ended that owns the node.
    After(Box<Config>),
    /// With the configuration that the runtime hands over.
    Configured,
}

impl Start {
    /// With a configuration: now, unless another instance uses the state directory.
    ///
    /// # Errors
    /// If it cannot start. No container has changed then.
    pub fn new(paths: &Paths, config: Config, threads: &Threads) -> Result<Start, StartError> {
        match Executor::start(paths, &config, threads) {
            Ok(executor) => Ok(Start::Now(Box::new(executor))),
            Err(StartError::State(StateError::Locked { dir })) => {
                log::info!(
                    "another instance uses the state directory {}: waiting for its end, to take the node over",
                    dir.display()
                );
                Ok(Start::After(Box::new(config)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Serves messages until the NRI layer ends, and answers questions while there are no messages.
///
/// # Errors
/// If the node cannot be taken over, the instance that owns it does not end, or another one has got the state directory.
pub async fn serve(
    mut inbox: mpsc::UnboundedReceiver<Message>,
    (observer, mut observers): (ViewSource, Observers),
    paths: &Paths,
    threads: &Threads,
    start: Start,
) -> Result<(), StartError> {
    let (executor, standby, waiting) = match start {
        Start::Now(executor) => (Some(*executor), None, String::new()),
        Start::After(config) => {
            let waiting = "another instance decides until its end; this one takes over then";
            (None, Some(Standby::new(*config)), waiting.to_owned())
        }
        Start::Configured => {
            (None, None, "the runtime has not sent the configuration yet".to_owned())
        }
    };
    let (publish, noise) = watch::channel(Arc::default());
    let source = observer.clone();
    let ask = async move || Asked::of(&source).await;
    let files = paths.noise_files();
    let reader = threads.noise.clone();
    threads.clients.spawn(async move { monitor(ask, files, &reader, publish).await });
    let mut main_loop = MainLoop {
        paths,
        threads,
        observer,
        noise,
        listening: None,
        pod_resources: None,
        executor,
        standby,
        waiting,
        session: Session(0),
        link: Link::default(),
        repeats: Repeats::default(),
    };
    if main_loop.executor.is_some() {
        main_loop.listen_locally();
        main_loop.serve_pod_resources();
    }
    // The answer to the last question, until something may have changed.
    let mut last_view = None;
    let mut beat = interval(Observers::BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let health = Arc::new(main_loop.health());
        observers.beat(Arc::clone(&health));
        // Messages first, then questions, and work only if there are neither.
        tokio::select! {
            biased;
            message = inbox.recv() => {
                let Some(message) = message else { return Ok(()) };
                last_view = None;
                main_loop.receive(message).await?;
            }
            Some(question) = observers.asked() => {
                // The observer may have closed its connection.
                match question {
                    Question::View(reply) => {
                        let view = last_view.get_or_insert_with(|| Arc::new(main_loop.view(health)));
                        let _ = reply.send(Arc::clone(view));
                    }
                    Question::DryRun(reply) => drop(reply.send(main_loop.dry_run())),
                }
            }
            input = work(main_loop.executor.as_mut()) => {
                last_view = None;
                main_loop.work(input?).await;
            }
            Ok(()) = main_loop.noise.changed() => last_view = None,
            _ = beat.tick() => {}
            () = sleep(standby::PAUSE), if main_loop.standby.is_some() => {
                if main_loop.take_over().await? {
                    last_view = None;
                }
            }
        }
    }
}

/// Waits for work. Cancel safe.
async fn work(executor: Option<&mut Executor>) -> Result<Input, StateError> {
    match executor {
        Some(executor) => executor.next().await,
        None => pending().await,
    }
}

struct MainLoop<'a> {
    paths: &'a Paths,
    threads: &'a Threads,
    /// For the socket in the state directory.
    observer: ViewSource,
    /// What runs or fires on exclusive CPUs.
    noise: watch::Receiver<Arc<NoiseFigures>>,
    /// Serves the status on a socket in the state directory.
    listening: Option<AbortHandle>,
    /// The file with the policy in force, if podresources are served.
    pod_resources: Option<PolicyFile>,
    executor: Option<Executor>,
    /// `Some` while another instance owns the node; there is no executor then.
    standby: Option<Standby>,
    /// Why there is no executor.
    waiting: String,
    /// The present connection. The loop drops messages of an earlier one.
    session: Session,
    link: Link,
    repeats: Repeats,
}

impl MainLoop<'_> {
    async fn receive(&mut self, message: Message) -> Result<(), StartError> {
        let Some(message) = self.stand_by(message).await? else { return Ok(()) };
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
                introduce(&runtime, &capabilities, &mut self.repeats);
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
                let Some(executor) = self.executor_of(session) else { return Ok(()) };
                let synchronized = matches!(call, Call::Event(Event::Synchronize { .. }));
                executor.call(ReplyChannel::Answer(reply), |id| Input::Call(id, call)).await;
                if synchronized {
                    self.link.synchronized();
                }
            }
            Message::Validate { session, container, cpus, reply } => {
                let Some(executor) = self.executor_of(session) else { return Ok(()) };
                let input = |id| Input::Validate(id, container, cpus);
                executor.call(ReplyChannel::Validated(reply), input).await;
            }
            Message::WentOn { session } => {
                let Some(executor) = self.executor_of(session) else { return Ok(()) };
                executor.take_step(Input::WentOn).await;
            }
            Message::Disconnected { session } => {
                log::debug!("{session} has ended");
                self.link.ended(session.0);
            }
        }
        Ok(())
    }

    /// While another instance owns the node, answers a message without a decision. Returns a message
    /// that this instance has to handle. A request first waits a moment: the other instance may be
    /// ending, and no longer have a connection to answer it.
    async fn stand_by(&mut self, message: Message) -> Result<Option<Message>, StartError> {
        if let Message::Call { call: Call::Admission(_), .. } = &message {
            let until = Instant::now() + standby::PATIENCE;
            while self.standby.is_some() && !self.take_over().await? && Instant::now() < until {
                sleep(standby::PAUSE).await;
            }
        }
        let Some(standby) = &mut self.standby else { return Ok(Some(message)) };
        match message {
            Message::Configure {
                session,
                runtime,
                capabilities,
                answer_within,
                updater,
                reply,
                ..
            } => {
                self.session = session;
                introduce(&runtime, &capabilities, &mut self.repeats);
                self.link.introduced(session.0, runtime);
                let events = standby.connected(capabilities, answer_within, updater);
                // The runtime may have disconnected.
                let _ = reply.send(Ok(events));
            }
            Message::Call { session, call, reply } if session == self.session => {
                let synchronized = matches!(call, Call::Event(Event::Synchronize { .. }));
                let _ = reply.send(Ok(standby.note(call)));
                if synchronized {
                    self.link.synchronized();
                }
            }
            Message::Validate { reply, .. } => {
                let _ = reply.send(Ok(()));
            }
            Message::Disconnected { session } => {
                self.link.ended(session.0);
                if session == self.session {
                    standby.disconnected();
                }
            }
            Message::Call { .. } | Message::WentOn { .. } => {}
        }
        Ok(None)
    }

    /// Takes the node over, if the instance that owned it has ended. Returns whether it did.
    async fn take_over(&mut self) -> Result<bool, StartError> {
        let Some(standby) = &self.standby else { return Ok(false) };
        if StateDir::is_locked(&self.paths.state_dir) {
            let dir = self.paths.state_dir.clone();
            return if standby.has_waited_too_long() {
                Err(StateError::Locked { dir }.into())
            } else {
                Ok(false)
            };
        }
        // The file may have changed since the start.
        let config = self.paths.config.as_deref().and_then(|path| Config::read(path).ok());
        let started =
            Executor::start(self.paths, config.as_ref().unwrap_or(&standby.config), self.threads);
        let mut executor = match started {
            Ok(executor) => executor,
            Err(StartError::State(StateError::Locked { .. })) => return Ok(false),
            Err(error) => return Err(error),
        };
        log::info!("the instance before this one has ended: taking the node over");
        let connection = self.standby.take().and_then(Standby::into_connection);
        if let Some(mut connection) = connection {
            let list = connection.list();
            let Connection { capabilities, answer_within, updater, .. } = connection;
            let connected = Input::Connected { capabilities, answer_within };
            // `Standby::connected` has returned the subscriptions.
            let _ = executor.connected(updater, connected).await;
            if let Some(list) = list {
                // No answer carries its updates: the core sends or writes them otherwise.
                let (reply, _) = oneshot::channel();
                let input = |id| Input::Call(id, Call::Event(list));
                executor.call(ReplyChannel::Answer(reply), input).await;
            }
        }
        self.executor = Some(executor);
        self.listen_locally();
        self.serve_pod_resources();
        Ok(true)
    }

    async fn work(&mut self, input: Input) {
        let reconfigures = matches!(input, Input::Config(_));
        if let Some(executor) = &mut self.executor {
            executor.take_step(input).await;
            if executor.takes_new_directory() {
                self.listen_locally();
            }
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
            let started =
                started.and_then(|config| Executor::start(self.paths, &config, self.threads));
            self.executor = Some(started.map_err(|error| {
                self.waiting = error.to_string();
                let now = Instant::now().into_std();
                log_repeated(&mut self.repeats, Level::Error, &self.waiting, now);
                Refusal(error.to_string())
            })?);
        }
        if self.listening.is_none() {
            self.listen_locally();
        }
        self.serve_pod_resources();
        self.executor.as_mut().ok_or_else(|| Refusal(self.waiting.clone()))
    }

    /// Serves the status on a socket in the state directory, which this process has locked by now.
    /// The daemon works without it.
    fn listen_locally(&mut self) {
        if let Some(before) = self.listening.take() {
            before.abort();
        }
        let clients = &self.threads.clients;
        match clients.enter(|| endpoint::listen_locally(&self.paths.state_dir)) {
            Ok(listener) => {
                let pages = self.threads.pages.clone();
                let serving = endpoint::serve_locally(listener, self.observer.clone(), pages);
                self.listening = Some(clients.spawn(serving).abort_handle());
            }
            Err(error) => {
                let path = self.paths.state_dir.join(status::socket::SOCKET);
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
            let (clients, view) = (&self.threads.clients, self.observer.clone());
            self.pod_resources = Some(pod_resources::start(place, clients, view, settings));
        }
    }

    fn follow_policy(&self) {
        let owner = self.executor.as_ref().and_then(Executor::owner);
        if let (Some(policy), Some(owner)) = (&self.pod_resources, owner) {
            policy.follow(owner.ledger.settings());
        }
    }

    fn health(&self) -> Health {
        let node = match &self.executor {
            Some(executor) => executor.condition(),
            None => Err(self.waiting.clone()),
        };
        Health::of(self.standby.is_some(), &self.link, node)
    }

    fn view(&mut self, health: Arc<Health>) -> NodeView {
        let node = match &mut self.executor {
            Some(executor) => executor.view(),
            None => Err(self.waiting.clone()),
        };
        NodeView {
            node_name: self.paths.node.name.clone(),
            link: self.link.clone(),
            health,
            node,
            noise: Arc::clone(&self.noise.borrow()),
        }
    }

    /// Copies for a question about a change.
    fn dry_run(&self) -> Result<DryRun, String> {
        if !self.link.has_listed() {
            return Err("the runtime has not listed its containers yet: try again".to_owned());
        }
        let owner = self.executor.as_ref().and_then(Executor::owner);
        let trial = owner.ok_or_else(|| self.waiting.clone())?.trial();
        let node = self.paths.node.clone();
        Ok(DryRun(Box::new(move |change| {
            let outlook = match change {
                Change::Uninstall { containers } => trial.uninstall(*containers),
                Change::Configuration(text) => {
                    let config = Config::parse_whole(CONFIGURATION, text);
                    let config = config.map_err(|mistakes| mistakes.to_string())?;
                    let reading = config.for_node(&node).map_err(Mistake::from);
                    trial.reconfigure(reading).map_err(|Mistake { why, .. }| why)?
                }
            };
            Ok(Outlook { node: node.name, ..outlook })
        })))
    }
}

/// The name of a configuration that a client asks about.
const CONFIGURATION: &str = "configuration";

fn introduce(runtime: &Runtime, capabilities: &Capabilities, repeats: &mut Repeats) {
    let now = Instant::now().into_std();
    log_repeated(repeats, Level::Info, &format!("runtime: {runtime}"), now);
    for warning in &capabilities.warnings {
        log_repeated(repeats, Level::Warn, warning, now);
    }
}
