//! Files that other programs write or replace.
//!
//! A file may be anything when it is opened by its name: a FIFO blocks until another program writes
//! to it, a device may never end, and a link may lead elsewhere.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The content of a regular file of at most `limit` bytes; symbolic links are followed.
pub fn read_regular(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    check_regular(&fs::metadata(path)?)?;
    // A FIFO that replaces the file here must not block, and a terminal must not become this
    // process's own.
    let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    read_bounded(file, limit)
}

/// What `source` has until its end, if that is at most `limit` bytes.
pub fn read_bounded(source: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that there is more.
    source.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let why = format!("larger than {limit} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// # Errors
/// If this is a directory, a FIFO, a socket or a device.
pub(crate) fn check_regular(metadata: &Metadata) -> io::Result<()> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        return Ok(());
    }
    let what = name_of(file_type);
    Err(io::Error::new(ErrorKind::InvalidInput, format!("{what}, not a regular file")))
}

/// Whether [`read_regular`] found something else than a file that this program has written.
pub(crate) fn is_wrong_file(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::FileTooLarge)
}

/// A new file under this name, in place of one that an earlier process has left: never that file, or
/// what a link of that name points at.
pub(crate) fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    // Usually there is none.
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Replaces the file `path` at once: a reader sees the old content or the new one. `draft` has the
/// new content until then, and must be in the same file system. Nothing is synced.
pub fn replace(path: &Path, draft: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    create_new(draft, mode)?.write_all(content)?;
    fs::rename(draft, path)
}

/// What a path names, by device and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode(u64, u64);

impl Inode {
    pub fn of(metadata: &Metadata) -> Inode {
        Inode(metadata.dev(), metadata.ino())
    }
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn name_of(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "a directory"
    } else if file_type.is_fifo() {
        "a FIFO"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[track_caller]
    fn refused(path: &Path) -> String {
        read_regular(path, 8).unwrap_err().to_string()
    }

    #[test]
    fn a_regular_file_is_read_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let link = dir.path().join("link");
        symlink("file", &link).unwrap();
        for text in ["", "x", "12345678"] {
            fs::write(&path, text).unwrap();
            assert_eq!(read_regular(&path, 8).unwrap(), text.as_bytes());
            assert_eq!(read_regular(&link, 8).unwrap(), text.as_bytes());
        }
        fs::write(&path, "123456789").unwrap();
        let error = read_regular(&link, 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "larger than 8 bytes");
    }

    #[test]
    fn a_sparse_file_of_a_terabyte_is_refused_without_reading_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(refused(&path), "larger than 8 bytes");
    }

    #[test]
    fn a_file_that_is_not_regular_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let link = dir.path().join("link");
        symlink(&fifo, &link).unwrap();
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(refused(&fifo), "a FIFO, not a regular file");
        assert_eq!(refused(&link), "a FIFO, not a regular file");
        assert_eq!(refused(&socket), "a socket, not a regular file");
        assert_eq!(refused(dir.path()), "a directory, not a regular file");
        assert_eq!(refused(Path::new("/dev/zero")), "a device, not a regular file");
        let missing = read_regular(&dir.path().join("missing"), 8).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_new_file_replaces_an_old_one_or_a_link_and_not_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        let path = dir.path().join("new");
        fs::write(&other, "precious").unwrap();
        symlink(&other, &path).unwrap();
        drop(create_new(&path, 0o600).unwrap());
        nix::unistd::mkfifo(&other.with_extension("fifo"), Mode::S_IRWXU).unwrap();
        fs::rename(other.with_extension("fifo"), &path).unwrap();
        drop(create_new(&path, 0o600).unwrap());
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(create_new(&path, 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }

    #[test]
    fn an_endless_source_is_read_up_to_its_limit() {
        let error = read_bounded(io::repeat(b'x'), 1 << 16).unwrap_err();
        assert_eq!(error.to_string(), "larger than 65536 bytes");
    }
}
