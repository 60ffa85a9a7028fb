//! Removes what belongs to one containerd. Finds it by its directories, so that it also works after
//! a crash.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;

use super::ContainerdSetup;
use crate::command::poll;
use crate::{cache, process};

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn remove(setup: &ContainerdSetup) -> Result<()> {
    end_processes(setup)?;
    for directory in [&setup.run, &setup.data] {
        unmount_below(directory)?;
        cache::remove(directory)?;
    }
    Ok(())
}

/// containerd, its shims and its plugins have the run directory in their command lines; containers
/// are children of shims, or have a shim's id in their cgroup.
fn end_processes(setup: &ContainerdSetup) -> Result<()> {
    let marker = format!("{}/", setup.run.display());
    let have_ended = || {
        let ours = ours(&marker);
        ours.iter().for_each(|pid| process::signal(*pid, Signal::SIGKILL));
        Ok(ours.is_empty().then_some(()))
    };
    poll(PATIENCE, have_ended)?
        .with_context(|| format!("processes of {} survive SIGKILL", setup.run.display()))
}

fn ours(marker: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut pids = Vec::new();
    for pid in process::all() {
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line);
        let words: Vec<&str> = line.split('\0').collect();
        let program = words.first().map(|w| w.rsplit('/').next().unwrap_or(w)).unwrap_or_default();
        if !["containerd", "nri-cpu-manager"].iter().any(|name| program.starts_with(name))
            || !words.iter().any(|word| word.starts_with(marker))
        {
            continue;
        }
        pids.push(pid);
        ids.extend(words.windows(2).filter(|pair| pair[0] == "-id").map(|pair| pair[1].to_owned()));
    }
    // A pod's shim names the sandbox; the pod's other containers are the shim's children.
    for pid in process::all() {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if pids.contains(&process::parent(pid).unwrap_or(0))
            || ids.iter().any(|id| cgroup.contains(id.as_str()))
        {
            pids.push(pid);
        }
    }
    let own = std::process::id();
    pids.retain(|pid| *pid != own && process::is_alive(*pid));
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn unmount_below(directory: &Path) -> Result<()> {
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the list of mounts")?;
    let prefix = format!("{}/", directory.display());
    let mut points: Vec<&str> = mounts
        .lines()
        .filter_map(|l| l.split(' ').nth(4))
        .filter(|p| p.starts_with(&prefix))
        .collect();
    // Inner mounts come after outer ones.
    points.reverse();
    for point in points {
        umount2(point, MntFlags::MNT_DETACH).with_context(|| format!("cannot unmount {point}"))?;
    }
    Ok(())
}
