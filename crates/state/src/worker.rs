//! [`Worker`]: a thread that exists from the start of the process to its end.
//!
//! A node may have no room for another thread when one is needed: a container can fill the table of processes. So
//! nothing starts a thread later than the start.

use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// How much work may wait for a thread. Each of the few users of one waits for its last work first.
const MOST_WAITING: usize = 16;
/// The nice value of work that nothing waits for.
const LEAST_PRIORITY: i32 = 19;

/// Clones share the thread.
#[derive(Debug, Clone)]
pub struct Worker(SyncSender<Work>);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot start the thread {name}: {source}. The plugin starts all of its threads before it does anything else: raise the limit that is reached, which is the number of processes of this pod (the kubelet's podPidsLimit), user (ulimit -u) or node (kernel.threads-max, kernel.pid_max), or its memory"
)]
pub struct NoThread {
    pub name: &'static str,
    pub source: io::Error,
}

impl Worker {
    pub fn start(name: &'static str) -> Result<Worker, NoThread> {
        Worker::start_after(name, || ())
    }

    /// For work that nothing waits for: it may read thousands of files, and containers that start come first.
    pub fn start_with_least_priority(name: &'static str) -> Result<Worker, NoThread> {
        Worker::start_after(name, || {
            // Without that it only takes a share of the time of others.
            let _ = setpriority_process(Some(gettid()), LEAST_PRIORITY);
        })
    }

    fn start_after(
        name: &'static str,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Result<Worker, NoThread> {
        let (work, queue) = sync_channel::<Work>(MOST_WAITING);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            prepare();
            queue.into_iter().for_each(|work| work());
        });
        thread.map_err(|source| NoThread { name, source })?;
        Ok(Worker(work))
    }

    /// Has the thread do this after its earlier work. Returns whether it will: a thread that hangs gets no more than
    /// [`MOST_WAITING`]. The end of the process does not wait for it.
    pub fn give(&self, work: impl FnOnce() + Send + 'static) -> bool {
        self.0.try_send(Box::new(work)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_is_done_in_order_and_a_thread_that_hangs_gets_a_bounded_amount() {
        let worker = Worker::start("test").unwrap();
        let (resume, hangs) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        assert!(worker.give(move || {
            begun.send(()).unwrap();
            hangs.recv().unwrap();
        }));
        begins.recv().unwrap();
        let (done, order) = mpsc::channel();
        let given = (0..100).filter(|number| {
            let number = *number;
            let done = done.clone();
            worker.give(move || done.send(number).unwrap())
        });
        assert_eq!(given.count(), MOST_WAITING);
        resume.send(()).unwrap();
        drop(done);
        assert_eq!(order.iter().collect::<Vec<_>>(), (0..MOST_WAITING).collect::<Vec<_>>());
    }
}
