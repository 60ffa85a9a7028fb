//! Answers as the kubelet's podresources do (gRPC `v1.PodResourcesLister`), with the exclusive CPUs
//! that the plugin assigned: the kubelet, whose CPU manager is off, knows none.
//!
//! ```text
//! client ── authority ── server ──► kubelet's answer + NodeView ── answer ──► client
//! ```
//!
//! Everything of the kubelet's answer but `cpu_ids` reaches the client byte for byte, so that
//! devices, memory and fields of later versions need no knowledge here. The service changes
//! nothing, and no event waits for a client: the data come from the view that the owner of the
//! ledger makes when no event waits.

pub mod answer;
mod authority;
mod connections;
mod grpc;
mod known;
mod kubelet;
mod kubelet_configuration;
mod server;
mod service;
mod socket;
mod wire;

pub use authority::Readable;
pub use server::{PolicyFile, start};
pub use wire::Malformed;
