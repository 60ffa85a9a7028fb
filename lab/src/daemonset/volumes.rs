//! A pod's volumes on the node, prepared like a kubelet, and their mounts in containers.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::cgroup::Driver;
use crate::cri::wire;
use crate::files;
use crate::kubelet::write_config_map;
use crate::manifests::Manifests;
use crate::manifests::types::{ContainerSpec, HostPathType, Volume, VolumeMount};

/// The node's directories and cgroup driver, for a DaemonSet's pod.
#[derive(Debug, Clone)]
pub(super) struct NodeLayout {
    /// Stands for the node's root directory in `hostPath` volumes.
    pub root: PathBuf,
    /// The kubelet's directory: volumes and logs.
    pub directory: PathBuf,
    pub driver: Driver,
}

/// Creates and checks the pod's volumes.
pub(super) fn set_up(manifests: &Manifests, layout: &NodeLayout) -> Result<()> {
    for volume in &manifests.pod().volumes {
        if let Some(host_path) = &volume.host_path {
            let path = on_node(layout, &host_path.path);
            if host_path.r#type == HostPathType::DirectoryOrCreate {
                files::make_directory(&path)?;
            }
            ensure!(
                path.is_dir(),
                "volume {} cannot be mounted: the directory {} does not exist",
                volume.name,
                path.display()
            );
        }
    }
    write_config(manifests, layout)
}

/// Writes the ConfigMap to the volumes that mount it.
pub(super) fn write_config(manifests: &Manifests, layout: &NodeLayout) -> Result<()> {
    let volumes = manifests.pod().volumes.iter().filter(|volume| volume.config_map.is_some());
    volumes.map(|volume| of_volume(layout, volume)).try_for_each(|path| {
        let data = manifests.config_map.iter().flat_map(|map| &map.data);
        write_config_map(&path, data.map(|(name, text)| (name.as_str(), text.as_str())))
    })
}

pub(super) fn mounts(
    manifests: &Manifests,
    container: &ContainerSpec,
    layout: &NodeLayout,
    recursive: bool,
) -> Result<Vec<wire::Mount>> {
    let mount = |mount: &VolumeMount| {
        let volume = manifests.pod().volume(&mount.name)?;
        // Mounts of a ConfigMap are always read-only.
        let readonly = mount.read_only || volume.config_map.is_some();
        Ok(wire::Mount {
            container_path: mount.mount_path.clone(),
            host_path: of_volume(layout, volume).display().to_string(),
            readonly,
            // Where the runtime can do it.
            recursive_read_only: recursive && mount.recursive_read_only.is_some(),
        })
    };
    container.volume_mounts.iter().map(mount).collect()
}

fn of_volume(layout: &NodeLayout, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        Some(host_path) => on_node(layout, &host_path.path),
        None => layout.directory.join("volumes/kubernetes.io~configmap").join(&volume.name),
    }
}

/// The kernel's file systems are not below [`NodeLayout::root`].
pub(super) fn on_node(layout: &NodeLayout, path: &str) -> PathBuf {
    let is_kernels = ["/sys", "/proc", "/dev"].iter().any(|top| Path::new(path).starts_with(top));
    if is_kernels { PathBuf::from(path) } else { layout.root.join(path.trim_start_matches('/')) }
}
