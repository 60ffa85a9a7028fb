//! [`Threads`]: all threads of the daemon, which it starts before it does anything else.

use rustix::process::{Resource, getrlimit};
use state::disk::Disk;
use state::worker::{NoThread, Worker};
use std::error::Error;
use std::iter::repeat_with;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use std::{io, panic, process};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// How much work may block tokio's threads at once: a step of the core, a save, a check pass, readings of the
/// configuration and of the kubelet's file, the wait for GPUs, the policy for podresources; and a reading that hangs when
/// the configuration names another file.
const BLOCKING: usize = 8;
const BLOCKING_NAME: &str = "blocking";
/// No thread of tokio ever ends.
const KEEP_ALIVE: Duration = Duration::MAX;
/// How long threads may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The addresses that the process may reserve: a stack for each thread, and what the C library's allocator reserves for
/// each. The most that was seen is 1 GiB, and hardly any of it is ever used.
const ADDRESSES: u64 = 2 << 30;

/// A limit under which an allocation may fail, which ends the process at any moment: when it makes a page, or while a
/// container waits for it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name} is {} MiB, and the plugin may reserve {} MiB of addresses, most of which it never uses: a reservation that fails would end it at any moment. Remove this limit, and limit memory by the container's resources.limits.memory (systemd: MemoryMax)",
    bytes >> 20,
    ADDRESSES >> 20
)]
pub struct TooFewAddresses {
    name: &'static str,
    bytes: u64,
}

/// Checks the limits of this process before it reserves anything.
pub fn check_addresses() -> Result<(), TooFewAddresses> {
    for (resource, name) in [
        (Resource::As, "the limit of addresses (ulimit -v; systemd: LimitAS)"),
        (Resource::Data, "the limit of data (ulimit -d; systemd: LimitDATA)"),
    ] {
        if let Some(bytes) = getrlimit(resource).current
            && bytes < ADDRESSES
        {
            return Err(TooFewAddresses { name, bytes });
        }
    }
    Ok(())
}

/// Threads for work that may hang for ever, or that has to leave the CPU to all other work.
#[derive(Debug, Clone)]
pub struct Threads {
    pub(super) disk: Disk,
    pub(super) gpus: Worker,
    pub(super) interrupts: Worker,
    pub(super) noise: Worker,
    /// Clients of the address and of the status socket.
    pub clients: Clients,
    /// Makes pages, metrics and answers of `status`.
    pub pages: Worker,
}

impl Threads {
    pub fn start() -> Result<Threads, NoThread> {
        Ok(Threads {
            disk: Disk::start()?,
            gpus: Worker::start("gpus")?,
            interrupts: Worker::start_with_least_priority("interrupts")?,
            noise: Worker::start_with_least_priority("noise")?,
            clients: Clients::start()?,
            pages: Worker::start_with_least_priority("pages")?,
        })
    }
}

/// A thread of the least priority that serves clients: they may connect as often as they can, and take no time from
/// containers that start. It ends with the last clone.
#[derive(Debug, Clone)]
pub struct Clients {
    runtime: Handle,
    _open: Arc<oneshot::Sender<()>>,
}

impl Clients {
    fn start() -> Result<Clients, NoThread> {
        let name = "clients";
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| NoThread { name, source })?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel();
        Worker::start_with_least_priority(name)?.give(move || {
            let _ = runtime.block_on(closed);
        });
        Ok(Clients { runtime: handle, _open: Arc::new(open) })
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }

    pub fn handle(&self) -> Handle {
        self.runtime.clone()
    }

    /// The thread will wait for the files that this opens.
    pub(super) fn enter<T>(&self, open: impl FnOnce() -> T) -> T {
        let _guard = self.runtime.enter();
        open()
    }
}

/// Messages have one thread, as their work takes microseconds. [`BLOCKING`] others wait for work that takes longer; they
/// run before this returns, and tokio starts none later.
pub fn runtime() -> Result<Runtime, Box<dyn Error>> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING).thread_keep_alive(KEEP_ALIVE);
    let runtime = builder.thread_name(BLOCKING_NAME).build()?;
    // tokio panics without its first thread. It is silent about others, and their work would wait.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {
        log::error!("{}", no_thread());
        process::exit(1);
    }));
    let started = runtime.block_on(async {
        let all = Arc::new(Barrier::new(BLOCKING));
        let wait_for_all = || {
            let all = Arc::clone(&all);
            spawn_blocking(move || all.wait())
        };
        let waiting: Vec<_> = repeat_with(wait_for_all).take(BLOCKING).collect();
        timeout(PATIENCE, async {
            for one in waiting {
                let _ = one.await;
            }
        })
        .await
    });
    panic::set_hook(hook);
    if started.is_err() {
        runtime.shutdown_background();
        return Err(no_thread().into());
    }
    Ok(runtime)
}

fn no_thread() -> NoThread {
    let source = io::Error::other("the system has too few threads");
    NoThread { name: BLOCKING_NAME, source }
}
