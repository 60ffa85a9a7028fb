//! The lab: real containerd and virtual many-cache servers, for nri-cpu-manager's demo and tests.
//!
//! | module | what |
//! |---|---|
//! | [`command`], [`process`], [`cache`] | running programs, looking at processes, what is kept in `target/lab` |
//! | [`debian`], [`binaries`], [`image`] | Debian's packages, the static programs, the containers' image |
//! | [`containerd`], [`plugin`] | the two programs under test, as processes |
//! | [`cri`], [`pod`], [`cgroup`], [`kubelet`] | the lab in the kubelet's place |
//! | [`manifests`], [`daemonset`] | the plugin as it is installed: `manifests/` composed, and run as a pod from its image |
//! | [`bare`], [`launched`], [`instance`] | the plugin as a program alone, or launched by the runtime; what all ways have in common |
//! | [`node`], [`busy`] | a runtime with pods; processes that never rest |
//! | [`step`], [`player`] | what happens on a node, as data, and what carries it out |
//! | [`view`], [`hardware`], [`overlap`], [`cgroup_snapshot`] | what a node looks like then and meanwhile; what all its cgroups say |
//! | [`scenario`], [`picture`] | the scripts of demo and tests, and a node drawn for people |
//! | [`suite`] | every scenario on every machine, and the table of it |
//! | [`shell`] | a prompt on a virtual server |
//! | [`demo`], [`measure`], [`chaos`], [`latency`], [`cgroup_model`] | the command's subcommands |
//! | [`host`], [`vm`], [`guest`] | such a node on this machine, and in a virtual server |
//! | [`software`], [`job`] | what runs on a server, and what host and guest tell each other |
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
mod files;
pub mod guest;
pub mod hardware;
pub mod host;
pub mod image;
pub mod instance;
pub mod job;
pub mod kernel;
pub mod kubelet;
pub mod latency;
pub mod launched;
pub mod manifests;
pub mod measure;
pub mod node;
pub mod overlap;
pub mod picture;
pub mod player;
pub mod plugin;
pub mod pod;
pub mod process;
pub mod scenario;
pub mod shell;
pub mod step;
pub mod suite;
pub mod view;
pub mod vm;

/// Fetches and makes what servers and containers need: programs, packages, and the images that
/// guests boot from.
pub fn prepare() -> anyhow::Result<()> {
    host::prepare()?;
    vm::prepare()
}
