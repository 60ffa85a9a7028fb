//! [`Connections`]: those that are being served, so many at most.

use std::future::Future;
use std::net::IpAddr;
use tokio::task::AbortHandle;

/// Connections served at a time.
const MAX: usize = 32;

/// The connections of a listener, the oldest first. There is always a place for one more: if need
/// be that of the oldest connection of the peer that has the most. So idle connections do not keep
/// a probe from its answer, nor do new ones that a client opens over and over.
#[derive(Debug, Default)]
pub(super) struct Connections(Vec<(Option<IpAddr>, AbortHandle)>);

impl Connections {
    /// Serves a connection from this address, `None` being one peer like any other.
    pub(super) fn add(
        &mut self,
        peer: Option<IpAddr>,
        serving: impl Future<Output = ()> + Send + 'static,
    ) {
        self.0.retain(|(_, task)| !task.is_finished());
        if self.0.len() >= MAX {
            let of = |peer| self.0.iter().filter(|(other, _)| *other == peer).count();
            // The last of equals is taken.
            let oldest = (0..self.0.len()).rev().max_by_key(|&at| of(self.0[at].0));
            if let Some(at) = oldest {
                self.0.remove(at).1.abort();
            }
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

    /// Connections that never end come from these peers, each given by a letter; whose end makes
    /// room, in that order.
    #[track_caller]
    fn check(peers: &str, ended: &[usize]) {
        let clock = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let seen = clock.block_on(async {
            let mut connections = Connections::default();
            let (tell, mut told) = mpsc::unbounded_channel();
            for (number, peer) in peers.bytes().enumerate() {
                let tell = Told(number, tell.clone());
                connections.add(Some(IpAddr::from([10, 0, 0, peer])), async {
                    let _tell = tell;
                    pending().await
                });
                yield_now().await;
                assert!(connections.0.len() <= MAX);
            }
            let mut seen = Vec::new();
            while let Ok(number) = told.try_recv() {
                seen.push(number);
            }
            seen
        });
        assert_eq!(seen, ended, "{peers}");
    }

    struct Told(usize, mpsc::UnboundedSender<usize>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.1.send(self.0);
        }
    }

    #[test]
    fn the_oldest_of_the_peer_that_has_the_most_makes_room() {
        let many = |peer: &str, count| peer.repeat(count);
        check(&many("a", MAX), &[]);
        check(&many("a", MAX + 2), &[0, 1]);
        check(&format!("b{}", many("a", MAX + 1)), &[1, 2]);
        check(&format!("{}bc", many("a", MAX)), &[0, 1]);
        let half = MAX / 2;
        check(&format!("{}{}c", many("b", half), many("a", half)), &[0]);
        check(&format!("{}{}aa", many("b", half), many("a", half)), &[0, half]);
    }

    #[test]
    fn one_that_has_ended_makes_room() {
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
