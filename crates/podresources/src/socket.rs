//! [`Socket`]: the socket's file, from its creation to its removal.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// A socket on which this process listens. A drop removes its file, unless another process has replaced
/// it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Socket {
    /// Listens on a socket that only root may use, like the kubelet's. Replaces the socket of a process
    /// that has ended.
    ///
    /// # Errors
    /// Also if another process listens there.
    pub(crate) fn bind(path: &Path) -> io::Result<Socket> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        if UnixStream::connect(path).is_ok() {
            let why = "another process listens there";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        // The rename makes the socket appear with its final permissions.
        let new = path.with_extension("sock.new");
        // An earlier start may have ended before its rename.
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        let file = identity(&new)?;
        fs::rename(&new, path)?;
        Ok(Socket { listener, path: path.to_owned(), file })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_left_over_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/kubelet.sock");
        fs::create_dir(dir.path().join("a")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Socket::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.sock");
        let socket = Socket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let successor = Socket::bind(&path).unwrap();
        drop(socket);
        UnixStream::connect(&path).unwrap();
        drop(successor);
        assert!(!path.exists());
    }
}
