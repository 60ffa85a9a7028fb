//! Machine files: `lab/machines/NAME.yaml`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use cpuset::CpuSet;

use super::{Level, Machine};
use crate::{cache, files};
use image::Platform;

/// Emulating more takes too long on a small machine.
const MOST: usize = 256;

impl Machine {
    /// By name in `lab/machines`, or by path.
    pub fn load(name: &str) -> Result<Self> {
        let directory = cache::repository().join("lab/machines");
        let path = directory.join(format!("{name}.yaml"));
        if path.exists() {
            return Self::read(&path);
        }
        if Path::new(name).is_file() {
            return Self::read(Path::new(name));
        }
        let known = Self::names()?;
        bail!("unknown machine {name:?}: not a file, and not one of {}", known.join(", "))
    }

    /// Sorted names of the machines in `lab/machines`.
    pub fn names() -> Result<Vec<String>> {
        let directory = cache::repository().join("lab/machines");
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
            .collect();
        names.sort();
        Ok(names)
    }

    fn read(path: &Path) -> Result<Self> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        parse(&name, &files::read(path)?).with_context(|| path.display().to_string())
    }

    /// Finds what QEMU and Linux would take for another machine, without an error. They refuse other
    /// mistakes when it boots.
    fn check(&self) -> Result<()> {
        for level in Level::INSIDE_OUT {
            let count = self.count(level);
            ensure!((1..=MOST).contains(&count), "{level:?}: {count} is not from 1 to {MOST}");
            let named = self.numbering.iter().filter(|other| **other == level).count();
            let expected = if count > 1 { 1..=1 } else { 0..=1 };
            ensure!(expected.contains(&named), "numbering: {level:?} is named {named} times");
        }
        let total = self.cpus();
        ensure!(total <= MOST, "{total} CPUs are more than {MOST}");
        if self.is_renumbered() {
            ensure!(
                self.platform == Platform::Amd64,
                "numbering: arm64 machines have the default numbering"
            );
            let fits = (0..total).all(|cpu| self.processor(cpu).is_some());
            ensure!(fits, "numbering: the machine is too large for another than the default one");
        }
        let all: CpuSet = (0..total).flat_map(CpuSet::of).collect();
        for (field, cpus) in [("offline", self.offline), ("isolated", self.isolated)] {
            let missing = cpus - all;
            ensure!(missing.is_empty(), "{field}: no {} in this machine", wording::cpus(missing));
        }
        ensure!(
            !self.devices || self.platform == Platform::Amd64,
            "devices: arm64 machines have none"
        );
        ensure!(self.isolated != all, "isolated: Linux cannot isolate all CPUs");
        let mut named = CpuSet::EMPTY;
        for node in &self.nodes {
            ensure!(named.is_disjoint(&node.cpus), "nodes: CPUs {} are in two", named & node.cpus);
            named |= node.cpus;
        }
        let count = self.nodes.len();
        ensure!(count == 0 || named == all, "nodes: they have CPUs {named}, the machine has {all}");
        let rows = &self.distances;
        let are_complete = rows.len() == count && rows.iter().all(|row| row.len() == count);
        ensure!(
            rows.is_empty() || are_complete,
            "distances: expected {count} rows of {count} numbers"
        );
        Ok(())
    }
}

fn parse(name: &str, text: &str) -> Result<Machine> {
    let mut machine: Machine = serde_yaml::from_str(text)?;
    name.clone_into(&mut machine.name);
    let share = machine.memory / machine.nodes.len().max(1);
    for node in machine.nodes.iter_mut().filter(|node| node.memory == 0) {
        node.memory = share;
    }
    machine.check()?;
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_in_the_directory_is_valid() {
        let names = Machine::names().unwrap();
        assert!(names.len() >= 8, "{names:?}");
        for name in names {
            let machine = Machine::load(&name).unwrap();
            let topology = machine.topology().unwrap();
            assert_eq!(topology.cpus().len(), machine.cpus() - machine.offline.len(), "{name}");
        }
    }

    #[test]
    fn another_machine_than_the_described_one_is_refused() {
        for (more, error) in [
            ("socket: 2", "unknown field `socket`"),
            ("threads: 0", "Threads: 0 is not from 1 to 256"),
            ("threads: 2\nnumbering: [cores]", "numbering: Threads is named 0 times"),
            ("architecture: arm64\ndevices: true", "devices: arm64 machines have none"),
            ("offline: \"7\"", "offline: no CPU 7 in this machine"),
            ("nodes: [{cpus: \"0-2\"}]", "nodes: they have CPUs 0-2, the machine has 0-3"),
            ("nodes: [{cpus: \"0-2\"}, {cpus: 2-3}]", "nodes: CPUs 2 are in two"),
            ("nodes: [{cpus: 0-3}]\ndistances: [[10, 12]]", "distances: expected 1 rows of 1"),
        ] {
            let actual = parse("m", &format!("about: a\ncores: 4\n{more}\n")).unwrap_err();
            assert!(format!("{actual:#}").contains(error), "{actual:#}");
        }
    }
}
