//! Machine files: `lab/machines/NAME.yaml`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cpuset::CpuSet;
use serde::Deserialize;

use super::{Level, MEMORY, Machine, MachineNode};
use crate::platform::Platform;
use crate::{cache, files};

/// Emulating more takes too long on a small machine.
const MOST: usize = 256;

/// The file as it stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    #[serde(default = "amd64")]
    architecture: Platform,
    #[serde(default = "one")]
    sockets: usize,
    #[serde(default = "one")]
    dies: usize,
    #[serde(default = "one")]
    modules: usize,
    cores: usize,
    #[serde(default = "one")]
    threads: usize,
    #[serde(default = "inside_out")]
    numbering: Vec<Level>,
    #[serde(default)]
    nodes: Vec<NodeFile>,
    #[serde(default)]
    distances: Vec<Vec<u8>>,
    #[serde(default)]
    offline: String,
    #[serde(default)]
    isolated: String,
    memory: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    cpus: String,
    memory: Option<usize>,
}

fn amd64() -> Platform {
    Platform::Amd64
}

fn one() -> usize {
    1
}

fn inside_out() -> Vec<Level> {
    Level::INSIDE_OUT.to_vec()
}

/// Field and problem; the line is found in the text.
struct Fault(&'static str, String);

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
}

fn parse(name: &str, text: &str) -> Result<Machine> {
    let file: File = serde_yaml::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let what = error.to_string();
        // The parser repeats the position at the end.
        let what = what.rfind(" at line ").map_or(what.as_str(), |at| &what[..at]);
        anyhow::anyhow!("line {line}: {what}")
    })?;
    file.machine(name).map_err(|Fault(field, what)| {
        let has_field = |line: &str| {
            line.trim_start().strip_prefix(field).is_some_and(|rest| rest.starts_with(':'))
        };
        let line = text.lines().position(has_field).map_or(1, |at| at + 1);
        anyhow::anyhow!("line {line}: {field}: {what}")
    })
}

fn cpus(field: &'static str, list: &str) -> Result<CpuSet, Fault> {
    list.parse().map_err(|error| Fault(field, format!("{list:?}: {error}")))
}

impl File {
    fn machine(self, name: &str) -> Result<Machine, Fault> {
        for (field, count) in [
            ("sockets", self.sockets),
            ("dies", self.dies),
            ("modules", self.modules),
            ("cores", self.cores),
            ("threads", self.threads),
        ] {
            if !(1..=MOST).contains(&count) {
                return Err(Fault(field, format!("{count} is not in the range 1 to {MOST}")));
            }
        }
        let offline = cpus("offline", &self.offline)?;
        let isolated = cpus("isolated", &self.isolated)?;
        let memory = self.memory.unwrap_or(MEMORY);
        let share = memory / self.nodes.len().max(1);
        let mut machine = Machine {
            name: name.to_owned(),
            about: self.about,
            platform: self.architecture,
            sockets: self.sockets,
            dies: self.dies,
            modules: self.modules,
            cores: self.cores,
            threads: self.threads,
            numbering: self.numbering,
            nodes: Vec::new(),
            distances: self.distances,
            offline,
            isolated,
            memory,
        };
        let total = machine.cpus();
        if total > MOST {
            return Err(Fault("cores", format!("{total} CPUs are more than {MOST}")));
        }
        machine.check_numbering()?;
        let all: CpuSet = (0..total).filter_map(|cpu| CpuSet::of(cpu).ok()).collect();
        for (number, node) in self.nodes.iter().enumerate() {
            let cpus = cpus("nodes", &node.cpus)?;
            let taken = machine.nodes.iter().map(|other| other.cpus).collect::<CpuSet>() & cpus;
            if !taken.is_empty() {
                let are = wording::agree(taken, "is", "are");
                let what = format!("{} {are} also in another node", wording::cpus(taken));
                return Err(Fault("nodes", format!("node {number}: {what}")));
            }
            machine.nodes.push(MachineNode { cpus, memory: node.memory.unwrap_or(share) });
        }
        machine.check_nodes(all)?;
        machine.check_distances()?;
        if !offline.is_subset(&all) {
            return Err(Fault("offline", absent(offline - all)));
        }
        if offline.contains(0) {
            return Err(Fault("offline", "Linux cannot take CPU 0 offline".to_owned()));
        }
        if !isolated.is_subset(&all) {
            return Err(Fault("isolated", absent(isolated - all)));
        }
        if isolated == all {
            return Err(Fault("isolated", "Linux cannot isolate all CPUs".to_owned()));
        }
        Ok(machine)
    }
}

impl Machine {
    fn check_numbering(&self) -> Result<(), Fault> {
        let wrong = |what: String| Err(Fault("numbering", what));
        for level in Level::INSIDE_OUT {
            let named = self.numbering.iter().filter(|other| **other == level).count();
            let word = format!("{level:?}").to_lowercase();
            match (named, self.count(level)) {
                (0, 2..) => return wrong(format!("{word} are missing, and there are several")),
                (2.., _) => return wrong(format!("{word} are listed more than once")),
                _ => {}
            }
        }
        if self.is_renumbered() && self.platform == Platform::Arm64 {
            return wrong("arm64 machines have the default numbering".to_owned());
        }
        if self.is_renumbered() && (0..self.cpus()).any(|cpu| self.processor(cpu).is_none()) {
            return wrong(
                "the machine is too large for another than the default numbering".to_owned(),
            );
        }
        Ok(())
    }

    fn check_nodes(&self, all: CpuSet) -> Result<(), Fault> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let named: CpuSet = self.nodes.iter().map(|node| node.cpus).collect();
        if named != all {
            let unknown = named - all;
            let missing = all - named;
            let what = if unknown.is_empty() {
                let are = wording::agree(missing, "is", "are");
                format!("{} {are} in no node", wording::cpus(missing))
            } else {
                absent(unknown)
            };
            return Err(Fault("nodes", what));
        }
        let sum: usize = self.nodes.iter().map(|node| node.memory).sum();
        if sum != self.memory {
            let what = format!("{} MiB, but the sum over its nodes is {sum}", self.memory);
            return Err(Fault("memory", what));
        }
        Ok(())
    }

    fn check_distances(&self) -> Result<(), Fault> {
        let count = self.nodes.len();
        if self.distances.is_empty() {
            return Ok(());
        }
        if self.distances.len() != count || self.distances.iter().any(|row| row.len() != count) {
            return Err(Fault("distances", format!("expected {count} rows of {count} numbers")));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                // ACPI's definition.
                if (from == to) != (*distance == 10) || *distance < 10 {
                    let what = format!(
                        "from node {from} to {to}: {distance}; must be 10 to itself and more to others"
                    );
                    return Err(Fault("distances", what));
                }
            }
        }
        Ok(())
    }
}

fn absent(cpus: CpuSet) -> String {
    format!("no {} in this machine", wording::cpus(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, error: &str) {
        let actual = format!("{:#}", parse("m", text).unwrap_err());
        assert!(actual.starts_with(error), "{actual}");
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
    fn errors_name_line_and_field() {
        check("about: a\ncores: 4\nsocket: 2\n", "line 3: unknown field `socket`");
        check("about: a\ncores: many\n", "line 2: cores: invalid type");
        check("about: a\n", "line 1: missing field `cores`");
        check("about: a\ncores: 0\n", "line 2: cores: 0 is not in the range 1 to 256");
        check("about: a\ncores: 4\noffline: 2-\n", "line 3: offline: \"2-\": ");
        let numbering =
            |order: &str| format!("about: a\ncores: 4\nthreads: 2\nnumbering: {order}\n");
        check(&numbering("[cores]"), "line 4: numbering: threads are missing");
        check(&numbering("[cores, threads, cores]"), "line 4: numbering: cores are listed more");
        check(&numbering("[nodes]"), "line 4: numbering[0]: unknown variant `nodes`");
        // Three threads and 33 cores need two bits and six, of which the highest are never all set.
        let large = numbering("[cores, sockets, threads]").replace("threads: 2", "threads: 3");
        check(
            &format!("sockets: 2\n{}", large.replace("cores: 4", "cores: 33")),
            "line 5: numbering: the machine is too large",
        );
        check("about: a\ncores: 4\noffline: 7\n", "line 3: offline: no CPU 7 in this machine");
        check("about: a\ncores: 4\noffline: 0\n", "line 3: offline: Linux cannot take CPU 0");
        check("about: a\ncores: 4\nisolated: 2-4\n", "line 3: isolated: no CPU 4 in this machine");
        check("about: a\ncores: 4\nisolated: 0-3\n", "line 3: isolated: Linux cannot isolate all");
        let nodes =
            |first: &str| format!("about: a\ncores: 4\nnodes:\n  - cpus: {first}\n  - cpus: 2-3\n");
        check(&nodes("0"), "line 3: nodes: CPU 1 is in no node");
        check(&nodes("0-2"), "line 3: nodes: node 1: CPU 2 is also in another");
        check(&nodes("0-1,9"), "line 3: nodes: no CPU 9 in this machine");
        check(
            &format!("{}distances: [[10, 12]]\n", nodes("0-1")),
            "line 6: distances: expected 2 rows of 2",
        );
        check(
            &format!("{}distances: [[10, 10], [12, 10]]\n", nodes("0-1")),
            "line 6: distances: from node 0 to 1: 10",
        );
        let short = nodes("0-1").replace("0-1\n", "0-1\n    memory: 1\n");
        check(
            &format!("memory: 512\n{short}"),
            "line 1: memory: 512 MiB, but the sum over its nodes is 257",
        );
    }
}
