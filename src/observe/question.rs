//! How an observer asks the ledger's owner, and how long it waits for the answer.

use super::explanation::Explanation;
use super::figures::Figures;
use super::report::Status;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Questions that may wait for the owner; an observer that comes after so many others waits for them first.
const QUEUE: usize = 16;

/// How long the owner may take to answer. It waits for the disk and, in its turn, for the kernel: both answer within
/// milliseconds as long as they work. A runtime waits for two seconds at most.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// What an observer wants to know.
#[derive(Debug)]
pub enum Question {
    /// All figures.
    Figures(oneshot::Sender<Figures>),
    /// The node and its containers.
    Status(oneshot::Sender<Status>),
    /// Why the containers that this names have the CPUs they have; see [`explain`](super::explanation::explain).
    Explain(String, oneshot::Sender<Vec<Explanation>>),
}

/// The asking side.
#[derive(Debug, Clone)]
pub struct Observer(mpsc::Sender<Question>);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The owner is busy, or waits for a disk that does not answer.
    #[error(
        "the task that owns the CPUs has not answered for {} s: the disk of the state directory may hang",
        PATIENCE.as_secs()
    )]
    Late,
    /// There is no owner any more.
    #[error("the plugin is stopping")]
    Gone,
}

/// A way to ask, and the owner's end of it.
pub fn questions() -> (Observer, mpsc::Receiver<Question>) {
    let (ask, questions) = mpsc::channel(QUEUE);
    (Observer(ask), questions)
}

impl Observer {
    /// All figures, as they are now.
    ///
    /// # Errors
    /// If the owner does not answer within [`PATIENCE`].
    pub async fn figures(&self) -> Result<Figures, NoAnswer> {
        self.ask(Question::Figures).await
    }

    /// The node and its containers, as they are now.
    ///
    /// # Errors
    /// If the owner does not answer within [`PATIENCE`].
    pub async fn status(&self) -> Result<Status, NoAnswer> {
        self.ask(Question::Status).await
    }

    /// Why the containers that `name` names have the CPUs they have.
    ///
    /// # Errors
    /// If the owner does not answer within [`PATIENCE`].
    pub async fn explain(&self, name: String) -> Result<Vec<Explanation>, NoAnswer> {
        self.ask(|reply| Question::Explain(name, reply)).await
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.0.send(question(reply)).await.map_err(|_| NoAnswer::Gone)?;
            answer.await.map_err(|_| NoAnswer::Gone)
        };
        timeout(PATIENCE, asked).await.unwrap_or(Err(NoAnswer::Late))
    }
}
