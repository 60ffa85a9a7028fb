//! The runtime, which behaves like containerd or CRI-O: it calls plugins for one event at a time, and
//! makes the updates of an answer before the next event.

use crate::calls::{Calls, METHODS};
use crate::kernel::CGROUPS;
use crate::node::cfs;
use crate::oracle::{FAILED_UPDATE, Key};
use crate::pods::{self, Container, MIXED, MemoryLimits, PodId, Sandbox, Serial, State};
use crate::settings::Trouble;
use crate::world::World;
use daemon::{CallId, Input};
use edge::Subscriptions;
use edge::nri::exchange::{Asked, asked};
use edge::nri::{events, reads};
use nri::wire::{self, Event};
use nri::{AnswerKind, Decoded, Events, Exchange};
use protobuf::{Message, MessageField};
use std::collections::VecDeque;
use std::time::Duration;

/// How long the runtime waits for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the plugin's edge waits for the core.
const PATIENCE: Duration = Duration::from_millis(1200);
/// The time after an answer to a list in which containers have their exclusive CPUs without the runtime.
const LOST: Duration = Duration::from_millis(200);
/// The id of a validation is that of the creation plus this number.
const APPROVAL: u64 = 1 << 32;

/// Work that the runtime does one at a time, most of it after a call of plugins.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    Pod(Event, PodId),
    Container(Event, Serial),
    Update {
        serial: Serial,
        milli: u64,
        before: u64,
        tries: u32,
    },
    /// A resize of memory alone.
    ResizeMemory {
        serial: Serial,
        memory: MemoryLimits,
    },
    /// The kubelet's own CPU manager names CPUs for a container.
    Name {
        serial: Serial,
        cpus: String,
    },
    Synchronize,
    /// Repeats a call with the same bytes, if its subject still exists.
    Again(&'static str, Vec<u8>, Box<Task>),
    /// The plugin changes containers without a call.
    Unsolicited(Vec<wire::ContainerUpdate>),
}

/// The plugin's answer to a call; the default if there was none.
#[derive(Debug, Default)]
pub struct PluginReply {
    pub refused: Option<String>,
    pub adjust: Option<wire::ContainerAdjustment>,
    pub answered: bool,
    /// Whether the answer updates the container of the call.
    pub own: bool,
}

struct Current {
    number: u64,
    task: Task,
    call: Option<CallId>,
    updates: VecDeque<wire::ContainerUpdate>,
    reply: PluginReply,
}

#[derive(Default)]
pub struct Runtime {
    pub down: bool,
    /// The plugin is connected and configured.
    pub connected: bool,
    /// The plugin has answered the list, and gets events.
    pub synchronized: bool,
    /// The plugin has to approve containers.
    pub validates: bool,
    queue: VecDeque<Task>,
    current: Option<Current>,
    number: u64,
    pub events: Events,
    /// It makes none of the updates in the next answer to its list, as containerd while it starts.
    pub loses_list: bool,
    /// The plugin's end of the connection.
    pub exchange: Exchange,
}

impl Runtime {
    /// The current task and those that wait.
    pub fn events_left(&self) -> impl Iterator<Item = &Task> {
        self.current.iter().map(|current| &current.task).chain(&self.queue)
    }

    /// Whether it has not yet done what the answer to a call says.
    pub fn is_calling(&self) -> bool {
        self.current.is_some()
    }
}

impl World {
    /// Puts a task into the runtime's queue after some time.
    pub fn call_in(&mut self, delay: Duration, task: Task) {
        self.after(delay, move |world| world.enqueue(task));
    }

    pub fn report(&mut self, delay: Duration, event: Event, serial: Serial) {
        self.call_in(delay, Task::Container(event, serial));
    }

    fn enqueue(&mut self, task: Task) {
        if self.runtime.down {
            return self.lose(task);
        }
        self.runtime.queue.push_back(task);
        self.next_call();
    }

    pub fn next_call(&mut self) {
        if self.runtime.down || self.runtime.current.is_some() {
            return;
        }
        let Some(task) = self.runtime.queue.pop_front() else { return };
        self.runtime.number += 1;
        let number = self.runtime.number;
        let call = None;
        let mut reply = PluginReply::default();
        let mut updates = VecDeque::new();
        if let Task::Unsolicited(all) = &task {
            updates.extend(all.iter().cloned());
            if self.settings.trouble == Trouble::All && self.dice.percent(3) {
                reply.refused = Some("not all was made".to_owned());
                let made = self.dice.below(updates.len() + 1);
                updates.drain(made..).for_each(|update| self.not_made(&update));
            }
        }
        let current = Current { number, task: task.clone(), call, updates, reply };
        let current = self.runtime.current.insert(current);
        if !current.updates.is_empty() {
            return self.after(Duration::from_millis(1), move |world| world.apply_next(number));
        }
        let runtime = &self.runtime;
        let listens = runtime.synchronized || (runtime.connected && task == Task::Synchronize);
        let message = if listens { self.message(&task) } else { None };
        let Some((method, payload)) = message else { return self.finish() };
        self.trace.record(|calls| calls.call(method, &payload));
        let is_report = match &task {
            Task::Pod(event, _) => *event != Event::RUN_POD_SANDBOX,
            Task::Container(event, _) => *event != Event::CREATE_CONTAINER,
            _ => false,
        };
        if is_report && self.settings.trouble == Trouble::All && self.dice.percent(1) {
            let again = Task::Again(method, payload.clone(), Box::new(task.clone()));
            let later = self.dice.millis(0, 5000);
            self.call_in(later, again);
        }
        let (call, kind) = match self.runtime.exchange.decode(reads(true), method, &payload) {
            Ok(Decoded::Call(call, kind)) => (call, kind),
            Ok(Decoded::Answered(_)) => return self.finish(),
            Err(error) => return self.fail(format!("{method} was not understood: {error}")),
        };
        match asked(call, false) {
            Asked::Call(call) => {
                let id = CallId(number);
                if let Some(current) = &mut self.runtime.current {
                    current.call = Some(id);
                }
                let text = self.describe_call(&task);
                self.say(format!("call {}: {method} {text}", id.0));
                self.plugin.pending.insert(id, kind);
                self.after(PATIENCE, move |world| world.patience_ends(id));
                self.after(TIMEOUT, move |world| world.runtime_gives_up(id));
                if self.names_cpus(&task) {
                    self.note_cpus_named();
                }
                self.input(Input::Call(id, call));
            }
            Asked::WentOn => {
                self.input(Input::WentOn);
                self.finish();
            }
            Asked::Validate(..) => self.fail("a validation of nothing"),
        }
    }

    /// Whether the kubelet names CPUs in this request.
    fn names_cpus(&self, task: &Task) -> bool {
        match task {
            Task::Name { .. } => true,
            Task::Container(Event::CREATE_CONTAINER, serial) => {
                self.containers.get(serial).is_some_and(|container| container.is_named)
            }
            _ => false,
        }
    }

    fn describe_call(&self, task: &Task) -> String {
        match task {
            Task::Pod(_, pod) => format!("u{pod}"),
            Task::Container(_, serial) => self.describe(*serial),
            Task::Update { serial, milli, .. } => format!("{} to {milli}m", self.describe(*serial)),
            Task::ResizeMemory { serial, memory } => {
                format!("{} to {} bytes", self.describe(*serial), memory.memory)
            }
            Task::Name { serial, cpus } => format!("{} on {cpus}", self.describe(*serial)),
            Task::Again(..) => "again".to_owned(),
            Task::Synchronize | Task::Unsolicited(_) => String::new(),
        }
    }

    /// The call's method and bytes; `None` if the plugin has not subscribed to it, or its subject is gone.
    fn message(&self, task: &Task) -> Option<(&'static str, Vec<u8>)> {
        let (event, pod, container) = match task {
            Task::Synchronize => {
                return Some(("Synchronize", self.list(false).write_to_bytes().ok()?));
            }
            Task::Again(method, payload, of) => {
                return self.message(of).map(|_| (*method, payload.clone()));
            }
            Task::Unsolicited(_) => return None,
            Task::Pod(event, pod) => (*event, self.pods.get(pod)?, None),
            Task::Container(event, serial) => {
                let container = self.containers.get(serial)?;
                (*event, self.pods.get(&container.pod)?, Some(container))
            }
            Task::Update { serial, .. }
            | Task::ResizeMemory { serial, .. }
            | Task::Name { serial, .. } => {
                let container = self.containers.get(serial)?;
                (Event::UPDATE_CONTAINER, self.pods.get(&container.pod)?, Some(container))
            }
        };
        if !self.runtime.events.contains(event) {
            return None;
        }
        // containerd knows only the id of a sandbox that is no longer in its store, which is rare.
        let is_stub = matches!(event, Event::STOP_CONTAINER | Event::REMOVE_CONTAINER)
            && matches!(pod.sandbox, Sandbox::Stopped | Sandbox::Removed)
            && self.runtime.number.is_multiple_of(2);
        let sandbox = if is_stub {
            wire::PodSandbox { id: pod.sandbox_id(), ..Default::default() }
        } else {
            pod.wire(&self.settings)
        };
        let linux_resources = match task {
            Task::Update { serial, milli, .. } => {
                let memory = self.containers.get(serial)?.memory;
                pods::resources(*milli, pods::quota(*milli), "", "", memory)
            }
            Task::ResizeMemory { memory, .. } => MessageField::some(memory.resources()),
            Task::Name { cpus, .. } => {
                let cpu = wire::LinuxCPU { cpus: cpus.clone(), ..Default::default() };
                let cpu = MessageField::some(cpu);
                MessageField::some(wire::LinuxResources { cpu, ..Default::default() })
            }
            Task::Pod(Event::UPDATE_POD_SANDBOX, _) => {
                pods::resources(pod.request(), pods::quota(pod.limit()), "", "", pod.memory())
            }
            _ => MessageField::none(),
        };
        // All requests have a subset of the fields of this one, with the same numbers.
        let request = wire::UpdateContainerRequest {
            pod: MessageField::some(sandbox),
            container: container.map(|one| pod.wire_container(one, &self.settings)).into(),
            linux_resources,
            ..Default::default()
        };
        let needs_answer = matches!(event, Event::CREATE_CONTAINER | Event::STOP_CONTAINER)
            || request.linux_resources.is_some();
        if needs_answer || self.settings.has_dedicated_calls() {
            let (_, method) = METHODS.into_iter().find(|(of, _)| *of == event)?;
            return Some((method, request.write_to_bytes().ok()?));
        }
        let change = wire::StateChangeEvent {
            event: event.into(),
            pod: request.pod,
            container: request.container,
            ..Default::default()
        };
        Some(("StateChange", change.write_to_bytes().ok()?))
    }

    /// All pods, and containers that are created or running. After its own restart CRI-O lists them as it
    /// created them. For containerd, a container that never ran is created until it is removed.
    /// `with_starting` adds containers that are starting, which an instance that was connected before
    /// knows from their creation.
    pub fn list(&self, with_starting: bool) -> wire::SynchronizeRequest {
        let has_sandbox = |sandbox| matches!(sandbox, Sandbox::Ready | Sandbox::Stopped);
        let listed = |container: &Container| match container.state {
            State::Created | State::Running => true,
            State::Starting => with_starting || self.settings.is_crio(),
            State::Exited => {
                let is_listed = container.never_ran || self.now < container.listed_until;
                is_listed && !self.settings.is_crio()
            }
            State::Creating | State::Unknown => false,
        };
        let pods = self.pods.values().filter(|pod| has_sandbox(pod.sandbox));
        let containers = self.containers.values().filter(|container| listed(container));
        wire::SynchronizeRequest {
            pods: pods.map(|pod| pod.wire(&self.settings)).collect(),
            containers: containers
                .map(|one| self.pods[&one.pod].wire_container(one, &self.settings))
                .collect(),
            ..Default::default()
        }
    }

    /// Takes the plugin's answer to a call. Returns whether the runtime still waited for it.
    pub fn answer(
        &mut self,
        id: CallId,
        kind: &AnswerKind,
        answer: Result<Vec<u8>, String>,
    ) -> bool {
        let waits = self.runtime.connected
            && self.runtime.current.as_ref().is_some_and(|current| current.call == Some(id));
        if !waits {
            self.say(format!("  answer {} comes too late", id.0));
            return false;
        }
        let Some(mut current) = self.runtime.current.take() else { return false };
        current.call = None;
        current.reply.answered = true;
        match answer {
            Err(why) => {
                self.trace.record(Calls::refused);
                current.reply.refused = Some(why);
            }
            Ok(bytes) => {
                let (adjust, updates) = read_answer(kind, &bytes).expect("protobuf");
                if let Task::Update { serial, .. }
                | Task::ResizeMemory { serial, .. }
                | Task::Name { serial, .. } = current.task
                {
                    let own = pods::id(serial);
                    current.reply.own = updates.iter().any(|u| u.container_id == own);
                }
                current.reply.adjust = adjust;
                current.updates = updates.into();
            }
        }
        let adjusted = current.reply.adjust.as_ref();
        let to = adjusted.map_or_else(String::new, |adjust| {
            format!(": CPUs {}", describe_cpu(&adjust.linux.resources.cpu))
        });
        let text: Vec<String> = current.updates.iter().map(describe_update).collect();
        self.say(format!("  answer {}{to} {}", id.0, text.join(", ")));
        if matches!(kind, AnswerKind::Synchronize) {
            self.runtime.synchronized = true;
            self.oracle.synchronized(self.now);
        }
        if matches!(kind, AnswerKind::Synchronize) && std::mem::take(&mut self.runtime.loses_list) {
            self.lose_updates(std::mem::take(&mut current.updates));
        }
        self.under_way(&current.updates);
        if let (Task::Container(_, serial), Some(adjust)) = (&current.task, &current.reply.adjust) {
            self.check_saved(*serial, &adjust.linux.resources.cpu);
        }
        let number = current.number;
        let asks = self.runtime.validates && matches!(kind, AnswerKind::Create(_));
        self.runtime.current = Some(current);
        if asks {
            self.ask_for_approval();
        } else {
            self.after(Duration::from_micros(300), move |world| world.apply_next(number));
        }
        true
    }

    /// Forgets the updates for running containers with exclusive CPUs, which the plugin has written itself, and
    /// all others that are only for the runtime's record.
    fn lose_updates(&mut self, updates: VecDeque<wire::ContainerUpdate>) {
        for update in updates {
            self.say(format!("  update of {} is lost", update.container_id));
            let Some(serial) = pods::serial(&update.container_id) else { continue };
            let cpu = &update.linux.resources.cpu;
            if cpu.quota.value == -1 {
                let cpus = cpu.cpus.clone();
                self.after(LOST, move |world| world.check_pinned(serial, &cpus));
            }
        }
    }

    /// Validates a creation. Another plugin may have set other CPUs before.
    fn ask_for_approval(&mut self) {
        let is_other = self.settings.other_plugin && self.dice.percent(20);
        let Some(current) = &mut self.runtime.current else { return };
        let Task::Container(_, serial) = current.task else { return };
        if let Some(adjust) = current.reply.adjust.as_mut()
            && is_other
        {
            let linux = adjust.linux.mut_or_insert_default();
            let cpu = &mut linux.resources.mut_or_insert_default().cpu;
            cpu.mut_or_insert_default().cpus = "0".to_owned();
        }
        let id = CallId(APPROVAL + current.number);
        current.call = Some(id);
        let container = &self.containers[&serial];
        let request = wire::ValidateContainerAdjustmentRequest {
            container: Some(self.pods[&container.pod].wire_container(container, &self.settings))
                .into(),
            adjust: current.reply.adjust.clone().into(),
            ..Default::default()
        };
        let bytes = request.write_to_bytes().expect("protobuf");
        let decoded =
            self.runtime.exchange.decode(reads(true), "ValidateContainerAdjustment", &bytes);
        let Ok(Decoded::Call(call, _)) = decoded else {
            return self.fail(format!("a validation was not understood: {decoded:?}"));
        };
        match asked(call, false) {
            Asked::Validate(container, cpus) => {
                self.after(TIMEOUT, move |world| world.runtime_gives_up(id));
                self.input(Input::Validate(id, container, cpus));
            }
            other => self.fail(format!("a validation was not understood: {other:?}")),
        }
    }

    /// Takes the plugin's result of a validation.
    pub fn validated(&mut self, id: CallId, refused: Option<String>) {
        let Some(current) = &mut self.runtime.current else { return };
        if current.call != Some(id) {
            return;
        }
        current.call = None;
        if refused.is_some() {
            current.updates.clear();
            current.reply.refused = refused;
        }
        let number = current.number;
        self.after(Duration::from_micros(300), move |world| world.apply_next(number));
    }

    /// Opens a window for each update.
    fn under_way(&mut self, updates: &VecDeque<wire::ContainerUpdate>) {
        for update in updates {
            if let Some(serial) = pods::serial(&update.container_id)
                && let Some(container) = self.containers.get(&serial)
            {
                let dir = self.dir(container);
                self.oracle.open(Key::Update(serial), "update under way", &dir);
            }
        }
    }

    pub fn apply_next(&mut self, number: u64) {
        let Some(current) = &mut self.runtime.current else { return };
        if current.number != number {
            return;
        }
        // The update of the request's own container comes last.
        if let Task::Update { serial, .. }
        | Task::ResizeMemory { serial, .. }
        | Task::Name { serial, .. } = current.task
            && current.updates.front().is_some_and(|u| u.container_id == pods::id(serial))
        {
            current.updates.rotate_left(1);
        }
        let Some(update) = current.updates.pop_front() else { return self.finish() };
        let took = self.apply_update(&update);
        self.after(took, move |world| world.apply_next(number));
    }

    /// Handles an unsolicited update that the runtime does not make, as an earlier one has failed.
    fn not_made(&mut self, update: &wire::ContainerUpdate) {
        let serial = pods::serial(&update.container_id).expect("an id of this runtime");
        self.oracle.close(Key::Update(serial), self.now);
        if let Some(container) = self.containers.get(&serial) {
            let dir = self.dir(container);
            self.say(format!("  update of {} is not made", update.container_id));
            self.disturbed(FAILED_UPDATE, &dir, Duration::from_secs(25));
        }
    }

    /// Makes an update. Returns how long that took.
    fn apply_update(&mut self, update: &wire::ContainerUpdate) -> Duration {
        let quick = Duration::from_micros(50);
        let serial = pods::serial(&update.container_id).expect("an id of this runtime");
        self.oracle.close(Key::Update(serial), self.now + Duration::from_millis(2500));
        self.check_observer(serial);
        let fails = self.settings.trouble == Trouble::All && self.dice.percent(2);
        let is_crio = self.settings.is_crio();
        let Some(container) = self.containers.get_mut(&serial) else { return quick };
        if matches!(container.state, State::Exited | State::Unknown | State::Creating) {
            return quick;
        }
        // A plugin that was away leaves it alone as long as its CPUs are the reserved ones.
        if container.is_preset && self.settings.trouble != Trouble::All && !self.oracle.is_unsteady
        {
            let id = &update.container_id;
            self.fail(format!("an update of {id}, which has CPUs of another program"));
            return quick;
        }
        let reaches = container.state == State::Running || is_crio;
        let cpu = &update.linux.resources.cpu;
        // Even if the update fails: the plugin repairs that.
        (container.exclusive, container.mixed) = (None, false);
        if cpu.quota.value == -1 {
            container
                .given(&cpu.cpus, self.pods[&container.pod].pod_options(container.slot, MIXED));
            self.oracle.assigned.insert((container.pod, container.slot));
        }
        self.oracle.changed = true;
        if fails && reaches {
            let dir = self.dir(&self.containers[&serial]);
            self.say(format!("  update of {} fails in the runtime", update.container_id));
            self.disturbed(FAILED_UPDATE, &dir, Duration::from_secs(25));
            return Duration::from_millis(5);
        }
        if cpu.cpus.is_empty() {
            self.fail(format!("an update of {} without CPUs", update.container_id));
            return quick;
        }
        container.cpus.clone_from(&cpu.cpus);
        if !cpu.mems.is_empty() {
            container.mems.clone_from(&cpu.mems);
        }
        if cpu.quota.value != 0 {
            container.quota = cpu.quota.value;
        }
        let cpus = container.cpus.clone();
        let mems = container.mems.clone();
        let quota = container.quota;
        if reaches {
            let dir = self.dir(&self.containers[&serial]);
            let _ = self.set_cpus(&dir, &cpus);
            if !mems.is_empty() {
                let _ = self.write(&dir, "cpuset.mems", &mems);
            }
            if quota != 0 {
                let _ = self.write(&dir, "cpu.max", &cfs(quota));
            }
            self.say(format!("  runtime sets {} to {cpus}", update.container_id));
            return self.dice.millis(5, 60);
        }
        quick
    }

    /// Ends the current task, and does what the runtime does after it.
    fn finish(&mut self) {
        let Some(Current { task, reply, .. }) = self.runtime.current.take() else { return };
        let pause = self.dice.micros(50, 1000);
        match task {
            Task::Pod(Event::RUN_POD_SANDBOX, pod) => self.sandbox_runs(pod),
            Task::Pod(Event::STOP_POD_SANDBOX, pod) => self.sandbox_stopped(pod),
            Task::Pod(Event::REMOVE_POD_SANDBOX, pod) => self.forget_pod(pod),
            Task::Container(Event::CREATE_CONTAINER, serial) => self.created(serial, reply),
            Task::Update { serial, milli, before, tries } => {
                let is_done = reply.refused.is_none();
                self.resized(serial, milli, before, tries, reply);
                if is_done {
                    self.runtime
                        .queue
                        .push_back(Task::Container(Event::POST_UPDATE_CONTAINER, serial));
                }
            }
            Task::ResizeMemory { serial, memory } => self.memory_resized(serial, memory, &reply),
            Task::Container(Event::STOP_CONTAINER, serial) => self.stopped(serial),
            Task::Container(Event::REMOVE_CONTAINER, serial) => {
                self.containers.retain(|one, c| *one != serial || c.state != State::Exited);
            }
            Task::Name { serial, cpus } => self.named(serial, cpus, &reply),
            Task::Unsolicited(_) => self.updated(reply.refused.is_none()),
            Task::Synchronize => self.notice_found(),
            Task::Pod(..) | Task::Container(..) | Task::Again(..) => {}
        }
        self.after(pause, |world| world.next_call());
    }

    /// Sets the CPUs that the kubelet named, unless a plugin has changed them.
    fn named(&mut self, serial: Serial, cpus: String, reply: &PluginReply) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        if reply.own || reply.refused.is_some() || container.state != State::Running {
            return;
        }
        container.cpus.clone_from(&cpus);
        container.is_named = true;
        // A plugin that leaves the container alone gives its CPUs to others.
        if self.cpu_manager.is_static() || reply.answered {
            (container.exclusive, container.mixed) = (None, false);
        }
        let dir = self.dir(&self.containers[&serial]);
        let _ = self.write(&dir, "cpuset.cpus", &cpus);
    }

    /// containerd records the end of a container after it has reported it, and lists it until then.
    fn stopped(&mut self, serial: Serial) {
        let longest = if self.dice.percent(25) { 2500 } else { 5 };
        let until = self.now + self.dice.millis(0, longest);
        if let Some(container) = self.containers.get_mut(&serial) {
            container.listed_until = until;
        }
    }

    /// Ends the plugin's connection. The current task continues without it.
    pub fn disconnect(&mut self) {
        if self.runtime.connected {
            self.trace.record(|calls| calls.say("Disconnected"));
        }
        self.runtime.connected = false;
        self.runtime.synchronized = false;
        self.plugin.pending.clear();
        self.oracle.disconnected(self.now);
        let lost = self.runtime.current.as_mut();
        if let Some(current) = lost
            && current.call.take().is_some()
        {
            self.finish();
        }
        self.runtime.queue.retain(|task| !matches!(task, Task::Synchronize | Task::Unsolicited(_)));
        self.updated(false);
    }

    pub fn runtime_gives_up(&mut self, id: CallId) {
        if self.runtime.current.as_ref().is_some_and(|current| current.call == Some(id)) {
            self.say(format!("  runtime gives up on call {}, and drops the plugin", id.0));
            self.disconnect();
            let delay = self.dice.millis(200, 1000);
            self.after(delay, |world| world.connect());
        }
    }

    /// Connects, registers and configures the plugin, and queues the list.
    pub fn connect(&mut self) {
        if self.runtime.connected || !self.plugin.is_alive() {
            return;
        }
        if self.runtime.down {
            return self.after(Duration::from_millis(400), |world| world.connect());
        }
        self.say("plugin connects");
        self.trace.record(|calls| calls.say("Connected"));
        let capabilities = self.settings.capabilities();
        self.runtime.connected = true;
        self.runtime.exchange = Exchange::default();
        self.runtime.events = events(Subscriptions::default()).common(capabilities.events);
        self.runtime.queue.push_front(Task::Synchronize);
        self.input(Input::Connected { capabilities, answer_within: TIMEOUT });
        self.after(Duration::from_millis(1), |world| world.next_call());
    }

    pub fn update_unsolicited(&mut self, updates: Vec<wire::ContainerUpdate>) {
        let text: Vec<String> = updates.iter().map(describe_update).collect();
        self.say(format!("  plugin asks for {}", text.join(", ")));
        if !self.settings.capabilities().unsolicited_updates {
            self.fail("an unsolicited update of a runtime that may deadlock");
        }
        if !self.runtime.connected {
            return self.updated(false);
        }
        self.under_way(&updates.iter().cloned().collect());
        self.call_in(Duration::from_millis(1), Task::Unsolicited(updates));
    }

    /// Kills the runtime, and restarts it after `away`. Its tasks are lost.
    pub fn restart_runtime(&mut self, away: Duration) {
        if self.runtime.down {
            return;
        }
        self.say("runtime is killed");
        // Updates that it has not made are lost.
        self.oracle.is_disturbed = true;
        self.disconnect();
        self.runtime.down = true;
        let current = self.runtime.current.take();
        let queue = std::mem::take(&mut self.runtime.queue);
        for task in current.map(|current| current.task).into_iter().chain(queue) {
            self.lose(task);
        }
        let pods: Vec<PodId> = self.pods.keys().copied().collect();
        for pod in pods {
            if self.pods[&pod].sandbox == Sandbox::Starting {
                self.lose_sandbox(pod);
            }
            let reported = self.settings.is_crio() || self.dice.percent(50);
            let pod = self.pod(pod);
            pod.is_reported &= reported;
            pod.busy = false;
        }
        let serials: Vec<Serial> = self.containers.keys().copied().collect();
        for serial in serials {
            match self.containers[&serial].state {
                State::Creating => self.lose_container(serial),
                State::Starting => self.interrupt_start(serial),
                _ => {}
            }
        }
        for container in self.containers.values_mut() {
            // The runtime forgets that it has reported the end of a container that never ran.
            container.stop_reported &= !container.never_ran;
        }
        if self.settings.is_crio() {
            for container in self.containers.values_mut() {
                (container.cpus, container.quota) = container.created_with.clone();
            }
        }
        self.after(away, |world| world.runtime_back());
    }

    /// The result of a task that the runtime's end has interrupted.
    fn lose(&mut self, task: Task) {
        match task {
            Task::Pod(Event::RUN_POD_SANDBOX, pod) => self.lose_sandbox(pod),
            Task::Pod(Event::STOP_POD_SANDBOX, pod) => self.sandbox_stopped(pod),
            Task::Pod(Event::REMOVE_POD_SANDBOX, pod) => self.forget_pod(pod),
            Task::Container(Event::CREATE_CONTAINER, serial) => self.lose_container(serial),
            Task::Update { serial, milli, before, .. } => {
                let reply = PluginReply {
                    refused: Some("runtime gone".to_owned()),
                    ..PluginReply::default()
                };
                self.resized(serial, milli, before, 1, reply);
            }
            Task::ResizeMemory { serial, memory } => {
                let refused = Some("runtime gone".to_owned());
                let reply = PluginReply { refused, ..PluginReply::default() };
                self.memory_resized(serial, memory, &reply);
            }
            // It is reported again, before the removal at the latest.
            Task::Container(Event::STOP_CONTAINER, serial) => {
                if let Some(container) = self.containers.get_mut(&serial) {
                    container.stop_reported = false;
                }
            }
            // The kubelet repeats the removal.
            Task::Container(Event::REMOVE_CONTAINER, serial) => {
                self.after(Duration::from_secs(2), move |world| world.collect(serial));
            }
            _ => {}
        }
    }

    /// Ends a sandbox that was starting. The kubelet makes a new one.
    fn lose_sandbox(&mut self, pod: PodId) {
        if self.pods.contains_key(&pod) {
            self.end_sandbox(pod);
            self.pod(pod).sandbox = Sandbox::None;
            self.pod(pod).busy = false;
        }
    }

    fn lose_container(&mut self, serial: Serial) {
        let Some(container) = self.containers.remove(&serial) else { return };
        if let Some(pod) = self.pods.get_mut(&container.pod) {
            pod.slots[container.slot].instance = None;
            pod.busy = false;
        }
    }

    /// A container that was starting when the runtime ended then runs, is dead and listed as created, or
    /// is unknown to the runtime.
    fn interrupt_start(&mut self, serial: Serial) {
        let text = self.describe(serial);
        let choice = self.dice.below(3);
        let is_crio = self.settings.is_crio();
        let container = self.container(serial);
        match choice {
            // It runs, and is reported later.
            0 => {}
            1 if !is_crio => {
                container.state = State::Created;
                container.never_ran = true;
                let pid = container.pid.take();
                let dir = self.dir(&self.containers[&serial]);
                pid.into_iter().for_each(|pid| self.end_process(pid, &dir));
            }
            _ => container.state = State::Unknown,
        }
        let state = self.containers[&serial].state;
        self.say(format!("  {text} was starting, and is {state:?}"));
        self.oracle.close(Key::Starting(serial), self.now + Duration::from_secs(25));
    }

    pub fn runtime_back(&mut self) {
        self.say("runtime is back");
        self.runtime.down = false;
        let pods: Vec<PodId> = self.pods.keys().copied().collect();
        for pod in pods {
            let delay = self.dice.millis(5, 800);
            self.after(delay, move |world| world.sync_pod(pod));
        }
        let delay = self.dice.millis(5, 900);
        self.after(delay, |world| world.connect());
    }

    /// Records that another program has changed a cgroup. The plugin has the time `bound` to correct it,
    /// or until it has reconnected if it is away.
    pub fn disturbed(&mut self, what: &'static str, dir: &str, bound: Duration) {
        debug_assert!(!dir.starts_with(CGROUPS));
        let until = self.now + bound;
        self.oracle.changed = true;
        self.oracle.is_disturbed = true;
        self.oracle.allow(what, dir, until);
        self.note_unwatched(dir);
    }

    /// Records a change that the plugin cannot know if it is away or stalled.
    pub fn note_unwatched(&mut self, dir: &str) {
        let is_away = !self.runtime.synchronized || !self.plugin.is_alive();
        if is_away || self.plugin.is_stalled(self.now) {
            self.oracle.unwatched(dir);
        }
    }
}

fn describe_update(update: &wire::ContainerUpdate) -> String {
    format!("{} -> {}", update.container_id, describe_cpu(&update.linux.resources.cpu))
}

fn describe_cpu(cpu: &wire::LinuxCPU) -> String {
    let exclusive = if cpu.quota.value == -1 { " exclusive" } else { "" };
    format!("{}{exclusive}", cpu.cpus)
}

type Answered = (Option<wire::ContainerAdjustment>, Vec<wire::ContainerUpdate>);

fn read_answer(kind: &AnswerKind, bytes: &[u8]) -> Option<Answered> {
    Some(match kind {
        AnswerKind::Create(_) => {
            let answer = wire::CreateContainerResponse::parse_from_bytes(bytes).ok()?;
            (answer.adjust.into_option(), answer.update)
        }
        // All others have the updates in the same field.
        AnswerKind::Synchronize | AnswerKind::Update | AnswerKind::Stop => {
            (None, wire::UpdateContainerResponse::parse_from_bytes(bytes).ok()?.update)
        }
        AnswerKind::Validate | AnswerKind::Empty => (None, Vec::new()),
    })
}
