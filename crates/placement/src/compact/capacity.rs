//! What a request needs on the empty machine. The topology manager's policies and `uncore: require`
//! compare choices with that.

use super::view::{Cores, View};
use crate::caches::fewest;
use crate::cores::{CoreSizes, Domains};
use crate::request::Request;
use cpuset::CpuSet;
use topology::{Cell, Topology};

/// The cores that a request may use.
pub(crate) fn cores(request: &Request) -> Cores {
    if request.pod_options.isolates() {
        Cores::OneCpu
    } else if request.settings.options.full_pcpus_only {
        Cores::Whole
    } else {
        Cores::Any
    }
}

/// The fewest NUMA nodes for `n` CPUs; all nodes with CPUs if even these are too small. As in the
/// kubelet, reserved CPUs count.
pub(crate) fn fewest_nodes(machine: &Topology, cores: Cores, n: usize) -> usize {
    let sizes = machine.sizes();
    // Looking at the cores of all nodes would cost more than most decisions.
    let is_count = match cores {
        Cores::Any => true,
        Cores::Whole => machine.cores_are_equal(),
        Cores::OneCpu => false,
    };
    if is_count {
        return fewest(sizes.nodes.iter().copied().filter(|&size| size > 0).collect(), n);
    }
    let view = empty(machine, &CpuSet::EMPTY, cores);
    fewest_domains(&view, view.nodes.iter().copied(), n, |cell| cell.node)
}

/// The fewest uncore caches for the CPUs of a request; all caches if even these are too small.
/// Reserved CPUs do not count, because no container ever gets them.
pub(crate) fn fewest_caches(machine: &Topology, request: &Request) -> usize {
    let view = empty(machine, &request.settings.reserved, cores(request));
    let caches = by_cache(machine, &view);
    fewest_domains(&view, caches.into_iter(), request.cpus, |cell| cell.uncore)
}

/// How many domains are needed at least for `n` CPUs. `sizes` has the usable CPUs of each.
fn fewest_domains(
    view: &View<'_>,
    sizes: impl ExactSizeIterator<Item = usize>,
    n: usize,
    domain_of: impl Fn(&Cell) -> usize,
) -> usize {
    if view.sizes.is_empty() {
        return fewest(sizes.filter(|&size| size > 0).collect(), n);
    }
    let mut cores = vec![CoreSizes::default(); sizes.len()];
    for (cell, sizes) in view.cells.all().iter().zip(&view.sizes) {
        cores[domain_of(cell)].extend(sizes);
    }
    cores.retain(|cores| cores.total() > 0);
    Domains { sizes: &cores, n }.fewest()
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
