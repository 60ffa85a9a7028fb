//! [`NoiseFigures`]: what ran or fired on exclusive CPUs besides their containers. [`Watched`] says whose
//! CPUs those are.

use super::snapshot::full_name;
use cpuset::{CgroupPath, CpuSet, PartitionType};
use ledger::{ContainerView, Mechanism, Phase};
use noise::{
    ContainerNoise, CpuNoise, InForce, Kind, NoiseReport, Owner, PartitionInForce, Verdict,
};
use quiet::InterruptMode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many findings status and page show of each container.
const MOST_FINDINGS: usize = 3;

/// What the daemon has observed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoiseFigures {
    /// In the last minute, without what is expected; `null` without exclusive CPUs, and before there are
    /// two samples.
    pub recent: Option<NoiseReport>,
    /// Since the start, by CPU, with what is expected.
    #[serde(skip)]
    pub totals: BTreeMap<usize, NoiseTotals>,
    /// Why nothing can be observed, and what to do.
    pub obstacle: Option<String>,
}

/// Of one CPU, under all its owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoiseTotals {
    pub kinds: BTreeMap<Kind, NoiseTotal>,
    /// Involuntary context switches of the owners' threads.
    pub involuntary: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoiseTotal {
    /// Interrupts, softirqs, or context switches of threads.
    pub count: u64,
    /// CPU time of threads.
    pub milliseconds: u64,
}

impl NoiseFigures {
    /// CPUs on which something unexpected ran or fired in the last minute.
    pub fn noisy(&self) -> CpuSet {
        self.recent.as_ref().map(|noise| noise.with_verdict(Verdict::Noisy)).unwrap_or_default()
    }
}

impl NoiseTotals {
    pub fn add(&mut self, grown: &CpuNoise) {
        for one in grown.findings.iter().chain(&grown.expected) {
            let total = self.kinds.entry(one.kind).or_default();
            total.count = total.count.saturating_add(one.count);
            let milliseconds = one.milliseconds.unwrap_or_default();
            total.milliseconds = total.milliseconds.saturating_add(milliseconds);
        }
        let involuntary = grown.involuntary_context_switches.unwrap_or_default();
        self.involuntary = self.involuntary.saturating_add(involuntary);
    }
}

/// How many CPUs are noisy and how many quiet: `2 noisy (CPUs 6-7), 4 quiet as far as visible`.
pub(crate) fn verdicts(noise: &NoiseReport) -> String {
    let mut parts = Vec::new();
    for (verdict, words) in [
        (Verdict::Noisy, "noisy"),
        (Verdict::Quiet, "quiet"),
        (Verdict::QuietAsFarAsVisible, "quiet as far as visible"),
        (Verdict::Unobserved, "not observed yet"),
    ] {
        let cpus = noise.with_verdict(verdict);
        if verdict == Verdict::Noisy && !cpus.is_empty() {
            parts.push(format!("{} {words} ({})", cpus.len(), wording::cpus(cpus)));
        } else if !cpus.is_empty() {
            parts.push(format!("{} {words}", cpus.len()));
        }
    }
    wording::or_none(parts.join(", "))
}

/// The heaviest findings of a container with their advice, a line each, and then how many more there are.
pub(crate) fn heaviest(container: &ContainerNoise) -> Vec<String> {
    let findings = container.heaviest();
    let mut lines: Vec<String> = findings
        .iter()
        .take(MOST_FINDINGS)
        .map(|(cpu, finding)| match finding.advice {
            Some(advice) => format!("CPU {cpu}: {finding}; {}", advice.text()),
            None => format!("CPU {cpu}: {finding}"),
        })
        .collect();
    if findings.len() > MOST_FINDINGS {
        lines.push(format!("{} more: nri-cpu-manager noise", findings.len() - MOST_FINDINGS));
    }
    lines
}

/// Containers and own pools of pods whose CPUs are observed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Watched {
    pub owners: Vec<Owner>,
    /// Names of those whose cgroup is not known: their own threads would count as noise.
    pub unknown: Vec<String>,
}

impl Watched {
    /// Of containers on a node with this mechanism and type of partitions.
    pub fn of<'a>(
        containers: impl IntoIterator<Item = &'a ContainerView>,
        mechanism: Mechanism,
        partition: PartitionType,
    ) -> Watched {
        let mut watched = Watched::default();
        // Only a running container has a cgroup of its own that keeps others off its CPUs. One that is created
        // has no process yet, and one that has ended keeps its CPUs without using them.
        for one in containers.into_iter().filter(|one| one.phase == Phase::Running) {
            let in_force = in_force(one, mechanism, partition);
            if !one.own_pool.is_empty() {
                let pod = full_name(&one.pod.namespace, &one.pod.name, "");
                let group = one.cgroup.as_ref().and_then(CgroupPath::parent);
                watched.add(format!("{pod} (own pool)"), group, *one.own_pool, in_force);
            }
            if let Some(exclusive) = one.exclusive {
                let name = full_name(&one.pod.namespace, &one.pod.name, &one.name);
                watched.add(name, one.cgroup.clone(), exclusive | *one.idle, in_force);
            }
        }
        watched
    }

    fn add(&mut self, name: String, cgroup: Option<CgroupPath>, cpus: CpuSet, in_force: InForce) {
        // Containers that share an own pool have the same one.
        if self.owners.iter().any(|owner| owner.name == name) || self.unknown.contains(&name) {
            return;
        }
        match cgroup {
            Some(cgroup) => self.owners.push(Owner { name, cgroup, cpus, in_force }),
            None => self.unknown.push(name),
        }
    }
}

fn in_force(container: &ContainerView, mechanism: Mechanism, kind: PartitionType) -> InForce {
    // A container in an own pool has no mechanism of its own, and no partition.
    let own = container.exclusive.map(|_| container.enforced_by);
    let partition = match (own, mechanism) {
        (Some(Mechanism::Partitions), _) => PartitionInForce::Of(kind),
        (_, Mechanism::Partitions) => PartitionInForce::Missing,
        _ => PartitionInForce::Unused,
    };
    InForce { partition, interrupts_away: container.interrupts == InterruptMode::Away }
}
