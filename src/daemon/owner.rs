//! [`Owner`]: owns the ledger, and does what the parts beside it report.

use super::balance::Balance;
use super::checks::Checks;
use super::complete::{correct_list, locate_devices};
use super::decision_log::DecisionLog;
use super::delivery::{Answer, Delivery, Sent};
use super::drift::DriftWatcher;
use super::enforcement::{CgroupStep, Enforcement, RefusedTarget};
use super::exposed_files::ExposedFiles;
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::orphans::{Orphans, deserted_pods};
use super::persist::Checkpoint;
use super::quotas::Quotas;
use super::reload::ConfigReload;
use crate::checkpoint::StateError;
use crate::edge::{Refusal, Response};
use crate::exclusivity::Scope;
use crate::ledger::{
    Admission, Call, Channel, Creation, Decision, Due, Event, Ledger, Note, Outcome,
};
use crate::view::counters::{CreateOutcome, EventKind};
use std::time::Duration;
use tokio::time::Instant;

/// Owns the ledger and its checkpoint.
#[derive(Debug)]
pub struct Owner {
    pub(super) ledger: Ledger,
    pub(super) checkpoint: Checkpoint,
    pub(super) record: DecisionLog,
    pub(super) delivery: Delivery,
    pub(super) enforcement: Enforcement,
    pub(super) kubelet: KubeletWatch,
    pub(super) config: ConfigReload,
    pub(super) hotplug: Hotplug,
    pub(super) checks: Checks,
    pub(super) drift: DriftWatcher,
    pub(super) orphans: Orphans,
    pub(super) quotas: Quotas,
    pub(super) exposure: ExposedFiles,
    pub(super) strict: bool,
    /// The moment that the ledger's time counts from.
    pub(super) started: Instant,
    pub(super) balance: Balance,
    /// How long the runtime waits for an answer.
    pub(super) answer_within: Duration,
}

impl Owner {
    /// Has the ledger record an event, and logs what it does.
    pub(super) fn apply(&mut self, event: Event) -> Outcome {
        let outcome = self.ledger.apply(event);
        self.log();
        self.mark_outdated(outcome);
        outcome
    }

    pub(super) fn apply_all(&mut self, events: Vec<Event>) {
        for event in events {
            self.apply(event);
        }
    }

    /// Has the ledger know what time it is.
    pub(super) fn pass_time(&mut self) {
        self.apply(Event::Time(self.started.elapsed()));
    }

    fn log(&mut self) -> Vec<Note> {
        let notes = self.ledger.take_notes();
        self.record.log_all(&notes, &self.ledger);
        notes
    }

    /// Marks what an outcome has made out of date.
    fn mark_outdated(&mut self, outcome: Outcome) {
        self.checkpoint.changed |= outcome.claims;
        self.exposure.outdated |= outcome.reach || outcome.adopted;
        self.exposure.unadopted |= outcome.adopted;
        if outcome.rules {
            self.enforcement.settle_all(&self.ledger);
        }
    }

    /// Handles one call of the runtime: decides, logs, saves, carries out, answers.
    pub(super) async fn handle(&mut self, mut call: Call) -> Answer {
        let kind = EventKind::from(&call);
        let started = Instant::now();
        self.pass_time();
        self.prepare(&mut call).await;
        let answer = match call {
            Call::Admission(admission) => match self.decide(admission, kind).await {
                Ok(answer) => answer,
                Err(refusal) => Answer { result: Err(refusal), sent: Sent::Nothing },
            },
            Call::Event(event) => self.follow(event).await,
        };
        let (outcome, updates) = match &answer.result {
            Ok(Response { adjustment, updates, .. }) => {
                (CreateOutcome::of(adjustment.as_ref()), updates.len())
            }
            Err(_) => (CreateOutcome::Refused, 0),
        };
        self.record.counters.handled(kind, started.elapsed(), outcome, updates);
        answer
    }

    /// Completes a call, and has the ledger follow what else has changed by now.
    async fn prepare(&mut self, call: &mut Call) {
        let creates = matches!(call, Call::Admission(Admission::Create { .. }));
        // No container gets a CPU that is offline, or waits for those of a pod that is over.
        if creates || matches!(call, Call::Event(Event::Synchronize { .. })) {
            self.check_machine().await;
        }
        if creates {
            self.end_deserted().await;
        }
        correct_list(self.checks.verifier(), call).await;
        locate_devices(self.hotplug.sysfs(), call);
        self.enforcement.note_left(call);
        let active = self.kubelet.note_call(call, self.ledger.settings().policy);
        if let Some(event) = active {
            self.apply(event);
        }
    }

    /// Decides about a request and answers it. By then the decision is on disk, and cgroups keep
    /// others off its CPUs.
    async fn decide(&mut self, admission: Admission, kind: EventKind) -> Result<Answer, Refusal> {
        self.make_room(&admission).await;
        let admitted = self.ledger.admit(admission);
        let notes = self.log();
        let mut decision = admitted.map_err(|rejection| {
            let placement = &self.ledger.settings().placement;
            self.record.counters.rejected(kind, rejection.reason, placement);
            Refusal(rejection.to_string())
        })?;
        self.mark_outdated(decision.outcome);
        if let Err(error) = self.keep(&notes).await {
            self.refuse_unsaved(&decision, kind, &error)?;
        }
        let refused = if decision.creation.is_some() {
            let reserved = self.enforcement.reserve(&decision.container, &self.ledger).await;
            reserved.map_err(|refusal| {
                // The container keeps its claim for the kubelet's next try, within seconds, so that
                // a restarted container finds its own CPUs.
                let why = format!("CPUs cannot be taken yet: {refusal}");
                self.record.refuse(kind, &decision.container, &why, &self.ledger)
            })?
        } else {
            let step = CgroupStep::Settle(decision.container.clone());
            self.enforcement.follow(step, &self.ledger).await
        };
        let fell_back = refused.is_some_and(|refused| self.fall_back(refused));
        if self.bind(Scope::Binding).await || fell_back {
            decision = self.ledger.revised(decision);
        }
        self.hold_back_early(&mut decision.due).await;
        let mut response =
            Response { updates: decision.due.updates.clone(), ..Response::default() };
        if let Some(Creation { adjustment, exposed, .. }) = &decision.creation {
            response.adjustment = *adjustment;
            if let Some(reach) = exposed {
                self.expose(&decision.container, **reach, &mut response).await;
            }
        }
        Ok(Answer { result: Ok(response), sent: Sent::Decision(decision) })
    }

    /// Has the ledger record what the runtime reports, carries out what follows, and answers.
    async fn follow(&mut self, event: Event) -> Answer {
        let lists = matches!(event, Event::Synchronize { .. });
        let removes = matches!(event, Event::Remove(_));
        let answer_has_updates = event.answer_has_updates();
        let step = CgroupStep::of(&event);
        let outcome = self.ledger.apply(event);
        let notes = self.log();
        self.mark_outdated(outcome);
        if removes || lists {
            self.end_deserted().await;
        }
        self.balance.unbalanced |= outcome.freed && self.ledger.settings().rebalance.is_some();
        // An error is in the log, and running containers show their CPUs after a crash.
        let _ = self.keep(&notes).await;
        if let Some(refused) = self.enforcement.follow(step, &self.ledger).await {
            self.fall_back(refused);
        }
        self.bind(Scope::Binding).await;
        if lists {
            self.checks.soon();
            self.announce();
        }
        if !answer_has_updates {
            return Answer { result: Ok(Response::default()), sent: Sent::Nothing };
        }
        let mut due = self.ledger.due(&Channel::Runtime);
        self.hold_back_early(&mut due).await;
        let response = Response { updates: due.updates.clone(), ..Response::default() };
        Answer { result: Ok(response), sent: Sent::Due(due) }
    }

    /// Updates that the kernel is not ready for stay due.
    async fn hold_back_early(&self, due: &mut Due) {
        let early = self.enforcement.too_early(&due.updates, &self.ledger).await;
        due.hold_back(|id| early.contains(id));
    }

    /// Writes what a call has changed, with these notes, and counts the CPUs that it gave. A call
    /// that changes no claim does not wait for a disk that fails or stalls.
    async fn keep(&mut self, notes: &[Note]) -> Result<(), StateError> {
        if self.checkpoint.is_failing() && !self.checkpoint.changed {
            self.show_decided().await;
        } else {
            self.save().await?;
        }
        let placement = &self.ledger.settings().placement;
        self.record.counters.given(notes, self.ledger.topology(), placement);
        Ok(())
    }

    /// Writes the checkpoint if claims have changed, and has the files of containers name the CPUs.
    pub(super) async fn save(&mut self) -> Result<(), StateError> {
        let result = self.checkpoint.save(&self.ledger).await;
        self.record.counters.checkpoint_errors += u64::from(result.is_err());
        self.show_decided().await;
        result.inspect_err(|error| log::error!("{error}"))
    }

    /// Writes a checkpoint that could not be written before.
    pub(super) async fn save_again(&mut self) {
        if self.checkpoint.save(&self.ledger).await.is_ok() {
            log::info!("checkpoint: written again");
            self.show_decided().await;
        }
    }

    /// A decision is not on disk. The owner refuses a new exclusive container, as after a crash its
    /// CPUs would be unknown; the kubelet tries again. Everything else goes on: running containers
    /// show their CPUs, and a restarted one has its CPUs on disk under its name.
    fn refuse_unsaved(
        &mut self,
        decision: &Decision,
        kind: EventKind,
        error: &StateError,
    ) -> Result<(), Refusal> {
        let Some(Creation { adjustment: Some(adjustment), inherited: false, .. }) =
            decision.creation
        else {
            return Ok(());
        };
        if !adjustment.is_exclusive() {
            return Ok(());
        }
        let why = format!(
            "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
        );
        let refusal = self.record.refuse(kind, &decision.container, &why, &self.ledger);
        self.apply(Event::Revoked(decision.container.clone()));
        Err(refusal)
    }

    /// Has cgroups keep others off exclusive CPUs. Returns whether what the ledger learns from that
    /// may make updates due.
    pub(super) async fn bind(&mut self, scope: Scope) -> bool {
        let events = self.enforcement.bind(scope, &self.ledger).await;
        let mut due = false;
        for event in events {
            due |= self.apply(event).due;
        }
        due
    }

    /// The kernel refused something. Returns whether updates may be due because of that.
    pub(super) fn fall_back(&mut self, refused: RefusedTarget) -> bool {
        let Some(event) = self.enforcement.fall_back(&refused) else { return false };
        let due = self.apply(event).due;
        let (target, refusal) = refused;
        self.record.kernel_refused(target.subject, refusal.to_string());
        due
    }

    /// Has the ledger forget pods that have ended without a report.
    pub(super) async fn end_deserted(&mut self) {
        let deserted = self.ledger.deserted().collect();
        let ended = deserted_pods(self.checks.verifier(), deserted).await;
        self.apply_all(ended);
    }
}
