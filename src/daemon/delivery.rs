//! What goes out to the runtime: answers, and calls that bring updates without an event
//! ([`Delivery`]).

use super::pace::Pace;
use super::result_of;
use crate::edge::{Refusal, Response, Updater};
use crate::ledger::{ContainerId, Decision, Due, Update};
use std::future::pending;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What the runtime gets for a call, and what has gone out once it has it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) result: Result<Response, Refusal>,
    pub(super) sent: Sent,
}

/// What an answer carries.
#[derive(Debug)]
pub(super) enum Sent {
    /// The runtime reads no updates from it, or the request is refused.
    Nothing,
    Decision(Decision),
    Due(Due),
}

/// A call of the runtime that has ended.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) updates: Vec<Update>,
    /// Whether the runtime has made them, as it says.
    pub(super) made: bool,
}

#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// `None` where a call is not safe.
    updater: Option<Arc<dyn Updater>>,
    calling: Option<JoinHandle<Returned>>,
    /// Whether updates are due that the last answer could not carry.
    pub(super) owing: bool,
    pub(super) pace: Pace,
}

impl Delivery {
    pub(super) fn connected(&mut self, updater: Option<Arc<dyn Updater>>) {
        self.updater = updater;
        self.pace.reconnected();
    }

    /// Whether updates can go out without an answer.
    pub(super) fn calls(&self) -> bool {
        self.updater.is_some()
    }

    /// Whether a call could go out now.
    pub(super) fn is_free(&self) -> bool {
        self.calls() && self.calling.is_none()
    }

    /// Calls the runtime, as soon as the kernel has given back the CPUs of these updates: not at
    /// all, if `too_early` names any.
    pub(super) fn call(
        &mut self,
        updates: Vec<Update>,
        too_early: impl Future<Output = Vec<ContainerId>> + Send + 'static,
    ) {
        let Some(updater) = self.updater.clone() else { return };
        self.pace.called(&updates, Instant::now());
        self.calling = Some(tokio::spawn(async move {
            let made = too_early.await.is_empty()
                && updater
                    .update(&updates)
                    .await
                    .inspect_err(|error| log::warn!("{error}"))
                    .is_ok();
            Returned { updates, made }
        }));
    }

    /// The end of the call that is under way. Cancel safe.
    pub(super) async fn next(&mut self) -> Returned {
        let Some(calling) = &mut self.calling else { return pending().await };
        let returned = result_of(calling).await;
        self.calling = None;
        if returned.made {
            self.pace.returned(Instant::now());
        }
        returned
    }
}
