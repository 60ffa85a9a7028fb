//! [`take()`]: one allocation of CPUs from a free set.

use super::distributed::distributed;
use super::free::{Start, cores_of, cpus_of};
use super::packed::packed;
use super::spread::spread;
use crate::rejection::NotEnough;
use crate::strategy::Strategy;
use cpuset::CpuSet;
use topology::Topology;

/// Chooses `n` CPUs of `available`.
///
/// The answer has exactly `n` CPUs, all of `available` and online, and is that of kubelet 1.37.
///
/// # Errors
/// If fewer than `n` CPUs of `available` are online.
pub fn take(
    topology: &Topology,
    available: &CpuSet,
    n: usize,
    strategy: Strategy,
) -> Result<CpuSet, NotEnough> {
    take_from(cpus_of, topology, available, n, strategy)
}

/// As [`take()`], but only whole cores (`full-pcpus-only`, KEP-2625). The other CPUs of `available`
/// count where the kubelet compares domains.
///
/// # Errors
/// If whole cores of `available` do not add up to `n`.
pub fn take_cores(
    topology: &Topology,
    available: &CpuSet,
    n: usize,
    strategy: Strategy,
) -> Result<CpuSet, NotEnough> {
    take_from(cores_of, topology, available, n, strategy)
}

fn take_from(
    start: Start,
    topology: &Topology,
    available: &CpuSet,
    n: usize,
    strategy: Strategy,
) -> Result<CpuSet, NotEnough> {
    if n == 0 {
        return Ok(CpuSet::EMPTY);
    }
    let available = *available & topology.online();
    let free = start(topology, available, n);
    let free = free.ok_or_else(|| NotEnough { requested: n, available: available.len() })?;
    Ok(match strategy {
        Strategy::Packed { uncore } => packed(free, uncore),
        Strategy::AcrossNuma(how) => distributed(free, how, start),
        // Excludes `full-pcpus-only`.
        Strategy::Spread if free.cores.is_none() => spread(free),
        Strategy::Spread => packed(free, None),
    })
}

#[cfg(test)]
mod tests {
    use super::{NotEnough, Strategy, take};
    use crate::UncoreOrder;
    use crate::machines::{Shape, caches, set};
    use crate::strategy::Distribution;
    use cpuset::CpuSet;
    use proptest::prelude::*;
    use proptest::strategy::Strategy as _;
    use topology::{Cpu, Facts, Topology};

    const PACKED: Strategy = Strategy::Packed { uncore: None };
    const FEWEST_FREE: Strategy = Strategy::Packed { uncore: Some(UncoreOrder::FewestFree) };
    const ACROSS_1: Strategy = across(1, 0, false);
    const ACROSS_2: Strategy = across(2, 2, false);
    const IN_SOCKET: Strategy = across(1, 0, true);
    const NUMERICAL: Strategy = Strategy::Packed { uncore: Some(UncoreOrder::Numerical) };

    const fn across(group: usize, min_nodes: usize, align_by_socket: bool) -> Strategy {
        Strategy::AcrossNuma(Distribution { group, min_nodes, align_by_socket })
    }

    /// Makes requests one after the other. The CPUs of an answer are not available to the next
    /// request.
    #[track_caller]
    fn check(topology: &Topology, available: &str, strategy: Strategy, requests: &[(usize, &str)]) {
        let mut available = set(available);
        for &(n, expect) in requests {
            let cpus = take(topology, &available, n, strategy).unwrap();
            assert_eq!(cpus.to_string(), expect, "{n} CPUs of {available}, {strategy:?}");
            available -= cpus;
        }
    }

    #[test]
    fn kep_4800_fills_whole_caches_by_number() {
        let requests = [(10, "8-17"), (8, "24-31"), (6, "2-7")];
        check(&caches(4, 8), "2-31", NUMERICAL, &requests);
    }

    #[test]
    fn kep_4800_fills_caches_with_the_fewest_free_cpus_first() {
        let requests = [(10, "2-3,8-15"), (8, "16-23"), (6, "24-29")];
        check(&caches(4, 8), "2-31", FEWEST_FREE, &requests);
    }

    #[test]
    fn kep_4800_without_the_option_caches_are_ignored() {
        let requests = [(10, "2-11"), (8, "12-19"), (6, "20-25")];
        check(&caches(4, 8), "2-31", PACKED, &requests);
    }

    #[test]
    fn kep_4800_both_orders_agree_on_16_cores_in_2_caches() {
        let requests = [(4, "2-5"), (4, "8-11"), (4, "12-15")];
        check(&caches(2, 8), "2-15", NUMERICAL, &requests);
        check(&caches(2, 8), "2-15", FEWEST_FREE, &requests);
    }

    #[test]
    fn numerical_order_returns_to_a_skipped_cache() {
        // Cache 1 is taken whole. For the 2 CPUs left, cache 2 has only 1, and cache 0 has 4.
        check(&caches(3, 8), "4-16", NUMERICAL, &[(10, "4-5,8-15")]);
    }

    #[test]
    fn numerical_order_prefers_whole_cores_inside_a_cache() {
        // Two caches of 4 cores of 2 threads: 0,8 1,9 2,10 3,11. Core 0 is half used. The kubelet
        // fails here.
        let shape = Shape { sockets: 1, nodes: 1, uncores: 2, cores: 4, threads: 2 };
        check(&shape.build(), "1-3,8-11", NUMERICAL, &[(4, "1-2,9-10"), (3, "3,8,11")]);
    }

    #[test]
    fn packed_takes_whole_sockets_then_whole_cores_then_threads() {
        // Socket 0 has cores 0-3 with threads 8-11, socket 1 cores 4-7 with threads 12-15.
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        let topology = shape.build();
        check(&topology, "0-15", PACKED, &[(8, "0-3,8-11"), (2, "4,12"), (1, "5"), (1, "13")]);
        check(&topology, "1-15", PACKED, &[(9, "4-8,12-15"), (2, "1,9")]);
    }

    #[test]
    fn r140766_spread_goes_round_the_cores_with_the_fewest_free_first() {
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        check(&shape.build(), "0-15", Strategy::Spread, &[(3, "0-2"), (2, "8-9"), (3, "3,10-11")]);
    }

    #[test]
    fn r140766_spread_ignores_how_siblings_are_numbered() {
        // Core 0 has CPUs 0 and 1, core 1 has 2 and 3, and so on.
        let topology = cores_of(&[2; 8]);
        check(&topology, "2-15", Strategy::Spread, &[(4, "2,4,6,8"), (5, "3,5,7,9-10")]);
    }

    #[test]
    fn too_large_a_request_is_refused_in_the_kubelets_words() {
        let error = take(&caches(1, 8), &set("2-7,12"), 7, PACKED).unwrap_err();
        assert_eq!(error, NotEnough { requested: 7, available: 6 });
        assert_eq!(
            error.to_string(),
            "not enough cpus available to satisfy request: requested=7, available=6"
        );
        assert_eq!(take(&caches(1, 8), &CpuSet::EMPTY, 0, PACKED), Ok(CpuSet::EMPTY));
    }

    /// One cache with cores of these numbers of CPUs. CPUs of a core are adjacent.
    fn cores_of(sizes: &[usize]) -> Topology {
        let mut cpus = Vec::new();
        for &size in sizes {
            let core = cpus.len();
            cpus.extend((core..core + size).map(|id| Cpu {
                id,
                core,
                uncore: 0,
                numa: 0,
                socket: 0,
                die: None,
                kind: None,
            }));
        }
        Topology::build(Facts { cpus, ..Facts::default() }).unwrap()
    }

    #[test]
    fn r140498_a_core_is_free_when_its_own_threads_are() {
        // Core 0 is half used.
        check(&cores_of(&[2, 1, 1]), "1-3", PACKED, &[(2, "2-3")]);
        // A core larger than the average is taken whole, unless fewer CPUs are needed.
        let hybrid = cores_of(&[2, 2, 1, 1, 1, 1]);
        check(&hybrid, "0-3,6-7", PACKED, &[(3, "0,6-7"), (2, "2-3")]);
        check(&cores_of(&[4, 4, 2, 1]), "0-8,10", PACKED, &[(5, "0-3,10"), (4, "4-7")]);
    }

    #[test]
    fn r141026_full_caches_come_first_whatever_the_average() {
        // Caches of 2, 6 and 2 CPUs. The request is smaller than the average of 3.
        let cpus = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 2), (9, 2)];
        let cpus = cpus.map(|(id, uncore)| Cpu {
            id,
            core: id,
            uncore,
            numa: 0,
            socket: 0,
            die: None,
            kind: None,
        });
        let topology = Topology::build(Facts { cpus: cpus.into(), ..Facts::default() }).unwrap();
        check(&topology, "2-3,8-9", FEWEST_FREE, &[(2, "8-9")]);
    }

    /// A machine of up to 48 CPUs with cores and caches of any size anywhere, and any part of it
    /// free.
    fn machine_and_free() -> impl proptest::strategy::Strategy<Value = (Topology, CpuSet)> {
        let cpu = (0..2usize, 0..4usize, 0..4usize, 0..24usize, any::<bool>());
        prop::collection::vec(cpu, 1..48).prop_map(|rows| {
            let cpu = |(id, &(socket, numa, uncore, core, _)): (usize, &(_, _, _, _, bool))| Cpu {
                id,
                core,
                uncore,
                numa,
                socket,
                die: None,
                kind: None,
            };
            let cpus = rows.iter().enumerate().map(cpu).collect();
            let free = rows.iter().enumerate().filter(|(_, row)| row.4);
            let free = free.map(|(id, _)| CpuSet::of(id).unwrap()).collect();
            (Topology::build(Facts { cpus, ..Facts::default() }).unwrap(), free)
        })
    }

    proptest! {
        #[test]
        fn every_strategy_takes_exactly_n_available_cpus((topology, free) in machine_and_free(), n in 0..50usize) {
            let across = [ACROSS_1, ACROSS_2, IN_SOCKET];
            let others = [PACKED, FEWEST_FREE, NUMERICAL, Strategy::Spread];
            for strategy in across.into_iter().chain(others) {
                match take(&topology, &free, n, strategy) {
                    Ok(cpus) => {
                        prop_assert_eq!(cpus.len(), n);
                        prop_assert!(cpus.is_subset(&free));
                    }
                    Err(error) => {
                        prop_assert!(free.len() < n);
                        prop_assert_eq!(error.available, free.len());
                    }
                }
            }
        }
    }
}
