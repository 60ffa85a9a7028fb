//! The plugin on a node, however it got there: one way to start it, to end it, to configure it and
//! to hear it.
//!
//! | by | what |
//! |---|---|
//! | [`DaemonPod`](crate::daemonset::DaemonPod) | what ships, as it ships: the pod of the manifests. The usual one |
//! | [`Bare`](crate::bare::Bare) | the program alone, started by root with all capabilities |
//! | [`Launched`](crate::launched::Launched) | the program, started by the runtime out of its own directories |

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::node::Node;
use crate::plugin::Word;

/// How long it may take to take over a node, on emulated CPUs too.
const READY: Duration = Duration::from_secs(60);

/// A plugin that was put on a node. It runs, unless it was ended.
pub trait Instance: Debug {
    /// Starts it again once it was ended, with the memory it has. Does not wait for what it does.
    ///
    /// # Errors
    /// When it cannot be started.
    fn start(&mut self, node: &mut Node) -> Result<()>;

    /// Ends its process: SIGKILL as a crash does, SIGTERM as an orderly stop does.
    ///
    /// # Errors
    /// When it does not end, or had to be killed though it was asked to end.
    fn end(&mut self, node: &mut Node, signal: Signal) -> Result<()>;

    /// Changes its configuration while it runs, or before it is started again.
    ///
    /// # Errors
    /// When the configuration cannot be written.
    fn configure(&mut self, config: &str) -> Result<()>;

    /// Ends it in order, if it runs, and takes away what was installed of it.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    fn remove(&mut self, node: &mut Node) -> Result<()>;

    /// How its process has ended, if it has.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn ended(&mut self, node: &Node) -> Result<Option<String>>;

    /// Its process.
    ///
    /// # Errors
    /// When it does not run, or its process is not known.
    fn pid(&self) -> Result<u32>;

    /// What it says since its last start.
    fn word(&self) -> &Word;

    /// What it has logged since it was installed, over all its starts.
    fn log(&self) -> String;

    /// Waits until it has said `text` at least `count` times since its last start.
    ///
    /// # Errors
    /// When it ends before, or does not say so in time.
    fn wait_for(
        &mut self,
        node: &Node,
        text: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Duration> {
        let word = self.word().clone();
        word.wait_for(text, count, patience, || self.ended(node))
    }

    /// Waits until it has taken over the node since its last start.
    ///
    /// # Errors
    /// When it ends before, or does not do so in time.
    fn wait_until_ready(&mut self, node: &Node) -> Result<()> {
        self.wait_for_synchronisation(node, 1, READY).map(|_| ())
    }

    /// Waits until it has synchronised with the runtime `count` times since its last start. One
    /// that the runtime launches anew has done so before the runtime is ready.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    fn wait_for_synchronisation(
        &mut self,
        node: &Node,
        count: usize,
        patience: Duration,
    ) -> Result<Duration> {
        let word = self.word().clone();
        word.wait_for_synchronisation(count, patience, || self.ended(node))
    }
}
