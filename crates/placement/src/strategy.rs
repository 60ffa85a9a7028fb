//! [`Strategy`]: which of the kubelet's algorithms chooses the CPUs of an allocation.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The fewest possible sockets, NUMA nodes and cores, the most used ones first (KEP-3570, the
    /// default).
    Packed {
        /// If set, whole uncore caches in this order, then one cache that can hold the rest, come
        /// before whole cores (KEP-4800, policy option `prefer-align-cpus-by-uncorecache`).
        uncore: Option<UncoreOrder>,
    },
    /// One CPU of each core of the most used socket, then another one of each (policy option
    /// `distribute-cpus-across-cores`).
    Spread,
    /// Equal shares from the fewest NUMA nodes that can give them (policy option
    /// `distribute-cpus-across-numa`).
    AcrossNuma(Distribution),
}

/// How CPUs are shared out over NUMA nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// The size of the units that are shared out: 1, or the CPUs of a core with `full-pcpus-only`.
    /// A request that is not a multiple of it is packed instead.
    pub group: usize,
    /// The number of nodes of the container's affinity: so many nodes give CPUs, or more. 0 without
    /// an affinity; ignored if so many nodes cannot give a unit each (kubernetes/kubernetes#139456).
    pub min_nodes: usize,
    /// Nodes of one socket come before any others of the same number, and a node may give less than
    /// its share (policy option `align-by-socket`, kubernetes/kubernetes#139778).
    pub align_by_socket: bool,
}

/// The order in which uncore caches are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UncoreOrder {
    /// Caches of the most used NUMA node first, and in a node those with the fewest free CPUs: the
    /// order of the kubelet's code.
    #[default]
    FewestFree,
    /// By number: the order of KEP-4800's text.
    Numerical,
}

impl UncoreOrder {
    pub const ALL: [UncoreOrder; 2] = [UncoreOrder::FewestFree, UncoreOrder::Numerical];

    /// The value of `uncoreCacheOrder` in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            UncoreOrder::FewestFree => "fewest-free",
            UncoreOrder::Numerical => "numerical",
        }
    }
}
