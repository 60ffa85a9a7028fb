//! [`Originals`]: what files said before this program wrote them.
//!
//! A record is saved before the first write of its file, so that a crash at any moment loses nothing, and
//! forgotten once the file says the same again. None outlives the boot: the kernel starts with its own
//! values. Without a record there is no file.

use crate::knobs::is_knob;
use cpuset::CpuSet;
use kernel::{Kernel, RecordFile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

/// The format that this version writes; it reads no other.
const VERSION: u32 = 1;

/// A file that this program may write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// The affinity of the interrupt with this number.
    Interrupt(u32),
    /// The affinity of interrupts that appear later.
    DefaultAffinity,
    /// Where unbound kernel workers run.
    Workqueues,
    /// A file of a CPU, relative to `/sys`.
    Knob(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Interrupt(number) => write!(f, "interrupt {number}"),
            Setting::DefaultAffinity => f.write_str("default_smp_affinity"),
            Setting::Workqueues => f.write_str("the cpumask of workqueues"),
            Setting::Knob(path) => f.write_str(path),
        }
    }
}

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SettingValue {
    Cpus(CpuSet),
    /// Without white space around it.
    Text(String),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Cpus(cpus) => write!(f, "{cpus}"),
            SettingValue::Text(text) => f.write_str(text),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record {
    /// The handlers of an interrupt. The kernel gives the number of one that is gone to another device.
    pub(crate) names: Vec<String>,
    pub(crate) before: SettingValue,
    /// Values of this program. Between a write and its verification, and after a crash, any may be in
    /// force.
    pub(crate) ours: Vec<SettingValue>,
    /// Whether the last of these has read back. From then on, another value is another program's.
    pub(crate) confirmed: bool,
}

impl Record {
    /// Whether an interrupt with these handlers is the recorded one. A device that is stopped has none.
    pub(crate) fn is_of(&self, names: &[String]) -> bool {
        names.is_empty() || self.names.iter().any(|name| names.contains(name))
    }
}

/// irqbalance's banned CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Banned {
    /// The socket's path, which has the process id of the daemon: another daemon has its own list.
    pub(crate) socket: String,
    pub(crate) before: CpuSet,
    pub(crate) sent: CpuSet,
}

/// What a observed value means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// What counts as the value without this program.
    pub(crate) original: SettingValue,
    /// Whether another program has replaced a value of this one.
    pub(crate) is_drift: bool,
}

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content<Boot, Records, Banned> {
    version: u32,
    boot: Boot,
    records: Records,
    banned: Banned,
}

/// As it is read. It is written without copies.
type Saved = Content<String, Vec<(Setting, Record)>, Option<Banned>>;

/// The default has no file, and ends with the process.
#[derive(Debug, Default)]
pub struct Originals {
    file: Option<Arc<dyn RecordFile>>,
    boot: String,
    records: BTreeMap<Setting, Record>,
    banned: Option<Banned>,
    unsaved: bool,
}

impl Originals {
    /// Reads what was recorded during this boot. `proc` is usually `/proc`, which has the boot id. The
    /// text says why a file is ignored: what it had is lost, and observed values count as original.
    pub fn open(
        file: Arc<dyn RecordFile>,
        kernel: &dyn Kernel,
        proc: &Path,
    ) -> (Originals, Option<String>) {
        let boot = kernel.text(&proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let content = match file.read() {
            Ok(bytes) => decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Saved::default()),
            Err(error) => Err(error.to_string()),
        };
        let mut originals = Originals { file: Some(file), boot, ..Originals::default() };
        let problem = match content {
            Ok(content) => {
                if content.boot == originals.boot {
                    originals.records = content.records.into_iter().collect();
                    originals.banned = content.banned;
                }
                originals.unsaved = originals.is_empty();
                originals.save().err().map(|error| error.to_string())
            }
            Err(why) => Some(why),
        };
        (originals, problem)
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.banned.is_none()
    }

    pub(crate) fn get(&self, setting: &Setting) -> Option<&Record> {
        self.records.get(setting)
    }

    pub(crate) fn settings(&self) -> Vec<Setting> {
        self.records.keys().cloned().collect()
    }

    pub(crate) fn forget(&mut self, setting: &Setting) {
        self.unsaved |= self.records.remove(setting).is_some();
    }

    pub(crate) fn put(&mut self, setting: &Setting, record: Record) {
        self.unsaved |= self.records.get(setting) != Some(&record);
        self.records.insert(setting.clone(), record);
    }

    pub(crate) fn banned(&self) -> Option<&Banned> {
        self.banned.as_ref()
    }

    pub(crate) fn set_banned(&mut self, banned: Option<Banned>) {
        self.unsaved |= self.banned != banned;
        self.banned = banned;
    }

    /// Interprets a observed value. A value of another program `is_welcome` if it needs no change:
    /// then it is the new original.
    pub(crate) fn judge(
        &self,
        setting: &Setting,
        observed: &SettingValue,
        is_welcome: bool,
    ) -> Judgement {
        let Some(record) = self.get(setting) else {
            return Judgement { original: observed.clone(), is_drift: false };
        };
        if record.ours.contains(observed) {
            return Judgement { original: record.before.clone(), is_drift: false };
        }
        if is_welcome {
            return Judgement { original: observed.clone(), is_drift: false };
        }
        Judgement { original: record.before.clone(), is_drift: record.confirmed }
    }

    /// Records a write that follows.
    pub(crate) fn will_write(
        &mut self,
        setting: &Setting,
        names: &[String],
        write: (&SettingValue, &SettingValue),
    ) {
        let (original, target) = write;
        let known = self.records.get(setting).filter(|record| record.before == *original);
        let mut ours = known.map(|record| record.ours.clone()).unwrap_or_default();
        if !ours.contains(target) {
            // Almost all have one, and a value has the size of all CPUs.
            ours.reserve_exact(1);
            ours.push(target.clone());
        }
        let record =
            Record { names: names.to_vec(), before: original.clone(), ours, confirmed: false };
        self.put(setting, record);
    }

    /// Updates a record by what its file says after the writes.
    pub(crate) fn settle(
        &mut self,
        setting: &Setting,
        original: &SettingValue,
        observed: &SettingValue,
    ) {
        let Some(record) = self.records.get(setting) else { return };
        if observed == original {
            self.forget(setting);
        } else if record.ours.contains(observed) {
            let ours = vec![observed.clone()];
            self.put(setting, Record { ours, confirmed: true, ..record.clone() });
        }
    }

    /// Counts a value that the kernel has made of a written one as this program's.
    pub(crate) fn add_ours(&mut self, setting: &Setting, value: SettingValue) {
        if let Some(record) = self.records.get(setting) {
            let ours = vec![value];
            self.put(setting, Record { ours, ..record.clone() });
        }
    }

    /// Replaces the file if anything has changed, or removes it.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if !self.unsaved {
            return Ok(());
        }
        if self.is_empty() {
            file.remove()?;
            self.unsaved = false;
            return Ok(());
        }
        let content = Content {
            version: VERSION,
            boot: self.boot.as_str(),
            records: self.records.iter().collect::<Vec<_>>(),
            banned: self.banned.as_ref(),
        };
        file.replace(&serde_json::to_vec(&content)?)?;
        self.unsaved = false;
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> Result<Saved, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let invalid = |error: serde_json::Error| error.to_string();
    let Version { version } = serde_json::from_slice(bytes).map_err(invalid)?;
    if version != VERSION {
        return Err(format!("its version is {version}, this program reads {VERSION}"));
    }
    let content: Saved = serde_json::from_slice(bytes).map_err(invalid)?;
    for (setting, record) in &content.records {
        let is_fit = match (setting, &record.before) {
            // A name that others may have written here is not trusted: it is a file to write.
            (Setting::Knob(path), SettingValue::Text(_)) => is_knob(path),
            (Setting::Knob(_), SettingValue::Cpus(_)) => false,
            (_, before) => matches!(before, SettingValue::Cpus(_)),
        };
        if !is_fit {
            return Err(format!("it has an invalid record of {setting:?}"));
        }
    }
    Ok(content)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::disallowed_types, reason = "a file in memory")]
    use super::*;
    use kernel::Linux;
    use std::sync::Mutex;

    /// A file in memory, which counts its writes.
    #[derive(Debug, Default)]
    pub(crate) struct InMemory {
        pub(crate) content: Mutex<Vec<u8>>,
        pub(crate) writes: Mutex<usize>,
        pub(crate) is_full: Mutex<bool>,
    }

    impl RecordFile for InMemory {
        fn path(&self) -> &Path {
            Path::new("quiet.json")
        }

        fn read(&self) -> io::Result<Vec<u8>> {
            let content = self.content.lock().unwrap().clone();
            if content.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(content) }
        }

        fn replace(&self, content: &[u8]) -> io::Result<()> {
            if *self.is_full.lock().unwrap() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *self.content.lock().unwrap() = content.to_vec();
            *self.writes.lock().unwrap() += 1;
            Ok(())
        }

        fn remove(&self) -> io::Result<()> {
            if *self.is_full.lock().unwrap() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.content.lock().unwrap().clear();
            Ok(())
        }
    }

    fn cpus(list: &str) -> SettingValue {
        SettingValue::Cpus(list.parse().unwrap())
    }

    const ONE: Setting = Setting::Interrupt(24);

    #[test]
    fn a_value_of_this_program_is_told_from_those_of_others() {
        let mut originals = Originals::default();
        let judged = |originals: &Originals, observed: &str, is_welcome| {
            let Judgement { original, is_drift } =
                originals.judge(&ONE, &cpus(observed), is_welcome);
            (original.to_string(), is_drift)
        };
        assert_eq!(judged(&originals, "0-7", false), ("0-7".to_owned(), false));
        let names = ["nic".to_owned()];
        originals.will_write(&ONE, &names, (&cpus("0-7"), &cpus("0-3")));
        // A crash before or after the write.
        for observed in ["0-7", "0-3"] {
            assert_eq!(judged(&originals, observed, false), ("0-7".to_owned(), false));
        }
        originals.settle(&ONE, &cpus("0-7"), &cpus("0-3"));
        assert_eq!(judged(&originals, "0-3", true), ("0-7".to_owned(), false));
        // Another program's values.
        assert_eq!(judged(&originals, "0-7", false), ("0-7".to_owned(), true));
        assert_eq!(judged(&originals, "5", false), ("0-7".to_owned(), true));
        assert_eq!(judged(&originals, "2", true), ("2".to_owned(), false));
        // Between two values of this program.
        originals.will_write(&ONE, &names, (&cpus("0-7"), &cpus("0-1")));
        for observed in ["0-3", "0-1"] {
            assert_eq!(judged(&originals, observed, true), ("0-7".to_owned(), false));
        }
        originals.settle(&ONE, &cpus("0-7"), &cpus("0-7"));
        assert!(originals.is_empty());
    }

    #[test]
    fn records_are_valid_for_one_boot() {
        let file = Arc::new(InMemory::default());
        let root = tempfile::tempdir().unwrap();
        let open = || {
            let shared = Arc::clone(&file) as Arc<dyn RecordFile>;
            Originals::open(shared, &Linux, root.path())
        };
        let (mut originals, problem) = open();
        assert_eq!(problem, None);
        originals.will_write(&ONE, &["nic".to_owned()], (&cpus("0-7"), &cpus("0-3")));
        let knob = "devices/system/cpu/cpu4/power/pm_qos_resume_latency_us";
        let knob = Setting::Knob(knob.to_owned());
        let text = |text: &str| SettingValue::Text(text.to_owned());
        originals.will_write(&knob, &[], (&text("0"), &text("n/a")));
        let socket = "/run/irqbalance/irqbalance1.sock".to_owned();
        let banned = Banned { socket, before: CpuSet::EMPTY, sent: "4".parse().unwrap() };
        originals.set_banned(Some(banned));
        originals.save().unwrap();
        originals.save().unwrap();
        assert_eq!(*file.writes.lock().unwrap(), 1);
        let (read, problem) = open();
        assert_eq!(problem, None);
        assert_eq!(read.records, originals.records);
        assert_eq!(read.banned, originals.banned);

        let good = String::from_utf8(file.content.lock().unwrap().clone()).unwrap();
        for (from, to) in [
            ("{", ""),
            ("\"version\":1", "\"version\":2"),
            ("devices/system", "../system"),
            ("devices/system", "/devices"),
            ("power/pm_qos_resume_latency_us", "online"),
            ("0-7", "zz"),
            ("\"names\":[\"nic\"],", ""),
            ("{\"cpus\":\"0-7\"}", "{\"text\":\"0-7\"}"),
        ] {
            *file.content.lock().unwrap() = good.replacen(from, to, 1).into_bytes();
            let (read, problem) = open();
            assert!(read.is_empty() && problem.is_some(), "{to}");
        }
        let other_boot = good.replacen("\"boot\":\"\"", "\"boot\":\"other\"", 1);
        *file.content.lock().unwrap() = other_boot.into_bytes();
        let (read, problem) = open();
        assert!(read.is_empty() && problem.is_none());
        assert!(file.content.lock().unwrap().is_empty(), "the records of another boot stay");
    }

    #[test]
    fn without_a_record_there_is_no_file() {
        let file = Arc::new(InMemory::default());
        let root = tempfile::tempdir().unwrap();
        let open = || {
            let shared = Arc::clone(&file) as Arc<dyn RecordFile>;
            Originals::open(shared, &Linux, root.path()).0
        };
        let mut originals = open();
        originals.will_write(&ONE, &[], (&cpus("0-7"), &cpus("0-3")));
        originals.save().unwrap();
        assert!(!file.content.lock().unwrap().is_empty());
        originals.settle(&ONE, &cpus("0-7"), &cpus("0-7"));
        originals.save().unwrap();
        assert!(file.content.lock().unwrap().is_empty(), "all originals are restored");
        // An earlier version left a file without records.
        let empty = br#"{"version":1,"boot":"","records":[],"banned":null}"#;
        *file.content.lock().unwrap() = empty.to_vec();
        assert!(open().is_empty());
        assert!(file.content.lock().unwrap().is_empty(), "an empty file stays");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
