//! The distributing algorithm (policy option `distribute-cpus-across-numa`, KEP-2902): where one
//! NUMA node is not enough, an even share from each of as few as possible.
//!
//! With `k` nodes each gives the same number of whole *groups* of CPUs (a group is one CPU, or one
//! core with `full-pcpus-only`); the groups that do not divide by `k` are handed out one by one
//! over some of the nodes. Of all choices the one wins that leaves all nodes of the machine most
//! evenly free: least standard deviation of their free CPUs, to three decimals as the kubelet
//! rounds it; of equal ones the first in the order below.
//!
//! The search is in [`super::balance`]. One defect of the kubelet is left out: it never ends where
//! what is left on the nodes are no whole groups (kubernetes/kubernetes#140730).

use super::balance::Search;
use super::free::Free;
use super::order::Level;
use super::packed::{pack, packed};
use cpuset::CpuSet;
use topology::Topology;

/// Takes `n` CPUs of `available` in groups, which has only online ones and more than `n`.
pub(super) fn distributed(
    topology: &Topology,
    available: CpuSet,
    n: usize,
    group: usize,
) -> CpuSet {
    let group = group.max(1);
    let plan = match n % group {
        0 => plan(&Free::new(topology, available, n), n / group, group),
        _ => None,
    };
    let taken = plan.and_then(|plan| plan.carry_out(topology, available, group));
    taken.unwrap_or_else(|| packed(topology, available, n, None))
}

/// Which node gives how many CPUs at once, in order.
struct Plan(Vec<(CpuSet, usize)>);

impl Plan {
    /// Takes share after share; `None` if one does not fit, which no plan made here lets happen.
    fn carry_out(self, topology: &Topology, available: CpuSet, group: usize) -> Option<CpuSet> {
        debug_assert!(self.0.iter().all(|(_, cpus)| cpus % group == 0));
        let mut taken = CpuSet::EMPTY;
        for (node, share) in self.0 {
            let left = (available - taken) & node;
            taken |= pack(topology, left & topology.online(), share)?;
        }
        Some(taken)
    }
}

fn plan(free: &Free<'_>, groups: usize, group: usize) -> Option<Plan> {
    let (outer, _) = free.levels();
    let order = match outer {
        Level::Node => free.order(Level::Node),
        _ => free.order_within(Level::Node, &free.ranks_of(outer)),
    };
    let nodes: Vec<usize> = order.iter().map(|&at| free.count.nodes[at]).collect();
    let topology = free.topology;
    let per_node = topology.cpus().len().div_ceil(group).div_ceil(topology.cpu_nodes().max(1));
    let widths = groups.div_ceil(per_node.max(1))..=groups.min(nodes.len());
    let choice =
        widths.filter_map(|width| Search::new(&nodes, groups, group, width).run()).next()?;
    let cpus = |&index: &usize| topology.nodes()[order[index]].cpus;
    let even = groups / choice.nodes.len().max(1) * group;
    let mut shares: Vec<(CpuSet, usize)> =
        choice.nodes.iter().map(|index| (cpus(index), even)).collect();
    shares.extend(choice.rest.iter().map(|index| (cpus(index), group)));
    Some(Plan(shares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Shape, set};

    #[test]
    fn even_shares_on_two_nodes() {
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 8, threads: 1 };
        let taken = distributed(&shape.build(), set("0-15"), 10, 1);
        assert_eq!(taken, set("0-4,8-12"));
    }

    #[test]
    fn r140730_leftovers_that_are_no_whole_group_end() {
        // Each node keeps one CPU that is half a group; the kubelet hands out 2 CPUs of them
        // forever.
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 3, threads: 1 };
        assert_eq!(distributed(&shape.build(), set("0-5"), 4, 2).len(), 4);
        assert_eq!(distributed(&shape.build(), set("0-4"), 4, 2).len(), 4);
    }

    #[test]
    fn many_uneven_nodes_end_soon() {
        let shape = Shape { sockets: 8, nodes: 8, uncores: 1, cores: 16, threads: 2 };
        let topology = shape.build();
        let busy = (0..topology.cpus().len()).filter(|cpu| cpu * cpu % 7 == cpu % 3);
        let busy: CpuSet = busy.map(|cpu| CpuSet::of(cpu).unwrap()).collect();
        let available = topology.online() - busy;
        for n in [2, 60, 331, 601, 1021] {
            assert_eq!(distributed(&topology, available, n, 1).len(), n);
        }
    }
}
