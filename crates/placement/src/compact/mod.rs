//! `Compact`: the engine that places every container on the fewest NUMA nodes with room, of these on
//! the fewest sockets and the nearest ones, and in the fewest uncore caches. Of equally good CPUs it
//! takes those that leave the most to later containers.
//!
//! ```text
//! request ── attempts ── usable CPUs by core, cell and node ── sets of nodes ── caches in them ── cores
//!            (place)     (view, capacity)                      (affinity, sets)  (search, sums)    (view)
//! ```
//!
//! It counts by *cell*: the CPUs with the same NUMA node, uncore cache and socket ([`Cells`]). The
//! [`cost`] of a choice is compared field by field, so a node is never traded for a cache. Unlike the
//! kubelet's algorithm, it compares all nodes and caches before it takes a CPU, without any option.
//!
//! [`Cells`]: topology::Cells

mod affinity;
mod capacity;
mod cost;
mod explain;
mod place;
mod resize;
mod search;
mod sets;
mod sums;
mod view;

pub(super) use capacity::{cores, fewest_caches, fewest_nodes};
pub(super) use resize::{complete, grow, shrink};
pub(super) use view::Cores;

use super::engine::{Engine, Placement, Weighed};
use super::rejection::Rejection;
use super::request::Request;
use topology::Topology;

pub(super) struct Compact;

impl Engine for Compact {
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
        place::place(machine, request)
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

#[cfg(test)]
mod tests;
