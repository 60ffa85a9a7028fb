//! `Kubelet`: the engine that answers like the kubelet's static policy and topology manager.
//! Pod options, which these do not have, change as little as possible.
//!
//! ```text
//! request ── attempts ── best NUMA affinity ── admitted? ── whole cores? ── CPUs inside ── the rest
//!           (attempt)   (demand, best, merge)  (decide)     (allocate)       (packed, uncore,
//!                                                                           spread, distributed)
//! ```
//!
//! [`configuration`] has the checks that the kubelet makes when it starts.

mod allocate;
mod attempt;
mod balance;
mod best;
mod closest;
pub mod configuration;
mod demand;
mod devices;
mod distributed;
mod explain;
mod free;
mod merge;
mod order;
mod packed;
mod spread;
mod take;
mod uncore;
mod with_options;

pub use allocate::{Supply, affinity, allocate};
pub use demand::Demand;
pub(crate) use devices::affinity_without_cpus;
pub use merge::{Affinity, ResourceHints, merge};
pub use take::{take, take_cores};

use super::engine::{Engine, Placement, Weighed};
use super::rejection::Rejection;
use super::request::Request;
use topology::Topology;

pub(super) struct Kubelet;

impl Engine for Kubelet {
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
        attempt::place(machine, request)
    }

    fn explain(
        &self,
        machine: &Topology,
        request: &Request,
        placement: Option<&Placement>,
    ) -> Weighed {
        explain::explain(machine, request, placement)
    }
}
