//! [`MovePlan`]: moves of running containers to better CPUs.

use super::model::ContainerId;
use core::time::Duration;
use cpuset::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Moves that improve the placement, in an order in which no CPU ever belongs to two containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovePlan {
    pub occasion: Occasion,
    pub steps: Vec<Move>,
}

impl MovePlan {
    /// The number of containers that move; staged steps do not count.
    pub fn containers(&self) -> usize {
        self.steps.iter().filter(|step| step.outcome == MoveOutcome::Done).count()
    }

    /// Whether a container runs on temporary CPUs until its new ones are free.
    pub fn is_staged(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == MoveOutcome::Staged)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub occasion: Occasion,
    pub container: ContainerId,
    /// Its exclusive CPUs before the move.
    pub from: CpuSet,
    /// The same number of CPUs, which no other container has at that time.
    pub to: CpuSet,
    pub outcome: MoveOutcome,
    /// The gain, for the log.
    pub why: String,
}

impl Move {
    /// The reverse move, for a step that could not be carried out.
    pub fn undone(self, why: String) -> Move {
        Move { outcome: MoveOutcome::Undone, from: self.to, to: self.from, why, ..self }
    }
}

/// The reason for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// Another container is about to be created.
    Arrival,
    /// CPUs have become free, or a container's `minStay` has ended.
    Departure,
}

impl Occasion {
    pub const ALL: [Occasion; 2] = [Occasion::Arrival, Occasion::Departure];

    /// A stable name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Occasion::Arrival => "arrival",
            Occasion::Departure => "departure",
        }
    }
}

/// The kind of a step, which is also what it counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    /// The container moves to its CPUs of the plan.
    Done,
    /// The container moves to temporary CPUs; a later step moves it to its CPUs of the plan.
    Staged,
    /// The reverse of a step that could not be carried out.
    Undone,
    /// A dry run would have moved the container.
    Suggested,
}

impl MoveOutcome {
    pub const ALL: [MoveOutcome; 4] =
        [MoveOutcome::Done, MoveOutcome::Staged, MoveOutcome::Undone, MoveOutcome::Suggested];

    /// A stable name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            MoveOutcome::Done => "done",
            MoveOutcome::Staged => "staged",
            MoveOutcome::Undone => "undone",
            MoveOutcome::Suggested => "suggested",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlan {
    /// `rebalance` is not in the configuration, or `off`.
    Off,
    /// The ledger assigns no CPUs, or the runtime has not listed its containers yet.
    NotAssigning,
    /// The new container needs no exclusive CPUs, or has them.
    NoNeed,
    /// Programs get notice of moves (`noticeSeconds`), and a creation cannot wait that long.
    Notice,
    BudgetUsedUp,
    /// The rest of the budget is kept for new containers.
    BudgetKept,
    AllStay,
    NoGain,
    /// A NUMA node that a container would move to has no room for its memory.
    NoRoomForMemory,
}

impl Display for NoPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoPlan::Off => "rebalance is off",
            NoPlan::NotAssigning => "the plugin assigns no CPUs now",
            NoPlan::NoNeed => "the container needs no other CPUs",
            NoPlan::Notice => "with noticeSeconds containers move only after others have ended",
            NoPlan::BudgetUsedUp => "the budget is used up until more containers start",
            NoPlan::BudgetKept => "the rest of the budget is for containers that start",
            NoPlan::AllStay => "no container may move",
            NoPlan::NoGain => "no move within the budget improves the placement",
            NoPlan::NoRoomForMemory => "the memory of a container could not move with its CPUs",
        })
    }
}

/// Why a container with exclusive CPUs keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "reason", content = "seconds_left", rename_all = "snake_case")]
pub enum StayReason {
    /// The pod option `movable: "false"`.
    PodOption,
    /// Its environment lists its CPUs (`exposeCPUs: environment`).
    Environment,
    /// Its threads have set their own affinities.
    OwnAffinity,
    /// Another program has set its memory nodes.
    MemoryNodes,
    /// In pod scope a pod has one NUMA affinity, and other containers have or can get CPUs in it.
    PodScope,
    /// Its pod has an own pool, out of which its CPUs are.
    OwnPool,
    /// Its process does not run, or its CPUs are about to change.
    Changing,
    /// It started or moved less than `minStay` ago; with the time that is left.
    MinStay(
        #[serde(with = "seconds")]
        #[cfg_attr(feature = "schema", schemars(with = "f64"))]
        Duration,
    ),
}

impl StayReason {
    /// A stable name, for the status.
    pub fn name(self) -> &'static str {
        match self {
            StayReason::PodOption => "pod_option",
            StayReason::Environment => "environment",
            StayReason::OwnAffinity => "own_affinity",
            StayReason::MemoryNodes => "memory_nodes",
            StayReason::PodScope => "pod_scope",
            StayReason::OwnPool => "own_pool",
            StayReason::Changing => "changing",
            StayReason::MinStay(_) => "min_stay",
        }
    }
}

impl Display for StayReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StayReason::PodOption => "movable: \"false\"",
            StayReason::Environment => "its environment lists its CPUs (exposeCPUs: environment)",
            StayReason::OwnAffinity => "its threads have CPU affinities of their own",
            StayReason::MemoryNodes => "another program has set its memory nodes",
            StayReason::PodScope => {
                "in pod scope, its pod has or can have other exclusive containers"
            }
            StayReason::OwnPool => "its pod's containers share the rest of the pod's own CPUs",
            StayReason::Changing => "it is starting, ending or changing its CPUs",
            StayReason::MinStay(left) => {
                // Rounded up, so that it never says "0 s left".
                let seconds = left.as_millis().div_ceil(1000);
                return write!(f, "{seconds} s of minStay left");
            }
        })
    }
}

/// Counts of moves since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveTotals {
    /// By occasion (`arrival`, `departure`) and outcome (`done`, `staged`, `undone`, `suggested`).
    steps: BTreeMap<Occasion, BTreeMap<MoveOutcome, u64>>,
    /// CPUs that containers moved to.
    pub cpus: u64,
    /// Moves to a NUMA node where the container had no CPU.
    pub across_numa_nodes: u64,
}

impl MoveTotals {
    pub fn of(&self, occasion: Occasion, outcome: MoveOutcome) -> u64 {
        let steps = self.steps.get(&occasion).and_then(|steps| steps.get(&outcome));
        steps.copied().unwrap_or(0)
    }

    /// The count for all occasions.
    pub fn all(&self, outcome: MoveOutcome) -> u64 {
        Occasion::ALL.iter().map(|occasion| self.of(*occasion, outcome)).sum()
    }

    pub(super) fn count(&mut self, occasion: Occasion, outcome: MoveOutcome) {
        *self.steps.entry(occasion).or_default().entry(outcome).or_default() += 1;
    }
}

/// A duration as a number of seconds.
mod seconds {
    use core::time::Duration;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        time.as_secs_f64().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
