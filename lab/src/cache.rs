//! Fetched and built files, in `target/lab` of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use crate::files;

/// The repository this crate was built from.
pub fn repository() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.parent().unwrap_or(lab).to_path_buf()
}

pub fn directory(name: &str) -> Result<PathBuf> {
    let path = repository().join("target/lab").join(name);
    files::make_directory(&path)?;
    Ok(path)
}

/// A name that identifies this content.
pub fn fingerprint(content: &str) -> String {
    Sha256::digest(content).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Held while one process uses a part of the lab.
#[derive(Debug)]
pub struct Lock(
    #[allow(dead_code, reason = "held, never read: dropping it releases the lock")] Flock<fs::File>,
);

/// Waits for a lock of this copy of the repository. It is released when the value is dropped or the
/// process ends.
pub fn lock(name: &str) -> Result<Lock> {
    lock_file(&directory("locks")?.join(name))
}

/// As [`lock`], for any file: shared with other copies of the repository.
pub fn lock_file(path: &Path) -> Result<Lock> {
    hold(path, FlockArg::LockExclusive)
}

/// As [`lock_file`], but shared.
pub fn lock_file_with_others(path: &Path) -> Result<Lock> {
    hold(path, FlockArg::LockShared)
}

fn hold(path: &Path, kind: FlockArg) -> Result<Lock> {
    let file = fs::File::create(path)
        .with_context(|| format!("cannot create the lock file {}", path.display()))?;
    match Flock::lock(file, kind) {
        Ok(lock) => Ok(Lock(lock)),
        Err((_, errno)) => Err(errno).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Creates `path` once. `make` writes a temporary file or directory next to it, which is renamed
/// when it is complete, so that an interrupted run leaves nothing partial.
pub fn once(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".partial-{name}"));
    remove(&partial)?;
    if let Some(parent) = path.parent() {
        files::make_directory(parent)?;
    }
    make(&partial)?;
    fs::rename(&partial, path).with_context(|| format!("cannot rename {}", partial.display()))
}

/// A missing file is not an error.
pub fn remove(path: &Path) -> Result<()> {
    let result = if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
