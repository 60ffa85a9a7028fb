//! [`Delivery`]: how updates reach containers: with an answer, by a call of the runtime, or by
//! writes into groups.
//!
//! Updates that fail or are too early go back to the ledger ([`Event::Undelivered`]), for the next
//! delivery.

use super::action::Action;
use super::blocking::blocking;
use super::keeper::Keeper;
use super::pace::Pace;
use crate::edge::Updater;
use crate::exclusivity::{KernelRefusal, Writer};
use crate::ledger::{Channel, ContainerId, Event, Ledger, Mechanism, Target, Update};
use std::future::pending;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The most writes of one container in a row: it leaves CPUs, gets some, and gets the rest. The
/// drift watcher repairs what fails.
const ROUNDS: usize = 4;

/// What the runtime does with the answer to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// It makes the updates of the answer, then the container of the event, and calls again as soon
    /// as it is done.
    Prompt,
    /// It makes the updates of the answer. Its next call can come at any time.
    Plain,
    /// It reads no updates from the answer.
    NoUpdates,
}

impl ResponseKind {
    pub(super) fn to(event: &Event) -> ResponseKind {
        match event {
            Event::Create { .. } | Event::Update { .. } => ResponseKind::Prompt,
            Event::Remove(_) | Event::Started { .. } | Event::StopPod(_) | Event::RemovePod(_) => {
                ResponseKind::NoUpdates
            }
            _ => ResponseKind::Plain,
        }
    }
}

/// A call of the runtime that has ended.
#[derive(Debug, Default)]
pub(super) struct Sent {
    changes: Vec<Update>,
    delivered: bool,
}

#[derive(Debug)]
pub(super) struct Delivery {
    /// Calls the runtime; `None` where that is not safe.
    updater: Option<Arc<dyn Updater>>,
    sending: Option<JoinHandle<Sent>>,
    /// Whether updates are due that the last answer could not carry.
    owing: bool,
    /// Containers whose updates the daemon sends again when all drifts are repaired.
    again: Vec<ContainerId>,
    pub(super) pace: Pace,
    /// Sets single containers' CPUs; `None` where cgroups cannot be written.
    writer: Option<Writer>,
    /// Failed writes since the start.
    pub(super) errors: u64,
}

impl Delivery {
    pub(super) fn new(writer: Option<Writer>) -> Delivery {
        Delivery {
            updater: None,
            sending: None,
            owing: false,
            again: Vec::new(),
            pace: Pace::default(),
            writer,
            errors: 0,
        }
    }

    pub(super) fn connected(&mut self, updater: Option<Arc<dyn Updater>>) {
        self.updater = updater;
        self.pace.reconnected();
    }

    pub(super) fn calls(&self) -> bool {
        self.updater.is_some()
    }

    /// Takes updates that are too early out of an answer, and records the rest as under way.
    pub(super) async fn answer(
        &mut self,
        kind: ResponseKind,
        updates: &mut Vec<Update>,
        keeper: &mut Keeper,
    ) {
        self.hold_back(updates, keeper).await;
        self.pace.answered(updates, kind == ResponseKind::Prompt, Instant::now());
        let carried = kind != ResponseKind::NoUpdates && !keeper.ledger.waits();
        self.owing |= !carried && keeper.ledger.owes();
    }

    /// The last answer did not reach the runtime.
    pub(super) fn undelivered(&mut self, updates: Vec<Update>, keeper: &mut Keeper) {
        keeper.note(Event::Undelivered(updates));
        self.pace.undelivered();
    }

    /// Takes updates out that the runtime must not make yet: the kernel still keeps their CPUs for
    /// a removed group. A later answer carries them.
    pub(super) async fn hold_back(&self, updates: &mut Vec<Update>, keeper: &mut Keeper) {
        let early = self.too_early(updates, &keeper.ledger).await;
        if !early.is_empty() {
            let held = updates.extract_if(.., |update| early.contains(&update.container));
            keeper.note(Event::Undelivered(held.collect()));
        }
    }

    /// Waits until the kernel has given back the CPUs of these updates. Returns the containers for
    /// which it has not.
    fn too_early(
        &self,
        updates: &[Update],
        ledger: &Ledger,
    ) -> impl Future<Output = Vec<ContainerId>> + use<> {
        let partitions = ledger.mechanism() == Mechanism::Partitions && !updates.is_empty();
        let waiting = self.writer.clone().filter(|_| partitions).map(|writer| {
            let placed = updates.iter().filter_map(|update| ledger.target(&update.container));
            (writer, placed.collect::<Vec<Target>>())
        });
        async move {
            let Some((writer, placed)) = waiting else { return Vec::new() };
            blocking(move || {
                let early = writer.await_cpus(&placed).into_iter().map(|(placed, why)| {
                    log::warn!("{}: its CPUs are set later: {why}", placed.subject);
                    placed.subject.id.clone()
                });
                early.collect()
            })
            .await
        }
    }

    /// Whether updates are due that no answer could carry; resets it.
    pub(super) fn is_owing(&mut self) -> bool {
        std::mem::take(&mut self.owing)
    }

    /// After a decision that no answer carries: writes the checkpoint, then calls the runtime with
    /// the due updates, or writes control groups where a call is not safe. Returns whether a look
    /// at the groups has to come before the next step.
    pub(super) async fn flush(&mut self, keeper: &mut Keeper) -> bool {
        if let Err(error) = keeper.save().await {
            log::error!("{error}");
        }
        let by_groups = keeper.ledger.mechanism() == Mechanism::Groups;
        if self.calls() && !by_groups {
            self.send(keeper).await;
            return false;
        }
        // Containers that wait for others have to stay until a look shows that these have left.
        let waits = keeper.ledger.waits();
        if !waits {
            self.write_groups(keeper).await;
        }
        if self.calls() {
            self.send(keeper).await;
        }
        waits
    }

    /// Writes due updates into groups, in the ledger's order. The next answer repeats them to the
    /// runtime; if groups cannot be written, it is the only way.
    pub(super) async fn write_groups(&mut self, keeper: &mut Keeper) {
        if self.writer.is_none() {
            return;
        }
        // One that cannot be written holds up no other.
        let mut failed = Vec::new();
        for _ in 0..ROUNDS {
            let writes = keeper.deliver(Channel::Groups);
            if writes.is_empty() {
                break;
            }
            for write in writes {
                let Some(placed) = keeper.ledger.target(&write.container) else { continue };
                if !self.set_cpus(placed).await {
                    failed.push(write);
                }
            }
        }
        if !failed.is_empty() {
            keeper.note(Event::Undelivered(failed));
        }
    }

    /// Sets a container's CPUs without the runtime. Returns whether that worked.
    pub(super) async fn set_cpus(&mut self, placed: Target) -> bool {
        self.write(placed, Writer::set_cpus).await
    }

    /// Lifts an exclusive container's CFS quota. Returns whether that worked.
    pub(super) async fn lift_quota(&mut self, placed: Target) -> bool {
        self.write(placed, |writer, placed| Ok(writer.lift_quota(placed)?)).await
    }

    /// Logs and counts what the kernel refuses, except for a group that no longer exists.
    async fn write(
        &mut self,
        placed: Target,
        write: impl FnOnce(&Writer, &Target) -> Result<(), KernelRefusal> + Send + 'static,
    ) -> bool {
        let Some(writer) = self.writer.clone() else { return false };
        let subject = placed.subject.clone();
        match blocking(move || Some(write(&writer, &placed))).await {
            Some(Ok(())) => true,
            Some(Err(refused)) => {
                if !refused.is_gone() && !matches!(refused, KernelRefusal::Nowhere) {
                    self.errors += 1;
                    log::warn!("{subject}: {refused}");
                }
                false
            }
            None => false,
        }
    }

    /// Calls the runtime with all due updates, unless a call is under way.
    async fn send(&mut self, keeper: &mut Keeper) {
        let Some(updater) = self.updater.clone().filter(|_| self.sending.is_none()) else { return };
        let changes = keeper.deliver(Channel::Runtime);
        if changes.is_empty() {
            return;
        }
        self.pace.called(&changes, Instant::now());
        let early = self.too_early(&changes, &keeper.ledger);
        self.sending = Some(tokio::spawn(async move {
            let delivered = early.await.is_empty()
                && updater
                    .update(&changes)
                    .await
                    .inspect_err(|error| log::warn!("{error}"))
                    .is_ok();
            Sent { changes, delivered }
        }));
    }

    /// The end of the call that is under way. Cancel safe.
    pub(super) async fn next(&mut self) -> Sent {
        let Some(sending) = &mut self.sending else { return pending().await };
        let sent = sending.await;
        self.sending = None;
        // It does not panic, and is never cancelled.
        sent.unwrap_or_default()
    }

    /// A call of the runtime has ended. Returns whether a look at the groups has to come before the
    /// next step.
    pub(super) async fn sent(&mut self, sent: Sent, keeper: &mut Keeper) -> bool {
        let Sent { changes, delivered } = sent;
        if delivered {
            self.pace.returned(Instant::now());
        }
        // Writes of newer decisions may have come before the call, and this call has undone them.
        let stale = changes.into_iter().filter(|change| {
            let now = keeper.ledger.target(&change.container);
            !delivered || now.is_some_and(|now| now.adjustment != change.adjustment)
        });
        keeper.note(Event::Drifted(stale.map(|change| change.container).collect()));
        // Updates that became due during the call had to wait.
        delivered && self.flush(keeper).await
    }

    /// Sends the update of a container again: by a call when all drifts are repaired, or with the
    /// next answer.
    pub(super) fn send_again(&mut self, id: &ContainerId, keeper: &mut Keeper) -> Action {
        if self.calls() {
            self.again.push(id.clone());
            return Action::Sent;
        }
        keeper.note(Event::Drifted(vec![id.clone()]));
        Action::Deferred
    }

    /// All drifts are repaired: calls the runtime with the updates to send again.
    pub(super) async fn repaired(&mut self, keeper: &mut Keeper) {
        let again = std::mem::take(&mut self.again);
        if !again.is_empty() {
            keeper.note(Event::Drifted(again));
            self.send(keeper).await;
        }
    }
}
