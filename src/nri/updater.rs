//! Changes of containers that no event asked for.

use super::outgoing;
use super::wire::{RuntimeClient, UpdateContainersRequest};
use crate::ledger::{ContainerId, Update};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long to wait for a runtime that changes containers one after the other, ~50 ms each.
const PATIENCE: Duration = Duration::from_secs(30);
/// Changes in one call: far below what fits into a message.
const AT_ONCE: usize = 1000;

/// Changes containers without an event having asked for it.
///
/// There is one only where this is safe, see
/// [`Capabilities::unsolicited_updates`](super::Capabilities::unsolicited_updates). Not to be
/// awaited before an event is answered: the runtime makes the change when its events in flight have
/// ended.
#[derive(Clone)]
pub struct Updater {
    runtime: RuntimeClient,
    /// One call at a time.
    turn: Arc<Semaphore>,
}

/// Why it is not known whether a change was made. The cgroups tell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// An earlier change has not been answered yet.
    #[error("the runtime has not answered the last change of containers yet")]
    Busy,
    /// The runtime takes too long; it may still make the change.
    #[error("the runtime has not answered a change of containers for {} s", PATIENCE.as_secs())]
    Slow,
    /// The runtime answered with an error, or the connection ended.
    #[error("the runtime did not change containers: {0}")]
    Failed(String),
}

impl Updater {
    pub(super) fn new(runtime: RuntimeClient) -> Updater {
        Updater { runtime, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Makes changes in the order given, and names the containers of which the runtime says that it
    /// could not. It may fail to say so: what was really set, only the cgroups tell.
    ///
    /// # Errors
    ///
    /// When the outcome is unknown. Until the runtime has answered, or the connection has ended,
    /// all later calls are [`UpdateError::Busy`].
    pub async fn update(&self, updates: &[Update]) -> Result<Vec<ContainerId>, UpdateError> {
        let turn = self.turn.clone().try_acquire_owned().map_err(|_| UpdateError::Busy)?;
        let runtime = self.runtime.clone();
        let updates = outgoing::updates(updates, None);
        // In a task of its own: giving up waiting must not take back a call that is on its way, nor
        // its turn.
        let call = tokio::spawn(async move {
            let _turn = turn;
            let mut failed = Vec::new();
            for part in updates.chunks(AT_ONCE) {
                let request =
                    UpdateContainersRequest { update: part.to_vec(), ..Default::default() };
                let context = ttrpc::context::Context::default();
                let answer = runtime.update_containers(context, &request).await;
                let answer = answer.map_err(|error| UpdateError::Failed(words(error)))?;
                failed.extend(answer.failed.into_iter().map(|up| ContainerId(up.container_id)));
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

/// What the runtime had to say; the crate's own words for it show all of a message's insides.
pub(super) fn words(error: ttrpc::Error) -> String {
    match error {
        ttrpc::Error::RpcStatus(status) => status.message,
        error => error.to_string(),
    }
}
