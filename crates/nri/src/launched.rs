//! A plugin that the runtime launched from its plugin directory: environment variables have the plugin's
//! name and index, and the file descriptor of the connection.

use crate::{Identity, IdentityError};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;

const SOCKET: &str = "NRI_PLUGIN_SOCKET";
const NAME: &str = "NRI_PLUGIN_NAME";
const INDEX: &str = "NRI_PLUGIN_IDX";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// From the executable's file name.
    pub identity: Identity,
    fd: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{SOCKET}={0:?} is not a file descriptor")]
    Socket(OsString),
    #[error("{SOCKET} is set, so the runtime launched this plugin, but {0} is not")]
    Missing(&'static str),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot use file descriptor {fd} ({SOCKET}) as the runtime's connection: {source}")]
    Take { fd: i32, source: io::Error },
}

impl Launched {
    /// Reads the environment through `variable`; `None` if the runtime did not launch this process.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Launched>, LaunchError> {
        let Some(socket) = variable(SOCKET) else { return Ok(None) };
        let fd = socket.to_str().and_then(|text| text.parse().ok()).filter(|&fd: &i32| fd > 2);
        let Some(fd) = fd else { return Err(LaunchError::Socket(socket)) };
        let text = |name| {
            variable(name)
                .and_then(|value| value.into_string().ok())
                .ok_or(LaunchError::Missing(name))
        };
        let identity = Identity::new(&text(NAME)?, &text(INDEX)?)?;
        Ok(Some(Launched { identity, fd }))
    }

    /// Takes the connection.
    ///
    /// To own a file descriptor given as a number is `unsafe` in Rust, as other code may use it, too. So
    /// this gets a duplicate from the kernel through a pidfd of this process (Linux 5.6). The original
    /// stays open until the process ends, and a launched plugin ends with its connection.
    pub fn connection(&self) -> Result<UnixStream, LaunchError> {
        let take = || -> io::Result<UnixStream> {
            let this = pidfd_open(getpid(), PidfdFlags::empty())?;
            let socket = pidfd_getfd(this, self.fd, PidfdGetfdFlags::empty())?;
            let stream = UnixStream::from(socket);
            // Fails if it is not a connected socket.
            stream.peer_addr()?;
            Ok(stream)
        };
        take().map_err(|source| LaunchError::Take { fd: self.fd, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    fn launched(variables: &[(&str, &str)]) -> Result<Option<Launched>, LaunchError> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        Launched::from_environment(|name| variables.get(name).map(OsString::from))
    }

    #[test]
    fn an_incomplete_environment_of_a_launched_plugin_is_refused() {
        assert!(matches!(launched(&[]), Ok(None)));
        assert!(matches!(launched(&[(NAME, "cpu"), (INDEX, "10")]), Ok(None)));
        let all = launched(&[(SOCKET, "3"), (NAME, "cpu"), (INDEX, "10")]).unwrap().unwrap();
        assert_eq!((all.identity.to_string(), all.fd), ("10-cpu".to_owned(), 3));
        for (variables, text) in [
            (&[(SOCKET, "three"), (NAME, "cpu"), (INDEX, "10")][..], "\"three\""),
            (&[(SOCKET, "-1"), (NAME, "cpu"), (INDEX, "10")], "\"-1\""),
            (&[(SOCKET, "0"), (NAME, "cpu"), (INDEX, "10")], "\"0\""),
            (&[(SOCKET, "3"), (INDEX, "10")], NAME),
            (&[(SOCKET, "3"), (NAME, "cpu")], INDEX),
            (&[(SOCKET, "3"), (NAME, "cpu"), (INDEX, "1")], "two digits"),
        ] {
            let error = launched(variables).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn only_a_connected_socket_is_taken_as_connection() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let identity = Identity::new("cpu", "10").unwrap();
        let launched = |fd| Launched { identity: identity.clone(), fd };
        let mut taken = launched(ours.as_raw_fd()).connection().unwrap();
        taken.write_all(b"hello").unwrap();
        let mut received = [0; 5];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"hello");

        let file = tempfile::tempfile().unwrap();
        for fd in [file.as_raw_fd(), 1_000_000] {
            let error = launched(fd).connection().unwrap_err().to_string();
            assert!(error.contains(&format!("file descriptor {fd}")), "{error}");
        }
    }
}
