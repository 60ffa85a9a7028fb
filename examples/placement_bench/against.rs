//! The table of ratios: how many times as long another implementation took.

use crate::timing::Timing;
use crate::{Request, RequestTime, runner};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::io::BufRead;
use std::path::Path;

/// Ratios of medians by operation and machine.
pub(crate) struct Table {
    theirs: HashMap<String, Timing>,
    ratios: BTreeMap<Row, Vec<f64>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    op: String,
    /// 0 for merges, which have no CPUs.
    cpus: usize,
    nodes: usize,
}

impl Row {
    fn of(request: &Request) -> Row {
        let rows = request.topo.iter().flat_map(|topo| &topo.cpus);
        let nodes: BTreeSet<usize> =
            rows.clone().map(|row| row[3]).chain(request.nodes.iter().copied()).collect();
        Row { op: request.op.clone(), cpus: rows.count(), nodes: nodes.len() }
    }
}

impl Table {
    /// Reads the other implementation's times; further fields are ignored.
    pub(crate) fn read(file: &Path) -> Result<Table, Box<dyn Error>> {
        let mut theirs = HashMap::new();
        for line in runner::open(file)?.lines() {
            let RequestTime { id, timing } = serde_json::from_str(&line?)?;
            theirs.insert(id, timing);
        }
        Ok(Table { theirs, ratios: BTreeMap::new() })
    }

    pub(crate) fn add(&mut self, request: &Request, ours: Timing) -> Result<(), String> {
        let theirs = self.theirs.get(&request.id);
        let theirs = theirs.ok_or_else(|| format!("{}: not timed there", request.id))?;
        let ratio = theirs.median as f64 / ours.median.max(1) as f64;
        self.ratios.entry(Row::of(request)).or_default().push(ratio);
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| op | CPUs | NUMA nodes | requests | least ratio | median ratio |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|")?;
        for (Row { op, cpus, nodes }, ratios) in &self.ratios {
            let mut ratios = ratios.clone();
            ratios.sort_by(f64::total_cmp);
            // Each row has a ratio: `add` makes the row and pushes one.
            let least = ratios[0];
            let median = ratios[(ratios.len() - 1) / 2];
            let cpus = if *cpus == 0 { "-".to_owned() } else { cpus.to_string() };
            let count = ratios.len();
            writeln!(f, "| {op} | {cpus} | {nodes} | {count} | {least:.0} | {median:.0} |")?;
        }
        Ok(())
    }
}
