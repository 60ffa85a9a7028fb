//! [`Owner`]: owns the ledger, and does what the parts beside it report.

use super::balance::{Balance, PlanRun};
use super::calls::{CallInfo, Handled, HandledCall, SentAnswer};
use super::checks::Checks;
use super::complete::{correct_list, locate_devices};
use super::decision_log::DecisionLog;
use super::delivery::{Delivery, Sent};
use super::drift::DriftWatcher;
use super::enforcement::{CgroupStep, Enforcement, RefusedTarget};
use super::exposed_files::ExposedFiles;
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::orphans::{Orphans, deserted_pods};
use super::persist::{AfterSave, Checkpoint};
use super::quotas::Quotas;
use super::reload::ConfigReload;
use super::step::{CallId, Effect, Input};
use crate::edge::{Refusal, Response};
use crate::exclusivity::Scope;
use crate::ledger::{
    Admission, Call, Channel, Creation, Decision, Due, Event, Ledger, Note, Outcome,
};
use crate::view::counters::{CreateOutcome, EventKind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The daemon's core: owns the ledger, and decides what happens.
///
/// It is deterministic: it has no thread, does not sleep, and gets the time with each input; only
/// the times of day in the status are the clock's. It reads and writes the node at once, through a [`Kernel`](crate::kernel::Kernel) and a
/// [`Storage`](crate::disk::Storage); what takes longer is an [`Effect`].
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
    /// The moment of the present step.
    pub(super) now: Instant,
    pub(super) balance: Balance,
    /// The plan whose moves are being made.
    pub(super) plan: Option<PlanRun>,
    /// How long the runtime waits for an answer.
    pub(super) answer_within: Duration,
    /// What the present step has led to.
    pub(super) effects: Vec<Effect>,
    /// Whether other cgroups may have to be watched, or new ones of the same names.
    pub(super) rewatches: bool,
    /// Answers that are on their way.
    pub(super) answers: BTreeMap<CallId, SentAnswer>,
}

impl Owner {
    /// Takes one thing in, and returns what follows.
    pub fn step(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Connected { capabilities, answer_within } => {
                self.connected(&capabilities, answer_within);
            }
            Input::Call(id, call) => self.handle(id, call),
            Input::Validate(id, container, cpus) => {
                let validated = self.validate(&container, cpus);
                self.effects.push(Effect::Validated(id, validated));
            }
            Input::WentOn => self.delivery.pace.went_on(now),
            Input::Answered(id, delivered) => {
                if let Some(answer) = self.answers.remove(&id) {
                    self.count(&answer);
                    // What a late answer carried has not gone out, and stays due.
                    if delivered {
                        self.answered(answer.sent);
                    }
                }
            }
            Input::Saved(result) => self.saved(&result),
            Input::Updated(made) => self.returned(made),
            Input::Checked(found) => self.checked(found),
            Input::Groups(created) => self.follow_groups(&created),
            Input::Quotas => self.quotas.written(now),
            Input::Kubelet(look) => self.check_kubelet(look),
            Input::Config(reading) => self.reconfigure(reading),
            Input::Time => self.work(),
        }
        if std::mem::take(&mut self.rewatches) {
            self.effects.push(Effect::WatchGroups(self.enforcement.watched()));
        }
        std::mem::take(&mut self.effects)
    }

    /// When [`Input::Time`] is due; a moment that is over means at once, but after all other inputs.
    pub fn due(&self) -> Option<Instant> {
        let has_backlog = self.enforcement.has_unsettled()
            || self.enforcement.is_untidy()
            || self.delivery.owing
            || self.balance.unbalanced && self.plan.is_none()
            || self.drift.has_confirmed();
        if has_backlog {
            return Some(self.now);
        }
        let timers = [
            self.look_at_move_due(),
            self.checkpoint.retry_at(),
            Some(self.hotplug.due()),
            self.enforcement.due(),
            self.quotas.due(),
            Some(self.orphans.quiet_until()),
            self.exposure.due(),
            self.movable_at(),
            self.checks.due(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Does the most urgent work that is due: the backlog first.
    fn work(&mut self) {
        let now = self.now;
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if let Some(id) = self.enforcement.next_unsettled() {
            self.settle(&id);
        } else if self.enforcement.is_untidy() {
            self.enforcement.tidy();
        } else if std::mem::take(&mut self.delivery.owing) {
            self.flush();
        } else if self.balance.unbalanced && self.plan.is_none() {
            self.balance.unbalanced = false;
            self.rebalance();
        } else if let Some(finding) = self.drift.next() {
            self.repair(finding);
        } else if is_due(self.look_at_move_due()) {
            self.look_at_move();
        } else if is_due(self.checkpoint.retry_at()) {
            self.save_again();
        } else if is_due(Some(self.hotplug.due())) {
            self.check_machine();
        } else if is_due(self.enforcement.due()) {
            self.look_at_groups();
        } else if is_due(self.quotas.due()) {
            self.follow_quotas();
        } else if is_due(Some(self.orphans.quiet_until())) {
            self.quiet_period_ended();
        } else if is_due(self.exposure.due()) {
            self.follow_exposed();
        } else if is_due(self.movable_at()) {
            self.rebalance();
        } else if is_due(self.checks.due()) {
            let pass = self.checks.begin(&self.ledger);
            self.effects.extend(pass.map(Effect::Check));
        }
    }

    /// When a container may be moved that may not now.
    fn movable_at(&self) -> Option<Instant> {
        if self.plan.is_some() {
            return None;
        }
        self.ledger.next_movable().and_then(|at| self.started.checked_add(at))
    }

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
        self.apply(Event::Time(self.now.saturating_duration_since(self.started)));
    }

    fn log(&mut self) -> Vec<Note> {
        let notes = self.ledger.take_notes();
        self.record.log_all(&notes, &self.ledger, self.now);
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
    fn handle(&mut self, id: CallId, mut call: Call) {
        let call_info = CallInfo { id, kind: EventKind::from(&call), since: self.now };
        self.delivery.pace.went_on(self.now);
        self.pass_time();
        self.prepare(&mut call);
        match call {
            Call::Admission(admission) => self.make_room(admission, call_info),
            Call::Event(event) => self.follow(event, call_info),
        }
    }

    /// Completes a call, and has the ledger follow what else has changed by now.
    fn prepare(&mut self, call: &mut Call) {
        let creates = matches!(call, Call::Admission(Admission::Create { .. }));
        // No container gets a CPU that is offline, or waits for those of a pod that is over.
        if creates || matches!(call, Call::Event(Event::Synchronize { .. })) {
            self.check_machine();
        }
        if creates {
            self.end_deserted();
        }
        correct_list(self.checks.verifier(), call);
        locate_devices(self.hotplug.kernel(), self.hotplug.sysfs(), call);
        self.enforcement.note_left(call);
        let active = self.kubelet.note_call(call, self.ledger.settings().policy, self.now);
        if let Some(event) = active {
            self.apply(event);
        }
    }

    /// Decides about a request. Its answer comes when the decision is on disk, and cgroups keep
    /// others off its CPUs.
    pub(super) fn decide(&mut self, admission: Admission, call: CallInfo) {
        let admitted = self.ledger.admit(admission);
        let notes = self.log();
        let decision = match admitted {
            Ok(decision) => decision,
            Err(rejection) => {
                let placement = &self.ledger.settings().placement;
                self.record.counters.rejected(call.kind, rejection.reason, placement);
                return self.refuse(call, Refusal(rejection.to_string()));
            }
        };
        self.mark_outdated(decision.outcome);
        let target = self.ledger.target(&decision.container);
        let is_exclusive = target.is_some_and(|target| target.adjustment.is_exclusive());
        self.keep(call, notes, Handled::Decision(decision), is_exclusive);
    }

    /// Has the ledger record what the runtime reports.
    fn follow(&mut self, event: Event, call: CallInfo) {
        let lists = matches!(event, Event::Synchronize { .. });
        let removes = matches!(event, Event::Remove(_));
        if let Event::Remove(id) = &event {
            self.unexpose(id);
        }
        let answer_has_updates = event.answer_has_updates();
        let step = CgroupStep::of(&event);
        let outcome = self.ledger.apply(event);
        let notes = self.log();
        self.mark_outdated(outcome);
        if removes || lists {
            self.end_deserted();
        }
        self.balance.unbalanced |= outcome.freed && self.ledger.settings().rebalance.is_some();
        self.keep(call, notes, Handled::Event { step, lists, answer_has_updates }, false);
    }

    /// Goes on with a call when what it has changed is on disk. A call that changes no claim and is
    /// about none waits for no disk.
    fn keep(&mut self, call: CallInfo, notes: Vec<Note>, handled: Handled, is_exclusive: bool) {
        let waits = is_exclusive || self.checkpoint.changed;
        let handled = HandledCall { call, notes, handled, unsaved: !waits };
        if waits {
            self.after_save(AfterSave::Answer(Box::new(handled)));
        } else {
            self.show_decided();
            self.finish(handled, None);
        }
    }

    /// Carries out what a call has led to, and answers it. `failed`: why it is not on disk.
    pub(super) fn finish(&mut self, handled: HandledCall, failed: Option<&str>) {
        let HandledCall { call, notes, handled, unsaved } = handled;
        if failed.is_none() {
            let placement = &self.ledger.settings().placement;
            self.record.counters.given(&notes, self.ledger.topology(), placement);
        }
        match handled {
            Handled::Decision(decision) => self.finish_decision(decision, call, unsaved, failed),
            Handled::Event { step, lists, answer_has_updates } => {
                if let Some(refused) = self.enforcement.follow(step, &self.ledger) {
                    self.fall_back(refused);
                }
                self.bind(Scope::Binding);
                if lists {
                    self.checks.soon(self.now);
                    self.announce();
                }
                if !answer_has_updates {
                    return self.answer(call, Response::default(), Sent::Nothing);
                }
                let mut due = self.ledger.due(&Channel::Runtime);
                self.hold_back_early(&mut due, unsaved);
                let response = Response { updates: due.updates.clone(), ..Response::default() };
                self.answer(call, response, Sent::Due(due));
            }
        }
    }

    fn finish_decision(
        &mut self,
        mut decision: Decision,
        call: CallInfo,
        unsaved: bool,
        failed: Option<&str>,
    ) {
        if !unsaved {
            // Other calls may have been handled while it waited for the disk.
            decision = self.ledger.revised(decision);
        }
        if let Some(error) = failed
            && let Some(refusal) = self.refuse_unsaved(&decision, call.kind, error)
        {
            return self.refuse(call, refusal);
        }
        let refused = if decision.creation.is_some() {
            match self.enforcement.reserve(&decision.container, &self.ledger) {
                Ok(refused) => refused,
                Err(refusal) => {
                    // The container keeps its claim for the kubelet's next try, within seconds, so
                    // that a restarted container finds its own CPUs.
                    let why = format!("CPUs cannot be taken yet: {refusal}");
                    let refusal = self.record.refuse(
                        call.kind,
                        &decision.container,
                        &why,
                        &self.ledger,
                        self.now,
                    );
                    return self.refuse(call, refusal);
                }
            }
        } else {
            let step = CgroupStep::Settle(decision.container.clone());
            self.enforcement.follow(step, &self.ledger)
        };
        let fell_back = refused.is_some_and(|refused| self.fall_back(refused));
        if self.bind(Scope::Binding) || fell_back {
            decision = self.ledger.revised(decision);
        }
        self.hold_back_early(&mut decision.due, unsaved);
        let mut response =
            Response { updates: decision.due.updates.clone(), ..Response::default() };
        if let Some(Creation { adjustment, exposed, .. }) = &decision.creation {
            response.adjustment = *adjustment;
            if let Some(reach) = exposed {
                self.expose(&decision.container, **reach, &mut response);
            }
        }
        self.answer(call, response, Sent::Decision(decision));
    }

    fn refuse(&mut self, call: CallInfo, refusal: Refusal) {
        self.effects.push(Effect::Answer(call.id, Err(refusal)));
        let (outcome, sent) = (CreateOutcome::Refused, Sent::Nothing);
        self.answers.insert(call.id, SentAnswer { call, outcome, updates: 0, sent });
    }

    fn answer(&mut self, call: CallInfo, response: Response, sent: Sent) {
        let outcome = CreateOutcome::of(response.adjustment.as_ref());
        let updates = response.updates.len();
        self.effects.push(Effect::Answer(call.id, Ok(response)));
        self.answers.insert(call.id, SentAnswer { call, outcome, updates, sent });
    }

    /// Counts a call when its answer has gone out: the moment of a step does not show how long its
    /// writes took.
    fn count(&mut self, SentAnswer { call, outcome, updates, .. }: &SentAnswer) {
        let took = self.now.saturating_duration_since(call.since);
        self.record.counters.handled(call.kind, took, *outcome, *updates);
    }

    /// Updates that the kernel is not ready for stay due, and those that give CPUs which are not on
    /// disk yet.
    fn hold_back_early(&mut self, due: &mut Due, unsaved: bool) {
        if unsaved && self.checkpoint.is_pending() {
            let updates = due.updates.iter().filter(|update| update.adjustment.is_exclusive());
            let exclusive: Vec<_> = updates.map(|update| update.container.clone()).collect();
            due.hold_back(|id| exclusive.contains(id));
        }
        let early = self.enforcement.too_early(&due.updates, &self.ledger);
        due.hold_back(|id| early.contains(id));
    }

    /// A decision is not on disk. The owner refuses a new exclusive container, as after a crash its
    /// CPUs would be unknown; the kubelet tries again. Everything else goes on: running containers
    /// show their CPUs, and a restarted one has its CPUs on disk under its name.
    fn refuse_unsaved(
        &mut self,
        decision: &Decision,
        kind: EventKind,
        error: &str,
    ) -> Option<Refusal> {
        let Some(Creation { adjustment: Some(adjustment), inherited: false, .. }) =
            decision.creation
        else {
            return None;
        };
        if !adjustment.is_exclusive() {
            return None;
        }
        let why = format!(
            "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
        );
        let refusal = self.record.refuse(kind, &decision.container, &why, &self.ledger, self.now);
        self.apply(Event::Revoked(decision.container.clone()));
        Some(refusal)
    }

    /// Has cgroups keep others off exclusive CPUs. Returns whether what the ledger learns from that
    /// may make updates due.
    pub(super) fn bind(&mut self, scope: Scope) -> bool {
        let events = self.enforcement.bind(scope, &self.ledger, self.now);
        self.rewatches = true;
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
    pub(super) fn end_deserted(&mut self) {
        let deserted = self.ledger.deserted().collect();
        let ended = deserted_pods(self.checks.verifier(), deserted);
        self.apply_all(ended);
    }
}
