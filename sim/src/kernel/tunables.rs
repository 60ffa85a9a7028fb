//! The affinities of interrupts, and what else quiet CPUs need: files that keep what is written.

use super::{Errno, PROC, SYS, State};
use cpuset::CpuSet;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The numbers of the device interrupts.
const INTERRUPTS: std::ops::Range<u32> = 24..30;
const AFFINITY: &str = "smp_affinity_list";
const EFFECTIVE: &str = "effective_affinity_list";

/// The files as they are after a boot.
pub(super) fn at_boot(possible: CpuSet) -> BTreeMap<PathBuf, String> {
    let irq = Path::new(PROC).join("irq");
    let cpus = Path::new(SYS).join("devices/system/cpu");
    let mut files = BTreeMap::from([
        (irq.join("default_smp_affinity"), mask(possible)),
        (Path::new(SYS).join("devices/virtual/workqueue/cpumask"), mask(possible)),
    ]);
    for number in INTERRUPTS {
        let directory = irq.join(number.to_string());
        files.insert(directory.join(AFFINITY), possible.to_string());
        files.insert(directory.join(EFFECTIVE), possible.lowest(1).to_string());
        files.insert(directory.join("node"), "0".to_owned());
    }
    for cpu in possible.iter() {
        let directory = cpus.join(format!("cpu{cpu}"));
        files.insert(directory.join("power/pm_qos_resume_latency_us"), "0".to_owned());
        for (name, text) in [
            ("scaling_governor", "schedutil"),
            ("scaling_available_governors", "performance schedutil"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", "4000000"),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "4000000"),
        ] {
            files.insert(directory.join("cpufreq").join(name), text.to_owned());
        }
    }
    files
}

/// In the kernel's form: groups of 32 CPUs, the highest ones first.
fn mask(cpus: CpuSet) -> String {
    let groups = cpus.iter().last().map_or(1, |last| last / 32 + 1);
    let group = |at: usize| {
        let bits = (0..32).filter(|bit| cpus.contains(at * 32 + bit));
        format!("{:08x}", bits.fold(0u32, |group, bit| group | 1 << bit))
    };
    (0..groups).rev().map(group).collect::<Vec<_>>().join(",")
}

impl State {
    /// `None` if it is no such file.
    pub(super) fn read_tunable(&self, path: &Path) -> Option<String> {
        if path == Path::new(PROC).join("interrupts") {
            return Some(self.interrupts());
        }
        self.tunables.get(path).map(|text| format!("{text}\n"))
    }

    /// A line for each interrupt, which has never fired.
    fn interrupts(&self) -> String {
        let header: String = self.online.iter().map(|cpu| format!("  CPU{cpu}")).collect();
        let zeros = " 0".repeat(self.online.len());
        let line = |number| format!("{number}:{zeros}  PCI-MSI  0-edge  device{number}\n");
        format!("{header}\n{}", INTERRUPTS.map(line).collect::<String>())
    }

    /// `None` if it is no such file.
    pub(super) fn write_tunable(&mut self, path: &Path, text: &str) -> Option<Result<(), Errno>> {
        let online = self.online;
        let text = text.trim();
        let kept = self.tunables.get_mut(path)?;
        if !path.ends_with(AFFINITY) {
            text.clone_into(kept);
            return Some(Ok(()));
        }
        let Ok(cpus) = text.parse::<CpuSet>() else { return Some(Err(Errno::EINVAL)) };
        if cpus.is_disjoint(&online) {
            return Some(Err(Errno::EINVAL));
        }
        *kept = cpus.to_string();
        let effective = (cpus & online).lowest(1).to_string();
        self.tunables.insert(path.with_file_name(EFFECTIVE), effective);
        Some(Ok(()))
    }

    pub(super) fn tunable_entries(&self, directory: &Path) -> BTreeMap<String, bool> {
        let below = self.tunables.keys().filter_map(|path| path.strip_prefix(directory).ok());
        let entry = |below: &Path| {
            let mut parts = below.components();
            let name = parts.next()?.as_os_str().to_str()?.to_owned();
            Some((name, parts.next().is_some()))
        };
        below.filter_map(entry).collect()
    }

    /// Where each interrupt may fire.
    pub fn interrupt_affinities(&self) -> impl Iterator<Item = CpuSet> {
        let affinities = self.tunables.iter().filter(|(path, _)| path.ends_with(AFFINITY));
        affinities.filter_map(|(_, text)| text.parse().ok())
    }

    /// The first file that does not say what it said after the boot.
    pub fn changed_tunable(&self) -> Option<(&Path, &str)> {
        let boot = at_boot(self.tree.possible());
        let is_kept = |path: &Path| !path.ends_with(EFFECTIVE);
        let changed = self.tunables.iter().find(|(path, text)| {
            is_kept(path) && boot.get(*path).is_some_and(|boot| boot != *text)
        });
        changed.map(|(path, text)| (path.as_path(), text.as_str()))
    }
}
