//! [`Connections`]: the open connections, with an upper bound.
//!
//! gRPC clients keep connections open without calls. When all are taken, a new client replaces the one
//! that has been idle longest, which reconnects for its next call.

use std::future::Future;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    runtime: Handle,
    open: Vec<(watch::Receiver<Idle>, AbortHandle)>,
}

/// Since when a connection has had no calls; `None` while it has some.
type Idle = Option<Instant>;

/// With this a connection reports whether it is idle.
#[derive(Debug)]
pub(crate) struct Activity(watch::Sender<Idle>);

impl Activity {
    pub(crate) fn set(&self, is_idle: bool) {
        self.0.send_if_modified(|idle| {
            let changes = is_idle != idle.is_some();
            if changes {
                *idle = if is_idle { Some(Instant::now()) } else { None };
            }
            changes
        });
    }
}

impl Connections {
    pub(crate) fn at_most(most: usize, runtime: Handle) -> Connections {
        Connections { most, runtime, open: Vec::new() }
    }

    /// Serves a connection, which counts as idle until it reports otherwise. Returns false, without
    /// serving it, if all others have calls.
    pub(crate) fn add<S: Future<Output = ()> + Send + 'static>(
        &mut self,
        serve: impl FnOnce(Activity) -> S,
    ) -> bool {
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= self.most {
            let open = self.open.iter().enumerate();
            let idle = open.filter_map(|(at, (idle, _))| Some(((*idle.borrow())?, at)));
            let Some((_, at)) = idle.min() else { return false };
            self.open.remove(at).1.abort();
        }
        let (activity, idle) = watch::channel(Some(Instant::now()));
        let serving = self.runtime.spawn(serve(Activity(activity)));
        self.open.push((idle, serving.abort_handle()));
        true
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.open.iter().for_each(|(_, task)| task.abort());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::mpsc::{self, Sender};
    use std::time::Duration;
    use tokio::task::yield_now;
    use tokio::time::advance;

    /// A connection that never ends by itself: `ended` gets its number when it is aborted.
    fn add(
        connections: &mut Connections,
        number: usize,
        ended: &Sender<usize>,
    ) -> Option<Activity> {
        struct Ends(usize, Sender<usize>);
        impl Drop for Ends {
            fn drop(&mut self) {
                let _ = self.1.send(self.0);
            }
        }
        let ends = Ends(number, ended.clone());
        let mut own = None;
        connections.add(|activity| {
            own = Some(activity);
            async move {
                let _ends = ends;
                pending().await
            }
        });
        own
    }

    async fn second() {
        advance(Duration::from_secs(1)).await;
        yield_now().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_ends_the_one_that_was_idle_longest_and_never_a_busy_one() {
        let (sender, ended) = mpsc::channel();
        let mut connections = Connections::at_most(2, Handle::current());
        let first = add(&mut connections, 1, &sender).unwrap();
        second().await;
        let _second = add(&mut connections, 2, &sender).unwrap();
        second().await;
        // The first one is older, but has a call.
        first.set(false);
        let third = add(&mut connections, 3, &sender).unwrap();
        second().await;
        assert_eq!(ended.try_recv(), Ok(2));

        third.set(false);
        assert!(add(&mut connections, 4, &sender).is_none());
        assert_eq!(ended.try_recv(), Ok(4));

        third.set(true);
        second().await;
        first.set(true);
        second().await;
        // A repeated report does not change the time since when it is idle.
        third.set(true);
        add(&mut connections, 5, &sender).unwrap();
        second().await;
        assert_eq!(ended.try_recv(), Ok(3));
    }
}
