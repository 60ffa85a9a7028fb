//! nri-cpu-manager: the kubelet's CPU Manager and Topology Manager as an NRI plugin.
pub mod checkpoint;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod disk;
pub mod edge;
pub mod exclusivity;
pub mod exposed;
mod files;
pub mod kubelet;
mod machine_file;
mod pod_resources;
pub mod serve;
pub mod verify;
pub mod view;
pub mod worker;
