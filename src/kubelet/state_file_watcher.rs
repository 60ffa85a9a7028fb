//! Reads the state files of the kubelet's managers, and again after each change.

use super::{MemoryStateFile, StateFile};
use crate::files;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CPU_FILE: &str = "cpu_manager_state";
const MEMORY_FILE: &str = "memory_manager_state";

/// The most bytes to read; a node of 256 pods needs some 30 KiB for CPUs, and as much for memory.
const MAX_BYTES: usize = 16 << 20;

/// The pause between two checks, each a `stat` of each file. The plugin notices a kubelet with a new
/// policy before its first pods come back.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// What is at a file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFileReading<F> {
    /// There is no file, or no access to it.
    Missing,
    StateFile(F),
    /// A file that cannot be read or is invalid. It may name a policy all the same.
    Bad {
        policy: Option<String>,
        why: String,
    },
}

/// The files in the kubelet's directory; `None` for one that has not changed since it was read last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletReading {
    pub cpus: Option<StateFileReading<StateFile>>,
    pub memory: Option<StateFileReading<MemoryStateFile>>,
}

impl KubeletReading {
    pub const MISSING: KubeletReading = KubeletReading {
        cpus: Some(StateFileReading::Missing),
        memory: Some(StateFileReading::Missing),
    };
}

impl From<StateFileReading<StateFile>> for KubeletReading {
    fn from(cpus: StateFileReading<StateFile>) -> KubeletReading {
        KubeletReading { cpus: Some(cpus), memory: None }
    }
}

#[derive(Debug)]
pub(crate) struct StateFileWatcher {
    cpus: WatchedFile,
    memory: WatchedFile,
}

#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    last_read: Option<FileIdentity>,
}

/// Device, inode, size, and the times of the last changes of content and inode. The kubelet replaces
/// its file, so the inode is new each time.
type FileIdentity = Result<(u64, u64, u64, [i64; 4]), io::ErrorKind>;

impl StateFileWatcher {
    pub(crate) fn new(kubelet_dir: &Path) -> StateFileWatcher {
        StateFileWatcher {
            cpus: WatchedFile { path: kubelet_dir.join(CPU_FILE), last_read: None },
            memory: WatchedFile { path: kubelet_dir.join(MEMORY_FILE), last_read: None },
        }
    }

    /// Reads the files that may have changed since they were read last; otherwise this costs one `stat`
    /// of each.
    pub(crate) fn read(&mut self) -> Option<KubeletReading> {
        let cpus = self.cpus.read(parse_cpus);
        let memory = self.memory.read(parse_memory);
        if cpus.is_none() && memory.is_none() {
            return None;
        }
        Some(KubeletReading { cpus, memory })
    }
}

impl WatchedFile {
    fn read<F>(&mut self, parse: fn(&[u8]) -> StateFileReading<F>) -> Option<StateFileReading<F>> {
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

fn parse_cpus(bytes: &[u8]) -> StateFileReading<StateFile> {
    match StateFile::parse(bytes) {
        Ok(file) => StateFileReading::StateFile(file),
        Err(error) => StateFileReading::Bad {
            policy: error.policy().map(str::to_owned),
            why: error.to_string(),
        },
    }
}

fn parse_memory(bytes: &[u8]) -> StateFileReading<MemoryStateFile> {
    match MemoryStateFile::parse(bytes) {
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

    const NO_MEMORY: &str = r#"{"policyName":"None","machineState":{},"checksum":0}"#;

    /// What a check reads of `cpu_manager_state`; `memory_manager_state` does not change.
    fn read_cpus(watch: &mut StateFileWatcher) -> Option<StateFileReading<StateFile>> {
        let KubeletReading { cpus, memory } = watch.read()?;
        assert_eq!(memory, None);
        cpus
    }

    #[test]
    fn a_file_is_read_again_only_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = StateFileWatcher::new(dir.path());
        assert_eq!(watch.read(), Some(KubeletReading::MISSING));
        assert_eq!(watch.read(), None);
        let path = dir.path().join(CPU_FILE);
        // Replaced as the kubelet does it, with a file of the same size.
        for _ in 0..2 {
            let new = dir.path().join("new");
            fs::write(&new, NONE).unwrap();
            fs::rename(&new, &path).unwrap();
            assert!(
                matches!(read_cpus(&mut watch), Some(StateFileReading::StateFile(state)) if state.policy == "none")
            );
            assert_eq!(watch.read(), None);
        }
        fs::write(&path, &NONE[1..]).unwrap();
        let bad = read_cpus(&mut watch);
        assert!(matches!(bad, Some(StateFileReading::Bad { policy: None, .. })));
        fs::remove_file(&path).unwrap();
        assert_eq!(read_cpus(&mut watch), Some(StateFileReading::Missing));
        fs::create_dir(&path).unwrap();
        assert!(
            matches!(read_cpus(&mut watch), Some(StateFileReading::Bad { why, .. }) if why == "a directory, not a regular file")
        );
    }

    #[test]
    fn the_two_files_change_independently() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = StateFileWatcher::new(dir.path());
        assert_eq!(watch.read(), Some(KubeletReading::MISSING));
        let path = dir.path().join(MEMORY_FILE);
        fs::write(&path, NO_MEMORY).unwrap();
        let Some(KubeletReading { cpus: None, memory: Some(read) }) = watch.read() else {
            panic!("only memory_manager_state has changed")
        };
        assert!(matches!(read, StateFileReading::StateFile(state) if state.policy == "None"));
        assert_eq!(watch.read(), None);
        fs::write(&path, NO_MEMORY.replace(":0}", ":12}")).unwrap();
        let Some(KubeletReading { cpus: None, memory: Some(read) }) = watch.read() else {
            panic!("only memory_manager_state has changed")
        };
        let policy = Some("None".to_owned());
        assert!(matches!(read, StateFileReading::Bad { policy: named, .. } if named == policy));
        fs::remove_file(&path).unwrap();
        let memory = Some(StateFileReading::Missing);
        assert_eq!(watch.read(), Some(KubeletReading { cpus: None, memory }));
    }

    #[test]
    fn a_missing_directory_is_no_error() {
        let mut watch = StateFileWatcher::new(Path::new("/nonexistent/kubelet"));
        assert_eq!(watch.read(), Some(KubeletReading::MISSING));
    }
}
