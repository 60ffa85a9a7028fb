//! How an observer asks the ledger's owner, and how long it waits for the answer.
//!
//! The owner itself answers: so an answer proves that the owner is alive, and shows the result of
//! every event that it handled before.

use crate::clock::now;
use crate::view::{NodeView, Status};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How many questions may wait for the owner; further observers wait for a place in the queue.
const QUEUE: usize = 16;

/// How long the owner may take to answer. It waits for the kernel, which answers within milliseconds,
/// and at most a second for the disk. By default a runtime waits for two seconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the owner how the node is now.
#[derive(Debug)]
pub struct Question(pub oneshot::Sender<Arc<NodeView>>);

/// The asking side.
#[derive(Debug, Clone)]
pub struct ViewSource(mpsc::Sender<Question>);

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
pub fn questions() -> (ViewSource, mpsc::Receiver<Question>) {
    let (ask, questions) = mpsc::channel(QUEUE);
    (ViewSource(ask), questions)
}

impl ViewSource {
    pub async fn view(&self) -> Result<Arc<NodeView>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.0.send(Question(reply)).await.map_err(|_| NoAnswer::Gone)?;
            answer.await.map_err(|_| NoAnswer::Gone)
        };
        timeout(TIMEOUT, asked).await.unwrap_or(Err(NoAnswer::Late))
    }

    /// The status, dated now.
    pub async fn status(&self) -> Result<Status, NoAnswer> {
        Ok(self.view().await?.status(now()))
    }
}
