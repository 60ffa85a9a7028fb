//! Independent jobs on all processors.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs each job, and passes its result to `done` in the calling thread, in any order.
pub(crate) fn each<J: Sync, R: Send>(
    jobs: &[J],
    run: impl Fn(&J) -> R + Sync,
    mut done: impl FnMut(&J, R),
) {
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone only if `done` panicked.
                    if sender.send((job, run(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (job, result) in receiver {
            done(job, result);
        }
    });
}
