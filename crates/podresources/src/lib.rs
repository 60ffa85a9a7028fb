//! The kubelet's podresources API (gRPC `v1.PodResourcesLister`) with the exclusive CPUs, and the memory
//! by NUMA node, that another program assigned: a kubelet whose managers are off knows none.
//!
//! ```text
//! client ── authority ── server ──► kubelet's answer + Known ── answer ──► client
//! ```
//!
//! Everything in the kubelet's answer except `cpu_ids`, and `memory` if the program counts it, reaches the
//! client byte for byte, so devices and fields of later versions need no code here. [`answer`] is pure:
//!
//! ```
//! use podresources::{Container, Known, Pod, answer};
//!
//! let main = Container { name: "main".into(), exclusive: Some("2-3".parse()?), memory: Vec::new() };
//! let db = Pod {
//!     namespace: "default".into(),
//!     name: "db".into(),
//!     runs: true,
//!     created_at: None,
//!     containers: vec![main],
//! };
//! let allocatable = "2-15".parse()?;
//! let known = Known { assigns: true, allocatable, allocatable_memory: None, pods: vec![db] };
//!
//! // The kubelet has the pod without CPUs: pod 1 { name 1, namespace 2, container 3 { name 1 } }.
//! let kubelet = b"\x0a\x15\x0a\x02db\x12\x07default\x1a\x06\x0a\x04main";
//! let list = answer::list(&known, kubelet)?;
//! assert_eq!(list, b"\x0a\x19\x0a\x02db\x12\x07default\x1a\x0a\x0a\x04main\x1a\x02\x02\x03");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`serve`] answers clients on a unix socket. For each call it asks the kubelet, then its [`Source`]:
//!
//! ```
//! use podresources::{Known, Sockets, Source, serve};
//! use tokio::runtime::Handle;
//!
//! struct Fixed(Known);
//!
//! impl Source for Fixed {
//!     async fn known(&self) -> Result<Known, String> {
//!         Ok(self.0.clone())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let sockets = Sockets {
//!     listen: directory.join("pod-resources/kubelet.sock"),
//!     kubelet: "/var/lib/kubelet/pod-resources/kubelet.sock".into(),
//! };
//! let server = tokio::spawn(serve(sockets.clone(), Fixed(Known::default()), Handle::current()));
//! # while !sockets.listen.exists() {
//! #     tokio::task::yield_now().await;
//! # }
//! tokio::net::UnixStream::connect(&sockets.listen).await?;
//! // The end of the server removes the socket.
//! server.abort();
//! # Ok(())
//! # }
//! ```
//!
//! [`Kubelet`] is a client: it asks the kubelet which containers have which [`devices`], and on which
//! NUMA nodes these are.
//!
//! Nothing here assigns CPUs or knows how they are assigned: it serves what the source says. Clients may
//! send anything, slowly or never: connections, streams, bytes and time are bounded.

pub mod answer;
mod authority;
mod connections;
pub mod devices;
mod grpc;
mod known;
mod kubelet;
mod server;
mod service;
mod socket;
mod wire;

pub use authority::Readable;
pub use known::{Container, ContainerMemory, Known, Pod, Source};
pub use kubelet::Kubelet;
pub use server::{Sockets, serve};
pub use wire::Malformed;
