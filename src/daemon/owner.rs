//! [`Owner`]: owns the ledger, and does what the parts beside it report.

use super::checks::{Checks, Findings};
use super::complete::{correct_list, locate_devices};
use super::delivery::Delivery;
use super::drift::DriftWatcher;
use super::enforcement::{Enforcement, Refused};
use super::facts::Facts;
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::orphans::{Orphans, deserted_pods};
use super::persist::Checkpoint;
use super::record::Record;
use super::reload::ConfigReload;
use super::validation::{self, cannot_promise};
use crate::clock::now;
use crate::config::Reading;
use crate::cpuset::CpuSet;
use crate::edge::{Capabilities, Refusal, Subscriptions, Updater};
use crate::exclusivity::Scope;
use crate::kubelet::Look;
use crate::ledger::{
    Adjustment, Call, Channel, ContainerId, Decision, Due, Event, Ledger, Mechanism, Policy,
    Stance, Target,
};
use crate::wording::{self, count};
use std::sync::Arc;
use tokio::time::Instant;

/// Owns the ledger and its checkpoint.
#[derive(Debug)]
pub struct Owner {
    pub(super) ledger: Ledger,
    pub(super) checkpoint: Checkpoint,
    pub(super) record: Record,
    pub(super) delivery: Delivery,
    pub(super) enforcement: Enforcement,
    pub(super) kubelet: KubeletWatch,
    pub(super) config: ConfigReload,
    pub(super) hotplug: Hotplug,
    pub(super) checks: Checks,
    pub(super) drift: DriftWatcher,
    pub(super) orphans: Orphans,
    pub(super) strict: bool,
}

/// What the runtime gets for a call, and what has gone out once it has it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) result: Result<Decision, Refusal>,
    pub(super) sent: Sent,
}

/// What an answer carries.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) created: Option<(ContainerId, Option<Adjustment>)>,
    /// `None` if the runtime reads no updates from the answer.
    pub(super) due: Option<Due>,
    pub(super) prompt: bool,
}

impl Owner {
    /// A runtime has connected. Returns the optional calls to subscribe to.
    pub(super) fn connected(
        &mut self,
        updater: Option<Arc<dyn Updater>>,
        capabilities: &Capabilities,
    ) -> Subscriptions {
        self.delivery.connected(updater);
        self.enforcement.connected();
        if self.strict
            && let Some(warning) = cannot_promise(capabilities)
        {
            log::warn!("{warning}");
        }
        Subscriptions {
            before_start: self.ledger.mechanism() == Mechanism::Partitions,
            validation: self.strict,
        }
    }

    /// Has the ledger record an event, and logs what it does.
    pub(super) fn apply(&mut self, event: Event) {
        let concerns_all = match &event {
            Event::Machine(_) | Event::Settings(_) | Event::Mechanism(_) => true,
            Event::Kubelet { stance, .. } => *stance == Stance::Assign,
            _ => false,
        };
        self.ledger.apply(event);
        self.record.take_notes(&mut self.ledger);
        if concerns_all {
            self.enforcement.settle_all(&self.ledger);
        }
    }

    fn apply_all(&mut self, events: Vec<Event>) {
        events.into_iter().for_each(|event| self.apply(event));
    }

    /// Handles one call of the runtime: handles, logs, saves, carries out, answers.
    pub(super) async fn handle(&mut self, mut call: Call) -> Answer {
        let facts = Facts::of(&call);
        let started = Instant::now();
        self.prepare(&mut call, &facts).await;
        let answer = match self.decide(call, &facts).await {
            Ok(()) => self.answer(&facts).await,
            Err(refusal) => Answer { result: Err(refusal), sent: Sent::default() },
        };
        self.record.counters.handled(facts.kind, started.elapsed(), &answer.result);
        answer
    }

    /// Completes a call, and has the ledger follow what else has changed by now.
    async fn prepare(&mut self, call: &mut Call, facts: &Facts) {
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
        active.into_iter().for_each(|event| self.apply(event));
    }

    /// Decides about a call. When this returns without an error, the decision is on disk and cgroups
    /// keep others off its CPUs.
    async fn decide(&mut self, call: Call, facts: &Facts) -> Result<(), Refusal> {
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
        let notes = self.record.take_notes(&mut self.ledger);
        let placement = &self.ledger.settings().placement;
        admitted.map_err(|rejection| {
            self.record.counters.rejected(facts.kind, rejection.reason, placement);
            Refusal(rejection.to_string())
        })?;
        if self.save().await {
            let placement = &self.ledger.settings().placement;
            self.record.counters.given(&notes, self.ledger.topology(), placement);
        } else {
            self.keep_unsaved(facts)?;
        }
        let refused = self.enforcement.follow(&facts.step, &self.ledger).await;
        let refused = refused.map_err(|refusal| {
            // The container keeps its claim for the kubelet's next try, within seconds, so that a
            // restarted container finds its own CPUs.
            let why = format!("CPUs cannot be taken yet: {refusal}");
            self.record.refuse(facts, &why, &self.ledger)
        })?;
        refused.into_iter().for_each(|refused| self.fall_back(refused));
        self.bind(Scope::Binding).await;
        if facts.lists {
            self.checks.soon();
            self.announce();
        }
        Ok(())
    }

    /// Writes the checkpoint if claims have changed. Returns whether the disk has them.
    pub(super) async fn save(&mut self) -> bool {
        let result = self.checkpoint.save(&self.ledger).await;
        self.record.counters.checkpoint_errors += u64::from(result.is_err());
        result.inspect_err(|error| log::error!("{error}")).is_ok()
    }

    /// A decision is not on disk. The owner refuses a new exclusive container, as after a crash its
    /// CPUs would be unknown; the kubelet tries again. Everything else goes on: running containers
    /// show their CPUs, and a restarted one has its CPUs on disk under its name.
    fn keep_unsaved(&mut self, facts: &Facts) -> Result<(), Refusal> {
        let Some(id) = &facts.created else { return Ok(()) };
        let adjustment = self.ledger.adjustment(id);
        if adjustment.is_none_or(|(adjustment, _)| !adjustment.is_exclusive())
            || self.ledger.inherits(id)
        {
            return Ok(());
        }
        let error = self.checkpoint.error().unwrap_or_default();
        let why = format!(
            "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
        );
        let refusal = self.record.refuse(facts, &why, &self.ledger);
        self.apply(Event::Revoked(id.clone()));
        Err(refusal)
    }

    /// The answer to a call, with all updates that it can carry.
    async fn answer(&mut self, facts: &Facts) -> Answer {
        let mut decision = Decision::default();
        let mut sent = Sent { prompt: facts.prompt, ..Sent::default() };
        if let Some(id) = &facts.created {
            if let Some((adjustment, environment)) = self.ledger.adjustment(id) {
                decision.adjustment = Some(adjustment);
                decision.environment = environment;
            }
            sent.created = Some((id.clone(), decision.adjustment));
        }
        if let Some(channel) = &facts.channel {
            let mut due = self.ledger.due(channel);
            let early = self.enforcement.too_early(&due.updates, &self.ledger).await;
            due.hold_back(|id| early.contains(id));
            decision.updates.clone_from(&due.updates);
            sent.due = Some(due);
        }
        Answer { result: Ok(decision), sent }
    }

    /// Whether the CPUs that the runtime is about to set for a new container are the decided ones.
    pub(super) fn validate(
        &mut self,
        container: &ContainerId,
        set: Option<CpuSet>,
    ) -> Result<(), Refusal> {
        if !self.strict {
            return Ok(());
        }
        let validated = validation::validate(&self.ledger, container, set);
        if validated.is_err() {
            self.record.counters.count_rejection(validation::STRICT);
        }
        validated
    }

    fn announce(&self) {
        let exclusive = self.ledger.exclusive();
        log::info!(
            "synchronised with {}: exclusive {}, shared pool {}, {} changed",
            count(self.ledger.view().pods, "pod"),
            if exclusive.is_empty() { "CPUs none".to_owned() } else { wording::cpus(exclusive) },
            self.ledger.pool(),
            count(self.ledger.due(&Channel::Runtime).updates.len(), "container"),
        );
        if self.ledger.settings().policy == Policy::None {
            log::info!("cpuManagerPolicy is none: no container gets exclusive CPUs");
        }
    }

    pub(super) async fn bind(&mut self, scope: Scope) {
        let unbound = self.enforcement.bind(scope, &self.ledger).await;
        unbound.into_iter().for_each(|event| self.apply(event));
    }

    fn fall_back(&mut self, refused: Refused) {
        let Some(event) = self.enforcement.fall_back(&refused) else { return };
        self.apply(event);
        let (target, refusal) = refused;
        self.record.history().kernel_refused(now(), target.subject, refusal.to_string());
    }

    /// Settles a container's cgroup. Returns whether it is a partition as decided. If the kernel
    /// refuses, others leave its CPUs by their cgroups at once.
    pub(super) async fn settle(&mut self, id: &ContainerId) -> bool {
        let settled = self.enforcement.settle(id, &self.ledger).await;
        let refused = settled.is_err();
        settled.err().into_iter().for_each(|refused| self.fall_back(refused));
        if refused || self.enforcement.is_settled() {
            self.bind(Scope::Binding).await;
        }
        !refused && self.ledger.mechanism() == Mechanism::Partitions
    }

    /// Another program may have written into a cgroup, or containers have left CPUs by now that
    /// others wait for.
    pub(super) async fn follow_groups(&mut self) {
        self.bind(Scope::Binding).await;
        self.flush_owed().await;
    }

    pub(super) async fn check_machine(&mut self) {
        let Some(event) = self.hotplug.changed(self.ledger.topology().online()) else { return };
        self.apply(event);
        if self.ledger.bound().is_empty() {
            log::error!(
                "hotplug: all online CPUs are exclusive: no CPU is left for shared containers"
            );
        }
        self.flush().await;
    }

    pub(super) async fn quiet_period_ended(&mut self) {
        let event = self.orphans.quiet_period_ended();
        self.apply(event);
        self.flush_owed().await;
    }

    pub(super) async fn reconfigure(&mut self, reading: Reading) {
        let Some(judged) = self.config.judge(reading, self.ledger.topology()) else { return };
        let mechanism = self.ledger.mechanism();
        let (before, event) = self.config.apply(judged, self.ledger.settings(), mechanism);
        event.into_iter().for_each(|event| self.apply(event));
        let policy = self.ledger.settings().policy;
        let active = self.kubelet.reconfigure(&before, self.config.config(), policy);
        self.apply_all(active);
        self.flush().await;
    }

    pub(super) async fn check_kubelet(&mut self, look: Look) {
        let active = self.kubelet.check(look, self.ledger.settings().policy);
        active.into_iter().for_each(|event| self.apply(event));
        self.flush().await;
    }

    /// Has the ledger forget pods that have ended without a report.
    async fn end_deserted(&mut self) {
        let deserted = self.ledger.deserted().collect();
        let ended = deserted_pods(self.checks.verifier(), deserted).await;
        self.apply_all(ended);
    }

    /// A check pass has ended.
    pub(super) async fn checked(&mut self, Findings { mut drifted, sightings }: Findings) {
        self.bind(Scope::All).await;
        drifted.retain(|finding| self.is_decided(&finding.target));
        let all_as_decided = drifted.is_empty();
        let next = self.drift.note(drifted, &self.delivery.pace);
        self.checks.set_due(next);
        self.record.history().late = self.drift.suspects.late().cloned().collect();
        let ended = self.orphans.ended(sightings, Instant::now());
        self.apply_all(ended);
        self.end_deserted().await;
        if all_as_decided && self.ledger.mechanism() == Mechanism::Runtime {
            self.enforcement.let_go(&self.ledger).await;
        }
        if all_as_decided && self.ledger.waits() && !self.delivery.calls() {
            self.write_cpus().await;
        }
        self.flush_owed().await;
    }

    /// Whether the decision is still the same as when the check pass began.
    pub(super) fn is_decided(&self, target: &Target) -> bool {
        self.ledger.target(&target.subject.id).as_ref() == Some(target)
    }
}
