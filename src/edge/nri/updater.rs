//! Changes of containers without an event.

use super::outgoing;
use super::wire::{RuntimeClient, UpdateContainersRequest};
use crate::edge::{UPDATE_PATIENCE, UpdateError, Updater};
use async_trait::async_trait;
use ledger::{ContainerId, Update};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The most changes in one call; far more fit into a message.
const AT_ONCE: usize = 1000;

#[derive(Clone)]
pub(super) struct RuntimeUpdater {
    runtime: RuntimeClient,
    turn: Arc<Semaphore>,
}

impl RuntimeUpdater {
    pub(super) fn new(runtime: RuntimeClient) -> RuntimeUpdater {
        RuntimeUpdater { runtime, turn: Arc::new(Semaphore::new(1)) }
    }
}

#[async_trait]
impl Updater for RuntimeUpdater {
    async fn update(&self, updates: &[Update]) -> Result<Vec<ContainerId>, UpdateError> {
        let turn = self.turn.clone().try_acquire_owned().map_err(|_| UpdateError::Busy)?;
        let runtime = self.runtime.clone();
        let updates = outgoing::updates(updates, None);
        // In a separate task: the end of the wait must not cancel a call under way, nor release its
        // turn.
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
        match tokio::time::timeout(UPDATE_PATIENCE, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(UpdateError::Failed(error.to_string())),
            Err(_) => Err(UpdateError::Slow),
        }
    }
}

impl fmt::Debug for RuntimeUpdater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeUpdater").finish_non_exhaustive()
    }
}

/// The runtime's message; the crate's own text has the debug output of the whole message.
pub(super) fn words(error: ttrpc::Error) -> String {
    match error {
        ttrpc::Error::RpcStatus(status) => status.message,
        error => error.to_string(),
    }
}
