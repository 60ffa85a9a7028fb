//! [`Owner`]: owns the ledger, and does what the parts beside it report.

use super::balance::Balance;
use super::checks::Checks;
use super::complete::{correct_list, locate_devices};
use super::decision_log::DecisionLog;
use super::delivery::{Answer, Delivery, Sent};
use super::drift::DriftWatcher;
use super::enforcement::{Enforcement, RefusedTarget};
use super::exposed_files::ExposedFiles;
use super::facts::{CallFacts, concerns_all};
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::orphans::{Orphans, deserted_pods};
use super::persist::Checkpoint;
use super::quotas::Quotas;
use super::reload::ConfigReload;
use crate::checkpoint::StateError;
use crate::edge::Refusal;
use crate::exclusivity::Scope;
use crate::ledger::{Call, Event, Ledger, Stance};
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
    pub(super) fn apply(&mut self, event: Event) {
        let concerns_all = concerns_all(&event);
        let takes_over = matches!(&event, Event::Kubelet { stance: Stance::Assign, .. });
        self.exposure.unadopted |= takes_over;
        self.ledger.apply(event);
        let notes = self.ledger.take_notes();
        self.record.log_all(&notes, &self.ledger);
        if concerns_all {
            self.enforcement.settle_all(&self.ledger);
        }
    }

    /// Has the ledger know what time it is.
    pub(super) fn pass_time(&mut self) {
        self.apply(Event::Time(self.started.elapsed()));
    }

    pub(super) fn apply_all(&mut self, events: Vec<Event>) {
        for event in events {
            self.apply(event);
        }
    }

    /// Handles one call of the runtime: handles, logs, saves, carries out, answers.
    pub(super) async fn handle(&mut self, mut call: Call) -> Answer {
        let facts = CallFacts::of(&call);
        let started = Instant::now();
        let revision = self.ledger.revision();
        self.pass_time();
        self.prepare(&mut call, &facts).await;
        self.make_room(&call).await;
        let answer = match self.decide(call, &facts, revision).await {
            Ok(()) => self.answer(&facts).await,
            Err(refusal) => Answer { result: Err(refusal), sent: Sent::default() },
        };
        self.record.counters.handled(facts.kind, started.elapsed(), &answer.result);
        answer
    }

    /// Completes a call, and has the ledger follow what else has changed by now.
    async fn prepare(&mut self, call: &mut Call, facts: &CallFacts) {
        // No container gets a CPU that is offline, or waits for those of a pod that is over.
        if facts.created.is_some() || facts.lists {
            self.check_machine().await;
        }
        if facts.created.is_some() {
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

    /// Decides about a call, `revision` being the ledger's when it came. When this returns without an
    /// error, the decision is on disk and cgroups keep others off its CPUs.
    async fn decide(
        &mut self,
        call: Call,
        facts: &CallFacts,
        revision: u64,
    ) -> Result<(), Refusal> {
        let admitted = match call {
            Call::Admission(admission) => self.ledger.admit(admission),
            Call::Event(event) => {
                self.ledger.apply(event);
                Ok(())
            }
        };
        if facts.removes || facts.lists {
            self.end_deserted().await;
        }
        self.balance.unbalanced |= facts.frees && self.ledger.settings().rebalance.is_some();
        let notes = self.ledger.take_notes();
        self.record.log_all(&notes, &self.ledger);
        let placement = &self.ledger.settings().placement;
        admitted.map_err(|rejection| {
            self.record.counters.rejected(facts.kind, rejection.reason, placement);
            Refusal(rejection.to_string())
        })?;
        if facts.lists {
            self.adopt_exposed().await;
        }
        // A call that changes no claim does not wait for a disk that fails or stalls.
        let saved = if self.checkpoint.is_failing() && self.ledger.revision() == revision {
            self.show_decided().await;
            Ok(())
        } else {
            self.save().await
        };
        match saved {
            Ok(()) => {
                let placement = &self.ledger.settings().placement;
                self.record.counters.given(&notes, self.ledger.topology(), placement);
            }
            Err(error) => self.keep_unsaved(facts, &error)?,
        }
        let refused = self.enforcement.follow(&facts.step, &self.ledger).await;
        let refused = refused.map_err(|refusal| {
            // The container keeps its claim for the kubelet's next try, within seconds, so that a
            // restarted container finds its own CPUs.
            let why = format!("CPUs cannot be taken yet: {refusal}");
            self.record.refuse(facts, &why, &self.ledger)
        })?;
        if let Some(refused) = refused {
            self.fall_back(refused);
        }
        self.bind(Scope::Binding).await;
        if facts.lists {
            self.checks.soon();
            self.announce();
        }
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
    fn keep_unsaved(&mut self, facts: &CallFacts, error: &StateError) -> Result<(), Refusal> {
        let Some(id) = &facts.created else { return Ok(()) };
        let adjustment = self.ledger.adjustment(id);
        if adjustment.is_none_or(|adjustment| !adjustment.is_exclusive())
            || self.ledger.inherits(id)
        {
            return Ok(());
        }
        let why = format!(
            "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
        );
        let refusal = self.record.refuse(facts, &why, &self.ledger);
        self.apply(Event::Revoked(id.clone()));
        Err(refusal)
    }

    /// The answer to a call, with all updates that it can carry.
    async fn answer(&mut self, facts: &CallFacts) -> Answer {
        let mut decision = self.ledger.decision(facts.created.as_ref());
        let created = facts.created.clone().map(|id| (id, decision.adjustment));
        if let Some((id, Some(adjustment))) = &created
            && adjustment.is_exclusive()
        {
            decision.directory = self.expose(id).await;
        }
        let mut sent = Sent { created, due: None, prompt: facts.prompt };
        if let Some(channel) = &facts.channel {
            let mut due = self.ledger.due(channel);
            let early = self.enforcement.too_early(&due.updates, &self.ledger).await;
            due.hold_back(|id| early.contains(id));
            decision.updates.clone_from(&due.updates);
            sent.due = Some(due);
        }
        Answer { result: Ok(decision), sent }
    }

    pub(super) async fn bind(&mut self, scope: Scope) {
        let events = self.enforcement.bind(scope, &self.ledger).await;
        self.apply_all(events);
    }

    pub(super) fn fall_back(&mut self, refused: RefusedTarget) {
        let Some(event) = self.enforcement.fall_back(&refused) else { return };
        self.apply(event);
        let (target, refusal) = refused;
        self.record.kernel_refused(target.subject, refusal.to_string());
    }

    /// Has the ledger forget pods that have ended without a report.
    pub(super) async fn end_deserted(&mut self) {
        let deserted = self.ledger.deserted().collect();
        let ended = deserted_pods(self.checks.verifier(), deserted).await;
        self.apply_all(ended);
    }
}
