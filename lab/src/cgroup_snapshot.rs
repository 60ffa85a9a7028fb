//! A record of all cgroups of a node, and the differences between two records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{getxattr, listxattr};

/// Files about CPUs that a program can write, and the effective set.
const FILES: [&str; 7] = [
    CPUS,
    EFFECTIVE,
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
    "cpuset.mems",
    QUOTA,
    WEIGHT,
];
pub const CPUS: &str = "cpuset.cpus";
pub const EFFECTIVE: &str = "cpuset.cpus.effective";
pub const QUOTA: &str = "cpu.max";
pub const WEIGHT: &str = "cpu.weight";

/// Prefix of the names of extended attributes.
pub const ATTRIBUTE: &str = "attribute ";

/// Limit in bytes, for the names and for a value.
const MOST: usize = 4096;

/// All cgroups by path below the root of cgroup v2.
#[derive(Debug, Default)]
pub struct CgroupSnapshot(pub BTreeMap<String, CgroupContent>);

#[derive(Debug, Default)]
pub struct CgroupContent {
    /// Files and extended attributes.
    pub content: BTreeMap<String, String>,
    /// Whether processes run in it or below it.
    pub populated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference<'a> {
    /// A removed cgroup.
    Gone(&'a str),
    /// A new cgroup.
    New(&'a str),
    /// A file or an extended attribute; an empty string where it is missing.
    Content { group: &'a str, key: &'a str, before: &'a str, after: &'a str },
}

impl std::fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone(group) => write!(f, "{group} is gone"),
            Self::New(group) => write!(f, "{group} is new"),
            Self::Content { group, key, before, after } => {
                write!(f, "{group}: {key} was {before:?} and is {after:?}")
            }
        }
    }
}

impl CgroupSnapshot {
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, "")?;
        Ok(tree)
    }

    fn add(&mut self, root: &Path, path: &str) -> Result<()> {
        let directory = root.join(path);
        let Ok(entries) = fs::read_dir(&directory) else { return Ok(()) };
        self.0.insert(path.to_owned(), CgroupContent::read(&directory)?);
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name();
            let name = name.to_str().context("a cgroup name is not UTF-8")?;
            self.add(root, Path::new(path).join(name).to_str().unwrap_or(name))?;
        }
        Ok(())
    }

    pub fn differences<'a>(&'a self, after: &'a Self) -> Vec<Difference<'a>> {
        let mut differences = Vec::new();
        for (path, group) in &self.0 {
            match after.0.get(path) {
                Some(other) => differences.extend(group.differences(path, other)),
                None => differences.push(Difference::Gone(path)),
            }
        }
        let new = after.0.keys().filter(|path| !self.0.contains_key(*path));
        differences.extend(new.map(|path| Difference::New(path)));
        differences
    }
}

impl CgroupContent {
    fn read(directory: &Path) -> Result<Self> {
        let mut content = BTreeMap::new();
        for file in FILES {
            // A disabled controller has no files.
            if let Ok(text) = fs::read_to_string(directory.join(file)) {
                content.insert(file.to_owned(), text.trim().to_owned());
            }
        }
        content.extend(attributes(directory)?);
        let events = fs::read_to_string(directory.join("cgroup.events")).unwrap_or_default();
        Ok(Self { content, populated: events.lines().any(|line| line == "populated 1") })
    }

    /// Compares with another cgroup, or with this one later.
    pub fn differences<'a>(
        &'a self,
        group: &'a str,
        after: &'a Self,
    ) -> impl Iterator<Item = Difference<'a>> {
        let new = after.content.keys().filter(|key| !self.content.contains_key(*key));
        let all = self.content.keys().chain(new);
        all.map(move |key| Difference::Content {
            group,
            key,
            before: self.value(key),
            after: after.value(key),
        })
        .filter(|one| !matches!(one, Difference::Content { before, after, .. } if before == after))
    }

    /// What a file content; empty where it is not there.
    pub fn value(&self, file: &str) -> &str {
        self.content.get(file).map_or("", String::as_str)
    }
}

fn attributes(directory: &Path) -> Result<BTreeMap<String, String>> {
    let mut names = [0; MOST];
    let length = match listxattr(directory, &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot list the attributes of {}", directory.display()));
        }
    };
    let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let mut attributes = BTreeMap::new();
    for name in names.filter(|name| !name.is_empty()) {
        let mut value = [0; MOST];
        let length = getxattr(directory, name, &mut value).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let value = text(value.get(..length).unwrap_or_default());
        attributes.insert(format!("{ATTRIBUTE}{}", text(name)), value);
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/cpuset.cpus", "\n");
        write("a/b/cpu.max", "max 100000\n");
        write("c/cpu.weight", "100\n");
        write("a/cgroup.events", "populated 1\nfrozen 0\n");
        let before = CgroupSnapshot::read(root.path()).unwrap();
        assert_eq!(before.differences(&before), []);
        assert!(before.0["a"].populated && !before.0["a/b"].populated);
        write("a/cpuset.cpus", "0-3\n");
        write("a/b/cpu.max", "100000 100000\n");
        write("a/b/cpuset.mems", "0\n");
        write("d/e/cpu.max", "max 100000\n");
        write("a/memory.max", "1\n");
        fs::remove_dir_all(root.path().join("c")).unwrap();
        let after = CgroupSnapshot::read(root.path()).unwrap();
        let differences: Vec<String> =
            before.differences(&after).iter().map(ToString::to_string).collect();
        assert_eq!(
            differences,
            [
                "a: cpuset.cpus was \"\" and is \"0-3\"",
                "a/b: cpu.max was \"max 100000\" and is \"100000 100000\"",
                "a/b: cpuset.mems was \"\" and is \"0\"",
                "c is gone",
                "d is new",
                "d/e is new",
            ]
        );
    }
}
