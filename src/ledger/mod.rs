//! Who holds which CPUs: pods, containers, the shared pool.
//!
//! Events go in, decisions come out. The ledger does no I/O, has no clock, and does not know which protocol its events
//! came by.

pub mod event;
pub mod model;

pub use event::{Decision, Event, Pin, Update, Wanted};
pub use model::{
    Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Pod, PodUid, Qos, SandboxId,
};
