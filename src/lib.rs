//! nri-cpu-manager: the kubelet's CPU Manager and Topology Manager as an NRI plugin.
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod cpuset;
pub mod daemon;
pub mod enforce;
pub mod kubelet;
pub mod ledger;
pub mod nodeset;
pub mod nri;
pub mod observe;
pub mod pattern;
pub mod placement;
pub mod simulate;
pub mod snapshot;
pub mod spelling;
pub mod topology;
