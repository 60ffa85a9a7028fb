//! Recordings of real runtimes under real kubelets, replayed to the plugin as it ships, with its
//! ledger.
//!
//! A recording has every call with its time, but only the fields that the edge reads, with
//! shortened ids. Each has a story next to it, which was reviewed by hand: a line for the ledger's
//! event of a call, and after an arrow the plugin's answer, unless that is empty; `asks for` is an
//! update that the plugin requests without a call.
//!
//! The recorder was a plugin that subscribed to every event except validations and changed nothing,
//! on a node whose kubelet had no CPU manager. The plugin itself subscribes to less, and a runtime
//! makes no other calls: these are `unsent` in the story. One is `StartContainer`, which is needed
//! only if the kernel enforces exclusivity. Validations (strict mode) were not recorded, so the
//! replay fails if the plugin subscribes to them. The plugin changes containers, and the runtime's
//! later calls carry the changes: the replay puts them into the recorded calls.

mod answer;
mod event;
mod recorded;
mod seeds;

use crate::node::{Node, RuntimeContainer};
use crate::runtime::Generation;
use answer::{Answer, bit, left_out};
use machines::synthetic::Machine;
use nri::wire::{self, Event as Kind};
use protobuf::Message as _;
use recorded::Recorded;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// A recording and its story.
struct Capture {
    name: &'static str,
    /// The generation of the protocol that it came from.
    generation: Generation,
    recording: &'static str,
    story: &'static str,
}

const CONTAINERD_2_1: Capture = Capture {
    name: "containerd-2.1",
    generation: Generation::V0_8,
    recording: include_str!("captures/containerd-2.1.jsonl"),
    story: include_str!("captures/containerd-2.1.txt"),
};

/// NRI 0.11, whose protocol is that of 0.10.
const CRIO_1_36: Capture = Capture {
    name: "crio-1.36",
    generation: Generation::V0_10,
    recording: include_str!("captures/crio-1.36.jsonl"),
    story: include_str!("captures/crio-1.36.txt"),
};

/// Has in-place resizes of a Guaranteed and a Burstable pod, and a container that crashes
/// repeatedly.
const CONTAINERD_2_4: Capture = Capture {
    name: "containerd-2.4",
    generation: Generation::V0_12,
    recording: include_str!("captures/containerd-2.4.jsonl"),
    story: include_str!("captures/containerd-2.4.txt"),
};

/// Written by hand in the format of the recordings: no runtime was recorded under a kubelet with a
/// system partition. The names of its pods' cgroups are from the proposal, KEP-5894.
fn system_partition(recording: &'static str) -> Capture {
    let story = include_str!("captures/system.txt");
    Capture { name: "system", generation: Generation::V0_12, recording, story }
}

/// The resized pod was recorded with the pod option for one uncore cache.
const CONFIG: &str = "cpuManagerPolicy: static
reservedSystemCPUs: \"0-1\"
kubeletStateDir: \"\"
namespaces:
- names: [default]
  allow: {uncore: [require]}
";

/// A machine of the recordings' size: 16 CPUs of two NUMA nodes, 0-7 and 8-15; cores of two
/// threads, 0+1 2+3. It has one uncore cache, so that the resized container can grow within it, as
/// it did when it was recorded.
fn machine() -> Machine {
    Machine { nodes: 2, cores: 8, threads: 2, ..Machine::default() }
}

#[tokio::test(start_paused = true)]
async fn a_recording_of_containerd_2_1_gets_the_reviewed_answers() {
    check(CONTAINERD_2_1).await;
}

#[tokio::test(start_paused = true)]
async fn a_recording_of_crio_1_36_gets_the_reviewed_answers() {
    check(CRIO_1_36).await;
}

#[tokio::test(start_paused = true)]
async fn a_recording_of_containerd_2_4_gets_the_reviewed_answers() {
    check(CONTAINERD_2_4).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_the_system_partition_keep_to_the_reserved_cpus() {
    check(system_partition(include_str!("captures/system-cgroupfs.jsonl"))).await;
    check(system_partition(include_str!("captures/system-systemd.jsonl"))).await;
}

async fn check(capture: Capture) {
    let mut replay = Replay {
        node: Node::connected(capture.generation, CONFIG, &machine()),
        events: 0,
        story: String::new(),
    };
    replay.node.runtime.registration().await;
    let start = Instant::now();
    for recorded in Recorded::all(capture.recording) {
        assert!(start + recorded.at() >= Instant::now(), "calls out of order");
        sleep_until(start + recorded.at()).await;
        replay.play(&recorded).await;
    }
    let story = replay.end().await;
    let expected: String =
        capture.story.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    assert!(story == expected, "expected:\n{expected}\nplayed:\n{story}");
}

struct Replay {
    node: Node,
    /// The plugin's event mask.
    events: i32,
    story: String,
}

impl Replay {
    async fn play(&mut self, recorded: &Recorded) {
        let generation = self.node.runtime.generation;
        let kind = recorded.kind();
        let subject = recorded.container().map_or_else(|| recorded.pod().id, |of| of.id);
        if let Some(kind) = kind {
            assert_ne!(generation.known_events() & bit(kind), 0, "{kind:?} is of a later NRI");
            if self.events & bit(kind) == 0 {
                return self.write(&format!("unsent  {} {subject}", recorded.name()));
            }
        }
        let mut container = recorded.container().map(|wire| RuntimeContainer {
            pod: recorded.pod(),
            wire,
            exclusive: false,
            alive: true,
        });
        let known = self.node.containers.get(&subject).filter(|known| !known.cpus().is_empty());
        if let Some((container, known)) = container.as_mut().zip(known) {
            container.set(&known.wire.linux.resources);
            container.alive = known.alive && kind != Some(Kind::STOP_CONTAINER);
        }
        let wire = container.as_ref().map(|container| container.wire.clone());
        let (method, payload) = recorded.call(generation, wire);
        let stream = self.node.runtime.send(method, &payload).await;
        let answer = self.node.runtime.reply(stream).await;
        if method == "Configure" {
            let answer = wire::ConfigureResponse::parse_from_bytes(&answer.unwrap()).unwrap();
            return self.configured(recorded, answer.events);
        }
        match &*self.node.take_events() {
            [event] => self.write(&event::describe(event)),
            [] => self.write(&format!("ignored {} {subject}", recorded.name())),
            events => panic!("a call became several events: {events:?}"),
        }
        match answer {
            Ok(payload) => self.carry_out(kind, container, Answer::read(kind, &payload)).await,
            Err(status) => self.write(&format!("    -> {:?} {}", status.code, status.message)),
        }
    }

    fn configured(&mut self, recorded: &Recorded, events: i32) {
        let known = self.node.runtime.generation.known_events();
        assert_eq!(events & !known, 0, "bits that this NRI does not know");
        assert_eq!(events & bit(Kind::VALIDATE_CONTAINER_ADJUSTMENT), 0, "none was recorded");
        self.events = events;
        self.write(recorded.name());
        self.write(&format!("    -> all events but {}", left_out(known, events)));
    }

    /// Does what the runtime does after a call and its answer.
    async fn carry_out(
        &mut self,
        kind: Option<Kind>,
        container: Option<RuntimeContainer>,
        answer: Answer,
    ) {
        let text = answer.to_string();
        if !text.is_empty() {
            self.write(&format!("    -> {text}"));
        }
        if let Some(mut container) = container {
            let id = container.wire.id.clone();
            if let Some(adjust) = answer.adjust.as_ref() {
                container.set(&adjust.linux.resources);
                let own = answer.updates.iter().any(|update| update.container_id == id);
                assert!(!own, "a creation fails with an update of the new container");
            }
            if kind == Some(Kind::REMOVE_CONTAINER) {
                self.node.containers.remove(&id);
            } else {
                self.node.containers.insert(id, container);
            }
        }
        self.node.apply(answer.updates);
        for update in self.node.apply_unsolicited().await {
            self.write(&format!("    asks for {update}"));
        }
        self.node.check();
    }

    fn write(&mut self, line: &str) {
        self.story += line;
        self.story += "\n";
    }

    /// The story, with the claims that are left.
    async fn end(mut self) -> String {
        // By then, writes that no answer waits for are on disk.
        let silence = timeout(Duration::from_secs(60), self.node.runtime.message()).await;
        let unsolicited = &self.node.runtime.unsolicited;
        assert!(silence.is_err() && unsolicited.is_empty(), "a change without an event");
        for claim in self.node.on_disk() {
            let line = format!(
                "claim   {}/{}: {} {}",
                claim.namespace, claim.pod, claim.container, claim.cpus
            );
            self.write(&line);
        }
        self.story
    }
}
