//! The distributing algorithm (policy option `distribute-cpus-across-numa`, KEP-2902): where one
//! NUMA node is too small, equal shares from the fewest nodes that can give them.
//!
//! Each of `k` nodes gives the same number of whole *groups* of CPUs (a group is one CPU, or one
//! core with `full-pcpus-only`). Groups that are left over come one by one from some of the nodes.
//! The choice that leaves the free CPUs of all nodes most even wins: least standard deviation, to
//! three decimals as the kubelet rounds it; the first of equal ones in the order of
//! [`super::order`].
//!
//! The search is in [`super::balance`]. It does not have one defect of the kubelet, which never
//! ends if the rest of the nodes is no whole number of groups (kubernetes/kubernetes#140730).

use super::balance::BalanceSearch;
use super::free::Free;
use super::order::Level;
use super::packed::{pack, packed};
use cpuset::CpuSet;
use topology::Topology;

/// Takes `n` CPUs of `available` in groups. `available` must have only online CPUs, and more than
/// `n`.
pub(super) fn distributed(
    topology: &Topology,
    available: CpuSet,
    n: usize,
    group: usize,
) -> CpuSet {
    let group = group.max(1);
    let shares = if n.is_multiple_of(group) {
        shares(&Free::new(topology, available, n), n / group, group)
    } else {
        None
    };
    let taken = shares.and_then(|shares| shares.take(topology, available, group));
    taken.unwrap_or_else(|| packed(topology, available, n, None))
}

/// The CPUs of a node and how many of them to take, in order. A node may have several shares.
struct Shares(Vec<(CpuSet, usize)>);

impl Shares {
    /// Takes share after share; `None` if one does not fit, which the search rules out.
    fn take(self, topology: &Topology, available: CpuSet, group: usize) -> Option<CpuSet> {
        debug_assert!(self.0.iter().all(|(_, cpus)| cpus % group == 0));
        let mut taken = CpuSet::EMPTY;
        for (node, share) in self.0 {
            let left = (available - taken) & node;
            taken |= pack(topology, left & topology.online(), share)?;
        }
        Some(taken)
    }
}

fn shares(free: &Free<'_>, groups: usize, group: usize) -> Option<Shares> {
    let (outer, _) = free.levels();
    let order = match outer {
        Level::Node => free.order(Level::Node),
        _ => free.order_within(Level::Node, &free.ranks_of(outer)),
    };
    let nodes: Vec<usize> = order.iter().map(|&at| free.count.nodes[at]).collect();
    let topology = free.topology;
    // As in the kubelet, the narrowest width is that of average nodes.
    let per_node = topology.cpus().len().div_ceil(group).div_ceil(topology.cpu_nodes().max(1));
    let widths = groups.div_ceil(per_node.max(1))..=groups.min(nodes.len());
    let choice =
        widths.filter_map(|width| BalanceSearch::new(&nodes, groups, group, width).run()).next()?;
    let cpus = |&index: &usize| topology.nodes()[order[index]].cpus;
    let even = groups / choice.nodes.len().max(1) * group;
    let mut shares: Vec<(CpuSet, usize)> =
        choice.nodes.iter().map(|index| (cpus(index), even)).collect();
    shares.extend(choice.rest.iter().map(|index| (cpus(index), group)));
    Some(Shares(shares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Shape, set};

    #[test]
    fn two_nodes_give_even_shares() {
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 8, threads: 1 };
        let taken = distributed(&shape.build(), set("0-15"), 10, 1);
        assert_eq!(taken, set("0-4,8-12"));
    }

    #[test]
    fn r140730_a_rest_of_partial_groups_ends_the_search() {
        // Each node keeps one CPU, half a group. The kubelet tries forever to take 2 CPUs of these.
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 3, threads: 1 };
        assert_eq!(distributed(&shape.build(), set("0-5"), 4, 2).len(), 4);
        assert_eq!(distributed(&shape.build(), set("0-4"), 4, 2).len(), 4);
    }

    #[test]
    fn the_search_over_many_uneven_nodes_ends() {
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
