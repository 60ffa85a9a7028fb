//! A ConfigMap's files, as the kubelet lays them out for a mount and changes them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes the files (name and content): a new directory is filled, then the link `..data` is
/// renamed over the old one, so that a reader sees all of it or nothing. Each file's own name is a
/// link through `..data`.
pub fn write<'a>(mount: &Path, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
    let number = fs::read_dir(mount).map_or(0, |entries| entries.count());
    let version = format!("..{number}");
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(mount.join(&version))?;
        let mut names = Vec::new();
        for (name, content) in files {
            fs::write(mount.join(&version).join(name), content)?;
            names.push(name);
        }
        symlink(&version, mount.join("..data_tmp"))?;
        fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
        for name in names {
            match symlink(Path::new("..data").join(name), mount.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write a ConfigMap's files to {}", mount.display()))
}
