//! A pod's volumes on the node, prepared like a kubelet, and their mounts in containers.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::cgroup::Driver;
use crate::cri::wire;
use crate::files;
use crate::kubelet::write_config_map;
use crate::manifests::Manifests;
use crate::manifests::types::{ContainerSpec, HostPath, HostPathType, Volume, VolumeMount};

/// The node's directories and cgroup driver, for a DaemonSet's pod.
#[derive(Debug)]
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
            let path = of_volume(layout, volume);
            if host_path.r#type == HostPathType::DirectoryOrCreate {
                files::make_directory(&path)?;
            }
            let (exists, kind) = match host_path.r#type {
                HostPathType::File => (path.is_file(), "file"),
                HostPathType::Directory | HostPathType::DirectoryOrCreate => {
                    (path.is_dir(), "directory")
                }
            };
            ensure!(
                exists,
                "volume {} cannot be mounted: the {kind} {} does not exist",
                volume.name,
                path.display()
            );
        }
    }
    write_config(manifests, layout)
}

/// Writes the ConfigMap to the volumes that mount it.
pub(super) fn write_config(manifests: &Manifests, layout: &NodeLayout) -> Result<()> {
    for volume in manifests.pod().volumes.iter().filter(|volume| volume.config_map.is_some()) {
        let data = manifests.config_map.iter().flat_map(|map| &map.data);
        let files = data.map(|(name, text)| (name.as_str(), text.as_str()));
        write_config_map(&of_volume(layout, volume), files)?;
    }
    Ok(())
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

/// The kernel's file systems are not below [`NodeLayout::root`].
fn of_volume(layout: &NodeLayout, volume: &Volume) -> PathBuf {
    let Some(HostPath { path, .. }) = &volume.host_path else {
        return layout.directory.join("volumes/kubernetes.io~configmap").join(&volume.name);
    };
    let is_kernels = ["/sys", "/proc", "/dev"].iter().any(|top| Path::new(path).starts_with(top));
    if is_kernels { PathBuf::from(path) } else { layout.root.join(path.trim_start_matches('/')) }
}
