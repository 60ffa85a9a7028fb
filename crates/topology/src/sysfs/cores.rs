//! Cores, their kinds, and their sockets and dies.

use super::groups::{CpuGroups, adopt, partition};
use super::tree::{Format, Lookup, SysfsTree};
use super::warning::{Fact, Problem, Warnings};
use crate::CoreKind;
use cpuset::CpuSet;
use std::collections::BTreeMap;

/// The files with the threads of a core, in the order of preference. Linux before 5.3 has only the
/// `thread_siblings` names.
const SIBLINGS: [(&str, Format); 4] = [
    ("core_cpus_list", Format::List),
    ("thread_siblings_list", Format::List),
    ("core_cpus", Format::Mask),
    ("thread_siblings", Format::Mask),
];

fn topology_dir(cpu: usize) -> String {
    format!("devices/system/cpu/cpu{cpu}/topology")
}

/// The core of each online CPU, named by the core's lowest online CPU.
///
/// Only the lists of siblings are used: the kernel's `core_id` repeats in every die and socket.
pub(super) fn read(
    tree: &SysfsTree<'_>,
    online: CpuSet,
    warnings: &mut Warnings,
) -> BTreeMap<usize, usize> {
    let mut claims = BTreeMap::new();
    let mut silent = CpuSet::EMPTY;
    for cpu in &online {
        let dir = topology_dir(cpu);
        let absent = || format!("{dir}: no list of siblings");
        match warnings.judge(cpu, Fact::Cores, tree.cpus(&dir, &SIBLINGS), absent) {
            Some(siblings) => {
                claims.insert(cpu, siblings & online);
            }
            // Cannot fail: the CPU comes from a set.
            None => silent.insert(cpu).unwrap_or_default(),
        }
    }
    adopt(&mut claims, &silent);
    let CpuGroups { groups: mut cores, conflicting, example } = partition(&claims);
    if let Some(example) = example {
        warnings.of_all(conflicting, Fact::Cores, Problem::Conflicting, example);
    }
    for cpu in &silent {
        cores.entry(cpu).or_insert(cpu);
    }
    cores
}

/// The socket of a CPU. The kernel writes -1 if the firmware does not report it.
pub(super) fn package(tree: &SysfsTree<'_>, cpu: usize) -> Lookup<usize> {
    tree.number(&format!("{}/physical_package_id", topology_dir(cpu)))
}

/// The number of a CPU's die in its socket. The kernel reports it since Linux 5.3, and not on all
/// architectures.
pub(super) fn die(tree: &SysfsTree<'_>, cpu: usize) -> Option<usize> {
    tree.number(&format!("{}/die_id", topology_dir(cpu))).value
}

pub(super) fn sockets(
    tree: &SysfsTree<'_>,
    online: CpuSet,
    cores: &BTreeMap<usize, usize>,
    nodes: &BTreeMap<usize, usize>,
    warnings: &mut Warnings,
) -> BTreeMap<usize, usize> {
    let mut known = BTreeMap::new();
    let mut unknown = Vec::new();
    for cpu in &online {
        let absent = || format!("{}: no file physical_package_id", topology_dir(cpu));
        match warnings.judge(cpu, Fact::Sockets, package(tree, cpu), absent) {
            Some(socket) => {
                known.insert(cpu, socket);
            }
            None => unknown.push(cpu),
        }
    }
    let mut sockets = known.clone();
    for cpu in unknown {
        // The socket of the lowest CPU that has the same core or node and whose socket is known.
        let sibling = |map: &BTreeMap<usize, usize>| {
            let place = map.get(&cpu)?;
            known.iter().find(|(other, _)| map.get(other) == Some(place)).map(|(_, &socket)| socket)
        };
        let socket = sibling(cores)
            .or_else(|| sibling(nodes))
            .or_else(|| known.values().min().copied())
            .unwrap_or_default();
        sockets.insert(cpu, socket);
    }
    sockets
}

#[derive(Debug, Default)]
pub(super) struct Kinds {
    performance: CpuSet,
    efficient: CpuSet,
}

impl Kinds {
    pub(super) fn of(&self, cpu: usize) -> Option<CoreKind> {
        match (self.performance.contains(cpu), self.efficient.contains(cpu)) {
            (true, false) => Some(CoreKind::Performance),
            (false, true) => Some(CoreKind::Efficient),
            _ => None,
        }
    }
}

/// Hybrid machines have a performance monitoring unit for each kind of core, which lists the CPUs.
pub(super) fn kinds(tree: &SysfsTree<'_>, warnings: &mut Warnings) -> Kinds {
    let mut unit = |name: &str| {
        let cpus = tree.cpus(&format!("devices/{name}"), &[("cpus", Format::List)]);
        warnings.value(Fact::Kinds, cpus).unwrap_or_default()
    };
    let performance = unit("cpu_core");
    // Some machines have a third, even slower kind with its own unit.
    let efficient = unit("cpu_atom") | unit("cpu_lowpower");
    let both = performance & efficient;
    if !both.is_empty() {
        let example = "devices/cpu_core/cpus and devices/cpu_atom/cpus both list them".to_owned();
        warnings.of_all(both, Fact::Kinds, Problem::Conflicting, example);
    }
    Kinds { performance, efficient }
}
