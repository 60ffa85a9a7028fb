//! [`Poller`]: reads a file periodically.

use super::result_of;
use std::future::pending;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Reads a file periodically, on another thread, as the disk may block.
#[derive(Debug)]
pub(super) struct Poller<F, N> {
    state: PollState<F, N>,
    read: fn(&mut F) -> Option<N>,
    interval: Duration,
}

#[derive(Debug)]
enum PollState<F, N> {
    /// Until the next read is due. There is no file if the configuration names none.
    Idle(Option<F>, Instant),
    Reading(JoinHandle<(F, Option<N>)>),
}

impl<F: Send + 'static, N: Send + 'static> Poller<F, N> {
    /// `read` returns the file's content if it has changed since the last call.
    pub(super) fn new(
        file: Option<F>,
        interval: Duration,
        read: fn(&mut F) -> Option<N>,
    ) -> Poller<F, N> {
        Poller { state: PollState::Idle(file, Instant::now() + interval), read, interval }
    }

    /// Reads at once, on this thread, before the first read is due.
    pub(super) fn read_first(&mut self) -> Option<N> {
        match &mut self.state {
            PollState::Idle(Some(file), _) => (self.read)(file),
            PollState::Idle(None, _) | PollState::Reading(_) => None,
        }
    }

    /// The next change of the file. Cancel safe.
    pub(super) async fn next(&mut self) -> N {
        loop {
            match &mut self.state {
                PollState::Idle(None, _) => return pending().await,
                PollState::Idle(file, due) => {
                    sleep_until(*due).await;
                    let Some(mut file) = file.take() else { continue };
                    let read = self.read;
                    let task = tokio::task::spawn_blocking(move || {
                        let news = read(&mut file);
                        (file, news)
                    });
                    self.state = PollState::Reading(task);
                }
                PollState::Reading(task) => {
                    let (file, news) = result_of(task).await;
                    self.state = PollState::Idle(Some(file), Instant::now() + self.interval);
                    if let Some(news) = news {
                        return news;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tokio::time::timeout;

    const INTERVAL: Duration = Duration::from_millis(5);

    /// Counts its calls. The third and the fifth one find a change, and each takes some time.
    fn read(calls: &mut usize) -> Option<usize> {
        thread::sleep(Duration::from_millis(5));
        *calls += 1;
        Some(*calls).filter(|call| [3, 5].contains(call))
    }

    #[tokio::test]
    async fn a_change_is_returned_once_even_if_many_waits_are_cancelled() {
        let mut poller = Poller::new(Some(0), INTERVAL, read);
        assert_eq!(poller.read_first(), None);
        let mut found = Vec::new();
        while found.len() < 2 {
            found.extend(timeout(Duration::from_millis(1), poller.next()).await);
        }
        assert_eq!(found, [3, 5]);
    }

    #[tokio::test]
    async fn a_poller_without_a_file_waits_forever() {
        let mut poller = Poller::new(None, INTERVAL, read);
        assert_eq!(poller.read_first(), None);
        timeout(INTERVAL * 4, poller.next()).await.unwrap_err();
    }
}
