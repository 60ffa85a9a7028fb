//! `placement: compact` against every set of CPUs of small machines, by the criteria that
//! docs/configuration.md ("Compact placement") lists.
//!
//! Other cases: `SEEDS=100000..102000 cargo test --release -p placement --test compact_order`

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use cpuset::CpuSet;
use placement::{
    EngineKind, PlacementSettings, PodOptions, Request, Reuse, Running, TopologyManager,
    TopologyPolicy, place, resize,
};
use std::collections::BTreeMap;
use std::ops::Range;
use topology::model::NodeFacts;
use topology::{Cpu, Facts, Topology};

/// The most CPUs that a case chooses from: all their subsets are tried.
const MOST: usize = 12;

/// The criteria in the order of the page. The first that differs decides.
const CRITERIA: [&str; 9] = [
    "NUMA nodes",
    "sockets",
    "distances",
    "room in one node",
    "uncore caches",
    "shared cores",
    "CPUs of ended init containers in the caches",
    "broken cores",
    "remainders",
];

type Rank = [u64; CRITERIA.len()];

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random part of these CPUs, with about `percent` of each hundred.
    fn part(&mut self, of: CpuSet, percent: usize) -> CpuSet {
        of.iter()
            .filter(|_| self.below(100) < percent)
            .map(|cpu| CpuSet::of(cpu).unwrap())
            .collect()
    }
}

/// Up to two sockets and mostly up to four nodes, caches inside and across nodes, one, two or four threads per
/// core, in a quarter of the machines with threads offline, and nodes across both sockets.
fn machine(random: &mut Random) -> Topology {
    let threads = [1, 2, 4][random.below(3)];
    let cores = 2 + random.below(if threads == 1 { 14 } else { 24 / threads - 1 });
    let most_nodes = if random.one_in(4) { 8 } else { 4 };
    let nodes = 1 + random.below(most_nodes);
    let sockets = 1 + random.below(2);
    let caches = 1 + random.below(6);
    let in_order = !random.one_in(3);
    let spans_sockets = random.one_in(4);
    let has_offline = random.one_in(4);
    let adjacent = random.one_in(2);
    let mut cpus: Vec<Cpu> = Vec::new();
    for core in 0..cores {
        let part = |of: usize, random: &mut Random| {
            if in_order { core * of / cores } else { random.below(of) }
        };
        let numa = part(nodes, random);
        let cache = part(caches, random);
        let socket = if spans_sockets { part(sockets, random) } else { numa * sockets / nodes };
        let uncore = if in_order && !spans_sockets { cache } else { 10 * socket + cache };
        let mut first = None;
        for thread in 0..threads {
            if thread > 0 && has_offline && random.one_in(4) {
                continue;
            }
            let id = if adjacent { core * threads + thread } else { thread * cores + core };
            let core = *first.get_or_insert(id);
            cpus.push(Cpu { id, core, uncore, numa, socket, die: None, kind: None });
        }
    }
    let kind = random.below(4);
    let row = |id: usize, random: &mut Random| -> Vec<u32> {
        let to = 0..nodes;
        match kind {
            0 => Vec::new(),
            1 => to.map(|to| if to == id { 10 } else { 20 }).collect(),
            2 => to.map(|to| if to == id { 10 } else { 11 + random.below(4) as u32 }).collect(),
            _ => {
                let far =
                    |to: usize| if to * sockets / nodes == id * sockets / nodes { 12 } else { 32 };
                to.map(|to| if to == id { 10 } else { far(to) }).collect()
            }
        }
    };
    let rows: Vec<NodeFacts> = (0..nodes)
        .map(|id| NodeFacts { id, distances: row(id, random), memoryless: false })
        .collect();
    Topology::build(Facts { cpus, nodes: rows, ..Facts::default() }).unwrap()
}

/// Sets of CPUs as bits: all numbers are below 64.
fn bits(cpus: &CpuSet) -> u64 {
    cpus.iter().fold(0, |bits, cpu| bits | 1 << cpu)
}

fn cpus(bits: u64) -> CpuSet {
    (0..64).filter(|cpu| bits >> cpu & 1 == 1).map(|cpu| CpuSet::of(cpu).unwrap()).collect()
}

fn count(cpus: u64) -> u64 {
    cpus.count_ones().into()
}

/// The domains of a machine, as bits.
struct Domains {
    nodes: Vec<u64>,
    /// From each node to each.
    distances: Vec<Vec<u64>>,
    sockets: Vec<u64>,
    caches: Vec<u64>,
    cores: Vec<u64>,
}

impl Domains {
    fn of(machine: &Topology) -> Domains {
        let all =
            |domains: &[topology::Domain]| domains.iter().map(|one| bits(&one.cpus)).collect();
        let nodes = machine.nodes();
        // As far as nodes that cannot reach each other, if unknown.
        let distance =
            |from: usize, to: usize| u64::from(*nodes[from].distances.get(to).unwrap_or(&255));
        let row = |from| (0..nodes.len()).map(|to| distance(from, to)).collect();
        Domains {
            nodes: nodes.iter().map(|node| bits(&node.cpus)).collect(),
            distances: (0..nodes.len()).map(row).collect(),
            sockets: all(machine.sockets()),
            caches: all(machine.uncores()),
            cores: all(machine.cores()),
        }
    }
}

/// What a case chooses from.
struct Case {
    domains: Domains,
    request: Request,
    held: u64,
    /// CPUs that the container can get.
    usable: u64,
    counts_room: bool,
}

impl Case {
    /// The rank of an answer; the lower the better.
    fn rank(&self, taken: u64) -> Rank {
        let Domains { nodes, distances, sockets, caches, cores } = &self.domains;
        let used: Vec<usize> = (0..nodes.len()).filter(|&at| nodes[at] & taken != 0).collect();
        let touched =
            |domains: &[u64]| domains.iter().filter(|&cpus| cpus & taken != 0).count() as u64;
        let pairs = used.iter().flat_map(|&one| used.iter().map(move |&other| (one, other)));
        let between = pairs.filter(|(one, other)| one != other);
        let in_nodes = used.iter().fold(0, |all, &at| all | nodes[at]);
        let in_caches =
            caches.iter().filter(|&cpus| cpus & taken != 0).fold(0, |all, cpus| all | cpus);
        let around = in_caches & in_nodes & self.usable;
        let parts = || cores.iter().filter(|&core| core & taken != 0 && core & !taken != 0);
        let broken = parts().filter(|&core| core & !self.usable == 0).count() as u64;
        let reusable = count(bits(&self.request.reuse.cpus) & around).min(count(taken));
        [
            used.len() as u64,
            touched(sockets),
            between.map(|(one, other)| distances[one][other]).sum(),
            if self.counts_room && used.len() == 1 { self.room(used[0], taken) } else { 0 },
            touched(caches),
            parts().count() as u64,
            count(taken) - reusable,
            broken,
            20 * count(around & !taken) + count(in_nodes & self.usable),
        ]
    }

    /// How many requests of an eighth of a node, two eighths and so on no longer fit the node then;
    /// of equal nodes the first.
    fn room(&self, node: usize, taken: u64) -> u64 {
        let size = count(self.domains.nodes[node]);
        let requests = |free: u64| -> u64 { (1..=8).map(|part| 8 * free / (part * size)).sum() };
        let free = count(self.domains.nodes[node] & self.usable);
        100 * (requests(free) - requests(free - count(taken))) + node as u64
    }

    fn is_legal(&self, taken: u64) -> bool {
        let settings = &self.request.settings;
        let mut touched = self.domains.cores.iter().filter(|&core| core & taken != 0);
        let nodes = self.domains.nodes.iter().filter(|&node| node & taken != 0).count();
        let whole = !settings.options.full_pcpus_only || touched.all(|core| core & !taken == 0);
        whole && nodes <= self.most_nodes()
    }

    fn most_nodes(&self) -> usize {
        match self.request.settings.topology_manager.policy {
            TopologyPolicy::None | TopologyPolicy::BestEffort => usize::MAX,
            TopologyPolicy::SingleNumaNode => 1,
            TopologyPolicy::Restricted => {
                let mut sizes: Vec<u64> =
                    self.domains.nodes.iter().map(|&node| count(node)).collect();
                sizes.sort_unstable();
                let mut left = self.request.cpus as u64;
                sizes
                    .iter()
                    .rev()
                    .take_while(|&&size| {
                        let more = left > 0;
                        left = left.saturating_sub(size);
                        more
                    })
                    .count()
            }
        }
    }

    /// The best rank of all legal answers with the container's CPUs and others; `None` if there are
    /// none.
    fn best(&self) -> Option<(Rank, u64)> {
        let more = self.request.cpus - self.held.count_ones() as usize;
        let open: Vec<u64> =
            (0..64).map(|cpu| 1 << cpu).filter(|cpu| self.usable & !self.held & cpu != 0).collect();
        let sets = (0..1u32 << open.len()).filter(|set| set.count_ones() as usize == more);
        let sets = sets.map(|set| {
            let chosen = open.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            chosen.fold(self.held, |all, (_, cpu)| all | cpu)
        });
        sets.filter(|set| self.is_legal(*set)).map(|set| (self.rank(set), set)).min()
    }
}

/// Something that a seed got that is worse than another answer.
struct Worse {
    seed: u64,
    criterion: &'static str,
    case: String,
}

fn worse(
    seed: u64,
    machine: &Topology,
    case: &Case,
    actual: Option<CpuSet>,
    criteria: usize,
) -> Option<Worse> {
    let actual = actual.map(|cpus| (case.rank(bits(&cpus)), bits(&cpus)));
    let best = case.best();
    let ranks = |answer: Option<(Rank, u64)>| answer.map(|(rank, _)| rank);
    let criterion = match (ranks(actual), ranks(best)) {
        (Some(actual), Some(best)) => {
            let at = (0..criteria).find(|&at| actual[at] != best[at])?;
            if actual[at] < best[at] { "the test's own best" } else { CRITERIA[at] }
        }
        (None, None) => return None,
        _ => "refusal",
    };
    let show = |answer: Option<(Rank, u64)>| {
        answer.map_or("refused".to_owned(), |(rank, set)| format!("{} {rank:?}", cpus(set)))
    };
    let Domains { nodes, sockets, caches, cores, .. } = &case.domains;
    let list = |domains: &[u64]| {
        domains.iter().map(|&one| cpus(one).to_string()).collect::<Vec<_>>().join(" | ")
    };
    let text = format!(
        "{} of {} (held {}, reuse {}, policy {:?}, full {}) on nodes {} / sockets {} / caches {} / cores {} of {}: {}, best {}",
        case.request.cpus,
        cpus(case.usable),
        cpus(case.held),
        case.request.reuse.cpus,
        case.request.settings.topology_manager.policy,
        case.request.settings.options.full_pcpus_only,
        list(nodes),
        list(sockets),
        list(caches),
        list(cores),
        machine.online().len(),
        show(actual),
        show(best),
    );
    Some(Worse { seed, criterion, case: text })
}

fn settings(random: &mut Random, policy: TopologyPolicy, reserved: CpuSet) -> PlacementSettings {
    let mut settings = PlacementSettings {
        engine: EngineKind::Compact,
        topology_manager: TopologyManager { policy, ..TopologyManager::default() },
        reserved,
        ..PlacementSettings::default()
    };
    settings.options.full_pcpus_only = random.one_in(4);
    settings
}

/// At most [`MOST`] of these CPUs.
fn thinned(random: &mut Random, mut of: CpuSet) -> CpuSet {
    while of.len() > MOST {
        let all: Vec<usize> = of.iter().collect();
        of.remove(all[random.below(all.len())]);
    }
    of
}

fn started(seed: u64) -> Option<Worse> {
    let random = &mut Random(seed);
    let machine = machine(random);
    let policy = TopologyPolicy::ALL[random.below(TopologyPolicy::ALL.len())];
    let reserved = if random.one_in(3) { random.part(machine.online(), 15) } else { CpuSet::EMPTY };
    let percent = 40 + random.below(61);
    let usable = random.part(machine.online() - reserved, percent);
    let usable = thinned(random, usable);
    if usable.is_empty() {
        return None;
    }
    let settings = settings(random, policy, reserved);
    let n = 1 + random.below(usable.len());
    let reuse = if random.one_in(4) { random.part(usable, 30) } else { CpuSet::EMPTY };
    let mut request = Request::new(n, usable - reuse, PodOptions::NONE, &settings);
    request.reuse = Reuse { cpus: reuse, kept: 0 };
    let usable = if settings.options.full_pcpus_only {
        placement::cores::only_whole_cores(&machine, &usable)
    } else {
        usable
    };
    let counts_room = matches!(policy, TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode);
    let domains = Domains::of(&machine);
    // The width of whole cores of several sizes is another test's subject (`irregular`).
    if policy == TopologyPolicy::Restricted && settings.options.full_pcpus_only {
        return None;
    }
    let case = Case { domains, request, held: 0, usable: bits(&usable), counts_room };
    let actual = place(&machine, &request).ok().map(|placement| placement.cpus);
    worse(seed, &machine, &case, actual, CRITERIA.len())
}

fn grown(seed: u64) -> Option<Worse> {
    let random = &mut Random(seed);
    let machine = machine(random);
    let held = random.part(machine.online(), 20);
    let percent = 40 + random.below(61);
    let free = random.part(machine.online() - held, percent);
    let free = thinned(random, free);
    if free.is_empty() {
        return None;
    }
    let mut settings = settings(random, TopologyPolicy::None, CpuSet::EMPTY);
    settings.options.full_pcpus_only = false;
    let n = held.len() + 1 + random.below(free.len());
    let request = Request::new(n, free | held, PodOptions::NONE, &settings);
    let domains = Domains::of(&machine);
    let usable = bits(&(free | held));
    let case = Case { domains, request, held: bits(&held), usable, counts_room: false };
    let actual = resize(&machine, &request, &Running::Exclusive(held)).ok();
    // The CPUs that it keeps decide the rest.
    worse(seed, &machine, &case, actual, 6)
}

fn shrunk(seed: u64) -> Option<Worse> {
    let random = &mut Random(seed);
    let machine = machine(random);
    let percent = 40 + random.below(61);
    let held = random.part(machine.online(), percent);
    let held = thinned(random, held);
    if held.len() < 2 {
        return None;
    }
    let mut settings = settings(random, TopologyPolicy::Restricted, CpuSet::EMPTY);
    settings.options.full_pcpus_only = false;
    let n = 1 + random.below(held.len() - 1);
    let request = Request::new(n, held, PodOptions::NONE, &settings);
    let domains = Domains::of(&machine);
    let mut case = Case { domains, request, held: 0, usable: bits(&held), counts_room: false };
    let actual = resize(&machine, &request, &Running::Exclusive(held)).ok();
    // A resize ignores the policy.
    case.request.settings.topology_manager.policy = TopologyPolicy::None;
    worse(seed, &machine, &case, actual, CRITERIA.len())
}

#[allow(clippy::disallowed_methods, reason = "tests have no arguments of their own")]
fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("SEEDS") else { return 0..2000 };
    let (from, to) = range.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

fn check(name: &str, compare: fn(u64) -> Option<Worse>) {
    let worse: Vec<Worse> = seeds().filter_map(compare).collect();
    let mut by_criterion: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &worse {
        *by_criterion.entry(one.criterion).or_default() += 1;
    }
    let first: Vec<String> = worse
        .iter()
        .take(5)
        .map(|one| format!("seed {}, {}: {}", one.seed, one.criterion, one.case))
        .collect();
    assert!(
        worse.is_empty(),
        "{name}: {} of {} are worse than the best: {by_criterion:?}\n{}",
        worse.len(),
        seeds().count(),
        first.join("\n")
    );
}

#[test]
fn no_set_of_cpus_is_better_for_a_container_that_starts() {
    check("started", started);
}

#[test]
fn no_set_of_cpus_is_better_for_a_container_that_grows() {
    check("grown", grown);
}

#[test]
fn no_set_of_cpus_is_better_for_a_container_that_shrinks() {
    check("shrunk", shrunk);
}
