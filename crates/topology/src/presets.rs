//! Machines by name: examples of the KEPs and processors with public specifications, in the facts
//! that matter to placement, and shapes that are hard for it.

use super::synthetic::{Machine, Numbering};

#[derive(Debug, Clone)]
pub struct Preset {
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    pub machine: Machine,
}

pub fn preset(name: &str) -> Option<Machine> {
    presets().into_iter().find(|preset| preset.name == name).map(|preset| preset.machine)
}

pub fn presets() -> Vec<Preset> {
    let one = || Machine { numbering: Numbering::Interleaved, threads: 2, ..Machine::default() };
    let intel = || Machine { near: 12, far: 21, ..one() };
    let preset = |name, about, machine| Preset { name, about, machine };
    vec![
        preset(
            "kep-4800",
            "KEP-4800's worked example: 32 CPUs, 4 uncore caches, no SMT",
            Machine { caches: 4, cores: 32, threads: 1, ..one() },
        ),
        preset(
            "kep-4800-smt",
            "the same with SMT: 16 cores, 32 CPUs, 4 uncore caches",
            Machine { caches: 4, cores: 16, ..one() },
        ),
        preset(
            "kep-4800-small",
            "KEP-4800's smaller node: 16 CPUs, 2 uncore caches, no SMT",
            Machine { caches: 2, cores: 16, threads: 1, ..one() },
        ),
        preset(
            "epyc-7303",
            "16 cores, 32 CPUs, 2 uncore caches",
            Machine { caches: 2, cores: 16, ..one() },
        ),
        preset(
            "epyc-7702p",
            "64 cores, 128 CPUs, 16 uncore caches",
            Machine { caches: 16, cores: 64, ..one() },
        ),
        preset(
            "epyc-9654",
            "two sockets, 192 cores, 384 CPUs, 24 uncore caches",
            Machine { sockets: 2, caches: 12, cores: 96, ..one() },
        ),
        preset(
            "epyc-9654-nps2",
            "the same with 4 NUMA nodes",
            Machine { sockets: 2, nodes: 2, caches: 12, cores: 96, ..one() },
        ),
        preset(
            "epyc-9654-nps4",
            "the same with 8 NUMA nodes",
            Machine { sockets: 2, nodes: 4, caches: 12, cores: 96, ..one() },
        ),
        preset(
            "epyc-9754",
            "128 cores, 256 CPUs, 16 uncore caches",
            Machine { caches: 16, cores: 128, ..one() },
        ),
        preset(
            "xeon-8490h",
            "two sockets, 120 cores, 240 CPUs, an uncore cache a socket",
            Machine { sockets: 2, cores: 60, ..intel() },
        ),
        preset(
            "xeon-8490h-snc",
            "the same with sub-NUMA clustering: two NUMA nodes in a cache",
            Machine { sockets: 2, nodes: 2, cores: 60, ..intel() },
        ),
        preset(
            "core-12850hx",
            "hybrid: 8 fast cores with SMT and 8 efficient ones, 24 CPUs",
            Machine { cores: 16, efficient: 8, numbering: Numbering::Adjacent, ..one() },
        ),
        preset(
            "altra-128",
            "128 cores without SMT, each with its own cache",
            Machine { caches: 128, cores: 128, threads: 1, ..one() },
        ),
        preset(
            "graviton3",
            "64 cores without SMT, one uncore cache",
            Machine { cores: 64, threads: 1, ..one() },
        ),
        preset(
            "power-smt8",
            "two sockets, 24 cores of 8 threads, 192 CPUs, a cache for every two cores",
            Machine {
                sockets: 2,
                caches: 6,
                cores: 12,
                threads: 8,
                numbering: Numbering::Adjacent,
                ..one()
            },
        ),
        preset(
            "many-nodes",
            "512 CPUs in 64 NUMA nodes, and two nodes with memory only",
            Machine { sockets: 4, nodes: 16, caches: 16, cores: 64, memory_only: 2, ..one() },
        ),
        preset("small", "2 CPUs of one core", one()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_machine_with_a_unique_name() {
        let mut names = Vec::new();
        for Preset { name, machine, .. } in presets() {
            machine.topology().unwrap();
            assert!(!names.contains(&name), "{name}");
            names.push(name);
        }
        let large = preset("epyc-9654").unwrap().topology().unwrap();
        assert_eq!((large.cpus().len(), large.uncores().len()), (384, 24));
        assert!(preset("nothing").is_none());
    }
}
