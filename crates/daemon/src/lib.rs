//! The daemon: a deterministic core that owns the ledger, and an executor around it.
//!
//! ```text
//!   messages, timers, ends of effects ──► Input ──► Owner::step ──► Effect ──► answers, saves,
//!                  ▲                                  │      ▲                 calls, check passes
//!                  │                                  ▼      │                        │
//!                  │                          cgroups, /proc, /sys                    │
//!                  └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Owner`] takes one [`Input`] after the other, and returns [`Effect`]s. It reads and writes
//! cgroups itself, through a [`Kernel`](kernel::Kernel) that can be a simulated one; it has
//! no thread, waits for nothing, and gets the time with each input. [`Executor`] carries the effects
//! out, and brings their ends back as inputs. It alone holds the state directory, the connection to
//! the runtime and inotify.
//!
//! Each input is taken in the same way: it becomes events, the ledger applies them, and what is
//! outstanding then is carried out in one order, `Owner::outstanding`. A decision is on disk before
//! the runtime gets it: the call waits for [`Effect::Save`]. Calls that change no claim do not. A disk
//! that fails or does not respond keeps out new exclusive containers, and nothing else.
//!
//! The other parts (`kubelet`, `devices`, `reload`, `hotplug`, `orphans`, `checks`, `drift`) report:
//! they return events for the ledger, or what to repair, and know nothing of each other.
//! `enforcement` writes cgroups when the owner says so, `quieting` has interrupts and latency knobs
//! written on another thread, and `delivery` knows what the runtime is
//! doing. `standby` answers the runtime before the core exists, in a roll-out.

mod calls;
mod checks;
mod complete;
mod decision_log;
mod delivery;
mod device_finder;
mod devices;
mod drift;
mod enforcement;
mod executor;
mod exposed;
mod exposed_files;
mod hotplug;
mod jobs;
mod kubelet;
mod main_loop;
mod moves;
mod noise_monitor;
mod orphans;
mod owner;
mod pace;
mod paths;
mod persist;
mod pod_resources;
mod poller;
mod quieting;
mod quotas;
mod rebalance;
mod reload;
mod report;
mod standby;
mod start;
mod step;
mod suspects;
mod threads;
mod trial;
mod validation;

pub use checks::{CheckPass, Findings};
pub use devices::{FoundDevices, ListedDevices};
pub use executor::Executor;
pub use main_loop::{Start, serve};
pub use owner::Owner;
pub use paths::{Paths, StartError};
pub use quieting::{QuietOutcome, QuietPass};
pub use start::{Machine, NodeAccess};
pub use step::{CallId, Effect, Input};
pub use threads::{Clients, Threads, check_addresses, runtime};
pub use trial::Trial;

use log::Level;
use state::worker::Worker;
use std::future::pending;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use wording::Repeats;

/// Logs a line about a condition that may last, with how often it has occurred, unless it was logged recently.
fn log_repeated(repeats: &mut Repeats, level: Level, line: &str, now: Instant) {
    if let Some(times) = repeats.occurred(line, now) {
        log::log!(level, "{line}{times}");
    }
}

/// Does work that may block on one of tokio's threads, which exist from the start.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    result_of(&mut tokio::task::spawn_blocking(work)).await
}

/// Has a thread do this. There is no result after a panic, or if too much waits for the thread.
fn given_to<T: Send + 'static>(
    worker: &Worker,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    worker.give(move || {
        // The daemon may have ended.
        let _ = done.send(work());
    });
    result
}

/// The result of a task; a panic of the task becomes the daemon's. Cancel safe.
async fn result_of<T>(task: &mut JoinHandle<T>) -> T {
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only the end of tokio's runtime cancels a task, and the daemon ends with it.
        Err(Err(_)) => pending().await,
    }
}
