//! Pods' cgroups as systemd's slices, as a kubelet with the systemd driver has them. Only in guests
//! that run systemd.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::files::{ROOT, write};
use crate::command::{command, run};

const CLASSES: [&str; 3] =
    ["kubepods.slice", "kubepods-burstable.slice", "kubepods-besteffort.slice"];

pub(super) fn prepare() -> Result<()> {
    for class in CLASSES {
        start(class)?;
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online")
        .context("cannot read the online CPUs")?;
    // Beside systemd, as the kubelet does.
    write(&Path::new(ROOT).join("kubepods.slice/cpuset.cpus"), online.trim())
}

/// Starts a slice, and gives it the controllers that the kubelet's have.
pub(super) fn start(name: &str) -> Result<()> {
    systemctl(&["start", name])?;
    let path = directory(name);
    for parent in
        path.ancestors().take_while(|p| p.starts_with(ROOT)).collect::<Vec<_>>().iter().rev()
    {
        write(&parent.join("cgroup.subtree_control"), "+cpuset +cpu +memory +pids")?;
    }
    Ok(())
}

pub(super) fn set(name: &str, property: &str) -> Result<()> {
    systemctl(&["set-property", "--runtime", name, property])
}

pub(super) fn stop(name: &str) -> Result<()> {
    systemctl(&["stop", name])
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    run(&mut command("systemctl", arguments)).map(|_| ())
}

/// `a-b-c.slice` lies in `a-b.slice`, and that in `a.slice`.
fn directory(name: &str) -> PathBuf {
    let stem = name.trim_end_matches(".slice");
    let dashes = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    dashes.fold(PathBuf::from(ROOT), |path, at| path.join(format!("{}.slice", &stem[..at])))
}

#[cfg(test)]
mod tests {
    use super::directory;

    #[test]
    fn slices_lie_in_slices() {
        let path = directory("kubepods-burstable-podu_1.slice");
        let expected = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
        assert_eq!(path.strip_prefix("/sys/fs/cgroup").unwrap().to_str(), Some(expected));
    }
}
