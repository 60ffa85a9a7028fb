//! [`Lives`]: the pods, containers and cgroups in a recording, in a form in which a real runtime and the
//! model can be compared.
//!
//! A life is the sequence of events that the plugin gets about one container and its pod, or about one pod.
//! `listed` and `missing` stand for lists after a new connection, and repetitions are one event. A
//! connection may end anywhere in a life, so there are more lives than can be played: a recorded life is
//! accepted if the model's lives have each of its parts of `MEMORY` events. Also compared: how each call
//! describes its pod and container, which call follows directly on which, and how a cgroup changes from
//! one record to the next.

use std::collections::{BTreeMap, BTreeSet};

/// The plugin does not subscribe to these.
const NOT_SUBSCRIBED: [&str; 3] = ["StartContainer", "PostUpdatePodSandbox", "Configure"];

/// An event is compared together with the `MEMORY - 1` events before it.
const MEMORY: usize = 3;

#[derive(Debug, Clone, Default)]
pub struct Lives {
    /// The lives of containers and pods.
    pub sequences: BTreeSet<Vec<String>>,
    /// Parts of `sequences`, each of which begins with an empty event here.
    parts: BTreeSet<Vec<String>>,
    /// How events describe pods and containers.
    pub descriptions: BTreeSet<String>,
    /// Two calls about the same container or pod, or two states of a cgroup, that follow each other.
    pub pairs: BTreeSet<String>,
}

/// A line of a recording.
#[derive(Default)]
struct Line<'a> {
    event: &'a str,
    /// Descriptions of pods and containers, without their ids.
    descriptions: Vec<String>,
    pods: Vec<&'a str>,
    /// Containers and their sandboxes.
    containers: Vec<(&'a str, &'a str)>,
    /// Whether the pod has only its id.
    is_stub: bool,
    group: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Line<'a> {
        let mut items = line.split("; ");
        let mut read = Line { event: items.next().unwrap_or(line), ..Line::default() };
        for item in items {
            let mut words = item.split(' ');
            let id = words.next().unwrap_or(item);
            let description = match id.chars().next() {
                Some('s') => {
                    let text = words.collect::<Vec<_>>().join(" ");
                    read.is_stub |= text.is_empty();
                    read.pods.push(id);
                    format!("{} pod {text}", read.event)
                }
                Some('c') => {
                    read.containers.push((id, words.next().unwrap_or_default()));
                    // The class is in the description of the pod.
                    let text = words.collect::<Vec<_>>().join(" ").replace("/burstable", "");
                    let text = text.replace("/besteffort", "").replace("-burstable", "");
                    format!("{} container {}", read.event, text.replace("-besteffort", ""))
                }
                Some('g') => {
                    read.group = Some(id);
                    let words: Vec<&str> = words.collect();
                    // The model's plugin is in a pod, the lab's is not: so the root is populated at
                    // different times.
                    let known = if words[0] == "root" { 2 } else { words.len() };
                    words[..known.min(words.len())].join(" ")
                }
                _ => format!("{} {item}", read.event),
            };
            read.descriptions.push(description);
        }
        read
    }
}

impl Lives {
    pub fn of<'a>(recording: impl IntoIterator<Item = &'a str>) -> Lives {
        let mut reader = Reader::default();
        for line in recording {
            reader.read(line);
        }
        let Reader { mut lives, sequences, .. } = reader;
        lives.sequences = sequences.into_values().filter(|life| life.len() > 1).collect();
        let parts = lives.sequences.iter().flat_map(|life| parts(life));
        lives.parts = parts.collect();
        lives
    }

    pub fn extend(&mut self, more: Lives) {
        self.sequences.extend(more.sequences);
        self.parts.extend(more.parts);
        self.descriptions.extend(more.descriptions);
        self.pairs.extend(more.pairs);
    }

    /// What a recording has, and these lives of the model do not. A recorded life may be incomplete.
    pub fn refuse(&self, recorded: &Lives) -> Vec<String> {
        let calls = recorded.descriptions.difference(&self.descriptions);
        let mut refused: Vec<String> = calls.map(|call| format!("call: {call}")).collect();
        let pairs = recorded.pairs.difference(&self.pairs);
        refused.extend(pairs.filter(|pair| !self.has_between(pair)).cloned());
        for life in &recorded.sequences {
            if let Some(known) = parts(life).iter().position(|part| !self.parts.contains(part)) {
                let (known, unknown) = life.split_at(known);
                refused.push(format!("life: {} | {}", known.join(" "), unknown.join(" ")));
            }
        }
        refused
    }

    /// Whether a cgroup gets from one state to the other in two steps: a recording may miss the state
    /// between.
    fn has_between(&self, pair: &str) -> bool {
        let Some((from, to)) = pair.split_once(", then ") else { return false };
        let is_group = from.starts_with("cgroup: ");
        let firsts = self.pairs.iter().filter_map(|first| first.split_once(", then "));
        is_group
            && firsts
                .filter(|(start, _)| *start == from)
                .any(|(_, between)| self.pairs.contains(&format!("cgroup: {between}, then {to}")))
    }
}

/// Each event of a life with those before it.
fn parts(life: &[String]) -> Vec<Vec<String>> {
    let marked = [&[String::new()], life].concat();
    let part = |end: usize| marked[(end + 1).saturating_sub(MEMORY)..=end].to_vec();
    (1..marked.len()).map(part).collect()
}

#[derive(Default)]
struct Reader<'a> {
    lives: Lives,
    sequences: BTreeMap<&'a str, Vec<String>>,
    /// The sandbox of each container.
    sandboxes: BTreeMap<&'a str, &'a str>,
    last: Option<Line<'a>>,
    groups: BTreeMap<&'a str, String>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, line: &'a str) {
        let line = Line::read(line);
        if NOT_SUBSCRIBED.contains(&line.event) {
            return;
        }
        match line.event {
            "Connected" | "Disconnected" => self.last = None,
            "Cgroup" => self.cgroup(&line),
            "Synchronize" => self.list(&line),
            "Refused" => {
                for (container, _) in &line.containers {
                    self.add(container, line.event);
                }
            }
            _ => self.call(line),
        }
    }

    fn cgroup(&mut self, line: &Line<'a>) {
        let (Some(id), [now]) = (line.group, &line.descriptions[..]) else { return };
        let before = self.groups.insert(id, now.clone()).unwrap_or_else(|| "new".to_owned());
        if before != *now {
            self.lives.pairs.insert(format!("cgroup: {before}, then {now}"));
        }
    }

    fn list(&mut self, line: &Line<'a>) {
        self.lives.descriptions.extend(line.descriptions.iter().cloned());
        for (container, sandbox) in &line.containers {
            self.sandboxes.insert(container, sandbox);
        }
        let listed: BTreeSet<&str> =
            line.pods.iter().copied().chain(line.containers.iter().map(|(id, _)| *id)).collect();
        let begun: Vec<&str> = self.sequences.keys().copied().collect();
        for id in begun {
            self.add(id, if listed.contains(id) { "listed" } else { "missing" });
        }
        for id in listed {
            self.sequences.entry(id).or_insert_with(|| vec!["listed".to_owned()]);
        }
    }

    fn call(&mut self, line: Line<'a>) {
        self.lives.descriptions.extend(line.descriptions.iter().cloned());
        // Calls about other pods may come at any time.
        if let Some(last) = &self.last
            && last.pods == line.pods
        {
            let is_one = !line.containers.is_empty() && last.containers == line.containers;
            let of = if is_one { "container" } else { "pod" };
            self.lives.pairs.insert(format!("of a {of}: {}, then {}", last.event, line.event));
        }
        let name = if line.is_stub { format!("{}(id)", line.event) } else { line.event.to_owned() };
        if let [(container, sandbox)] = line.containers[..] {
            if !self.sequences.contains_key(container) {
                // Its life begins with the events of its pod.
                let pod = self.sequences.get(sandbox).cloned().unwrap_or_default();
                let pod = pod.into_iter().filter(|event| event.ends_with("PodSandbox"));
                self.sequences.insert(container, pod.collect());
                self.sandboxes.insert(container, sandbox);
            }
            self.add(container, &name);
        } else if let [pod] = line.pods[..] {
            self.add(pod, &name);
            let containers: Vec<&str> =
                self.sandboxes.iter().filter(|(_, of)| **of == pod).map(|(id, _)| *id).collect();
            if line.event != "UpdatePodSandbox" {
                for container in containers {
                    self.add(container, &name);
                }
            }
        }
        self.last = Some(line);
    }

    fn add(&mut self, id: &'a str, event: &str) {
        let life = self.sequences.entry(id).or_default();
        // After its removal every list lacks it.
        let is_over = event == "missing"
            && life.iter().any(|event| event == "RemoveContainer" || event == "RemovePodSandbox");
        if !is_over && life.last().is_none_or(|last| last != event) {
            life.push(event.to_owned());
        }
    }
}
