//! The spread algorithm (policy option `distribute-cpus-across-cores`): whole NUMA nodes and
//! sockets as in [`super::packed`], then one CPU of each core of the most used socket, another one
//! of each core that has more, and so on, then the next socket.
//!
//! As in kubelet 1.37 (kubernetes/kubernetes#140766), cores with the fewest free CPUs come first,
//! and the numbers of SMT siblings do not matter.

use super::free::Free;
use super::order::Level;
use cpuset::CpuSet;

/// The needed CPUs of `free`, single ones.
pub(super) fn spread(mut free: Free<'_>) -> CpuSet {
    free.take_whole_nodes_and_sockets();
    if free.need > 0 {
        let ranks = free.ranks_of(Level::Socket);
        let mut rounds = vec![0; free.count.cores.len()];
        let mut cpus = Vec::with_capacity(free.cpus.len());
        for (cpu, place) in free.places() {
            let core = place.core();
            cpus.push((ranks.get(place), rounds[core], free.count.cores[core], core, cpu));
            rounds[core] += 1;
        }
        cpus.sort_unstable();
        free.take_each(cpus.into_iter().map(|(.., cpu)| cpu));
    }
    free.taken
}
