//! What real runtimes sent under real kubelets, played again to the plugin as it ships, with its
//! ledger.
//!
//! The recordings hold every call, at its time, but only what the edge reads of it, with ids cut
//! short. Beside each is its story, read through by hand: a line for what the ledger hears of a
//! call, and behind an arrow what the plugin answers, where that is more than that the call was
//! heard; `asks for` is what it asks the runtime for by itself.
//!
//! They were made by a plugin that wanted every event but validations and changed nothing, beside a
//! kubelet without a CPU manager. Ours wants less, and a runtime makes no call that was not asked
//! for: `unsent` in the story. That is `StartContainer`, of use only where the kernel keeps
//! exclusivity. What it wants beyond the recorder, validations in strict mode, would be missing
//! here: the replay fails should it ask for them. And as it does change containers, the runtime's
//! later calls carry what was set, which is put into what was recorded.

mod answer;
mod event;
mod recorded;
mod seeds;

use crate::node::{Container, Node};
use crate::runtime::Generation;
use answer::{Answer, bit, left_out};
use nri::wire::{self, Event as Kind};
use protobuf::Message as _;
use recorded::Recorded;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use topology::synthetic::Machine;

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

/// NRI 0.11, which speaks to plugins as 0.10 does.
const CRIO_1_36: Capture = Capture {
    name: "crio-1.36",
    generation: Generation::V0_10,
    recording: include_str!("captures/crio-1.36.jsonl"),
    story: include_str!("captures/crio-1.36.txt"),
};

/// With resizes of a Guaranteed and a Burstable pod in place, and a container that crashes again
/// and again.
const CONTAINERD_2_4: Capture = Capture {
    name: "containerd-2.4",
    generation: Generation::V0_12,
    recording: include_str!("captures/containerd-2.4.jsonl"),
    story: include_str!("captures/containerd-2.4.txt"),
};

/// Written by hand in the form of the recordings, as no runtime was recorded under a kubelet with a
/// system partition (KEP-5894): what its pods' cgroups are called is the proposal's.
fn system_partition(recording: &'static str) -> Capture {
    let story = include_str!("captures/system.txt");
    Capture { name: "system", generation: Generation::V0_12, recording, story }
}

/// The pod that is resized was recorded with the wish for one uncore cache.
const CONFIG: &str = "cpuManagerPolicy: static
reservedSystemCPUs: \"0-1\"
kubeletStateDir: \"\"
namespaces:
- names: [default]
  allow: {uncore: [require]}
";

/// As large as the machine of the recordings: 16 CPUs of two NUMA nodes, 0-7 and 8-15; cores of two
/// threads, 0+1 2+3. All in one uncore cache, so that the resized container finds room in its own,
/// as it did when it was recorded.
fn machine() -> Machine {
    Machine { nodes: 2, cores: 8, threads: 2, ..Machine::default() }
}

#[tokio::test(start_paused = true)]
async fn containerd_2_1() {
    check(CONTAINERD_2_1).await;
}

#[tokio::test(start_paused = true)]
async fn crio_1_36() {
    check(CRIO_1_36).await;
}

#[tokio::test(start_paused = true)]
async fn containerd_2_4() {
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
        let (generation, kind) = (self.node.runtime.generation, recorded.kind());
        let subject = recorded.container().map_or_else(|| recorded.pod().id, |of| of.id);
        if let Some(kind) = kind {
            assert_ne!(generation.known_events() & bit(kind), 0, "{kind:?} is of a later NRI");
            if self.events & bit(kind) == 0 {
                return self.tell(&format!("unsent  {} {subject}", recorded.name()));
            }
        }
        let mut container = recorded.container().map(|wire| Container {
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
        match &*self.node.heard() {
            [event] => self.tell(&event::told(event)),
            [] => self.tell(&format!("unheard {} {subject}", recorded.name())),
            events => panic!("a call became several events: {events:?}"),
        }
        match answer {
            Ok(payload) => self.obey(kind, container, Answer::read(kind, &payload)).await,
            Err(status) => self.tell(&format!("    -> {:?} {}", status.code, status.message)),
        }
    }

    fn configured(&mut self, recorded: &Recorded, events: i32) {
        let known = self.node.runtime.generation.known_events();
        assert_eq!(events & !known, 0, "bits that this NRI does not know");
        assert_eq!(events & bit(Kind::VALIDATE_CONTAINER_ADJUSTMENT), 0, "none was recorded");
        self.events = events;
        self.tell(recorded.name());
        self.tell(&format!("    -> all events but {}", left_out(known, events)));
    }

    /// Does what the runtime would do about a call and its answer.
    async fn obey(&mut self, kind: Option<Kind>, container: Option<Container>, answer: Answer) {
        let said = answer.to_string();
        if !said.is_empty() {
            self.tell(&format!("    -> {said}"));
        }
        if let Some(mut container) = container {
            let id = container.wire.id.clone();
            if let Some(adjust) = answer.adjust.as_ref() {
                container.set(&adjust.linux.resources);
                let own = answer.updates.iter().any(|update| update.container_id == id);
                assert!(!own, "no creation survives an update of the new container");
            }
            if kind == Some(Kind::REMOVE_CONTAINER) {
                self.node.containers.remove(&id);
            } else {
                self.node.containers.insert(id, container);
            }
        }
        self.node.apply(answer.updates);
        for asked in self.node.obey_unasked().await {
            self.tell(&format!("    asks for {asked}"));
        }
        self.node.check();
    }

    fn tell(&mut self, line: &str) {
        self.story += line;
        self.story += "\n";
    }

    /// The story, with what is kept after it.
    async fn end(mut self) -> String {
        // Writes that no answer waits for are on disk then.
        let silence = timeout(Duration::from_secs(60), self.node.runtime.message()).await;
        let unsolicited = &self.node.runtime.unsolicited;
        assert!(silence.is_err() && unsolicited.is_empty(), "a change without an event");
        for claim in self.node.on_disk() {
            let line = format!(
                "kept    {}/{}: {} {}",
                claim.namespace, claim.pod, claim.container, claim.cpus
            );
            self.tell(&line);
        }
        self.story
    }
}
