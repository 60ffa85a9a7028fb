//! Converts the runtime's messages into the ledger's types.

use super::cgroup;
use super::projection::{
    CONTAINER_NAME_LABEL, CONTAINERD_CONTAINER_NAME, CRIO_METADATA, MAX_GPUS, POD_NAME_LABEL,
    POD_NAMESPACE_LABEL, POD_UID_LABEL, VISIBLE_GPUS, is_workload,
};
use cpuset::{CpuSet, NodeSet};
use ledger::{
    Annotations, Container, ContainerId, ContainerKind, CpuRequest, DeviceRef, MAX_DEVICES,
    MilliCpu, Pod, PodUid, RequestedUpdate, SandboxId,
};
use nri::wire;
use placement::memory_manager::{Amounts, MemoryKind};
use std::collections::{HashMap, HashSet};

/// The CFS period in microseconds, if the runtime names none: the kubelet's default.
const DEFAULT_PERIOD: u64 = 100_000;

/// The most sizes of huge pages to convert; a machine has a handful.
const MAX_PAGE_SIZES: usize = 16;

/// CRI-O acts on its annotations itself in pods whose handler has this in its name.
const CRIO_HANDLER: &str = "high-performance";

pub(super) fn pod_and_container(
    pod: &wire::PodSandbox,
    container: &wire::Container,
    on_crio: bool,
) -> (Pod, Container) {
    (self::pod(pod, Some(container), on_crio), self::container(container, pod))
}

/// The labels of `container` fill gaps of the pod: the kubelet puts the pod's uid, name and
/// namespace on both. A pod without a kubelet may have no uid. Its sandbox's id replaces the uid,
/// so that two such pods stay two.
pub(super) fn pod(
    pod: &wire::PodSandbox,
    container: Option<&wire::Container>,
    on_crio: bool,
) -> Pod {
    let label = |key| {
        let labels = container.map(|container| &container.labels);
        text(&pod.labels, key).or_else(|| text(labels?, key))
    };
    let sandbox = non_empty(&pod.id)
        .or_else(|| container.and_then(|container| non_empty(&container.pod_sandbox_id)))
        .unwrap_or_default();
    let uid = non_empty(&pod.uid).or_else(|| label(POD_UID_LABEL)).unwrap_or(sandbox);
    let (qos, pool) = cgroup::kind(&pod.linux.cgroup_parent);
    let mut annotations: Annotations = pod.annotations.iter().collect();
    if on_crio && pod.runtime_handler.contains(CRIO_HANDLER) {
        annotations.leave_to_runtime();
    }
    Pod {
        sandbox: SandboxId(sandbox.into()),
        uid: PodUid(uid.into()),
        namespace: non_empty(&pod.namespace)
            .or_else(|| label(POD_NAMESPACE_LABEL))
            .unwrap_or_default()
            .to_owned(),
        name: non_empty(&pod.name).or_else(|| label(POD_NAME_LABEL)).unwrap_or_default().to_owned(),
        qos,
        pool,
        budget: pod.linux.pod_resources.cpu.as_ref().and_then(budget),
        limits: limits(&pod.linux.pod_resources),
        own_resources: None,
        annotations,
        cgroup: cgroup::of_pod(&pod.linux.cgroup_parent),
    }
}

pub(super) fn budget(cpu: &wire::LinuxCPU) -> Option<MilliCpu> {
    request(cpu, None).budget()
}

/// The memory limit and the huge pages. The kubelet names a limit of zero for each size of huge pages
/// that a container may not use.
pub(super) fn limits(resources: &wire::LinuxResources) -> Amounts {
    let memory = u64::try_from(resources.memory.limit.value).unwrap_or(0);
    let huge_pages = resources.hugepage_limits.iter().take(MAX_PAGE_SIZES);
    let huge_pages = huge_pages
        .filter_map(|pool| Some((MemoryKind::HugePages(page_size(&pool.page_size)?), pool.limit)));
    let amounts = [(MemoryKind::Memory, memory)].into_iter().chain(huge_pages);
    amounts.filter(|(_, bytes)| *bytes > 0).collect()
}

/// A size of pages in the kernel's form, such as `2MB`, in bytes.
fn page_size(text: &str) -> Option<u64> {
    const UNITS: [(&str, u32); 4] = [("GB", 30), ("MB", 20), ("KB", 10), ("B", 0)];
    let suffix = |(suffix, shift): &(&str, u32)| Some((text.strip_suffix(suffix)?, *shift));
    let (digits, shift) = UNITS.iter().find_map(suffix)?;
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `pod` gives the sandbox if the container does not.
pub(super) fn container(container: &wire::Container, pod: &wire::PodSandbox) -> Container {
    let cpu = container.linux.resources.cpu.as_ref();
    let sandbox = non_empty(&container.pod_sandbox_id).unwrap_or(&pod.id);
    let (described_devices, too_many_devices) = devices(container);
    Container {
        id: ContainerId(container.id.clone().into()),
        sandbox: SandboxId(sandbox.into()),
        name: name(container),
        kind: ContainerKind::Unknown,
        cpu: cpu.map(|cpu| request(cpu, None)).unwrap_or_default(),
        limits: limits(&container.linux.resources),
        cpus: cpu.and_then(|cpu| cpus(cpu, &container.id)),
        in_workload: pod
            .annotations
            .keys()
            .chain(container.annotations.keys())
            .any(|name| is_workload(name)),
        left_alone: None,
        mems: cpu.and_then(|cpu| mems(cpu, &container.id)),
        too_many_devices,
        described_devices,
        devices: Vec::new(),
        cgroup: cgroup::of_container(&container.linux.cgroups_path),
        runs_on: None,
        partitioned: false,
        outdated: false,
        followed: false,
        not_started: container.state == wire::ContainerState::CONTAINER_CREATED.into(),
        created_at: Some(container.created_at).filter(|&created_at| created_at > 0),
    }
}

/// The device files of a container, and the GPUs that it gets by its environment; and whether it has more.
///
/// A privileged container gets all devices of the host, `/dev/kmsg` among them. Its devices are no
/// reason for a NUMA node.
fn devices(container: &wire::Container) -> (Vec<DeviceRef>, bool) {
    const KMSG: (i64, i64) = (1, 11);
    let is_kmsg = |device: &wire::LinuxDevice| (device.major, device.minor) == KMSG;
    let devices = &container.linux.devices;
    if devices.iter().any(|device| device.type_ != "b" && is_kmsg(device)) {
        return (Vec::new(), false);
    }
    let device = |device: &wire::LinuxDevice| DeviceRef::File {
        block: device.type_ == "b",
        major: device.major,
        minor: device.minor,
    };
    let is_cut = container.env.iter().any(|list| list.len() > MAX_GPUS);
    let devices = devices.iter().map(device).chain(gpus(&container.env));
    let mut devices: Vec<DeviceRef> = devices.take(MAX_DEVICES + 1).collect();
    let too_many = is_cut || devices.len() > MAX_DEVICES;
    if too_many {
        devices.clear();
    }
    (devices, too_many)
}

/// The GPUs that NVIDIA's hook adds after the plugins. Only UUIDs count, as device plugins write them:
/// images set `all`, and an index says nothing without the list that it is for. A part of a GPU (MIG)
/// has the node of the whole one, which the older form of its name includes. Several parts of one are
/// one device.
fn gpus(environment: &[String]) -> impl Iterator<Item = DeviceRef> + '_ {
    let mut known = HashSet::new();
    let mut values = environment.iter().filter_map(|entry| entry.strip_prefix(VISIBLE_GPUS));
    // The last one counts.
    let names = values.next_back().unwrap_or_default().split(',').map(str::trim);
    names.filter_map(move |name| {
        let whole = name.strip_prefix("MIG-").unwrap_or(name).split('/').next()?;
        let is_new = whole.starts_with("GPU-") && known.insert(whole);
        is_new.then(|| DeviceRef::Gpu(whole.to_owned()))
    })
}

/// The CPUs of a new container with this adjustment by all plugins together.
pub(super) fn final_cpus(
    container: &wire::Container,
    adjust: &wire::ContainerAdjustment,
) -> Option<CpuSet> {
    let adjusted = adjust.linux.resources.cpu.as_ref().filter(|cpu| !cpu.cpus.is_empty());
    cpus(adjusted.or(container.linux.resources.cpu.as_ref())?, &container.id)
}

/// The kubelet's request in an update of `before`. Zero and an absent value both mean "unchanged".
pub(super) fn requested(
    resources: &wire::LinuxResources,
    before: &wire::Container,
) -> RequestedUpdate {
    let limits = limits(resources);
    let Some(cpu) = resources.cpu.as_ref() else {
        return RequestedUpdate { limits, ..RequestedUpdate::default() };
    };
    RequestedUpdate {
        limits,
        cpu: request(cpu, before.linux.resources.cpu.as_ref()),
        sets_quota: cpu.quota.as_ref().is_some_and(|quota| quota.value > 0),
        cpus: cpus(cpu, &before.id),
    }
}

/// Request and limit from shares and quota; `before` has the period if `cpu` has none.
fn request(cpu: &wire::LinuxCPU, before: Option<&wire::LinuxCPU>) -> CpuRequest {
    let period = [Some(cpu), before]
        .into_iter()
        .flatten()
        .find_map(|cpu| cpu.period.as_ref().map(|period| period.value).filter(|&us| us > 0))
        .unwrap_or(DEFAULT_PERIOD);
    CpuRequest {
        request: cpu.shares.as_ref().and_then(|shares| MilliCpu::from_shares(shares.value)),
        limit: cpu.quota.as_ref().and_then(|quota| MilliCpu::from_quota(quota.value, period)),
    }
}

fn cpus(cpu: &wire::LinuxCPU, container: &str) -> Option<CpuSet> {
    list(&cpu.cpus, "CPUs", container)
}

/// The NUMA nodes for memory, without numbers past the limit of [`NodeSet`].
fn mems(cpu: &wire::LinuxCPU, container: &str) -> Option<NodeSet> {
    list(&cpu.mems, "memory nodes", container).map(|nodes| nodes.iter().collect())
}

/// A list in the kernel's format. Another text counts as empty: the event must not fail.
fn list(text: &str, what: &str, container: &str) -> Option<CpuSet> {
    let text = text.trim();
    match text.parse::<CpuSet>() {
        Ok(numbers) => Some(numbers).filter(|numbers| !numbers.is_empty()),
        Err(_) => {
            let start: String = text.chars().take(80).collect();
            log::debug!(
                "container {}: ignoring {start:?}, which is not a list of {what}",
                wording::short_id(container)
            );
            None
        }
    }
}

/// The container's name in its pod's specification, or its id. Runtimes and their clients store the
/// name in different places.
fn name(container: &wire::Container) -> String {
    let name = text(&container.labels, CONTAINER_NAME_LABEL)
        .or_else(|| non_empty(&container.name))
        .or_else(|| text(&container.annotations, CONTAINERD_CONTAINER_NAME))
        .map(str::to_owned)
        .or_else(|| {
            let metadata = text(&container.annotations, CRIO_METADATA)?;
            let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
            non_empty(metadata.get("name")?.as_str()?).map(str::to_owned)
        });
    name.unwrap_or_else(|| container.id.clone())
}

fn text<'a>(map: &'a HashMap<String, String>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(|value| non_empty(value))
}

fn non_empty(text: &str) -> Option<&str> {
    if text.is_empty() { None } else { Some(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nri::projection;
    use ledger::Qos;
    use protobuf::{Message, MessageField};

    fn cpu(shares: Option<u64>, quota: Option<i64>, period: Option<u64>) -> wire::LinuxCPU {
        fn set<T, W>(value: Option<T>, wrap: impl FnOnce(T) -> W) -> MessageField<W> {
            value.map(wrap).map_or_else(MessageField::none, MessageField::some)
        }
        wire::LinuxCPU {
            shares: set(shares, |value| wire::OptionalUInt64 { value, ..Default::default() }),
            quota: set(quota, |value| wire::OptionalInt64 { value, ..Default::default() }),
            period: set(period, |value| wire::OptionalUInt64 { value, ..Default::default() }),
            ..Default::default()
        }
    }

    fn resources(cpu: wire::LinuxCPU) -> wire::LinuxResources {
        wire::LinuxResources { cpu: MessageField::some(cpu), ..Default::default() }
    }

    fn with_cpu(cpu: wire::LinuxCPU) -> wire::Container {
        wire::Container {
            id: "c1".into(),
            linux: MessageField::some(wire::LinuxContainer {
                resources: MessageField::some(resources(cpu)),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn requests_and_limits_come_from_shares_and_quota() {
        for (shares, quota, period, request, limit) in [
            (Some(4096), Some(400_000), Some(100_000), Some(4000), Some(4000)),
            (Some(256), Some(200_000), Some(100_000), Some(250), Some(2000)),
            (Some(2), None, Some(100_000), None, None),
            (Some(2), Some(0), Some(100_000), None, None),
            (Some(1024), Some(-1), Some(100_000), Some(1000), None),
            (Some(262_144), Some(30_000_000), Some(100_000), None, Some(300_000)),
            (None, Some(5000), Some(10_000), None, Some(500)),
            // No period at all, or one that says nothing: the kubelet's default.
            (None, Some(150_000), None, None, Some(1500)),
            (None, Some(150_000), Some(0), None, Some(1500)),
            (None, None, None, None, None),
        ] {
            let converted =
                container(&with_cpu(cpu(shares, quota, period)), &wire::PodSandbox::new());
            assert_eq!(
                converted.cpu,
                CpuRequest { request: request.map(MilliCpu), limit: limit.map(MilliCpu) },
                "shares {shares:?}, quota {quota:?}, period {period:?}"
            );
        }
        let bare = container(&wire::Container::new(), &wire::PodSandbox::new());
        assert_eq!(bare.cpu, CpuRequest::default());
    }

    #[test]
    fn limits_of_memory_and_huge_pages_are_read() {
        let pool = |page_size: &str, limit| wire::HugepageLimit {
            page_size: page_size.into(),
            limit,
            ..Default::default()
        };
        let memory = |value| wire::LinuxMemory {
            limit: MessageField::some(wire::OptionalInt64 { value, ..Default::default() }),
            ..Default::default()
        };
        let sent = |value, pools: &[wire::HugepageLimit]| {
            let resources = wire::LinuxResources {
                memory: MessageField::some(memory(value)),
                hugepage_limits: pools.to_vec(),
                ..Default::default()
            };
            let sent = wire::ContainerRequest {
                container: MessageField::some(wire::Container {
                    linux: MessageField::some(wire::LinuxContainer {
                        resources: MessageField::some(resources),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            };
            let sent = sent.write_to_bytes().unwrap();
            let read: wire::ContainerRequest = projection::reads(false).parse(&sent).unwrap();
            limits(&read.container.linux.resources)
        };
        let huge = MemoryKind::HugePages;
        let memory = MemoryKind::Memory;
        assert_eq!(sent(1 << 30, &[]), Amounts::from([(memory, 1 << 30)]));
        let pools = [pool("2MB", 4 << 20), pool("1GB", 0), pool("64KB", 64 << 10), pool("2Mi", 1)];
        let expect =
            Amounts::from([(memory, 5), (huge(2 << 20), 4 << 20), (huge(64 << 10), 64 << 10)]);
        assert_eq!(sent(5, &pools), expect);
        assert_eq!(
            sent(-1, &[pool("", 1), pool("MB", 1), pool("99999999999GB", 1)]),
            Amounts::new()
        );
    }

    #[test]
    fn a_list_of_cpus_that_is_empty_or_invalid_counts_as_none() {
        for (list, expected) in [
            ("", None),
            ("0-3,8", Some("0-3,8")),
            (" 5\n", Some("5")),
            ("all", None),
            ("3-1", None),
            ("0-99999999", None),
            ("1,,2", None),
        ] {
            let mut cpu = cpu(None, None, None);
            cpu.cpus = list.into();
            let converted = container(&with_cpu(cpu), &wire::PodSandbox::new());
            assert_eq!(converted.cpus, expected.map(|list| list.parse().unwrap()), "{list:?}");
        }
    }

    fn with_devices(devices: &[(&str, i64, i64)], env: &[&str]) -> wire::Container {
        let device = |(kind, major, minor): &(&str, i64, i64)| wire::LinuxDevice {
            type_: (*kind).into(),
            major: *major,
            minor: *minor,
            ..Default::default()
        };
        wire::Container {
            env: env.iter().map(|&entry| entry.into()).collect(),
            linux: MessageField::some(wire::LinuxContainer {
                devices: devices.iter().map(device).collect(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn device_files_count_unless_a_container_has_all() {
        let file = |block, major, minor| DeviceRef::File { block, major, minor };
        let described = |files: &[(&str, i64, i64)]| devices(&with_devices(files, &[])).0;
        let vfio = ("c", 242, 3);
        let disk = ("b", 259, 0);
        let kmsg = ("c", 1, 11);
        assert_eq!(described(&[vfio, disk]), [file(false, 242, 3), file(true, 259, 0)]);
        assert_eq!(described(&[vfio, kmsg]), []);
        assert_eq!(described(&[("b", 1, 11)]), [file(true, 1, 11)]);
    }

    #[test]
    fn only_uuids_of_gpus_count_in_the_environment() {
        let gpus = |env: &[&str]| -> Vec<String> {
            let sent = wire::ContainerRequest {
                container: MessageField::some(with_devices(&[], env)),
                ..Default::default()
            };
            let sent = sent.write_to_bytes().unwrap();
            let read: wire::ContainerRequest = projection::reads(false).parse(&sent).unwrap();
            let uuid = |device| match device {
                DeviceRef::Gpu(uuid) => uuid,
                file @ DeviceRef::File { .. } => panic!("{file:?}"),
            };
            devices(&read.container).0.into_iter().map(uuid).collect()
        };
        assert_eq!(gpus(&["NVIDIA_VISIBLE_DEVICES=GPU-a, GPU-b"]), ["GPU-a", "GPU-b"]);
        // The older form of a part of a GPU; the newer one does not say which GPU it is of.
        assert_eq!(gpus(&["NVIDIA_VISIBLE_DEVICES=MIG-GPU-a/1/0,MIG-b"]), ["GPU-a"]);
        for meaningless in ["all", "none", "void", "", "0,1", "GPU"] {
            assert_eq!(gpus(&[&format!("NVIDIA_VISIBLE_DEVICES={meaningless}")]), [""; 0]);
        }
        // An image's value before the device plugin's.
        assert_eq!(
            gpus(&["NVIDIA_VISIBLE_DEVICES=GPU-x", "NVIDIA_VISIBLE_DEVICES=GPU-a"]),
            ["GPU-a"]
        );
        assert_eq!(gpus(&["PATH=/bin", "MY_NVIDIA_VISIBLE_DEVICES=GPU-a"]), [""; 0]);
    }

    #[test]
    fn too_many_devices_count_as_none() {
        let read = |files: &[(&str, i64, i64)], env: &[&str]| {
            let container = MessageField::some(with_devices(files, env));
            let sent = wire::ContainerRequest { container, ..Default::default() };
            let sent = sent.write_to_bytes().unwrap();
            let read: wire::ContainerRequest = projection::reads(false).parse(&sent).unwrap();
            let (devices, too_many) = devices(&read.container);
            (devices.len(), too_many)
        };
        let gpus = |n: usize, parts: usize| {
            let part = |at| format!("MIG-GPU-{:036}/{}/{}", at / parts, at % parts, at % parts);
            let names: Vec<String> = (0..n).map(part).collect();
            format!("NVIDIA_VISIBLE_DEVICES={}", names.join(","))
        };
        let files = |n| (0..n).map(|minor| ("c", 242, minor)).collect::<Vec<_>>();
        assert_eq!(read(&files(64), &[]), (64, false));
        assert_eq!(read(&files(65), &[]), (0, true));
        assert_eq!(read(&[], &[&gpus(64, 1)]), (64, false));
        assert_eq!(read(&[], &[&gpus(65, 1)]), (0, true));
        assert_eq!(read(&[], &[&gpus(64, 8)]), (8, false), "several parts of one are one");
        assert_eq!(read(&files(60), &[&gpus(5, 1)]), (0, true));
        // Only the last list counts, however long others are.
        assert_eq!(read(&[], &[&gpus(10_000, 1), &gpus(1, 1)]), (1, false));
        assert_eq!(
            read(&[], &[&format!("NVIDIA_VISIBLE_DEVICES={}", "x".repeat(8192))]),
            (0, true)
        );
        // A privileged container has all devices of the host, in any order.
        let host = [files(4000), vec![("c", 1, 11)]].concat();
        assert_eq!(read(&host, &[]), (0, false));
    }

    #[test]
    fn an_update_requests_only_the_values_that_it_sets() {
        let before = with_cpu(cpu(Some(1024), Some(50_000), Some(50_000)));
        for (asked, request, limit, sets_quota) in [
            (cpu(Some(2048), Some(100_000), None), Some(2000), Some(2000), true),
            (cpu(Some(2048), Some(100_000), Some(0)), Some(2000), Some(2000), true),
            (cpu(Some(0), Some(0), Some(0)), None, None, false),
            (cpu(None, Some(-1), None), None, None, false),
            (cpu(None, None, None), None, None, false),
        ] {
            let converted = requested(&resources(asked.clone()), &before);
            let expected =
                CpuRequest { request: request.map(MilliCpu), limit: limit.map(MilliCpu) };
            assert_eq!((converted.cpu, converted.sets_quota), (expected, sets_quota), "{asked}");
            assert_eq!(converted.cpus, None);
        }
        let mut asked = cpu(None, None, None);
        asked.cpus = "1-2".into();
        assert_eq!(requested(&resources(asked), &before).cpus, Some("1-2".parse().unwrap()));
        assert_eq!(requested(&wire::LinuxResources::new(), &before), RequestedUpdate::default());
    }

    #[test]
    fn a_containers_name_comes_from_the_first_place_that_has_one() {
        let map = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
        let crio = |json| map(CRIO_METADATA, json);
        for (labels, own, annotations, expected) in [
            (
                map(CONTAINER_NAME_LABEL, "label"),
                "own",
                map(CONTAINERD_CONTAINER_NAME, "cd"),
                "label",
            ),
            (HashMap::new(), "own", map(CONTAINERD_CONTAINER_NAME, "cd"), "own"),
            (map(CONTAINER_NAME_LABEL, ""), "", map(CONTAINERD_CONTAINER_NAME, "cd"), "cd"),
            (HashMap::new(), "", crio(r#"{"name":"crio","attempt":1}"#), "crio"),
            (HashMap::new(), "", crio(r#"{"name":7}"#), "c1"),
            (HashMap::new(), "", crio(r#"{"name":""}"#), "c1"),
            (HashMap::new(), "", crio("{"), "c1"),
            (HashMap::new(), "", HashMap::new(), "c1"),
        ] {
            let container = wire::Container {
                id: "c1".into(),
                name: own.into(),
                labels,
                annotations,
                ..Default::default()
            };
            assert_eq!(name(&container), expected);
        }
    }

    #[test]
    fn a_pod_is_converted_with_all_its_fields() {
        let full = wire::PodSandbox {
            id: "sandbox".into(),
            uid: "uid".into(),
            namespace: "ns".into(),
            name: "pod".into(),
            linux: MessageField::some(wire::LinuxPodSandbox {
                cgroup_parent: "/kubepods/poduid".into(),
                pod_resources: MessageField::some(resources(cpu(
                    Some(4096),
                    Some(400_000),
                    Some(100_000),
                ))),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(
            pod(&full, None, false),
            Pod {
                sandbox: SandboxId("sandbox".into()),
                uid: PodUid("uid".into()),
                namespace: "ns".into(),
                name: "pod".into(),
                qos: Qos::Guaranteed,
                budget: Some(MilliCpu(4000)),
                limits: Amounts::new(),
                own_resources: None,
                pool: Default::default(),
                annotations: Default::default(),
                cgroup: cpuset::CgroupPath::new("kubepods/poduid"),
            }
        );
    }

    #[test]
    fn only_crio_acts_in_pods_of_its_high_performance_handlers() {
        for (handler, on_crio, is_left) in [
            ("high-performance", true, true),
            ("my-high-performance-2", true, true),
            ("high-performance", false, false),
            ("runc", true, false),
            ("", true, false),
        ] {
            let sent = wire::PodSandbox { runtime_handler: handler.into(), ..Default::default() };
            let sent = wire::PodRequest { pod: Some(sent).into(), ..Default::default() };
            let sent = sent.write_to_bytes().unwrap();
            let read: wire::PodRequest = projection::reads(false).parse(&sent).unwrap();
            let converted = pod(&read.pod, None, on_crio);
            assert_eq!(converted.annotations.is_left_to_runtime(), is_left, "{handler} {on_crio}");
        }
    }

    #[test]
    fn an_empty_pod_is_identified_by_the_labels_of_its_container() {
        let labels = [(POD_UID_LABEL, "uid"), (POD_NAME_LABEL, "pod"), (POD_NAMESPACE_LABEL, "ns")];
        let labelled = wire::Container {
            id: "c1".into(),
            pod_sandbox_id: "sandbox".into(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Default::default()
        };
        let converted = pod(&wire::PodSandbox::new(), Some(&labelled), false);
        assert_eq!((converted.uid.0, converted.sandbox.0), ("uid".into(), "sandbox".into()));
        assert_eq!((converted.name, converted.namespace), ("pod".into(), "ns".into()));
        assert_eq!((converted.qos, converted.budget), (Qos::Unknown, None));

        let bare = wire::PodSandbox { id: "sandbox".into(), ..Default::default() };
        assert_eq!(
            pod(&bare, None, false).uid.0,
            "sandbox".into(),
            "pods without uid must not be taken for one"
        );
    }

    #[test]
    fn a_saturated_or_missing_part_of_a_budget_does_not_hide_the_other_one() {
        for (shares, quota, expected) in [
            (Some(4096), Some(400_000), Some(4000)),
            (Some(262_144), Some(51_200_000), Some(512_000)),
            (Some(3584), Some(0), Some(3500)),
            // A container of 2 CPUs with a limit, and one of 1 CPU without.
            (Some(3072), Some(200_000), Some(3000)),
            // Resources of the pod as a whole.
            (Some(2048), Some(400_000), Some(4000)),
            (Some(2), Some(0), None),
            (None, None, None),
        ] {
            assert_eq!(budget(&cpu(shares, quota, None)), expected.map(MilliCpu));
        }
    }

    #[test]
    fn a_creation_time_is_unknown_unless_it_is_positive() {
        for (created_at, expected) in
            [(0, None), (-5, None), (1_795_239_574_734_228_023, Some(1_795_239_574_734_228_023))]
        {
            let container_ = wire::Container { created_at, ..Default::default() };
            assert_eq!(container(&container_, &wire::PodSandbox::new()).created_at, expected);
        }
    }

    #[test]
    fn only_a_created_container_has_not_started() {
        use wire::ContainerState::{CONTAINER_CREATED, CONTAINER_RUNNING, CONTAINER_UNKNOWN};
        for (state, not_started) in
            [(CONTAINER_CREATED, true), (CONTAINER_RUNNING, false), (CONTAINER_UNKNOWN, false)]
        {
            let sent = wire::Container { state: state.into(), ..Default::default() };
            let sent = wire::SynchronizeRequest { containers: vec![sent], ..Default::default() };
            let sent = sent.write_to_bytes().unwrap();
            let read: wire::SynchronizeRequest = projection::reads(false).parse(&sent).unwrap();
            let converted = container(&read.containers[0], &wire::PodSandbox::new());
            assert_eq!(converted.not_started, not_started, "{state:?}");
        }
    }
}
