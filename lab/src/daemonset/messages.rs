//! CRI messages for a pod's manifest, like a kubelet's.

use std::path::Path;

use anyhow::Result;

use crate::cgroup::Driver;
use crate::cri::wire;
use crate::manifests::Manifests;
use crate::manifests::types::{ContainerSpec, FieldPath, SeccompType, SecurityContext, Variable};
use crate::pod::{self, Pod};

const NODE_NAME: &str = "lab";

/// Paths that the kubelet masks, or makes read-only, in unprivileged containers.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The part of the pod that the lab's other pods have as well.
pub(super) fn pod(manifests: &Manifests, driver: Driver) -> Result<Pod> {
    let spec = manifests.pod();
    let containers: Result<Vec<_>> = spec.containers.iter().map(resources).collect();
    let meta = &manifests.daemon_set.metadata;
    let mut pod = Pod::new(&format!("{}-x7k2p", meta.name), containers?);
    pod.namespace.clone_from(&meta.namespace);
    pod.host_pid = spec.host_pid;
    pod.driver = driver;
    Ok(pod)
}

fn resources(container: &ContainerSpec) -> Result<pod::Container> {
    let (requests, limits) = (&container.resources.requests, &container.resources.limits);
    // A request defaults to the limit.
    let or = |request: i64, limit: i64| if request == 0 { limit } else { request };
    let (cpu_limit, memory_limit) = (limits.milli_cpu()?, limits.memory()?);
    Ok(pod::Container {
        cpu_request: or(requests.milli_cpu()?, cpu_limit),
        cpu_limit,
        memory_request: or(requests.memory()?, memory_limit),
        memory_limit,
        ..pod::Container::best_effort(&container.name)
    })
}

pub(super) fn sandbox(pod: &Pod, logs: &Path) -> wire::PodSandboxConfig {
    let mut config = pod.sandbox();
    config.log_directory = logs.display().to_string();
    if let Some(context) = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut()) {
        context.seccomp = Some(profile(SeccompType::RuntimeDefault));
    }
    config
}

pub(super) fn container(
    pod: &Pod,
    spec: &ContainerSpec,
    attempt: u32,
    mounts: Vec<wire::Mount>,
) -> Result<wire::ContainerConfig> {
    let mut config = pod.container(&resources(spec)?, attempt);
    config.image = Some(wire::ImageSpec { image: spec.image.clone() });
    config.command.clone_from(&spec.command);
    config.args.clone_from(&spec.args);
    config.envs = spec.env.iter().map(variable).collect();
    config.mounts = mounts;
    config.log_path = log_path(&spec.name, attempt);
    if let Some(linux) = &mut config.linux {
        let usual = linux.security_context.take().unwrap_or_default();
        linux.security_context = Some(security(&spec.security_context, usual));
    }
    Ok(config)
}

/// Below the pod's directory of logs.
pub(super) fn log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

fn variable(variable: &Variable) -> wire::KeyValue {
    let field = variable.value_from.as_ref().map(|from| from.field_ref.field_path);
    let value = match field {
        Some(FieldPath::NodeName) => NODE_NAME.to_owned(),
        None => variable.value.clone().unwrap_or_default(),
    };
    wire::KeyValue { key: variable.name.clone(), value }
}

fn security(
    context: &SecurityContext,
    usual: wire::LinuxContainerSecurityContext,
) -> wire::LinuxContainerSecurityContext {
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    wire::LinuxContainerSecurityContext {
        capabilities: Some(wire::Capability {
            add_capabilities: context.capabilities.add.clone(),
            drop_capabilities: context.capabilities.drop.clone(),
        }),
        run_as_user: Some(wire::Int64Value { value: context.run_as_user }),
        readonly_rootfs: context.read_only_root_filesystem,
        no_new_privs: !context.allow_privilege_escalation,
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(profile(context.seccomp_profile.r#type)),
        ..usual
    }
}

fn profile(kind: SeccompType) -> wire::SecurityProfile {
    use wire::security_profile::ProfileType;
    let profile_type = match kind {
        SeccompType::RuntimeDefault => ProfileType::RuntimeDefault,
    };
    wire::SecurityProfile { profile_type: profile_type.into() }
}
