//! The fields that the plugin reads of the runtime's messages, above all pods' annotations.

use super::node;
use edge::nri::reads;
use ledger::annotations::{DOMAIN, MAX_ANNOTATIONS, MAX_VALUE, is_for_crio, is_pod_option};
use ledger::{Admission, Annotations, MAX_DEVICES, Pod};
use nri::wire;
use nri::{CallError, Request};
use protobuf::{Message, MessageField, UnknownFields};
use std::collections::HashMap;
use std::fmt::Debug;
use std::path::{Component, Path};

/// The most entries of each kind: one more than count, so that the plugin sees that there are too many.
const MAX_ENTRIES: usize = MAX_ANNOTATIONS + 1;
/// What the name of a workload's annotation begins with.
const WORKLOAD: &str = "target.workload.openshift.io/";
/// How a list of GPUs begins.
const GPUS: &str = "NVIDIA_VISIBLE_DEVICES=";
const MAX_GPUS: usize = GPUS.len() + 64 * 52 + 4;
/// The tag of a device in its container.
const DEVICES: u8 = 2 << 3 | 2;
/// The tag of a mount in its container, and how many are read.
const MOUNTS: u8 = 9 << 3 | 2;
const MAX_MOUNTS: usize = 16;
/// What the keys of annotations for CRI-O end with.
const OF_CRIO: &str = ".crio.io";
const MAX_KEY: usize = 317;
const MAX_NAME: usize = 256;
const MAX_REFUSAL: usize = 1000;

/// Reads the bytes as messages with pods and containers, and creates a container of such a pod: the
/// plugin reads the same values as protobuf, and a refusal is short.
pub fn annotations(bytes: &[u8]) {
    compare::<wire::SynchronizeRequest>(bytes, |request| {
        request.pods.iter_mut().for_each(pod);
        request.containers.iter_mut().for_each(container);
    });
    compare::<wire::ContainerRequest>(bytes, |request| {
        request.pod.as_mut().map(pod);
        request.container.as_mut().map(container);
    });
    compare::<wire::UpdateContainerRequest>(bytes, |request| {
        request.pod.as_mut().map(pod);
        request.container.as_mut().map(container);
        resources(&mut request.linux_resources);
    });
    compare::<wire::ConfigureRequest>(bytes, |_| ());
    let mut of_pod = Vec::new();
    protobuf::CodedOutputStream::vec(&mut of_pod).write_bytes(1, bytes).unwrap();
    compare::<wire::PodRequest>(&of_pod, |request| {
        request.pod.as_mut().map(pod);
    });
    if let Ok(request) = parse::<wire::PodRequest>(&of_pod) {
        admit(&request.pod.annotations);
    }
}

/// A well-formed message of any type is read.
pub fn well_formed(bytes: &[u8]) {
    let is_read = |read: Option<CallError>, all: Option<protobuf::Error>| {
        assert!(read.is_none() || all.is_some(), "{read:?}");
    };
    let list = wire::SynchronizeRequest::parse_from_bytes(bytes).err();
    is_read(parse::<wire::SynchronizeRequest>(bytes).err(), list);
    let create = wire::ContainerRequest::parse_from_bytes(bytes).err();
    is_read(parse::<wire::ContainerRequest>(bytes).err(), create);
}

/// Compares what the plugin reads of a message with what protobuf reads, after `clear` has removed
/// the fields that the plugin skips.
pub fn compare<M: Request + PartialEq + Debug>(bytes: &[u8], clear: impl Fn(&mut M)) {
    // The plugin does not parse fields that it skips, so it accepts more. Rust's protobuf accepts a
    // message that ends within a nested message; `well_formed` tests all others.
    let (Ok(mut read), Ok(mut all)) = (parse::<M>(bytes), M::parse_from_bytes(bytes)) else {
        return;
    };
    clear(&mut all);
    // What is read stays the same; devices without any field that is read are no difference.
    clear(&mut read);
    forget(all.mut_unknown_fields());
    let count = |part: &str| bytes.windows(part.len()).filter(|at| *at == part.as_bytes()).count();
    // Beyond the bounds, the order on the wire decides what the plugin reads.
    let of_runtime = count("io.kubernetes.") <= 4 && count(WORKLOAD) <= 1;
    let devices = bytes.iter().filter(|byte| **byte == DEVICES).count();
    let mounts = bytes.iter().filter(|byte| **byte == MOUNTS).count();
    let within = devices <= MAX_DEVICES && mounts <= MAX_MOUNTS;
    if of_runtime && count(DOMAIN).max(count(OF_CRIO)) <= MAX_ENTRIES && within {
        assert_eq!(read, all);
    }
}

/// Removes the fields of a pod that the plugin does not read.
pub fn pod(pod: &mut wire::PodSandbox) {
    texts(&mut pod.labels, MAX_NAME, |key| {
        ["uid", "name", "namespace"]
            .map(|of| format!("io.kubernetes.pod.{of}"))
            .contains(&key.into())
    });
    texts(&mut pod.annotations, MAX_VALUE, |key| is_read(key) || key.starts_with(WORKLOAD));
    empty_workloads(&mut pod.annotations);
    if let Some(linux) = pod.linux.as_mut() {
        let mut pod_resources = linux.pod_resources.take();
        pod_resources.as_mut().map(limits_and_cpu);
        let cgroup_parent = std::mem::take(&mut linux.cgroup_parent);
        let pod_resources = pod_resources.into();
        *linux = wire::LinuxPodSandbox { pod_resources, cgroup_parent, ..Default::default() };
    }
    let all = std::mem::take(pod);
    let wire::PodSandbox { id, name, uid, namespace, labels, annotations, .. } = all;
    let wire::PodSandbox { runtime_handler, linux, .. } = all;
    *pod = wire::PodSandbox {
        id,
        name,
        uid,
        namespace,
        labels,
        annotations,
        runtime_handler,
        linux,
        ..Default::default()
    };
}

/// Removes the fields of a container that the plugin does not read.
pub fn container(container: &mut wire::Container) {
    container.env.retain(|entry| entry.starts_with(GPUS));
    let last = container.env.pop();
    container.env = last.map(|list| beginning(&list, MAX_GPUS).to_owned()).into_iter().collect();
    texts(&mut container.labels, MAX_NAME, |key| {
        let read = ["pod.uid", "pod.name", "pod.namespace", "container.name"];
        read.map(|of| format!("io.kubernetes.{of}")).contains(&key.into())
    });
    texts(&mut container.annotations, MAX_NAME, |key| {
        ["io.kubernetes.cri.container-name", "io.kubernetes.cri-o.Metadata"].contains(&key)
            || key.starts_with(WORKLOAD)
    });
    empty_workloads(&mut container.annotations);
    container.mounts.iter_mut().for_each(mount);
    container.mounts.retain(|mount| *mount != wire::Mount::new());
    if let Some(linux) = container.linux.as_mut() {
        resources(&mut linux.resources);
        for device in &mut linux.devices {
            let wire::LinuxDevice { type_, major, minor, .. } = std::mem::take(device);
            *device = wire::LinuxDevice { type_, major, minor, ..Default::default() };
        }
        linux.devices.retain(|device| *device != wire::LinuxDevice::new());
        let wire::LinuxContainer { devices, resources, cgroups_path, .. } = std::mem::take(linux);
        *linux = wire::LinuxContainer { devices, resources, cgroups_path, ..Default::default() };
    }
    let all = std::mem::take(container);
    let wire::Container { id, pod_sandbox_id, name, state, labels, .. } = all;
    let wire::Container { annotations, env, mounts, linux, created_at, .. } = all;
    *container = wire::Container {
        id,
        pod_sandbox_id,
        name,
        state,
        labels,
        annotations,
        env,
        mounts,
        linux,
        created_at,
        ..Default::default()
    };
}

/// Leaves a path that may be above the exposed files, and an option that lets mounts below appear on the host.
fn mount(mount: &mut wire::Mount) {
    let wire::Mount { mut destination, mut options, .. } = std::mem::take(mount);
    let at = Path::new("/").join(&destination);
    let is_above = ["/run/nri-cpu-manager", "/var/run/nri-cpu-manager"]
        .iter()
        .any(|files| Path::new(files).starts_with(&at));
    let has_parents = at.components().any(|part| part == Component::ParentDir);
    if !(is_above || has_parents) {
        destination.clear();
    }
    destination = beginning(&destination, 4096).to_owned();
    options.retain(|option| ["shared", "rshared"].contains(&option.as_str()));
    options = options.pop().into_iter().collect();
    *mount = wire::Mount { destination, options, ..Default::default() };
}

fn resources(resources: &mut MessageField<wire::LinuxResources>) {
    resources.as_mut().map(limits_and_cpu);
}

/// Leaves the limits of memory and of huge pages, and what [`only_cpu`] leaves.
fn limits_and_cpu(resources: &mut wire::LinuxResources) {
    let mut memory = resources.memory.take();
    if let Some(memory) = &mut memory {
        let mut limit = memory.limit.take();
        if let Some(limit) = &mut limit {
            forget(limit.special_fields.mut_unknown_fields());
        }
        *memory = wire::LinuxMemory { limit: limit.into(), ..Default::default() };
    }
    let mut hugepage_limits = std::mem::take(&mut resources.hugepage_limits);
    for pool in &mut hugepage_limits {
        forget(pool.special_fields.mut_unknown_fields());
    }
    only_cpu(resources);
    resources.memory = memory.into();
    resources.hugepage_limits = hugepage_limits;
}

fn only_cpu(resources: &mut wire::LinuxResources) {
    let mut cpu = resources.cpu.take();
    if let Some(cpu) = &mut cpu {
        forget(cpu.special_fields.mut_unknown_fields());
        for number in
            [&mut cpu.shares, &mut cpu.period].into_iter().filter_map(MessageField::as_mut)
        {
            forget(number.special_fields.mut_unknown_fields());
        }
        if let Some(quota) = cpu.quota.as_mut() {
            forget(quota.special_fields.mut_unknown_fields());
        }
    }
    *resources = wire::LinuxResources { cpu: cpu.into(), ..Default::default() };
}

fn forget(unknown: &mut UnknownFields) {
    *unknown = UnknownFields::new();
}

fn texts(map: &mut HashMap<String, String>, max: usize, is_read: impl Fn(&str) -> bool) {
    map.retain(|key, _| key.len() <= MAX_KEY && is_read(key));
    for value in map.values_mut() {
        *value = beginning(value, max).to_owned();
    }
}

/// Of such an annotation only the name is read.
fn empty_workloads(map: &mut HashMap<String, String>) {
    for (_, value) in map.iter_mut().filter(|(key, _)| key.starts_with(WORKLOAD)) {
        value.clear();
    }
}

fn is_read(key: &str) -> bool {
    is_pod_option(key) || is_for_crio(key)
}

fn beginning(text: &str, most: usize) -> &str {
    let fits =
        text.char_indices().map(|(at, one)| at + one.len_utf8()).take_while(|end| *end <= most);
    &text[..fits.last().unwrap_or(0)]
}

fn parse<M: Request>(bytes: &[u8]) -> Result<M, CallError> {
    reads(true).parse(bytes)
}

/// A container of a pod with these annotations is admitted, or refused with a short text.
fn admit(annotations: &HashMap<String, String>) {
    assert!(annotations.len() <= 2 * MAX_ENTRIES + 1);
    for (key, value) in annotations {
        assert!(is_read(key) || key.starts_with(WORKLOAD));
        assert!(key.len() <= MAX_KEY && value.len() <= MAX_VALUE);
    }
    let (plain, container) = node::running("a", 2000, None);
    let pod = Pod { annotations: annotations.iter().collect::<Annotations>(), ..plain };
    let mut ledger = node::ledger_with_pod_options();
    match ledger.admit(Admission::Create { pod, container }) {
        Ok(decision) => {
            let own = annotations.keys().filter(|key| is_pod_option(key)).count();
            assert!(decision.setting().is_some() && own <= MAX_ANNOTATIONS);
        }
        Err(why) => assert!(why.to_string().len() <= MAX_REFUSAL, "{why}"),
    }
    assert_eq!(ledger.check(), Ok(()));
}
