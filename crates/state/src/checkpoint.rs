//! The state file: exclusive CPUs and counted memory, with their containers, and containers on the CPUs of others.
//!
//! The file has only what cannot be derived, and what is set on running containers overrides it.
//! Each write replaces the whole file atomically: a crash at any moment leaves the old one or the
//! new one. The plugin recognises a damaged file by its version and checksum, renames it for
//! inspection, and starts without it.

use crate::disk::{Disk, Stalled};
use crate::files::{self, Inode};
use cpuset::{CpuSet, MAX_NODES, NodeSet};
use ledger::{
    Claim, ContainerId, CpuRequest, Ledger, LeftAlone, Margin, MemoryClaim, MilliCpu, PodUid,
};
use placement::memory_manager::{self, Amounts, MemoryKind};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The format that this version writes; it reads no other.
pub const VERSION: u32 = 1;

/// The state file's name in its directory.
pub const FILE: &str = "checkpoint.json";
const NEW_FILE: &str = "checkpoint.json.new";
const LOCK: &str = "lock";

/// A larger file is not one that this program has written: a claim takes a few hundred bytes, and a
/// node has fewer than 2,048 of either kind.
const MAX_BYTES: usize = 2 << 20;

/// What the state file has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SavedClaims {
    pub cpus: Vec<Claim>,
    pub memory: Vec<MemoryClaim>,
    /// Containers on CPUs that another program has set. The runtime's list does not say who set CPUs.
    pub left_alone: HashMap<ContainerId, LeftAlone>,
    /// No process has assigned CPUs on this node: all have observed.
    pub installing: bool,
}

impl SavedClaims {
    pub fn of(ledger: &Ledger) -> SavedClaims {
        SavedClaims {
            cpus: ledger.claims().collect(),
            memory: ledger.memory_claims().collect(),
            left_alone: ledger.left_alone().map(|(id, why)| (id.clone(), why)).collect(),
            installing: ledger.is_installing(),
        }
    }
}

impl From<Vec<Claim>> for SavedClaims {
    fn from(cpus: Vec<Claim>) -> SavedClaims {
        SavedClaims { cpus, ..SavedClaims::default() }
    }
}

/// The directory that holds the state file, locked for this process.
#[derive(Debug)]
pub struct StateDir {
    dir: PathBuf,
    disk: Disk,
    inode: Inode,
    /// The directory itself, which nobody can replace without giving up its name, and the file [`LOCK`], for file
    /// systems that lock no directories. The kernel releases both locks when the process ends, however it ends.
    _locks: [File; 2],
}

/// Whether the path still names this directory. A mount also shows a directory that was removed elsewhere: that
/// has no links.
fn is_at(inode: Inode, path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Inode::of(&metadata) == inode && metadata.nlink() > 0),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "cannot {action} {path}: {source}. The plugin stores its state there: make it writable for this user, or set another directory with --state-dir"
    )]
    Unusable { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {stalled}", dir.display())]
    Stalled { dir: PathBuf, stalled: Stalled },
    #[error(
        "the state directory {} belongs to user {owner}, and this process runs as user {user}: change its owner, or set another directory with --state-dir",
        dir.display()
    )]
    Foreign { dir: PathBuf, owner: u32, user: u32 },
    #[error(
        "the state directory {} was removed or replaced while this instance used it, and {why}. This instance ends; containers keep their CPUs",
        dir.display()
    )]
    Lost { dir: PathBuf, why: &'static str },
    #[error(
        "another nri-cpu-manager uses the state directory {dir}. Stop it first, or set another --state-dir if it serves another runtime"
    )]
    Locked { dir: PathBuf },
}

/// Why the state file of another process cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {why}", path.display())]
pub struct FileError {
    path: PathBuf,
    why: String,
}

/// The claims in the file of a plugin that may be running; `None` if there is no file.
pub fn read(state_dir: &Path) -> Result<Option<SavedClaims>, FileError> {
    let path = state_dir.join(FILE);
    let claims = match files::read_regular(&path, MAX_BYTES) {
        Ok(bytes) => decode(&bytes).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    claims.map_err(|why| FileError { path, why })
}

/// The state file at the start.
#[derive(Debug, PartialEq, Eq)]
pub enum Loaded {
    /// This is the first start, or the file was deleted.
    Missing,
    Claims(SavedClaims),
    /// The file is damaged, of another version, or not written by this program.
    Rejected {
        why: String,
        /// Its new path; `None` if the rename failed and the next write replaces it.
        kept_at: Option<PathBuf>,
    },
}

impl StateDir {
    /// Makes a missing directory, makes it private to this user, checks that it is writable, and locks
    /// it. `disk` does all later writes.
    pub fn open(dir: &Path, disk: &Disk) -> Result<StateDir, StateError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| unusable("create the directory", dir, source))?;
        make_private(dir)?;
        let directory = File::open(dir).map_err(|source| unusable("open", dir, source))?;
        let is_locked = || StateError::Locked { dir: dir.to_owned() };
        // A file system that locks no directories leaves this to the file.
        if let Err(TryLockError::WouldBlock) = directory.try_lock() {
            return Err(is_locked());
        }
        let path = dir.join(LOCK);
        let file = open_regular(&path).map_err(|source| unusable("write", &path, source))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => is_locked(),
            TryLockError::Error(source) => unusable("lock", &path, source),
        })?;
        let metadata = directory.metadata().map_err(|source| unusable("read", dir, source))?;
        Ok(StateDir {
            dir: dir.to_owned(),
            disk: disk.clone(),
            inode: Inode::of(&metadata),
            _locks: [directory, file],
        })
    }

    /// Whether another process has this directory: [`StateDir::open`] would fail.
    pub fn is_locked(dir: &Path) -> bool {
        let mut files = [File::open(dir), open_regular(&dir.join(LOCK))].into_iter().flatten();
        files.any(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// For everything else that is written into the directory.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Reads the state file. It renames a damaged one and never deletes it.
    pub fn load(&self) -> Result<Loaded, StateError> {
        let path = self.dir.join(FILE);
        let claims = match files::read_regular(&path, MAX_BYTES) {
            Ok(bytes) => decode(&bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Loaded::Missing),
            Err(error) if files::is_wrong_file(&error) => Err(error.to_string()),
            Err(source) => return Err(unusable("read", &path, source)),
        };
        Ok(match claims {
            Ok(claims) => Loaded::Claims(claims),
            Err(why) => {
                let seconds =
                    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
                let aside = self.dir.join(format!("{FILE}.rejected-{seconds}"));
                let kept_at = fs::rename(&path, &aside).ok().map(|()| aside);
                Loaded::Rejected { why, kept_at }
            }
        })
    }

    /// The claims of the last process; `None` without a state file, which is normal. A damaged one logs an error.
    pub fn remembered(&self) -> Result<Option<SavedClaims>, StateError> {
        Ok(match self.load()? {
            Loaded::Missing => {
                log::info!(
                    "checkpoint: none (first start, or deleted): adopting what running containers have"
                );
                None
            }
            Loaded::Claims(claims) => {
                log::info!(
                    "checkpoint: read (claims={} memory={})",
                    claims.cpus.len(),
                    claims.memory.len()
                );
                Some(claims)
            }
            Loaded::Rejected { why, kept_at } => {
                let place = kept_at
                    .map_or_else(String::new, |path| format!(", kept as {}", path.display()));
                log::error!(
                    "checkpoint: cannot be used{place}: {why}. Adopting what running containers have"
                );
                Some(SavedClaims::default())
            }
        })
    }

    /// The directory whose disk does not respond, and for how long.
    pub fn stalled(&self) -> Option<String> {
        Some(format!("{}: {}", self.dir.display(), self.disk.stalled()?))
    }

    /// Replaces the state file. After the return the new one is on disk; after an error, the old one
    /// is, or will be replaced as soon as the disk responds. Blocks.
    ///
    /// # Errors
    /// [`StateError::Lost`] if the path no longer names the directory that this process has locked: see
    /// [`StateDir::reopen`].
    pub fn save(&self, claims: &SavedClaims) -> Result<(), StateError> {
        let new = self.dir.join(NEW_FILE);
        let bytes = encode(claims).map_err(|source| unusable("write", &new, source))?;
        let dir = self.dir.clone();
        let inode = self.inode;
        let written = self.disk.run(move || {
            if !is_at(inode, &dir)? {
                return Ok(false);
            }
            let new = dir.join(NEW_FILE);
            files::create_new(&new, 0o600)
                .and_then(|mut file| {
                    file.write_all(&bytes)?;
                    file.sync_all()
                })
                .and_then(|()| fs::rename(&new, dir.join(FILE)))
                .and_then(|()| File::open(&dir)?.sync_all())
                .map(|()| true)
        });
        match written {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.lost("it is used no longer")),
            Ok(Err(source)) => Err(unusable("write", &new, source)),
            Err(stalled) => Err(StateError::Stalled { dir: self.dir.clone(), stalled }),
        }
    }

    /// Locks the directory that has the path now; makes it if there is none. Blocks.
    ///
    /// # Errors
    /// [`StateError::Lost`] if this process can never have it.
    pub fn reopen(&self) -> Result<StateDir, StateError> {
        let dir = self.dir.clone();
        let disk = self.disk.clone();
        let inode = self.inode;
        let reopened = self.disk.run(move || {
            let is_mounted = fs::metadata(&dir).is_ok_and(|metadata| Inode::of(&metadata) == inode);
            if is_mounted { None } else { Some(StateDir::open(&dir, &disk)) }
        });
        match reopened {
            Ok(None) => Err(self.lost("its mount shows no other: a new container mounts it again")),
            Ok(Some(Err(StateError::Locked { .. }))) => {
                Err(self.lost("another instance has the new one"))
            }
            Ok(Some(opened)) => opened,
            Err(stalled) => Err(StateError::Stalled { dir: self.dir.clone(), stalled }),
        }
    }

    fn lost(&self, why: &'static str) -> StateError {
        StateError::Lost { dir: self.dir.clone(), why }
    }
}

/// The kubelet makes a missing `hostPath` directory readable for all users.
fn make_private(dir: &Path) -> Result<(), StateError> {
    let metadata = fs::metadata(dir).map_err(|source| unusable("read", dir, source))?;
    let user = geteuid().as_raw();
    if metadata.uid() != user {
        return Err(StateError::Foreign { dir: dir.to_owned(), owner: metadata.uid(), user });
    }
    if metadata.mode() & 0o7777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))
            .map_err(|source| unusable("set the mode 0700 of", dir, source))?;
    }
    Ok(())
}

/// A new or existing file to write. Opening it for both directions does not wait for the other end of
/// a FIFO.
fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    files::check_regular(&file.metadata()?)?;
    Ok(file)
}

fn unusable(action: &'static str, path: &Path, source: io::Error) -> StateError {
    StateError::Unusable { action, path: path.to_owned(), source }
}

/// The outer format, which every later version can read.
#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    version: u32,
    /// CRC-32 (IEEE) of the bytes of `state`, as eight hexadecimal digits.
    checksum: String,
    #[serde(borrow)]
    state: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct StoredState {
    containers: Vec<StoredClaim>,
    memory: Vec<StoredMemory>,
    /// The word of [`LeftAlone::name`] by the container's id.
    left_alone: BTreeMap<String, String>,
    /// Absent in files of processes that did not know it, which counts as false.
    #[serde(default)]
    installing: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredClaim {
    pod_uid: String,
    namespace: String,
    pod: String,
    container: String,
    id: String,
    cpus: String,
    /// Whether the SMT siblings of `cpus` stay idle.
    idle_siblings: bool,
    /// Whether the rest of their uncore caches stays idle.
    idle_caches: bool,
    /// Whether it uses shared CPUs in addition.
    mixed: bool,
    /// Whether its container has ended and lends them.
    lent: bool,
    request_millicpu: Option<u64>,
    limit_millicpu: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredMemory {
    pod_uid: String,
    container: String,
    nodes: String,
    /// Bytes, by Kubernetes' name of the type.
    amounts: BTreeMap<String, u64>,
}

impl StoredClaim {
    fn of(claim: &Claim) -> StoredClaim {
        StoredClaim {
            pod_uid: claim.pod_uid.0.to_string(),
            namespace: claim.namespace.clone(),
            pod: claim.pod.clone(),
            container: claim.container.clone(),
            id: claim.id.0.to_string(),
            cpus: claim.cpus.to_string(),
            idle_siblings: claim.margin.siblings,
            idle_caches: claim.margin.caches,
            mixed: claim.mixed,
            lent: claim.lent,
            request_millicpu: claim.cpu.request.map(|milli| milli.0),
            limit_millicpu: claim.cpu.limit.map(|milli| milli.0),
        }
    }

    fn into_claim(self) -> Result<Claim, String> {
        let cpus: CpuSet = self.cpus.parse().map_err(invalid)?;
        Ok(Claim {
            pod_uid: PodUid(self.pod_uid.into()),
            namespace: self.namespace,
            pod: self.pod,
            container: self.container,
            id: ContainerId(self.id.into()),
            cpus,
            margin: Margin { siblings: self.idle_siblings, caches: self.idle_caches },
            mixed: self.mixed,
            lent: self.lent,
            cpu: CpuRequest {
                request: self.request_millicpu.map(MilliCpu),
                limit: self.limit_millicpu.map(MilliCpu),
            },
        })
    }
}

impl StoredMemory {
    fn of(MemoryClaim { pod_uid, container, memory }: &MemoryClaim) -> StoredMemory {
        let amounts = memory.amounts.iter();
        StoredMemory {
            pod_uid: pod_uid.0.to_string(),
            container: container.clone(),
            nodes: memory.nodes.to_string(),
            amounts: amounts.map(|(kind, bytes)| (kind.to_string(), *bytes)).collect(),
        }
    }

    fn into_claim(self) -> Result<MemoryClaim, String> {
        let mut amounts = Amounts::new();
        for (name, bytes) in self.amounts {
            let kind: MemoryKind = name.parse().map_err(invalid)?;
            amounts.insert(kind, bytes);
        }
        let nodes = read_nodes(&self.nodes)?;
        let memory = memory_manager::NodeMemoryClaim { nodes, amounts };
        Ok(MemoryClaim { pod_uid: PodUid(self.pod_uid.into()), container: self.container, memory })
    }
}

/// The kernel writes sets of NUMA nodes as it writes sets of CPUs.
fn read_nodes(list: &str) -> Result<NodeSet, String> {
    let numbers: CpuSet = list.parse().map_err(invalid)?;
    if let Some(node) = numbers.iter().find(|node| *node >= MAX_NODES) {
        return Err(invalid(format!("NUMA node {node}, but node numbers are below {MAX_NODES}")));
    }
    if numbers.is_empty() {
        return Err(invalid("memory on no NUMA node"));
    }
    Ok(numbers.iter().collect())
}

fn invalid(error: impl Display) -> String {
    format!("invalid content ({error})")
}

/// The file's content for these claims.
pub fn encode(claims: &SavedClaims) -> io::Result<Vec<u8>> {
    let state = StoredState {
        containers: claims.cpus.iter().map(StoredClaim::of).collect(),
        memory: claims.memory.iter().map(StoredMemory::of).collect(),
        left_alone: claims
            .left_alone
            .iter()
            .map(|(id, why)| (id.to_string(), why.name().to_owned()))
            .collect(),
        installing: claims.installing,
    };
    let state = serde_json::to_string(&state).and_then(RawValue::from_string)?;
    let envelope = Envelope { version: VERSION, checksum: checksum(&state), state: &state };
    let mut bytes = serde_json::to_vec(&envelope)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The claims in a file's content, or what is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<SavedClaims, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Err("empty or all zeros: the machine went down while it was written".to_owned());
    }
    let version = serde_json::from_slice::<VersionOnly>(bytes)
        .map_err(|error| format!("truncated, or not a state file of nri-cpu-manager ({error})"))?;
    if version.version != VERSION {
        return Err(format!(
            "format version {}, but this program reads version {VERSION}",
            version.version
        ));
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(bytes).map_err(|error| format!("damaged ({error})"))?;
    let actual = checksum(envelope.state);
    if actual != envelope.checksum {
        return Err(format!(
            "damaged: its checksum is {actual}, not {} as recorded",
            envelope.checksum
        ));
    }
    let state: StoredState = serde_json::from_str(envelope.state.get()).map_err(invalid)?;
    let cpus = state.containers.into_iter().map(StoredClaim::into_claim);
    let memory = state.memory.into_iter().map(StoredMemory::into_claim);
    let left_alone = state.left_alone.into_iter().map(|(id, word)| {
        let why = LeftAlone::ALL.into_iter().find(|why| why.name() == word);
        let why = why.ok_or_else(|| invalid(format!("left_alone: {word:?}")))?;
        Ok((ContainerId(id.into()), why))
    });
    Ok(SavedClaims {
        cpus: cpus.collect::<Result<_, _>>()?,
        memory: memory.collect::<Result<_, _>>()?,
        left_alone: left_alone.collect::<Result<_, String>>()?,
        installing: state.installing,
    })
}

/// The part to read first: nothing else is known of a later format.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

fn checksum(state: &RawValue) -> String {
    format!("{:08x}", crc32fast::hash(state.get().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsRawFd;

    fn claims() -> SavedClaims {
        let claim = |name: &str, cpus: &str| Claim {
            pod_uid: PodUid(format!("uid-{name}").into()),
            namespace: "default".to_owned(),
            pod: name.to_owned(),
            container: "c \"quoted\"".to_owned(),
            id: ContainerId(format!("id-{name}").into()),
            cpus: cpus.parse().unwrap(),
            margin: Margin { siblings: name == "b", caches: name == "a" },
            mixed: name == "c",
            lent: name == "b",
            cpu: CpuRequest { request: Some(MilliCpu(4000)), limit: None },
        };
        let of_c = memory_manager::NodeMemoryClaim {
            nodes: [0, 127].into_iter().collect(),
            amounts: Amounts::from([
                (MemoryKind::Memory, 3 << 30),
                (MemoryKind::HugePages(2 << 20), 1 << 30),
            ]),
        };
        SavedClaims {
            cpus: vec![claim("a", "2-5"), claim("b", "8-17,2047")],
            memory: vec![MemoryClaim {
                pod_uid: PodUid("uid-c".into()),
                container: "c \"quoted\"".to_owned(),
                memory: of_c,
            }],
            left_alone: [(ContainerId("id-d".into()), LeftAlone::Unexplained)].into(),
            installing: true,
        }
    }

    /// A file with this state and the right checksum.
    fn sealed(state: &str) -> String {
        let sum = checksum(&RawValue::from_string(state.to_owned()).unwrap());
        format!(r#"{{"version":1,"checksum":"{sum}","state":{state}}}"#)
    }

    fn state_dir() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state"), &Disk::start().unwrap()).unwrap();
        (dir, state)
    }

    #[test]
    fn a_load_returns_what_was_saved() {
        let (_dir, state) = state_dir();
        assert_eq!(state.load().unwrap(), Loaded::Missing);
        state.save(&claims()).unwrap();
        assert_eq!(state.load().unwrap(), Loaded::Claims(claims()));
        state.save(&SavedClaims::default()).unwrap();
        assert_eq!(state.load().unwrap(), Loaded::Claims(SavedClaims::default()));
    }

    #[test]
    fn every_field_is_written() {
        let text = String::from_utf8(encode(&claims()).unwrap()).unwrap();
        let claim = concat!(
            r#"{"pod_uid":"uid-b","namespace":"default","pod":"b","container":"c \"quoted\"","#,
            r#""id":"id-b","cpus":"8-17,2047","idle_siblings":true,"idle_caches":false,"#,
            r#""mixed":false,"lent":true,"request_millicpu":4000,"limit_millicpu":null}"#
        );
        let memory = concat!(
            r#""memory":[{"pod_uid":"uid-c","container":"c \"quoted\"","nodes":"0,127","#,
            r#""amounts":{"hugepages-2Mi":1073741824,"memory":3221225472}}],"#,
            r#""left_alone":{"id-d":"unexplained"}"#
        );
        assert!(text.contains(claim) && text.contains(memory), "{text}");
        let text = String::from_utf8(encode(&SavedClaims::default()).unwrap()).unwrap();
        assert!(
            text.contains(
                r#""state":{"containers":[],"memory":[],"left_alone":{},"installing":false}"#
            ),
            "{text}"
        );
    }

    #[test]
    fn a_missing_field_is_named_and_an_unknown_one_is_ignored() {
        let claim = r#"{"pod_uid":"u","namespace":"n","pod":"b","container":"c","id":"i","cpus":"2-3","idle_siblings":true,"idle_caches":false,"mixed":false,"lent":false,"later":1}"#;
        let state =
            format!(r#"{{"containers":[{claim}],"memory":[],"left_alone":{{}},"later":[]}}"#);
        let [read] = &decode(sealed(&state).as_bytes()).unwrap().cpus[..] else { panic!() };
        assert_eq!(read.margin, Margin { siblings: true, ..Margin::NONE });
        for field in [
            "\"idle_siblings\":true,",
            "\"idle_caches\":false,",
            "\"mixed\":false,",
            "\"lent\":false,",
        ] {
            let name = field.split('"').nth(1).unwrap();
            let why = decode(sealed(&state.replace(field, "")).as_bytes()).unwrap_err();
            assert!(why.contains(&format!("missing field `{name}`")), "{why}");
        }
        for (state, expect) in [
            (r#"{"containers":[]}"#, "missing field `memory`"),
            (r#"{"containers":[],"memory":[]}"#, "missing field `left_alone`"),
            (
                r#"{"containers":[],"memory":[],"left_alone":{"c":"kubelet"}}"#,
                "left_alone: \"kubelet\"",
            ),
        ] {
            let why = decode(sealed(state).as_bytes()).unwrap_err();
            assert!(why.contains(expect), "{why}");
        }
    }

    #[test]
    fn memory_on_unknown_nodes_or_of_unknown_types_is_rejected() {
        for (nodes, amounts, expect) in [
            ("128", r#"{"memory":1}"#, "NUMA node 128"),
            ("", r#"{"memory":1}"#, "memory on no NUMA node"),
            ("0,x", r#"{"memory":1}"#, "invalid content"),
            ("0", r#"{"hugepages":1}"#, "neither memory nor hugepages-SIZE"),
            ("0", r#"{"memory":-1}"#, "invalid content"),
        ] {
            let state = format!(
                r#"{{"containers":[],"memory":[{{"pod_uid":"u","container":"c","nodes":"{nodes}","amounts":{amounts}}}],"left_alone":{{}}}}"#
            );
            let why = decode(sealed(&state).as_bytes()).unwrap_err();
            assert!(why.contains(expect), "{state}: {why}");
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let bytes = encode(&claims()).unwrap();
        for length in 0..bytes.len() - 1 {
            assert!(decode(&bytes[..length]).is_err(), "cut to {length} bytes");
        }
    }

    #[test]
    fn a_bad_file_is_renamed_and_not_used() {
        let (_dir, state) = state_dir();
        for (content, expect) in [
            ("", "empty"),
            ("\0\0\0", "zeros"),
            ("{\"policyName\":\"static\",\"checksum\":1}", "not a state file"),
            ("{\"version\":2,\"shape\":\"of things to come\"}", "version 2"),
            ("{\"version\":1,\"checksum\":\"00000000\",\"state\":{\"containers\":[]}}", "damaged"),
            ("{\"version\":1}", "damaged"),
        ] {
            fs::write(state.dir.join(FILE), content).unwrap();
            let Loaded::Rejected { why, kept_at } = state.load().unwrap() else {
                panic!("{content:?} was accepted")
            };
            assert!(why.contains(expect), "{content:?}: {why}");
            assert_eq!(fs::read_to_string(kept_at.unwrap()).unwrap(), content);
            assert_eq!(state.load().unwrap(), Loaded::Missing);
        }
    }

    #[test]
    fn a_second_instance_is_refused() {
        let (_dir, state) = state_dir();
        assert!(matches!(
            StateDir::open(&state.dir, &Disk::start().unwrap()),
            Err(StateError::Locked { .. })
        ));
        let dir = state.dir.clone();
        // The lock of the directory itself remains.
        fs::remove_file(dir.join(LOCK)).unwrap();
        assert!(StateDir::is_locked(&dir));
        let second = StateDir::open(&dir, &Disk::start().unwrap());
        assert!(matches!(second, Err(StateError::Locked { .. })));
        drop(state);
        StateDir::open(&dir, &Disk::start().unwrap()).unwrap();
    }

    #[test]
    fn a_directory_that_is_lost_is_noticed_and_reopened_if_nobody_else_has_it() {
        for is_moved in [true, false] {
            let (root, state) = state_dir();
            state.save(&claims()).unwrap();
            if is_moved {
                fs::rename(&state.dir, root.path().join("elsewhere")).unwrap();
            } else {
                fs::remove_dir_all(&state.dir).unwrap();
            }
            let lost = |result: Result<_, StateError>| {
                let Err(StateError::Lost { why, .. }) = result else { panic!("{result:?}") };
                why
            };
            lost(state.save(&claims()));
            assert!(!state.dir.exists());
            let other = StateDir::open(&state.dir, &state.disk).unwrap();
            lost(state.save(&claims()));
            assert_eq!(lost(state.reopen().map(drop)), "another instance has the new one");
            assert_eq!(other.load().unwrap(), Loaded::Missing);
            drop(other);
            let new = state.reopen().unwrap();
            new.save(&claims()).unwrap();
            assert_eq!(new.load().unwrap(), Loaded::Claims(claims()));
        }
    }

    #[test]
    fn a_directory_that_only_a_mount_shows_cannot_be_reopened() {
        let (_root, mut state) = state_dir();
        // As a mount does, this path names a directory without a name.
        let directory = File::open(&state.dir).unwrap();
        state.dir = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        fs::remove_dir_all(state.dir.read_link().unwrap()).unwrap();
        assert!(matches!(state.save(&claims()), Err(StateError::Lost { .. })));
        let error = state.reopen().unwrap_err().to_string();
        assert!(error.contains("its mount shows no other"), "{error}");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let (_dir, state) = state_dir();
        state.save(&claims()).unwrap();
        fs::create_dir(state.dir.join(NEW_FILE)).unwrap();
        let error = state.save(&SavedClaims::default()).unwrap_err().to_string();
        assert!(error.contains("checkpoint.json.new") && error.contains("--state-dir"), "{error}");
        assert_eq!(state.load().unwrap(), Loaded::Claims(claims()));
    }

    #[test]
    fn others_can_neither_read_nor_write() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, state) = state_dir();
        state.save(&claims()).unwrap();
        for path in [state.dir.clone(), state.dir.join(FILE), state.dir.join(LOCK)] {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o077,
                0,
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn a_directory_that_the_kubelet_has_made_becomes_private() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1755)).unwrap();
        let state = StateDir::open(dir.path(), &Disk::start().unwrap()).unwrap();
        assert_eq!(fs::metadata(&state.dir).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_directory_of_another_user_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let nobody = 65534;
        // Only root can give a directory away, and root owns this one.
        let dir = match std::os::unix::fs::chown(dir.path(), Some(nobody), None) {
            Ok(()) => dir.path(),
            Err(_) => Path::new("/"),
        };
        let owner = fs::metadata(dir).unwrap().uid();
        let user = geteuid().as_raw();
        let error = StateDir::open(dir, &Disk::start().unwrap()).unwrap_err().to_string();
        let expect = format!("belongs to user {owner}, and this process runs as user {user}");
        assert!(error.contains(&expect) && error.contains("--state-dir"), "{error}");
    }

    #[test]
    fn a_fifo_or_device_is_renamed_and_never_blocks() {
        let (_dir, state) = state_dir();
        let make_fifo = |path: &Path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        };
        let fifo = state.dir.join(FILE);
        make_fifo(&fifo);
        assert!(super::read(&state.dir).unwrap_err().to_string().contains("a FIFO"));
        let Loaded::Rejected { why, kept_at: Some(_) } = state.load().unwrap() else { panic!() };
        assert_eq!(why, "a FIFO, not a regular file");
        std::os::unix::fs::symlink("/dev/zero", &fifo).unwrap();
        make_fifo(&state.dir.join(NEW_FILE));
        let Loaded::Rejected { why, .. } = state.load().unwrap() else { panic!() };
        assert_eq!(why, "a device, not a regular file");
        state.save(&claims()).unwrap();
        assert_eq!(state.load().unwrap(), Loaded::Claims(claims()));

        let dir = state.dir.clone();
        drop(state);
        fs::remove_file(dir.join(LOCK)).unwrap();
        make_fifo(&dir.join(LOCK));
        let error = StateDir::open(&dir, &Disk::start().unwrap()).unwrap_err().to_string();
        assert!(error.contains("lock: a FIFO, not a regular file"), "{error}");
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed_or_harmless(at in 0..1200usize, byte: u8) {
            let mut bytes = encode(&claims()).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(found) = decode(&bytes) {
                prop_assert_eq!(found, claims());
            }
        }

        #[test]
        fn any_bytes_are_a_state_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
