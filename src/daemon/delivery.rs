//! How updates reach containers: with an answer to the runtime, by a call of the runtime, or by
//! writes into groups.
//!
//! Whatever does not get there, or is too early, goes back to the ledger ([`Event::Undelivered`]),
//! which has it ready for the next delivery.

use super::action::Action;
use super::blocking::blocking;
use super::groups::GroupWriter;
use super::keeper::Keeper;
use super::pace::Pace;
use crate::enforce::Enforcer;
use crate::ledger::{Channel, ContainerId, Event, Exclusivity, Ledger, Target, Update};
use crate::nri::Updater;
use std::future::pending;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Writes of one container in a row at most: it leaves CPUs, gets some, and gets the rest. What
/// fails is left to the drift watcher.
const ROUNDS: usize = 4;

/// What the runtime does with the answer to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// It makes the changes of the answer, and then what it asks for here: it calls again as soon
    /// as it has.
    Prompt,
    /// It makes the changes of the answer. Its next call may be about anything, at any time.
    Plain,
    /// It reads no changes from it.
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
    heard: bool,
}

/// All ways by which updates reach containers.
#[derive(Debug)]
pub(super) struct Delivery {
    /// Calls the runtime; only where that is safe.
    updater: Option<Updater>,
    sending: Option<JoinHandle<Sent>>,
    /// Whether updates are left that the last answer could not carry.
    owing: bool,
    /// Containers of which the runtime is to be told again, when all drifts are repaired.
    again: Vec<ContainerId>,
    /// Which changes the runtime is about to make.
    pub(super) pace: Pace,
    pub(super) groups: GroupWriter,
    /// Knows which CPUs the kernel has not given back yet, where it keeps exclusivity.
    enforcer: Option<Enforcer>,
}

impl Delivery {
    pub(super) fn new(groups: GroupWriter, enforcer: Option<Enforcer>) -> Delivery {
        Delivery {
            updater: None,
            sending: None,
            owing: false,
            again: Vec::new(),
            pace: Pace::default(),
            groups,
            enforcer,
        }
    }

    /// Another runtime is there, or the same one again.
    pub(super) fn connected(&mut self, updater: Option<Updater>) {
        self.updater = updater;
        self.pace.reconnected();
    }

    /// Whether the runtime can be called.
    pub(super) fn calls(&self) -> bool {
        self.updater.is_some()
    }

    /// The runtime is about to be answered with these updates: takes those out that are too early.
    pub(super) async fn answer(
        &mut self,
        kind: ResponseKind,
        updates: &mut Vec<Update>,
        keeper: &mut Keeper,
    ) {
        self.owing |= self.spare_runtime(updates, keeper).await;
        self.hold_back(updates, keeper).await;
        self.pace.answered(updates, kind == ResponseKind::Prompt, Instant::now());
        let carried = kind != ResponseKind::NoUpdates && !keeper.ledger.waits();
        self.owing |= !carried && keeper.ledger.owes();
    }

    /// Where groups keep exclusivity the runtime changes no shared container: takes those out that
    /// change, and sets their CPUs here. Those that get some wait until others have left them; says
    /// whether there are any.
    async fn spare_runtime(&self, updates: &mut Vec<Update>, keeper: &mut Keeper) -> bool {
        if keeper.ledger.settings().exclusivity != Exclusivity::Groups {
            return false;
        }
        let target = |update: &Update| keeper.ledger.target(&update.container);
        let wider = self.groups.narrow(updates, target).await;
        let waits = !wider.is_empty();
        if waits {
            keeper.note(Event::Undelivered(wider));
        }
        waits
    }

    /// The runtime has not heard the last answer.
    pub(super) fn unheard(&mut self, updates: Vec<Update>, keeper: &mut Keeper) {
        keeper.note(Event::Undelivered(updates));
        self.pace.unheard();
    }

    /// Takes updates out that the runtime must not make yet: CPUs that the kernel still keeps for a
    /// group that is gone. They go along with a later answer.
    pub(super) async fn hold_back(&self, updates: &mut Vec<Update>, keeper: &mut Keeper) {
        let early = self.too_early(updates, &keeper.ledger).await;
        if !early.is_empty() {
            let held = updates.extract_if(.., |update| early.contains(&update.container));
            keeper.note(Event::Undelivered(held.collect()));
        }
    }

    /// Waits until the kernel has given back what is to be set for these containers. Those for
    /// which it has not.
    fn too_early(
        &self,
        updates: &[Update],
        ledger: &Ledger,
    ) -> impl Future<Output = Vec<ContainerId>> + use<> {
        let enforcer = self.enforcer.clone().filter(|_| !updates.is_empty());
        let waiting = enforcer.map(|enforcer| {
            let placed = updates.iter().filter_map(|update| ledger.target(&update.container));
            (enforcer, placed.collect::<Vec<Target>>())
        });
        async move {
            let Some((enforcer, placed)) = waiting else { return Vec::new() };
            blocking(move || {
                let early = enforcer.await_cpus(&placed).into_iter().map(|(placed, why)| {
                    log::warn!("{}: its CPUs are set later: {why}", placed.subject);
                    placed.subject.id.clone()
                });
                early.collect()
            })
            .await
        }
    }

    /// Whether updates are left that no answer could carry; says so once.
    pub(super) fn is_owing(&mut self) -> bool {
        std::mem::take(&mut self.owing)
    }

    /// After a decision that no answer carries: writes what must outlive the process, then tells
    /// the runtime at once what would go along with its next answer, or writes control groups
    /// itself where telling is not safe. Says whether a look at the groups is needed before it can
    /// go on.
    pub(super) async fn flush(&mut self, keeper: &mut Keeper) -> bool {
        if let Err(error) = keeper.save().await {
            log::error!("{error}");
        }
        let by_groups = keeper.ledger.settings().exclusivity == Exclusivity::Groups;
        if self.calls() && !by_groups {
            self.send(keeper).await;
            return false;
        }
        // Where containers wait for others, these may not have left yet: the runtime was told, and
        // a look shows when it is so.
        let waits = keeper.ledger.waits();
        if !waits {
            self.write_groups(keeper).await;
        }
        if self.calls() {
            self.send(keeper).await;
        }
        waits
    }

    /// Writes into groups what no answer can carry, in an order in which a container leaves CPUs
    /// before another one is let on them. The runtime hears of them with its next answer, as it
    /// does of all changes where groups cannot be written.
    pub(super) async fn write_groups(&mut self, keeper: &mut Keeper) {
        if self.groups.cannot_write().is_some() {
            return;
        }
        for _ in 0..ROUNDS {
            let writes = keeper.deliver(Channel::Groups);
            if writes.is_empty() {
                return;
            }
            let mut failed = Vec::new();
            for write in writes {
                let Some(placed) = keeper.ledger.target(&write.container) else { continue };
                if !self.groups.set_cpus(placed).await {
                    failed.push(write);
                }
            }
            if !failed.is_empty() {
                return keeper.note(Event::Undelivered(failed));
            }
        }
    }

    /// Calls the runtime with all updates that there are, unless a call is under way.
    async fn send(&mut self, keeper: &mut Keeper) {
        let Some(updater) = self.updater.clone().filter(|_| self.sending.is_none()) else { return };
        let mut changes = keeper.deliver(Channel::Runtime);
        self.spare_runtime(&mut changes, keeper).await;
        if changes.is_empty() {
            return;
        }
        self.pace.called(&changes, Instant::now());
        let early = self.too_early(&changes, &keeper.ledger);
        self.sending = Some(tokio::spawn(async move {
            let heard = early.await.is_empty()
                && updater
                    .update(&changes)
                    .await
                    .inspect_err(|error| log::warn!("{error}"))
                    .is_ok();
            Sent { changes, heard }
        }));
    }

    /// The call that is under way, when it has ended. Cancel safe.
    pub(super) async fn next(&mut self) -> Sent {
        let Some(sending) = &mut self.sending else { return pending().await };
        let sent = sending.await;
        self.sending = None;
        // It does not panic, and is never cancelled.
        sent.unwrap_or_default()
    }

    /// A call of the runtime has ended. Says whether a look at the groups is needed before it can
    /// go on.
    pub(super) async fn sent(&mut self, sent: Sent, keeper: &mut Keeper) -> bool {
        let Sent { changes, heard } = sent;
        if heard {
            self.pace.returned(Instant::now());
        }
        // What was decided meanwhile may have been carried out before, and count for nothing now.
        let stale = changes.into_iter().filter(|change| {
            let now = keeper.ledger.target(&change.container);
            !heard || now.is_some_and(|now| now.adjustment != change.adjustment)
        });
        keeper.note(Event::Drifted(stale.map(|change| change.container).collect()));
        // What has come up meanwhile had to wait for its turn.
        heard && self.flush(keeper).await
    }

    /// The runtime shall be told of a container once more: at once when all is repaired, or with
    /// its next answer.
    pub(super) fn tell_again(&mut self, id: &ContainerId, keeper: &mut Keeper) -> Action {
        if self.calls() {
            self.again.push(id.clone());
            return Action::Told;
        }
        keeper.note(Event::Drifted(vec![id.clone()]));
        Action::Deferred
    }

    /// All is repaired: tells the runtime of those containers of which it has to be told again.
    pub(super) async fn repaired(&mut self, keeper: &mut Keeper) {
        let again = std::mem::take(&mut self.again);
        if !again.is_empty() {
            keeper.note(Event::Drifted(again));
            self.send(keeper).await;
        }
    }
}
