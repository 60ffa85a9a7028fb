//! Pods as a kubelet describes them to a container runtime, with the kubelet's formulas for shares,
//! quotas, QoS class, labels and cgroup parents.

use std::collections::{BTreeMap, HashMap};

use crate::cri::wire;
use crate::{images, kernel};

/// CFS period in microseconds.
pub const CPU_PERIOD: i64 = 100_000;

/// A program that ends when it runs on a CPU that its file does not name.
pub const FOLLOWS: [&str; 2] = ["/bin/probe", "follow"];

/// The kubelet's `cgroupDriver`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
pub enum Driver {
    /// cgroup directories
    #[default]
    Cgroupfs,
    /// systemd units
    Systemd,
}

impl Driver {
    /// As in the kubelet's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Qos {
    /// Limits equal requests for CPU and memory in every container.
    Guaranteed,
    Burstable,
    BestEffort,
}

#[derive(Debug, Clone)]
pub struct Container {
    pub name: String,
    /// Milli-CPUs.
    pub cpu_request: i64,
    /// Milli-CPUs; 0 means no limit.
    pub cpu_limit: i64,
    pub memory_request: i64,
    /// Bytes; 0 means no limit.
    pub memory_limit: i64,
    /// Bytes by the size of a page in bytes; request and limit are always equal.
    pub huge_pages: BTreeMap<u64, u64>,
    /// The kubelet's cpuset; empty unless its own CPU manager is active.
    pub kubelet_cpus: String,
    /// User id of the processes.
    pub user: i64,
    /// Empty for the entry point of the image.
    pub command: Vec<String>,
    /// Host directories: path on the host, path in the container.
    pub mounts: Vec<(String, String)>,
}

pub const MIB: i64 = 1 << 20;

impl Container {
    /// Requests and limits of `milli` milli-CPUs and 64 MiB.
    pub fn guaranteed(name: &str, milli: i64) -> Self {
        Self { cpu_limit: milli, memory_limit: 64 * MIB, ..Self::burstable(name, milli) }
    }

    /// Requests of `milli` milli-CPUs and 64 MiB, no limits.
    pub fn burstable(name: &str, milli: i64) -> Self {
        Self { cpu_request: milli, memory_request: 64 * MIB, ..Self::best_effort(name) }
    }

    /// No requests and no limits.
    pub fn best_effort(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpu_request: 0,
            cpu_limit: 0,
            memory_request: 0,
            memory_limit: 0,
            huge_pages: BTreeMap::new(),
            kubelet_cpus: String::new(),
            user: 0,
            command: Vec::new(),
            mounts: Vec::new(),
        }
    }

    /// Requests and limits of so many bytes of memory.
    pub fn with_memory(mut self, bytes: i64) -> Self {
        self.memory_request = bytes;
        self.memory_limit = bytes;
        self
    }

    /// Asks for so many bytes of huge pages of 2 MiB.
    pub fn with_huge_pages(mut self, bytes: u64) -> Self {
        self.huge_pages.insert(2 << 20, bytes);
        self
    }

    /// With the CPUs of a kubelet with the static policy.
    pub fn on(mut self, cpus: &str) -> Self {
        cpus.clone_into(&mut self.kubelet_cpus);
        self
    }

    /// Runs `command` in place of the entry point.
    pub fn running<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.command = command.into_iter().map(Into::into).collect();
        self
    }

    /// The resources that the kubelet sends to the runtime.
    pub fn resources(&self, qos: Qos) -> wire::LinuxContainerResources {
        let exclusive = qos == Qos::Guaranteed && self.cpu_limit % 1000 == 0;
        let lifted = exclusive && !self.kubelet_cpus.is_empty();
        wire::LinuxContainerResources {
            cpu_period: CPU_PERIOD,
            cpu_quota: if lifted { -1 } else { quota(self.cpu_limit) },
            cpuset_cpus: self.kubelet_cpus.clone(),
            cpu_shares: shares(self.cpu_request),
            memory_limit_in_bytes: self.memory_limit,
            oom_score_adj: oom_score_adj(qos, self.memory_request),
            hugepage_limits: self.hugepage_limits(),
            ..Default::default()
        }
    }

    /// The kubelet sends every size that the kernel has, with 0 for those not asked for.
    fn hugepage_limits(&self) -> Vec<wire::HugepageLimit> {
        let limit = |size: u64| wire::HugepageLimit {
            page_size: page_size(size),
            limit: self.huge_pages.get(&size).copied().unwrap_or(0),
        };
        kernel::huge_page_sizes().into_iter().map(limit).collect()
    }
}

/// A pod as the scheduler assigns it to the node.
#[derive(Debug, Clone)]
pub struct Pod {
    pub name: String,
    /// Its unique id.
    pub uid: String,
    pub namespace: String,
    pub containers: Vec<Container>,
    /// Pod-level resources in milli-CPUs.
    pub budget: Option<i64>,
    /// Pod-level resources in bytes of memory.
    pub memory_budget: Option<i64>,
    /// Annotations that its author wrote.
    pub annotations: BTreeMap<String, String>,
    /// Whether its containers see the host's processes.
    pub host_pid: bool,
    /// A static pod: from a file on the node, not from the API server.
    pub is_static: bool,
    /// The node's cgroup driver.
    pub driver: Driver,
}

impl Pod {
    /// In the namespace `default`. The uid follows from the name, so that runs can be compared.
    pub fn new(name: &str, containers: impl IntoIterator<Item = Container>) -> Self {
        Self {
            name: name.to_owned(),
            uid: uid(name),
            namespace: "default".to_owned(),
            containers: containers.into_iter().collect(),
            budget: None,
            memory_budget: None,
            annotations: BTreeMap::new(),
            host_pid: false,
            is_static: false,
            driver: Driver::default(),
        }
    }

    /// Sets pod-level resources, in milli-CPUs.
    pub fn within(mut self, milli: i64) -> Self {
        self.budget = Some(milli);
        self
    }

    /// Sets pod-level resources, in bytes of memory.
    pub fn within_memory(mut self, bytes: i64) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// Adds a pod annotation of the plugin.
    pub fn asking(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(format!("{key}.cpu-manager.nri.io/pod"), value.to_owned());
        self
    }

    /// Lets its containers see the host's processes.
    pub fn with_host_pid(mut self) -> Self {
        self.host_pid = true;
        self
    }

    /// A static pod: its uid is the hash of its file, without dashes.
    pub fn from_file(mut self) -> Self {
        self.is_static = true;
        self.uid = self.uid.replace('-', "");
        self
    }

    /// What it asks for, in a person's words: `10 CPUs`.
    pub fn describe_cpus(&self) -> String {
        match self.containers.iter().map(|c| c.cpu_request).sum::<i64>() {
            milli if milli % 1000 == 0 => wording::count(milli / 1000, "CPU"),
            milli => format!("{milli}m CPU"),
        }
    }

    pub fn qos(&self) -> Qos {
        let guaranteed = |c: &Container| {
            c.cpu_limit > 0
                && c.memory_limit > 0
                && c.cpu_request == c.cpu_limit
                && c.memory_request == c.memory_limit
        };
        let nothing =
            |c: &Container| c.cpu_request + c.cpu_limit + c.memory_request + c.memory_limit == 0;
        if self.containers.iter().all(guaranteed) {
            Qos::Guaranteed
        } else if self.containers.iter().all(nothing) {
            Qos::BestEffort
        } else {
            Qos::Burstable
        }
    }

    /// Named as by the kubelet's cgroup drivers.
    pub fn cgroup_parent(&self) -> String {
        let class = self.class();
        match self.driver {
            Driver::Cgroupfs => format!("/kubepods{class}/pod{}", self.uid),
            Driver::Systemd => {
                let (class, uid) = (class.replace('/', "-"), self.uid.replace('-', "_"));
                format!("kubepods{class}-pod{uid}.slice")
            }
        }
    }

    /// As the kubelet sends it, with each driver: the path below the mount.
    fn cgroup_path(&self) -> String {
        let parent = self.cgroup_parent();
        match (self.driver, self.class().trim_start_matches('/')) {
            (Driver::Cgroupfs, _) => parent,
            (Driver::Systemd, "") => format!("/kubepods.slice/{parent}"),
            (Driver::Systemd, class) => format!("/kubepods.slice/kubepods-{class}.slice/{parent}"),
        }
    }

    fn class(&self) -> &'static str {
        match self.qos() {
            Qos::Guaranteed => "",
            Qos::Burstable => "/burstable",
            Qos::BestEffort => "/besteffort",
        }
    }

    /// The sum over all containers, sent with the sandbox and written to the pod's cgroup. As the
    /// kubelet sends it, without huge pages (`calculateSandboxResources`).
    pub fn resources(&self) -> wire::LinuxContainerResources {
        let sum = |field: fn(&Container) -> i64| self.containers.iter().map(field).sum::<i64>();
        wire::LinuxContainerResources {
            cpu_period: CPU_PERIOD,
            cpu_quota: quota(self.budget.unwrap_or_else(|| sum(|c| c.cpu_limit))),
            cpu_shares: shares(self.budget.unwrap_or_else(|| sum(|c| c.cpu_request))),
            memory_limit_in_bytes: self.memory_budget.unwrap_or_else(|| sum(|c| c.memory_limit)),
            ..Default::default()
        }
    }

    /// With the host's network, because the lab has no network plugins.
    pub fn sandbox(&self) -> wire::PodSandboxConfig {
        wire::PodSandboxConfig {
            metadata: Some(wire::PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid.clone(),
                namespace: self.namespace.clone(),
                attempt: 0,
            }),
            labels: self.labels(),
            annotations: self.sandbox_annotations(),
            linux: Some(wire::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_path(),
                security_context: Some(wire::LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    ..Default::default()
                }),
                overhead: Some(wire::LinuxContainerResources::default()),
                resources: Some(self.resources()),
            }),
            ..Default::default()
        }
    }

    pub fn container(&self, container: &Container, attempt: u32) -> wire::ContainerConfig {
        let mounts = container.mounts.iter().map(|(host, inside)| wire::Mount {
            container_path: inside.clone(),
            host_path: host.clone(),
            ..Default::default()
        });
        let restarts = "io.kubernetes.container.restartCount".to_owned();
        let mut labels = self.labels();
        labels.insert("io.kubernetes.container.name".to_owned(), container.name.clone());
        wire::ContainerConfig {
            metadata: Some(wire::ContainerMetadata { name: container.name.clone(), attempt }),
            image: Some(wire::ImageSpec { image: images::LAB.to_owned() }),
            command: container.command.clone(),
            mounts: mounts.collect(),
            labels,
            annotations: HashMap::from([(restarts, attempt.to_string())]),
            linux: Some(wire::LinuxContainerConfig {
                resources: Some(container.resources(self.qos())),
                security_context: Some(wire::LinuxContainerSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    run_as_user: Some(wire::Int64Value { value: container.user }),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        }
    }

    fn sandbox_annotations(&self) -> HashMap<String, String> {
        let mut kubelets = vec![
            ("source", if self.is_static { "file" } else { "api" }),
            ("seen", "2026-01-01T00:00:00.000000000Z"),
        ];
        if self.is_static {
            kubelets.push(("hash", self.uid.as_str()));
        }
        let kubelets = kubelets
            .into_iter()
            .map(|(name, value)| (format!("kubernetes.io/config.{name}"), value.to_owned()));
        self.annotations.clone().into_iter().chain(kubelets).collect()
    }

    fn namespaces(&self) -> wire::NamespaceOption {
        use wire::NamespaceMode::{Container, Node, Pod};
        let pid = if self.host_pid { Node } else { Container };
        wire::NamespaceOption { network: Node.into(), pid: pid.into(), ipc: Pod.into() }
    }

    fn labels(&self) -> HashMap<String, String> {
        [("name", &self.name), ("namespace", &self.namespace), ("uid", &self.uid)]
            .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.clone()))
            .into()
    }
}

/// The kubelet's formula: 1024 per CPU, at least 2.
pub fn shares(milli: i64) -> i64 {
    (milli * 1024 / 1000).clamp(2, 262_144)
}

/// The kubelet's formula in microseconds per period: at least one millisecond, 0 (unset) without a
/// limit.
pub fn quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli * CPU_PERIOD / 1000).max(1000) }
}

/// The CRI's name of a page size: `64KB`, `2MB`, `1GB`.
fn page_size(bytes: u64) -> String {
    let units = [("GB", 30), ("MB", 20), ("KB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >= 1_u64 << *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

fn oom_score_adj(qos: Qos, memory_request: i64) -> i64 {
    match qos {
        Qos::Guaranteed => -997,
        Qos::BestEffort => 1000,
        Qos::Burstable => (1000 - 1000 * memory_request / kernel::memory().max(1)).clamp(3, 999),
    }
}

/// A uid in the usual form that depends on the name only.
fn uid(name: &str) -> String {
    use sha2::{Digest, Sha256};
    let hex: String =
        Sha256::digest(name).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quotas_follow_the_kubelets_formulas() {
        assert_eq!([0, 1, 100, 1000, 10_000].map(shares), [2, 2, 102, 1024, 10_240]);
        assert_eq!([0, 1, 500, 10_000].map(quota), [0, 1000, 50_000, 1_000_000]);
        // The capture of a real kubelet: 1 + 2 + 0.5 CPUs are a pod of 3.5.
        let milli = [1000, 2000, 500];
        let pod = Pod::new("p", milli.map(|m| Container::guaranteed(&m.to_string(), m)));
        assert_eq!((pod.resources().cpu_quota, pod.resources().cpu_shares), (350_000, 3584));
    }

    #[test]
    fn memory_is_sent_as_by_the_kubelet() {
        let names = [64 << 10, 2 << 20, 32 << 20, 1 << 30].map(page_size);
        assert_eq!(names, ["64KB", "2MB", "32MB", "1GB"]);
        let [a, b] = ["a", "b"].map(|name| Container::guaranteed(name, 1000).with_memory(48 * MIB));
        let pod = Pod::new("p", [a.with_huge_pages(8 << 20), b]);
        assert_eq!(pod.qos(), Qos::Guaranteed);
        assert_eq!(pod.resources().memory_limit_in_bytes, 96 * MIB);
        assert!(pod.resources().hugepage_limits.is_empty());
        let limits = pod.containers[0].resources(pod.qos()).hugepage_limits;
        assert_eq!(limits.len(), kernel::huge_page_sizes().len());
        let pod = pod.within_memory(64 * MIB);
        assert_eq!(pod.resources().memory_limit_in_bytes, 64 * MIB);
    }
}
