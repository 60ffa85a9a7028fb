//! [`Rejection`]: why a container may not run, in the kubelet's words.

use super::cores::CoreSizes;
use super::memory_manager::Shortage;
use std::fmt;
use topology::Topology;

/// Why a container is refused. `kubectl describe pod` shows the reason, then the message, then the
/// memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub reason: Reason,
    /// The kubelet's words where it has some: operators search for them.
    pub message: String,
    /// Set if the request would be admitted without its memory. Boxed, as few rejections have it.
    pub memory: Option<Box<Shortage>>,
}

impl std::error::Error for Rejection {}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)?;
        match &self.memory {
            Some(shortage) => write!(f, "; {shortage}"),
            None => Ok(()),
        }
    }
}

/// The kubelet's reasons that concern CPUs, and reasons of pod options, which the kubelet does not
/// have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The topology manager's policy does not admit the best NUMA affinity.
    TopologyAffinity,
    /// Whole cores cannot meet a request that needs them, for example with `full-pcpus-only`.
    SmtAlignment,
    /// Too few CPUs are free, although the scheduler counted on them.
    UnexpectedAdmission,
    /// The containers with exclusive CPUs of a pod with its own pool leave none of the pod's CPUs
    /// to its other containers (KEP-5526).
    EmptyPodSharedPool,
    /// With `uncore: require`, the fewest uncore caches that could hold the CPUs on this machine
    /// have too few free CPUs. With `uncore: exclusive`, too few caches are entirely free.
    UncoreAlignment,
    /// With `isolatedCPUs: require`, too few of the isolated CPUs are free.
    IsolatedCpus,
    /// The namespace of the pod may not use this pod option.
    PodOptionNotAllowed,
    PodOptionUnknown,
    /// The pod option contradicts the rest of the pod's request.
    PodOptionUnmet,
}

impl Reason {
    pub const ALL: [Reason; 9] = [
        Reason::TopologyAffinity,
        Reason::SmtAlignment,
        Reason::UnexpectedAdmission,
        Reason::EmptyPodSharedPool,
        Reason::UncoreAlignment,
        Reason::IsolatedCpus,
        Reason::PodOptionNotAllowed,
        Reason::PodOptionUnknown,
        Reason::PodOptionUnmet,
    ];

    /// The kubelet's name of the reason, or a name in the same form.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TopologyAffinity => "TopologyAffinityError",
            Reason::SmtAlignment => "SMTAlignmentError",
            Reason::UnexpectedAdmission => "UnexpectedAdmissionError",
            Reason::EmptyPodSharedPool => "EmptyPodSharedPoolError",
            Reason::UncoreAlignment => "UncoreAlignmentError",
            Reason::IsolatedCpus => "IsolatedCPUsError",
            Reason::PodOptionNotAllowed => "PodOptionNotAllowedError",
            Reason::PodOptionUnknown => "PodOptionUnknownError",
            Reason::PodOptionUnmet => "PodOptionUnmetError",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Rejection {
    pub fn new(reason: Reason, message: String) -> Rejection {
        Rejection { reason, message, memory: None }
    }

    pub fn topology_affinity() -> Rejection {
        let message = "Resources cannot be allocated with Topology locality".to_owned();
        Rejection::new(Reason::TopologyAffinity, message)
    }

    /// The whole cores that the container could get, `cores`, do not add up to the request; `fits` are
    /// the nearest numbers that would be granted. The words are the kubelet's where all cores of the
    /// machine have one size.
    pub(crate) fn whole_cores(
        machine: &Topology,
        requested: usize,
        cores: &CoreSizes,
        fits: &[usize],
    ) -> Rejection {
        let per_core = machine.threads_per_core();
        let why = if !machine.cores_are_equal() {
            let fits: Vec<String> = fits.iter().map(ToString::to_string).collect();
            let fits = if fits.is_empty() { "none".to_owned() } else { fits.join(" or ") };
            format!(
                "requested {requested} cpus are no sum of whole cores: free = {cores}; would fit now: {fits}"
            )
        } else if requested.is_multiple_of(per_core) {
            let free = cores.total();
            format!(
                "not enough free physical CPUs: available physical CPUs = {free}, requested CPUs = {requested}, CPUs per core = {per_core}"
            )
        } else {
            format!("requested {requested} cpus not multiple cpus per core = {per_core}")
        };
        Rejection::new(Reason::SmtAlignment, format!("SMT Alignment Error: {why}"))
    }

    /// This rejection of a container that holds `held` CPUs and asked for another number.
    pub(crate) fn of_resize(mut self, requested: usize, held: usize) -> Rejection {
        self.message += &format!(" ({requested} requested, {held} held)");
        self
    }

    pub fn empty_pod_shared_pool() -> Rejection {
        let message = "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers".to_owned();
        Rejection::new(Reason::EmptyPodSharedPool, message)
    }

    /// Fewer cores are entirely free than CPUs requested, each of which needs a separate core.
    pub fn not_enough_idle_cores(requested: usize, free: usize) -> Rejection {
        let message = format!(
            "SMT Alignment Error: smt: isolate takes a whole core for each CPU: requested {requested} cpus, free whole cores = {free}"
        );
        Rejection::new(Reason::SmtAlignment, message)
    }

    /// Fewer isolated CPUs are free than requested. `all` is the machine's number of isolated CPUs
    /// that are not reserved.
    pub fn not_enough_isolated(requested: usize, free: usize, all: usize) -> Rejection {
        let advice = if requested <= all {
            "wait until other containers leave some"
        } else {
            "request fewer, boot the node with more (isolcpus=), or do not require them"
        };
        let message = format!(
            "Isolated CPUs Error: isolated cpus required: requested {requested} cpus, free isolated cpus = {free}, isolated cpus of the node = {all}; {advice}"
        );
        Rejection::new(Reason::IsolatedCpus, message)
    }

    /// The `fewest` uncore caches with the most free CPUs have only `free`, less than requested.
    pub fn uncore_alignment(requested: usize, fewest: usize, free: usize) -> Rejection {
        let caches = if fewest == 1 { "cache" } else { "caches" };
        let message = format!(
            "Uncore Alignment Error: requested {requested} cpus must be in {fewest} uncore {caches}, as few as can be on this machine; at most {free} are free in so few"
        );
        Rejection::new(Reason::UncoreAlignment, message)
    }

    /// The `free` uncore caches that are entirely free, or the container's already, have too few
    /// usable CPUs: `cpus`. The container can never get the `blocked` caches, which have reserved
    /// CPUs.
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
            "Uncore Alignment Error: whole uncore caches required: requested {requested} cpus, free whole caches = {free}, usable cpus in them = {cpus}{never}; request fewer cpus, or wait until other containers leave a cache"
        );
        Rejection::new(Reason::UncoreAlignment, message)
    }
}

/// Fewer CPUs are free than requested. No CPU was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough cpus available to satisfy request: requested={requested}, available={available}"
)]
pub struct NotEnough {
    pub requested: usize,
    pub available: usize,
}

impl From<NotEnough> for Rejection {
    fn from(error: NotEnough) -> Rejection {
        let message = format!("Allocate failed due to {error}, which is unexpected");
        Rejection::new(Reason::UnexpectedAdmission, message)
    }
}
