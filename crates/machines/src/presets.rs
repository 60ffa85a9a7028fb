//! Machines by name: examples of the KEPs, processors with public specifications (only the facts
//! that matter to placement), and shapes that are hard to place on.
//!
//! Memory is plausible, not specified: 16 to 64 GiB for each channel of a processor, and 4 GiB for each CPU of an
//! example, in equal parts on all NUMA nodes.
//! Firmware settings are variants with a suffix: `epyc-7303-nosmt-nps0`. The processors, and how
//! many uncore caches each has, are those of KEP-4800's list.

use super::synthetic::{Machine, Numbering};

#[derive(Debug, Clone)]
pub struct Preset {
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    pub machine: Machine,
}

/// A firmware setting that a suffix of a preset's name stands for.
struct Variant {
    suffix: &'static str,
    fits: fn(&Machine) -> bool,
    set: fn(&mut Machine),
}

/// The order is that of suffixes in a name.
const VARIANTS: [Variant; 2] = [
    Variant {
        suffix: "-nosmt",
        fits: |machine| machine.threads > 1,
        set: |machine| machine.threads = 1,
    },
    // One NUMA node for all sockets.
    Variant {
        suffix: "-nps0",
        fits: |machine| machine.sockets > 1 && machine.nodes == 1,
        set: |machine| machine.nodes = 0,
    },
];

impl Preset {
    /// The suffixes of its variants.
    pub fn suffixes(&self) -> Vec<String> {
        self.variants().into_iter().map(|(suffix, _)| suffix).filter(|s| !s.is_empty()).collect()
    }

    /// All variants, including the preset itself with an empty suffix.
    fn variants(&self) -> Vec<(String, Machine)> {
        let mut variants = vec![(String::new(), self.machine.clone())];
        for Variant { suffix, fits, set } in VARIANTS {
            let fitting = variants.clone().into_iter().filter(|(_, machine)| fits(machine));
            variants.extend(fitting.map(|(before, mut machine)| {
                set(&mut machine);
                (before + suffix, machine)
            }));
        }
        variants
    }
}

/// The machine of a preset or variant.
pub fn preset(name: &str) -> Option<Machine> {
    presets().iter().find_map(|preset| {
        let suffix = name.strip_prefix(preset.name)?;
        let mut variants = preset.variants().into_iter();
        variants.find(|(of_variant, _)| of_variant == suffix).map(|(_, machine)| machine)
    })
}

/// Names to suggest for an unknown name: those that begin with the same preset as `name`.
pub fn similar(name: &str) -> Vec<String> {
    let all = presets();
    let begins =
        |preset: &&Preset| name.strip_prefix(preset.name).is_some_and(|rest| rest.starts_with('-'));
    let Some(first) = all.iter().find(begins) else { return Vec::new() };
    let of_first = all.iter().filter(|preset| preset.name.starts_with(first.name));
    let names = of_first.flat_map(|preset| {
        preset.variants().into_iter().map(|(suffix, _)| preset.name.to_owned() + &suffix)
    });
    names.collect()
}

pub fn presets() -> Vec<Preset> {
    let one = || Machine { numbering: Numbering::Interleaved, threads: 2, ..Machine::default() };
    let intel = || Machine { near: 12, far: 21, ..one() };
    let preset = |name, about, gib: u64, machine| {
        let machine = Machine { memory: Some(gib << 30), ..machine };
        Preset { name, about, machine }
    };
    vec![
        preset(
            "kep-4800",
            "KEP-4800's worked example: 32 CPUs, 4 uncore caches, no SMT",
            128,
            Machine { caches: 4, cores: 32, threads: 1, ..one() },
        ),
        preset(
            "kep-4800-smt",
            "the same with SMT: 16 cores, 32 CPUs, 4 uncore caches",
            128,
            Machine { caches: 4, cores: 16, ..one() },
        ),
        preset(
            "kep-4800-small",
            "KEP-4800's smaller node: 16 CPUs, 2 uncore caches, no SMT",
            64,
            Machine { caches: 2, cores: 16, threads: 1, ..one() },
        ),
        preset(
            "epyc-7303",
            "two sockets, 32 cores, 64 CPUs, 8 uncore caches",
            256,
            Machine { sockets: 2, caches: 4, cores: 16, ..one() },
        ),
        preset(
            "epyc-7702p",
            "64 cores, 128 CPUs, 16 uncore caches",
            512,
            Machine { caches: 16, cores: 64, ..one() },
        ),
        preset(
            "epyc-9654",
            "two sockets, 192 cores, 384 CPUs, 24 uncore caches",
            1536,
            Machine { sockets: 2, caches: 12, cores: 96, ..one() },
        ),
        preset(
            "epyc-9654-nps2",
            "the same with 4 NUMA nodes",
            1536,
            Machine { sockets: 2, nodes: 2, caches: 12, cores: 96, ..one() },
        ),
        preset(
            "epyc-9654-nps4",
            "the same with 8 NUMA nodes",
            1536,
            Machine { sockets: 2, nodes: 4, caches: 12, cores: 96, ..one() },
        ),
        preset(
            "epyc-9754",
            "128 cores, 256 CPUs, 16 uncore caches",
            768,
            Machine { caches: 16, cores: 128, ..one() },
        ),
        preset(
            "xeon-8490h",
            "two sockets, 120 cores, 240 CPUs, an uncore cache a socket",
            1024,
            Machine { sockets: 2, cores: 60, ..intel() },
        ),
        preset(
            "xeon-8490h-snc",
            "the same with sub-NUMA clustering: two NUMA nodes in a cache",
            1024,
            Machine { sockets: 2, nodes: 2, cores: 60, ..intel() },
        ),
        preset(
            "core-12850hx",
            "hybrid: 8 fast cores with SMT and 8 efficient ones, 24 CPUs",
            64,
            Machine { cores: 16, efficient: 8, numbering: Numbering::Adjacent, ..one() },
        ),
        preset(
            "altra-128",
            "128 cores without SMT, 16 uncore caches",
            512,
            Machine { caches: 16, cores: 128, threads: 1, ..one() },
        ),
        preset(
            "altra-128-l2",
            "the same without uncore caches: each core has its own cache",
            512,
            Machine { caches: 128, cores: 128, threads: 1, ..one() },
        ),
        preset(
            "graviton3",
            "64 cores without SMT, one uncore cache",
            256,
            Machine { cores: 64, threads: 1, ..one() },
        ),
        preset(
            "power-smt8",
            "two sockets, 24 cores of 8 threads, 192 CPUs, a cache for every two cores",
            1024,
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
            4224,
            Machine { sockets: 4, nodes: 16, caches: 16, cores: 64, memory_only: 2, ..one() },
        ),
        preset("small", "2 CPUs of one core", 8, one()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_machine_with_a_unique_name() {
        let mut names = Vec::new();
        for preset in presets() {
            for (suffix, machine) in preset.variants() {
                machine.topology().unwrap();
                let name = preset.name.to_owned() + &suffix;
                assert!(!names.contains(&name), "{name}");
                assert_eq!(super::preset(&name), Some(machine));
                names.push(name);
            }
        }
        let large = preset("epyc-9654").unwrap().topology().unwrap();
        assert_eq!((large.cpus().len(), large.uncores().len()), (384, 24));
        assert!(preset("nothing").is_none());
    }

    /// CPUs, sockets, NUMA nodes, uncore caches and threads of a core.
    fn shape(name: &str) -> [usize; 5] {
        let machine = preset(name).unwrap().topology().unwrap();
        [
            machine.cpus().len(),
            machine.sockets().len(),
            machine.nodes().len(),
            machine.uncores().len(),
            machine.threads_per_core(),
        ]
    }

    #[test]
    fn presets_have_the_shapes_of_kep_4800() {
        for (name, expect) in [
            ("epyc-7702p", [128, 1, 1, 16, 2]),
            ("epyc-7702p-nosmt", [64, 1, 1, 16, 1]),
            ("epyc-7303", [64, 2, 2, 8, 2]),
            ("epyc-7303-nosmt", [32, 2, 2, 8, 1]),
            ("epyc-7303-nps0", [64, 2, 1, 8, 2]),
            ("epyc-7303-nosmt-nps0", [32, 2, 1, 8, 1]),
            ("epyc-9754", [256, 1, 1, 16, 2]),
            ("epyc-9654-nps2-nosmt", [192, 2, 4, 24, 1]),
            ("xeon-8490h-snc", [240, 2, 4, 2, 2]),
            ("altra-128", [128, 1, 1, 16, 1]),
            ("graviton3", [64, 1, 1, 1, 1]),
        ] {
            assert_eq!(shape(name), expect, "{name}");
        }
    }

    #[test]
    fn a_variant_that_does_not_exist_is_none() {
        for name in [
            "epyc-7303-nps8",
            "epyc-7303-nps0-nosmt",
            "epyc-7702p-nps0",
            "kep-4800-nosmt",
            "epyc-7303-",
        ] {
            assert_eq!(preset(name), None, "{name}");
        }
        let all = ["epyc-7303", "epyc-7303-nosmt", "epyc-7303-nps0", "epyc-7303-nosmt-nps0"];
        assert_eq!(similar("epyc-7303-nps8"), all);
        assert!(similar("epyc-9654-nps8").contains(&"epyc-9654-nps2-nosmt".to_owned()));
        assert_eq!(similar("epyc-7303x"), [""; 0]);
    }
}
