//! A pod's volumes on the node, as the kubelet prepares them, and where containers see them.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::place::Place;
use crate::cri::wire;
use crate::kubelet::config_map;
use crate::manifests::Manifests;
use crate::manifests::types::{
    Container, HostPath, HostPathType, RecursiveReadOnly, Volume, VolumeMount,
};

/// Creates and checks the pod's volumes.
pub(super) fn set_up(manifests: &Manifests, place: &Place) -> Result<()> {
    for volume in &manifests.pod().volumes {
        if let Some(host_path) = &volume.host_path {
            check(host_path, &of_volume(place, volume))
                .with_context(|| format!("volume {} cannot be mounted", volume.name))?;
        }
    }
    write_config(manifests, place)
}

/// Writes the ConfigMap to the volumes that mount it.
pub(super) fn write_config(manifests: &Manifests, place: &Place) -> Result<()> {
    let volumes = manifests.pod().volumes.iter().filter(|volume| volume.config_map.is_some());
    volumes.map(|volume| of_volume(place, volume)).try_for_each(|path| {
        let data = manifests.config_map.iter().flat_map(|map| &map.data);
        config_map::write(&path, data.map(|(name, text)| (name.as_str(), text.as_str())))
    })
}

pub(super) fn mounts(
    manifests: &Manifests,
    container: &Container,
    place: &Place,
    recursive: bool,
) -> Result<Vec<wire::Mount>> {
    let mount = |mount: &VolumeMount| {
        let volume = manifests.pod().volume(&mount.name)?;
        // A ConfigMap cannot be written through, whatever is asked for.
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
            host_path: of_volume(place, volume).display().to_string(),
            readonly,
            recursive_read_only,
        })
    };
    container.volume_mounts.iter().map(mount).collect()
}

fn of_volume(place: &Place, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        Some(host_path) => on_node(place, &host_path.path),
        None => place.directory.join("volumes/kubernetes.io~configmap").join(&volume.name),
    }
}

/// The kernel's file systems are not below [`NodeLayout::root`].
pub(super) fn on_node(place: &Place, path: &str) -> PathBuf {
    let kernels = ["/sys", "/proc", "/dev"].iter().any(|top| Path::new(path).starts_with(top));
    if kernels { PathBuf::from(path) } else { place.root.join(path.trim_start_matches('/')) }
}

fn check(volume: &HostPath, path: &Path) -> Result<()> {
    let make_directory = |path: &Path| {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.with_context(|| format!("cannot make {}", path.display()))
    };
    if !path.exists() {
        match volume.r#type {
            HostPathType::DirectoryOrCreate => make_directory(path)?,
            HostPathType::FileOrCreate => {
                // As the kubelet: not the directory around it.
                fs::File::create(path)
                    .with_context(|| format!("cannot make {}", path.display()))?;
            }
            _ => {}
        }
    }
    if volume.r#type == HostPathType::Unset {
        return Ok(());
    }
    let kind = fs::metadata(path).with_context(|| format!("{} is not there", path.display()))?;
    let kind = kind.file_type();
    let right = match volume.r#type {
        HostPathType::Unset => true,
        HostPathType::Directory | HostPathType::DirectoryOrCreate => kind.is_dir(),
        HostPathType::File | HostPathType::FileOrCreate => kind.is_file(),
        HostPathType::Socket => kind.is_socket(),
    };
    ensure!(right, "{} is no {:?}", path.display(), volume.r#type);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Driver;

    #[test]
    fn a_host_path_has_to_be_what_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let found = |path: &Path, r#type| check(&HostPath { path: String::new(), r#type }, path);
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
            assert_eq!(found(path, kind).is_ok(), right, "{kind:?} at {}", path.display());
        }
    }

    #[test]
    fn a_config_map_can_change_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place {
            root: directory.path().join("root"),
            directory: directory.path().to_owned(),
            driver: Driver::Cgroupfs,
        };
        let manifests = Manifests::compose("base").unwrap();
        let volume = manifests.pod().volume("config").unwrap();
        let path = of_volume(&place, volume);
        for _ in 0..2 {
            write_config(&manifests, &place).unwrap();
        }
        let text = fs::read_to_string(path.join("config.yaml")).unwrap();
        assert_eq!(text, manifests.config_map.as_ref().unwrap().data["config.yaml"]);
        assert_eq!(
            fs::read_link(path.join("config.yaml")).unwrap(),
            Path::new("..data/config.yaml")
        );
        let version = fs::read_link(path.join("..data")).unwrap();
        assert!(path.join(version).is_dir());

        let mounts = mounts(&manifests, &manifests.pod().containers[0], &place, true).unwrap();
        let config = mounts.iter().find(|m| m.host_path == path.display().to_string()).unwrap();
        assert!(config.readonly && config.container_path == "/etc/nri-cpu-manager");
        let cgroup = mounts.iter().find(|m| m.host_path == "/sys/fs/cgroup").unwrap();
        assert!(!cgroup.readonly);
    }
}
