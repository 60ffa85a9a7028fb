//! [`TopologyText`]: the machine as text.
//!
//! The text has a row for each socket, NUMA node and uncore cache, then distances, isolated and
//! offline CPUs. `+` joins the threads of a core. Regular numbers become runs, so that 512 CPUs fit
//! on a page.

mod distances;
mod runs;

use cpuset::CpuSet;
use runs::{joined, list, runs};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use topology::model::{CoreKind, Domain, NumaNode, Sizes, Topology};
use wording::{count, or_none};

/// Displays a machine as text that ends in a newline.
#[derive(Debug, Clone, Copy)]
pub struct TopologyText<'a> {
    pub topology: &'a Topology,
    pub sizes: &'a Sizes,
}

/// A line of the tree of domains.
struct Row {
    label: String,
    size: String,
    cores: usize,
    cpus: String,
}

impl fmt::Display for TopologyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.summary())?;
        self.tree(f)?;
        let topology = self.topology;
        if 1 < topology.nodes().len() {
            writeln!(f)?;
            distances::draw(f, topology.nodes())?;
        }
        let offline: CpuSet =
            topology.offline().iter().flat_map(|cpu| CpuSet::of(cpu.id)).collect();
        writeln!(f, "\nisolated CPUs: {}", or_none(list(&topology.isolated())))?;
        writeln!(f, "offline CPUs:  {}", or_none(list(&offline)))
    }
}

impl TopologyText<'_> {
    fn summary(&self) -> String {
        let topology = self.topology;
        let dies: BTreeSet<(usize, usize)> =
            topology.cpus().iter().filter_map(|cpu| Some((cpu.socket, cpu.die?))).collect();
        let mut parts = vec![count(topology.sockets().len(), "socket")];
        if topology.sockets().len() < dies.len() {
            parts.push(count(dies.len(), "die"));
        }
        parts.push(count(topology.nodes().len(), "NUMA node"));
        parts.push(count(topology.uncores().len(), "uncore cache"));
        parts.push(count(topology.cores().len(), "core"));
        parts.push(count(topology.cpus().len(), "CPU"));
        let smt = match topology.threads_per_core() {
            1 => "no SMT".to_owned(),
            threads if threads * topology.cores().len() == topology.cpus().len() => {
                format!("SMT: {threads} threads a core")
            }
            threads => format!("SMT: up to {threads} threads a core"),
        };
        format!("{} ({smt})", parts.join(", "))
    }

    fn tree(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let width = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).len()).max();
        let label = width(|row| &row.label).unwrap_or_default();
        let size = width(|row| &row.size).unwrap_or_default().max("size".len());
        let example = self.topology.cores().iter().find(|core| 1 < core.cpus.len());
        let legend = example.map(|core| format!(" ({} is one core)", joined(&core.cpus)));
        let legend = legend.unwrap_or_default();
        writeln!(f, "{:label$}  {:>size$}  cores  CPUs{legend}", "", "size")?;
        for row in &rows {
            writeln!(
                f,
                "{:label$}  {:>size$}  {:>5}  {}",
                row.label, row.size, row.cores, row.cpus
            )?;
        }
        if rows.iter().any(|row| row.label.ends_with(PART)) {
            writeln!(f, "{PART}: more of its CPUs are listed elsewhere")?;
        }
        Ok(())
    }

    fn rows(&self) -> Vec<Row> {
        let topology = self.topology;
        let mut rows = Vec::new();
        for socket in topology.sockets() {
            rows.push(Row {
                label: format!("socket {}", socket.id),
                size: String::new(),
                cores: self.cores(&socket.cpus).len(),
                cpus: list(&socket.cpus),
            });
            for node in topology.nodes() {
                let cpus = node.cpus & socket.cpus;
                if cpus.is_empty() {
                    continue;
                }
                rows.push(Row {
                    label: format!("  NUMA node {}{}", node.id, part(&cpus, &node.cpus)),
                    size: self.memory(node),
                    cores: self.cores(&cpus).len(),
                    cpus: list(&cpus),
                });
                rows.extend(self.caches(&cpus));
            }
        }
        for node in topology.nodes().iter().filter(|node| node.cpus.is_empty()) {
            rows.push(Row {
                label: format!("NUMA node {}", node.id),
                size: self.memory(node),
                cores: 0,
                cpus: "none".to_owned(),
            });
        }
        rows
    }

    /// The rows of the uncore caches of these CPUs.
    fn caches(&self, cpus: &CpuSet) -> Vec<Row> {
        let uncores: Vec<&Domain> = self
            .topology
            .uncores()
            .iter()
            .filter(|uncore| !uncore.cpus.is_disjoint(cpus))
            .collect();
        let size = |id| self.sizes.caches.get(&id);
        let level = |id| match size(id) {
            Some(size) => format!(" (L{})", size.level),
            None => String::new(),
        };
        let bytes = |id| size(id).and_then(|size| size.bytes).map(bytes).unwrap_or_default();
        let cores = self.cores(cpus);
        // On a machine without shared caches, one row stands for all.
        if let [first, _, ..] = uncores.as_slice()
            && uncores.len() == cores.len()
            && uncores.iter().all(|uncore| uncore.cpus.is_subset(cpus))
        {
            return vec![Row {
                label: format!("    {} uncore caches{}", uncores.len(), level(first.id)),
                size: bytes(first.id),
                cores: cores.len(),
                cpus: format!("{}, each core its own", self.drawn(&cores)),
            }];
        }
        uncores
            .into_iter()
            .map(|uncore| {
                let here = uncore.cpus & *cpus;
                let cores = self.cores(&here);
                Row {
                    label: format!(
                        "    uncore {}{}{}",
                        uncore.id,
                        level(uncore.id),
                        part(&here, &uncore.cpus)
                    ),
                    size: bytes(uncore.id),
                    cores: cores.len(),
                    cpus: self.drawn(&cores),
                }
            })
            .collect()
    }

    /// The CPUs of `cpus`, by core.
    fn cores(&self, cpus: &CpuSet) -> Vec<CpuSet> {
        let cores = self.topology.cores().iter();
        cores.map(|core| core.cpus & *cpus).filter(|core| !core.is_empty()).collect()
    }

    /// Cores as runs, on hybrid machines by kind.
    fn drawn(&self, cores: &[CpuSet]) -> String {
        let mut by_kind: BTreeMap<Option<CoreKind>, Vec<CpuSet>> = BTreeMap::new();
        for core in cores {
            let kind = core.first().and_then(|cpu| self.topology.cpu(cpu)?.kind);
            by_kind.entry(kind).or_default().push(*core);
        }
        let drawn: Vec<String> = by_kind
            .iter()
            .map(|(kind, cores)| match kind {
                None => runs(cores),
                Some(CoreKind::Performance) => format!("performance {}", runs(cores)),
                Some(CoreKind::Efficient) => format!("efficient {}", runs(cores)),
            })
            .collect();
        drawn.join(", ")
    }

    fn memory(&self, node: &NumaNode) -> String {
        self.sizes.memory.get(&node.id).copied().map(bytes).unwrap_or_default()
    }
}

const PART: &str = "(part)";

fn part(here: &CpuSet, whole: &CpuSet) -> String {
    if here == whole { String::new() } else { format!(" {PART}") }
}

/// A number of bytes, rounded, in the largest binary unit of which it has at least 1: `1.5 GiB`,
/// `126 GiB`.
pub fn bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|&(_, shift)| 0 < bytes >> shift) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10 + (1 << (shift - 1))) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole @ ..10, tenth @ 1..) => format!("{whole}.{tenth} {unit}"),
        (..10, 0) => format!("{} {unit}", tenths / 10),
        _ => format!("{} {unit}", (tenths + 5) / 10),
    }
}

#[cfg(test)]
mod tests;
