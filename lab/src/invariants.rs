//! What must be true of the containers of a node at any time, read from their processes.

use anyhow::{Result, ensure};
use cpuset::CpuSet;

use crate::pod::Qos;
use crate::view::{ContainerView, View};

#[derive(Debug, Clone, Default)]
pub struct Invariants {
    pub reserved: CpuSet,
    /// CPUs that the kernel was booted to isolate: no container shares them.
    pub isolated: CpuSet,
    /// Whether a plugin runs, so that its state file must have its decisions.
    pub written: bool,
    /// CPUs reserved for ended containers.
    pub held: usize,
}

impl Invariants {
    /// Exclusive containers have as many CPUs as requested: online, not reserved, without another
    /// container and without a quota. All others have the remaining CPUs.
    pub fn check(&self, view: &View) -> Result<()> {
        let online = parse(&view.hardware.online);
        let mut exclusive = CpuSet::EMPTY;
        for container in &view.containers {
            let Some(requested) = requested(container) else { continue };
            let (name, cpus) = (name(container), parse(&container.allowed));
            ensure!(
                cpus.len() == requested,
                "{name} requested {requested} CPUs but may run on {cpus}"
            );
            ensure!(cpus.is_disjoint(&self.reserved), "{name} may run on reserved CPUs: {cpus}");
            ensure!(cpus.is_subset(&online), "{name} may run on {cpus}, online are {online}");
            let twice = cpus & exclusive;
            ensure!(twice.is_empty(), "{name} may run on {cpus}, of which others have {twice}");
            if let Some(quota) = container.quota {
                anyhow::bail!("{name} has exclusive CPUs and a quota of {quota}m");
            }
            exclusive |= cpus;
        }
        let pool = online - exclusive - self.isolated;
        for container in view.containers.iter().filter(|c| requested(c).is_none()) {
            let (name, cpus) = (name(container), parse(&container.allowed));
            let taken = cpus & exclusive;
            ensure!(
                taken.is_empty(),
                "{name}, a shared one, may run on {cpus}: {taken} are exclusive"
            );
            ensure!(
                cpus.is_subset(&pool) && (pool - cpus).len() == self.held,
                "{name}, a shared one, may run on {cpus}: expected {pool} without {} CPUs",
                self.held
            );
        }
        Ok(())
    }

    /// The state file must agree with the processes of exclusive containers.
    pub fn check_written(&self, view: &View) -> Result<()> {
        for container in view.containers.iter().filter(|c| self.written && requested(c).is_some()) {
            let (name, cpus) = (name(container), parse(&container.allowed));
            let claimed = container.claimed.as_deref().unwrap_or_default();
            ensure!(
                parse(claimed) == cpus,
                "{name} may run on {cpus}, but the state file has {claimed:?}"
            );
        }
        Ok(())
    }
}

/// The number of exclusive CPUs by the kubelet's rule; None for a shared container.
fn requested(container: &ContainerView) -> Option<usize> {
    let whole = container.request >= 1000 && container.request % 1000 == 0;
    if container.qos != Qos::Guaranteed || !whole {
        return None;
    }
    usize::try_from(container.request / 1000).ok()
}

fn name(container: &ContainerView) -> String {
    format!("{}/{}", container.pod, container.container)
}

/// No CPUs for what is not a list.
pub fn parse(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}
