//! [`Checkpoint`]: the ledger's claims on disk.

use super::blocking;
use crate::checkpoint::{Loaded, StateDir, StateError};
use crate::ledger::{Claim, Ledger};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Checkpoint {
    state: Arc<StateDir>,
    /// The revision that is on disk; `None` before the first write and after a failed one.
    saved: Option<u64>,
    error: Option<String>,
}

impl Checkpoint {
    pub(super) fn open(dir: &Path) -> Result<Checkpoint, StateError> {
        let state = Arc::new(StateDir::open(dir)?);
        Ok(Checkpoint { state, saved: None, error: None })
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

    /// Writes the claims if they have changed since the last write.
    pub(super) async fn save(&mut self, ledger: &Ledger) -> Result<(), StateError> {
        let revision = ledger.revision();
        if self.saved == Some(revision) {
            return Ok(());
        }
        let claims: Vec<Claim> = ledger.claims().collect();
        let state = Arc::clone(&self.state);
        let result = blocking(move || state.save(&claims)).await;
        self.saved = result.is_ok().then_some(revision);
        self.error = result.as_ref().err().map(ToString::to_string);
        result
    }

    pub(super) fn error(&self) -> Option<String> {
        self.error.clone()
    }
}
