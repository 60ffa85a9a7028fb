//! [`Strategy`]: how the CPUs of one allocation are chosen.

/// How the CPUs of one allocation are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// As few sockets, NUMA nodes and cores as possible, the most used ones first (KEP-3570, the
    /// default).
    Packed {
        /// Whether whole uncore caches, then one that can hold the rest, come before whole cores,
        /// and which caches come first (KEP-4800, policy option
        /// `prefer-align-cpus-by-uncorecache`).
        uncore: Option<UncoreOrder>,
    },
    /// CPUs by number inside the most used socket, whole cores never preferred (policy option
    /// `distribute-cpus-across-cores`).
    Spread,
    /// As few NUMA nodes as can do it, the same share from each (policy option
    /// `distribute-cpus-across-numa`).
    AcrossNuma {
        /// CPUs that are given together: 1, or the CPUs of a core with `full-pcpus-only`. A request
        /// that is no multiple of it is packed.
        group: usize,
    },
}

/// The order in which uncore caches are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UncoreOrder {
    /// Caches of the most used NUMA node first, in it those with the fewest free CPUs: what the
    /// kubelet's code does.
    #[default]
    FewestFree,
    /// Caches by their number: what KEP-4800 says.
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
