//! A connection to the runtime for as long as the process lives.

use crate::identity::Identity;
use crate::plugin::Plugin;
use crate::session::{self, Ended, Session, SessionError};
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use std::{fs, io, os::unix};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};
use wording::Repeats;

/// The first pause after the end of a connection or a failed attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two attempts while no runtime listens. An attempt is cheap then, and
/// containers start as soon as the runtime has restarted.
const MAX_PAUSE_DIALING: Duration = Duration::from_secs(2);
/// The longest pause after short connections: each registration briefly delays all containers of the
/// node.
const MAX_PAUSE_FAILING: Duration = Duration::from_secs(10);
/// A connection of this length resets the pauses.
const GOOD_CONNECTION: Duration = Duration::from_secs(30);
/// How long to try the first connection: a runtime may be restarting.
const FIRST_DIAL: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub enum Endpoint {
    /// Connect to this socket, and reconnect whenever a connection ends.
    Socket(PathBuf),
    /// The connection of a launched plugin. [`run`] ends with it.
    Launched(unix::net::UnixStream),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "cannot connect to the runtime's NRI socket {}: {source}. Is NRI enabled in the configuration of containerd or \
         CRI-O, and is the socket's directory mounted where this runs?",
        path.display()
    )]
    Dial { path: PathBuf, source: io::Error },
    #[error("cannot use the runtime's connection: {0}")]
    Adopt(#[source] io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Stays connected to the runtime until `shutdown`, and then finishes the answers under way.
///
/// `plugin` makes a plugin for each connection, as state of the node is outdated when one has ended.
///
/// # Errors
/// If no connection was ever made, or the connection of a launched plugin failed.
pub async fn run<P: Plugin>(
    endpoint: Endpoint,
    identity: &Identity,
    mut plugin: impl FnMut(Session) -> P,
    shutdown: impl Future,
) -> Result<(), RunError> {
    let mut shutdown = pin!(shutdown);
    let path = match endpoint {
        Endpoint::Socket(path) => path,
        Endpoint::Launched(stream) => {
            let stream = adopt(stream).map_err(RunError::Adopt)?;
            let plugin = plugin(Session(1));
            return match session::run(stream, Session(1), identity, &plugin, shutdown).await {
                Err(SessionError::Mux(error)) if error.is_end() => Ok(()),
                ended => Ok(ended.map(drop)?),
            };
        }
    };
    let started = Instant::now();
    let mut pause = Pause(FIRST_PAUSE);
    let mut last = Session(0);
    // The socket of the connection that has ended.
    let mut before = None;
    let mut repeats = Repeats::default();
    loop {
        let dialed = tokio::select! {
            dialed = UnixStream::connect(&path) => dialed,
            _ = &mut shutdown => return Ok(()),
        };
        let limit = match dialed {
            Ok(stream) => {
                last = Session(last.0 + 1);
                if let Some(times) = repeats.occurred("connected", Instant::now().into_std()) {
                    log::info!("connected to {} as {identity} ({last}){times}", path.display());
                }
                let socket = SocketFile::of(&path);
                if before.is_some()
                    && before == socket
                    && let Some(times) = repeats.occurred("no restart", Instant::now().into_std())
                {
                    log::warn!(
                        "the runtime had closed the connection without a restart: an answer may have taken too long{times}"
                    );
                }
                before = None;
                let since = Instant::now();
                let plugin = plugin(last);
                let stop = shutdown.as_mut();
                match session::run_next(stream, last, identity, &plugin, &mut repeats, stop).await {
                    Ok(Ended::Stopped) => return Ok(()),
                    Ok(Ended::Closed) => before = socket,
                    Err(SessionError::Mux(error)) if error.is_end() => {
                        log::debug!("{error} ({last})");
                        before = socket;
                    }
                    Err(error) => {
                        let now = Instant::now().into_std();
                        if let Some(times) = repeats.occurred(&error.to_string(), now) {
                            log::error!("{error} ({last}){times}");
                        }
                    }
                }
                if before.is_some()
                    && let Some(times) = repeats.occurred("closed", Instant::now().into_std())
                {
                    log::info!("the runtime closed the connection ({last}): reconnecting{times}");
                }
                if since.elapsed() >= GOOD_CONNECTION {
                    pause = Pause(FIRST_PAUSE);
                }
                MAX_PAUSE_FAILING
            }
            Err(source) if last == Session(0) && started.elapsed() >= FIRST_DIAL => {
                return Err(RunError::Dial { path, source });
            }
            Err(error) => {
                log::debug!("cannot connect to {}: {error}", path.display());
                MAX_PAUSE_DIALING
            }
        };
        tokio::select! {
            () = sleep(pause.next(limit)) => {}
            _ = &mut shutdown => return Ok(()),
        }
    }
}

/// Identifies a socket file: a runtime makes a new one at each start.
#[derive(Debug, PartialEq, Eq)]
struct SocketFile {
    inode: u64,
    changed: (i64, i64),
}

impl SocketFile {
    fn of(path: &Path) -> Option<SocketFile> {
        let file = fs::metadata(path).ok()?;
        Some(SocketFile { inode: file.ino(), changed: (file.ctime(), file.ctime_nsec()) })
    }
}

fn adopt(stream: unix::net::UnixStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Growing pauses with a random part, so that the plugins of a node do not reconnect all at once.
struct Pause(Duration);

impl Pause {
    /// The next pause: twice the last one up to `limit`, less up to a quarter.
    fn next(&mut self, limit: Duration) -> Duration {
        let full = self.0.min(limit);
        self.0 = full * 2;
        // The only random source in std, which is good enough here.
        let chance = RandomState::new().build_hasher().finish() % 1024;
        full - full.mul_f64(chance as f64 / 4096.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let mut pause = Pause(FIRST_PAUSE);
        for limit in [MAX_PAUSE_DIALING, MAX_PAUSE_FAILING] {
            for full in [200, 400, 800, 1600, 3200, 6400, 12_800, 20_000] {
                let full = Duration::from_millis(full).min(limit);
                let next = pause.next(limit);
                assert!(next <= full && next >= full.mul_f64(0.75), "{next:?} of {full:?}");
            }
            pause = Pause(FIRST_PAUSE);
        }
    }

    #[test]
    fn first_pauses_are_random() {
        let pauses: Vec<_> = (0..8).map(|_| Pause(FIRST_PAUSE).next(MAX_PAUSE_FAILING)).collect();
        assert!(pauses.iter().any(|pause| pause != &pauses[0]), "{pauses:?}");
    }
}
