//! [`Watch`]: reports writes of other programs into the files that bind, and new cgroups, within
//! milliseconds.
//!
//! Source: inotify(7). Writes through any mount of the hierarchy report themselves, refused ones
//! included; this program's own do as well.

use cgroups::Watched;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use tokio::io::unix::AsyncFd;

#[derive(Debug, Default)]
pub struct Watch {
    /// `None` if the kernel gives none: then only the periodic check finds changes.
    inotify: Option<AsyncFd<OwnedFd>>,
    watched: BTreeMap<PathBuf, i32>,
}

impl Watch {
    /// Must be called within tokio's runtime.
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

    /// Watches these and nothing else.
    pub fn set(&mut self, paths: &BTreeMap<PathBuf, Watched>) {
        let Some(inotify) = &self.inotify else { return };
        self.watched.retain(|path, descriptor| {
            let is_kept = paths.contains_key(path);
            if !is_kept {
                // The path may have vanished, and its watch with it.
                let _ = inotify::remove_watch(inotify, *descriptor);
            }
            is_kept
        });
        for (path, what) in paths {
            let flags = match what {
                Watched::File => WatchFlags::MODIFY,
                Watched::Directory => WatchFlags::CREATE | WatchFlags::ONLYDIR,
            };
            // A cgroup that was removed and made again has another file of the same name.
            if let Ok(descriptor) = inotify::add_watch(inotify, path, flags) {
                self.watched.insert(path.clone(), descriptor);
            }
        }
    }

    /// Waits for a change. Returns the directories that are new. Cancel safe.
    pub async fn next(&mut self) -> Vec<PathBuf> {
        let Some(inotify) = &self.inotify else { return pending().await };
        loop {
            let Ok(mut ready) = inotify.readable().await else { return pending().await };
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = Reader::new(inotify, &mut buffer);
            let mut any = false;
            let mut new = Vec::new();
            while let Ok(event) = events.next() {
                any = true;
                let above = self.watched.iter().find(|(_, watch)| **watch == event.wd());
                if event.events().contains(ReadFlags::CREATE)
                    && let (Some(name), Some((above, _))) = (event.file_name(), above)
                {
                    new.push(above.join(OsStr::from_bytes(name.to_bytes())));
                }
            }
            ready.clear_ready();
            if any {
                return new;
            }
        }
    }
}
