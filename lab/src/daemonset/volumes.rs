//! A pod's volumes on the node, prepared like a kubelet, and their mounts in containers.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cgroup::Driver;
use crate::cri::wire;
use crate::kubelet::write_config_map;
use crate::manifests::Manifests;
use crate::manifests::types::{
    ContainerSpec, HostPath, HostPathType, RecursiveReadOnly, Volume, VolumeMount,
};

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
            check(host_path, &of_volume(layout, volume))
                .with_context(|| format!("volume {} cannot be mounted", volume.name))?;
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
        let wanted = mount.recursive_read_only.unwrap_or(RecursiveReadOnly::Disabled);
        let recursive_read_only = match wanted {
            RecursiveReadOnly::Disabled => false,
            RecursiveReadOnly::IfPossible => recursive,
            RecursiveReadOnly::Enabled => {
                ensure!(recursive, "the runtime has no recursive read-only mounts");
                true
            }
        };
        Ok(wire::Mount {
            container_path: mount.mount_path.clone(),
            host_path: of_volume(layout, volume).display().to_string(),
            readonly,
            recursive_read_only,
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

fn check(volume: &HostPath, path: &Path) -> Result<()> {
    if !path.exists() {
        match volume.r#type {
            HostPathType::DirectoryOrCreate => fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(path)
                .with_context(|| format!("cannot create {}", path.display()))?,
            HostPathType::FileOrCreate => {
                // As the kubelet: without missing parents.
                fs::File::create(path)
                    .with_context(|| format!("cannot create {}", path.display()))?;
            }
            _ => {}
        }
    }
    if volume.r#type == HostPathType::Unset {
        return Ok(());
    }
    let kind = fs::metadata(path).with_context(|| format!("{} does not exist", path.display()))?;
    let kind = kind.file_type();
    let is_right = match volume.r#type {
        HostPathType::Unset => true,
        HostPathType::Directory | HostPathType::DirectoryOrCreate => kind.is_dir(),
        HostPathType::File | HostPathType::FileOrCreate => kind.is_file(),
        HostPathType::Socket => kind.is_socket(),
    };
    ensure!(is_right, "{} is not a {:?}", path.display(), volume.r#type);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_path_must_be_of_its_type() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let checked = |path: &Path, r#type| check(&HostPath { path: String::new(), r#type }, path);
        let missing = directory.path().join("missing");
        for (path, kind, right) in [
            (directory.path(), HostPathType::Directory, true),
            (&file, HostPathType::Directory, false),
            (&file, HostPathType::DirectoryOrCreate, false),
            (&file, HostPathType::File, true),
            (&file, HostPathType::Socket, false),
            (&missing, HostPathType::Directory, false),
            (&missing, HostPathType::Unset, true),
            (&missing, HostPathType::DirectoryOrCreate, true),
            (&missing, HostPathType::Directory, true),
        ] {
            assert_eq!(checked(path, kind).is_ok(), right, "{kind:?} at {}", path.display());
        }
    }

    #[test]
    fn a_config_map_can_change_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let layout = NodeLayout {
            root: directory.path().join("root"),
            directory: directory.path().to_owned(),
            driver: Driver::Cgroupfs,
        };
        let manifests = Manifests::of("base").unwrap();
        let volume = manifests.pod().volume("config").unwrap();
        let path = of_volume(&layout, volume);
        for _ in 0..2 {
            write_config(&manifests, &layout).unwrap();
        }
        let text = fs::read_to_string(path.join("config.yaml")).unwrap();
        assert_eq!(text, manifests.config_map.as_ref().unwrap().data["config.yaml"]);
        assert_eq!(
            fs::read_link(path.join("config.yaml")).unwrap(),
            Path::new("..data/config.yaml")
        );
        let version = fs::read_link(path.join("..data")).unwrap();
        assert!(path.join(version).is_dir());

        let mounts = mounts(&manifests, &manifests.pod().containers[0], &layout, true).unwrap();
        let config = mounts.iter().find(|m| m.host_path == path.display().to_string()).unwrap();
        assert!(config.readonly && config.container_path == "/etc/nri-cpu-manager");
        let cgroup = mounts.iter().find(|m| m.host_path == "/sys/fs/cgroup").unwrap();
        assert!(!cgroup.readonly);
    }
}
