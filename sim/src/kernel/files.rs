//! The content of a [`SimulatedKernel`](super::SimulatedKernel)'s files, and the effect of writes.

use super::{CGROUPS, Errno, INIT, PROC, Process, RELEASE, ROOT_NUMBER, SYS, State};
use cgroups::{Refused, Watched, Write, hazard};
use cpuset::{CgroupPath, ParseError, PartitionState};
use std::collections::BTreeMap;
use std::path::Path;

const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";
/// CAP_SYS_ADMIN in the mask of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

/// A parsed path. `None` is the root cgroup.
enum Place<'a> {
    Group(Option<CgroupPath>),
    GroupFile(Option<CgroupPath>, &'a str),
    /// A path below `/sys`.
    Sys(&'a str),
    /// A path below `/proc`.
    Proc(&'a str),
}

impl Place<'_> {
    fn of(path: &Path) -> Result<Place<'_>, Errno> {
        let below = |root| path.strip_prefix(root).ok().and_then(Path::to_str);
        if let Some(below) = below(CGROUPS) {
            let (above, name) = below.rsplit_once('/').unwrap_or(("", below));
            let is_file = ["cgroup.", "cpu.", "cpuset."].iter().any(|of| name.starts_with(of));
            return Ok(if is_file {
                Place::GroupFile(CgroupPath::new(above), name)
            } else {
                Place::Group(CgroupPath::new(below))
            });
        }
        let proc = || below(PROC).map(Place::Proc);
        below(SYS).map(Place::Sys).or_else(proc).ok_or(Errno::ENOENT)
    }
}

impl State {
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        if let Some(text) = self.read_tunable(path) {
            return Ok(text.into_bytes());
        }
        match Place::of(path)? {
            Place::GroupFile(group, file) => {
                self.read_group(group.as_ref(), file).map(String::into_bytes)
            }
            Place::Sys(file) => self.sysfs.get(file).cloned().ok_or(Errno::ENOENT),
            Place::Proc(file) => self.read_proc(file).map(String::into_bytes),
            Place::Group(_) => Err(Errno::ENOENT),
        }
        // A read of a directory has an error that callers tell apart from a missing file.
        .map_err(|errno| if self.entries(path).is_ok() { Errno::EISDIR } else { errno })
    }

    fn read_group(&self, group: Option<&CgroupPath>, file: &str) -> Result<String, Errno> {
        let here = |process: &&Process| Some(&process.cgroup) == group;
        let processes = self.processes.iter().filter(|(_, process)| here(process));
        match file {
            _ if !self.has(group) => return Err(Errno::ENOENT),
            "cgroup.controllers" => return Ok("cpuset cpu io memory pids\n".to_owned()),
            "cgroup.procs" | "cgroup.threads" => {
                return Ok(processes.map(|(pid, _)| format!("{pid}\n")).collect());
            }
            "cpuset.cpus.effective" => {
                let effective =
                    group.map_or_else(|| self.tree.shared(), |group| self.tree.effective(group));
                return Ok(format!("{effective}\n"));
            }
            _ => {}
        }
        // The root has no other files.
        let group = group.ok_or(Errno::ENOENT)?;
        let cgroup = self.cgroups.get(group).ok_or(Errno::ENOENT)?;
        match file {
            "cpuset.cpus.partition" => Ok(format!("{}\n", self.tree.partition(group).state)),
            EXCLUSIVE => Ok(format!("{}\n", self.tree.partition(group).exclusive)),
            "cpuset.cpus.exclusive.effective" => {
                Ok(format!("{}\n", self.tree.partition(group).effective))
            }
            "cgroup.events" => {
                let populated = u8::from(self.tree.is_populated(group));
                Ok(format!("populated {populated}\nfrozen 0\n"))
            }
            "cpu.max" => Ok(format!("{}\n", cgroup.cpu_max)),
            "cpuset.cpus" => Ok(format!("{}\n", self.tree.cpus(group).unwrap_or_default())),
            "cpuset.mems" => Ok(format!("{}\n", cgroup.mems)),
            _ => Err(Errno::ENOENT),
        }
    }

    fn read_proc(&self, file: &str) -> Result<String, Errno> {
        match file {
            "sys/kernel/osrelease" => return Ok(format!("{RELEASE}\n")),
            "sys/kernel/random/boot_id" => {
                return Ok(format!("00000000-0000-4000-8000-{:012}\n", self.boot));
            }
            _ => {}
        }
        let pid = file.strip_suffix("/status").and_then(|name| self.pid(name));
        let pid = pid.filter(|pid| self.processes.contains_key(pid)).ok_or(Errno::ENOENT)?;
        let allowed = self.allowed(pid);
        let parent = if pid == INIT { 0 } else { INIT };
        let capabilities = if self.privileged && pid == self.plugin { SYS_ADMIN } else { 0 };
        Ok(format!(
            "Name:\tx\nPid:\t{pid}\nPPid:\t{parent}\nCapEff:\t{capabilities:016x}\nCpus_allowed_list:\t{allowed}\n"
        ))
    }

    fn pid(&self, name: &str) -> Option<u32> {
        if name == "self" { Some(self.plugin) } else { name.parse().ok() }
    }

    pub fn read_text(&self, path: &Path) -> Result<String, Errno> {
        Ok(String::from_utf8_lossy(&self.read(path)?).into_owned())
    }

    /// # Errors
    /// Only those of the real kernel: faults are injected by [`Kernel::write`](kernel::Kernel::write).
    pub fn write(&mut self, path: &Path, text: &str) -> Result<(), Errno> {
        if let Some(written) = self.write_tunable(path, text) {
            return written;
        }
        self.read(path)?;
        let Place::GroupFile(Some(group), file) = Place::of(path)? else {
            return Err(Errno::EACCES);
        };
        if !["cpuset.cpus", "cpuset.mems", "cpu.max", EXCLUSIVE, PARTITION].contains(&file) {
            return Err(Errno::EACCES);
        }
        // inotify also reports writes that are refused: opening the file truncates it.
        self.notify(path, Watched::File, path);
        let text = text.trim();
        if file == "cpu.max" {
            let cgroup = self.cgroups.get_mut(&group).ok_or(Errno::ENODEV)?;
            let (quota, period) = text.split_once(' ').unwrap_or((text, "100000"));
            let is_valid = |micros: &str| micros.parse::<u64>().is_ok_and(|micros| micros >= 1000);
            if !is_valid(period) || (quota != "max" && !is_valid(quota)) {
                return Err(Errno::EINVAL);
            }
            cgroup.cpu_max = format!("{quota} {period}");
            return Ok(());
        }
        if file == "cpuset.mems" {
            self.cgroups.get_mut(&group).ok_or(Errno::ENODEV)?.mems = text.to_owned();
            return Ok(());
        }
        self.tree.write(&group, cpuset_write(file, text)?).map_err(|error| match error {
            Refused::Gone => Errno::ENODEV,
            Refused::Populated => Errno::ENOSPC,
            Refused::Impossible => Errno::ERANGE,
            Refused::NotExclusive => Errno::EINVAL,
        })
    }

    /// Records a write that breaks some kernel.
    pub fn note_hazard(&mut self, path: &Path, text: &str) {
        let Ok(Place::GroupFile(Some(group), file)) = Place::of(path) else { return };
        let Ok(write) = cpuset_write(file, text.trim()) else { return };
        if let Some(hazard) = hazard(&self.tree, &group, write) {
            self.damage.get_or_insert(format!("{group}: {write:?}: {hazard}"));
        }
    }

    /// For a cgroup only the cgroups in it, without its files.
    pub(super) fn entries(&self, path: &Path) -> Result<Vec<(String, bool)>, Errno> {
        let entries: BTreeMap<String, bool> = match Place::of(path)? {
            Place::Group(group) if self.has(group.as_ref()) => {
                let groups = self.tree.groups().filter(|other| other.parent() == group);
                let groups = groups.filter_map(|group| group.as_str().rsplit('/').next());
                return Ok(groups.map(|name| (name.to_owned(), true)).collect());
            }
            Place::Sys(directory) => self.sysfs_entries(directory),
            Place::Proc(directory) if directory.starts_with("irq") => self.tunable_entries(path),
            Place::Proc("") => self.processes.keys().map(|pid| (pid.to_string(), true)).collect(),
            Place::Proc(directory) => {
                let pid = directory.strip_suffix("/task").and_then(|name| self.pid(name));
                let pid = pid.filter(|pid| self.processes.contains_key(pid));
                BTreeMap::from([(pid.ok_or(Errno::ENOENT)?.to_string(), true)])
            }
            _ => BTreeMap::new(),
        };
        if entries.is_empty() { Err(Errno::ENOENT) } else { Ok(entries.into_iter().collect()) }
    }

    fn sysfs_entries(&self, directory: &str) -> BTreeMap<String, bool> {
        let above = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let below = self.sysfs.range(above.clone()..);
        let below = below.map_while(|(path, _)| path.strip_prefix(&above));
        let split = |below: &str| {
            let name = below.split('/').next().unwrap_or(below);
            (name.to_owned(), name != below)
        };
        below.filter(|below| !below.is_empty()).map(split).collect()
    }

    /// The number of a cgroup, or of the cgroup of a file.
    pub(super) fn number(&self, path: &Path) -> Result<u64, Errno> {
        match Place::of(path)? {
            Place::Group(None) | Place::GroupFile(None, _) => Ok(ROOT_NUMBER),
            Place::Group(Some(group)) | Place::GroupFile(Some(group), _) => {
                Ok(self.cgroups.get(&group).ok_or(Errno::ENOENT)?.number)
            }
            _ => Err(Errno::ENOENT),
        }
    }

    fn has(&self, group: Option<&CgroupPath>) -> bool {
        group.is_none_or(|group| self.cgroups.contains_key(group))
    }
}

fn cpuset_write(file: &str, text: &str) -> Result<Write, Errno> {
    if file == PARTITION {
        return match PartitionState::parse(text) {
            Some(PartitionState::Member) => Ok(Write::Partition(None)),
            Some(PartitionState::Valid(kind)) => Ok(Write::Partition(Some(kind))),
            Some(PartitionState::Invalid(_)) | None => Err(Errno::EINVAL),
        };
    }
    let cpus = text.parse().map_err(|error| match error {
        ParseError::PastLimit { .. } => Errno::ERANGE,
        _ => Errno::EINVAL,
    })?;
    Ok(if file == EXCLUSIVE { Write::Exclusive(cpus) } else { Write::Cpus(cpus) })
}
