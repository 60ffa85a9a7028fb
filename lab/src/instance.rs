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

/// Includes the time on emulated CPUs.
const READY: Duration = Duration::from_secs(60);

/// A plugin that was put on a node. It runs, unless it was ended.
pub trait Instance: Debug {
    /// Starts it again after it ended, with its state kept. Does not wait until it is ready.
    fn start(&mut self, node: &mut Node) -> Result<()>;

    /// Ends its process: SIGKILL as a crash does, SIGTERM as an orderly stop does.
    ///
    /// # Errors
    /// When it does not end, or had to be killed though it was asked to end.
    fn end(&mut self, node: &mut Node, signal: Signal) -> Result<()>;

    /// Takes effect at once or at the next start, depending on the kind.
    fn configure(&mut self, config: &str) -> Result<()>;

    /// Ends it with SIGTERM if it runs, and removes what was installed.
    fn remove(&mut self, node: &mut Node) -> Result<()>;

    fn ended(&mut self, node: &Node) -> Result<Option<String>>;

    fn pid(&self) -> Result<u32>;

    /// Log and state since the last start.
    fn word(&self) -> &Word;

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
        let word = self.word().clone();
        word.wait_for(text, count, patience, || self.ended(node))
    }

    /// Waits until it has synchronised since the last start.
    fn wait_until_ready(&mut self, node: &Node) -> Result<()> {
        self.wait_for_synchronisation(node, 1, READY).map(|_| ())
    }

    /// Waits until it has synchronised with the runtime `count` times since its last start. One
    /// that the runtime launches anew has done so before the runtime is ready.
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
