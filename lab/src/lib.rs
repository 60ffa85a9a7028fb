//! The lab: containerd on this host and on virtual machines, for the demo and tests of
//! nri-cpu-manager.
//!
//! | module | what |
//! |---|---|
//! | [`command`], `files`, [`kernel`], [`process`], [`cache`] | programs, files, the kernel, processes; `target/lab` |
//! | [`debian`], [`binaries`], [`images`] | Debian's packages, the static programs, container images |
//! | [`containerd`], [`plugin`] | the two programs under test, as processes |
//! | [`cri`], [`pod`], [`cgroup`], [`kubelet`] | what a kubelet does |
//! | [`manifests`], [`daemonset`] | the plugin as installed: `manifests/` rendered, and run as a pod from its image |
//! | [`bare`], [`launched`], [`instance`] | the plugin as a plain process, or launched by the runtime; the interface of all |
//! | [`node`], [`busy`], [`memory`] | a runtime with pods; busy processes; where memory is |
//! | [`devices`], [`interrupts`] | devices with load, and what their interrupts do |
//! | [`testbed`], [`invariants`] | what is done on a node, and what must be true of it at any time |
//! | [`view`], [`hardware`], [`overlap`], [`cgroup_snapshot`] | the state of a node, of its hardware and cgroups |
//! | [`scenario`], [`picture`] | what is shown on machines; a node drawn for people |
//! | [`suite`] | scenarios on machines |
//! | [`demo`], [`shell`], [`chaos`], [`latency`], [`foreign`], [`cgroup_model`] | subcommands |
//! | [`host`], [`vm`], [`guest`], [`job`], [`task`] | a node on this machine or in a virtual machine, and what host and guest exchange |
pub mod bare;
pub mod binaries;
pub mod busy;
pub mod cache;
pub mod cgroup;
pub mod cgroup_model;
pub mod cgroup_snapshot;
pub mod chaos;
pub mod command;
pub mod containerd;
pub mod cri;
pub mod daemonset;
pub mod debian;
pub mod demo;
pub mod devices;
mod files;
pub mod foreign;
pub mod guest;
pub mod hardware;
pub mod host;
pub mod images;
pub mod instance;
pub mod interrupts;
pub mod invariants;
pub mod job;
pub mod kernel;
pub mod kubelet;
pub mod latency;
pub mod launched;
pub mod manifests;
pub mod memory;
pub mod node;
pub mod overlap;
pub mod picture;
pub mod plugin;
pub mod pod;
pub mod process;
pub mod scenario;
pub mod shell;
pub mod suite;
pub mod tap;
pub mod task;
pub mod testbed;
pub mod view;
pub mod vm;

/// Fetches and builds what VMs and containers need: programs, packages and images.
pub fn prepare() -> anyhow::Result<()> {
    host::prepare()?;
    vm::prepare()
}
