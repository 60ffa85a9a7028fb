//! The state of a node: where processes may run, and what the plugin has claimed.

use anyhow::{Context, Result};
use cpuset::CpuSet;
use kernel::Linux;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use topology::{Topology, sysfs};

use crate::cgroup;
use crate::hardware::Hardware;
use crate::node::Node;
use crate::plugin::PluginFiles;
use crate::pod::Qos;
use crate::process;

/// How long busy processes are observed.
const WINDOW: Duration = Duration::from_millis(500);

/// A node at one moment. CPU sets are in the kernel's list format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Read from `/sys` by the lab.
    pub hardware: Hardware,
    /// Read from `/sys` by the plugin's reader.
    pub read: Hardware,
    /// In the order of their start.
    pub busy: Vec<BusyView>,
    /// Running containers in the order of their start.
    pub containers: Vec<ContainerView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyView {
    pub name: String,
    pub allowed: String,
    /// CPUs it ran on within half a second.
    pub ran: String,
    /// Its cgroup's `cpuset.cpus`.
    pub set: String,
}

/// A running container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerView {
    pub pod: String,
    pub container: String,
    pub qos: Qos,
    pub request: i64,
    /// `Cpus_allowed_list` of all threads of all processes.
    pub allowed: String,
    /// CFS quota of its cgroup in milli-CPUs; None if it has none.
    pub quota: Option<i64>,
    /// Exclusive CPUs in the plugin's state file; None for a shared container.
    pub claimed: Option<String>,
}

impl ContainerView {
    /// All running containers. Without a plugin, none has a decision.
    pub fn all(node: &Node, plugin: Option<&PluginFiles>) -> Result<Vec<Self>> {
        let mut containers = Vec::new();
        for running in node.pods() {
            for container in &running.containers {
                let (pod, name) = (&running.pod.name, &container.name);
                let requested = running.pod.containers.iter().find(|c| c.name == *name);
                let claimed = plugin.map(|plugin| plugin.claimed(pod, name)).transpose()?.flatten();
                containers.push(Self {
                    quota: cgroup::quota(container.pid)?,
                    pod: pod.clone(),
                    container: name.clone(),
                    qos: running.pod.qos(),
                    request: requested.map_or(0, |c| c.cpu_request),
                    allowed: node.allowed(pod, name)?.to_string(),
                    claimed: claimed.map(|cpus| cpus.to_string()),
                });
            }
        }
        Ok(containers)
    }
}

impl View {
    /// Without a plugin, no container has a decision.
    pub fn of(node: &Node, plugin: Option<&PluginFiles>) -> Result<Self> {
        let sys = Path::new("/sys");
        let reading = sysfs::read(&Linux, sys).context("cannot read this machine's topology")?;
        let topology =
            Topology::build(reading.facts).context("invalid topology of this machine")?;
        let mut busy = Vec::new();
        for process in node.busy() {
            busy.push(BusyView {
                name: process.name.clone(),
                allowed: process::allowed(process.pid)?.to_string(),
                ran: process.runs_on(WINDOW).to_string(),
                set: cgroup::set_cpus(process.pid)?,
            });
        }
        let containers = ContainerView::all(node, plugin)?;
        Ok(Self { hardware: Hardware::read(sys)?, read: Hardware::of(&topology), busy, containers })
    }

    /// Where a pod's first container may run, or a busy process of the host.
    pub fn allowed(&self, name: &str) -> &str {
        let container = self.containers.iter().find(|c| c.pod == name).map(|c| &c.allowed);
        let busy = || self.busy.iter().find(|b| b.name == name).map(|b| &b.allowed);
        container.or_else(busy).map_or("(missing)", String::as_str)
    }

    /// CFS quota of a pod's first container in milli-CPUs.
    pub fn quota(&self, pod: &str) -> Option<i64> {
        self.containers.iter().find(|c| c.pod == pod).and_then(|c| c.quota)
    }

    /// The CPUs on which a busy process ran.
    pub fn ran(&self, name: &str) -> CpuSet {
        let busy = self.busy.iter().find(|b| b.name == name);
        busy.and_then(|b| b.ran.parse().ok()).unwrap_or_default()
    }

    /// See [`disagreements`].
    pub fn disagreements(&self) -> Vec<String> {
        disagreements(self.hardware.online.parse().unwrap_or_default(), &self.containers)
    }
}

/// All disagreements between processes and decisions.
///
/// An exclusive container must run on exactly the claimed CPUs, without a quota; all others on
/// exactly the online CPUs that are not exclusive.
pub fn disagreements(online: CpuSet, containers: &[ContainerView]) -> Vec<String> {
    let parse = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
    let mut shared = online;
    let mut disagreements = Vec::new();
    for container in containers {
        let claimed = container.claimed.as_deref().map(parse).unwrap_or_default();
        if !(claimed - shared).is_empty() {
            let twice = claimed - shared;
            let are = wording::agree(twice, "is", "are");
            let cpus = wording::cpus(twice);
            disagreements.push(format!("{}: {cpus} {are} assigned twice", container.pod));
        }
        shared -= claimed;
    }
    for container in containers {
        let expected = container.claimed.as_deref().map_or(shared, parse);
        if parse(&container.allowed) != expected {
            disagreements.push(format!(
                "{}: may run on {}, claimed: {expected}",
                container.pod, container.allowed
            ));
        }
        if let (Some(_), Some(quota)) = (&container.claimed, container.quota) {
            disagreements
                .push(format!("{}: has exclusive CPUs and a quota of {quota}m", container.pod));
        }
    }
    disagreements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(pod: &str, allowed: &str, claimed: Option<&str>) -> ContainerView {
        ContainerView {
            pod: pod.into(),
            container: "main".into(),
            qos: Qos::Guaranteed,
            request: 0,
            allowed: allowed.into(),
            quota: None,
            claimed: claimed.map(str::to_owned),
        }
    }

    #[test]
    fn each_disagreement_with_the_kernel_is_named() {
        let view = |containers| View {
            hardware: Hardware { online: "0-7".into(), ..Hardware::default() },
            read: Hardware::default(),
            busy: Vec::new(),
            containers,
        };
        let good = view(vec![container("a", "2-3", Some("2-3")), container("b", "0-1,4-7", None)]);
        assert!(good.disagreements().is_empty());
        let stale = view(vec![container("a", "2-3", Some("2-3")), container("b", "0-7", None)]);
        assert_eq!(stale.disagreements(), ["b: may run on 0-7, claimed: 0-1,4-7"]);
        let twice =
            view(vec![container("a", "2-3", Some("2-3")), container("b", "3-4", Some("3-4"))]);
        assert_eq!(twice.disagreements(), ["b: CPU 3 is assigned twice"]);
        let limited =
            |claimed| ContainerView { quota: Some(2000), ..container("a", "2-3", claimed) };
        let throttled = view(vec![limited(Some("2-3"))]);
        let disagreements = "a: has exclusive CPUs and a quota of 2000m";
        assert_eq!(throttled.disagreements(), [disagreements]);
        assert_eq!(
            view(vec![limited(Some("2-3")), container("b", "0-1,4-7", None)]).disagreements(),
            [disagreements]
        );
    }
}
