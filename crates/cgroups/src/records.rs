//! [`CgroupRecords`]: the values that this program wrote into cgroups, and the values before.
//!
//! After a restart it distinguishes this program's values from those of others, and it allows an undo.
//! It is a text ([`RecordFile`]) that is replaced before each batch of writes. It is valid for one
//! boot, as no cgroup outlives it. If it is lost, a value that this program would write anyway counts
//! as its own, and any other value as another program's.

use cpuset::{CgroupPath, CpuSet};
use kernel::{Kernel, RecordFile};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const EXCLUSIVE: &str = "exclusive";
const FORMAT: &str = "cgroups 1";

/// The default has no file, and ends with the process.
#[derive(Debug, Clone, Default)]
pub struct CgroupRecords {
    file: Option<Arc<dyn RecordFile>>,
    /// The first line: program, format and boot id.
    title: String,
    groups: BTreeMap<CgroupPath, CgroupRecord>,
    unsaved: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CgroupRecord {
    /// What another program had set; empty if nothing.
    pub(super) before: CpuSet,
    /// Values of this program. While a plan is carried out, and after a crash, any may be in force.
    pub(super) ours: Vec<CpuSet>,
    /// The CFS quota before it was lifted.
    pub(super) quota: Option<String>,
    /// Whether this program has set its `cpuset.cpus.exclusive`.
    pub(super) exclusive: bool,
}

impl CgroupRecords {
    /// Reads what `program` has recorded during this boot. `processes` is usually `/proc`, which
    /// has the boot id.
    pub fn open(
        file: Arc<dyn RecordFile>,
        program: &str,
        kernel: &dyn Kernel,
        processes: &Path,
    ) -> CgroupRecords {
        let boot = kernel.text(&processes.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let title = format!("{program} {FORMAT} {boot}");
        let groups = match file.read() {
            Ok(bytes) => parse(&String::from_utf8_lossy(&bytes), &title),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    log::warn!("cannot read {}: {error}; it is replaced", file.path().display());
                }
                BTreeMap::new()
            }
        };
        let unsaved = groups.is_empty();
        let mut records = CgroupRecords { file: Some(file), title, groups, unsaved };
        records.save();
        records
    }

    pub(super) fn get(&self, group: &CgroupPath) -> Option<&CgroupRecord> {
        self.groups.get(group)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (&CgroupPath, &CgroupRecord)> {
        self.groups.iter()
    }

    pub(super) fn change(&mut self, group: &CgroupPath, change: impl FnOnce(&mut CgroupRecord)) {
        let record = self.groups.entry(group.clone()).or_default();
        let before = record.clone();
        change(record);
        self.unsaved |= before != *record;
    }

    pub(super) fn forget(&mut self, group: &CgroupPath) {
        self.unsaved |= self.groups.remove(group).is_some();
    }

    pub(super) fn retain(&mut self, exists: impl Fn(&CgroupPath) -> bool) {
        let before = self.groups.len();
        self.groups.retain(|group, _| exists(group));
        self.unsaved |= self.groups.len() != before;
    }

    /// Replaces the file if anything has changed. Without a record there is none.
    pub(super) fn save(&mut self) {
        let Some(file) = &self.file else { return };
        if !self.unsaved {
            return;
        }
        let saved = if self.groups.is_empty() {
            file.remove()
        } else {
            file.replace(self.text().as_bytes())
        };
        match saved {
            Ok(()) => self.unsaved = false,
            Err(error) => log::warn!(
                "cannot write {}: {error}; after a restart, cgroup CPUs count as set by another program",
                file.path().display()
            ),
        }
    }

    /// One line per cgroup, its fields separated by tabs: path, value before, values, quota,
    /// `exclusive` or nothing.
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for (group, CgroupRecord { before, ours, quota, exclusive }) in &self.groups {
            let ours: Vec<String> = ours.iter().map(ToString::to_string).collect();
            let quota = quota.as_deref().unwrap_or_default();
            let exclusive = if *exclusive { EXCLUSIVE } else { "" };
            let ours = ours.join(";");
            text += &format!("{group}\t{before}\t{ours}\t{quota}\t{exclusive}\n");
        }
        text
    }
}

fn parse(text: &str, title: &str) -> BTreeMap<CgroupPath, CgroupRecord> {
    let mut lines = text.lines();
    if lines.next() != Some(title) {
        return BTreeMap::new();
    }
    lines.filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(CgroupPath, CgroupRecord)> {
    let mut parts = line.split('\t');
    let group = CgroupPath::new(parts.next()?)?;
    let before = parts.next()?.parse().ok()?;
    let ours = parts.next()?.split(';').filter(|list| !list.is_empty());
    let ours = ours.map(|list| list.parse().ok()).collect::<Option<_>>()?;
    let quota = parts.next()?;
    let quota = if quota.is_empty() { None } else { Some(quota.to_owned()) };
    let exclusive = parts.next()? == EXCLUSIVE;
    Some((group, CgroupRecord { before, ours, quota, exclusive }))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests keep a file")]
mod tests {
    use super::*;
    use kernel::Linux;
    use std::fs;
    use std::path::PathBuf;

    #[derive(Debug)]
    struct File(PathBuf);

    impl RecordFile for File {
        fn path(&self) -> &Path {
            &self.0
        }

        fn read(&self) -> io::Result<Vec<u8>> {
            fs::read(&self.0)
        }

        fn replace(&self, content: &[u8]) -> io::Result<()> {
            fs::write(&self.0, content)
        }

        fn remove(&self) -> io::Result<()> {
            if self.0.exists() { fs::remove_file(&self.0) } else { Ok(()) }
        }
    }

    #[test]
    fn a_memory_is_valid_for_one_boot() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("records");
        let file = Arc::new(File(path.clone()));
        let open = || {
            let file = Arc::clone(&file) as Arc<dyn RecordFile>;
            CgroupRecords::open(file, "program", &Linux, root.path())
        };
        let boot = root.path().join("sys/kernel/random");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("boot_id"), "one\n").unwrap();
        let group = CgroupPath::new("kubepods.slice/kubepods-burstable.slice").unwrap();
        let record = CgroupRecord {
            before: "0-9".parse().unwrap(),
            ours: vec!["0-3".parse().unwrap(), "0-1,4".parse().unwrap()],
            quota: Some("400000 100000".to_owned()),
            exclusive: true,
        };
        let mut records = open();
        records.change(&group, |stored| *stored = record.clone());
        records.save();
        assert_eq!(open().get(&group), Some(&record));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("\t0-9\t0-3;0-1,4\t400000 100000\texclusive\n"), "{text}");
        for damaged in
            ["", "x", &text.replace("0-3", "zz"), &text.replace("\texclusive", ""), &text[..30]]
        {
            fs::write(&path, damaged).unwrap();
            assert_eq!(open().get(&group), None, "{damaged}");
        }
        fs::write(&path, &text).unwrap();
        let mut records = open();
        records.forget(&group);
        records.save();
        assert!(!path.exists(), "nothing is recorded");
        fs::write(&path, &text).unwrap();
        fs::write(boot.join("boot_id"), "two\n").unwrap();
        assert_eq!(open().get(&group), None);
        assert!(!path.exists(), "the records of another boot stay");
    }
}
