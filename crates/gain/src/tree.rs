//! The program's own cgroups, in the places that a kubelet and a runtime give them: containers of
//! Burstable pods below `burstable`, and the measured container next to it.
//!
//! Nothing outside of this tree is written, except for controllers that the root does not delegate yet:
//! these are enabled, and disabled again at the end. A partition still takes its CPUs from all other
//! programs of the machine: that is its purpose.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use cgroups::{CgroupVersion, Hierarchy, PARTITION, Write, end_partition};
use clap::ValueEnum;
use cpuset::{CgroupPath, CpuSet, PartitionType};
use kernel::{Kernel, Linux};
use serde::{Deserialize, Serialize};

/// Where the node's cgroups are mounted.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
/// The directory of the tree, which stands for `kubepods`.
const NAME: &str = "nri-cpu-manager-gain";
const BURSTABLE: &str = "burstable";
const MEASURED_POD: &str = "pod-measured";
const MEASURED: &str = "pod-measured/c";
const DELEGATION: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";
const CONTROLLERS: [&str; 2] = ["cpu", "cpuset"];
/// The kernel removes ended processes from cgroups with a delay.
const REMOVAL: Duration = Duration::from_secs(10);

/// What keeps neighbours off the measured program's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Nothing: everything shares all CPUs
    None,
    /// CPUs of each neighbour's container, as with `exclusivity: runtime`; on cgroup v1 only
    Runtime,
    /// CPUs of the neighbours' parent cgroup, as with `exclusivity: groups`
    Groups,
    /// A cpuset partition, as with `exclusivity: kernel`
    Kernel,
    /// An isolated cpuset partition: without load balancing
    Isolated,
}

impl Mode {
    pub(crate) const ALL: [Mode; 5] =
        [Mode::None, Mode::Runtime, Mode::Groups, Mode::Kernel, Mode::Isolated];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Mode::None => "no pinning",
            Mode::Runtime => "runtime",
            Mode::Groups => "groups",
            Mode::Kernel => "kernel",
            Mode::Isolated => "isolated",
        }
    }

    pub(crate) fn pins(self) -> bool {
        self != Mode::None
    }

    fn partition(self) -> Option<PartitionType> {
        match self {
            Mode::None | Mode::Runtime | Mode::Groups => None,
            Mode::Kernel => Some(PartitionType::Root),
            Mode::Isolated => Some(PartitionType::Isolated),
        }
    }
}

pub(crate) fn linux() -> Arc<dyn Kernel> {
    Arc::new(Linux)
}

/// Held by one program at a time: several would remove each other's cgroups.
pub(crate) fn lock() -> Result<OwnedFd> {
    Linux.lock(Path::new(ROOT)).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => anyhow!("another bench-gain is running on this machine"),
        _ => anyhow!("cannot lock {ROOT}: {error}"),
    })
}

/// The hierarchies of the controllers `cpu` and `cpuset`, in this order.
fn both(on: &Hierarchy) -> Vec<Hierarchy> {
    match on.version() {
        CgroupVersion::V1 => vec![on.of_cpu(), on.clone()],
        CgroupVersion::V2 => vec![on.clone()],
    }
}

/// Removes the tree with all processes in it, if it exists.
pub(crate) fn remove(on: &Hierarchy) -> Result<()> {
    let tree = path("")?;
    let deadline = Instant::now() + REMOVAL;
    for on in both(on) {
        while let Err(error) = remove_once(&on, &tree) {
            if deadline < Instant::now() {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Controllers that the root delegates only for this program, on cgroup v2.
#[derive(Debug)]
pub(crate) struct Controllers {
    on: Hierarchy,
    added: Vec<&'static str>,
}

impl Controllers {
    pub(crate) fn enable(on: &Hierarchy) -> Result<Controllers> {
        let mut controllers = Controllers { on: on.clone(), added: Vec::new() };
        if on.version() == CgroupVersion::V2 {
            let before = on.read_root(DELEGATION)?;
            for controller in CONTROLLERS {
                if !before.split_whitespace().any(|word| word == controller) {
                    on.write_root(DELEGATION, &format!("+{controller}"))?;
                    controllers.added.push(controller);
                }
            }
        }
        Ok(controllers)
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        for controller in &self.added {
            // The kernel refuses this if another program has come to use the controller.
            if let Err(error) = self.on.write_root(DELEGATION, &format!("-{controller}")) {
                eprintln!("cgroups: the controller {controller} stays enabled: {error}");
            }
        }
    }
}

/// The CPUs of the machine that this program uses.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cpus {
    pub(crate) all: CpuSet,
    /// Those of the measured program.
    pub(crate) exclusive: CpuSet,
}

impl Cpus {
    pub(crate) fn shared(&self) -> CpuSet {
        self.all - self.exclusive
    }
}

/// Cgroups of one measurement, removed with all their processes when this is dropped.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    on: &'a Hierarchy,
}

impl Tree<'_> {
    /// Fails if the machine cannot do the mode. Nothing of the tree is left then.
    pub(crate) fn new(
        on: &Hierarchy,
        mode: Mode,
        cpus: Cpus,
        neighbours: usize,
    ) -> Result<Tree<'_>> {
        let tree = Tree { on };
        tree.make(mode, cpus, neighbours)?;
        Ok(tree)
    }

    fn make(&self, mode: Mode, cpus: Cpus, neighbours: usize) -> Result<()> {
        let shared = cpus.shared();
        let shared_milli = shared.len() as u64 * 1000;
        self.add("", cpus.all.len() as u64 * 1000, cpus.all)?;
        let class = if mode == Mode::Groups { shared } else { cpus.all };
        self.add(BURSTABLE, shared_milli, class)?;
        // The requests of the neighbours fill the node.
        let request = shared_milli / neighbours.max(1) as u64;
        let container = if mode == Mode::Runtime { shared } else { cpus.all };
        for number in 0..neighbours {
            self.add(&format!("{BURSTABLE}/pod{number}"), request, cpus.all)?;
            self.add(&neighbour(number), request, container)?;
        }
        let request = cpus.exclusive.len() as u64 * 1000;
        self.add(MEASURED_POD, request, cpus.all)?;
        let measured = if mode.pins() { cpus.exclusive } else { cpus.all };
        self.add(MEASURED, request, measured)?;
        if let Some(kind) = mode.partition() {
            self.partition(kind, cpus.exclusive)?;
        }
        Ok(())
    }

    /// A cgroup with a request in thousandths of a CPU.
    fn add(&self, group: &str, milli: u64, cpus: CpuSet) -> Result<()> {
        let at = path(group)?;
        for on in both(self.on) {
            let directory = on.directory(&at);
            let made = Linux.make_directory(&directory);
            made.with_context(|| format!("cannot create the cgroup {}", directory.display()))?;
        }
        let shares = shares(milli);
        match self.on.version() {
            CgroupVersion::V1 => {
                self.on.of_cpu().write(&at, "cpu.shares", &shares.to_string())?;
                self.on.write(&at, "cpuset.mems", &self.on.read_root("cpuset.mems")?)?;
                cgroups::write(self.on, &at, Write::Cpus(cpus))?;
            }
            CgroupVersion::V2 => {
                self.on.write(&at, "cpu.weight", &weight(shares).to_string())?;
                if !is_container(group) {
                    self.on.write(&at, DELEGATION, "+cpu +cpuset")?;
                }
                // Without a value it follows its parent.
                if group == BURSTABLE || is_container(group) {
                    cgroups::write(self.on, &at, Write::Cpus(cpus))?;
                }
            }
        }
        Ok(())
    }

    /// The kernel answers a write of a type with success even if it refuses: it is read back.
    fn partition(&self, kind: PartitionType, cpus: CpuSet) -> Result<()> {
        for group in ["", MEASURED_POD, MEASURED] {
            cgroups::write(self.on, &path(group)?, Write::Exclusive(cpus))?;
        }
        let group = measured()?;
        let files = cgroups::write(self.on, &group, Write::Partition(Some(kind)))?;
        if !files.state.is_valid() {
            let state = self.on.read(&group, PARTITION)?;
            bail!("the kernel makes no partition of CPUs {cpus}: {state}");
        }
        Ok(())
    }

    /// The files that a process writes 0 into, to enter the cgroup of a neighbour.
    pub(crate) fn neighbour_files(&self, number: usize) -> Result<Vec<PathBuf>> {
        self.process_files(&neighbour(number))
    }

    pub(crate) fn measured_files(&self) -> Result<Vec<PathBuf>> {
        self.process_files(MEASURED)
    }

    fn process_files(&self, group: &str) -> Result<Vec<PathBuf>> {
        let group = path(group)?;
        Ok(both(self.on).iter().map(|on| on.directory(&group).join(PROCESSES)).collect())
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove(self.on) {
            eprintln!("cgroups: left behind: {error:#}");
        }
    }
}

/// A cgroup of the tree, which itself is "".
fn path(group: &str) -> Result<CgroupPath> {
    let path = format!("{NAME}/{group}");
    CgroupPath::new(&path).with_context(|| format!("{path} is no path of a cgroup"))
}

/// The measured program's cgroup.
pub(crate) fn measured() -> Result<CgroupPath> {
    path(MEASURED)
}

fn neighbour(number: usize) -> String {
    format!("{BURSTABLE}/pod{number}/c")
}

fn is_container(group: &str) -> bool {
    group.ends_with("/c")
}

/// The kubelet's conversion of a request.
fn shares(milli: u64) -> u64 {
    (milli * 1024 / 1000).max(2)
}

/// The kubelet's conversion of shares for cgroup v2.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// One attempt. Children first; a partition returns its CPUs before its cgroup goes.
fn remove_once(on: &Hierarchy, group: &CgroupPath) -> Result<()> {
    if !on.has(group) {
        return Ok(());
    }
    for child in on.children(group) {
        remove_once(on, &child)?;
    }
    end_partition(on, group)?;
    for process in on.read(group, PROCESSES).unwrap_or_default().lines() {
        if let Ok(process) = process.parse() {
            // It may have ended already.
            let _ = Linux.kill(process);
        }
    }
    let directory = on.directory(group);
    let removed = Linux.remove_directory(&directory);
    removed.with_context(|| format!("cannot remove the cgroup {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_kubelets() {
        assert_eq!((shares(1000), weight(1024)), (1024, 39));
        assert_eq!((shares(0), weight(2)), (2, 1));
        assert_eq!(weight(u64::MAX), 10_000);
    }
}
