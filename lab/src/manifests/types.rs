//! The fields of a DaemonSet and a ConfigMap that the lab's kubelet supports. An unknown field is
//! an error, so that nothing in the manifests is ignored silently.
//!
//! Fields of type [`IgnoredAny`] have no meaning here: they are for the scheduler, for controllers,
//! or for repeated probes, which the lab runs only once.

use std::collections::BTreeMap;

use anyhow::{Context, Error, Result, bail};
use quantity::Quantity;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub fn read<T: DeserializeOwned>(resource: Value) -> Result<T> {
    let kind = resource["kind"].clone();
    serde_json::from_value(resource)
        .with_context(|| format!("the lab's kubelet does not support this {kind}"))
}

/// Declares API structs that refuse unknown fields.
macro_rules! api {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Serialize, Deserialize)]
            #[serde(deny_unknown_fields, rename_all = "camelCase")]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        )*
    };
}

api! {
    /// `apps/v1` DaemonSet.
    DaemonSet {
        api_version: String,
        kind: String,
        metadata: Metadata,
        spec: DaemonSetSpec,
    }

    /// `v1` ConfigMap.
    ConfigMap {
        api_version: String,
        kind: String,
        metadata: Metadata,
        data: BTreeMap<String, String>,
    }

    Metadata {
        name: String,
        namespace: Option<String>,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }

    DaemonSetSpec {
        selector: Selector,
        #[serde(default, skip_serializing)]
        update_strategy: IgnoredAny,
        template: Template,
    }

    Selector {
        match_labels: BTreeMap<String, String>,
    }

    Template {
        metadata: TemplateMetadata,
        spec: PodSpec,
    }

    TemplateMetadata {
        labels: BTreeMap<String, String>,
    }

    PodSpec {
        #[serde(default, skip_serializing)]
        priority_class_name: IgnoredAny,
        #[serde(default, skip_serializing)]
        tolerations: IgnoredAny,
        #[serde(default, skip_serializing)]
        node_selector: IgnoredAny,
        #[serde(default, skip_serializing)]
        enable_service_links: IgnoredAny,
        /// The lab has no service accounts.
        automount_service_account_token: bool,
        #[serde(default, rename = "hostPID")]
        host_pid: bool,
        /// Ignored: all pods of the lab use the host's network.
        #[serde(default, skip_serializing)]
        host_network: IgnoredAny,
        #[serde(default)]
        init_containers: Vec<ContainerSpec>,
        containers: Vec<ContainerSpec>,
        #[serde(default)]
        volumes: Vec<Volume>,
    }

    ContainerSpec {
        name: String,
        image: String,
        #[serde(default)]
        command: Vec<String>,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: Vec<Variable>,
        #[serde(default)]
        ports: Vec<Port>,
        startup_probe: Option<Probe>,
        liveness_probe: Option<Probe>,
        readiness_probe: Option<Probe>,
        resources: Resources,
        security_context: SecurityContext,
        #[serde(default)]
        volume_mounts: Vec<VolumeMount>,
    }

    Port {
        name: Option<String>,
        container_port: u16,
        #[serde(default, skip_serializing)]
        protocol: IgnoredAny,
    }

    /// Only HTTP probes are supported.
    Probe {
        http_get: HttpGet,
        #[serde(default = "one")]
        timeout_seconds: u64,
        #[serde(default, skip_serializing)]
        period_seconds: IgnoredAny,
        #[serde(default, skip_serializing)]
        initial_delay_seconds: IgnoredAny,
        #[serde(default, skip_serializing)]
        success_threshold: IgnoredAny,
        #[serde(default, skip_serializing)]
        failure_threshold: IgnoredAny,
    }

    /// From the pod's own address.
    HttpGet {
        path: String,
        port: PortRef,
    }

    Variable {
        name: String,
        #[serde(default)]
        value: String,
        value_from: Option<ValueFrom>,
    }

    ValueFrom {
        field_ref: FieldRef,
    }

    FieldRef {
        field_path: String,
    }

    Resources {
        #[serde(default)]
        requests: Amounts,
        #[serde(default)]
        limits: Amounts,
    }

    /// The user is mandatory: the lab's kubelet does not read it from the image.
    SecurityContext {
        run_as_user: i64,
        run_as_group: Option<i64>,
        #[serde(default)]
        run_as_non_root: bool,
        #[serde(default)]
        privileged: bool,
        allow_privilege_escalation: Option<bool>,
        #[serde(default)]
        read_only_root_filesystem: bool,
        #[serde(default)]
        capabilities: Capabilities,
        seccomp_profile: Option<SeccompProfile>,
        se_linux_options: Option<SeLinuxOptions>,
    }

    /// A profile that needs no file on the node.
    SeccompProfile {
        r#type: SeccompType,
    }

    /// SELinux' label of a container's processes.
    SeLinuxOptions {
        #[serde(default)]
        user: String,
        #[serde(default)]
        role: String,
        #[serde(default)]
        r#type: String,
        #[serde(default)]
        level: String,
    }

    VolumeMount {
        name: String,
        mount_path: String,
        #[serde(default)]
        read_only: bool,
        recursive_read_only: Option<RecursiveReadOnly>,
    }

    /// Exactly one kind is set.
    Volume {
        name: String,
        host_path: Option<HostPath>,
        config_map: Option<ConfigMapVolume>,
    }

    HostPath {
        path: String,
        #[serde(default)]
        r#type: HostPathType,
    }

    ConfigMapVolume {
        name: String,
    }
}

/// By number or by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortRef {
    Number(u16),
    Name(String),
}

/// With the API's units.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    cpu: Option<String>,
    memory: Option<String>,
}

/// Capabilities beyond, or less than, what a container has by default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Names without `CAP_`.
    #[serde(default)]
    pub add: Vec<String>,
    /// As `add`, or `ALL`.
    #[serde(default)]
    pub drop: Vec<String>,
}

/// Which system calls are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompType {
    /// As the runtime thinks right.
    RuntimeDefault,
    /// None.
    Unconfined,
}

/// Whether mounts below a mount are read-only, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecursiveReadOnly {
    /// They are not.
    Disabled,
    /// Where the runtime can do it.
    IfPossible,
    /// Or the container must not start.
    Enabled,
}

/// What must exist before a pod starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HostPathType {
    /// Nothing is checked.
    #[default]
    #[serde(rename = "")]
    Unset,
    Directory,
    DirectoryOrCreate,
    File,
    FileOrCreate,
    Socket,
}

impl PodSpec {
    pub fn volume(&self, name: &str) -> Result<&Volume> {
        let volume = self.volumes.iter().find(|volume| volume.name == name);
        let volume = volume.with_context(|| format!("no volume {name}"))?;
        if volume.host_path.is_some() == volume.config_map.is_some() {
            bail!("volume {name} must be either a hostPath or a configMap");
        }
        Ok(volume)
    }
}

impl ContainerSpec {
    pub fn probes(&self) -> impl Iterator<Item = (&'static str, &Probe)> {
        let all = [
            ("startupProbe", &self.startup_probe),
            ("livenessProbe", &self.liveness_probe),
            ("readinessProbe", &self.readiness_probe),
        ];
        all.into_iter().filter_map(|(name, probe)| Some((name, probe.as_ref()?)))
    }

    pub fn port(&self, port: &PortRef) -> Result<u16> {
        let name = match port {
            PortRef::Number(number) => return Ok(*number),
            PortRef::Name(name) => name,
        };
        let port = self.ports.iter().find(|port| port.name.as_ref() == Some(name));
        let port = port.with_context(|| format!("{} has no port {name}", self.name))?;
        Ok(port.container_port)
    }
}

impl Amounts {
    /// 0 if unset.
    pub fn milli_cpu(&self) -> Result<i64> {
        milli(self.cpu.as_deref())
    }

    /// Bytes; 0 if unset.
    pub fn memory(&self) -> Result<i64> {
        Ok(milli(self.memory.as_deref())? / 1000)
    }
}

fn milli(amount: Option<&str>) -> Result<i64> {
    let Some(text) = amount else { return Ok(0) };
    let amount = Quantity::parse(text).map_err(Error::msg)?;
    i64::try_from(amount.milli()).with_context(|| format!("{text:?} is too large"))
}

/// Default timeout of a probe in seconds.
fn one() -> u64 {
    1
}
