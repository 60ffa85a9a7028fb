//! Changes of containers without an event.

use crate::exchange::{Update, legal};
use crate::wire::{ContainerUpdate, RuntimeClient, UpdateContainersRequest};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long to wait for the runtime, which needs about 50 ms for each change.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most changes in one call. A message could have far more.
const AT_ONCE: usize = 1000;

/// Changes containers without an event.
///
/// It exists only where this is safe, see
/// [`Capabilities::unsolicited_updates`](crate::Capabilities::unsolicited_updates). Do not await it
/// before the answer to an event: the runtime makes the change only after its events in flight.
#[derive(Clone)]
pub struct Updater {
    runtime: RuntimeClient,
    turn: Arc<Semaphore>,
}

/// Why the result of a change is unknown. The cgroups show it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error("the runtime has not answered the last update yet")]
    Busy,
    /// The runtime may still make the changes.
    #[error("the runtime has not answered an update for {} s", PATIENCE.as_secs())]
    Slow,
    /// The runtime answered with an error, or the connection ended.
    #[error("the runtime did not update containers: {0}")]
    Failed(String),
}

impl Updater {
    pub(crate) fn new(runtime: RuntimeClient) -> Updater {
        Updater { runtime, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Makes changes in the given order, only the last one of each container, and returns those that the
    /// runtime reports as failed. Its report may be incomplete: only the cgroups show the result.
    ///
    /// # Errors
    /// The result is unknown. Until the runtime has answered, or the connection has ended, all later
    /// calls return [`UpdateError::Busy`].
    pub async fn update(&self, updates: Vec<Update>) -> Result<Vec<ContainerUpdate>, UpdateError> {
        let turn = self.turn.clone().try_acquire_owned().map_err(|_| UpdateError::Busy)?;
        let runtime = self.runtime.clone();
        let updates = legal(updates, None);
        // In a separate task: the end of the wait must not cancel a call under way, nor release its
        // turn.
        let call = tokio::spawn(async move {
            let _turn = turn;
            let mut failed = Vec::new();
            for part in updates.chunks(AT_ONCE) {
                let update = part.iter().map(ContainerUpdate::from).collect();
                let request = UpdateContainersRequest { update, ..Default::default() };
                let context = ttrpc::context::Context::default();
                let answer = runtime.update_containers(context, &request).await;
                let answer = answer.map_err(|error| UpdateError::Failed(message_of(error)))?;
                failed.extend(answer.failed);
            }
            Ok(failed)
        });
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(UpdateError::Failed(error.to_string())),
            Err(_) => Err(UpdateError::Slow),
        }
    }
}

impl fmt::Debug for Updater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updater").finish_non_exhaustive()
    }
}

/// The runtime's error message. The text of `ttrpc::Error` has the debug output of the whole status.
pub(crate) fn message_of(error: ttrpc::Error) -> String {
    match error {
        ttrpc::Error::RpcStatus(status) => status.message,
        error => error.to_string(),
    }
}
