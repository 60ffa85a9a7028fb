//! NUMA nodes, their distances and memory.

use super::tree::{Format, SysfsTree};
use super::warning::{Fact, Problem, Warnings};
use crate::model::{LOCAL_DISTANCE, NodeFacts};
use cpuset::CpuSet;
use std::collections::BTreeMap;

const DIR: &str = "devices/system/node";

pub(super) struct Nodes {
    /// The node of each online CPU, and of those offline CPUs for which the kernel still reports
    /// it.
    pub(super) of: BTreeMap<usize, usize>,
    /// All nodes, ascending.
    pub(super) nodes: Vec<NodeFacts>,
    /// Bytes of memory by node.
    pub(super) memory: BTreeMap<usize, u64>,
    /// By node: for each size of huge pages in bytes, how many its pool has.
    pub(super) huge_pages: BTreeMap<usize, BTreeMap<u64, u64>>,
}

pub(super) fn read(
    tree: &SysfsTree<'_>,
    present: CpuSet,
    online: CpuSet,
    warnings: &mut Warnings,
) -> Nodes {
    let ids = warnings.value(Fact::Nodes, tree.numbered(DIR, "node")).unwrap_or_default();
    if ids.is_empty() {
        // A kernel without NUMA has no such directory; the machine counts as one node.
        return Nodes {
            of: online.iter().map(|cpu| (cpu, 0)).collect(),
            nodes: vec![NodeFacts { id: 0, distances: vec![LOCAL_DISTANCE], memoryless: false }],
            memory: BTreeMap::new(),
            huge_pages: BTreeMap::new(),
        };
    }
    let of = members(tree, &ids, present, online, warnings);
    let memory: BTreeMap<usize, u64> =
        ids.iter().filter_map(|&id| Some((id, memory(tree, id)?))).collect();
    // In a cpuset, the kernel allows only the nodes of this list. Linux before 2.6.24 does not have
    // it.
    let listed = tree.cpus(DIR, &[("has_memory", Format::List)]).value;
    let memoryless = |id| match listed {
        Some(listed) => !listed.contains(id),
        None => memory.get(&id) == Some(&0),
    };
    let nodes = ids
        .iter()
        .map(|&id| NodeFacts {
            id,
            distances: distances(tree, id, &ids, warnings),
            memoryless: memoryless(id),
        })
        .collect();
    let huge_pages = ids.iter().map(|&id| (id, huge_pages(tree, id)));
    let huge_pages = huge_pages.filter(|(_, pools)| !pools.is_empty()).collect();
    Nodes { of, nodes, memory, huge_pages }
}

fn members(
    tree: &SysfsTree<'_>,
    ids: &[usize],
    present: CpuSet,
    online: CpuSet,
    warnings: &mut Warnings,
) -> BTreeMap<usize, usize> {
    let mut of = BTreeMap::new();
    let mut unknown = None;
    for &id in ids {
        let dir = format!("{DIR}/node{id}");
        let listed = tree.cpus(&dir, &[("cpulist", Format::List), ("cpumap", Format::Mask)]);
        match (listed.value, listed.trouble) {
            (Some(_), None) => {}
            (Some(_), Some(trouble)) => warnings.machine(Fact::Nodes, Problem::Garbled, trouble),
            (None, trouble) => {
                unknown = unknown.or(Some(id));
                let absent = || format!("{dir}: neither cpulist nor cpumap");
                warnings.machine(Fact::Nodes, Problem::Missing, trouble.unwrap_or_else(absent));
            }
        }
        for cpu in &(listed.value.unwrap_or_default() & present) {
            if let Some(first) = of.get(&cpu) {
                let example = format!("nodes {first} and {id} both list CPU {cpu}");
                warnings.of(cpu, Fact::Nodes, Problem::Conflicting, example);
            } else {
                of.insert(cpu, id);
            }
        }
    }
    let lowest = ids.first().copied();
    for cpu in &present {
        if of.contains_key(&cpu) {
            continue;
        }
        // The kernel removes an offline CPU from its node's list, but keeps the link in the CPU's
        // directory.
        let dir = format!("devices/system/cpu/cpu{cpu}");
        let links = tree.numbered(&dir, "node").value.unwrap_or_default();
        let link = links.into_iter().find(|link| ids.contains(link));
        if online.contains(cpu) {
            let example = format!("no node lists CPU {cpu}");
            warnings.of(cpu, Fact::Nodes, Problem::Missing, example);
            of.extend(link.or(unknown).or(lowest).map(|node| (cpu, node)));
        } else {
            of.extend(link.map(|node| (cpu, node)));
        }
    }
    of
}

/// The distances from one node to all nodes, in ascending order of node numbers; empty if unknown.
fn distances(tree: &SysfsTree<'_>, id: usize, ids: &[usize], warnings: &mut Warnings) -> Vec<u32> {
    let path = format!("{DIR}/node{id}/distance");
    let lookup = tree.parsed(&path, |text| {
        let distances: Vec<u32> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| format!("{text:?} is not a row of distances"))?;
        if distances.len() != ids.len() {
            return Err(format!("{} distances for {} nodes", distances.len(), ids.len()));
        }
        Ok(distances)
    });
    if lookup.value.is_none() && lookup.trouble.is_none() && ids.len() == 1 {
        // Without other nodes the file is not needed.
        return vec![LOCAL_DISTANCE];
    }
    let absent = || format!("{path}: no such file");
    let Some(distances) = warnings.judge(id, Fact::Distances, lookup, absent) else {
        return Vec::new();
    };
    let own = ids.iter().position(|&other| other == id);
    let local = own.and_then(|at| distances.get(at).copied()).unwrap_or(LOCAL_DISTANCE);
    let as_near = |(at, &distance): (usize, &u32)| Some(at) != own && distance <= local;
    if distances.iter().enumerate().any(as_near) {
        let example = format!("{path}: another node is listed as near as the node itself");
        warnings.of(id, Fact::Distances, Problem::Conflicting, example);
    }
    distances
}

/// The memory of a node in bytes, from the line `Node 0 MemTotal:  65536 kB` of its `meminfo`.
fn memory(tree: &SysfsTree<'_>, id: usize) -> Option<u64> {
    let text = tree.text(&format!("{DIR}/node{id}/meminfo")).value?;
    let rest = text.lines().find_map(|line| line.split_once("MemTotal:").map(|(_, rest)| rest))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The pools of a node's huge pages, empty ones included: by the size of a page in bytes, the number
/// of pages.
fn huge_pages(tree: &SysfsTree<'_>, id: usize) -> BTreeMap<u64, u64> {
    let dir = format!("{DIR}/node{id}/hugepages");
    let sizes = tree.numbered_between(&dir, "hugepages-", "kB").value.unwrap_or_default();
    let pool = |kilobytes: usize| {
        let text = tree.text(&format!("{dir}/hugepages-{kilobytes}kB/nr_hugepages")).value?;
        let pages = text.trim().parse().ok()?;
        Some((u64::try_from(kilobytes).ok()?.checked_mul(1024)?, pages))
    };
    sizes.into_iter().filter_map(pool).collect()
}
