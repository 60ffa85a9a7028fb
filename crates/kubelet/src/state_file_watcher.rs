//! Reads the state file of the kubelet's CPU manager, and again after each change.

use super::StateFile;
use state::files;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "cpu_manager_state";

/// The most bytes to read; a node of 256 pods needs some 30 KiB.
const MAX_BYTES: usize = 512 << 10;

/// The pause between two checks, each a `stat`. The plugin notices a kubelet with a new policy before
/// its first pods come back.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// What is at the file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFileReading {
    /// There is no file, or no access to it.
    Missing,
    StateFile(StateFile),
    /// A file that cannot be read or is invalid. It may name a policy all the same.
    Bad {
        policy: Option<String>,
        why: String,
    },
}

#[derive(Debug)]
pub struct StateFileWatcher {
    path: PathBuf,
    last_read: Option<FileIdentity>,
}

/// Device, inode, size, and the times of the last changes of content and inode. The kubelet replaces
/// its file, so the inode is new each time.
type FileIdentity = Result<(u64, u64, u64, [i64; 4]), io::ErrorKind>;

impl StateFileWatcher {
    pub fn new(kubelet_dir: &Path) -> StateFileWatcher {
        StateFileWatcher { path: kubelet_dir.join(FILE), last_read: None }
    }

    /// Reads the file if it may have changed since it was read last; otherwise this costs one `stat`.
    pub fn read(&mut self) -> Option<StateFileReading> {
        let identity = identity(&self.path);
        if self.last_read.as_ref() == Some(&identity) {
            return None;
        }
        self.last_read = Some(identity);
        Some(match files::read_regular(&self.path, MAX_BYTES) {
            Ok(bytes) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => StateFileReading::Missing,
            Err(error) => StateFileReading::Bad { policy: None, why: error.to_string() },
        })
    }
}

fn parse(bytes: &[u8]) -> StateFileReading {
    match StateFile::parse(bytes) {
        Ok(file) => StateFileReading::StateFile(file),
        Err(error) => StateFileReading::Bad {
            policy: error.policy().map(str::to_owned),
            why: error.to_string(),
        },
    }
}

fn identity(path: &Path) -> FileIdentity {
    let file = fs::metadata(path).map_err(|error| error.kind())?;
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    Ok((file.dev(), file.ino(), file.size(), times))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;

    #[test]
    fn a_file_is_read_again_only_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = StateFileWatcher::new(dir.path());
        assert_eq!(watch.read(), Some(StateFileReading::Missing));
        assert_eq!(watch.read(), None);
        let path = dir.path().join(FILE);
        // Replaced as the kubelet does it, with a file of the same size.
        for _ in 0..2 {
            let new = dir.path().join("new");
            fs::write(&new, NONE).unwrap();
            fs::rename(&new, &path).unwrap();
            assert!(
                matches!(watch.read(), Some(StateFileReading::StateFile(state)) if state.policy == "none")
            );
            assert_eq!(watch.read(), None);
        }
        fs::write(&path, &NONE[1..]).unwrap();
        let bad = watch.read();
        assert!(matches!(bad, Some(StateFileReading::Bad { policy: None, .. })));
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.read(), Some(StateFileReading::Missing));
        fs::create_dir(&path).unwrap();
        assert!(
            matches!(watch.read(), Some(StateFileReading::Bad { why, .. }) if why == "a directory, not a regular file")
        );
    }

    #[test]
    fn a_missing_directory_is_no_error() {
        let mut watch = StateFileWatcher::new(Path::new("/nonexistent/kubelet"));
        assert_eq!(watch.read(), Some(StateFileReading::Missing));
    }
}
