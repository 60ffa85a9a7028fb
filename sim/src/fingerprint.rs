//! A fingerprint of the node's state, so that equal states are explored once.
//!
//! Two states are equal if processes and their CPUs, cgroups, files, waiting calls and the plugin's state
//! are equal. Ids and times differ in all states: an id is replaced by the order of its first appearance,
//! and a time by whether it is over, within a second, or later.

use crate::pods::{Container, Pod, Slot};
use crate::runtime::Task;
use crate::world::World;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

impl World {
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.state_text().hash(&mut hasher);
        hasher.finish()
    }

    fn state_text(&self) -> String {
        let mut text = Vec::new();
        for pod in self.pods.values() {
            let Pod { sandbox, busy, deleted, is_reported, resized, slots, .. } = pod;
            text.push(format!(
                "{} {} {sandbox:?} {busy} {deleted:?} {is_reported} {resized}",
                pod.uid(),
                pod.sandbox_id()
            ));
            for Slot { request, instance, done, not_before, .. } in slots {
                let instance = instance.map(crate::pods::id);
                let not_before = coarse(*not_before, self.now);
                text.push(format!("{request} {instance:?} {done} {not_before}"));
            }
        }
        let mut picture = self.picture();
        // Sorted without the container's id, which is the first word.
        picture.sort_by_cached_key(|line| line.split_once(' ').map(|(_, text)| text.to_owned()));
        text.extend(picture);
        let mut containers: Vec<_> = self.containers.values().collect();
        containers.retain(|container| !container.stop_reported);
        containers.sort_by_key(|container| container.pod);
        for container in containers {
            let name = crate::pods::id(container.serial);
            let pid = container.pid.map(|_| 0);
            let same = Container { serial: 0, pod: 0, pid, created_at: 0, ..container.clone() };
            text.push(format!("{name} {same:?}"));
        }
        let runtime = &self.runtime;
        text.push(format!("{} {} {}", runtime.down, runtime.connected, runtime.synchronized));
        text.extend(runtime.events_left().map(|what| match what {
            Task::Pod(event, pod) => format!("{event:?} u{pod}"),
            Task::Container(event, serial) => format!("{event:?} c{serial}"),
            Task::Update { serial, milli, .. } => format!("update c{serial} {milli}"),
            Task::ResizeMemory { serial, memory } => format!("memory c{serial} {memory:?}"),
            Task::Name { serial, cpus } => format!("name c{serial} {cpus}"),
            Task::Again(method, ..) => format!("{method} again"),
            Task::Synchronize => "list".to_owned(),
            Task::Unsolicited(updates) => format!("{updates:?}"),
        }));
        let plugin = &self.plugin;
        let disk = plugin.disk.map(|(_, until)| coarse(until, self.now));
        text.push(format!("{} {disk:?} {}", plugin.pending.len(), plugin.files()));
        text.push(format!("{:?}", self.kernel.lock().faults.below.keys()));
        if let Some(owner) = &plugin.running.owner {
            text.extend(without_times(&format!("{owner:#?}")));
        }
        renamed(&text.join("\n"))
    }
}

fn coarse(at: Duration, now: Duration) -> &'static str {
    if at <= now {
        "over"
    } else if at <= now + Duration::from_secs(1) {
        "soon"
    } else {
        "later"
    }
}

/// Whether a field of the plugin's state is the same in all states, follows from others, or only records
/// the past.
fn is_unimportant(name: &str) -> bool {
    matches!(
        name,
        "config"
            | "created_at"
            | "drifts"
            | "exposure"
            | "hotplug"
            | "ids"
            | "journal"
            | "kubelet"
            | "moves"
            | "node"
            | "now"
            | "record"
            | "repairs"
            | "sandboxes"
            | "started"
            | "verifier"
            | "view"
    )
}

fn is_counter(name: &str) -> bool {
    matches!(
        name,
        "begun"
            | "count"
            | "errors"
            | "id"
            | "lifted_again"
            | "refusals"
            | "times_late"
            | "written"
    )
}

/// The lines of a pretty [`Debug`](std::fmt::Debug) text that matter, without times.
fn without_times(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let now = text.split_once("\n    now: ").map_or("", |(_, now)| now);
    let mut fields = now.split(": ").skip(1);
    let now =
        Duration::from_secs(number(fields.next())) + Duration::from_nanos(number(fields.next()));
    let mut skipped = None;
    let mut seconds = Duration::ZERO;
    let mut sorts_from = None;
    for line in text.lines() {
        let word = line.trim_start();
        let indent = line.len() - word.len();
        if let Some(of) = skipped {
            if indent <= of {
                skipped = None;
            }
            continue;
        }
        let (name, value) = word.split_once(": ").unwrap_or(("", word));
        if indent == 4 && !name.is_empty() {
            if let Some(from) = sorts_from.take() {
                lines[from..].sort_unstable();
            }
            // These fields have hash maps, whose order is random.
            let is_unordered = matches!(name, "delivery" | "drift" | "orphans");
            sorts_from = if is_unordered { Some(lines.len()) } else { None };
        }
        let is_number = value.starts_with(|c: char| c.is_ascii_digit());
        if is_unimportant(name) {
            skipped = if value.ends_with(['{', '[', '(']) { Some(indent) } else { None };
        } else if name == "tv_sec" {
            seconds = Duration::from_secs(number(Some(value)));
        } else if name == "tv_nsec" {
            lines.push(coarse(seconds + Duration::from_nanos(number(Some(value))), now).to_owned());
        } else if !is_number || !(is_counter(name) || value.ends_with("s,")) {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The number at the start of a text.
fn number(text: Option<&str>) -> u64 {
    let text = text.unwrap_or_default();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or_default()
}

/// Replaces ids of pods, sandboxes and containers by numbers in the order of their first appearance.
fn renamed(text: &str) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut new = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let id = word.strip_prefix("pod").unwrap_or(word);
        let digits = id.trim_start_matches(['c', 's', 'u']);
        let is_id = digits.len() < word.len()
            && digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.chars().all(|c| c.is_ascii_digit() || c == 'x');
        if is_id {
            let next = numbers.len();
            let number = numbers.entry(id).or_insert(next);
            new.push_str(&format!("#{number}{}", &part[word.len()..]));
        } else {
            new.push_str(part);
        }
    }
    new
}
