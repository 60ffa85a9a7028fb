//! The invariants of any machine at any time, read from the processes.

use std::collections::BTreeMap;

use cpuset::CpuSet;

use crate::pod::Qos;
use crate::view::{ContainerView, View};

/// Invariants of the containers of a node.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    pub(super) reserved: CpuSet,
    /// Whether a plugin runs, so that its state file must have its decisions.
    pub(super) written: bool,
    /// CPUs of partitions of other programs: no container may run there.
    pub(super) foreign: CpuSet,
    /// CPUs that the kernel was booted to isolate: no container shares them.
    pub(super) never_shared: CpuSet,
    /// CPUs reserved for ended containers.
    pub(super) held: usize,
    /// Pods whose container keeps so many CPUs more than it asks for, as it has notice that they go.
    pub(super) leaving: BTreeMap<String, usize>,
}

impl Promise {
    /// Exclusive containers have as many CPUs as requested: online, not reserved, without another
    /// container and without a quota. All others have the remaining CPUs.
    pub(super) fn check(&self, view: &View) -> Result<(), String> {
        let online = parse(&view.hardware.online) - self.foreign;
        let mut exclusive = CpuSet::EMPTY;
        for container in &view.containers {
            let name = name(container);
            let cpus = parse(&container.allowed);
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
        }
        let pool = online - exclusive - self.never_shared;
        for container in view.containers.iter().filter(|c| self.wanted(c).is_none()) {
            let name = name(container);
            let cpus = parse(&container.allowed);
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
            let cpus = parse(&container.allowed);
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
        let whole = container.request >= 1000 && container.request % 1000 == 0;
        if container.qos != Qos::Guaranteed || !whole {
            return None;
        }
        let leaving = self.leaving.get(&container.pod).copied().unwrap_or_default();
        Some(usize::try_from(container.request / 1000).unwrap_or_default() + leaving)
    }
}

fn name(container: &ContainerView) -> String {
    format!("{}/{}", container.pod, container.container)
}

pub(super) fn parse(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}
