//! [`Executor`]: carries out what the core returns, and brings it everything that happens.
//!
//! It alone holds the state directory, the connection to the runtime and inotify, and it decides
//! nothing. The core's steps run on a thread where waiting for the kernel delays no message.

use super::checks::Findings;
use super::device_finder::DeviceFinder;
use super::devices::FoundDevices;
use super::owner::Owner;
use super::paths::{Paths, StartError};
use super::poller::Poller;
use super::quieting::QuietOutcome;
use super::start::{Machine, NodeAccess};
use super::step::{CallId, Effect, Input};
use super::threads::Threads;
use super::{blocking, given_to, log_repeated, result_of};
use config::{self, Config, Follower, Reading};
use edge::{self, Refusal, Response, Subscriptions};
use exclusivity::Watch;
use kernel::Linux;
use kubelet::{self, StateFileReading, StateFileWatcher};
use log::Level;
use nri::Updater;
use state::checkpoint::{SavedClaims, StateDir, StateError};
use state::worker::Worker;
use status::NodeFigures;
use status::health::Condition;
use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use wording::Repeats;

/// The core, and everything that outlasts its steps.
#[derive(Debug)]
pub struct Executor {
    /// `None` while it takes a step.
    owner: Option<Box<Owner>>,
    state: Arc<StateDir>,
    updater: Option<Updater>,
    kubelet: Poller<StateFileWatcher, StateFileReading>,
    config: Poller<Follower, Reading>,
    groups: Watch,
    quotas: Watch,
    saving: Option<JoinHandle<Save>>,
    /// Whether the state directory is another one than before.
    has_new_directory: bool,
    /// What is wrong is `None` if the runtime had gone before the call.
    calling: Option<JoinHandle<Result<(), Option<String>>>>,
    repeats: Repeats,
    checking: Option<JoinHandle<Findings>>,
    finder: Arc<DeviceFinder>,
    finding: Option<JoinHandle<FoundDevices>>,
    quieter: Worker,
    quieting: Option<oneshot::Receiver<QuietOutcome>>,
    replies: BTreeMap<CallId, ReplyChannel>,
    calls: u64,
}

/// The result of a save, and the directory that has replaced a lost one.
type Save = (Option<StateDir>, Result<(), StateError>);

/// Where the answer to a call goes.
#[derive(Debug)]
pub(super) enum ReplyChannel {
    Answer(oneshot::Sender<Result<Response, Refusal>>),
    Validated(oneshot::Sender<Result<(), Refusal>>),
}

impl Executor {
    /// Checks the configuration against the machine, locks the state directory and reads the
    /// checkpoint. Logs what is in force.
    ///
    /// # Errors
    /// If any of that fails. No container has changed then.
    pub fn start(
        paths: &Paths,
        config: &Config,
        threads: &Threads,
    ) -> Result<Executor, StartError> {
        let config = &config.for_node(&paths.node)?;
        config.log_level().apply();
        let kernel = Arc::new(Linux);
        let finder = DeviceFinder::new(
            config.kubelet_socket(),
            &paths.proc_root,
            &paths.sysfs_root,
            threads,
        );
        let machine = Machine::read(&*kernel, &paths.sysfs_root, config)?.with_gpus(finder.gpus());
        let finder = Arc::new(finder);
        let state = StateDir::open(&paths.state_dir, &threads.disk)?;
        let node = NodeAccess { kernel, storage: Arc::new(state.disk().clone()) };
        let claims = state.remembered()?;
        let mut kubelet = kubelet_poller(config.kubelet_state_dir().map(PathBuf::from));
        let reading = kubelet.read_first();
        let now = Instant::now().into_std();
        let owner = Box::new(Owner::start(paths, config, machine, node, claims, reading, now)?);
        let file = paths.config.as_deref().map(|path| Follower::new(path, config, &paths.node));
        Ok(Executor {
            owner: Some(owner),
            state: Arc::new(state),
            updater: None,
            kubelet,
            config: Poller::new(file, config::INTERVAL, Follower::read),
            groups: Watch::default(),
            quotas: Watch::default(),
            saving: None,
            has_new_directory: false,
            calling: None,
            repeats: Repeats::default(),
            checking: None,
            finder,
            finding: None,
            quieter: threads.interrupts.clone(),
            quieting: None,
            replies: BTreeMap::new(),
            calls: 0,
        })
    }

    /// A runtime has connected. Returns the optional calls that the core subscribes to.
    pub(super) async fn connected(
        &mut self,
        updater: Option<Updater>,
        input: Input,
    ) -> Subscriptions {
        self.updater = updater;
        self.groups = Watch::new();
        self.quotas = Watch::new();
        self.replies.clear();
        self.take_step(input).await.unwrap_or_default()
    }

    /// Brings the core a call of the runtime.
    pub(super) async fn call(&mut self, reply: ReplyChannel, input: impl FnOnce(CallId) -> Input) {
        self.calls += 1;
        let id = CallId(self.calls);
        self.replies.insert(id, reply);
        self.take_step(input(id)).await;
    }

    /// Has the core take a step, and carries out its effects. Returns the subscriptions for a
    /// runtime that has just connected.
    pub(super) async fn take_step(&mut self, input: Input) -> Option<Subscriptions> {
        let mut subscriptions = None;
        let mut effects = VecDeque::from(self.step(input).await);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Subscribe(events) => subscriptions = Some(events),
                Effect::Answer(id, result) => {
                    let delivered = match self.replies.remove(&id) {
                        Some(ReplyChannel::Answer(reply)) => reply.send(result).is_ok(),
                        _ => false,
                    };
                    effects.extend(self.step(Input::Answered(id, delivered)).await);
                }
                Effect::Validated(id, result) => {
                    if let Some(ReplyChannel::Validated(reply)) = self.replies.remove(&id) {
                        // The runtime may have disconnected.
                        let _ = reply.send(result);
                    }
                }
                Effect::Save(claims) => {
                    let state = Arc::clone(&self.state);
                    self.saving = Some(tokio::task::spawn_blocking(move || save(&state, &claims)));
                }
                Effect::Update(updates) => {
                    let updater = self.updater.clone();
                    self.calling = Some(tokio::spawn(async move {
                        let Some(updater) = updater else { return Err(None) };
                        let made = updater.update(edge::nri::updates(&updates)).await;
                        made.map(drop).map_err(|error| Some(error.to_string()))
                    }));
                }
                Effect::Check(pass) => {
                    self.checking = Some(tokio::task::spawn_blocking(move || pass.run()));
                }
                Effect::FindDevices => {
                    let finder = Arc::clone(&self.finder);
                    self.finding = Some(tokio::spawn(async move { finder.find().await }));
                }
                Effect::Quiet(pass) => {
                    self.quieting = Some(given_to(&self.quieter, move || pass.run()));
                }
                Effect::WatchGroups(watched) => self.groups.set(&watched),
                Effect::WatchQuotas(watched) => self.quotas.set(&watched),
                Effect::Log(level) => level.apply(),
                Effect::WatchKubelet(directory) => {
                    self.kubelet = kubelet_poller(directory);
                    let reading = self.kubelet.read_first().unwrap_or(StateFileReading::Missing);
                    effects.extend(self.step(Input::Kubelet(reading)).await);
                }
            }
        }
        subscriptions
    }

    async fn step(&mut self, input: Input) -> Vec<Effect> {
        let now = Instant::now().into_std();
        if !input.may_wait_for_kernel() {
            return self.owner.as_mut().map(|owner| owner.step(input, now)).unwrap_or_default();
        }
        let Some(mut owner) = self.owner.take() else { return Vec::new() };
        let (owner, effects) = blocking(move || {
            let effects = owner.step(input, now);
            (owner, effects)
        })
        .await;
        self.owner = Some(owner);
        effects
    }

    /// Waits for what comes next, apart from messages of the runtime. Cancel safe.
    ///
    /// # Errors
    /// If another instance decides now.
    pub(super) async fn next(&mut self) -> Result<Input, StateError> {
        let due = self.owner.as_deref().and_then(Owner::due).map(Instant::from_std);
        Ok(tokio::select! {
            (reopened, result) = ended(&mut self.saving) => {
                if let Some(state) = reopened {
                    self.state = Arc::new(state);
                    self.has_new_directory = true;
                }
                match result {
                    Err(lost @ StateError::Lost { .. }) => return Err(lost),
                    result => Input::Saved(result),
                }
            }
            made = ended(&mut self.calling) => {
                if let Err(Some(error)) = &made {
                    let now = Instant::now().into_std();
                    log_repeated(&mut self.repeats, Level::Warn, error, now);
                }
                Input::Updated(made.is_ok())
            }
            found = ended(&mut self.checking) => Input::Checked(found),
            found = ended(&mut self.finding) => Input::Devices(found),
            outcome = received(&mut self.quieting) => Input::Quieted(outcome),
            created = self.groups.next() => Input::Groups(created),
            _ = self.quotas.next() => Input::Quotas,
            reading = self.kubelet.next() => Input::Kubelet(reading),
            reading = self.config.next() => Input::Config(reading),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Input::Time,
        })
    }

    /// Whether the state directory was replaced since the last call.
    pub(super) fn takes_new_directory(&mut self) -> bool {
        std::mem::take(&mut self.has_new_directory)
    }

    pub(super) fn view(&mut self) -> Result<NodeFigures, String> {
        let owner = self.owner.as_mut().ok_or_else(ending)?;
        let mut view = owner.view(Instant::now().into_std());
        view.parts.checkpoint.stalled = self.state.stalled();
        Ok(view)
    }

    /// What health depends on.
    pub(super) fn condition(&self) -> Result<Condition<'_>, String> {
        let owner = self.owner.as_ref().ok_or_else(ending)?;
        Ok(owner.condition(Instant::now().into_std(), self.state.stalled()))
    }

    /// The core between its steps.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.owner.as_deref()
    }
}

fn ending() -> String {
    "the daemon is ending".to_owned()
}

/// Saves claims. If the directory is lost, it saves them into the one that has its path now, and returns that.
fn save(state: &StateDir, claims: &SavedClaims) -> Save {
    let result = state.save(claims);
    let Err(StateError::Lost { dir, .. }) = &result else { return (None, result) };
    match state.reopen() {
        Ok(new) => {
            log::warn!(
                "checkpoint: the state directory {} was removed or replaced: saving into the new one",
                dir.display()
            );
            let result = new.save(claims);
            (Some(new), result)
        }
        Err(error) => (None, Err(error)),
    }
}

/// Waits for the result of a task; without a task, forever. Cancel safe.
async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> T {
    let Some(running) = task else { return pending().await };
    let result = result_of(running).await;
    *task = None;
    result
}

/// Waits for the result of a thread; without one, forever. Cancel safe.
async fn received<T>(result: &mut Option<oneshot::Receiver<T>>) -> T {
    let Some(running) = result else { return pending().await };
    let received = running.await;
    *result = None;
    match received {
        Ok(result) => result,
        // Only a panic of the thread ends it without a result.
        Err(_) => pending().await,
    }
}

fn kubelet_poller(directory: Option<PathBuf>) -> Poller<StateFileWatcher, StateFileReading> {
    let file = directory.map(|directory| StateFileWatcher::new(&directory));
    Poller::new(file, kubelet::INTERVAL, StateFileWatcher::read)
}
