//! The spread algorithm (policy option `distribute-cpus-across-cores`): whole NUMA nodes and
//! sockets as in [`super::packed`], then CPUs by number inside the most used socket.
//!
//! As in the kubelet, cores do not matter. If the numbers of SMT siblings are far apart, as on most
//! x86 servers, this uses one thread of each core; if they are adjacent, it uses both.

use super::free::Free;
use super::order::Level;
use cpuset::CpuSet;
use topology::Topology;

/// Takes `n` CPUs of `available`, which must have only online CPUs, and more than `n`.
pub(super) fn spread(topology: &Topology, available: CpuSet, n: usize) -> CpuSet {
    let mut free = Free::new(topology, available, n);
    free.take_whole_nodes_and_sockets();
    if free.need > 0 {
        let ranks = free.ranks_of(Level::Socket);
        let mut cpus: Vec<(usize, usize)> =
            free.places().map(|(cpu, place)| (ranks.get(place), cpu)).collect();
        cpus.sort_unstable();
        free.take_each(cpus.into_iter().map(|(_, cpu)| cpu));
    }
    free.taken
}
