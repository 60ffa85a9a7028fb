//! The wiring: one task owns the ledger; the edge talks to it by messages.
//!
//! ```text
//!   edge ── Message ──► owner: ledger decides ──► checkpoint on disk ──► reply ──► edge
//! ```
//!
//! A decision is on disk before the runtime hears it. The disk is waited for outside the thread that serves the
//! connection, and only if what must outlive the process has changed: never for a shared container.

mod absent;
mod action;
mod answer;
mod delivery;
mod kernel;
mod live;
mod machine;
mod neighbour;
mod pace;
mod refuse;
mod strict;
mod suspects;
mod vanished;
mod watch;

use crate::checkpoint::{Loaded, StateDir, StateError};
use crate::config::{Config, ConfigError, NodeIdentity};
use crate::ledger::{Claim, Decision, Event, Ledger, Note, Policy};
use crate::nri::{Capabilities, Message, Refusal, Runtime, Session, Subscriptions, Updater};
use crate::observe::counters::EventKind;
use crate::observe::{Counters, History, Link, Observer, Question, endpoint};
use crate::topology::{Topology, TopologyError, sysfs};
use crate::wording::{self, count};
use kernel::Kernel;
use live::Live;
use machine::Machine;
use neighbour::Neighbour;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use watch::Watch;

/// Where the daemon finds and keeps things, and on which node it is.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The node.
    pub node: NodeIdentity,
    /// The configuration file; `None` if the runtime hands the configuration over.
    pub config: Option<PathBuf>,
    /// The directory of the state file.
    pub state_dir: PathBuf,
    /// Where the machine is read from, `/sys` as a rule.
    pub sysfs_root: PathBuf,
    /// Where control groups are, `/sys/fs/cgroup` as a rule.
    pub cgroup_root: PathBuf,
    /// Where processes are, `/proc` as a rule.
    pub proc_root: PathBuf,
}

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] sysfs::ReadError),
    /// What the machine says of itself.
    #[error("the machine in {0} cannot be understood: {1}")]
    Facts(PathBuf, TopologyError),
}

/// The owner of the ledger and of its copy on disk.
#[derive(Debug)]
pub struct Owner {
    ledger: Ledger,
    state: Arc<StateDir>,
    /// The revision of the ledger that is on disk; `None` before the first write.
    saved: Option<u64>,
    /// The kernel's way to keep exclusivity, where it is in force.
    kernel: Kernel,
    /// The kubelet, which may assign CPUs itself.
    neighbour: Neighbour,
    watch: Watch,
    /// When containers that are away have been so for some time.
    lull: Instant,
    machine: Machine,
    /// The configuration, which may change.
    live: Live,
    /// For changes that no answer can carry; only where the runtime allows it.
    updater: Option<Updater>,
    /// Whether no container may run otherwise than decided.
    strict: bool,
    counters: Counters,
    history: History,
    /// Why the checkpoint could not be written the last time; `None` if it could.
    save_error: Option<String>,
}

impl Owner {
    /// Checks the configuration against the machine, locks the state directory and reads the checkpoint. What is in
    /// force is logged once.
    ///
    /// # Errors
    /// If anything is not in order. No container has been touched then.
    pub fn start(paths: &Paths, config: &Config) -> Result<Owner, StartError> {
        let sysfs::Reading { facts, warnings, sizes: _ } = sysfs::read(&paths.sysfs_root)?;
        let topology = Topology::build(facts)
            .map_err(|error| StartError::Facts(paths.sysfs_root.clone(), error))?;
        for warning in warnings {
            log::warn!("{warning}");
        }
        let config = &config.for_node(&paths.node)?;
        let mut settings = config.resolve(&topology)?;
        let kernel = Kernel::start(paths, config, &mut settings)?;
        let state = StateDir::open(&paths.state_dir)?;
        let claims = remembered(&state)?;
        log::info!(
            "machine: {}, {}, {}, {}, {}",
            count(topology.sockets().len(), "socket"),
            count(topology.nodes().len(), "NUMA node"),
            count(topology.uncores().len(), "uncore cache"),
            count(topology.cores().len(), "core"),
            wording::cpus(topology.online()),
        );
        log::info!("in force: {settings}");
        for line in config.applied_lines() {
            log::info!("in it is the override for this node on line {line}");
        }
        let ledger = Ledger::new(topology, settings, claims);
        let watch = Watch::new(paths, config, kernel.is_on());
        let state = Arc::new(state);
        let neighbour = Neighbour::new(config);
        let machine = Machine::new(paths);
        let live = Live::new(paths, config);
        let strict = config.strict();
        let mut owner = Owner {
            ledger,
            state,
            saved: None,
            kernel,
            neighbour,
            watch,
            lull: absent::next_lull(),
            machine,
            live,
            updater: None,
            strict,
            counters: Counters::default(),
            history: History::default(),
            save_error: None,
        };
        owner.first_look();
        Ok(owner)
    }

    /// Handles one event: decides, writes what must outlive the process, and counts.
    async fn handle(&mut self, event: Event) -> Result<Decision, Refusal> {
        let (kind, started) = (EventKind::from(&event), Instant::now());
        let answer = self.decide(event).await;
        self.counters.handled(kind, started.elapsed(), &answer);
        answer
    }

    async fn decide(&mut self, event: Event) -> Result<Decision, Refusal> {
        let kind = EventKind::from(&event);
        let created = match &event {
            Event::Create { container, .. } => Some(container.id.clone()),
            _ => None,
        };
        // No container gets a CPU that is offline.
        if created.is_some() || matches!(event, Event::Synchronize { .. }) {
            self.look_at_machine().await;
        }
        if created.is_some() {
            self.end_deserted().await;
        }
        let mut event = self.watch.witness(event).await;
        machine::locate_devices(&self.machine.sysfs, &mut event);
        self.kernel.let_go(&event).await;
        self.hear(&event);
        // What answers to these cannot carry is told on its own.
        let removed = matches!(event, Event::Remove(_));
        let mute = removed
            || matches!(event, Event::Started { .. } | Event::StopPod(_) | Event::RemovePod(_));
        // The runtime makes the changes of its answer, and then what it asks for here: it calls again as soon as it has.
        let goes_on = matches!(event, Event::Create { .. } | Event::Update { .. });
        let listed = matches!(event, Event::Synchronize { .. });
        let step = kernel::Step::of(&event);
        let result = self.ledger.handle(event);
        if removed {
            self.end_deserted().await;
        }
        let notes = self.tell_notes();
        let decision = result.map_err(|rejection| {
            let placement = &self.ledger.settings().placement;
            self.counters.rejected(kind, rejection.reason, placement);
            Refusal(rejection.to_string())
        })?;
        let mut decision = match self.save().await {
            Ok(()) => {
                let placement = &self.ledger.settings().placement;
                self.counters.given(&notes, self.ledger.topology(), placement);
                decision
            }
            Err(error) => self.unsaved(kind, decision, created.as_ref(), &error)?,
        };
        let more = match self.kernel.follow(step, &mut self.ledger).await {
            Ok(more) => more,
            Err(why) => return Err(self.too_early(kind, &decision, created.as_ref(), &why)),
        };
        self.remember_refusals();
        decision.updates.extend(more);
        self.kernel.hold_back(&mut decision.updates, &mut self.ledger).await;
        self.watch.pace.answered(&decision.updates, goes_on, Instant::now());
        if listed {
            self.watch.look_soon();
        }
        self.watch.owing |= (mute || self.ledger.waits()) && self.ledger.owes();
        Ok(decision)
    }

    /// Tells a person what the ledger did; what that was.
    fn tell_notes(&mut self) -> Vec<Note> {
        let notes = self.ledger.take_notes();
        notes.iter().for_each(|note| self.tell(note));
        notes
    }

    fn tell(&mut self, note: &Note) {
        let level = if note.warning { log::Level::Warn } else { log::Level::Info };
        log::log!(level, "{note}");
        self.history.note(answer::now(), note);
    }

    /// Writes the checkpoint if claims have changed since it was last written.
    async fn save(&mut self) -> Result<(), StateError> {
        let revision = self.ledger.revision();
        if self.saved == Some(revision) {
            return Ok(());
        }
        let claims: Vec<Claim> = self.ledger.claims().collect();
        let state = Arc::clone(&self.state);
        let write = tokio::task::spawn_blocking(move || state.save(&claims));
        // The closure neither panics nor is it cancelled; if it ever were, nothing is known to be on disk.
        let result =
            write.await.unwrap_or_else(|error| Err(StateError::Interrupted(error.to_string())));
        self.saved = result.is_ok().then_some(revision);
        self.save_error = result.as_ref().err().map(ToString::to_string);
        self.counters.checkpoint_errors += u64::from(result.is_err());
        result
    }
}

/// What the checkpoint remembers. A missing one is no news, one that cannot be trusted is.
fn remembered(state: &StateDir) -> Result<Vec<Claim>, StateError> {
    Ok(match state.load()? {
        Loaded::Missing => {
            log::info!(
                "no checkpoint: a first start, or it was deleted; running containers tell what is assigned"
            );
            Vec::new()
        }
        Loaded::Claims(claims) => {
            log::info!("checkpoint: {} exclusive assignments remembered", claims.len());
            claims
        }
        Loaded::Rejected { why, kept_at } => {
            let place =
                kept_at.map_or_else(String::new, |path| format!(", kept as {}", path.display()));
            log::error!(
                "the checkpoint cannot be used{place}: {why}. Running containers tell what is assigned"
            );
            Vec::new()
        }
    })
}

/// Serves messages until the edge has ended, and answers questions while there are no messages.
///
/// `owner` is there from the start, or made by the first `Configure` (of a plugin that the runtime launched and hands
/// the configuration to).
pub async fn serve(
    mut inbox: mpsc::UnboundedReceiver<Message>,
    (observer, mut questions): (Observer, mpsc::Receiver<Question>),
    paths: &Paths,
    mut owner: Option<Owner>,
) {
    let mut listening = owner.is_some() && listen_locally(paths, &observer);
    let mut current = Session(0);
    let mut link = Link::default();
    let mut waiting = "the runtime has not sent the configuration yet".to_owned();
    loop {
        let message = tokio::select! {
            biased;
            message = inbox.recv() => message,
            Some(question) = questions.recv() => {
                answer::answer(question, owner.as_mut(), &link, &waiting);
                continue;
            }
            work = watch::next(&mut owner) => {
                if let Some(owner) = owner.as_mut() {
                    owner.work(work).await;
                }
                continue;
            }
        };
        let Some(message) = message else { return };
        match message {
            Message::Configure { session, runtime, capabilities, config, reply, updater } => {
                current = session;
                introduce(&runtime, &capabilities);
                link.introduced(session.0, runtime);
                let result = match owner.take() {
                    Some(owner) => Ok(owner),
                    None => configure(paths, &config),
                };
                let result = result.map(|known| {
                    let owner = owner.insert(Owner { updater, ..known });
                    owner.watch.pace.reconnected();
                    listening = listening || listen_locally(paths, &observer);
                    owner.promise(&capabilities);
                    Subscriptions { before_start: owner.kernel.is_on(), validation: owner.strict }
                });
                if let Err(Refusal(why)) = &result {
                    waiting.clone_from(why);
                }
                // A runtime that has gone meanwhile needs no answer.
                let _ = reply.send(result);
            }
            Message::Event { session, event, reply } => {
                let Some(owner) = owner.as_mut().filter(|_| session == current) else { continue };
                owner.watch.pace.went_on(Instant::now());
                let synchronized = matches!(event, Event::Synchronize { .. });
                let answer = owner.handle(event).await;
                if synchronized && let Ok(decision) = &answer {
                    announce(owner, decision);
                    link.synchronized();
                }
                if let Err(Ok(unheard)) = reply.send(answer) {
                    owner.note(Event::Undelivered(unheard.updates));
                    owner.watch.pace.unheard();
                }
            }
            Message::Validate { session, container, cpus, reply } => {
                let Some(owner) = owner.as_mut().filter(|_| session == current) else { continue };
                let _ = reply.send(owner.validate(&container, cpus));
            }
            Message::WentOn { session } => {
                if let Some(owner) = owner.as_mut().filter(|_| session == current) {
                    owner.watch.pace.went_on(Instant::now());
                }
            }
            Message::Disconnected { session } => {
                log::debug!("{session} has ended");
                link.ended(session.0);
            }
        }
    }
}

/// Lets people ask on a socket beside the state, which is locked for this process by now. Without it all else goes on.
fn listen_locally(paths: &Paths, observer: &Observer) -> bool {
    match endpoint::listen_locally(&paths.state_dir) {
        Ok(listener) => {
            tokio::spawn(endpoint::serve_locally(listener, observer.clone()));
            true
        }
        Err(error) => {
            let path = paths.state_dir.join(endpoint::SOCKET);
            log::warn!(
                "nobody can ask for the status: cannot listen on {}: {error}",
                path.display()
            );
            false
        }
    }
}

/// Reads the configuration that the runtime handed over.
fn configure(paths: &Paths, text: &str) -> Result<Owner, Refusal> {
    Config::parse("configuration from the runtime", text)
        .map_err(StartError::from)
        .and_then(|config| Owner::start(paths, &config))
        .map_err(|error| {
            log::error!("{error}");
            Refusal(error.to_string())
        })
}

fn introduce(runtime: &Runtime, capabilities: &Capabilities) {
    log::info!("runtime: {runtime}");
    for warning in &capabilities.warnings {
        log::warn!("{warning}");
    }
}

fn announce(owner: &Owner, decision: &Decision) {
    let pods = owner.ledger.view().pods;
    let (exclusive, pool) = (owner.ledger.exclusive(), owner.ledger.pool());
    log::info!(
        "synchronised with {}: exclusive {}, shared pool {pool}, {} changed",
        count(pods, "pod"),
        if exclusive.is_empty() { "CPUs none".to_owned() } else { wording::cpus(exclusive) },
        count(decision.updates.len(), "container"),
    );
    if owner.ledger.settings().policy == Policy::None {
        log::info!("cpuManagerPolicy is none: no container gets exclusive CPUs");
    }
}
