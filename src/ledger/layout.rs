//! [`Layout`]: what the groups above containers have to be where these keep exclusivity.
//!
//! The kubelet puts Burstable and BestEffort pods into a group for their class each, and Guaranteed
//! pods beside these two. A class's group holds all pods of it at once; so two writes bring most of
//! a node's containers into the shared pool, however many they are.

use super::books::{Books, PodEntry};
use super::cgroup::CgroupPath;
use super::model::Qos;
use super::node::{Node, Pool};
use crate::cpuset::CpuSet;
use std::collections::BTreeMap;

/// What the groups above containers have to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Where containers without exclusive CPUs may run.
    pub pool: CpuSet,
    /// What these containers are told: all CPUs that could ever be in the pool.
    pub told: CpuSet,
    /// The classes' groups, and pods' groups that are in none, in order of their paths. Pods of a
    /// class in which some container has exclusive CPUs are in it as well.
    pub groups: Vec<GroupTarget>,
}

/// A group above containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTarget {
    /// Which.
    pub group: CgroupPath,
    /// The containers below it with exclusive CPUs. It needs these beside the pool.
    pub exclusive: Vec<Occupant>,
    /// Whether it is a pod's: what is in it directly are containers, and its pause container.
    pub is_pod: bool,
}

/// A container with exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Its own group.
    pub group: CgroupPath,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// A pod whose groups are none of a kubelet's, as far as can be seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The runtime does not say where they are.
    #[error("the runtime does not tell the control group of {0}")]
    Nowhere(String),
    /// They are elsewhere.
    #[error("{pod} is in the control group {group}, which is none that a kubelet makes for a pod")]
    Unknown {
        /// The pod.
        pod: String,
        /// Its group.
        group: CgroupPath,
    },
}

/// The layout of all pods that exist.
pub(super) fn layout(node: &Node, books: &Books, pool: &Pool) -> Result<Layout, LayoutError> {
    let mut groups: BTreeMap<CgroupPath, GroupTarget> = BTreeMap::new();
    // Pods by the group of their class.
    let mut classes: BTreeMap<CgroupPath, Vec<&PodEntry>> = BTreeMap::new();
    for (_, pod) in books.pods() {
        let Some(group) = group_of(pod)? else { continue };
        let class =
            group.parent().filter(|_| matches!(pod.pod.qos, Qos::Burstable | Qos::BestEffort));
        match class {
            Some(class) => classes.entry(class).or_default().push(pod),
            None => drop(groups.insert(group.clone(), pod_target(group, pod))),
        }
    }
    for (class, pods) in classes {
        let exclusive: Vec<Occupant> = pods.iter().flat_map(|pod| occupants(pod)).collect();
        if !exclusive.is_empty() {
            for pod in &pods {
                let Some(group) = group_of(pod)? else { continue };
                groups.insert(group.clone(), pod_target(group, pod));
            }
        }
        groups.insert(class.clone(), GroupTarget { group: class, exclusive, is_pod: false });
    }
    let groups = groups.into_values().collect();
    Ok(Layout { pool: pool.in_groups(node), told: pool.open, groups })
}

fn pod_target(group: CgroupPath, pod: &PodEntry) -> GroupTarget {
    GroupTarget { group, exclusive: occupants(pod).collect(), is_pod: true }
}

/// The containers of a pod that have exclusive CPUs and exist.
fn occupants(pod: &PodEntry) -> impl Iterator<Item = Occupant> {
    let alive = pod.containers().filter(|(_, entry)| entry.is_alive());
    alive.filter_map(|(_, entry)| {
        Some(Occupant { group: entry.cgroup.clone()?, cpus: entry.claim? })
    })
}

/// A pod's group; `None` if there is nothing of it that could run.
fn group_of(pod: &PodEntry) -> Result<Option<CgroupPath>, LayoutError> {
    let alive = || pod.containers().any(|(_, entry)| entry.is_alive());
    let name = || format!("{}/{}", pod.pod.namespace, pod.pod.name);
    match pod.group() {
        None if alive() => Err(LayoutError::Nowhere(name())),
        None => Ok(None),
        Some(group) if pod.pod.qos == Qos::Unknown => match alive() {
            true => Err(LayoutError::Unknown { pod: name(), group }),
            false => Ok(None),
        },
        Some(group) => Ok(Some(group)),
    }
}
