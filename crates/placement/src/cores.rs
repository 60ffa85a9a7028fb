//! Whole cores.

use cpuset::CpuSet;
use topology::Topology;

/// `cpus` and their SMT siblings.
pub fn whole_cores(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let core = |cpu| topology.cores().get(topology.place(cpu)?.core()).map(|core| core.cpus);
    cpus.iter().filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use super::super::machines::{Shape, set};
    use super::*;

    #[test]
    fn whole_cores_add_the_siblings() {
        let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        assert_eq!(whole_cores(&shape.build(), &set("1,6,9")), set("1-2,5-6"));
    }
}
