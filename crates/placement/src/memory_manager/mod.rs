//! Memory and huge pages counted by NUMA node (KEP-1769, the kubelet's Memory Manager).
//!
//! A [`NodeMemoryClaim`] says how much of each type a container may use and on which nodes, its
//! `cpuset.mems`. [`Room`] says what claims leave, and is computed from them each time: there are no
//! books beside the claims that could differ from them.
//!
//! The kernel takes the pages of a claim of several nodes from whichever of them it likes. So claims
//! are legal together if they *could* be divided among their nodes without more than any node has:
//! for every set of nodes, the claims within it are no more than it has (Hall's condition). The
//! kubelet is stricter: a node belongs to one claim's set, or to claims of that node alone, never to
//! both. [`Sharing`] names the two rules; placement looks first for a set that the strict one
//! allows, because with it no container's pages can be where another one's have to be.

mod allocate;
mod amounts;
mod capacity;
mod offer;
mod place;
mod reservation;
mod room;
mod shortage;

pub use allocate::NoMemory;
pub use amounts::{Amounts, MemoryKind, amount};
pub use capacity::{Capacity, CapacityError, MAX_MEMORY_NODES, NodeMemory};
pub use offer::{MAX_OFFERED_NODES, MemoryOffer};
pub use place::{MemoryRequest, PodMemory, place_memory, place_with_memory};
pub use reservation::{
    LimitError, MemoryConfigError, MemoryManagerConfig, MemoryReservation, WrittenAmount,
};
pub use room::{NodeMemoryClaim, Room, Sharing};
pub use shortage::Shortage;
