//! The runtime, with the manners of containerd and CRI-O: it calls plugins one event at a time, and
//! makes the updates of an answer before it goes on.

use crate::calls::{Calls, METHODS};
use crate::kernel::CGROUPS;
use crate::node::cfs;
use crate::oracle::{FAILED_UPDATE, Key};
use crate::pods::{self, Container, MIXED, PodId, Sandbox, Serial, State};
use crate::settings::Trouble;
use crate::world::World;
use nri::wire::{self, Event};
use nri::{AnswerKind, Decoded, Events, Exchange};
use nri_cpu_manager::daemon::{CallId, Input};
use nri_cpu_manager::edge::Subscriptions;
use nri_cpu_manager::edge::nri::exchange::{Asked, asked};
use nri_cpu_manager::edge::nri::{READS, events};
use protobuf::{Message, MessageField};
use std::collections::VecDeque;
use std::time::Duration;

/// How long the runtime waits for an answer, and the plugin's edge for the core.
pub const TIMEOUT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_millis(1200);
/// The numbers of validations are this much higher than those of their calls.
const APPROVAL: u64 = 1 << 32;

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Pod(Event, PodId),
    Container(Event, Serial),
    Update {
        serial: Serial,
        milli: u64,
        before: u64,
        tries: u32,
    },
    /// The kubelet's own CPU manager names CPUs for a container.
    Name {
        serial: Serial,
        cpus: String,
    },
    Synchronize,
    /// A report that has been made before, in the same words, as long as its subject is there.
    Again(&'static str, Vec<u8>, Box<What>),
    /// The plugin changes containers without a call.
    Unsolicited(Vec<wire::ContainerUpdate>),
}

/// What plugins said; nothing if there was none.
#[derive(Debug, Default)]
pub struct Reply {
    pub refused: Option<String>,
    pub adjust: Option<wire::ContainerAdjustment>,
    /// The plugin has answered.
    pub heard: bool,
    /// It changes the container of the call.
    pub own: bool,
}

struct Current {
    number: u64,
    what: What,
    call: Option<CallId>,
    updates: VecDeque<wire::ContainerUpdate>,
    reply: Reply,
}

#[derive(Default)]
pub struct Runtime {
    pub down: bool,
    /// The plugin is connected, and has been configured.
    pub connected: bool,
    /// It has answered with the updates of the list, and hears of events.
    pub synchronized: bool,
    /// The plugin has to approve of containers.
    pub validates: bool,
    queue: VecDeque<What>,
    current: Option<Current>,
    number: u64,
    pub events: Events,
    /// The plugin's end of the connection.
    pub exchange: Exchange,
}

impl Runtime {
    /// The event that plugins are called for, and those that wait.
    pub fn events_left(&self) -> impl Iterator<Item = &What> {
        self.current.iter().map(|current| &current.what).chain(&self.queue)
    }

    /// Whether it has not yet done what the answer to a call says.
    pub fn is_calling(&self) -> bool {
        self.current.is_some()
    }
}

impl World {
    /// After its other work the runtime calls plugins, when it is this event's turn.
    pub fn call_in(&mut self, delay: Duration, what: What) {
        self.after(delay, move |world| world.enqueue(what));
    }

    pub fn report(&mut self, delay: Duration, event: Event, serial: Serial) {
        self.call_in(delay, What::Container(event, serial));
    }

    fn enqueue(&mut self, what: What) {
        if self.runtime.down {
            return self.lose(what);
        }
        self.runtime.queue.push_back(what);
        self.next_call();
    }

    pub fn next_call(&mut self) {
        if self.runtime.down || self.runtime.current.is_some() {
            return;
        }
        let Some(what) = self.runtime.queue.pop_front() else { return };
        self.runtime.number += 1;
        let number = self.runtime.number;
        let (call, mut reply) = (None, Reply::default());
        let mut updates = VecDeque::new();
        if let What::Unsolicited(all) = &what {
            updates.extend(all.iter().cloned());
            if self.settings.trouble == Trouble::All && self.dice.percent(3) {
                reply.refused = Some("not all was made".to_owned());
                let made = self.dice.below(updates.len() + 1);
                updates.drain(made..).for_each(|update| self.not_made(&update));
            }
        }
        let current = Current { number, what: what.clone(), call, updates, reply };
        let current = self.runtime.current.insert(current);
        if !current.updates.is_empty() {
            return self.after(Duration::from_millis(1), move |world| world.apply_next(number));
        }
        let runtime = &self.runtime;
        let listens = runtime.synchronized || (runtime.connected && what == What::Synchronize);
        let message = if listens { self.message(&what) } else { None };
        let Some((method, payload)) = message else { return self.finish() };
        self.trace.record(|calls| calls.call(method, &payload));
        let is_report = match &what {
            What::Pod(event, _) => *event != Event::RUN_POD_SANDBOX,
            What::Container(event, _) => *event != Event::CREATE_CONTAINER,
            _ => false,
        };
        if is_report && self.settings.trouble == Trouble::All && self.dice.percent(1) {
            let again = What::Again(method, payload.clone(), Box::new(what.clone()));
            let later = self.dice.millis(0, 5000);
            self.call_in(later, again);
        }
        let (call, kind) = match self.runtime.exchange.decode(method, &payload) {
            Ok(Decoded::Call(call, kind)) => (call, kind),
            Ok(Decoded::Answered(_)) => return self.finish(),
            Err(error) => return self.fail(format!("{method} was not understood: {error}")),
        };
        match asked(call) {
            Asked::Call(call) => {
                let id = CallId(number);
                if let Some(current) = &mut self.runtime.current {
                    current.call = Some(id);
                }
                let text = self.describe_call(&what);
                self.say(format!("call {}: {method} {text}", id.0));
                self.plugin.pending.insert(id, kind);
                self.after(PATIENCE, move |world| world.patience_ends(id));
                self.after(TIMEOUT, move |world| world.runtime_gives_up(id));
                if self.names_cpus(&what) {
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
    fn names_cpus(&self, what: &What) -> bool {
        match what {
            What::Name { .. } => true,
            What::Container(Event::CREATE_CONTAINER, serial) => {
                self.containers.get(serial).is_some_and(|container| container.is_named)
            }
            _ => false,
        }
    }

    fn describe_call(&self, what: &What) -> String {
        match what {
            What::Pod(_, pod) => format!("u{pod}"),
            What::Container(_, serial) => self.describe(*serial),
            What::Update { serial, milli, .. } => format!("{} to {milli}m", self.describe(*serial)),
            What::Name { serial, cpus } => format!("{} on {cpus}", self.describe(*serial)),
            What::Again(..) => "again".to_owned(),
            What::Synchronize | What::Unsolicited(_) => String::new(),
        }
    }

    /// The call as it goes over the wire; `None` if the plugin has not subscribed to it, or its
    /// subject is gone.
    fn message(&self, what: &What) -> Option<(&'static str, Vec<u8>)> {
        let (event, pod, container) = match what {
            What::Synchronize => {
                return Some(("Synchronize", self.list(false).write_to_bytes().ok()?));
            }
            What::Again(method, payload, of) => {
                return self.message(of).map(|_| (*method, payload.clone()));
            }
            What::Unsolicited(_) => return None,
            What::Pod(event, pod) => (*event, self.pods.get(pod)?, None),
            What::Container(event, serial) => {
                let container = self.containers.get(serial)?;
                (*event, self.pods.get(&container.pod)?, Some(container))
            }
            What::Update { serial, .. } | What::Name { serial, .. } => {
                let container = self.containers.get(serial)?;
                (Event::UPDATE_CONTAINER, self.pods.get(&container.pod)?, Some(container))
            }
        };
        if !self.runtime.events.contains(event) {
            return None;
        }
        // containerd has only the id of a sandbox that is no longer in its store. Mostly it still is.
        let is_stub = matches!(event, Event::STOP_CONTAINER | Event::REMOVE_CONTAINER)
            && matches!(pod.sandbox, Sandbox::Stopped | Sandbox::Removed)
            && self.runtime.number.is_multiple_of(2);
        let sandbox = if is_stub {
            wire::PodSandbox { id: pod.sandbox_id(), ..Default::default() }
        } else {
            pod.wire(&self.settings)
        };
        let linux_resources = match what {
            What::Update { milli, .. } => pods::resources(*milli, pods::quota(*milli), "", ""),
            What::Name { cpus, .. } => {
                let cpu = wire::LinuxCPU { cpus: cpus.clone(), ..Default::default() };
                let cpu = MessageField::some(cpu);
                MessageField::some(wire::LinuxResources { cpu, ..Default::default() })
            }
            What::Pod(Event::UPDATE_POD_SANDBOX, _) => {
                pods::resources(pod.request(), pods::quota(pod.limit()), "", "")
            }
            _ => MessageField::none(),
        };
        // On the wire, all requests have some of this one's fields.
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

    /// All pods, and the containers that are created or run. After its own restart CRI-O lists them
    /// as it created them. For containerd, what never ran is created until it is removed. One that has
    /// `heard` of their creation knows those, too, that start just now.
    pub fn list(&self, heard: bool) -> wire::SynchronizeRequest {
        let has_sandbox = |sandbox| matches!(sandbox, Sandbox::Ready | Sandbox::Stopped);
        let listed = |container: &Container| match container.state {
            State::Created | State::Running => true,
            State::Starting => heard || self.settings.is_crio(),
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

    /// The plugin has answered a call. Returns whether the runtime still waited for it.
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
        current.reply.heard = true;
        match answer {
            Err(why) => {
                self.trace.record(Calls::refused);
                current.reply.refused = Some(why);
            }
            Ok(bytes) => {
                let (adjust, updates) = read_answer(kind, &bytes).expect("protobuf");
                if let What::Update { serial, .. } | What::Name { serial, .. } = current.what {
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
        self.under_way(&current.updates);
        if let (What::Container(_, serial), Some(adjust)) = (&current.what, &current.reply.adjust) {
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

    /// After all plugins have answered, another of them may have set other CPUs.
    fn ask_for_approval(&mut self) {
        let is_other = self.settings.other_plugin && self.dice.percent(20);
        let Some(current) = &mut self.runtime.current else { return };
        let What::Container(_, serial) = current.what else { return };
        if let Some(adjust) = current.reply.adjust.as_mut()
            && is_other
        {
            adjust.linux.mut_or_insert_default().resources.mut_or_insert_default().cpu =
                MessageField::some(wire::LinuxCPU { cpus: "0".to_owned(), ..Default::default() });
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
        let decoded = self.runtime.exchange.decode("ValidateContainerAdjustment", &bytes);
        let Ok(Decoded::Call(call, _)) = decoded else {
            return self.fail(format!("a validation was not understood: {decoded:?}"));
        };
        match asked(call) {
            Asked::Validate(container, cpus) => {
                self.after(TIMEOUT, move |world| world.runtime_gives_up(id));
                self.input(Input::Validate(id, container, cpus));
            }
            other => self.fail(format!("a validation was not understood: {other:?}")),
        }
    }

    /// The plugin has approved of a container, or not.
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

    /// Updates are allowed their time.
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
        // The container of the request comes after all others.
        if let What::Update { serial, .. } | What::Name { serial, .. } = current.what
            && current.updates.front().is_some_and(|u| u.container_id == pods::id(serial))
        {
            current.updates.rotate_left(1);
        }
        let Some(update) = current.updates.pop_front() else { return self.finish() };
        let took = self.apply_update(&update);
        self.after(took, move |world| world.apply_next(number));
    }

    /// The runtime fails before it comes to an update that the plugin has asked for.
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
        let fails = self.settings.trouble == Trouble::All && self.dice.percent(2);
        let is_crio = self.settings.is_crio();
        let Some(container) = self.containers.get_mut(&serial) else { return quick };
        if matches!(container.state, State::Exited | State::Unknown | State::Creating) {
            return quick;
        }
        let reaches = container.state == State::Running || is_crio;
        let cpu = &update.linux.resources.cpu;
        // Also of an update that fails: the plugin repairs it by itself.
        (container.exclusive, container.mixed) = (None, false);
        if cpu.quota.value == -1 {
            container.given(&cpu.cpus, self.pods[&container.pod].wishes(container.slot, MIXED));
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
        let (cpus, mems, quota) = (container.cpus.clone(), container.mems.clone(), container.quota);
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

    /// The current event is over; what the runtime does then.
    fn finish(&mut self) {
        let Some(Current { what, reply, .. }) = self.runtime.current.take() else { return };
        let pause = self.dice.micros(50, 1000);
        match what {
            What::Pod(Event::RUN_POD_SANDBOX, pod) => self.sandbox_runs(pod),
            What::Pod(Event::STOP_POD_SANDBOX, pod) => self.sandbox_stopped(pod),
            What::Pod(Event::REMOVE_POD_SANDBOX, pod) => self.forget_pod(pod),
            What::Container(Event::CREATE_CONTAINER, serial) => self.created(serial, reply),
            What::Update { serial, milli, before, tries } => {
                let is_done = reply.refused.is_none();
                self.resized(serial, milli, before, tries, reply);
                if is_done {
                    self.runtime
                        .queue
                        .push_back(What::Container(Event::POST_UPDATE_CONTAINER, serial));
                }
            }
            What::Container(Event::STOP_CONTAINER, serial) => self.stopped(serial),
            What::Container(Event::REMOVE_CONTAINER, serial) => {
                self.containers.retain(|one, c| *one != serial || c.state != State::Exited);
            }
            What::Name { serial, cpus } => self.named(serial, cpus, &reply),
            What::Unsolicited(_) => self.updated(reply.refused.is_none()),
            What::Synchronize => self.notice_found(),
            What::Pod(..) | What::Container(..) | What::Again(..) => {}
        }
        self.after(pause, |world| world.next_call());
    }

    /// The runtime sets what the kubelet named, unless a plugin has changed that.
    fn named(&mut self, serial: Serial, cpus: String, reply: &Reply) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        if reply.own || reply.refused.is_some() || container.state != State::Running {
            return;
        }
        container.cpus.clone_from(&cpus);
        container.is_named = true;
        if self.cpu_manager.is_static() {
            (container.exclusive, container.mixed) = (None, false);
        }
        let dir = self.dir(&self.containers[&serial]);
        let _ = self.write(&dir, "cpuset.cpus", &cpus);
    }

    /// containerd writes down the end after its report.
    fn stopped(&mut self, serial: Serial) {
        let longest = if self.dice.percent(25) { 2500 } else { 5 };
        let until = self.now + self.dice.millis(0, longest);
        if let Some(container) = self.containers.get_mut(&serial) {
            container.listed_until = until;
        }
    }

    /// The plugin's connection is over, whoever ended it; the event goes on without it.
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
        self.runtime.queue.retain(|what| !matches!(what, What::Synchronize | What::Unsolicited(_)));
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

    /// The plugin dials, registers and is configured; then comes the list.
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
        self.runtime.exchange = Exchange::new(READS);
        self.runtime.events = events(Subscriptions::default()).common(capabilities.events);
        self.runtime.queue.push_front(What::Synchronize);
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
        self.call_in(Duration::from_millis(1), What::Unsolicited(updates));
    }

    /// containerd or CRI-O is killed, and comes back. What was under way is lost.
    pub fn restart_runtime(&mut self, away: Duration) {
        if self.runtime.down {
            return;
        }
        self.say("runtime is killed");
        // With updates that it has not made.
        self.oracle.is_disturbed = true;
        self.disconnect();
        self.runtime.down = true;
        let current = self.runtime.current.take();
        let queue = std::mem::take(&mut self.runtime.queue);
        for what in current.map(|current| current.what).into_iter().chain(queue) {
            self.lose(what);
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
            // The end of its removal is lost.
            container.stop_reported &= !container.never_ran;
        }
        if self.settings.is_crio() {
            for container in self.containers.values_mut() {
                (container.cpus, container.quota) = container.created_with.clone();
            }
        }
        self.after(away, |world| world.runtime_back());
    }

    /// The runtime has ended with this under way.
    fn lose(&mut self, what: What) {
        match what {
            What::Pod(Event::RUN_POD_SANDBOX, pod) => self.lose_sandbox(pod),
            What::Pod(Event::STOP_POD_SANDBOX, pod) => self.sandbox_stopped(pod),
            What::Pod(Event::REMOVE_POD_SANDBOX, pod) => self.forget_pod(pod),
            What::Container(Event::CREATE_CONTAINER, serial) => self.lose_container(serial),
            What::Update { serial, milli, before, .. } => {
                let reply = Reply { refused: Some("runtime gone".to_owned()), ..Reply::default() };
                self.resized(serial, milli, before, 1, reply);
            }
            // Reported again, at the latest before its removal.
            What::Container(Event::STOP_CONTAINER, serial) => {
                if let Some(container) = self.containers.get_mut(&serial) {
                    container.stop_reported = false;
                }
            }
            // Of a container that has ended, the kubelet asks again.
            What::Container(Event::REMOVE_CONTAINER, serial) => {
                self.after(Duration::from_secs(2), move |world| world.collect(serial));
            }
            _ => {}
        }
    }

    /// The kubelet makes another sandbox.
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

    /// A container that was starting runs, is dead and listed as created, or lost.
    fn interrupt_start(&mut self, serial: Serial) {
        let text = self.describe(serial);
        let choice = self.dice.below(3);
        let is_crio = self.settings.is_crio();
        let container = self.container(serial);
        match choice {
            // It has just begun to run.
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

    /// Another program of the node changes cgroups: allowed for so long if the plugin is there, and
    /// until it is back otherwise.
    pub fn disturbed(&mut self, what: &'static str, dir: &str, bound: Duration) {
        debug_assert!(!dir.starts_with(CGROUPS));
        let until = self.now + bound;
        self.oracle.changed = true;
        self.oracle.is_disturbed = true;
        self.oracle.allow(what, dir, until);
        self.note_unwatched(dir);
    }

    /// A process came, which the plugin may not know.
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
        // The field with the updates is the same in all others.
        AnswerKind::Synchronize | AnswerKind::Update | AnswerKind::Stop => {
            (None, wire::UpdateContainerResponse::parse_from_bytes(bytes).ok()?.update)
        }
        AnswerKind::Validate | AnswerKind::Empty => (None, Vec::new()),
    })
}
