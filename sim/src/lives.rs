//! [`Lives`]: what a recording shows of pods, containers and cgroups, in a form in which a real runtime and
//! the model can be compared.
//!
//! A life is the sequence of the events that the plugin hears of one container and its pod, or of one pod;
//! `listed` and `missing` are lists after a new connection, and repetitions are one event. A connection may
//! end anywhere in a life, so there are more lives than can be played: one is accepted if the model's lives
//! have all its parts of `MEMORY` events. What else is compared: what each call says of its pod and of its
//! container, which call may come directly after which, and how a cgroup changes from one look to the next.

use std::collections::{BTreeMap, BTreeSet};

/// The plugin does not ask for these.
const UNHEARD: [&str; 3] = ["StartContainer", "PostUpdatePodSandbox", "Configure"];

/// An event may depend on so many events before it, less one.
const MEMORY: usize = 3;

#[derive(Debug, Clone, Default)]
pub struct Lives {
    /// Of containers and pods.
    pub words: BTreeSet<Vec<String>>,
    /// Of words, which begin with an empty event here.
    parts: BTreeSet<Vec<String>>,
    /// Events with what they say.
    pub letters: BTreeSet<String>,
    /// Two calls, and what they have in common; two states of a cgroup.
    pub pairs: BTreeSet<String>,
}

/// A line of a recording.
#[derive(Default)]
struct Line<'a> {
    event: &'a str,
    /// What it says of pods and containers, one by one and without their ids.
    letters: Vec<String>,
    pods: Vec<&'a str>,
    /// With their sandboxes.
    containers: Vec<(&'a str, &'a str)>,
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
            let letter = match id.chars().next() {
                Some('s') => {
                    let said = words.collect::<Vec<_>>().join(" ");
                    read.is_stub |= said.is_empty();
                    read.pods.push(id);
                    format!("{} pod {said}", read.event)
                }
                Some('c') => {
                    read.containers.push((id, words.next().unwrap_or_default()));
                    // The pod says its class.
                    let said = words.collect::<Vec<_>>().join(" ").replace("/burstable", "");
                    let said = said.replace("/besteffort", "").replace("-burstable", "");
                    format!("{} container {}", read.event, said.replace("-besteffort", ""))
                }
                Some('g') => {
                    read.group = Some(id);
                    let said: Vec<&str> = words.collect();
                    // The model's plugin is in a pod, the lab's is not.
                    let known = if said[0] == "root" { 2 } else { said.len() };
                    said[..known.min(said.len())].join(" ")
                }
                _ => format!("{} {item}", read.event),
            };
            read.letters.push(letter);
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
        let Reader { mut lives, words, .. } = reader;
        lives.words = words.into_values().filter(|word| word.len() > 1).collect();
        let parts = lives.words.iter().flat_map(|word| parts(word));
        lives.parts = parts.collect();
        lives
    }

    pub fn extend(&mut self, more: Lives) {
        self.words.extend(more.words);
        self.parts.extend(more.parts);
        self.letters.extend(more.letters);
        self.pairs.extend(more.pairs);
    }

    /// What a recording has and the model does not, whose lives these are. A recording may end before a life
    /// does.
    pub fn refuse(&self, recorded: &Lives) -> Vec<String> {
        let calls = recorded.letters.difference(&self.letters);
        let mut refused: Vec<String> = calls.map(|call| format!("call: {call}")).collect();
        let pairs = recorded.pairs.difference(&self.pairs);
        refused.extend(pairs.filter(|pair| !self.has_between(pair)).cloned());
        for word in &recorded.words {
            if let Some(known) = parts(word).iter().position(|part| !self.parts.contains(part)) {
                let (known, unknown) = word.split_at(known);
                refused.push(format!("life: {} | {}", known.join(" "), unknown.join(" ")));
            }
        }
        refused
    }

    /// Whether a cgroup gets from one state to the other in two steps: a look may come too late for one.
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

/// Each event of a word with those before it.
fn parts(word: &[String]) -> Vec<Vec<String>> {
    let marked = [&[String::new()], word].concat();
    let part = |end: usize| marked[(end + 1).saturating_sub(MEMORY)..=end].to_vec();
    (1..marked.len()).map(part).collect()
}

#[derive(Default)]
struct Reader<'a> {
    lives: Lives,
    words: BTreeMap<&'a str, Vec<String>>,
    /// The sandbox of each container.
    sandboxes: BTreeMap<&'a str, &'a str>,
    last: Option<Line<'a>>,
    groups: BTreeMap<&'a str, String>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, line: &'a str) {
        let line = Line::read(line);
        if UNHEARD.contains(&line.event) {
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
        let (Some(id), [now]) = (line.group, &line.letters[..]) else { return };
        let before = self.groups.insert(id, now.clone()).unwrap_or_else(|| "new".to_owned());
        if before != *now {
            self.lives.pairs.insert(format!("cgroup: {before}, then {now}"));
        }
    }

    fn list(&mut self, line: &Line<'a>) {
        self.lives.letters.extend(line.letters.iter().cloned());
        for (container, sandbox) in &line.containers {
            self.sandboxes.insert(container, sandbox);
        }
        let listed: BTreeSet<&str> =
            line.pods.iter().copied().chain(line.containers.iter().map(|(id, _)| *id)).collect();
        let begun: Vec<&str> = self.words.keys().copied().collect();
        for id in begun {
            self.add(id, if listed.contains(id) { "listed" } else { "missing" });
        }
        for id in listed {
            self.words.entry(id).or_insert_with(|| vec!["listed".to_owned()]);
        }
    }

    fn call(&mut self, line: Line<'a>) {
        self.lives.letters.extend(line.letters.iter().cloned());
        // Those of other pods come at any time.
        if let Some(last) = &self.last
            && last.pods == line.pods
        {
            let is_one = !line.containers.is_empty() && last.containers == line.containers;
            let of = if is_one { "container" } else { "pod" };
            self.lives.pairs.insert(format!("of a {of}: {}, then {}", last.event, line.event));
        }
        let name = if line.is_stub { format!("{}(id)", line.event) } else { line.event.to_owned() };
        if let [(container, sandbox)] = line.containers[..] {
            if !self.words.contains_key(container) {
                // It begins with its pod.
                let pod = self.words.get(sandbox).cloned().unwrap_or_default();
                let pod = pod.into_iter().filter(|event| event.ends_with("PodSandbox"));
                self.words.insert(container, pod.collect());
                self.sandboxes.insert(container, sandbox);
            }
            self.add(container, &name);
        } else if let [pod] = line.pods[..] {
            self.add(pod, &name);
            let containers: Vec<&str> =
                self.sandboxes.iter().filter(|(_, of)| **of == pod).map(|(id, _)| *id).collect();
            for container in containers.into_iter().filter(|_| line.event != "UpdatePodSandbox") {
                self.add(container, &name);
            }
        }
        self.last = Some(line);
    }

    fn add(&mut self, id: &'a str, event: &str) {
        let word = self.words.entry(id).or_default();
        // Of what has been removed, lists show nothing more.
        let is_over = event == "missing"
            && word.iter().any(|event| event == "RemoveContainer" || event == "RemovePodSandbox");
        if !is_over && word.last().is_none_or(|last| last != event) {
            word.push(event.to_owned());
        }
    }
}
