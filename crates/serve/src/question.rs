//! How an observer asks the ledger's owner, and how long it waits for the answer.
//!
//! The owner itself answers: so an answer proves that the owner is alive, and shows the result of
//! every event that it handled before. Probes ask nothing: the owner says every second that it waits for events.

use state::clock::now;
use status::outlook::{Change, Outlook};
use status::{Health, NodeView, Snapshot};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

/// How many questions may wait for the owner; further observers wait for a place in the queue.
const QUEUE: usize = 16;

/// How long the owner may take to answer. It waits for the kernel, which answers within milliseconds,
/// and at most a second for the disk. By default a runtime waits for two seconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A question to the owner.
#[derive(Debug)]
pub enum Question {
    /// How the node is now.
    View(oneshot::Sender<Arc<NodeView>>),
    /// What a change would do.
    DryRun(oneshot::Sender<Result<DryRun, String>>),
}

/// Answers from copies of the owner's state, on another thread.
pub struct DryRun(pub Box<Answering>);

/// The error is why the change could not be made.
type Answering = dyn FnOnce(&Change) -> Result<Outlook, String> + Send;

impl fmt::Debug for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DryRun")
    }
}

/// The asking side.
#[derive(Debug, Clone)]
pub struct ViewSource {
    ask: mpsc::Sender<Question>,
    pulse: watch::Receiver<Pulse>,
}

/// The owner's side.
#[derive(Debug)]
pub struct Observers {
    questions: mpsc::Receiver<Question>,
    pulse: watch::Sender<Pulse>,
}

/// What the owner was when it last waited for an event. Probes read it, so that they cost the owner nothing.
#[derive(Debug, Clone)]
struct Pulse {
    at: Instant,
    health: Arc<Health>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The owner is busy, or waits for the kernel.
    #[error(
        "no answer from the plugin's main task for {} s",
        TIMEOUT.as_secs()
    )]
    Late,
    #[error("the plugin is stopping")]
    Gone,
}

/// The asking side, and the owner's.
pub fn questions() -> (ViewSource, Observers) {
    let (ask, questions) = mpsc::channel(QUEUE);
    let health = Health::starting();
    let pulse = Pulse { at: Instant::now(), health: Arc::new(health) };
    let (beats, pulse) = watch::channel(pulse);
    (ViewSource { ask, pulse }, Observers { questions, pulse: beats })
}

impl Observers {
    /// How often the owner has to call [`Observers::beat`] even if nothing happens.
    pub const BEAT: Duration = Duration::from_secs(1);

    /// The owner has handled everything before, and waits for an event now.
    pub fn beat(&self, health: Arc<Health>) {
        self.pulse.send_replace(Pulse { at: Instant::now(), health });
    }

    /// Waits for a question. Cancel safe.
    pub async fn asked(&mut self) -> Option<Question> {
        self.questions.recv().await
    }
}

impl ViewSource {
    pub async fn view(&self) -> Result<Arc<NodeView>, NoAnswer> {
        self.answer(Question::View).await
    }

    /// The inner error is why there is nothing to try a change on.
    pub(super) async fn dry_run(&self) -> Result<Result<DryRun, String>, NoAnswer> {
        self.answer(Question::DryRun).await
    }

    async fn answer<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.ask.send(question(reply)).await.map_err(|_| NoAnswer::Gone)?;
            answer.await.map_err(|_| NoAnswer::Gone)
        };
        timeout(TIMEOUT, asked).await.unwrap_or(Err(NoAnswer::Late))
    }

    /// The status, dated now.
    pub async fn status(&self) -> Result<Snapshot, NoAnswer> {
        Ok(self.view().await?.snapshot(now()))
    }

    /// The owner's health when it last waited for an event. Does not wait for the owner.
    pub(super) fn health(&self) -> Result<Arc<Health>, NoAnswer> {
        if self.pulse.has_changed().is_err() {
            return Err(NoAnswer::Gone);
        }
        let Pulse { at, health } = self.pulse.borrow().clone();
        if at.elapsed() < Observers::BEAT + TIMEOUT { Ok(health) } else { Err(NoAnswer::Late) }
    }
}
