//! [`Connections`]: the open connections, with an upper bound.

use std::future::Future;
use std::net::IpAddr;
use tokio::task::AbortHandle;

/// Connections served at a time.
pub(crate) const MAX: usize = 32;
/// Connections of one peer.
pub(crate) const MAX_OF_PEER: usize = 8;

/// The connections of a listener, the oldest first. A new one is always served: if its peer has too many, the peer's
/// oldest connection ends; if all have, the oldest connection of the peer with the most. So neither idle connections nor
/// a client that opens new ones over and over keep a probe from its answer.
#[derive(Debug, Default)]
pub(super) struct Connections(Vec<(Option<IpAddr>, AbortHandle)>);

impl Connections {
    /// Serves a connection; all connections of `None` count as one peer.
    pub(super) fn add(
        &mut self,
        peer: Option<IpAddr>,
        serving: impl Future<Output = ()> + Send + 'static,
    ) {
        self.0.retain(|(_, task)| !task.is_finished());
        let of = |peer| self.0.iter().filter(|(other, _)| *other == peer).count();
        let oldest = if of(peer) >= MAX_OF_PEER {
            self.0.iter().position(|(other, _)| *other == peer)
        } else if self.0.len() >= MAX {
            // `max_by_key` takes the last of equals.
            (0..self.0.len()).rev().max_by_key(|&at| of(self.0[at].0))
        } else {
            None
        };
        if let Some(at) = oldest {
            self.0.remove(at).1.abort();
        }
        self.0.push((peer, tokio::spawn(serving).abort_handle()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use std::future::pending;
    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    /// Each letter is the peer of a connection that never ends by itself; `ended` are the numbers of
    /// the connections that were ended for others, in order.
    #[track_caller]
    fn check(peers: &str, ended: &[usize]) {
        let clock = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let aborted = clock.block_on(async {
            let mut connections = Connections::default();
            let (sender, mut receiver) = mpsc::unbounded_channel();
            for (number, peer) in peers.bytes().enumerate() {
                let guard = SendOnDrop(number, sender.clone());
                connections.add(Some(IpAddr::from([10, 0, 0, peer])), async {
                    let _guard = guard;
                    pending().await
                });
                yield_now().await;
                assert!(connections.0.len() <= MAX);
            }
            let mut aborted = Vec::new();
            while let Ok(number) = receiver.try_recv() {
                aborted.push(number);
            }
            aborted
        });
        assert_eq!(aborted, ended, "{peers}");
    }

    struct SendOnDrop(usize, mpsc::UnboundedSender<usize>);

    impl Drop for SendOnDrop {
        fn drop(&mut self) {
            let _ = self.1.send(self.0);
        }
    }

    #[test]
    fn the_oldest_connection_of_the_busiest_peer_ends() {
        check(&"a".repeat(MAX_OF_PEER), &[]);
        check(&"a".repeat(MAX_OF_PEER + 2), &[0, 1]);
        check(&format!("b{}", "a".repeat(MAX_OF_PEER + 1)), &[1]);
        let full: String = ["a", "b", "c", "d"].map(|peer| peer.repeat(MAX_OF_PEER)).concat();
        assert_eq!(full.len(), MAX);
        check(&full, &[]);
        check(&format!("{full}e"), &[0]);
        check(&format!("{full}ef"), &[0, MAX_OF_PEER]);
        check(&format!("{full}eb"), &[0, MAX_OF_PEER]);
    }

    #[test]
    fn finished_connections_do_not_count() {
        let clock = tokio::runtime::Builder::new_current_thread().build().unwrap();
        clock.block_on(async {
            let mut connections = Connections::default();
            for _ in 0..2 * MAX {
                connections.add(None, async {});
                yield_now().await;
            }
            assert_eq!(connections.0.len(), 1);
        });
    }
}
