//! [`Warning`]: a fact that the kernel reports wrongly or not at all, and what is assumed instead.

use super::tree::Lookup;
use cpuset::CpuSet;
use std::collections::BTreeMap;
use std::fmt;

/// A doubtful fact. There is one warning per fact and problem, for any number of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub fact: Fact,
    pub problem: Problem,
    /// CPUs, or nodes for facts about nodes; empty for facts about the whole machine.
    pub ids: CpuSet,
    /// The first case: a file and its content, or a contradiction.
    pub example: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    Online,
    Present,
    Isolated,
    Cores,
    Caches,
    Nodes,
    Distances,
    Sockets,
    /// Which cores are performance and which are efficient ones.
    Kinds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// No usable file has the fact.
    Missing,
    /// One file is not usable, but another one has the fact.
    Garbled,
    /// Files contradict each other.
    Conflicting,
    /// A core is in more than one of the larger domains.
    Spanning,
}

impl Fact {
    fn subject(self) -> &'static str {
        match self {
            Fact::Online => "online CPUs",
            Fact::Present => "present CPUs",
            Fact::Isolated => "isolated CPUs",
            Fact::Cores => "cores",
            Fact::Caches => "uncore caches",
            Fact::Nodes => "NUMA nodes",
            Fact::Distances => "NUMA distances",
            Fact::Sockets => "sockets",
            Fact::Kinds => "core kinds",
        }
    }
}

impl Warning {
    /// What the reader assumes instead.
    pub fn assumed(&self) -> &'static str {
        match (self.fact, self.problem) {
            (_, Problem::Spanning) => "kept as the kernel reports it",
            (_, Problem::Garbled) => "using another file that has it",
            (Fact::Online, _) => "treating each CPU as online unless its own file online says 0",
            (Fact::Present, _) => "treating each CPU with a directory as present",
            (Fact::Isolated, _) => "treating no CPU as isolated",
            (Fact::Cores, Problem::Conflicting) => "grouping only CPUs that list each other",
            (Fact::Cores, Problem::Missing) => {
                "grouping such a CPU with the CPUs that list it, or treating it as a separate core"
            }
            (Fact::Caches, Problem::Conflicting) => "grouping only CPUs that list each other",
            (Fact::Caches, _) => {
                "grouping such a CPU with the CPUs that list it, and the rest into one cache per NUMA node and socket"
            }
            (Fact::Nodes, Problem::Conflicting) => "using the lowest node that lists the CPU",
            (Fact::Nodes, _) => {
                "using the node in the CPU's own directory, or the lowest node with an unknown list, or the lowest node"
            }
            (Fact::Distances, Problem::Conflicting) => "kept as the kernel reports them",
            (Fact::Distances, _) => "treated as unknown",
            (Fact::Sockets, _) => {
                "using the socket of its core, or of its NUMA node, or the lowest one"
            }
            (Fact::Kinds, _) => "treating their kind as unknown",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fact.subject())?;
        if !self.ids.is_empty() {
            let noun = if self.fact == Fact::Distances { "node" } else { "CPU" };
            let plural = if self.ids.len() == 1 { "" } else { "s" };
            write!(f, " ({noun}{plural} {})", self.ids)?;
        }
        write!(f, ": {}; {}", self.example, self.assumed())
    }
}

/// Collects cases into one [`Warning`] per fact and problem.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    warnings: BTreeMap<(Fact, Problem), Warning>,
}

impl Warnings {
    /// Adds a case of one CPU or node. The warning keeps the first example only.
    pub(super) fn of(&mut self, id: usize, fact: Fact, problem: Problem, example: String) {
        // Fails if a node's number is past the limit of a set. The example still has the number.
        let _ = self.entry(fact, problem, example).ids.insert(id);
    }

    pub(super) fn of_all(&mut self, ids: CpuSet, fact: Fact, problem: Problem, example: String) {
        self.entry(fact, problem, example).ids |= ids;
    }

    /// Adds a case that concerns the whole machine.
    pub(super) fn machine(&mut self, fact: Fact, problem: Problem, example: String) {
        self.entry(fact, problem, example);
    }

    /// The fact about the whole machine. Adds a warning if its file is not usable.
    pub(super) fn value<T>(&mut self, fact: Fact, lookup: Lookup<T>) -> Option<T> {
        if let Some(trouble) = lookup.trouble {
            self.machine(fact, Problem::Missing, trouble);
        }
        lookup.value
    }

    /// The fact about one CPU or node. Adds a warning if a file is not usable or missing; `absent`
    /// is the example if none exists.
    pub(super) fn judge<T>(
        &mut self,
        id: usize,
        fact: Fact,
        lookup: Lookup<T>,
        absent: impl FnOnce() -> String,
    ) -> Option<T> {
        match (&lookup.value, lookup.trouble) {
            (Some(_), None) => {}
            (Some(_), Some(trouble)) => self.of(id, fact, Problem::Garbled, trouble),
            (None, trouble) => {
                self.of(id, fact, Problem::Missing, trouble.unwrap_or_else(absent));
            }
        }
        lookup.value
    }

    pub(super) fn into_warnings(self) -> Vec<Warning> {
        self.warnings.into_values().collect()
    }

    fn entry(&mut self, fact: Fact, problem: Problem, example: String) -> &mut Warning {
        self.warnings.entry((fact, problem)).or_insert_with(|| Warning {
            fact,
            problem,
            ids: CpuSet::EMPTY,
            example,
        })
    }
}
