//! [`TopologyManager`]: policy, scope and options of the topology manager, by the kubelet's names
//! (KEP-693).

use super::options::{NotABool, parse_bool};
use std::fmt;
use topology::Topology;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopologyManager {
    pub policy: TopologyPolicy,
    pub scope: Scope,
    /// Whether the nearest of equally many NUMA nodes come first (KEP-3545).
    pub prefer_closest_numa_nodes: bool,
    /// The kubelet does not start on a machine with more NUMA nodes than this (KEP-4622).
    pub max_allowable_numa_nodes: usize,
}

/// What happens to a container whose CPUs need more NUMA nodes than on the empty machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopologyPolicy {
    /// NUMA nodes do not matter.
    #[default]
    None,
    /// It is admitted with the best NUMA nodes that have room.
    BestEffort,
    /// It is refused.
    Restricted,
    /// It is refused, and so is every container that does not fit one NUMA node.
    SingleNumaNode,
}

/// Whether each container or each pod has a NUMA affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    #[default]
    Container,
    Pod,
}

/// Whether `max-allowable-numa-nodes` limits anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLimit {
    /// As in the kubelet, whose search takes twice as long with each node.
    Held,
    /// The option is read and checked, but the number of nodes is not limited: the search here is
    /// short with any number ([`Demand::best`](super::kubelet::Demand::best)).
    Lifted,
}

/// The lowest limit that the kubelet accepts, and its default.
const LOWEST_LIMIT: i64 = 8;

const CLOSEST: &str = "prefer-closest-numa-nodes";
const MAX_NODES: &str = "max-allowable-numa-nodes";

/// Why the topology manager's configuration is refused, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyManagerError {
    #[error("unknown Topology Manager Policy option: {0:?}")]
    UnknownOption(String),
    #[error("bad value for option {0:?}: {1}")]
    Value(String, NotABool),
    /// `max-allowable-numa-nodes` is not a number, or too large for Go's `int`.
    #[error(
        "unable to convert policy option to integer {MAX_NODES:?}: strconv.Atoi: parsing {0:?}: {1}"
    )]
    NotANumber(String, &'static str),
    #[error("the minimum value of {MAX_NODES:?} should not be less than {LOWEST_LIMIT}")]
    LimitTooLow,
    /// `prefer-closest-numa-nodes` needs distances, but the machine reports none.
    #[error("cannot discover NUMA topology: error getting NUMA distances from cadvisor")]
    NoDistances,
    /// The machine has more NUMA nodes than the limit, counting memory-only ones.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
    #[error("unknown policy: {0:?}")]
    UnknownPolicy(String),
    #[error("unknown scope: {0:?}")]
    UnknownScope(String),
}

impl TopologyManagerError {
    pub fn field(&self) -> &str {
        match self {
            TopologyManagerError::UnknownOption(name) | TopologyManagerError::Value(name, _) => {
                name
            }
            TopologyManagerError::NotANumber(..)
            | TopologyManagerError::LimitTooLow
            | TopologyManagerError::TooManyNodes(_) => MAX_NODES,
            TopologyManagerError::NoDistances => CLOSEST,
            TopologyManagerError::UnknownPolicy(_) => "topologyManagerPolicy",
            TopologyManagerError::UnknownScope(_) => "topologyManagerScope",
        }
    }
}

impl TopologyPolicy {
    /// Whether it refuses a container rather than give it more nodes than it needs.
    pub fn is_strict(self) -> bool {
        matches!(self, TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode)
    }

    pub const ALL: [TopologyPolicy; 4] = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TopologyPolicy::None => "none",
            TopologyPolicy::BestEffort => "best-effort",
            TopologyPolicy::Restricted => "restricted",
            TopologyPolicy::SingleNumaNode => "single-numa-node",
        }
    }
}

impl Scope {
    pub const ALL: [Scope; 2] = [Scope::Container, Scope::Pod];

    pub fn name(self) -> &'static str {
        match self {
            Scope::Container => "container",
            Scope::Pod => "pod",
        }
    }
}

impl Default for TopologyManager {
    fn default() -> TopologyManager {
        TopologyManager {
            policy: TopologyPolicy::default(),
            scope: Scope::default(),
            prefer_closest_numa_nodes: false,
            max_allowable_numa_nodes: LOWEST_LIMIT as usize,
        }
    }
}

impl fmt::Display for TopologyManager {
    /// Policy, scope and options in the configuration's own words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topologyManagerPolicy {}", self.policy.name())?;
        if self.policy == TopologyPolicy::None {
            return Ok(());
        }
        write!(f, " (scope {}, {})", self.scope.name(), self.options())
    }
}

impl TopologyManager {
    pub const OPTIONS: &'static [&'static str] = &[CLOSEST, MAX_NODES];

    /// The options that are on and change decisions, by their names.
    pub fn options(&self) -> &'static str {
        if self.prefer_closest_numa_nodes { CLOSEST } else { "no options" }
    }

    /// The `topologyManagerPolicyOptions` that differ from the defaults: names and values.
    pub fn changed_options(&self) -> impl Iterator<Item = (&'static str, String)> {
        let default = TopologyManager::default();
        let closest = self.prefer_closest_numa_nodes.then(|| (CLOSEST, "true".to_owned()));
        let limit = self.max_allowable_numa_nodes;
        let limit =
            (limit != default.max_allowable_numa_nodes).then(|| (MAX_NODES, limit.to_string()));
        closest.into_iter().chain(limit)
    }

    /// Reads `topologyManagerPolicy`, `topologyManagerScope` and `topologyManagerPolicyOptions`.
    ///
    /// With policy `none` it ignores the rest, as the kubelet does.
    pub fn parse<'a>(
        policy: &str,
        scope: &str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
        topology: &Topology,
        limit: NodeLimit,
    ) -> Result<TopologyManager, TopologyManagerError> {
        if policy == "none" {
            return Ok(TopologyManager::default());
        }
        let mut parsed = TopologyManager::parse_options(options)?;
        let nodes = topology.nodes();
        let unknown = nodes.iter().any(|node| node.distances.is_empty());
        if parsed.prefer_closest_numa_nodes && unknown {
            return Err(TopologyManagerError::NoDistances);
        }
        if limit == NodeLimit::Held && nodes.len() > parsed.max_allowable_numa_nodes {
            return Err(TopologyManagerError::TooManyNodes(parsed.max_allowable_numa_nodes));
        }
        parsed.policy = match policy {
            "best-effort" => TopologyPolicy::BestEffort,
            "restricted" => TopologyPolicy::Restricted,
            "single-numa-node" => TopologyPolicy::SingleNumaNode,
            _ => return Err(TopologyManagerError::UnknownPolicy(policy.to_owned())),
        };
        parsed.scope = match scope {
            "container" => Scope::Container,
            "pod" => Scope::Pod,
            _ => return Err(TopologyManagerError::UnknownScope(scope.to_owned())),
        };
        Ok(parsed)
    }

    /// Reads only `topologyManagerPolicyOptions`; policy and scope are the defaults.
    pub fn parse_options<'a>(
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<TopologyManager, TopologyManagerError> {
        let mut parsed = TopologyManager::default();
        for (name, value) in options {
            parsed.set(name, value)?;
        }
        Ok(parsed)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), TopologyManagerError> {
        match name {
            CLOSEST => {
                self.prefer_closest_numa_nodes = parse_bool(value)
                    .map_err(|error| TopologyManagerError::Value(name.to_owned(), error))?;
            }
            MAX_NODES => {
                let number = parse_int(value)
                    .map_err(|why| TopologyManagerError::NotANumber(value.to_owned(), why))?;
                if number < LOWEST_LIMIT {
                    return Err(TopologyManagerError::LimitTooLow);
                }
                self.max_allowable_numa_nodes = number as usize;
            }
            _ => return Err(TopologyManagerError::UnknownOption(name.to_owned())),
        }
        Ok(())
    }
}

/// Reads a decimal number as Go does, with Go's error text.
fn parse_int(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
            "value out of range"
        }
        _ => "invalid syntax",
    })
}
