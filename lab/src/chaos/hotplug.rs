//! CPUs that go offline and come back at random. After each change the root cgroup must not have
//! CPUs of a valid partition: all tasks that no cgroup binds would run there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cpuset::CpuSet;
use fastrand::Rng;

use super::storm::Storm;
use crate::{files, kernel};

/// Longest pause between two changes, in milliseconds.
const PAUSE: u64 = 3_000;
/// Most CPUs that are offline at a time.
const MOST: usize = 2;
/// CPUs without exclusive containers that stay online.
const SHARED: usize = 2;
/// For the kernel and the plugin to follow a change.
const SETTLED: Duration = Duration::from_secs(5);

/// Runs until the storm is over; all CPUs are online then, and whenever all activity rests.
pub(super) fn run(storm: &Storm<'_>) -> Result<()> {
    let mut rng = Rng::with_seed(storm.settings.seed.wrapping_add(2));
    while !storm.is_over() {
        pause(&mut rng);
        let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
        let mut offline = Vec::new();
        let gone = take_some(storm, &mut rng, &mut offline);
        // Also after an error.
        rng.shuffle(&mut offline);
        for cpu in offline {
            change(storm, cpu, true)?;
            pause(&mut rng);
        }
        gone?;
    }
    Ok(())
}

fn pause(rng: &mut Rng) {
    std::thread::sleep(Duration::from_millis(rng.u64(0..PAUSE)));
}

fn take_some(storm: &Storm<'_>, rng: &mut Rng, offline: &mut Vec<usize>) -> Result<()> {
    for _ in 0..rng.usize(1..=MOST) {
        let Some(cpu) = some_dispensable(storm, rng)? else { return Ok(()) };
        offline.push(cpu);
        if let Err(error) = change(storm, cpu, false) {
            // The scheduler may want the CPU for deadline servers' bandwidth. It is online then.
            let busy = |cause: &io::Error| cause.kind() == io::ErrorKind::ResourceBusy;
            let is_busy = error.chain().filter_map(|cause| cause.downcast_ref()).any(busy);
            return if is_busy { Ok(()) } else { Err(error) };
        }
        pause(rng);
    }
    Ok(())
}

/// A CPU that leaves enough shared ones. Never the first one, which Linux cannot take offline
/// everywhere.
fn some_dispensable(storm: &Storm<'_>, rng: &mut Rng) -> Result<Option<usize>> {
    let online = kernel::cpus("online")?;
    let shared = online - storm.witness.exclusive();
    let leaves_enough = |cpu: &usize| {
        let left = shared.len() - usize::from(shared.contains(*cpu));
        *cpu != 0 && left >= SHARED
    };
    Ok(rng.choice(online.iter().filter(leaves_enough).collect::<Vec<_>>()))
}

fn change(storm: &Storm<'_>, cpu: usize, online: bool) -> Result<()> {
    let which = CpuSet::of(cpu).context("a CPU beyond the limit")?;
    if !online {
        storm.witness.loses(which);
    }
    kernel::set_online(cpu, online)?;
    if online {
        storm.witness.regains(which);
    }
    if let Some(count) = &mut storm.counts().hotplug {
        *count += 1;
    }
    let start = Instant::now();
    while let Some(leak) = leak()? {
        if start.elapsed() > SETTLED {
            let became = if online { "online" } else { "offline" };
            storm.witness.leaks(&format!("{leak}, {SETTLED:?} after CPU {cpu} went {became}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// CPUs that the root cgroup and a valid partition have.
fn leak() -> Result<Option<String>> {
    let root = Path::new(kernel::CGROUPS);
    let partitions = partitions(root);
    let effective = effective(root).context("the root cgroup has no CPUs")?;
    let leak = partitions.into_iter().find(|(_, cpus)| !cpus.is_disjoint(&effective));
    Ok(leak.map(|(path, cpus)| {
        let path = path.strip_prefix(root).unwrap_or(&path).display();
        format!("the root cgroup has {effective}, and partition {path} has {cpus}")
    }))
}

/// All valid partitions below a cgroup. One that is removed meanwhile has no files.
fn partitions(group: &Path) -> Vec<(PathBuf, CpuSet)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let state = files::read_value(&path.join("cpuset.cpus.partition")).unwrap_or_default();
        if let ("root" | "isolated", Some(cpus)) = (state.as_str(), effective(&path)) {
            found.push((path.clone(), cpus));
        }
        found.extend(partitions(&path));
    }
    found
}

fn effective(group: &Path) -> Option<CpuSet> {
    files::read_value(&group.join("cpuset.cpus.effective")).ok()?.parse().ok()
}
