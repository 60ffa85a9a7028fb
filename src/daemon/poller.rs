//! [`Poller`]: looks at a file periodically.

use super::result_of;
use std::future::pending;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Looks at a file periodically, on another thread, as the disk may block.
#[derive(Debug)]
pub(super) struct Poller<F, N> {
    state: PollState<F, N>,
    look: fn(&mut F) -> Option<N>,
    interval: Duration,
}

#[derive(Debug)]
enum PollState<F, N> {
    /// Until the next look is due. There is no file if the configuration names none.
    Idle(Option<F>, Instant),
    Looking(JoinHandle<(F, Option<N>)>),
}

impl<F: Send + 'static, N: Send + 'static> Poller<F, N> {
    /// Looks at this file with `look`, which returns what has changed since the last look.
    pub(super) fn new(
        file: Option<F>,
        interval: Duration,
        look: fn(&mut F) -> Option<N>,
    ) -> Poller<F, N> {
        Poller { state: PollState::Idle(file, Instant::now() + interval), look, interval }
    }

    /// Looks at once, before the first look is due.
    pub(super) fn look_first(&mut self) -> Option<N> {
        match &mut self.state {
            PollState::Idle(Some(file), _) => (self.look)(file),
            PollState::Idle(None, _) | PollState::Looking(_) => None,
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
                    let look = self.look;
                    let looking = tokio::task::spawn_blocking(move || {
                        let news = look(&mut file);
                        (file, news)
                    });
                    self.state = PollState::Looking(looking);
                }
                PollState::Looking(looking) => {
                    let (file, news) = result_of(looking).await;
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

    /// Counts the looks. The third one and the fifth one find something, and each takes its time.
    fn look(looks: &mut usize) -> Option<usize> {
        thread::sleep(Duration::from_millis(5));
        *looks += 1;
        Some(*looks).filter(|look| [3, 5].contains(look))
    }

    #[tokio::test]
    async fn what_is_found_is_told_once_however_often_the_wait_is_given_up() {
        let mut poller = Poller::new(Some(0), INTERVAL, look);
        assert_eq!(poller.look_first(), None);
        let mut found = Vec::new();
        while found.len() < 2 {
            found.extend(timeout(Duration::from_millis(1), poller.next()).await);
        }
        assert_eq!(found, [3, 5]);
    }

    #[tokio::test]
    async fn without_a_file_there_is_nothing_to_tell() {
        let mut poller = Poller::new(None, INTERVAL, look);
        assert_eq!(poller.look_first(), None);
        timeout(INTERVAL * 4, poller.next()).await.unwrap_err();
    }
}
