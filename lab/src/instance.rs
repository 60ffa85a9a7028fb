//! The plugin on a node, with one interface for all ways to run it.
//!
//! | implementation | the plugin is |
//! |---|---|
//! | [`DaemonPod`](crate::daemonset::DaemonPod) | the pod of the manifests, as shipped: the usual one |
//! | [`Bare`](crate::bare::Bare) | a plain process with full root privileges |
//! | [`Launched`](crate::launched::Launched) | launched by the runtime from its plugin directory |

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::node::Node;
use crate::plugin::{PluginFiles, READY};

/// Includes the time on emulated CPUs.
const SYNCHRONISED: Duration = Duration::from_secs(60);

/// A plugin that was put on a node. It runs, unless it was ended.
pub trait Instance: Debug {
    /// Starts it again after it ended, with its state kept. Does not wait until it is ready.
    fn start(&mut self, node: &mut Node) -> Result<()>;

    /// SIGKILL like a crash, SIGTERM like an orderly stop, which must not end in a kill.
    fn end(&mut self, node: &mut Node, signal: Signal) -> Result<()>;

    /// Takes effect at once or at the next start, depending on the kind.
    fn configure(&mut self, config: &str) -> Result<()>;

    /// Ends it with SIGTERM if it runs, and removes what was installed.
    fn remove(&mut self, node: &mut Node) -> Result<()>;

    fn ended(&mut self, node: &Node) -> Result<Option<String>>;

    fn pid(&self) -> Result<u32>;

    /// Log and state since the last start.
    fn files(&self) -> &PluginFiles;

    /// The log over all starts since it was installed.
    fn log(&self) -> String;

    /// Waits until the log since the last start has `text` at least `count` times.
    fn wait_for(
        &mut self,
        node: &Node,
        text: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Duration> {
        let files = self.files().clone();
        files.wait_for(text, count, patience, || self.ended(node))
    }

    /// Waits until it has synchronised since the last start.
    fn wait_until_ready(&mut self, node: &Node) -> Result<()> {
        self.wait_for_synchronisation(node, 1, SYNCHRONISED).map(|_| ())
    }

    /// Waits until it has synchronised with the runtime `count` times since its last start. A
    /// launched plugin has done so before the runtime is ready.
    fn wait_for_synchronisation(
        &mut self,
        node: &Node,
        count: usize,
        patience: Duration,
    ) -> Result<Duration> {
        self.wait_for(node, READY, count, patience)
    }
}
