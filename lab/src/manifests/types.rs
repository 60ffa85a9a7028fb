//! The fields of a DaemonSet and a ConfigMap that the lab's kubelet supports, which are those that
//! the shipped manifests have. Any other field or value is an error, so that nothing in the
//! manifests is ignored silently.

use std::collections::BTreeMap;

use anyhow::{Context, Error, Result, bail};
use quantity::Quantity;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub fn read<T: DeserializeOwned>(resource: Value) -> Result<T> {
    let kind = resource["kind"].clone();
    serde_json::from_value(resource)
        .with_context(|| format!("the lab's kubelet does not support this {kind}"))
}

/// A field without a meaning here: it is for the API server, the scheduler or controllers, for
/// repeated probes, which the lab runs only once, or for SELinux, which its nodes do not have.
pub type Ignored = Option<Value>;

/// Declares API structs that refuse unknown fields.
macro_rules! api {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Deserialize)]
            #[serde(deny_unknown_fields, rename_all = "camelCase")]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        )*
    };
}

api! {
    /// `apps/v1` DaemonSet.
    DaemonSet {
        api_version: Ignored,
        kind: Ignored,
        metadata: Metadata,
        spec: DaemonSetSpec,
    }

    /// `v1` ConfigMap.
    ConfigMap {
        api_version: Ignored,
        kind: Ignored,
        metadata: Metadata,
        data: BTreeMap<String, String>,
    }

    Metadata {
        name: String,
        namespace: String,
        labels: Ignored,
    }

    DaemonSetSpec {
        selector: Selector,
        update_strategy: Ignored,
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
        priority_class_name: Ignored,
        tolerations: Ignored,
        node_selector: Ignored,
        enable_service_links: Ignored,
        /// The lab has no service accounts.
        automount_service_account_token: bool,
        #[serde(default, rename = "hostPID")]
        host_pid: bool,
        #[serde(default)]
        init_containers: Vec<ContainerSpec>,
        containers: Vec<ContainerSpec>,
        volumes: Vec<Volume>,
    }

    ContainerSpec {
        name: String,
        image: String,
        #[serde(default)]
        command: Vec<String>,
        args: Vec<String>,
        #[serde(default)]
        env: Vec<Variable>,
        #[serde(default)]
        ports: Vec<Port>,
        liveness_probe: Option<Probe>,
        readiness_probe: Option<Probe>,
        resources: Resources,
        security_context: SecurityContext,
        volume_mounts: Vec<VolumeMount>,
    }

    Port {
        name: String,
        container_port: u16,
    }

    Probe {
        http_get: HttpGet,
        timeout_seconds: u64,
        period_seconds: Ignored,
    }

    /// From the pod's own address.
    HttpGet {
        path: String,
        /// The name of a port.
        port: String,
    }

    Variable {
        name: String,
        value: Option<String>,
        value_from: Option<ValueFrom>,
    }

    ValueFrom {
        field_ref: FieldRef,
    }

    FieldRef {
        field_path: FieldPath,
    }

    Resources {
        #[serde(default)]
        requests: Amounts,
        #[serde(default)]
        limits: Amounts,
    }

    /// With the API's units.
    #[derive(Default)]
    Amounts {
        cpu: Option<String>,
        memory: Option<String>,
    }

    /// The user is mandatory: the lab's kubelet does not read it from the image.
    SecurityContext {
        run_as_user: i64,
        allow_privilege_escalation: bool,
        read_only_root_filesystem: bool,
        capabilities: Capabilities,
        seccomp_profile: SeccompProfile,
        se_linux_options: Ignored,
    }

    /// Names without `CAP_`.
    Capabilities {
        #[serde(default)]
        add: Vec<String>,
        drop: Vec<String>,
    }

    SeccompProfile {
        r#type: SeccompType,
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
        r#type: HostPathType,
    }

    ConfigMapVolume {
        name: String,
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub enum FieldPath {
    #[serde(rename = "spec.nodeName")]
    NodeName,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub enum SeccompType {
    RuntimeDefault,
}

/// Whether mounts below a read-only mount are read-only, too.
#[derive(Debug, Clone, Copy, Deserialize)]
pub enum RecursiveReadOnly {
    /// Where the runtime can do it.
    IfPossible,
}

/// What must exist before a pod starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum HostPathType {
    Directory,
    DirectoryOrCreate,
    File,
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
        let all =
            [("livenessProbe", &self.liveness_probe), ("readinessProbe", &self.readiness_probe)];
        all.into_iter().filter_map(|(name, probe)| Some((name, probe.as_ref()?)))
    }

    pub fn port(&self, name: &str) -> Result<u16> {
        let port = self.ports.iter().find(|port| port.name == name);
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
