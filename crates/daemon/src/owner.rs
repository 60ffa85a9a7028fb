//! [`Owner`]: owns the ledger, takes inputs, and carries out what follows from them.

use super::calls::{CallInfo, Handled, HandledCall, Sent, SentAnswer};
use super::checks::{Checks, Findings};
use super::complete::correct_list;
use super::decision_log::DecisionLog;
use super::delivery::{Delivery, Writes};
use super::devices::Devices;
use super::drift::{Action, DriftWatcher, Repair};
use super::enforcement::{BindOutcome, Enforcement, mechanism_under};
use super::exposed_files::ExposedFiles;
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::log_repeated;
use super::moves::Moves;
use super::orphans::{Orphans, deserted_pods, treated_as_ended};
use super::persist::Checkpoint;
use super::quieting::Quieting;
use super::quotas::{self, Quotas};
use super::reload::ConfigReload;
use super::step::{CallId, Effect, Input};
use super::suspects::DriftingContainer;
use super::validation::{cannot_promise, validate};
use cgroups::{Scope, Watched};
use config::Reading;
use cpuset::CpuSet;
use edge::{Refusal, Response, Subscriptions};
use exclusivity::verify::Drift;
use ledger::environment::environment;
use ledger::{
    Admission, Call, Channel, ContainerId, Creation, Decision, Deserted, Due, Event, Exposure,
    Ledger, Mechanism, Note, Outcome, PodUid, Reach, Target,
};
use log::Level;
use nri::Capabilities;
use state::checkpoint::{SavedClaims, StateError};
use state::clock::now;
use status::counters::{CreateOutcome, EventKind, STRICT};
use status::lack_of_cpus;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

/// The most rounds of writes: a container leaves CPUs, gets some, and gets the rest; the last round
/// only shows that nothing is due. If more is due, the next check pass has it written (`mark_owed`).
const ROUNDS: usize = 4;

/// The daemon's core: owns the ledger, and decides what happens.
///
/// It is deterministic: it has no thread, does not sleep, and gets the time with each input; only
/// the times of day in the status are the clock's. It reads and writes the node at once, through a
/// [`Kernel`](kernel::Kernel) and a [`Storage`](state::disk::Storage); what takes longer is
/// an [`Effect`].
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
    pub(super) devices: Devices,
    pub(super) checks: Checks,
    pub(super) drift: DriftWatcher,
    pub(super) orphans: Orphans,
    pub(super) quotas: Quotas,
    pub(super) exposure: ExposedFiles,
    pub(super) quieting: Quieting,
    pub(super) moves: Moves,
    /// The moment that the ledger's time counts from.
    pub(super) started: Instant,
    /// The moment of the present step.
    pub(super) now: Instant,
    /// Which cgroups may differ from what the ledger requires.
    pub(super) cgroups: Option<Scope>,
    /// Updates may be due that no answer has carried, and this is when cgroups may be written.
    pub(super) updates: Option<Writes>,
    /// Calls that have no answer yet, in order.
    pub(super) calls: VecDeque<HandledCall>,
    /// The effects of the present step.
    pub(super) effects: Vec<Effect>,
    /// Whether the set of cgroups to watch may have changed, or some may have been made again under
    /// the same name.
    pub(super) rewatches: bool,
}

/// What can be outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// The state file gets the claims.
    Save,
    /// Files of containers name the CPUs that they are about to get.
    Expose,
    /// Cgroups are written that keep other containers off exclusive CPUs.
    Bind(Scope),
    /// A step of a plan is on disk: the container moves.
    Move,
    /// The call at this index gets its answer.
    Answer(usize),
    /// Due updates are written into cgroups.
    Write(Writes),
    /// The runtime is called with due updates.
    Update,
    /// The plan checks whether the moved container has left its old CPUs.
    CheckMove,
}

impl Owner {
    pub fn step(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        self.now = now;
        let may_wait = input.may_wait_for_kernel();
        match input {
            Input::Connected { capabilities, answer_within } => {
                self.connected(&capabilities, answer_within);
            }
            Input::Call(id, call) => self.handle(id, call),
            Input::Validate(id, container, cpus) => self.validate(id, &container, cpus),
            Input::WentOn => self.delivery.pace.went_on(now),
            Input::Answered(id, delivered) => self.answered(id, delivered),
            Input::Saved(result) => self.saved(&result),
            Input::Updated(made) => self.returned(made),
            Input::Checked(found) => self.checked(found),
            Input::Groups(created) => {
                if self.enforcement.files_changed(&created, now) {
                    self.check_groups();
                }
            }
            Input::Quotas => self.quotas.check_soon(now),
            Input::Kubelet(reading) => {
                let active = self.kubelet.check(reading, self.ledger.settings().policy, now);
                self.apply_all(active);
            }
            Input::Config(reading) => self.reconfigure(reading),
            Input::Devices(found) => {
                let event = self.devices.found(found, now);
                self.apply_all(event);
            }
            Input::Quieted(outcome) => self.quieting.ended(outcome, now),
            // Outstanding work, which inputs without access to the kernel have led to, or the check of
            // a move, comes before periodic work. Before the check of a move cgroups get another pass:
            // it gives the container CPUs that others have left, and frees those that it has left.
            Input::Time if self.outstanding().is_some() => {
                if self.move_check_due().is_some_and(|due| due <= now) {
                    self.mark_cgroups(Scope::Binding);
                }
            }
            Input::Time => self.work(),
        }
        if may_wait {
            while let Some(work) = self.outstanding() {
                self.carry_out(work);
            }
        }
        if !self.drift.has_confirmed() {
            self.drift.log(now);
        }
        if std::mem::take(&mut self.rewatches) {
            self.effects.push(Effect::WatchGroups(self.enforcement.watched()));
        }
        if self.devices.begin() {
            self.effects.push(Effect::FindDevices);
        }
        std::mem::take(&mut self.effects)
    }

    /// The first work that is outstanding and waits for nothing. The order keeps the invariants,
    /// even if the process ends between any two of them: the state file, files of containers, cgroups,
    /// the runtime, and files of containers again.
    pub(super) fn outstanding(&self) -> Option<Work> {
        let is_saved = !self.checkpoint.is_pending();
        let ready = self.ready_call();
        let is_answering = !self.calls.is_empty() || !self.delivery.answers.is_empty();
        if self.checkpoint.is_due() {
            return Some(Work::Save);
        }
        // Files and cgroups may precede the save: the next start after a crash corrects both. Files
        // precede cgroups, which may give a container more CPUs at once, as a partition.
        if self.exposure.outdated {
            return Some(Work::Expose);
        }
        if self.has_saved_move() {
            return Some(Work::Move);
        }
        // Cgroups above a container that moves follow when the move is on disk.
        if let Some(scope) = self.cgroups
            && !self.is_saving_move()
        {
            return Some(Work::Bind(scope));
        }
        if let Some(at) = ready {
            return Some(Work::Answer(at));
        }
        // The drifts of a check pass are repaired first, so that one round of writes has them all.
        if let Some(writes) = self.updates
            && is_saved
            && !is_answering
            && !self.drift.has_confirmed()
        {
            return Some(Work::Write(writes));
        }
        if self.delivery.wants_call
            && is_saved
            && self.moves.run.is_none()
            && self.delivery.is_free(self.now)
        {
            return Some(Work::Update);
        }
        if self.move_check_due().is_some_and(|due| due <= self.now) {
            return Some(Work::CheckMove);
        }
        None
    }

    fn carry_out(&mut self, work: Work) {
        match work {
            Work::Save => {
                self.checkpoint.begin();
                self.effects.push(Effect::Save(SavedClaims::of(&self.ledger)));
            }
            Work::Expose => {
                self.exposure.show_target(&self.ledger, self.checks.verifier(), self.now);
            }
            Work::Bind(scope) => self.bind(scope),
            Work::Move => self.move_saved(),
            Work::Answer(at) => self.answer_call(at),
            Work::Write(writes) => self.write_updates(writes),
            Work::Update => self.call(),
            Work::CheckMove => self.check_move(),
        }
    }

    /// Repairs so far, by kind of drift and by action.
    pub fn repairs(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.drift.repairs
    }

    /// Has the ledger record an event, and logs what it does.
    pub fn apply(&mut self, event: Event) -> Outcome {
        let decides_nothing = event.decides_nothing();
        let is_drift = matches!(event, Event::Drifted(_));
        let was_installing = self.ledger.is_installing();
        let outcome = self.ledger.apply(event);
        let notes = self.log();
        if was_installing && !self.ledger.is_installing() {
            self.log_installation(&notes);
        }
        if is_drift {
            // A drift changes no decision, so cgroups need no other values.
            self.mark_updates(Writes::WhenNoneWaits);
        } else if !decides_nothing {
            self.follow(outcome);
        }
        outcome
    }

    pub(super) fn apply_all(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.apply(event);
        }
    }

    /// Marks what an outcome makes outstanding.
    fn follow(&mut self, outcome: Outcome) {
        self.checkpoint.changed |= outcome.claims;
        if outcome.moved {
            self.moves.unsaved = Some(self.checkpoint.save_of_now());
        }
        self.exposure.outdated |= outcome.reach || outcome.adopted;
        self.exposure.unadopted |= outcome.adopted;
        if outcome.rules {
            self.quotas.check_soon(self.now);
        }
        self.quieting.follow(self.now);
        self.mark_cgroups(if outcome.rules { Scope::All } else { Scope::Binding });
        if outcome.due {
            self.mark_updates(Writes::WhenNoneWaits);
        }
    }

    pub(super) fn mark_cgroups(&mut self, scope: Scope) {
        self.cgroups = self.cgroups.max(Some(scope));
    }

    pub(super) fn mark_updates(&mut self, writes: Writes) {
        self.updates = self.updates.max(Some(writes));
    }

    /// Gives the ledger the time.
    pub(super) fn pass_time(&mut self) {
        self.apply(Event::Time(self.now.saturating_duration_since(self.started)));
    }

    fn log(&mut self) -> Vec<Note> {
        let notes = self.ledger.take_notes();
        self.record.log_all(&notes, self.now);
        notes
    }

    // Inputs: what the runtime calls and gets.

    /// A runtime has connected.
    fn connected(&mut self, capabilities: &Capabilities, answer_within: Duration) {
        self.delivery.connected(capabilities.unsolicited_updates, answer_within);
        // The runtime does not wait for answers on the previous connection.
        self.calls.clear();
        if let Some(plan) = &mut self.moves.run {
            plan.drop_call();
        }
        self.rewatches = true;
        if self.config.strict()
            && let Some(warning) = cannot_promise(capabilities)
        {
            self.log_repeated(Level::Warn, &warning);
        }
        self.effects.push(Effect::Subscribe(Subscriptions {
            // Only a partition has to be made before the container runs: its cgroup exists then.
            before_start: self.enforcement.mechanism() == Mechanism::Partitions,
            validation: self.config.strict(),
            for_crio: self.config.reads_crio(),
        }));
    }

    /// Whether the CPUs that the runtime is about to set for a new container are the decided ones.
    fn validate(&mut self, id: CallId, container: &ContainerId, set: Option<CpuSet>) {
        let validated =
            if self.config.strict() { validate(&self.ledger, container, set) } else { Ok(()) };
        if let Err((subject, Refusal(why))) = &validated {
            self.record.counters.count_rejection(STRICT);
            self.log_repeated(Level::Warn, &format!("{subject}: refused: {why}"));
        }
        let validated = validated.map_err(|(_, refusal)| refusal);
        self.effects.push(Effect::Validated(id, validated));
    }

    /// Has the ledger decide about a call of the runtime, or record it.
    fn handle(&mut self, id: CallId, mut call: Call) {
        let call_info = CallInfo { id, kind: EventKind::from(&call), since: self.now };
        self.delivery.pace.went_on(self.now);
        self.pass_time();
        self.prepare(&mut call);
        match call {
            Call::Admission(admission) => self.make_room(admission, call_info),
            Call::Event(event) => self.record_call(event, call_info),
        }
    }

    /// Corrects and completes a call, and has the ledger follow what else has changed by now.
    fn prepare(&mut self, call: &mut Call) {
        let creates = matches!(call, Call::Admission(Admission::Create { .. }));
        // No container must get an offline CPU, or be refused for CPUs of a pod that has ended.
        if creates || matches!(call, Call::Event(Event::Synchronize { .. })) {
            self.check_machine();
        }
        if creates {
            self.end_deserted();
        }
        correct_list(self.checks.verifier(), call);
        self.devices.note_call(call);
        self.devices.locate(self.hotplug.kernel(), self.hotplug.sysfs(), call);
        self.enforcement.note_left(call);
        let active = self.kubelet.note_call(call, self.ledger.settings(), self.now);
        self.apply_all(active);
    }

    /// Decides about a request. The answer waits until the decision is on disk, and cgroups keep
    /// others off its CPUs.
    pub(super) fn decide(&mut self, admission: Admission, call: CallInfo) {
        let uncounted = uncounted_memory(&self.ledger, &admission);
        let admitted = self.ledger.admit(admission);
        let notes = self.log();
        let decision = match admitted {
            Ok(decision) => decision,
            Err(rejection) => {
                let placement = &self.ledger.settings().placement;
                self.record.counters.rejected(call.kind, &rejection, placement);
                self.log_lack();
                return self.refuse(call, Refusal(rejection.to_string()));
            }
        };
        if uncounted.is_some_and(|(pod, name)| self.ledger.has_memory_claim(&pod, &name)) {
            self.record.counters.memory_requests += 1;
        }
        self.follow(decision.outcome);
        let target = self.ledger.target(&decision.container);
        let is_exclusive = target.is_some_and(|target| target.setting.is_exclusive());
        // A new container has no cgroup yet.
        let resized =
            if decision.creation.is_none() { Some(decision.container.clone()) } else { None };
        self.keep(call, notes, Handled::Decision(decision), resized, is_exclusive);
    }

    /// Logs why pods may lack CPUs.
    fn log_lack(&mut self) {
        let reserved = self.ledger.settings().placement.reserved;
        if self.ledger.lacks_cpus() && self.config.state.nothing_to_assign.is_none() {
            self.log_repeated(Level::Warn, &lack_of_cpus(reserved));
        }
    }

    /// Has the ledger record what the runtime reports.
    fn record_call(&mut self, event: Event, call: CallInfo) {
        let lists = matches!(event, Event::Synchronize { .. });
        let removes = matches!(event, Event::Remove(_));
        if let Event::Remove(id) = &event {
            self.exposure.end(id, self.now);
        }
        let answer_has_updates = event.answer_has_updates();
        let starts = match &event {
            Event::Starting { container, .. } | Event::Started { container, .. } => {
                Some(container.id.clone())
            }
            _ => None,
        };
        let first = lists && self.ledger.is_installing();
        let outcome = self.ledger.apply(event);
        let notes = self.log();
        self.follow(outcome);
        if removes || lists {
            self.end_deserted();
        }
        if lists {
            self.mark_cgroups(Scope::Listed);
            self.quotas.check_soon(self.now);
            self.quieting.listed(self.now);
        }
        self.moves.unbalanced |= outcome.freed && self.ledger.settings().rebalance.is_some();
        self.keep(call, notes, Handled::Event { lists, first, answer_has_updates }, starts, false);
    }

    /// Queues a call until it can be answered. A call that changes no claim, and is not about an
    /// exclusive container, does not wait for the disk.
    fn keep(
        &mut self,
        call: CallInfo,
        notes: Vec<Note>,
        handled: Handled,
        quota_of: Option<ContainerId>,
        is_exclusive: bool,
    ) {
        let waits = is_exclusive || self.checkpoint.changed;
        let save = waits.then(|| self.checkpoint.save_of_now());
        self.calls.push_back(HandledCall { call, notes, handled, quota_of, save });
    }

    /// The first call that does not wait for the disk. It may be answered before an older one that
    /// waits for a stalled disk, and that the runtime has given up: updates are worked out when an
    /// answer goes out, so that none repeats an earlier setting.
    fn ready_call(&self) -> Option<usize> {
        let is_ready =
            |call: &HandledCall| call.save.is_none_or(|save| self.checkpoint.has_ended(save));
        self.calls.iter().position(is_ready)
    }

    /// Answers a call, or refuses it.
    fn answer_call(&mut self, at: usize) {
        let Some(HandledCall { call, notes, handled, quota_of, save }) = self.calls.remove(at)
        else {
            return;
        };
        if let Handled::Decision(Decision { container, creation: Some(_), .. }) = &handled
            && let Some(why) = save.and_then(|_| self.checkpoint.error())
            && let Some(refusal) = self.refuse_unsaved(container, call.kind, &why)
        {
            return self.refuse(call, refusal);
        }
        if let Some(id) = quota_of {
            self.settle_quota(&id);
        }
        if save.is_none() || self.checkpoint.error().is_none() {
            self.record.counters.given(&notes, &self.ledger);
        }
        match handled {
            Handled::Decision(decision) => {
                // Inputs since it was made may have changed it.
                let mut decision = self.ledger.revised(decision);
                self.hold_back_early(&mut decision.due, save.is_none());
                let mut response =
                    Response { updates: decision.due.updates.clone(), ..Response::default() };
                if let Some(Creation { setting, exposed, .. }) = &decision.creation {
                    response.setting.clone_from(setting);
                    if let Some(reach) = exposed {
                        self.expose(&decision.container, **reach, &mut response);
                    }
                }
                self.answer(call, response, Sent::Decision(decision));
            }
            Handled::Event { lists, first, answer_has_updates } => {
                if lists {
                    self.checks.soon(self.now);
                    self.log_node(if first { Some(&notes) } else { None });
                }
                if !answer_has_updates {
                    return self.answer(call, Response::default(), Sent::Nothing);
                }
                let mut due = self.ledger.due(&Channel::Runtime);
                self.hold_back_early(&mut due, save.is_none());
                let response = Response { updates: due.updates.clone(), ..Response::default() };
                self.answer(call, response, Sent::Due(due));
            }
        }
    }

    fn refuse(&mut self, call: CallInfo, refusal: Refusal) {
        self.effects.push(Effect::Answer(call.id, Err(refusal)));
        let outcome = CreateOutcome::Refused;
        let answer = SentAnswer { call, outcome, updates: 0, sent: Sent::Nothing };
        self.delivery.answers.insert(call.id, answer);
    }

    fn answer(&mut self, call: CallInfo, response: Response, sent: Sent) {
        let outcome = CreateOutcome::of(response.setting.as_ref());
        let updates = response.updates.len();
        self.effects.push(Effect::Answer(call.id, Ok(response)));
        self.delivery.answers.insert(call.id, SentAnswer { call, outcome, updates, sent });
    }

    /// An answer has gone out. If it was too late, its updates stay due.
    fn answered(&mut self, id: CallId, delivered: bool) {
        let Some(answer) = self.delivery.answers.remove(&id) else { return };
        // `Answered` is a separate input: the moment of the step that made the answer is the step's
        // beginning, and would not show how long its writes took.
        let took = self.now.saturating_duration_since(answer.call.since);
        self.record.counters.handled(answer.call.kind, took, answer.outcome, answer.updates);
        if delivered {
            let now = self.now;
            let pace = &mut self.delivery.pace;
            match answer.sent {
                Sent::Nothing => pace.answered(&[], false, now),
                Sent::Decision(decision) => {
                    // After a request the runtime makes its next call as soon as it has made the
                    // updates.
                    pace.answered(&decision.due.updates, true, now);
                    self.apply(Event::Answered(decision));
                }
                Sent::Due(due) => {
                    pace.answered(&due.updates, false, now);
                    self.apply(Event::Sent(due));
                }
            }
        }
        // The answer may have carried the last due update, or failed to.
        self.updates =
            if self.ledger.owes() { self.updates.max(Some(Writes::WhenNoneWaits)) } else { None };
    }

    /// Removes updates that are too early: they give exclusive CPUs that are not on disk yet, follow
    /// such an update, or give CPUs that a partition still has. They stay due.
    fn hold_back_early(&mut self, due: &mut Due, unsaved: bool) {
        if unsaved && self.checkpoint.is_pending() {
            // Later ones may enter CPUs that these leave.
            let rest = due.updates.iter().skip_while(|update| !update.setting.is_exclusive());
            let rest: Vec<_> = rest.map(|update| update.container.clone()).collect();
            due.hold_back(|id| rest.contains(id));
        }
        let early = self.enforcement.too_early(&due.updates, &self.ledger);
        due.hold_back(|id| early.contains(id));
    }

    /// Lets a new container know its exclusive CPUs, as `exposeCPUs` says.
    fn expose(&mut self, id: &ContainerId, reach: Reach, response: &mut Response) {
        let machine = self.ledger.topology();
        let settings = self.ledger.settings();
        let housekeeping = self.ledger.housekeeping(id);
        match settings.expose_cpus {
            Exposure::None => {}
            Exposure::Environment => {
                response.environment = environment(settings, machine, &reach, housekeeping);
            }
            Exposure::File => {
                response.directory =
                    self.exposure.begin(id, reach, housekeeping, machine, self.now);
            }
        }
    }

    /// Refuses a new exclusive container whose decision could not be saved: after a crash its CPUs
    /// would be unknown. The kubelet tries again. All others are answered: the cgroups of running
    /// containers show their CPUs, and a restarted one has its CPUs on disk under its name.
    fn refuse_unsaved(
        &mut self,
        id: &ContainerId,
        kind: EventKind,
        error: &str,
    ) -> Option<Refusal> {
        if !self.ledger.is_newly_exclusive(id) {
            return None;
        }
        let why = format!(
            "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
        );
        let refusal = self.record.refuse(kind, id, &why, &self.ledger, self.now);
        self.apply(Event::Revoked(id.clone()));
        Some(refusal)
    }

    /// A call of the runtime has ended. `made`: whether the runtime says that it has made the
    /// updates.
    fn returned(&mut self, made: bool) {
        let updates = self.delivery.returned(made, self.now);
        // A newer decision may have been written during the call, and the call has undone it.
        let stale = updates.into_iter().filter(|update| {
            let target = self.ledger.target(&update.container);
            !made || target.is_some_and(|target| target.setting != update.setting)
        });
        let stale: Vec<ContainerId> = stale.map(|update| update.container).collect();
        if !stale.is_empty() {
            self.apply(Event::Drifted(stale));
        }
        // Cgroups can now give shared containers the CPUs that others have left.
        self.mark_cgroups(Scope::Binding);
    }

    // Inputs: what the node shows.

    /// A write of the claims has ended.
    fn saved(&mut self, result: &Result<(), StateError>) {
        let had_failed = self.checkpoint.ended(result, self.now);
        match result {
            Ok(()) if had_failed => self.log_repeated(Level::Info, "checkpoint: written again"),
            Ok(()) => {}
            Err(error) => {
                self.record.counters.checkpoint_errors += 1;
                self.log_repeated(Level::Error, &error.to_string());
            }
        }
    }

    /// Logs a line about a condition that may last, unless it was logged recently.
    pub(super) fn log_repeated(&mut self, level: Level, line: &str) {
        log_repeated(&mut self.record.repeats, level, line, self.now);
    }

    /// Another program may have written into a cgroup or made one, or containers may have left CPUs
    /// that others wait for.
    pub(super) fn check_groups(&mut self) {
        self.mark_cgroups(Scope::Binding);
        self.mark_owed();
    }

    pub(super) fn mark_owed(&mut self) {
        if self.ledger.owes() {
            self.mark_updates(Writes::WhenNoneWaits);
        }
    }

    pub(super) fn check_machine(&mut self) {
        let Some(event) = self.hotplug.changed(&self.ledger, self.now) else { return };
        self.apply(event);
        let settings = self.config.follow_machine(self.hotplug.machine());
        self.follow_settings(settings);
        if self.ledger.bound().is_empty() {
            let line =
                "hotplug: all online CPUs are exclusive: no CPU is left for shared containers";
            self.log_repeated(Level::Error, line);
        }
    }

    /// Has the ledger forget pods that have ended without a report.
    fn end_deserted(&mut self) {
        let deserted = self.ledger.deserted().collect();
        for Deserted { name, sandbox, .. } in deserted_pods(self.checks.verifier(), deserted) {
            self.log_repeated(Level::Info, &format!("{name}: no container left, treated as ended"));
            self.apply(Event::StopPod(sandbox));
        }
    }

    /// Follows a new configuration. Announced moves are dropped, and planned again under it.
    fn reconfigure(&mut self, reading: Reading) {
        let machine = self.hotplug.machine();
        let in_force = self.ledger.settings();
        let (now, best) = (self.ledger.mechanism(), self.enforcement.mechanism());
        let under = |policy| mechanism_under(policy, now, best);
        let followed = self.config.follow(reading, machine, in_force, under);
        let Some((before, event)) = followed else { return };
        self.moves.announced = None;
        self.exposure.show_planned(&BTreeMap::new(), self.ledger.topology(), self.now);
        self.follow_settings(event);
        let policy = self.ledger.settings().policy;
        let active = self.kubelet.reconfigure(self.config.config(), policy, self.now);
        self.apply_all(active);
        let kubelet = self.config.config().kubelet_state_dir();
        if before.kubelet_state_dir() != kubelet {
            self.effects.push(Effect::WatchKubelet(kubelet.map(Path::to_owned)));
        }
        self.effects.push(Effect::Log(self.config.config().log_level()));
    }

    /// Has the ledger follow new settings. With the first ones that give containers exclusive CPUs, it
    /// gets the mechanism that keeps others off.
    fn follow_settings(&mut self, event: Option<Event>) {
        self.apply_all(event);
        let (now, best) = (self.ledger.mechanism(), self.enforcement.mechanism());
        let mechanism = mechanism_under(self.ledger.settings().policy, now, best);
        if mechanism != now {
            self.apply(Event::Mechanism(mechanism));
        }
    }

    /// A check pass has ended.
    fn checked(&mut self, Findings { mut drifted, sightings, isolation }: Findings) {
        self.checks.ended();
        self.quieting.isolation = isolation;
        // First the machine: a container that a new foreign partition has taken CPUs from has
        // another decision then, and the finding is no drift.
        self.check_machine();
        self.mark_cgroups(Scope::All);
        // A container that waits for others to leave has only some of its CPUs, as decided.
        drifted.retain(|DriftingContainer { target, .. }| {
            self.is_decided(target) && !self.ledger.is_waiting(&target.subject.id)
        });
        self.quotas.check_soon(self.now);
        let all_on_target = drifted.is_empty();
        // If every container has its own CPUs set, what keeps one off them is in a cgroup above it,
        // where an earlier mechanism may have written.
        let mut all_drift = drifted.iter().flat_map(|finding| &finding.drift);
        let all_are_set = all_drift.all(|drift| matches!(drift, Drift::Effective(_)));
        let next = self.drift.note(drifted, &self.delivery.pace, self.now);
        self.checks.set_due(next);
        self.record.history().late = self.drift.suspects.late().cloned().collect();
        for (name, event) in self.orphans.ended(sightings, self.now) {
            self.log_repeated(Level::Warn, &treated_as_ended(&name));
            self.apply(event);
        }
        self.end_deserted();
        if all_are_set && self.ledger.mechanism() == Mechanism::Runtime {
            self.enforcement.revert(&self.ledger, self.now);
        }
        self.mark_owed();
        if all_on_target && self.ledger.waits() && !self.delivery.calls() {
            self.mark_updates(Writes::Always);
        }
    }

    // What is outstanding.

    /// Has cgroups keep others off exclusive CPUs.
    fn bind(&mut self, scope: Scope) {
        let BindOutcome { events, refused, ended } =
            self.enforcement.bind(scope, &self.ledger, self.now);
        self.rewatches = true;
        self.apply_all(events);
        // The events ask for another pass of the same scope (they change no rules), but report what
        // this pass has already acted on.
        self.cgroups = None;
        for (target, drift) in ended {
            self.repaired(&target, &drift, Action::Written);
        }
        for (target, why) in refused {
            self.record.partition_refused(target.subject, why);
        }
    }

    /// Brings containers due updates that no answer has carried: by a call of the runtime where that
    /// is safe, otherwise by writes into cgroups. Where the daemon's cgroups keep exclusivity, it
    /// writes at once, and the call brings the runtime's record up to date.
    fn write_updates(&mut self, writes: Writes) {
        self.updates = None;
        if !self.ledger.owes() {
            return;
        }
        let calls = self.delivery.calls();
        self.delivery.wants_call |= calls;
        if calls && writes < Writes::Always && self.ledger.mechanism() != Mechanism::Groups {
            return;
        }
        // Containers that wait for CPUs must not get them before a check shows that the others have
        // left. `Always`: that check has been made, or the moves are the daemon's own.
        if writes < Writes::Always && self.ledger.waits() {
            self.checks.soon(self.now);
            return;
        }
        self.write_cpus(|_| true);
        // Cgroups can now give shared containers the CPUs that others have left.
        self.mark_cgroups(Scope::Binding);
    }

    /// Calls the runtime with all due updates.
    fn call(&mut self) {
        self.delivery.wants_call = false;
        let mut due = self.ledger.due(&Channel::Runtime);
        let early = self.enforcement.too_early(&due.updates, &self.ledger);
        due.hold_back(|id| early.contains(id));
        if !early.is_empty() {
            self.enforcement.check_again(self.now);
        }
        if !due.updates.is_empty() {
            self.delivery.called(due.updates.clone(), self.now);
            self.effects.push(Effect::Update(due.updates.clone()));
        }
        self.apply(Event::Sent(due));
    }

    /// Writes the due updates of these containers into cgroups, in the ledger's order. The next
    /// answer repeats them to the runtime. Returns whether any was written.
    pub(super) fn write_cpus(&mut self, includes: impl Fn(&ContainerId) -> bool) -> bool {
        let mut any = false;
        if self.enforcement.cannot_write().is_some() {
            return any;
        }
        // A failed write delays only the containers that are to get CPUs which it was to free. Shared
        // containers may overlap each other, but neither with exclusive ones.
        let mut failed = Vec::new();
        let mut still_set = CpuSet::EMPTY;
        let mut still_set_exclusively = CpuSet::EMPTY;
        for _ in 0..ROUNDS {
            let mut due = self.ledger.due(&Channel::Groups);
            due.hold_back(|id| failed.contains(id) || !includes(id));
            if due.updates.is_empty() {
                break;
            }
            for update in &due.updates {
                let Some(target) = self.ledger.target(&update.container) else { continue };
                let target = Target { setting: update.setting.clone(), ..target };
                let exclusive = update.setting.is_exclusive();
                let taken = if exclusive { still_set } else { still_set_exclusively };
                if update.setting.cpus().is_disjoint(&taken)
                    && self.enforcement.set_cpus(&target, self.now)
                {
                    if exclusive {
                        // The runtime lifts it only with the next answer.
                        self.enforcement.lift_quota(&target, self.now);
                    }
                    any = true;
                    continue;
                }
                failed.push(update.container.clone());
                let still = self.set_on(&target).unwrap_or_default();
                still_set |= still;
                if exclusive {
                    still_set_exclusively |= still;
                }
            }
            due.hold_back(|id| failed.contains(id));
            self.apply(Event::Sent(due));
        }
        any
    }

    /// The CPUs that are set for a container's cgroup.
    fn set_on(&self, target: &Target) -> Option<CpuSet> {
        Some(self.checks.verifier()?.observe(target.cgroup.as_ref()?)?.cpus)
    }

    // Periodic work.

    /// Settles the CFS quotas of all pods, and watches those that are to stay lifted.
    pub(super) fn follow_quotas(&mut self) {
        let (again, files) =
            self.enforcement.settle_pod_quotas(&quotas::settled(&self.ledger), self.now);
        self.quotas.lifted_again += again;
        self.quotas.checked();
        let watched = files.into_iter().map(|file| (file, Watched::File)).collect();
        self.effects.push(Effect::WatchQuotas(watched));
    }

    /// Lifts the CFS quota of a container's pod before the container runs, or restores it.
    fn settle_quota(&mut self, id: &ContainerId) {
        if self.ledger.mechanism() == Mechanism::Runtime {
            return;
        }
        let Some(target) = self.ledger.target(id) else { return };
        self.enforcement.settle_pod_quota(&target, self.now);
        if target.lifts_pod_quota {
            self.quotas.check_soon(self.now);
        }
    }

    /// Whether the decision is still the same as when the check pass began.
    fn is_decided(&self, target: &Target) -> bool {
        self.ledger.target(&target.subject.id).as_ref() == Some(target)
    }

    /// Repairs the drifts of a container until its decision changes.
    pub(super) fn repair(&mut self, DriftingContainer { target, drift }: DriftingContainer) {
        let mut all_written = true;
        for drift in drift {
            if !self.is_decided(&target) {
                break;
            }
            let calls = self.delivery.calls();
            let repair = Repair::of(&target, &drift, calls);
            let action = self.repair_by(repair, &target);
            all_written &= action == Action::Written;
            self.repaired(&target, &drift, action);
        }
        if all_written {
            self.drift.suspects.repaired(&target.subject.id, self.now);
        }
    }

    /// Counts and records a repair.
    fn repaired(&mut self, target: &Target, drift: &Drift, action: Action) {
        let target_cpus = self.drift.count(target, drift, action);
        let (observed, done) = (drift.to_string(), action.to_string());
        self.record.history().drifted(now(), target.subject.clone(), target_cpus, observed, done);
    }

    fn repair_by(&mut self, repair: Repair, target: &Target) -> Action {
        let id = &target.subject.id;
        let drifted = Event::Drifted(vec![id.clone()]);
        let written = match repair {
            Repair::Bind => {
                self.mark_cgroups(Scope::All);
                true
            }
            Repair::SetCpus => {
                self.apply(drifted);
                // The ledger's order keeps it off CPUs that others still have to leave.
                self.write_cpus(|other| other == id)
            }
            // The runtime should have lifted it. If the cgroup cannot be written, the update is
            // sent again.
            Repair::OwnQuota if self.enforcement.lift_quota(target, self.now) => true,
            Repair::OwnQuota | Repair::SendAgain => {
                self.apply(drifted);
                if self.delivery.calls() {
                    return Action::Sent;
                }
                false
            }
            Repair::PodQuota => {
                let written = self.enforcement.settle_pod_quota(target, self.now);
                return if written { Action::Written } else { Action::Nothing };
            }
            Repair::Widen(mask) => {
                let widened = self.checks.widen(target, mask);
                if let Err(error) = &widened {
                    let line = format!("{}: cannot change its affinity: {error}", target.subject);
                    self.log_repeated(Level::Warn, &line);
                }
                return if widened.is_ok() { Action::Widened } else { Action::Inherited };
            }
            Repair::Nothing => return Action::Nothing,
        };
        if written { Action::Written } else { Action::Deferred }
    }
}

/// The name of a new container, unless its memory is counted already or none is.
fn uncounted_memory(ledger: &Ledger, admission: &Admission) -> Option<(PodUid, String)> {
    let Admission::Create { pod, container } = admission else { return None };
    ledger.settings().memory.as_ref()?;
    let is_counted = ledger.has_memory_claim(&pod.uid, &container.name);
    if is_counted { None } else { Some((pod.uid.clone(), container.name.clone())) }
}
