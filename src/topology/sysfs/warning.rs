//! [`Warning`]: a fact that the kernel reports wrongly or not at all, and the assumption instead.

use super::tree::Found;
use crate::cpuset::CpuSet;
use std::collections::BTreeMap;
use std::fmt;

/// A doubtful fact. There is one warning per fact and problem, however many CPUs it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The doubtful fact.
    pub fact: Fact,
    /// What is wrong with it.
    pub problem: Problem,
    /// The CPUs, or the nodes for facts about nodes; empty for facts about the whole machine.
    pub ids: CpuSet,
    /// The first case: a file and its content, or the contradiction in words.
    pub example: String,
}

/// A fact about the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// Which CPUs are online.
    Online,
    /// Which CPUs exist.
    Present,
    /// Which CPUs are isolated from the scheduler's load balancing.
    Isolated,
    /// Which CPUs are threads of one core.
    Cores,
    /// Which CPUs share an uncore cache.
    Caches,
    /// Which CPUs are in which NUMA node.
    Nodes,
    /// How far NUMA nodes are from each other.
    Distances,
    /// Which CPUs are in which socket.
    Sockets,
    /// Which cores are fast and which are efficient.
    Kinds,
}

/// What can be wrong with a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// No usable file has it.
    Missing,
    /// A file is not usable, but another one has the fact as well.
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

    /// Whether [`Warning::ids`] are nodes.
    fn is_about_nodes(self) -> bool {
        matches!(self, Fact::Distances)
    }
}

impl Warning {
    /// The assumption of the reader.
    pub fn assumed(&self) -> &'static str {
        match (self.fact, self.problem) {
            (_, Problem::Spanning) => "it is kept as the kernel reports it",
            (_, Problem::Garbled) => "another file that has it is believed",
            (Fact::Online, _) => "every CPU counts as online unless its own online file says 0",
            (Fact::Present, _) => "every CPU with a directory counts as present",
            (Fact::Isolated, _) => "no CPU counts as isolated",
            (Fact::Cores, Problem::Conflicting) => {
                "only CPUs that name each other are put in one core"
            }
            (Fact::Cores, Problem::Missing) => {
                "such a CPU is put with the CPUs that name it, else taken for a core of its own"
            }
            (Fact::Caches, Problem::Conflicting) => {
                "only CPUs that name each other are put under one cache"
            }
            (Fact::Caches, _) => {
                "such a CPU is put with the CPUs that name it; if none names it, such CPUs are taken to share \
                 one cache in each NUMA node and socket"
            }
            (Fact::Nodes, Problem::Conflicting) => "the lowest node that lists a CPU has it",
            (Fact::Nodes, _) => {
                "a CPU that no node lists is put in the node its own directory names, else in the lowest \
                 node with an unknown list, else in the lowest node"
            }
            (Fact::Distances, Problem::Conflicting) => "they are kept as the kernel reports them",
            (Fact::Distances, _) => "they count as unknown",
            (Fact::Sockets, _) => {
                "such a CPU is put in the socket of its core, else of its NUMA node, else in the lowest there is"
            }
            (Fact::Kinds, _) => "the kind of these cores counts as unknown",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fact.subject())?;
        if !self.ids.is_empty() {
            let (one, many) =
                if self.fact.is_about_nodes() { ("node", "nodes") } else { ("CPU", "CPUs") };
            let noun = if self.ids.len() == 1 { one } else { many };
            write!(f, " ({noun} {})", self.ids)?;
        }
        write!(f, ": {}; {}", self.example, self.assumed())
    }
}

/// Collects cases into one [`Warning`] per fact and problem.
#[derive(Debug, Default)]
pub(super) struct Notes {
    warnings: BTreeMap<(Fact, Problem), Warning>,
}

impl Notes {
    /// Adds a case of one CPU or node. The warning keeps the first example only.
    pub(super) fn of(&mut self, id: usize, fact: Fact, problem: Problem, example: String) {
        // A node's number may be past the limit of a set. The example still has it.
        let _ = self.entry(fact, problem, example).ids.insert(id);
    }

    pub(super) fn of_all(&mut self, ids: CpuSet, fact: Fact, problem: Problem, example: String) {
        self.entry(fact, problem, example).ids |= ids;
    }

    /// Adds a case that concerns the whole machine.
    pub(super) fn machine(&mut self, fact: Fact, problem: Problem, example: String) {
        self.entry(fact, problem, example);
    }

    /// The fact about one CPU or node, with a note if there is trouble with it; `absent` is the
    /// example if there is no file.
    pub(super) fn judge<T>(
        &mut self,
        id: usize,
        fact: Fact,
        found: Found<T>,
        absent: impl FnOnce() -> String,
    ) -> Option<T> {
        match (&found.value, found.trouble) {
            (Some(_), None) => {}
            (Some(_), Some(trouble)) => self.of(id, fact, Problem::Garbled, trouble),
            (None, trouble) => {
                self.of(id, fact, Problem::Missing, trouble.unwrap_or_else(absent));
            }
        }
        found.value
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
