//! Decisions compared with the kubelet's own on all vectors of `tests/conformance`, and random
//! histories on their machines.

use crate::runner;
use crate::support::random::Random;
use cpuset::CpuSet;
use placement::kubelet::{Supply, allocate};
use placement::{PlacementSettings, Reservation, TopologyManager, TopologyPolicy};
use std::path::{Path, PathBuf};

/// Vectors of a file that are excepted because kubelet 1.37 answers those of 1.36 otherwise
/// (`newer.txt`), and by a rule: the kubelet splits cores that it must give out whole, counts cores of
/// average size, or leaves a pod with CPUs of its ended containers beyond its budget.
const EXCEPTED: [(&str, usize, usize); 4] = [
    ("take.jsonl.gz", 136, 90),
    ("take37.jsonl.gz", 0, 175),
    ("sequence.jsonl.gz", 58, 239),
    ("sequence37.jsonl.gz", 0, 85),
];

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

#[test]
fn every_vector_gets_the_kubelets_answer_or_a_legal_one() {
    let reports = runner::run(&vectors()).unwrap();
    assert_eq!(reports.len(), 14);
    for report in reports {
        println!("{report}");
        assert!(report.passed > 0, "{report}");
        let failures: Vec<&String> = report.failures.iter().take(5).collect();
        assert!(failures.is_empty(), "{report}: {failures:#?}");
        let excepted = EXCEPTED.into_iter().find(|(file, ..)| *file == report.file);
        let (newer, ours) = excepted.map_or((0, 0), |(_, newer, ours)| (newer, ours));
        assert_eq!((report.newer, report.ours), (newer, ours), "{report}");
    }
}

/// On every machine, including hybrid ones and those with offline CPUs: no CPU is exclusive to two
/// containers, no reserved or offline CPU to any, and each container gets exactly the requested
/// number or a refusal.
#[test]
fn random_histories_keep_cpus_exclusive() {
    let (machines, _) = runner::machines(&vectors()).unwrap();
    let mut random = Random::new();
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ];
    let mut allocated = 0;
    let mut refused = 0;
    for (name, topology) in &machines {
        for policy in policies {
            let options = random.options();
            let reservation = Reservation::amount(1000 * (1 + random.below(3) as u64));
            let Ok(reserved) = reservation.resolve(topology, &options) else { continue };
            let topology_manager = TopologyManager { policy, ..TopologyManager::default() };
            let settings = PlacementSettings {
                options,
                topology_manager,
                reserved,
                ..PlacementSettings::default()
            };
            let mut free = topology.online();
            let mut held: Vec<CpuSet> = Vec::new();
            for _ in 0..100 {
                if random.below(3) == 0 && !held.is_empty() {
                    free |= held.swap_remove(random.below(held.len()));
                    continue;
                }
                let largest = if random.coin() { 8 } else { topology.cpus().len() };
                let n = 1 + random.below(largest);
                let supply = Supply { free, reusable: CpuSet::EMPTY };
                match allocate(topology, &settings, &supply, n, None) {
                    Err(_) => refused += 1,
                    Ok(allocation) => {
                        let cpus = allocation.cpus;
                        assert_eq!(cpus.len(), n, "{name} {settings:?}");
                        assert!(cpus.is_subset(&free), "{name} {settings:?}");
                        assert!(cpus.is_disjoint(&reserved), "{name} {settings:?}");
                        free -= cpus;
                        held.push(cpus);
                        allocated += 1;
                    }
                }
                let all: usize = held.iter().map(CpuSet::len).sum();
                assert_eq!(all + free.len(), topology.cpus().len(), "{name} {settings:?}");
            }
        }
    }
    println!("{allocated} allocated, {refused} refused");
    assert!(allocated > 10_000, "{allocated}");
}
