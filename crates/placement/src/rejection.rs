//! [`Rejection`]: why a container may not run, in the kubelet's words.

use std::fmt;

/// Why a container is refused. What `kubectl describe pod` shows is its text: the reason, then the
/// message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Rejection {
    pub reason: Reason,
    pub message: String,
}

/// The kubelet's kinds of refusal that concern CPUs, and those of wishes that the kubelet does not
/// know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The topology manager's policy does not admit the best NUMA affinity there is.
    TopologyAffinity,
    /// With `full-pcpus-only`, the request cannot be met with whole cores.
    SmtAlignment,
    /// CPUs should have been free and are not.
    UnexpectedAdmission,
    /// With `uncore: require`, the CPUs cannot be in as few uncore caches as possible on this
    /// machine; with `uncore: exclusive`, too few caches are free as a whole.
    UncoreAlignment,
    /// With `isolatedCPUs: require`, too few of the isolated CPUs are free.
    IsolatedCpus,
    /// The pod wishes for something that its namespace may not.
    WishNotAllowed,
    /// The pod wishes for something unknown.
    WishUnknown,
    /// The pod wishes for something that contradicts the rest of its request.
    WishUnmet,
}

impl Reason {
    pub const ALL: [Reason; 8] = [
        Reason::TopologyAffinity,
        Reason::SmtAlignment,
        Reason::UnexpectedAdmission,
        Reason::UncoreAlignment,
        Reason::IsolatedCpus,
        Reason::WishNotAllowed,
        Reason::WishUnknown,
        Reason::WishUnmet,
    ];

    /// The kubelet's name of it, or one like them.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TopologyAffinity => "TopologyAffinityError",
            Reason::SmtAlignment => "SMTAlignmentError",
            Reason::UnexpectedAdmission => "UnexpectedAdmissionError",
            Reason::UncoreAlignment => "UncoreAlignmentError",
            Reason::IsolatedCpus => "IsolatedCPUsError",
            Reason::WishNotAllowed => "WishNotAllowedError",
            Reason::WishUnknown => "WishUnknownError",
            Reason::WishUnmet => "WishUnmetError",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Rejection {
    /// The best NUMA affinity is not good enough.
    pub fn topology_affinity() -> Rejection {
        let message = "Resources cannot be allocated with Topology locality".to_owned();
        Rejection { reason: Reason::TopologyAffinity, message }
    }

    /// The request is no multiple of a core's CPUs.
    pub fn partial_core(requested: usize, per_core: usize) -> Rejection {
        let message = format!(
            "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
        );
        Rejection { reason: Reason::SmtAlignment, message }
    }

    /// Fewer CPUs are free on cores without reserved ones than requested.
    pub fn not_enough_whole_cores(requested: usize, per_core: usize, free: usize) -> Rejection {
        let message = format!(
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, requested CPUs = {requested}, CPUs per core = {per_core}"
        );
        Rejection { reason: Reason::SmtAlignment, message }
    }

    /// Fewer cores are free as a whole than CPUs are requested, of which each is to have a core of
    /// its own.
    pub fn not_enough_idle_cores(requested: usize, free: usize) -> Rejection {
        let message = format!(
            "SMT Alignment Error: smt: isolate takes a whole core for each CPU: requested {requested} cpus, free whole cores = {free}"
        );
        Rejection { reason: Reason::SmtAlignment, message }
    }

    /// The machine's cores are of unequal sizes, and those that are free do not add up to the
    /// request.
    pub fn cores_of_other_sizes(requested: usize) -> Rejection {
        let message = format!(
            "SMT Alignment Error: requested {requested} cpus are no number of whole cores of those that are free"
        );
        Rejection { reason: Reason::SmtAlignment, message }
    }

    /// Fewer isolated CPUs are free than requested; the machine has `all` that are not reserved.
    pub fn not_enough_isolated(requested: usize, free: usize, all: usize) -> Rejection {
        let advice = if requested <= all {
            "wait until other containers leave some"
        } else {
            "request fewer, boot the node with more (isolcpus=), or do not require them"
        };
        let message = format!(
            "Isolated CPUs Error: isolated cpus required: requested {requested} cpus, free isolated cpus = {free}, isolated cpus of the node = {all}; {advice}"
        );
        Rejection { reason: Reason::IsolatedCpus, message }
    }

    /// The uncore caches with the most room, no more than `fewest`, have too little.
    pub fn uncore_alignment(requested: usize, fewest: usize, free: usize) -> Rejection {
        let caches = if fewest == 1 { "cache" } else { "caches" };
        let message = format!(
            "Uncore Alignment Error: requested {requested} cpus must be in {fewest} uncore {caches}, as few as can be on this machine; at most {free} are free in so few"
        );
        Rejection { reason: Reason::UncoreAlignment, message }
    }

    /// The uncore caches that are free as a whole, or the container's own, have too few CPUs that it
    /// can use. `blocked` caches have reserved CPUs.
    pub fn not_enough_whole_caches(
        requested: usize,
        free: usize,
        cpus: usize,
        blocked: usize,
    ) -> Rejection {
        let never = match blocked {
            0 => String::new(),
            1 => ", 1 cache has reserved cpus and cannot be taken".to_owned(),
            _ => format!(", {blocked} caches have reserved cpus and cannot be taken"),
        };
        let message = format!(
            "Uncore Alignment Error: whole uncore caches wanted: requested {requested} cpus, free whole caches = {free}, usable cpus in them = {cpus}{never}; request fewer cpus, or wait until other containers leave a cache"
        );
        Rejection { reason: Reason::UncoreAlignment, message }
    }
}

/// Fewer CPUs are free than requested. Nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough cpus available to satisfy request: requested={requested}, available={available}"
)]
pub struct NotEnough {
    pub requested: usize,
    /// The number of CPUs that could have been taken.
    pub available: usize,
}

impl From<NotEnough> for Rejection {
    fn from(error: NotEnough) -> Rejection {
        let message = format!("Allocate failed due to {error}, which is unexpected");
        Rejection { reason: Reason::UnexpectedAdmission, message }
    }
}
