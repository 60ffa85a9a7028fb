//! nri-cpu-manager: the kubelet's CPU Manager and Topology Manager as an NRI plugin.
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod cpuset;
pub mod daemon;

pub mod exclusivity;
pub mod kubelet;
pub mod ledger;
pub mod nodeset;
pub mod nri;
pub mod observe;
mod partition;
mod pattern;
pub mod placement;
mod quantity;
pub mod simulate;
mod snapshot;
pub mod topology;
pub mod verify;
pub mod wording;
