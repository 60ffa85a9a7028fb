//! `take.jsonl`, `take37.jsonl`: one allocation from a free set.

use super::options::pairs;
use super::{Machines, Newer, Outcome};
use cpuset::CpuSet;
use placement::cores::whole_cores;
use placement::kubelet::{Supply, allocate, take, take_cores};
use placement::{Distribution, Hint, Options, PlacementSettings, Strategy, UncoreOrder};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use topology::Topology;

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    topology: String,
    available: String,
    n: usize,
    strategy: String,
    uncore: bool,
    distribute: bool,
    group: usize,
    #[serde(default)]
    min_numas: usize,
    #[serde(default)]
    align_by_socket: bool,
    op: Option<Op>,
    /// The policy options of a container; the fields above repeat what they mean.
    #[serde(default)]
    cpu_options: BTreeMap<String, String>,
    /// The nodes of a container's NUMA affinity.
    affinity: Option<Vec<usize>>,
    cpus: Option<String>,
    error: Option<String>,
    /// The kubelet's answer has CPUs that were not available.
    r#unsafe: Option<IgnoredAny>,
    /// The kubelet's answer has another number of CPUs.
    wrong_size: Option<IgnoredAny>,
    /// The kubelet's answer without a defect in its search.
    combo_alias: Option<IgnoredAny>,
    /// Whether the kubelet keeps its own rules.
    #[serde(default = "yes")]
    legal: bool,
}

/// The operation; one allocation without options if there is none.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    /// A container, on a node with nothing reserved.
    Allocate,
}

pub(super) fn yes() -> bool {
    true
}

impl Vector {
    /// The CPUs, or the kubelet's text why there are none; `None` if the vector is malformed.
    fn answer(&self, topology: &Topology, available: &CpuSet) -> Option<Result<CpuSet, String>> {
        match self.op {
            Some(Op::Allocate) => self.allocate(topology, available),
            None => {
                let strategy = self.strategy()?;
                let answer = if self.is_whole() {
                    take_cores(topology, available, self.n, strategy)
                } else {
                    take(topology, available, self.n, strategy)
                };
                Some(answer.map_err(|error| error.to_string()))
            }
        }
    }

    fn strategy(&self) -> Option<Strategy> {
        let uncore = self.uncore.then_some(UncoreOrder::FewestFree);
        match (self.strategy.as_str(), self.distribute) {
            ("packed", false) => Some(Strategy::Packed { uncore }),
            ("packed", true) => Some(Strategy::AcrossNuma(Distribution {
                group: self.group,
                min_nodes: self.min_numas,
                align_by_socket: self.align_by_socket,
            })),
            ("spread", false) => Some(Strategy::Spread),
            _ => None,
        }
    }

    fn allocate(&self, topology: &Topology, available: &CpuSet) -> Option<Result<CpuSet, String>> {
        let options = pairs(&self.cpu_options);
        let options = Options::parse(options).ok()?;
        let settings = PlacementSettings { options, ..PlacementSettings::default() };
        let nodes = self.affinity.as_ref().map(|nodes| nodes.iter().copied().collect());
        let within = Hint { nodes, preferred: true };
        let supply = Supply { free: *available, reusable: CpuSet::EMPTY };
        let answer = allocate(topology, &settings, &supply, self.n, Some(within));
        Some(match answer {
            Ok(placement) => Ok(placement.cpus),
            // A pod's message says more than the error of the policy.
            Err(rejection) => Err(match &self.error {
                Some(error) if rejection.message.contains(error) => error.clone(),
                _ => rejection.message,
            }),
        })
    }

    fn by_whole_cores(&self, topology: &Topology, answer: &Result<CpuSet, String>) -> bool {
        let options = Options {
            full_pcpus_only: self.is_whole(),
            prefer_align_cpus_by_uncorecache: self.uncore,
            distribute_cpus_across_numa: self.distribute,
            ..Options::default()
        };
        let one = |cpus: CpuSet| BTreeMap::from([(String::new(), cpus)]);
        let ours = answer.as_ref().map(|cpus| one(*cpus)).unwrap_or_default();
        let theirs = self.cpus.as_ref().and_then(|cpus| cpus.parse().ok()).map(one);
        let theirs = theirs.unwrap_or_default();
        by_whole_cores(topology, &options, &ours, &theirs, self.error.as_deref()).is_some()
    }

    /// Whether the kubelet must give whole cores: under `full-pcpus-only`, which also makes the
    /// groups of a distribution larger than a CPU.
    fn is_whole(&self) -> bool {
        self.group > 1 || self.cpu_options.contains_key("full-pcpus-only")
    }

    fn is_wrong(&self) -> bool {
        self.r#unsafe.is_some() || self.wrong_size.is_some() || self.combo_alias.is_some()
    }
}

pub(super) fn check(vector: Vector, machines: &Machines, newer: &Newer) -> Outcome {
    let Vector { id, n, .. } = &vector;
    let malformed = || Outcome::Failed(format!("{id}: not a vector: {vector:?}"));
    let Some(topology) = machines.get(&vector.topology) else { return malformed() };
    let Ok(available) = vector.available.parse::<CpuSet>() else { return malformed() };
    let Some(answer) = vector.answer(topology, &available) else { return malformed() };
    let is_legal = |cpus: &CpuSet| {
        let whole = !vector.is_whole() || whole_cores(topology, cpus) == *cpus;
        whole && cpus.len() == *n && cpus.is_subset(&available)
    };
    let excepted = if !vector.legal {
        Some((Outcome::Ours, answer.as_ref().map_or(true, is_legal)))
    } else if vector.is_wrong() {
        Some((Outcome::Excepted, answer.as_ref().map_or(vector.is_whole(), is_legal)))
    } else if newer.has("take", id) {
        Some((Outcome::Newer, answer.as_ref().is_ok_and(is_legal)))
    } else {
        None
    };
    let (text, expect) = match &answer {
        Ok(cpus) => (cpus.to_string(), &vector.cpus),
        Err(error) => (error.clone(), &vector.error),
    };
    let theirs = vector.cpus.as_ref().and_then(|cpus| cpus.parse::<CpuSet>().ok());
    let equally_good = match (&answer, theirs) {
        (Ok(ours), Some(theirs)) if vector.distribute => {
            is_as_balanced(topology, &available, ours, &theirs)
        }
        _ => false,
    };
    let same = Some(&text) == expect.as_ref() || equally_good;
    let by_whole_cores = || vector.by_whole_cores(topology, &answer);
    match excepted {
        Some((Outcome::Newer, _)) if same => {
            Outcome::Failed(format!("{id}: is in the list of other answers, but agrees"))
        }
        Some((outcome, true)) => outcome,
        None if same => Outcome::Passed,
        None if by_whole_cores() && answer.as_ref().map_or(true, is_legal) => Outcome::Ours,
        _ => Outcome::Failed(format!("{id}: {text} for {vector:?}")),
    }
}

/// The rule by which an answer may differ from the kubelet's, which splits cores that it must give
/// whole, and counts cores of average size where they differ; `None` if no rule applies, or the
/// answer is worse. Both answers are CPUs by container, none if refused; `error` is the kubelet's.
pub(super) fn by_whole_cores(
    topology: &Topology,
    options: &Options,
    ours: &BTreeMap<String, CpuSet>,
    theirs: &BTreeMap<String, CpuSet>,
    error: Option<&str>,
) -> Option<&'static str> {
    let splits = |cpus: &CpuSet| {
        let siblings = whole_cores(topology, cpus) - *cpus;
        topology.cores().iter().filter(|core| !core.cpus.is_disjoint(&siblings)).count()
    };
    if options.full_pcpus_only {
        if ours.values().any(|cpus| splits(cpus) > 0) {
            return None;
        }
        if theirs.values().any(|cpus| splits(cpus) > 0) {
            return Some("the kubelet splits a core");
        }
        if error.is_some_and(|error| error.contains("SMT Alignment Error")) {
            return Some("the kubelet counts CPUs instead of whole cores");
        }
    }
    if topology.cores_are_equal() {
        return None;
    }
    if options.full_pcpus_only && options.distribute_cpus_across_numa {
        return Some("the kubelet shares out groups of average size");
    }
    if !options.prefer_align_cpus_by_uncorecache {
        return None;
    }
    let worth = |cpus: &CpuSet| {
        let caches = topology.uncores().iter().filter(|cache| !cache.cpus.is_disjoint(cpus));
        (caches.count(), splits(cpus))
    };
    // Later containers of the pod follow from the first one that differs.
    let (container, theirs) =
        theirs.iter().find(|(name, theirs)| ours.get(*name) != Some(theirs))?;
    if worth(ours.get(container)?) > worth(theirs) {
        return None;
    }
    Some("the kubelet fills a cache by cores of average size")
}

/// Whether two distributions over NUMA nodes are equally good: as many CPUs, as many nodes, and
/// equally balanced free CPUs. Of several equally good ones the kubelet means to keep the first,
/// but overwrites it in part.
pub(super) fn is_as_balanced(
    topology: &Topology,
    available: &CpuSet,
    ours: &CpuSet,
    theirs: &CpuSet,
) -> bool {
    balance(topology, available, ours) == balance(topology, available, theirs)
}

/// The number of CPUs and of their nodes, a measure of the imbalance of the free CPUs, and whether
/// the CPUs were available.
fn balance(topology: &Topology, available: &CpuSet, cpus: &CpuSet) -> (usize, usize, usize, bool) {
    let free = *available - *cpus;
    let nodes = topology.nodes();
    let used = nodes.iter().filter(|node| !(node.cpus & *cpus).is_empty()).count();
    let squares = nodes.iter().map(|node| (node.cpus & free).len().pow(2)).sum();
    (cpus.len(), used, squares, cpus.is_subset(available))
}
