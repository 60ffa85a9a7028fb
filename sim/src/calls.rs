//! [`Calls`]: a recording of NRI calls and cgroups, one line each, with the fields that the plugin reads.
//!
//! The lab records real runtimes with this code, and the simulation records the model. `lives` compares
//! both. Ids are numbers in the order of appearance; uids and ids in paths are `UID` and `ID`.
//!
//! ```text
//! Connected
//! Synchronize; s1 /kubepods/podUID sq; c1 s1 /kubepods/podUID/ID sqc
//! CreateContainer; s2 /kubepods/podUID sq; c2 s2 /kubepods/podUID/ID sq
//! Refused; c2                                 the plugin has refused the container
//! StopContainer; s1; c1 s1 /kubepods/podUID/ID sqc      the sandbox has only its id
//! UpdateContainer; s1 ...; c1 ...; to sq
//! Cgroup; g1 pod set populated
//! Disconnected
//! ```
//!
//! The letters are the resources that are set: `s`hares, `q`uota or `u`nlimited quota, `c`pus, `m`ems.

use nri::wire::{self, Event};
use protobuf::Message;
use std::collections::BTreeMap;

/// The calls about a pod or container, by event.
pub const METHODS: [(Event, &str); 13] = [
    (Event::RUN_POD_SANDBOX, "RunPodSandbox"),
    (Event::UPDATE_POD_SANDBOX, "UpdatePodSandbox"),
    (Event::POST_UPDATE_POD_SANDBOX, "PostUpdatePodSandbox"),
    (Event::STOP_POD_SANDBOX, "StopPodSandbox"),
    (Event::REMOVE_POD_SANDBOX, "RemovePodSandbox"),
    (Event::CREATE_CONTAINER, "CreateContainer"),
    (Event::POST_CREATE_CONTAINER, "PostCreateContainer"),
    (Event::START_CONTAINER, "StartContainer"),
    (Event::POST_START_CONTAINER, "PostStartContainer"),
    (Event::UPDATE_CONTAINER, "UpdateContainer"),
    (Event::POST_UPDATE_CONTAINER, "PostUpdateContainer"),
    (Event::STOP_CONTAINER, "StopContainer"),
    (Event::REMOVE_CONTAINER, "RemoveContainer"),
];

/// Whether CPUs are set in a cgroup, and whether there are processes in it or below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub set: bool,
    pub populated: bool,
}

#[derive(Debug, Default)]
pub struct Calls {
    pub lines: Vec<String>,
    /// Short names of sandboxes, containers and cgroups.
    names: BTreeMap<String, String>,
    numbers: BTreeMap<char, u32>,
    uids: BTreeMap<String, String>,
    groups: BTreeMap<String, Group>,
    /// The container of the last call.
    subject: String,
}

impl Calls {
    /// Records a call as the runtime sends it.
    pub fn call(&mut self, method: &str, payload: &[u8]) {
        self.subject = self.record(method, payload).unwrap_or_default();
    }

    /// Returns its container's short name.
    fn record(&mut self, method: &str, payload: &[u8]) -> Option<String> {
        if method == "Synchronize" {
            let list = wire::SynchronizeRequest::parse_from_bytes(payload).ok()?;
            let pods: Vec<String> = list.pods.iter().map(|pod| self.pod(pod)).collect();
            let containers: Vec<String> =
                list.containers.iter().map(|one| self.container(one)).collect();
            let items = [vec![method.to_owned()], pods, containers].concat();
            self.lines.push(items.join("; "));
            return None;
        }
        let (method, payload) = if method == "StateChange" {
            let change = wire::StateChangeEvent::parse_from_bytes(payload).ok()?;
            let event = change.event.enum_value().ok()?;
            let (_, method) = METHODS.into_iter().find(|(of, _)| *of == event)?;
            let pod = change.pod;
            let container = change.container;
            let request = wire::ContainerRequest { pod, container, ..Default::default() };
            (method, request.write_to_bytes().ok()?)
        } else {
            (METHODS.into_iter().find(|(_, of)| *of == method)?.1, payload.to_owned())
        };
        let request = if method == "UpdatePodSandbox" {
            // Its second field is not a container.
            let update = wire::UpdatePodSandboxRequest::parse_from_bytes(&payload).ok()?;
            let pod = update.pod;
            let linux_resources = update.linux_resources;
            wire::UpdateContainerRequest { pod, linux_resources, ..Default::default() }
        } else {
            wire::UpdateContainerRequest::parse_from_bytes(&payload).ok()?
        };
        let mut line = format!("{method}; {}", self.pod(&request.pod));
        let mut subject = None;
        if let Some(container) = request.container.as_ref() {
            line += &format!("; {}", self.container(container));
            subject = Some(self.name('c', &container.id));
        }
        if let Some(resources) = request.linux_resources.as_ref() {
            line += &format!("; to {}", letters(resources));
        }
        self.lines.push(line);
        subject
    }

    /// Records that the plugin has refused the last call. There is only one at a time.
    pub fn refused(&mut self) {
        if !self.subject.is_empty() {
            self.lines.push(format!("Refused; {}", self.subject));
        }
    }

    pub fn say(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    /// Records changes of the kubelet's cgroups since the last record. `groups` has them by path.
    pub fn record_groups(&mut self, groups: BTreeMap<String, Group>) {
        let before = std::mem::replace(&mut self.groups, groups.clone());
        let gone = before.keys().filter(|path| !groups.contains_key(*path));
        for path in gone {
            let line = format!("Cgroup; {} {} gone", self.name('g', path), kind(path));
            self.lines.push(line);
            self.names.remove(path);
        }
        for (path, group) in &groups {
            if before.get(path) == Some(group) {
                continue;
            }
            let mut line = format!("Cgroup; {} {}", self.name('g', path), kind(path));
            line += if group.set { " set" } else { " clear" };
            line += if group.populated { " populated" } else { " empty" };
            self.lines.push(line);
        }
    }

    fn name(&mut self, letter: char, id: &str) -> String {
        if let Some(name) = self.names.get(id) {
            return name.clone();
        }
        let number = self.numbers.entry(letter).or_default();
        *number += 1;
        let name = format!("{letter}{number}");
        self.names.insert(id.to_owned(), name.clone());
        name
    }

    fn pod(&mut self, pod: &wire::PodSandbox) -> String {
        let name = self.name('s', &pod.id);
        let Some(linux) = pod.linux.as_ref() else { return name };
        self.uids.insert(pod.id.clone(), pod.uid.clone());
        let parent = without_uid(&linux.cgroup_parent, &pod.uid);
        let resources = linux.pod_resources.as_ref().map_or("none".to_owned(), letters);
        format!("{name} {parent} {resources}")
    }

    fn container(&mut self, container: &wire::Container) -> String {
        let name = self.name('c', &container.id);
        let sandbox = &container.pod_sandbox_id;
        let uid = self.uids.get(sandbox).cloned().unwrap_or_default();
        let sandbox = self.name('s', sandbox);
        let path = without_uid(&container.linux.cgroups_path, &uid);
        let path = match path.rsplit_once(&container.id) {
            Some((start, end)) => format!("{start}ID{end}"),
            None => path,
        };
        format!("{name} {sandbox} {path} {}", letters(&container.linux.resources))
    }
}

fn kind(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.trim_start_matches("kubepods").contains("pod") {
        "pod"
    } else if path.contains('/') {
        "class"
    } else {
        "root"
    }
}

fn without_uid(path: &str, uid: &str) -> String {
    if uid.is_empty() {
        return path.to_owned();
    }
    let path = path.replace(&format!("pod{uid}"), "podUID");
    path.replace(&format!("pod{}", uid.replace('-', "_")), "podUID")
}

fn letters(resources: &wire::LinuxResources) -> String {
    let cpu = &resources.cpu;
    let mut letters = String::new();
    if cpu.shares.value != 0 {
        letters.push('s');
    }
    match cpu.quota.value {
        1.. => letters.push('q'),
        0 => {}
        _ => letters.push('u'),
    }
    if !cpu.cpus.is_empty() {
        letters.push('c');
    }
    if !cpu.mems.is_empty() {
        letters.push('m');
    }
    if letters.is_empty() { "-".to_owned() } else { letters }
}
