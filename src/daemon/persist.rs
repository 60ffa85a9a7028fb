//! [`Checkpoint`]: the ledger's claims on disk.

use super::blocking;
use crate::checkpoint::{Loaded, StateDir, StateError};
use crate::disk::Disk;
use crate::ledger::{Claim, Ledger};
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long after a failed write to try again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Checkpoint {
    state: Arc<StateDir>,
    /// Whether claims may have changed since the last write, or try.
    pub(super) changed: bool,
    failed: Option<Failure>,
}

/// The last write has failed, or is stalled.
#[derive(Debug)]
struct Failure {
    why: String,
    retry_at: Instant,
}

impl Checkpoint {
    pub(super) fn open(dir: &Path) -> Result<Checkpoint, StateError> {
        let state = Arc::new(StateDir::open(dir)?);
        Ok(Checkpoint { state, changed: true, failed: None })
    }

    pub(super) fn disk(&self) -> &Disk {
        self.state.disk()
    }

    /// Reads the checkpoint. A missing one is normal, a damaged one logs an error.
    pub(super) fn remembered(&self) -> Result<Vec<Claim>, StateError> {
        Ok(match self.state.load()? {
            Loaded::Missing => {
                log::info!(
                    "checkpoint: none (first start, or deleted): adopting what running containers have"
                );
                Vec::new()
            }
            Loaded::Claims(claims) => {
                log::info!("checkpoint: read (claims={})", claims.len());
                claims
            }
            Loaded::Rejected { why, kept_at } => {
                let place = kept_at
                    .map_or_else(String::new, |path| format!(", kept as {}", path.display()));
                log::error!(
                    "checkpoint: cannot be used{place}: {why}. Adopting what running containers have"
                );
                Vec::new()
            }
        })
    }

    /// Writes the claims unless they are on disk.
    pub(super) async fn save(&mut self, ledger: &Ledger) -> Result<(), StateError> {
        if !std::mem::take(&mut self.changed) && !self.is_failing() {
            return Ok(());
        }
        let claims: Vec<Claim> = ledger.claims().collect();
        let state = Arc::clone(&self.state);
        let result = blocking(move || state.save(&claims)).await;
        let failure = |error: &StateError| Failure {
            why: error.to_string(),
            retry_at: Instant::now() + RETRY,
        };
        self.failed = result.as_ref().err().map(failure);
        result
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    /// Waits until a failed write is to be tried again. Cancel safe.
    pub(super) async fn retry(&self) {
        match &self.failed {
            Some(failure) => sleep_until(failure.retry_at).await,
            None => pending().await,
        }
    }

    /// The directory whose disk does not respond, and for how long.
    pub(super) fn stalled(&self) -> Option<String> {
        let stalled = self.disk().stalled()?;
        Some(format!("{}: {stalled}", self.state.path().display()))
    }

    pub(super) fn error(&self) -> Option<String> {
        self.failed.as_ref().map(|failure| failure.why.clone())
    }
}
