//! What the ledger's owner counts: a few additions per event, however many containers there are.

use cpuset::CpuSet;
use ledger::{Admission, Call, CpuSetting, Ledger, Note, What};
use placement::{PlacementSettings, Reason, Rejection, Scope, TopologyPolicy};
use std::collections::BTreeMap;
use std::time::Duration;
use topology::Topology;

/// Upper bounds of the buckets of handler durations, in seconds. By default the runtime waits for
/// two seconds.
const SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0];

/// The kubelet's buckets of admission durations, in milliseconds: 0.05 and 14 doublings of it.
const MILLISECONDS: &[f64] =
    &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];

/// Counts since the start of the process.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Seconds from the receipt of an event to its answer, by the event's name.
    pub handlers: BTreeMap<&'static str, Histogram>,
    /// Durations of creations in milliseconds, as the kubelet counts.
    pub admissions: Histogram,
    pub decisions: BTreeMap<CreateOutcome, u64>,
    /// Changes of existing containers that went out with answers.
    pub updates: u64,
    /// Creations and resizes that were refused, by reason.
    pub rejections: BTreeMap<&'static str, u64>,
    /// Requests for new exclusive CPUs, of containers and of pods with an own pool. A restarted
    /// container that still has its CPUs does not count.
    pub pinning_requests: u64,
    /// Of these, the failed ones.
    pub pinning_errors: u64,
    /// Containers whose memory was to be counted. A restarted container that still has its memory
    /// does not count.
    pub memory_requests: u64,
    /// Of these, the refused ones.
    pub memory_errors: u64,
    /// Containers that got CPUs which not all containers share.
    pub assignments: BTreeMap<AssignmentType, u64>,
    /// Exclusive CPUs that do not cross a boundary.
    pub aligned: BTreeMap<AlignmentType, u64>,
    /// Refusals because every choice of CPUs would have crossed a boundary.
    pub misaligned: BTreeMap<AlignmentType, u64>,
    pub checkpoint_errors: u64,
}

/// The answer to the creation of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreateOutcome {
    Exclusive,
    Shared,
    Untouched,
    Refused,
}

impl CreateOutcome {
    pub const ALL: [CreateOutcome; 4] = [
        CreateOutcome::Exclusive,
        CreateOutcome::Shared,
        CreateOutcome::Untouched,
        CreateOutcome::Refused,
    ];

    /// The outcome for a new container with this setting; `None` leaves it to the runtime.
    pub fn of(setting: Option<&CpuSetting>) -> CreateOutcome {
        match setting {
            None => CreateOutcome::Untouched,
            Some(setting) if setting.is_exclusive() => CreateOutcome::Exclusive,
            Some(_) => CreateOutcome::Shared,
        }
    }

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            CreateOutcome::Exclusive => "exclusive",
            CreateOutcome::Shared => "shared",
            CreateOutcome::Untouched => "untouched",
            CreateOutcome::Refused => "refused",
        }
    }
}

/// The type of a container's CPUs, in the kubelet's words.
pub(super) type AssignmentType = &'static str;

/// Exclusive CPUs of the node.
pub(super) const NODE_EXCLUSIVE: AssignmentType = "node_exclusive";
/// Exclusive CPUs out of those of its pod.
pub(super) const POD_EXCLUSIVE: AssignmentType = "pod_exclusive";
/// The own pool of its pod.
pub(super) const POD_SHARED: AssignmentType = "pod_shared";

/// What exclusive CPUs may be aligned to, in the kubelet's words: `(scope, boundary)`.
pub(super) type AlignmentType = (&'static str, &'static str);

/// Whole cores, counted with `full-pcpus-only`.
pub(super) const PHYSICAL_CPU: AlignmentType = ("container", "physical_cpu");
/// One uncore cache, always counted.
pub(super) const UNCORE_CACHE: AlignmentType = ("container", "uncore_cache");
/// One NUMA node, counted with `single-numa-node` in container scope.
pub(super) const NUMA_NODE: AlignmentType = ("container", "numa_node");
/// One NUMA node, counted with `single-numa-node` in pod scope.
pub(super) const POD_NUMA_NODE: AlignmentType = ("pod", "numa_node");

/// The name of a refusal under `strict: true` in metrics.
pub const STRICT: &str = "Strict";

impl Default for Counters {
    fn default() -> Counters {
        let refused = Reason::ALL.map(Reason::name).into_iter().chain([STRICT]);
        Counters {
            handlers: BTreeMap::new(),
            admissions: Histogram::new(MILLISECONDS),
            decisions: CreateOutcome::ALL.map(|outcome| (outcome, 0)).into(),
            updates: 0,
            rejections: refused.map(|reason| (reason, 0)).collect(),
            pinning_requests: 0,
            pinning_errors: 0,
            memory_requests: 0,
            memory_errors: 0,
            assignments: [NODE_EXCLUSIVE, POD_EXCLUSIVE, POD_SHARED]
                .map(|assignment| (assignment, 0))
                .into(),
            aligned: [PHYSICAL_CPU, UNCORE_CACHE, NUMA_NODE, POD_NUMA_NODE]
                .map(|alignment| (alignment, 0))
                .into(),
            misaligned: [PHYSICAL_CPU, NUMA_NODE, POD_NUMA_NODE]
                .map(|alignment| (alignment, 0))
                .into(),
            checkpoint_errors: 0,
        }
    }
}

impl Counters {
    pub fn decided(&self, outcome: CreateOutcome) -> u64 {
        self.decisions[&outcome]
    }

    /// Counts an answered event, with the updates that its answer carried. `outcome` counts if it was
    /// a creation.
    pub fn handled(
        &mut self,
        event: EventKind,
        took: Duration,
        outcome: CreateOutcome,
        updates: usize,
    ) {
        let handler = self.handlers.entry(event.name).or_insert_with(|| Histogram::new(SECONDS));
        handler.observe(took.as_secs_f64());
        self.updates += updates as u64;
        if event.creates {
            self.admissions.observe(took.as_secs_f64() * 1000.0);
            *self.decisions.entry(outcome).or_default() += 1;
        }
    }

    /// Counts an event that the ledger refused, or whose result could not be written to disk.
    pub fn rejected(
        &mut self,
        event: EventKind,
        rejection: &Rejection,
        settings: &PlacementSettings,
    ) {
        let reason = rejection.reason;
        self.count_rejection(reason.name());
        // The kubelet knows no pod options, so its metrics have no place for a pod option that is
        // not allowed.
        if !event.creates
            || matches!(reason, Reason::PodOptionNotAllowed | Reason::PodOptionUnknown)
        {
            return;
        }
        // The kubelet asks its topology manager first, and its other managers only then.
        if reason == Reason::TopologyAffinity {
            if let Some(alignment) = numa_alignment(settings) {
                *self.misaligned.entry(alignment).or_default() += 1;
            }
            return;
        }
        if rejection.memory.is_some() {
            self.memory_requests += 1;
            self.memory_errors += 1;
            return;
        }
        self.pinning_requests += 1;
        self.pinning_errors += 1;
        if settings.options.full_pcpus_only {
            *self.misaligned.entry(PHYSICAL_CPU).or_default() += 1;
        }
    }

    pub fn count_rejection(&mut self, reason: &'static str) {
        *self.rejections.entry(reason).or_default() += 1;
    }

    /// Counts new exclusive CPUs, and containers that share those of their pods. Call this when
    /// they are on disk.
    pub fn given(&mut self, notes: &[Note], ledger: &Ledger) {
        let settings = &ledger.settings().placement;
        for note in notes.iter().filter(|note| note.done) {
            match &note.what {
                What::Assigned { placement, .. } => {
                    self.count_given(&placement.cpus, ledger.topology(), settings);
                    let is_of_pod = ledger.is_of_own_pool(&note.subject.id);
                    self.count_assignment(if is_of_pod { POD_EXCLUSIVE } else { NODE_EXCLUSIVE });
                }
                What::PodAssigned { placement, .. } => {
                    self.count_given(&placement.cpus, ledger.topology(), settings);
                }
                What::SharesOwnPool(_) => self.count_assignment(POD_SHARED),
                _ => {}
            }
        }
    }

    fn count_assignment(&mut self, assignment: AssignmentType) {
        *self.assignments.entry(assignment).or_default() += 1;
    }

    fn count_given(&mut self, cpus: &CpuSet, topology: &Topology, settings: &PlacementSettings) {
        self.pinning_requests += 1;
        let whole_cores = settings.options.full_pcpus_only.then_some(PHYSICAL_CPU);
        let one_cache = in_one_uncore(topology, cpus).then_some(UNCORE_CACHE);
        for alignment in [whole_cores, one_cache, numa_alignment(settings)].into_iter().flatten() {
            *self.aligned.entry(alignment).or_default() += 1;
        }
    }
}

/// The alignment that the topology manager guarantees: like the kubelet, under `single-numa-node`
/// only.
fn numa_alignment(settings: &PlacementSettings) -> Option<AlignmentType> {
    let manager = &settings.topology_manager;
    if manager.policy != TopologyPolicy::SingleNumaNode {
        return None;
    }
    Some(match manager.scope {
        Scope::Container => NUMA_NODE,
        Scope::Pod => POD_NUMA_NODE,
    })
}

fn in_one_uncore(topology: &Topology, cpus: &CpuSet) -> bool {
    topology.uncores().iter().any(|uncore| cpus.is_subset(&uncore.cpus))
}

/// The facts about an event that the counters need once it is answered: the ledger has consumed the
/// event by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKind {
    name: &'static str,
    creates: bool,
}

impl From<&Call> for EventKind {
    fn from(call: &Call) -> EventKind {
        let creates = matches!(call, Call::Admission(Admission::Create { .. }));
        EventKind { name: call.name(), creates }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than `bounds`: the last bucket has no upper bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// `bounds` are the buckets' upper bounds, ascending.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        // At most `bounds.len()`, and there is one count more than bounds.
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }

    /// Each upper bound with the number of values up to it, ascending.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        self.bounds.iter().copied().zip(sums)
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpuset::NodeSet;
    use placement::memory_manager::{Amounts, Capacity, MemoryKind, NodeMemory, Room};

    #[test]
    fn a_refusal_for_memory_is_no_error_of_the_cpu_manager() {
        let node =
            NodeMemory { id: 0, total: 10, huge_pages: Amounts::new(), reserved: Amounts::new() };
        let capacity = Capacity::new([node]).unwrap();
        let requested = Amounts::from([(MemoryKind::Memory, 11)]);
        let refused = Room::new(&capacity, []).around(&requested, NodeSet::of(0)).unwrap_err();
        let of_topology =
            Rejection { memory: refused.memory.clone(), ..Rejection::topology_affinity() };
        let settings = PlacementSettings::default();
        let mut counters = Counters::default();
        let create = EventKind { name: "create", creates: true };
        let resize = EventKind { name: "update", creates: false };
        counters.rejected(create, &refused, &settings);
        counters.rejected(resize, &refused, &settings);
        // The kubelet's topology manager refuses before its Memory Manager is asked.
        counters.rejected(create, &of_topology, &settings);
        assert_eq!((counters.memory_requests, counters.memory_errors), (1, 1));
        assert_eq!((counters.pinning_requests, counters.pinning_errors), (0, 0));
        assert_eq!(counters.rejections[Reason::UnexpectedAdmission.name()], 2);
        assert_eq!(counters.rejections[Reason::TopologyAffinity.name()], 1);
    }

    #[test]
    fn a_value_counts_in_each_bucket_that_is_bounded_by_it_or_more() {
        let mut histogram = Histogram::new(&[1.0, 2.0, 4.0]);
        for value in [0.5, 1.0, 1.5, 4.0, 9.0] {
            histogram.observe(value);
        }
        let buckets: Vec<(f64, u64)> = histogram.cumulative().collect();
        assert_eq!(buckets, [(1.0, 2), (2.0, 3), (4.0, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 16.0));
    }
}
