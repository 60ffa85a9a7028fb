//! nri-cpu-manager: the kubelet's CPU Manager and Topology Manager as an NRI plugin.
pub mod cpuset;
pub mod ledger;
pub mod nri;
pub mod topology;
