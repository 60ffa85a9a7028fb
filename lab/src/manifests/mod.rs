//! `manifests/` as shipped, rendered by kustomize, as far as the lab's kubelet supports them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

pub mod types;

use crate::command::{command, run};
use crate::{cache, files};
use types::{ConfigMap, DaemonSet, PodSpec, Variable};

#[derive(Debug, Clone)]
pub struct Manifests {
    pub daemon_set: DaemonSet,
    /// None in `uninstall`.
    pub config_map: Option<ConfigMap>,
}

/// The part that undoes the plugin's work.
const UNINSTALL: &str = "uninstall";

/// The overlay with the mounts for interrupts and latency knobs.
const QUIET: &str = "quiet";

/// The base, and the overlays that the lab's nodes use.
const PARTS: [&str; 7] =
    ["base", UNINSTALL, "host-pid", "kernel-exclusivity", "migrate", "podresources", QUIET];

/// The directory of a part: the base, `uninstall` or an overlay.
fn part(root: &Path, name: &str) -> PathBuf {
    match name {
        "base" | UNINSTALL => root.join(name),
        overlay => root.join("overlays").join(overlay),
    }
}

/// The documents of a directory with a `kustomization.yaml`, as `kubectl apply -k` applies them.
fn rendered(directory: &Path) -> Result<String> {
    run(&mut command(cache::repository().join("hack/kustomize"), [directory]))
}

/// Renders the parts that [`Manifests::for_config`] and [`Manifests::for_uninstall`] need, a file
/// each.
pub fn render(into: &Path) -> Result<()> {
    files::make_directory(into)?;
    for name in PARTS {
        let text = rendered(&part(&cache::repository().join("manifests"), name))?;
        files::write(&file(into, name), text)?;
    }
    Ok(())
}

/// The file of a rendered part.
fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.yaml"))
}

/// Key of the ConfigMap.
const CONFIG: &str = "config.yaml";

/// The part that a configuration needs: privileges for `exclusivity: kernel`, a mount for
/// `podResources`, the host's threads for `rebalance`. The base serves all others, including
/// `exclusivity: auto`.
fn part_for(config: &str) -> Result<&'static str> {
    let yaml: Value =
        serde_yaml::from_str(config).context("the plugin's configuration is not YAML")?;
    let has = |field: &str| !yaml[field].is_null();
    match (yaml["exclusivity"] == "kernel", has("podResources")) {
        (false, false) if has("rebalance") => Ok("host-pid"),
        (false, false) => Ok("base"),
        (true, false) => Ok("kernel-exclusivity"),
        (false, true) => Ok("podresources"),
        (true, true) => bail!("no overlay is for exclusivity: kernel with podResources"),
    }
}

impl Manifests {
    /// `base`, `uninstall` or an overlay of the repository. Unsupported content is an error.
    pub fn of(name: &str) -> Result<Self> {
        let directory = part(&cache::repository().join("manifests"), name);
        Self::parse(&rendered(&directory)?)
            .with_context(|| format!("invalid manifests in {}", directory.display()))
    }

    /// The manifests for a configuration, of what [`render`] wrote.
    pub fn for_config(rendered: &Path, config: &str) -> Result<Self> {
        Ok(Self::read(&file(rendered, part_for(config)?))?.configured(config))
    }

    /// `uninstall` of what [`render`] wrote, with or without `--containers` (docs/install.md).
    pub fn for_uninstall(rendered: &Path, containers: bool) -> Result<Self> {
        let mut manifests = Self::read(&file(rendered, UNINSTALL))?;
        if containers {
            for init in &mut manifests.pod_mut().init_containers {
                init.args.push("--containers".to_owned());
            }
        }
        Ok(manifests)
    }

    /// Adds the volumes and the environment of the overlay `quiet` of what [`render`] wrote to
    /// every container: no shipped overlay has them together with another one's privileges.
    pub fn with_quiet_cpus(mut self, rendered: &Path) -> Result<Self> {
        let [base, quiet] = ["base", QUIET].map(|name| Self::read(&file(rendered, name)));
        let base = base?;
        let quiet = quiet?;
        let plugin = &quiet.pod().containers[0];
        let volumes = quiet.pod().volumes.iter();
        for volume in volumes.filter(|volume| base.pod().volume(&volume.name).is_err()) {
            if self.pod().volume(&volume.name).is_ok() {
                continue;
            }
            let pod = self.pod_mut();
            pod.volumes.push(volume.clone());
            for container in pod.init_containers.iter_mut().chain(&mut pod.containers) {
                let mounts = plugin.volume_mounts.iter().filter(|one| one.name == volume.name);
                container.volume_mounts.extend(mounts.cloned());
            }
        }
        let pod = self.pod_mut();
        for container in pod.init_containers.iter_mut().chain(&mut pod.containers) {
            let is_new = |one: &&Variable| container.env.iter().all(|own| own.name != one.name);
            let variables: Vec<Variable> = plugin.env.iter().filter(is_new).cloned().collect();
            container.env.extend(variables);
        }
        Ok(self)
    }

    /// Replaces the configuration, if there is a ConfigMap.
    pub fn configured(mut self, config: &str) -> Self {
        if let Some(map) = &mut self.config_map {
            map.data.insert(CONFIG.to_owned(), config.to_owned());
        }
        self
    }

    fn read(file: &Path) -> Result<Self> {
        Self::parse(&files::read(file)?)
            .with_context(|| format!("invalid manifests in {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let (mut daemon_set, mut config_map) = (None, None);
        for document in serde_yaml::Deserializer::from_str(text) {
            let resource = Value::deserialize(document)?;
            match resource["kind"].as_str() {
                Some("DaemonSet") => daemon_set = Some(types::read::<DaemonSet>(resource)?),
                Some("ConfigMap") => config_map = Some(types::read::<ConfigMap>(resource)?),
                // The lab has no API server that would admit pods.
                Some(
                    "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding" | "NetworkPolicy",
                ) => {}
                Some("SecurityContextConstraints" | "ClusterRole" | "RoleBinding") => {}
                _ => bail!("unsupported kind: {}", resource["kind"]),
            }
        }
        let manifests = Self { daemon_set: daemon_set.context("no DaemonSet")?, config_map };
        manifests.check()?;
        Ok(manifests)
    }

    pub fn pod(&self) -> &PodSpec {
        &self.daemon_set.spec.template.spec
    }

    /// For tests of what fails without a privilege.
    pub fn pod_mut(&mut self) -> &mut PodSpec {
        &mut self.daemon_set.spec.template.spec
    }

    /// Replaces a text of the configuration, which must occur exactly once.
    pub fn edited(mut self, from: &str, to: &str) -> Result<Self> {
        let texts = self.config_map.iter().flat_map(|map| map.data.values());
        let times: usize = texts.map(|text| text.matches(from).count()).sum();
        ensure!(times == 1, "the configuration must have {from:?} once, has it {times} times");
        for text in self.config_map.iter_mut().flat_map(|map| map.data.values_mut()) {
            *text = text.replace(from, to);
        }
        Ok(self)
    }

    /// Finds what an API server or a kubelet would refuse.
    fn check(&self) -> Result<()> {
        let (spec, meta) = (&self.daemon_set.spec, &self.daemon_set.metadata);
        let labels = &spec.template.metadata.labels;
        let selected = spec.selector.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v));
        ensure!(selected, "the selector does not match the template's labels");
        let map = self.config_map.as_ref().map(|map| &map.metadata);
        ensure!(
            map.is_none_or(|map| map.namespace == meta.namespace),
            "the DaemonSet and its ConfigMap are in different namespaces"
        );
        let pod = self.pod();
        ensure!(!pod.automount_service_account_token, "automountServiceAccountToken must be false");
        for container in pod.init_containers.iter().chain(&pod.containers) {
            for mount in &container.volume_mounts {
                pod.volume(&mount.name)?;
                ensure!(
                    mount.recursive_read_only.is_none() || mount.read_only,
                    "{}: recursiveReadOnly needs readOnly",
                    mount.mount_path
                );
            }
        }
        for volume in pod.volumes.iter().filter_map(|v| v.config_map.as_ref()) {
            ensure!(map.is_some_and(|map| map.name == volume.name), "no ConfigMap {}", volume.name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
