//! What a request needs on the empty machine. The topology manager's policies and `uncore: require`
//! compare choices with that.

use super::view::{Cores, View};
use crate::caches::fewest;
use crate::request::Request;
use cpuset::CpuSet;
use topology::Topology;

/// The cores that a request may use.
pub(super) fn cores(request: &Request) -> Cores {
    if request.wishes.isolates() {
        Cores::OneCpu
    } else if request.settings.options.full_pcpus_only {
        Cores::Whole
    } else {
        Cores::Any
    }
}

/// The fewest NUMA nodes for `n` CPUs; all nodes with CPUs if even these are too small. As in the
/// kubelet, reserved CPUs count.
pub(super) fn fewest_nodes(machine: &Topology, cores: Cores, n: usize) -> usize {
    let mut sizes = match cores {
        Cores::Any | Cores::Whole => machine.sizes().nodes.clone(),
        Cores::OneCpu => empty(machine, &CpuSet::EMPTY, cores).nodes,
    };
    sizes.retain(|&size| size > 0);
    fewest(sizes, n)
}

/// The fewest uncore caches for the CPUs of a request; all caches if even these are too small.
/// Reserved CPUs do not count, because no container ever gets them.
pub(super) fn fewest_caches(machine: &Topology, request: &Request) -> usize {
    let view = empty(machine, &request.settings.reserved, cores(request));
    fewest(by_cache(machine, &view), request.cpus)
}

/// The usable CPUs of each uncore cache.
pub(super) fn by_cache(machine: &Topology, view: &View<'_>) -> Vec<usize> {
    let mut caches = vec![0; machine.uncores().len()];
    for (cell, load) in machine.cells().all().iter().zip(&view.loads) {
        caches[cell.uncore] += load.free;
    }
    caches
}

fn empty<'m>(machine: &'m Topology, reserved: &CpuSet, cores: Cores) -> View<'m> {
    let all = machine.online() - *reserved;
    View::new(machine, &all, &CpuSet::EMPTY, &CpuSet::EMPTY, cores)
}
