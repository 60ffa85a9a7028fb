//! The distributing algorithm (policy option `distribute-cpus-across-numa`, KEP-2902): where one
//! NUMA node is too small, equal shares from the fewest nodes that can give them.
//!
//! Each of `k` nodes gives the same number of whole *groups* of CPUs (a group is one CPU, or one
//! core with `full-pcpus-only`). Groups that are left over come one by one from some of the nodes.
//! The choice that leaves the free CPUs of all nodes most even wins: least standard deviation, to
//! three decimals as the kubelet rounds it; the first of equal ones in the order of
//! [`super::order`].
//!
//! With `align-by-socket`, nodes of one socket win over any others of the same number, however even
//! those are, and a node with less than an even share gives what it has
//! (kubernetes/kubernetes#139778).
//!
//! The search is in [`super::balance`].

use super::balance::BalanceSearch;
use super::free::{Free, Start};
use super::order::Level;
use super::packed::packed;
use crate::strategy::Distribution;
use cpuset::CpuSet;
use topology::Topology;

/// The needed CPUs of `free` in groups. `start` is how `free` was made: the CPUs of a node are taken
/// in the same way.
pub(super) fn distributed(free: Free<'_>, how: Distribution, start: Start) -> CpuSet {
    if free.need == 0 {
        return free.taken;
    }
    let how = Distribution { group: how.group.max(1), ..how };
    let shares = if free.need.is_multiple_of(how.group) {
        shares(&free, free.need / how.group, how)
    } else {
        None
    };
    let taken = shares.and_then(|shares| shares.take(free.topology, free.cpus, start));
    taken.unwrap_or_else(|| packed(free, None))
}

/// The CPUs of a node and how many of them to take, in order. A node may have several shares.
struct Shares(Vec<(CpuSet, usize)>);

impl Shares {
    /// Takes share after share; `None` if one does not fit. The search rules that out for CPUs, but
    /// not for whole cores, of which a node may have fewer.
    fn take(self, topology: &Topology, available: CpuSet, start: Start) -> Option<CpuSet> {
        let mut taken = CpuSet::EMPTY;
        for (node, share) in self.0 {
            let left = (available - taken) & node;
            taken |= packed(start(topology, left, share)?, None);
        }
        Some(taken)
    }
}

fn shares(free: &Free<'_>, groups: usize, how: Distribution) -> Option<Shares> {
    let Distribution { group, min_nodes, align_by_socket } = how;
    let (outer, _) = free.levels();
    let order = match outer {
        Level::Node => free.order(Level::Node),
        _ => free.order_within(Level::Node, &free.ranks_of(outer)),
    };
    let nodes: Vec<usize> = order.iter().map(|&at| free.count.nodes[at]).collect();
    let topology = free.topology;
    // As in the kubelet, the narrowest width is that of average nodes.
    let per_node = topology.cpus().len().div_ceil(group).div_ceil(topology.cpu_nodes().max(1));
    let narrowest = groups.div_ceil(per_node.max(1));
    let widest = groups.min(nodes.len());
    let widths = if min_nodes <= widest { narrowest.max(min_nodes) } else { narrowest }..=widest;
    let sockets = if align_by_socket { indices_by_socket(topology, &order) } else { Vec::new() };
    let choice = widths.into_iter().find_map(|width| {
        let search = BalanceSearch::new(&nodes, groups, group, width);
        if !align_by_socket {
            return search.run();
        }
        let search = search.with_uneven_shares();
        let in_one = sockets.iter().filter_map(|socket| search.clone().among(socket)?.run());
        in_one.min_by(|one, other| one.order().cmp(&other.order())).or_else(|| search.run())
    })?;
    let cpus = |&index: &usize| topology.nodes()[order[index]].cpus;
    let even = choice.even * group;
    let mut shares: Vec<(CpuSet, usize)> =
        choice.nodes.iter().map(|index| (cpus(index), even)).collect();
    shares.extend(choice.rest.iter().map(|index| (cpus(index), group)));
    Some(Shares(shares))
}

/// The nodes with CPUs of only one socket, by socket, as ascending indices in `order`.
fn indices_by_socket(topology: &Topology, order: &[usize]) -> Vec<Vec<usize>> {
    let sockets = topology.sockets().iter();
    let inside = |socket: &CpuSet| {
        let indices = order.iter().enumerate();
        let indices = indices.filter(|&(_, &at)| topology.nodes()[at].cpus.is_subset(socket));
        indices.map(|(index, _)| index).collect()
    };
    sockets.map(|socket| inside(&socket.cpus)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::free::cpus_of;
    use super::*;

    fn distributed(topology: &Topology, available: CpuSet, n: usize, how: Distribution) -> CpuSet {
        super::distributed(cpus_of(topology, available, n).unwrap(), how, cpus_of)
    }

    use crate::machines::{Shape, set};

    const PLAIN: Distribution = Distribution { group: 1, min_nodes: 0, align_by_socket: false };

    #[test]
    fn two_nodes_give_even_shares() {
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 8, threads: 1 };
        let taken = distributed(&shape.build(), set("0-15"), 10, PLAIN);
        assert_eq!(taken, set("0-4,8-12"));
    }

    #[test]
    fn r139456_as_many_nodes_give_cpus_as_the_affinity_has() {
        let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 };
        let topology = shape.build();
        for (min_nodes, n, expect) in [
            (0, 4, "0-3"),
            (2, 4, "0-1,4-5"),
            (4, 4, "0,4,8,12"),
            // More nodes than the request has CPUs.
            (4, 3, "0-2"),
            (2, 12, "0-3,4-7,8-11"),
        ] {
            let how = Distribution { min_nodes, ..PLAIN };
            assert_eq!(distributed(&topology, set("0-15"), n, how), set(expect), "{how:?}");
        }
    }

    #[test]
    fn r139778_nodes_of_one_socket_come_before_more_even_ones() {
        // Sockets of nodes 0-3,4-7 and 8-11,12-15.
        let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 4, threads: 1 };
        let topology = shape.build();
        let by_socket = Distribution { align_by_socket: true, ..PLAIN };
        // Of each socket one node has two free CPUs.
        let available = set("0-3,6-7,8-11,14-15");
        assert_eq!(distributed(&topology, available, 6, PLAIN), set("0-2,8-10"));
        assert_eq!(distributed(&topology, available, 6, by_socket), set("0-3,6-7"));
    }

    #[test]
    fn r140730_a_rest_of_partial_groups_ends_the_search() {
        // Each node keeps one CPU, half a group. Kubelet 1.36 tries forever to take 2 CPUs of these.
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 3, threads: 1 };
        let pairs = Distribution { group: 2, ..PLAIN };
        assert_eq!(distributed(&shape.build(), set("0-5"), 4, pairs).len(), 4);
        assert_eq!(distributed(&shape.build(), set("0-4"), 4, pairs).len(), 4);
    }

    #[test]
    fn the_search_over_many_uneven_nodes_ends() {
        let shape = Shape { sockets: 8, nodes: 8, uncores: 1, cores: 16, threads: 2 };
        let topology = shape.build();
        let busy = (0..topology.cpus().len()).filter(|cpu| cpu * cpu % 7 == cpu % 3);
        let busy: CpuSet = busy.map(|cpu| CpuSet::of(cpu).unwrap()).collect();
        let available = topology.online() - busy;
        for align_by_socket in [false, true] {
            let how = Distribution { align_by_socket, ..PLAIN };
            for n in [2, 60, 331, 601, 1021] {
                assert_eq!(distributed(&topology, available, n, how).len(), n);
            }
        }
    }
}
