//! The program's own cgroups, in the places that a kubelet and a runtime give them: containers of
//! Burstable pods below `burstable`, and the measured container next to it.
//!
//! Nothing outside of this tree is written, except for controllers that the root does not delegate yet:
//! these are enabled, and disabled again at the end. A partition still takes its CPUs from all other
//! programs of the machine: that is its purpose.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use cpuset::{CgroupPath, CpuSet, PartitionType};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The directory of the tree, which stands for `kubepods`.
const NAME: &str = "nri-cpu-manager-gain";
const BURSTABLE: &str = "burstable";
const MEASURED_POD: &str = "pod-measured";
const MEASURED: &str = "pod-measured/c";
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

/// Where this machine has its CPU controllers.
#[derive(Debug)]
pub(crate) enum Hierarchies {
    V1 { cpu: PathBuf, cpuset: PathBuf },
    V2 { root: PathBuf },
}

impl Hierarchies {
    /// From `/proc/self/mounts`.
    pub(crate) fn find() -> Result<Hierarchies> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read mounts")?;
        hierarchies(&mounts, |root| {
            let enabled = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            CONTROLLERS.iter().all(|one| enabled.split_whitespace().any(|word| word == *one))
        })
        .context("no cgroup hierarchy with the controllers cpu and cpuset is mounted")
    }

    pub(crate) fn version(&self) -> &'static str {
        match self {
            Hierarchies::V1 { .. } => "v1",
            Hierarchies::V2 { .. } => "v2",
        }
    }

    /// The CPUs that programs outside of partitions can use.
    pub(crate) fn usable(&self) -> Result<CpuSet> {
        let file = match self {
            Hierarchies::V1 { cpuset, .. } => cpuset.join("cpuset.effective_cpus"),
            Hierarchies::V2 { root } => root.join("cpuset.cpus.effective"),
        };
        Ok(read(&file)?.parse()?)
    }

    /// Held by one program at a time: several would remove each other's cgroups.
    pub(crate) fn lock(&self) -> Result<Flock<File>> {
        let (Hierarchies::V1 { cpuset: root, .. } | Hierarchies::V2 { root }) = self;
        let directory =
            File::open(root).with_context(|| format!("cannot open {}", root.display()))?;
        Flock::lock(directory, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => anyhow!("another bench-gain is running on this machine"),
            other => anyhow!("cannot lock {}: {other}", root.display()),
        })
    }

    /// Removes the tree with all processes in it, if it exists.
    pub(crate) fn remove_tree(&self) -> Result<()> {
        let roots = match self {
            Hierarchies::V1 { cpu, cpuset } => vec![cpu, cpuset],
            Hierarchies::V2 { root } => vec![root],
        };
        let deadline = Instant::now() + REMOVAL;
        for root in roots {
            let tree = root.join(NAME);
            while let Err(error) = remove_once(&tree) {
                if deadline < Instant::now() {
                    return Err(error);
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// On cgroup v2, enables the controllers for the root's children.
    pub(crate) fn enable_controllers(&self) -> Result<Option<Controllers>> {
        let Hierarchies::V2 { root } = self else {
            return Ok(None);
        };
        let file = root.join("cgroup.subtree_control");
        let before = read(&file)?;
        let mut controllers = Controllers { file, added: Vec::new() };
        for controller in CONTROLLERS {
            if !before.split_whitespace().any(|word| word == controller) {
                write(&controllers.file, format!("+{controller}"))?;
                controllers.added.push(controller);
            }
        }
        Ok(Some(controllers))
    }
}

fn hierarchies(mounts: &str, has_controllers: impl Fn(&Path) -> bool) -> Option<Hierarchies> {
    let mut cpu = None;
    let mut cpuset = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let at = PathBuf::from(at);
        if kind == "cgroup2" && has_controllers(&at) {
            return Some(Hierarchies::V2 { root: at });
        }
        if kind == "cgroup" {
            let has = |name| options.split(',').any(|option| option == name);
            if has("cpu") && cpu.is_none() {
                cpu = Some(at.clone());
            }
            if has("cpuset") && cpuset.is_none() {
                cpuset = Some(at);
            }
        }
    }
    Some(Hierarchies::V1 { cpu: cpu?, cpuset: cpuset? })
}

/// Controllers that the root delegates only for this program.
#[derive(Debug)]
pub(crate) struct Controllers {
    file: PathBuf,
    added: Vec<&'static str>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        for controller in &self.added {
            // The kernel refuses this if another program has come to use the controller.
            if let Err(error) = write(&self.file, format!("-{controller}")) {
                eprintln!("cgroups: the controller {controller} stays enabled: {error:#}");
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
    hierarchies: &'a Hierarchies,
}

impl Tree<'_> {
    /// Fails if the machine cannot do the mode. Nothing of the tree is left then.
    pub(crate) fn new(
        hierarchies: &Hierarchies,
        mode: Mode,
        cpus: Cpus,
        neighbours: usize,
    ) -> Result<Tree<'_>> {
        let tree = Tree { hierarchies };
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
        let shares = shares(milli);
        match self.hierarchies {
            Hierarchies::V1 { cpu, cpuset } => {
                let at = create(cpu, group)?;
                write(&at.join("cpu.shares"), shares)?;
                let at = create(cpuset, group)?;
                write(&at.join("cpuset.mems"), read(&cpuset.join("cpuset.mems"))?)?;
                write(&at.join("cpuset.cpus"), cpus)
            }
            Hierarchies::V2 { root } => {
                let at = create(root, group)?;
                write(&at.join("cpu.weight"), weight(shares))?;
                if !is_container(group) {
                    write(&at.join("cgroup.subtree_control"), "+cpu +cpuset")?;
                }
                // Without a value it follows its parent.
                if group == BURSTABLE || is_container(group) {
                    write(&at.join("cpuset.cpus"), cpus)?;
                }
                Ok(())
            }
        }
    }

    /// The kernel answers a write of a type with success even if it refuses: read it back.
    fn partition(&self, kind: PartitionType, cpus: CpuSet) -> Result<()> {
        let Hierarchies::V2 { root } = self.hierarchies else {
            bail!("cgroup v1 has no cpuset partitions");
        };
        for group in ["", MEASURED_POD, MEASURED] {
            let file = root.join(NAME).join(group).join("cpuset.cpus.exclusive");
            ensure!(file.exists(), "the kernel has no cpuset.cpus.exclusive (Linux 6.7)");
            write(&file, cpus)?;
        }
        let file = root.join(NAME).join(MEASURED).join("cpuset.cpus.partition");
        write(&file, kind.name())?;
        let state = read(&file)?;
        ensure!(state == kind.name(), "the kernel makes no partition of CPUs {cpus}: {state}");
        Ok(())
    }

    /// The files that a process writes 0 into, to enter the cgroup of a neighbour.
    pub(crate) fn neighbour_files(&self, number: usize) -> Vec<PathBuf> {
        self.process_files(&neighbour(number))
    }

    /// The measured program's, below the root of the hierarchy.
    pub(crate) fn measured_cgroup() -> Option<CgroupPath> {
        CgroupPath::new(&format!("{NAME}/{MEASURED}"))
    }

    pub(crate) fn measured_files(&self) -> Vec<PathBuf> {
        self.process_files(MEASURED)
    }

    fn process_files(&self, group: &str) -> Vec<PathBuf> {
        let roots = match self.hierarchies {
            Hierarchies::V1 { cpu, cpuset } => vec![cpu, cpuset],
            Hierarchies::V2 { root } => vec![root],
        };
        roots.iter().map(|root| root.join(NAME).join(group).join("cgroup.procs")).collect()
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.hierarchies.remove_tree() {
            eprintln!("cgroups: left behind: {error:#}");
        }
    }
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

fn create(root: &Path, group: &str) -> Result<PathBuf> {
    let at = root.join(NAME).join(group);
    match fs::create_dir(&at) {
        // On cgroup v1 the two controllers can be in one hierarchy.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot create the cgroup {}", at.display()))
        }
        _ => Ok(at),
    }
}

/// One attempt. Children first; a partition returns its CPUs before its cgroup goes.
fn remove_once(group: &Path) -> Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot list {}", group.display()))?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_once(&entry.path())?;
        }
    }
    let partition = group.join("cpuset.cpus.partition");
    if fs::read_to_string(&partition).is_ok_and(|state| state.trim() != "member") {
        write(&partition, "member")?;
    }
    for process in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
        // Killing 0 would end this program.
        if let Ok(process @ 1..) = process.parse() {
            // It may have ended already.
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
    fs::remove_dir(group).with_context(|| format!("cannot remove the cgroup {}", group.display()))
}

fn read(file: &Path) -> Result<String> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim_end().to_owned())
}

fn write(file: &Path, value: impl Display) -> Result<()> {
    let value = value.to_string();
    fs::write(file, &value).with_context(|| format!("cannot write {value:?} to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_the_controllers_is_found() {
        let hybrid = "cgroup /cg/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup /cg/cpuset cgroup rw,relatime,cpuset 0 0\n\
                      cgroup2 /cg/unified cgroup2 rw,relatime 0 0\n";
        let found = hierarchies(hybrid, |_| false).unwrap();
        assert!(matches!(found, Hierarchies::V1 { cpu, cpuset }
                if cpu == Path::new("/cg/cpu") && cpuset == Path::new("/cg/cpuset")));
        let found = hierarchies(hybrid, |_| true).unwrap();
        assert!(matches!(found, Hierarchies::V2 { root } if root == Path::new("/cg/unified")));
        let joint = "cgroup /cg/both cgroup rw,cpu,cpuacct,cpuset 0 0\n";
        assert!(matches!(hierarchies(joint, |_| true), Some(Hierarchies::V1 { .. })));
        assert!(hierarchies("proc /proc proc rw 0 0\n", |_| true).is_none());
    }

    #[test]
    fn weights_are_the_kubelets() {
        assert_eq!((shares(1000), weight(1024)), (1024, 39));
        assert_eq!((shares(0), weight(2)), (2, 1));
        assert_eq!(weight(u64::MAX), 10_000);
    }
}
