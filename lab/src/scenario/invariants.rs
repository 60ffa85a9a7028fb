//! The invariants of any machine at any time, read from the processes.

use std::collections::{BTreeMap, BTreeSet};

use cpuset::CpuSet;

use crate::pod::Qos;
use crate::view::{ContainerView, View};

/// Invariants of the containers of a node.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    pub(super) reserved: CpuSet,
    /// Whether shared containers must leave the reserved CPUs.
    pub(super) strict: bool,
    /// Whether a plugin runs, so that its state file must have its decisions.
    pub(super) written: bool,
    /// CPUs of partitions of other programs: no container may run there.
    pub(super) foreign: CpuSet,
    /// CPUs that the kernel was booted to isolate: no container shares them.
    pub(super) never_shared: CpuSet,
    /// CPUs reserved for ended containers.
    pub(super) held: usize,
    /// Containers, by pod and name, that came with pod-level resources and share.
    pub(super) inheriting: BTreeSet<(String, String)>,
    /// Pods whose containers run on the reserved CPUs.
    pub(super) system: BTreeSet<String>,
    /// Pods whose container keeps so many CPUs more than it asks for, as it has notice that they go.
    pub(super) leaving: BTreeMap<String, usize>,
    /// Pods whose SMT siblings stay idle.
    pub(super) isolated: BTreeSet<String>,
    /// Pods that have whole uncore caches: the rest of these stays idle.
    pub(super) whole_caches: BTreeSet<String>,
}

impl Promise {
    /// Exclusive containers have as many CPUs as requested: online, not reserved, without another
    /// container and without a quota. All others have the remaining CPUs except idle ones.
    pub(super) fn check(&self, view: &View) -> Result<(), String> {
        let online = parse(&view.hardware.online) - self.foreign;
        let mut exclusive = CpuSet::EMPTY;
        for container in &view.containers {
            let name = name(container);
            let cpus = exclusive_part(container);
            let Some(wanted) = self.wanted(container) else { continue };
            if cpus.len() != wanted {
                return Err(format!("{name} requested {wanted} CPUs but may run on {cpus}"));
            }
            if !(cpus & self.reserved).is_empty() {
                return Err(format!("{name} may run on reserved CPUs: {cpus}"));
            }
            if !cpus.is_subset(&online) {
                return Err(format!("{name} may run on {cpus}, of which {online} are usable"));
            }
            if !(cpus & exclusive).is_empty() {
                return Err(format!(
                    "{name} may run on {cpus}, of which others have {}",
                    cpus & exclusive
                ));
            }
            if let Some(quota) = container.quota {
                return Err(format!("{name} has exclusive CPUs and a quota of {quota}m"));
            }
            exclusive |= cpus;
            let mut idle = CpuSet::EMPTY;
            if self.isolated.contains(&container.pod) {
                idle |= beside(&view.hardware.cores, cpus) - self.reserved;
            }
            if self.whole_caches.contains(&container.pod) {
                let rest = beside(&view.hardware.caches, cpus);
                if !(rest & self.reserved).is_empty() {
                    return Err(format!("{name} has a cache with reserved CPUs: {cpus}"));
                }
                idle |= rest;
            }
            if !(idle & exclusive).is_empty() {
                return Err(format!("CPUs {idle} beside {name} are not idle"));
            }
            // Any other container there is on exclusive CPUs.
            exclusive |= idle;
        }
        let pool = online
            - exclusive
            - self.never_shared
            - if self.strict { self.reserved } else { CpuSet::EMPTY };
        for container in &view.containers {
            let name = name(container);
            let mut cpus = parse(&container.allowed);
            if self.system.contains(&container.pod) {
                if cpus != self.reserved {
                    let reserved = self.reserved;
                    return Err(format!(
                        "{name} may run on {cpus}: the reserved CPUs are {reserved}"
                    ));
                }
                continue;
            }
            if self.wanted(container).is_some() {
                cpus -= exclusive_part(container);
                if cpus.is_empty() && !container.mixed {
                    continue;
                }
            }
            if !(cpus & exclusive).is_empty() {
                return Err(format!(
                    "{name}, a shared one, may run on {cpus}: {} are exclusive",
                    cpus & exclusive
                ));
            }
            if !cpus.is_subset(&pool) || (pool - cpus).len() != self.held {
                return Err(format!(
                    "{name}, a shared one, may run on {cpus}: expected {pool} without {} CPUs",
                    self.held
                ));
            }
        }
        Ok(())
    }

    /// The state file must agree with the processes of exclusive containers.
    pub(super) fn check_written(&self, view: &View) -> Result<(), String> {
        if !self.written {
            return Ok(());
        }
        for container in view.containers.iter().filter(|c| self.wanted(c).is_some()) {
            let name = name(container);
            let cpus = exclusive_part(container);
            let decided = container.decided.as_deref().unwrap_or_default();
            if parse(decided) != cpus {
                return Err(format!(
                    "{name} may run on {cpus}, but the state file has {decided:?}"
                ));
            }
        }
        Ok(())
    }

    /// The number of exclusive CPUs by the kubelet's rule; None for a shared container.
    fn wanted(&self, container: &ContainerView) -> Option<usize> {
        let of = (container.pod.clone(), container.container.clone());
        let whole = container.request >= 1000 && container.request % 1000 == 0;
        let exclusive = container.qos == Qos::Guaranteed
            && whole
            && !self.inheriting.contains(&of)
            && !self.system.contains(&container.pod);
        let leaving = self.leaving.get(&container.pod).copied().unwrap_or_default();
        exclusive.then(|| usize::try_from(container.request / 1000).unwrap_or_default() + leaving)
    }
}

/// Of a container that uses shared CPUs as well, only the state file tells which are exclusive.
fn exclusive_part(container: &ContainerView) -> CpuSet {
    let allowed = parse(&container.allowed);
    let decided = container.decided.as_deref().filter(|_| container.mixed);
    decided.map_or(allowed, |decided| parse(decided) & allowed)
}

/// The rest of the cores or caches that have some of these CPUs.
fn beside(domains: &[String], cpus: CpuSet) -> CpuSet {
    let domains = domains.iter().map(|domain| parse(domain));
    let touched: CpuSet = domains.filter(|domain| !domain.is_disjoint(&cpus)).collect();
    touched - cpus
}

fn name(container: &ContainerView) -> String {
    format!("{}/{}", container.pod, container.container)
}

pub(super) fn parse(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}
