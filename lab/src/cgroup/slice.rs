//! Pods' cgroups as systemd slices, managed like a kubelet with the systemd driver. Only in guests
//! that run systemd.
//!
//! As observed on a node (Kubernetes 1.36): the slice of a class starts before its first pod's and
//! ends with its last pod's; each slice is a unit with its properties; the weights of the classes
//! are set whenever a pod starts or ends. Each of these makes systemd realise the slices concerned:
//! it rewrites their files, including `cpuset.cpus`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::cache;
use crate::command::{command, run};
use crate::files::{make_directory, read_value, write, write_value};
use crate::kernel::{self, CGROUPS};

const KUBEPODS: &str = "kubepods.slice";
const CLASSES: [&str; 2] = ["kubepods-burstable.slice", "kubepods-besteffort.slice"];
/// Lost at a reboot, like transient units.
const UNITS: &str = "/run/systemd/system";
const SET: &str = "/run/systemd/system.control";

/// Held while slices start or end: several kubelets of a storm share the classes.
static TURN: Mutex<()> = Mutex::new(());

/// Enables the controllers that a kubelet enables for the children of its cgroups.
pub(super) fn delegate(cgroup: &Path) -> Result<()> {
    write_value(&cgroup.join("cgroup.subtree_control"), "+cpuset +cpu +memory +pids")
}

pub(super) fn prepare() -> Result<()> {
    start(KUBEPODS, "")?;
    // Not through systemd, as the kubelet does.
    let cpus = Path::new(CGROUPS).join(KUBEPODS).join("cpuset.cpus");
    write_value(&cpus, &kernel::cpus("online")?.to_string())
}

/// Starts the slice of the class first if it does not exist.
pub(super) fn add(name: &str, properties: &str) -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(class) = class_of(name).filter(|class| !directory(class).exists()) {
        start(class, "")?;
    }
    start(name, properties)?;
    weigh_classes()
}

pub(super) fn set(name: &str, property: &str) -> Result<()> {
    systemctl(&["set-property", "--runtime", name, property])
}

/// Also ends the slice of its class if that has no pods left.
pub(super) fn remove(name: &str) -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    stop(name)?;
    if let Some(class) = class_of(name).filter(|class| pods_in(class).is_empty()) {
        stop(class)?;
    }
    weigh_classes()
}

pub(super) fn realise() -> Result<()> {
    systemctl(&["daemon-reload"])
}

/// Starts a slice and enables the kubelet's controllers.
fn start(name: &str, properties: &str) -> Result<()> {
    let unit = format!(
        "[Unit]\nDefaultDependencies=no\n[Slice]\nCPUAccounting=yes\nMemoryAccounting=yes\n\
         IOAccounting=yes\nTasksAccounting=yes\n{properties}\n"
    );
    let file = Path::new(UNITS).join(name);
    make_directory(Path::new(UNITS))?;
    write(&file, unit)?;
    systemctl(&["start", name])?;
    let path = directory(name);
    let above: Vec<&Path> = path.ancestors().take_while(|p| p.starts_with(CGROUPS)).collect();
    above.into_iter().rev().try_for_each(delegate)
}

fn stop(name: &str) -> Result<()> {
    systemctl(&["stop", name])?;
    cache::remove(&Path::new(UNITS).join(name))?;
    cache::remove(&Path::new(SET).join(format!("{name}.d")))
}

/// Like the kubelet: the sum of its pods' weights for Burstable, the minimum for BestEffort.
fn weigh_classes() -> Result<()> {
    for class in CLASSES.iter().filter(|class| directory(class).exists()) {
        let weights = pods_in(class).into_iter().map(|pod| -> Result<u64> {
            let weight = read_value(&pod.join("cpu.weight"))?;
            weight.parse().with_context(|| format!("unexpected weight of {}", pod.display()))
        });
        let sum: u64 = weights.sum::<Result<u64>>()?;
        let weight = if *class == CLASSES[0] { sum.clamp(1, 10_000) } else { 1 };
        set(class, &format!("CPUWeight={weight}"))?;
    }
    Ok(())
}

/// None for a Guaranteed pod.
fn class_of(pod: &str) -> Option<&'static str> {
    let is_below =
        |class: &&&str| pod.starts_with(&format!("{}-", class.trim_end_matches(".slice")));
    CLASSES.iter().find(is_below).copied()
}

fn pods_in(class: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory(class)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    run(&mut command("systemctl", arguments)).map(|_| ())
}

/// `a-b-c.slice` is in `a-b.slice`, which is in `a.slice`.
pub(super) fn directory(name: &str) -> PathBuf {
    let stem = name.trim_end_matches(".slice");
    let dashes = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    dashes.fold(PathBuf::from(CGROUPS), |path, at| path.join(format!("{}.slice", &stem[..at])))
}
