//! The podresources socket: a real daemon, a fake kubelet, and clients of every kind.

mod answers;
mod client;
mod clients;
mod devices;
mod kubelet;
mod limits;
mod messages;
mod policy;
mod states;

use crate::support::observed::{CONFIG, ObservedDaemon};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A daemon with a socket for clients, and a path for a kubelet's socket.
struct Node {
    daemon: ObservedDaemon,
    dir: tempfile::TempDir,
}

impl Node {
    async fn start() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "");
        let node = Node { daemon: ObservedDaemon::following(&config).await, dir };
        node.listening().await;
        node
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("pod-resources/kubelet.sock")
    }

    fn kubelet(&self) -> PathBuf {
        self.dir.path().join("kubelet.sock")
    }

    async fn listening(&self) {
        until(|| self.socket().exists()).await;
    }
}

fn config(dir: &Path, more: &str) -> String {
    let dir = dir.display();
    let sockets = format!("{{listen: {dir}/pod-resources, kubelet: {dir}/kubelet.sock}}");
    format!("{CONFIG}podResources: {sockets}\n{more}")
}

async fn until(holds: impl Fn() -> bool) {
    for _ in 0..100 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen within five seconds");
}
