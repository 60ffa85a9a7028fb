//! [`Watch`]: writes of other programs into the files that bind, seen within milliseconds.
//!
//! Source: inotify(7). Writes through any mount of the hierarchy report themselves, refused ones
//! included; this program's own do as well.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tokio::io::unix::AsyncFd;

#[derive(Debug, Default)]
pub struct Watch {
    /// `None` where the kernel gives none: the periodic check has to do.
    inotify: Option<AsyncFd<OwnedFd>>,
    watched: BTreeMap<PathBuf, i32>,
}

impl Watch {
    /// Has to be called within the runtime of tokio.
    #[expect(
        deprecated,
        reason = "it is unsound for descriptors that can be closed; this one is owned"
    )]
    pub fn new() -> Watch {
        let opened = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let opened = opened.map_err(io::Error::from).and_then(AsyncFd::new);
        let opened = opened.inspect_err(|error| log::warn!("cannot watch cgroups: {error}"));
        Watch { inotify: opened.ok(), watched: BTreeMap::new() }
    }

    /// Watches these files and no others.
    pub fn set(&mut self, files: Vec<PathBuf>) {
        let Some(inotify) = &self.inotify else { return };
        let files: BTreeSet<PathBuf> = files.into_iter().collect();
        self.watched.retain(|file, descriptor| {
            let is_wanted = files.contains(file);
            if !is_wanted {
                // The file may have vanished, and its watch with it.
                let _ = inotify::remove_watch(inotify, *descriptor);
            }
            is_wanted
        });
        for file in files {
            // A cgroup that was removed and made again has another file of the same name.
            if let Ok(descriptor) = inotify::add_watch(inotify, &file, WatchFlags::MODIFY) {
                self.watched.insert(file, descriptor);
            }
        }
    }

    /// The next write. Cancel safe.
    pub async fn next(&mut self) {
        let Some(inotify) = &self.inotify else { return pending().await };
        let mut buffer = [0; 4096];
        loop {
            let Ok(mut ready) = inotify.readable().await else { return pending().await };
            let read = rustix::io::read(inotify, &mut buffer);
            ready.clear_ready();
            if read.is_ok_and(|length| length > 0) {
                return;
            }
        }
    }
}
