//! Whether a decision is in force, by the files of cgroups and the processes. Writes no cgroup and
//! keeps no state.

use cgroups::{
    CPUS, CgroupVersion, EFFECTIVE, FileError, Hierarchy, PARTITION, is_partition_of, quota_of,
    widen,
};
use cpuset::{CgroupPath, CpuSet, NodeSet, PartitionType};
use kernel::Kernel;
use ledger::{Holder, Mechanism, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// How many processes of a container to check. It may have thousands, usually with the same CPUs.
const PROCESSES: usize = 16;
/// How many processes of a container get a wider mask at most.
const WIDENED: usize = 4096;
/// How many cgroups inside a container's cgroup to check.
const INNER: usize = 64;
/// How many threads of a container to check for their own affinities.
const THREADS: usize = 1024;

/// What check passes have found, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Drift"))]
pub struct Figures {
    /// Containers that differ from the decision now, despite repairs.
    pub drifting: usize,
    /// Containers that differ from the decision because the runtime has not changed them yet.
    pub late: usize,
    /// How often the last line was true of a container, since the start.
    pub times_late: u64,
    /// How long the runtime takes to change a container, on the average of late; `null` before the first
    /// measurement.
    pub change_seconds: Option<f64>,
    /// How often a pod's CFS quota was lifted after something had set it again, since the start.
    pub pod_quotas_lifted_again: u64,
    /// Confirmed drifts since the start, by kind.
    #[serde(skip)]
    pub drifts: BTreeMap<&'static str, u64>,
    /// Repairs since the start, by kind of drift and by action.
    #[serde(skip)]
    pub repairs: BTreeMap<(&'static str, &'static str), u64>,
}

/// A difference from the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drift {
    /// The container's cgroup has other CPUs: another program wrote them, or the runtime did not
    /// write the right ones.
    Set(CpuSet),
    /// The cgroup should be a partition and is not, or the other way round.
    Partition(String),
    /// The cgroup has the right CPUs, but the kernel lets it run on other ones, or not on all.
    Effective(CpuSet),
    /// A process may run where its cgroup may not.
    Process(u32, CpuSet),
    /// The pod's CFS quota, which throttles exclusive CPUs.
    Quota(String),
    /// The container's own CFS quota, though it has exclusive CPUs.
    OwnQuota(String),
    /// The container's first process inherited its parent's mask, which lacks some of the
    /// container's CPUs.
    Inherited(u32, CpuSet),
}

/// The state of a container's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// At least one.
    pub cpus: CpuSet,
    /// The NUMA nodes for its memory, empty if none are set; `None` if unknown.
    pub mems: Option<NodeSet>,
    /// The part of `cpus` that the cgroups above leave it.
    pub runs_on: Option<CpuSet>,
    /// Whether the cgroup is a partition of these CPUs, of either type.
    pub partitioned: bool,
}

/// Whether a container still exists, by its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It has processes, or that is unknown.
    Lives,
    /// It has no processes. Its pod's cgroup exists.
    Ended,
    /// Its pod's cgroup is gone as well.
    PodGone,
}

impl Drift {
    pub const KINDS: [&str; 7] = [
        "cpuset",
        "partition",
        "effective",
        "process",
        "pod_quota",
        "container_quota",
        "inherited_affinity",
    ];

    /// The label in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Drift::Set(_) => "cpuset",
            Drift::Partition(_) => "partition",
            Drift::Effective(_) => "effective",
            Drift::Process(..) => "process",
            Drift::Quota(_) => "pod_quota",
            Drift::OwnQuota(_) => "container_quota",
            Drift::Inherited(..) => "inherited_affinity",
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drift::Set(cpus) if cpus.is_empty() => f.write_str("its cgroup has no CPUs set"),
            Drift::Set(cpus) => write!(f, "its cgroup has {} set", wording::cpus(cpus)),
            Drift::Partition(state) => write!(f, "its cgroup is a cpuset partition {state:?}"),
            Drift::Effective(cpus) => {
                write!(f, "the kernel lets its cgroup run on {}", wording::cpus(cpus))
            }
            Drift::Process(pid, cpus) => {
                write!(f, "its process {pid} may run on {}", wording::cpus(cpus))
            }
            Drift::Quota(quota) => write!(f, "its pod has the CFS quota {quota:?}"),
            Drift::OwnQuota(quota) => write!(f, "it has the CFS quota {quota:?}"),
            Drift::Inherited(pid, cpus) => write!(
                f,
                "its process {pid} may run on {} only: it inherited the runtime's affinity",
                wording::cpus(cpus)
            ),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Verifier {
    on: Hierarchy,
    processes: PathBuf,
    /// The type of partitions under `exclusivity: kernel`.
    kind: Option<PartitionType>,
}

impl Verifier {
    /// `processes` is usually `/proc`.
    pub fn new(on: Hierarchy, processes: &Path, kind: Option<PartitionType>) -> Verifier {
        Verifier { on, processes: processes.to_owned(), kind }
    }

    pub fn kernel(&self) -> &dyn Kernel {
        self.on.kernel()
    }

    /// All differences from the decision for a container; none if its cgroup is unknown or gone.
    pub fn check(&self, target: &Target) -> Vec<Drift> {
        let Some(group) = &target.cgroup else { return Vec::new() };
        if !target.running {
            return Vec::new();
        }
        match self.compare(group, target) {
            Ok(drift) => drift,
            Err(error) if error.is_gone() => Vec::new(),
            Err(error) => {
                log::debug!("{}: cannot verify: {error}", target.subject);
                Vec::new()
            }
        }
    }

    /// The state of a container's cgroup; `None` if it cannot be read or has no CPUs set. Some OCI
    /// runtimes set the CPUs of an inner cgroup instead.
    pub fn observe(&self, group: &CgroupPath) -> Option<Observed> {
        let cpus = self.on.cpus(group, CPUS).ok().filter(|cpus| !cpus.is_empty())?;
        // Version 1 shows all nodes in a cgroup without own ones.
        let mems = match self.on.version() {
            CgroupVersion::V1 => None,
            CgroupVersion::V2 => self.on.cpus(group, "cpuset.mems").ok(),
        };
        let partitioned = is_partition_of(&self.on, group, cpus);
        let effective = self.on.cpus(group, EFFECTIVE).ok();
        let runs_on = effective.map(|left| left & cpus).filter(|left| !left.is_empty());
        Some(Observed {
            cpus,
            runs_on,
            mems: mems.map(|nodes| nodes.iter().collect()),
            partitioned,
        })
    }

    pub fn has(&self, group: &CgroupPath) -> bool {
        self.on.has(group)
    }

    pub fn presence(&self, holder: &Holder) -> Presence {
        if !self.has(&holder.pod_group) {
            return Presence::PodGone;
        }
        let Some(group) = holder.group.as_ref().filter(|group| self.has(group)) else {
            return Presence::Ended;
        };
        if self.on.is_populated(group) == Some(false) { Presence::Ended } else { Presence::Lives }
    }

    fn compare(&self, group: &CgroupPath, target: &Target) -> Result<Vec<Drift>, FileError> {
        let mut drift = Vec::new();
        let set = self.on.cpus(group, CPUS)?;
        let file = self.on.effective();
        let target_cpus = target.setting.cpus();
        let is_wrong = match &target.kept_from_siblings {
            // Cgroups above the container keep it off exclusive CPUs of other pods, so that only
            // those of its own pod matter. Nothing set means all CPUs.
            Some(others) => !others.is_empty() && (set.is_empty() || !set.is_disjoint(others)),
            None if target.enforced_by == Mechanism::Groups => {
                set != target_cpus && !self.has_none_of(group, file, target_cpus)
            }
            None => set != target_cpus,
        };
        if is_wrong {
            drift.push(Drift::Set(set));
        }
        if let (Some(kind), CgroupVersion::V2) = (self.kind, self.on.version()) {
            let state = self.on.read(group, PARTITION)?;
            let expected = if target.is_partition() { kind.name() } else { "member" };
            if state != expected {
                drift.push(Drift::Partition(state));
            }
        }
        if target.lifts_pod_quota && target.enforced_by != Mechanism::Runtime {
            let quota = group.parent().map_or(Ok(None), |pod| quota_of(&self.on, &pod))?;
            drift.extend(quota.map(Drift::Quota));
        }
        let effective = self.on.cpus(group, file)?;
        // The kernel takes shared CPUs for a new partition away a moment before that one runs.
        let own = target.setting.exclusive_cpus();
        let is_right = own.is_subset(&effective) && effective.is_subset(&target.runs_on);
        // One of the drifts so far would explain this one.
        if drift.is_empty() && !is_right && !self.confines_itself(group, target) {
            drift.push(Drift::Effective(effective));
        }
        if target.setting.is_exclusive() {
            drift.extend(quota_of(&self.on, group)?.map(Drift::OwnQuota));
        }
        for (index, pid) in self.processes_of(group, PROCESSES)?.into_iter().enumerate() {
            let Some(status) = self.status(pid) else { continue };
            if !status.allowed.is_subset(&effective) {
                drift.push(Drift::Process(pid, status.allowed));
            } else if index == 0
                && status.allowed != effective
                && let Some(inherited) = self.inherited(pid, &status, effective)
                && !self.has_inner(group, file, status.allowed)
            {
                drift.push(inherited);
            }
        }
        Ok(drift)
    }

    /// Whether the cgroup above leaves a container none of its CPUs. If these were set, the kernel
    /// would let it run on all that are left there, CPUs of others included. So the cgroup may have
    /// been given other CPUs.
    fn has_none_of(&self, group: &CgroupPath, effective: &str, target_cpus: CpuSet) -> bool {
        let left = group.parent().map(|above| self.on.cpus(&above, effective));
        matches!(left, Some(Ok(left)) if left.is_disjoint(&target_cpus))
    }

    /// Whether this is the program's own container, and its threads keep to the CPUs where it may not
    /// write its cgroup.
    fn confines_itself(&self, group: &CgroupPath, target: &Target) -> bool {
        let own = || self.status(self.on.kernel().own_process());
        self.on.is_own(group) && own().is_some_and(|own| own.allowed.is_subset(&target.runs_on))
    }

    /// At most `most` processes of a cgroup and of at most as many cgroups in it: with systemd's
    /// cgroups, crun puts a container's processes into an inner one.
    fn processes_of(&self, group: &CgroupPath, most: usize) -> Result<Vec<u32>, FileError> {
        self.tasks_of(group, "cgroup.procs", most)
    }

    /// As [`Verifier::processes_of`], with the processes or threads that this file lists.
    fn tasks_of(&self, group: &CgroupPath, file: &str, most: usize) -> Result<Vec<u32>, FileError> {
        let mut processes = pids(&self.on.read(group, file)?);
        let mut inner = self.on.children(group);
        for _ in 0..most {
            if processes.len() >= most {
                break;
            }
            let Some(group) = inner.pop() else { break };
            processes.extend(pids(&self.on.read(&group, file).unwrap_or_default()));
            inner.extend(self.on.children(&group));
        }
        processes.truncate(most);
        Ok(processes)
    }

    /// Lets the processes of a container with the mask `inherited` run on all of its CPUs: the
    /// first one, and those that it has started since. Needs `CAP_SYS_NICE`, and ends at the first
    /// process that the kernel refuses.
    pub fn widen(&self, target: &Target, inherited: CpuSet) -> io::Result<()> {
        let Some(group) = &target.cgroup else { return Ok(()) };
        for pid in self.processes_of(group, WIDENED).map_err(io::Error::other)? {
            if self.status(pid).is_some_and(|status| status.allowed == inherited) {
                match widen(self.on.kernel(), &self.processes, pid, target.runs_on) {
                    // Otherwise the process has just ended.
                    Err(error) if self.status(pid).is_some() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Whether some thread of a container runs on a part of the container's CPUs only: it has chosen
    /// them, or inherited them, and the kernel keeps its choice through a change of the cpuset as
    /// far as it can (Linux 6.2). False where threads [cannot be seen](Verifier::sees_threads).
    pub fn has_bound_itself(&self, target: &Target) -> bool {
        let Some(group) = &target.cgroup else { return false };
        let Ok(effective) = self.on.cpus(group, EFFECTIVE) else { return false };
        let threads = self.tasks_of(group, "cgroup.threads", THREADS).unwrap_or_default();
        threads
            .into_iter()
            .filter_map(|thread| self.status(thread))
            .any(|status| status.allowed != effective && status.allowed.is_subset(&effective))
    }

    /// Whether this process sees the host's threads: in another pid namespace it does not.
    pub fn sees_threads(&self, target: &Target) -> bool {
        let Some(group) = &target.cgroup else { return true };
        let threads = self.on.read(group, "cgroup.threads").unwrap_or_default();
        threads.is_empty() || !pids(&threads).is_empty()
    }

    /// A process may give itself fewer CPUs, which is no drift. A mask that equals the parent's is
    /// inherited instead: Linux 6.2 and newer keep it through every change of the cpuset.
    fn inherited(&self, pid: u32, status: &ProcessStatus, effective: CpuSet) -> Option<Drift> {
        let above = self.status(status.parent)?.allowed;
        let is_inherited = !effective.is_subset(&above) && status.allowed == above & effective;
        if is_inherited { Some(Drift::Inherited(pid, status.allowed)) } else { None }
    }

    /// Whether a cgroup inside the container's has these CPUs: then a process has its mask from there.
    /// The kernel lists a process of a threaded cgroup in the cgroup above it.
    fn has_inner(&self, group: &CgroupPath, effective: &str, cpus: CpuSet) -> bool {
        let mut inner = self.on.children(group);
        for _ in 0..INNER {
            let Some(group) = inner.pop() else { break };
            if self.on.cpus(&group, effective).is_ok_and(|own| own == cpus) {
                return true;
            }
            inner.extend(self.on.children(&group));
        }
        false
    }

    fn status(&self, pid: u32) -> Option<ProcessStatus> {
        let path = self.processes.join(pid.to_string()).join("status");
        // The kernel cuts a process's name to 15 bytes, which may leave half a character.
        ProcessStatus::parse(&String::from_utf8_lossy(&self.on.kernel().read(&path).ok()?))
    }
}

/// The kernel shows processes of other pid namespaces as 0.
fn pids(text: &str) -> Vec<u32> {
    text.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid| pid != 0).collect()
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
