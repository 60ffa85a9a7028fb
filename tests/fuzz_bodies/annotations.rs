//! The fields that the plugin reads of the runtime's messages, above all pods' annotations.

use super::node;
use ledger::annotations::{DOMAIN, MAX_ANNOTATIONS, MAX_READ, is_read};
use ledger::{Admission, Annotations, Pod};
use nri::wire;
use nri::{CallError, Request};
use nri_cpu_manager::edge::nri::projection::parse;
use protobuf::{Message, MessageField, UnknownFields};
use std::collections::HashMap;
use std::fmt::Debug;
use std::path::{Component, Path};

/// One more than is needed, so that the plugin sees that there are too many.
const MAX_ENTRIES: usize = MAX_ANNOTATIONS + 1;
const MAX_POD_ANNOTATIONS: usize = MAX_READ + 1;
/// What the keys of annotations for CRI-O end with.
const OF_CRIO: &str = ".crio.io";
const MAX_KEY: usize = 317;
const MAX_VALUE: usize = 256;
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
pub fn compare<M: Request + PartialEq + Debug>(bytes: &[u8], clear: impl FnOnce(&mut M)) {
    // The plugin does not parse fields that it skips, so it accepts more. Rust's protobuf accepts a
    // message that ends within a nested message; `well_formed` tests all others.
    let (Ok(read), Ok(mut all)) = (parse::<M>(bytes), M::parse_from_bytes(bytes)) else { return };
    clear(&mut all);
    forget(all.mut_unknown_fields());
    let count = |part: &str| bytes.windows(part.len()).filter(|at| *at == part.as_bytes()).count();
    // Beyond the bound, the order on the wire decides which annotations the plugin reads.
    if count(DOMAIN) + count(OF_CRIO) <= MAX_POD_ANNOTATIONS {
        assert_eq!(read, all);
    }
}

/// Removes the fields of a pod that the plugin does not read.
pub fn pod(pod: &mut wire::PodSandbox) {
    texts(&mut pod.labels, |key| {
        ["uid", "name", "namespace"]
            .map(|of| format!("io.kubernetes.pod.{of}"))
            .contains(&key.into())
    });
    texts(&mut pod.annotations, is_read);
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
    container
        .env
        .retain(|entry| entry.starts_with("NVIDIA_VISIBLE_DEVICES=") && entry.len() <= 8192);
    container.env.truncate(4);
    texts(&mut container.labels, |key| {
        let read = ["pod.uid", "pod.name", "pod.namespace", "container.name"];
        read.map(|of| format!("io.kubernetes.{of}")).contains(&key.into())
    });
    texts(&mut container.annotations, |key| {
        ["io.kubernetes.cri.container-name", "io.kubernetes.cri-o.Metadata"].contains(&key)
    });
    container.mounts.iter_mut().for_each(mount);
    container.mounts.retain(|mount| *mount != wire::Mount::new());
    if let Some(linux) = container.linux.as_mut() {
        resources(&mut linux.resources);
        for device in &mut linux.devices {
            let wire::LinuxDevice { type_, major, minor, .. } = std::mem::take(device);
            *device = wire::LinuxDevice { type_, major, minor, ..Default::default() };
        }
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
    if !(is_above || has_parents) || destination.len() > 4096 {
        destination.clear();
    }
    options.retain(|option| ["shared", "rshared"].contains(&option.as_str()));
    options.truncate(1);
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

fn texts(map: &mut HashMap<String, String>, is_read: impl Fn(&str) -> bool) {
    map.retain(|key, _| key.len() <= MAX_KEY && is_read(key));
    for value in map.values_mut() {
        *value = value.chars().take(MAX_VALUE).collect();
    }
}

/// A container of a pod with these annotations is admitted, or refused with a short text.
fn admit(annotations: &HashMap<String, String>) {
    assert!(annotations.len() <= MAX_POD_ANNOTATIONS);
    for (key, value) in annotations {
        assert!(is_read(key) && key.len() <= MAX_KEY && value.chars().count() <= MAX_VALUE);
    }
    let (plain, container) = node::running("a", 2000, None);
    let pod = Pod { annotations: annotations.iter().collect::<Annotations>(), ..plain };
    let mut ledger = node::ledger_with_pod_options();
    match ledger.admit(Admission::Create { pod, container }) {
        Ok(decision) => {
            assert!(decision.setting().is_some() && annotations.len() <= MAX_READ);
        }
        Err(why) => assert!(why.to_string().len() <= MAX_REFUSAL, "{why}"),
    }
    assert_eq!(ledger.check(), Ok(()));
}
