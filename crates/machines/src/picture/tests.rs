use super::*;
use crate::synthetic::{Machine, Numbering};
use topology::CacheSize;

#[track_caller]
fn check(machine: &Machine, expect: &str) {
    let topology = machine.topology().unwrap();
    let size = CacheSize { level: 3, bytes: Some(32 << 20) };
    let sizes = Sizes {
        caches: topology.uncores().iter().map(|uncore| (uncore.id, size)).collect(),
        memory: topology.nodes().iter().map(|node| (node.id, 256 << 30)).collect(),
        ..Sizes::default()
    };
    let picture = TopologyText { topology: &topology, sizes: &sizes }.to_string();
    assert_eq!(picture.trim_end(), expect.trim(), "\n{picture}");
}

#[test]
fn a_machine_with_one_cpu_is_drawn() {
    check(
        &Machine::default(),
        "
1 socket, 1 NUMA node, 1 uncore cache, 1 core, 1 CPU (no SMT)

                      size  cores  CPUs
socket 0                        1  0
  NUMA node 0      256 GiB      1  0
    uncore 0 (L3)   32 MiB      1  0

isolated CPUs: none
offline CPUs:  none",
    );
}

#[test]
fn a_server_with_offline_and_isolated_cpus_is_drawn() {
    let machine = Machine {
        sockets: 2,
        nodes: 2,
        caches: 4,
        cores: 16,
        threads: 2,
        numbering: Numbering::Interleaved,
        memory_only: 1,
        offline: "35".parse().unwrap(),
        isolated: "2-3".parse().unwrap(),
        ..Machine::default()
    };
    check(
        &machine,
        "
2 sockets, 5 NUMA nodes, 8 uncore caches, 32 cores, 63 CPUs (SMT: up to 2 threads a core)

                       size  cores  CPUs (0+32 is one core)
socket 0                        16  0-15,32-34,36-47
  NUMA node 0       256 GiB      8  0-7,32-34,36-39
    uncore 0 (L3)    32 MiB      4  0+32..2+34 3
    uncore 4 (L3)    32 MiB      4  4+36..7+39
  NUMA node 1       256 GiB      8  8-15,40-47
    uncore 8 (L3)    32 MiB      4  8+40..11+43
    uncore 12 (L3)   32 MiB      4  12+44..15+47
socket 1                        16  16-31,48-63
  NUMA node 2       256 GiB      8  16-23,48-55
    uncore 16 (L3)   32 MiB      4  16+48..19+51
    uncore 20 (L3)   32 MiB      4  20+52..23+55
  NUMA node 3       256 GiB      8  24-31,56-63
    uncore 24 (L3)   32 MiB      4  24+56..27+59
    uncore 28 (L3)   32 MiB      4  28+60..31+63
NUMA node 4         256 GiB      0  none

NUMA distances    0   1   2   3   4
     from node 0  10  12  32  32  32
     from node 1  12  10  32  32  32
     from node 2  32  32  10  12  32
     from node 3  32  32  12  10  32
     from node 4  32  32  32  32  10

isolated CPUs: 2-3
offline CPUs:  35",
    );
}

/// The nodes of a socket share its cache, and each socket has every second CPU.
#[test]
fn caches_that_span_nodes_are_drawn_in_parts() {
    let machine = Machine {
        sockets: 2,
        nodes: 2,
        cores: 16,
        threads: 2,
        numbering: Numbering::RoundRobin,
        ..Machine::default()
    };
    check(
        &machine,
        "
2 sockets, 4 NUMA nodes, 2 uncore caches, 32 cores, 64 CPUs (SMT: 2 threads a core)

                             size  cores  CPUs (0+32 is one core)
socket 0                              16  0 2..62
  NUMA node 0             256 GiB      8  0,2,4,6,8,10,12,14,32,34,36,38,40,42,44,46
    uncore 0 (L3) (part)   32 MiB      8  0+32 2+34..14+46
  NUMA node 1             256 GiB      8  16,18,20,22,24,26,28,30,48,50,52,54,56,58,60,62
    uncore 0 (L3) (part)   32 MiB      8  16+48 18+50..30+62
socket 1                              16  1 3..63
  NUMA node 2             256 GiB      8  1,3,5,7,9,11,13,15,33,35,37,39,41,43,45,47
    uncore 1 (L3) (part)   32 MiB      8  1+33 3+35..15+47
  NUMA node 3             256 GiB      8  17,19,21,23,25,27,29,31,49,51,53,55,57,59,61,63
    uncore 1 (L3) (part)   32 MiB      8  17+49 19+51..31+63
(part): more of its CPUs are listed elsewhere

NUMA distances    0   1   2   3
     from node 0  10  12  32  32
     from node 1  12  10  32  32
     from node 2  32  32  10  12
     from node 3  32  32  12  10

isolated CPUs: none
offline CPUs:  none",
    );
}

#[test]
fn kinds_of_cores_are_drawn_on_a_hybrid_machine() {
    check(
        &Machine { cores: 12, threads: 2, efficient: 8, ..Machine::default() },
        "
1 socket, 1 NUMA node, 1 uncore cache, 12 cores, 16 CPUs (SMT: up to 2 threads a core)

                      size  cores  CPUs (0+1 is one core)
socket 0                       12  0-15
  NUMA node 0      256 GiB     12  0-15
    uncore 0 (L3)   32 MiB     12  performance 0+1 2+3..6+7, efficient 8-15

isolated CPUs: none
offline CPUs:  none",
    );
}

#[test]
fn caches_of_single_cores_are_drawn_in_one_row() {
    check(
        &Machine { cores: 64, caches: 64, dies: 2, ..Machine::default() },
        "
1 socket, 2 dies, 1 NUMA node, 64 uncore caches, 64 cores, 64 CPUs (no SMT)

                              size  cores  CPUs
socket 0                               64  0-63
  NUMA node 0              256 GiB     64  0-63
    64 uncore caches (L3)   32 MiB     64  0-63, each core its own

isolated CPUs: none
offline CPUs:  none",
    );
}

#[test]
fn the_picture_of_512_cpus_fits_a_page() {
    let machine: Machine = "pack:2 numa:4 l3:4 core:8 pu:2".parse().unwrap();
    let machine = Machine { numbering: Numbering::Interleaved, ..machine };
    let topology = machine.topology().unwrap();
    let picture = TopologyText { topology: &topology, sizes: &Sizes::default() }.to_string();
    assert_eq!(topology.cpus().len(), 512);
    assert!(picture.lines().count() <= 60, "{picture}");
    assert!(picture.lines().all(|line| line.len() <= 90), "{picture}");
}

#[test]
fn bytes_are_rounded_in_the_largest_unit() {
    for (size, expect) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (32 << 20, "32 MiB"),
        (5118 << 10, "5 MiB"),
        ((126 << 30) - 1, "126 GiB"),
        (1861 << 30, "1.8 TiB"),
        (u64::MAX, "16777216 TiB"),
    ] {
        assert_eq!(bytes(size), expect);
    }
}
