//! Machine files: `lab/machines/NAME.yaml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use cpuset::CpuSet;

use super::{Level, Machine};
use crate::platform::Platform;
use crate::{cache, files};

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

    /// The name of the machine is that of the file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = files::read(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        parse(&name, &text).with_context(|| path.display().to_string())
    }

    /// Finds what neither QEMU nor Linux would make of it.
    fn check(&self) -> Result<()> {
        for level in Level::INSIDE_OUT {
            let count = self.count(level);
            ensure!(
                (1..=MOST).contains(&count),
                "{level:?}: {count} is not in the range 1 to {MOST}"
            );
        }
        let total = self.cpus();
        ensure!(total <= MOST, "{total} CPUs are more than {MOST}");
        let all: CpuSet = (0..total).flat_map(CpuSet::of).collect();
        for (field, cpus) in [("offline", self.offline), ("isolated", self.isolated)] {
            ensure!(
                cpus.is_subset(&all),
                "{field}: no {} in this machine",
                wording::cpus(cpus - all)
            );
        }
        ensure!(!self.offline.contains(0), "offline: Linux cannot take CPU 0 offline");
        ensure!(self.isolated != all, "isolated: Linux cannot isolate all CPUs");
        self.check_numbering()?;
        self.check_nodes(all)
    }

    fn check_numbering(&self) -> Result<()> {
        for level in Level::INSIDE_OUT {
            let named = self.numbering.iter().filter(|other| **other == level).count();
            let expected = if self.count(level) > 1 { 1..=1 } else { 0..=1 };
            ensure!(expected.contains(&named), "numbering: {level:?} is named {named} times");
        }
        if self.is_renumbered() {
            ensure!(
                self.platform == Platform::Amd64,
                "numbering: arm64 machines have the default numbering"
            );
            let fits = (0..self.cpus()).all(|cpu| self.processor(cpu).is_some());
            ensure!(fits, "numbering: the machine is too large for another than the default one");
        }
        Ok(())
    }

    fn check_nodes(&self, all: CpuSet) -> Result<()> {
        let count = self.nodes.len();
        let mut named = CpuSet::EMPTY;
        for node in &self.nodes {
            ensure!(named.is_disjoint(&node.cpus), "nodes: CPUs {} are in two", named & node.cpus);
            named |= node.cpus;
        }
        ensure!(count == 0 || named == all, "nodes: they have CPUs {named}, the machine has {all}");
        let sum: usize = self.nodes.iter().map(|node| node.memory).sum();
        let memory = self.memory;
        ensure!(count == 0 || sum == memory, "memory: {memory} MiB, the nodes have {sum}");
        let lengths: BTreeSet<usize> =
            self.distances.iter().map(Vec::len).chain([self.distances.len()]).collect();
        let is_right = self.distances.is_empty() || lengths == BTreeSet::from([count]);
        ensure!(is_right, "distances: expected {count} rows of {count} numbers");
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                // ACPI's definition.
                ensure!(
                    (from == to) == (*distance == 10) && *distance >= 10,
                    "distances: {distance} from node {from} to {to}: must be 10 to itself and more to others"
                );
            }
        }
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

    #[track_caller]
    fn check(text: &str, error: &str) {
        let actual = format!("{:#}", parse("m", text).unwrap_err());
        assert!(actual.contains(error), "{actual}");
    }

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
    fn errors_name_the_field() {
        check("about: a\ncores: 4\nsocket: 2\n", "unknown field `socket`");
        check("about: a\ncores: many\n", "cores: invalid type");
        check("about: a\n", "missing field `cores`");
        check("about: a\ncores: 0\n", "Cores: 0 is not in the range 1 to 256");
        check("about: a\ncores: 4\noffline: 2-\n", "\"2-\" is not a CPU number");
        let numbering =
            |order: &str| format!("about: a\ncores: 4\nthreads: 2\nnumbering: {order}\n");
        check(&numbering("[cores]"), "numbering: Threads is named 0 times");
        check(&numbering("[cores, threads, cores]"), "numbering: Cores is named 2 times");
        check(&numbering("[nodes]"), "unknown variant `nodes`");
        // Three threads and 33 cores need two bits and six, of which the highest are never all set.
        let large = numbering("[cores, sockets, threads]").replace("threads: 2", "threads: 3");
        let large = format!("sockets: 2\n{}", large.replace("cores: 4", "cores: 33"));
        check(&large, "numbering: the machine is too large");
        check("about: a\ncores: 4\noffline: \"7\"\n", "offline: no CPU 7 in this machine");
        check("about: a\ncores: 4\noffline: \"0\"\n", "offline: Linux cannot take CPU 0");
        check("about: a\ncores: 4\nisolated: 2-4\n", "isolated: no CPU 4 in this machine");
        check("about: a\ncores: 4\nisolated: 0-3\n", "isolated: Linux cannot isolate all");
        let nodes = |first: &str| {
            format!("about: a\ncores: 4\nnodes:\n  - cpus: \"{first}\"\n  - cpus: 2-3\n")
        };
        check(&nodes("0"), "nodes: they have CPUs 0,2-3, the machine has 0-3");
        check(&nodes("0-2"), "nodes: CPUs 2 are in two");
        let distances = |rows: &str| format!("{}distances: {rows}\n", nodes("0-1"));
        check(&distances("[[10, 12]]"), "distances: expected 2 rows of 2");
        check(&distances("[[10, 10], [12, 10]]"), "distances: 10 from node 0 to 1");
        let short = nodes("0-1").replace("\"0-1\"\n", "\"0-1\"\n    memory: 1\n");
        check(&format!("memory: 512\n{short}"), "memory: 512 MiB, the nodes have 257");
    }
}
