//! [`Rejection`]: why a container may not run, in the kubelet's words.

use super::take::NotEnough;
use std::fmt;

/// Why a container is refused. What `kubectl describe pod` shows is its text: the reason, then the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Rejection {
    /// What kind of refusal it is.
    pub reason: Reason,
    /// What is wrong in particular.
    pub message: String,
}

/// The kubelet's kinds of refusal that concern CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The topology manager's policy does not admit the best NUMA affinity there is.
    TopologyAffinity,
    /// With `full-pcpus-only`, the request cannot be met with whole cores.
    SmtAlignment,
    /// CPUs were expected to be free and are not.
    UnexpectedAdmission,
    /// The pod's containers without exclusive CPUs would be left with none.
    EmptyPodSharedPool,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 4] = [
        Reason::TopologyAffinity,
        Reason::SmtAlignment,
        Reason::UnexpectedAdmission,
        Reason::EmptyPodSharedPool,
    ];

    /// The kubelet's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TopologyAffinity => "TopologyAffinityError",
            Reason::SmtAlignment => "SMTAlignmentError",
            Reason::UnexpectedAdmission => "UnexpectedAdmissionError",
            Reason::EmptyPodSharedPool => "EmptyPodSharedPoolError",
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
}

impl From<NotEnough> for Rejection {
    fn from(error: NotEnough) -> Rejection {
        let message = format!("Allocate failed due to {error}, which is unexpected");
        Rejection { reason: Reason::UnexpectedAdmission, message }
    }
}
