//! The cgroups a kubelet makes (its cgroupfs driver): `kubepods`, the QoS classes below it, and one for each pod.
//!
//! With cgroup v2 they are made like the kubelet does, limits included. With v1 the OCI runtime makes them on the way,
//! and only the clearing away is left.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::pod::{CPU_PERIOD, Pod};

const ROOT: &str = "/sys/fs/cgroup";
const CLASSES: [&str; 3] = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];

/// Whether this machine has the unified hierarchy.
#[must_use]
pub fn is_v2() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// Makes `kubepods` and the classes below it.
///
/// # Errors
/// When a cgroup cannot be made.
pub fn prepare() -> Result<()> {
    if !is_v2() {
        return Ok(());
    }
    let root = Path::new(ROOT);
    delegate(root)?;
    let online = fs::read_to_string("/sys/devices/system/cpu/online")
        .context("cannot read the online CPUs")?;
    for class in CLASSES {
        make(&root.join(class))?;
    }
    // As the kubelet does: `kubepods` may use every CPU.
    write(&root.join("kubepods/cpuset.cpus"), online.trim())
}

/// Makes the cgroup of a pod, with its share and limit.
///
/// # Errors
/// When the cgroup cannot be made.
pub fn add_pod(pod: &Pod) -> Result<()> {
    if !is_v2() {
        return Ok(());
    }
    let path = Path::new(ROOT).join(pod.cgroup_parent().trim_start_matches('/'));
    make(&path)?;
    let resources = pod.resources();
    write(&path.join("cpu.weight"), &weight(resources.cpu_shares).to_string())?;
    if pod.containers.iter().all(|container| container.cpu_limit > 0) {
        write(&path.join("cpu.max"), &format!("{} {CPU_PERIOD}", resources.cpu_quota))?;
    }
    Ok(())
}

/// Removes a pod's cgroup in every hierarchy.
///
/// # Errors
/// When it cannot be removed, for example because something still runs in it.
pub fn remove_pod(pod: &Pod) -> Result<()> {
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(pod.cgroup_parent().trim_start_matches('/')))?;
    }
    Ok(())
}

/// Removes `kubepods` where nothing is left in it.
pub fn tidy() {
    for hierarchy in hierarchies() {
        for class in CLASSES.iter().rev() {
            // Not empty: somebody else's pods.
            let _ = fs::remove_dir(hierarchy.join(class));
        }
    }
}

fn hierarchies() -> Vec<PathBuf> {
    if is_v2() {
        return vec![PathBuf::from(ROOT)];
    }
    fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .with_context(|| format!("cannot make the cgroup {}", path.display()))?;
    delegate(path)
}

fn delegate(path: &Path) -> Result<()> {
    write(&path.join("cgroup.subtree_control"), "+cpuset +cpu +memory +pids")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

fn remove_tree(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the cgroup {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// cgroup v1's shares (2 to 262144) on the scale of v2's weight (1 to 10000).
fn weight(shares: i64) -> i64 {
    1 + (shares.max(2) - 2) * 9999 / 262_142
}
