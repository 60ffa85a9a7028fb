//! Is in force what was decided? Compares with the files of cgroups and with the processes.

use crate::cpuset::CpuSet;
use crate::exclusivity::{FileError, Hierarchy, Version, holds, quota_of, widen};
use crate::ledger::{CgroupPath, Holder, Mechanism, Target};
use crate::nodeset::NodeSet;
use crate::partition::PartitionType;
use crate::wording;
use std::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// How many processes of a container to check. It may have thousands, as a rule with the same CPUs.
const PROCESSES: usize = 16;
/// How many processes of a container get a wider mask at most.
const WIDENED: usize = 4096;

/// A difference from the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drift {
    /// The container's group has other CPUs: another program wrote them, or the runtime did not
    /// write the right ones.
    Set(CpuSet),
    /// The group should be a partition and is not, or the other way round.
    Partition(String),
    /// The group has the right CPUs, but the kernel lets it run on other ones, or not on all.
    Effective(CpuSet),
    /// A process may run where its group may not.
    Process(u32, CpuSet),
    /// Its pod has a CFS quota, which throttles exclusive CPUs.
    Quota(String),
    /// It has a CFS quota of its own, though it has exclusive CPUs.
    OwnQuota(String),
    /// The container's first process inherited its parent's mask, which lacks some of the
    /// container's CPUs.
    Inherited(u32, CpuSet),
}

/// The state of a container's control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// Its CPUs, at least one.
    pub cpus: CpuSet,
    /// The NUMA nodes for its memory, empty if none are set; `None` if unknown.
    pub mems: Option<NodeSet>,
    /// Those of them that the groups above leave it.
    pub runs_on: Option<CpuSet>,
    /// Whether the group is a partition of these CPUs, of either type.
    pub kept: bool,
}

/// Whether a container still exists, by its control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It has processes, or that is unknown.
    Lives,
    /// It has no processes. Its pod's group exists.
    Ended,
    /// Its pod's group is gone as well.
    PodGone,
}

impl Drift {
    /// All kinds, see [`Drift::kind`].
    pub const KINDS: [&str; 7] = [
        "cpuset",
        "partition",
        "effective",
        "process",
        "quota",
        "container_quota",
        "inherited_affinity",
    ];

    /// Its name in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Drift::Set(_) => "cpuset",
            Drift::Partition(_) => "partition",
            Drift::Effective(_) => "effective",
            Drift::Process(..) => "process",
            Drift::Quota(_) => "quota",
            Drift::OwnQuota(_) => "container_quota",
            Drift::Inherited(..) => "inherited_affinity",
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drift::Set(cpus) if cpus.is_empty() => f.write_str("no CPUs are set for its group"),
            Drift::Set(cpus) => {
                let are = wording::agree(cpus, "is", "are");
                write!(f, "{} {are} set for its group", wording::cpus(cpus))
            }
            Drift::Partition(state) => write!(f, "its group is a cpuset partition {state:?}"),
            Drift::Effective(cpus) => {
                write!(f, "the kernel lets its group run on {}", wording::cpus(cpus))
            }
            Drift::Process(pid, cpus) => {
                write!(f, "its process {pid} may run on {}", wording::cpus(cpus))
            }
            Drift::Quota(quota) => write!(f, "its pod has the CFS quota {quota:?}"),
            Drift::OwnQuota(quota) => write!(f, "it has the CFS quota {quota:?}"),
            Drift::Inherited(pid, cpus) => write!(
                f,
                "its process {pid} may run on {} only: it inherited the affinity of the runtime that started it",
                wording::cpus(cpus)
            ),
        }
    }
}

/// Reads the kernel's state.
#[derive(Debug, Clone)]
pub struct Verifier {
    on: Hierarchy,
    processes: PathBuf,
    /// The type of partitions under `exclusivity: kernel`.
    kind: Option<PartitionType>,
}

impl Verifier {
    /// `processes` is `/proc` as a rule.
    pub fn new(on: Hierarchy, processes: &Path, kind: Option<PartitionType>) -> Verifier {
        Verifier { on, processes: processes.to_owned(), kind }
    }

    /// All differences from the decision for a container; none if it has no group (any more).
    pub fn look(&self, placed: &Target) -> Vec<Drift> {
        let Some(group) = placed.cgroup.as_ref().filter(|_| placed.running) else {
            return Vec::new();
        };
        match self.look_at(group, placed) {
            Ok(drift) => drift,
            Err(error) if error.is_gone() => Vec::new(),
            Err(error) => {
                log::debug!("{}: cannot be verified: {error}", placed.subject);
                Vec::new()
            }
        }
    }

    /// The state of a container's group; `None` if it cannot be read or has no CPUs set. Some OCI
    /// runtimes set the CPUs of an inner group instead.
    pub fn set_for(&self, group: &CgroupPath) -> Option<InForce> {
        let cpus = self.on.cpus(group, "cpuset.cpus").ok().filter(|cpus| !cpus.is_empty())?;
        // Version 1 shows all nodes in a group without own ones.
        let mems = self.on.cpus(group, "cpuset.mems").ok();
        let mems = mems.filter(|_| self.on.version() == Version::V2);
        let kept = PartitionType::ALL
            .into_iter()
            .any(|kind| holds(&self.on, group, cpus, kind).unwrap_or(false));
        let effective = self.on.cpus(group, "cpuset.cpus.effective").ok();
        let runs_on = effective.map(|left| left & cpus).filter(|left| !left.is_empty());
        Some(InForce { cpus, runs_on, mems: mems.map(|nodes| nodes.iter().collect()), kept })
    }

    /// Whether a group exists.
    pub fn has(&self, group: &CgroupPath) -> bool {
        self.on.has(group)
    }

    /// Whether a container still exists.
    pub fn presence(&self, holder: &Holder) -> Presence {
        if !self.has(&holder.pod_group) {
            return Presence::PodGone;
        }
        let Some(group) = holder.group.as_ref().filter(|group| self.has(group)) else {
            return Presence::Ended;
        };
        // The kernel counts inner groups as well. Version 1 has no such file.
        match self.on.read(group, "cgroup.events") {
            Ok(events) if events.lines().any(|line| line == "populated 0") => Presence::Ended,
            _ => Presence::Lives,
        }
    }

    fn look_at(&self, group: &CgroupPath, placed: &Target) -> Result<Vec<Drift>, FileError> {
        let mut drift = Vec::new();
        let set = self.on.cpus(group, "cpuset.cpus")?;
        let is_wrong = match &placed.avoids {
            Some(others) => !others.is_empty() && (set.is_empty() || !set.is_disjoint(others)),
            None => set != placed.adjustment.cpus(),
        };
        if is_wrong {
            drift.push(Drift::Set(set));
        }
        if let Some(kind) = self.kind.filter(|_| self.on.version() == Version::V2) {
            let state = self.on.read(group, "cpuset.cpus.partition")?;
            let expected = if placed.is_partition() { kind.to_string() } else { "member".into() };
            if state != expected {
                drift.push(Drift::Partition(state));
            }
        }
        if placed.lifts_pod_quota && placed.enforced_by != Mechanism::Runtime {
            let quota = group.parent().map_or(Ok(None), |pod| quota_of(&self.on, &pod))?;
            drift.extend(quota.map(Drift::Quota));
        }
        let effective = self.on.cpus(
            group,
            match self.on.version() {
                Version::V1 => "cpuset.effective_cpus",
                Version::V2 => "cpuset.cpus.effective",
            },
        )?;
        let is_right = match placed.adjustment.is_exclusive() {
            true => effective == placed.runs_on,
            // The kernel takes CPUs for a new partition away a moment before that one runs.
            false => effective.is_subset(&placed.runs_on),
        };
        // A drift above explains this one.
        if drift.is_empty() && !is_right {
            drift.push(Drift::Effective(effective));
        }
        if placed.adjustment.is_exclusive() {
            drift.extend(quota_of(&self.on, group)?.map(Drift::OwnQuota));
        }
        for (index, pid) in self.processes_of(group, PROCESSES)?.into_iter().enumerate() {
            let Some(status) = self.status(pid) else { continue };
            if !status.allowed.is_subset(&effective) {
                drift.push(Drift::Process(pid, status.allowed));
            } else if index == 0 && status.allowed != effective {
                drift.extend(self.inherited(pid, &status, effective));
            }
        }
        Ok(drift)
    }

    /// At most `most` processes of a group and of at most as many groups in it: with systemd's
    /// groups, crun puts a container's processes into an inner group.
    fn processes_of(&self, group: &CgroupPath, most: usize) -> Result<Vec<u32>, FileError> {
        // The kernel shows processes of other pid namespaces as 0.
        let pids = |text: String| -> Vec<u32> {
            text.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid| pid != 0).collect()
        };
        let mut found = pids(self.on.read(group, "cgroup.procs")?);
        let mut groups = self.on.children(group);
        for _ in 0..most {
            let Some(within) = groups.pop().filter(|_| found.len() < most) else { break };
            found.extend(pids(self.on.read(&within, "cgroup.procs").unwrap_or_default()));
            groups.extend(self.on.children(&within));
        }
        found.truncate(most);
        Ok(found)
    }

    /// Lets the processes of a container with the mask `inherited` run on all of its CPUs: the
    /// first one, and those that it has started since. Needs `CAP_SYS_NICE`.
    ///
    /// # Errors
    /// The kernel's error for the first process that it refuses.
    pub fn widen(&self, placed: &Target, inherited: CpuSet) -> io::Result<()> {
        let Some(group) = &placed.cgroup else { return Ok(()) };
        for pid in self.processes_of(group, WIDENED).map_err(io::Error::other)? {
            if self.status(pid).is_some_and(|status| status.allowed == inherited) {
                match widen(&self.processes, pid, placed.runs_on) {
                    // The process has just ended.
                    Err(error) if self.status(pid).is_some() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A process may give itself fewer CPUs, which is no drift. A mask that equals the parent's is
    /// inherited instead: Linux 6.2 and newer keep it through every change of the cpuset.
    fn inherited(&self, pid: u32, status: &ProcessStatus, effective: CpuSet) -> Option<Drift> {
        let above = self.status(status.parent)?.allowed;
        let limits = !effective.is_subset(&above) && status.allowed == above & effective;
        limits.then_some(Drift::Inherited(pid, status.allowed))
    }

    fn status(&self, pid: u32) -> Option<ProcessStatus> {
        let path = self.processes.join(pid.to_string()).join("status");
        ProcessStatus::parse(&fs::read_to_string(path).ok()?)
    }
}

/// A part of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStatus {
    parent: u32,
    allowed: CpuSet,
}

impl ProcessStatus {
    fn parse(text: &str) -> Option<ProcessStatus> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(ProcessStatus {
            parent: field("PPid:")?.parse().ok()?,
            allowed: field("Cpus_allowed_list:")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests;
