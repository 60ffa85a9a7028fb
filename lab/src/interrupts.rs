//! Interrupts, and the files that the plugin writes for quiet CPUs. The lab reads them itself: the
//! plugin's reader must not check itself.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cpuset::CpuSet;

use crate::files;

const IRQ: &str = "/proc/irq";
const DEFAULT: &str = "/proc/irq/default_smp_affinity";
const AFFINITY: &str = "smp_affinity_list";
const CPUS: &str = "/sys/devices/system/cpu";

/// Between two readings of hundreds of files.
const PAUSE: Duration = Duration::from_millis(250);

/// A numbered interrupt.
#[derive(Debug, Clone)]
pub struct Interrupt {
    pub number: u32,
    /// Its chip, trigger and handlers.
    pub description: String,
    /// By CPU.
    pub counts: BTreeMap<usize, u64>,
    pub allowed: CpuSet,
    /// Where it fires, which follows `allowed` with the next interrupt.
    pub effective: CpuSet,
    /// Whether the kernel does not let root move it: its file is read-only.
    pub is_managed: bool,
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupt {} ({}) on CPUs {}", self.number, self.description, self.allowed)
    }
}

impl Interrupt {
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    fn on(&self, cpus: CpuSet) -> u64 {
        self.counts.iter().filter(|(cpu, _)| cpus.contains(**cpu)).map(|(_, count)| count).sum()
    }

    /// Lets it fire on these CPUs, as any root user can.
    pub fn put_on(&self, cpus: CpuSet) -> Result<()> {
        files::write_value(&affinity(self.number), &cpus.to_string())
    }
}

fn affinity(number: u32) -> PathBuf {
    Path::new(IRQ).join(number.to_string()).join(AFFINITY)
}

fn set(path: &Path) -> Result<CpuSet> {
    let list = files::read_value(path)?;
    list.parse().with_context(|| format!("unexpected {}: {list:?}", path.display()))
}

/// Those that have handlers.
pub fn all() -> Result<BTreeMap<u32, Interrupt>> {
    let table = files::read(Path::new("/proc/interrupts"))?;
    let mut lines = table.lines();
    let titles = lines.next().context("/proc/interrupts is empty")?;
    let cpus: Vec<usize> = titles
        .split_whitespace()
        .filter_map(|title| title.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut all = BTreeMap::new();
    for line in lines {
        let Some((label, rest)) = line.split_once(':') else { continue };
        let Ok(number) = label.trim().parse::<u32>() else { continue };
        let mut words = rest.split_whitespace();
        let mut counts = BTreeMap::new();
        for (cpu, word) in cpus.iter().zip(words.by_ref()) {
            counts.insert(*cpu, word.parse().with_context(|| format!("unexpected line {line:?}"))?);
        }
        let description = words.collect::<Vec<_>>().join(" ");
        let file = affinity(number);
        // The table may name interrupts that no file is for.
        let Ok(about) = fs::metadata(&file) else { continue };
        let interrupt = Interrupt {
            number,
            description,
            counts,
            allowed: set(&file)?,
            effective: set(&file.with_file_name("effective_affinity_list"))?,
            is_managed: about.permissions().mode() & 0o200 == 0,
        };
        all.insert(number, interrupt);
    }
    Ok(all)
}

/// Waits until no interrupt that can be moved may fire on these CPUs.
pub fn are_away(cpus: CpuSet, patience: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let all = all()?.into_values();
        let stay = all.filter(|one| !one.is_managed && !one.allowed.is_disjoint(&cpus));
        let stay: Vec<String> = stay.map(|one| one.to_string()).collect();
        if stay.is_empty() {
            return Ok(());
        }
        let seconds = patience.as_secs();
        ensure!(start.elapsed() < patience, "after {seconds} s: {}", stay.join("; "));
        thread::sleep(PAUSE);
    }
}

/// What fired between two readings.
#[derive(Debug, Default)]
pub struct Growth {
    /// On the observed CPUs, of interrupts that can be moved.
    pub movable: Vec<String>,
    /// On the observed CPUs, of others.
    pub managed: Vec<String>,
    /// On all other CPUs.
    pub elsewhere: u64,
}

/// An interrupt that has not fired since it was moved fires once more where it was.
pub fn growth(
    cpus: CpuSet,
    before: &BTreeMap<u32, Interrupt>,
    after: &BTreeMap<u32, Interrupt>,
) -> Growth {
    let mut growth = Growth::default();
    for (number, now) in after {
        let Some(before) = before.get(number) else { continue };
        let here = now.on(cpus).saturating_sub(before.on(cpus));
        growth.elsewhere += now.total().saturating_sub(before.total()).saturating_sub(here);
        let is_pending = !before.effective.is_disjoint(&cpus);
        let text = format!("{now}: {here} times");
        if now.is_managed && here > 0 {
            growth.managed.push(text);
        } else if here > u64::from(is_pending) {
            growth.movable.push(text);
        }
    }
    growth
}

/// What the files say that the plugin writes for quiet CPUs.
#[derive(Debug, Clone)]
pub struct Settings {
    files: BTreeMap<PathBuf, String>,
    /// The CPUs of an interrupt that appears.
    default: CpuSet,
}

impl Settings {
    pub fn read() -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut add = |path: PathBuf| -> Result<()> {
            let text = files::read_value(&path)?;
            files.insert(path, text);
            Ok(())
        };
        add(PathBuf::from(DEFAULT))?;
        add(PathBuf::from("/sys/devices/virtual/workqueue/cpumask"))?;
        for number in numbered(IRQ, "")? {
            add(affinity(number))?;
        }
        for cpu in numbered(CPUS, "cpu")? {
            let directory = Path::new(CPUS).join(format!("cpu{cpu}"));
            add(latency(cpu))?;
            let governor = directory.join("cpufreq/scaling_governor");
            if governor.exists() {
                add(governor)?;
            }
        }
        let mask = files::read_value(Path::new(DEFAULT))?;
        let default = CpuSet::from_mask(&mask);
        let default = default.with_context(|| format!("unexpected {DEFAULT}: {mask:?}"))?;
        Ok(Self { files, default })
    }

    /// All files must say what they said before. Interrupts that have appeared since must have the
    /// default of then.
    pub fn check(&self, after: &Self) -> Result<()> {
        let mut wrong = Vec::new();
        for (path, now) in &after.files {
            let is_equal = match self.files.get(path) {
                Some(before) => before == now,
                None => now.parse().is_ok_and(|now: CpuSet| now == self.default),
            };
            if !is_equal {
                let before = self.files.get(path).map_or("new", String::as_str);
                wrong.push(format!("{}: {before}, now {now}", path.display()));
            }
        }
        let gone = self.files.keys().filter(|path| !after.files.contains_key(*path));
        wrong.extend(gone.map(|path| format!("{} is gone", path.display())));
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    /// Writes the affinities of interrupts that differ. Those of kernel-managed ones do not.
    pub fn restore_affinities(&self) -> Result<()> {
        let affinities = self.files.iter().filter(|(path, _)| path.ends_with(AFFINITY));
        for (path, before) in affinities {
            if files::read_value(path)? != *before {
                files::write_value(path, before)?;
            }
        }
        Ok(())
    }
}

/// The file with the constraint on a CPU's idle states.
pub fn latency(cpu: u32) -> PathBuf {
    Path::new(CPUS).join(format!("cpu{cpu}/power/pm_qos_resume_latency_us"))
}

/// The numbers of entries whose names are `prefix` and a number.
fn numbered(directory: &str, prefix: &str) -> Result<Vec<u32>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {directory}"))?;
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    Ok(entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(counts: [u64; 2], effective: &str, is_managed: bool) -> Interrupt {
        Interrupt {
            number: 30,
            description: "PCI-MSIX virtio0-input".to_owned(),
            counts: [(0, counts[0]), (1, counts[1])].into(),
            allowed: "0".parse().unwrap(),
            effective: effective.parse().unwrap(),
            is_managed,
        }
    }

    #[test]
    fn an_interrupt_that_was_moved_may_fire_once_more() {
        let cpus: CpuSet = "1".parse().unwrap();
        let of = |effective: &str, is_managed, here: u64| {
            let before = [(30, interrupt([5, 5], effective, is_managed))].into();
            let after = [(30, interrupt([8, 5 + here], effective, is_managed))].into();
            let growth = growth(cpus, &before, &after);
            assert_eq!(growth.elsewhere, 3);
            (growth.movable.len(), growth.managed.len())
        };
        assert_eq!(of("0", false, 0), (0, 0));
        assert_eq!(of("0", false, 1), (1, 0));
        assert_eq!(of("1", false, 1), (0, 0));
        assert_eq!(of("1", false, 2), (1, 0));
        assert_eq!(of("1", true, 2), (0, 1));
    }

    #[test]
    fn settings_that_differ_are_named() {
        let settings = |files: &[(&str, &str)]| Settings {
            files: files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect(),
            default: "0-7".parse().unwrap(),
        };
        let before = settings(&[("a", "0-7"), ("b", "n/a")]);
        before.check(&settings(&[("a", "0-7"), ("b", "n/a"), ("new", "0-7")])).unwrap();
        for after in [
            settings(&[("a", "0-6"), ("b", "n/a")]),
            settings(&[("a", "0-7")]),
            settings(&[("a", "0-7"), ("b", "n/a"), ("new", "0-6")]),
        ] {
            assert!(before.check(&after).is_err(), "{after:?}");
        }
    }
}
