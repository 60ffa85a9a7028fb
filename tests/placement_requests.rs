//! The requests that `placement_bench --requests` prints: a benchmark gets the rows that
//! docs/performance.md shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../examples/placement_bench/requests.rs"]
mod requests;

use serde_json::Value;
use std::collections::BTreeSet;

/// What is done, on how many CPUs, in how many NUMA nodes.
fn row(request: &Value) -> String {
    let op = request["op"].as_str().unwrap();
    let Some(cpus) = request["topo"]["cpus"].as_array() else {
        return format!("| {op} | - | {} |", request["nodes"].as_array().unwrap().len());
    };
    let nodes: BTreeSet<u64> = cpus.iter().map(|cpu| cpu[3].as_u64().unwrap()).collect();
    format!("| {op} | {} | {} |", cpus.len(), nodes.len())
}

#[test]
fn every_row_of_the_table() {
    let requests = requests::requests().unwrap();
    let ids: BTreeSet<&str> = requests.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), requests.len(), "each has a name of its own");
    let rows: BTreeSet<String> = requests.iter().map(row).collect();
    let document = include_str!("../docs/performance.md");
    let is_row = |line: &&str| {
        ["| admit", "| hints", "| merge", "| take"].iter().any(|op| line.starts_with(op))
    };
    let shown = document.lines().filter(is_row).map(|line| {
        let cells: Vec<&str> = line.split('|').take(4).collect();
        format!("{}|", cells.join("|"))
    });
    assert_eq!(rows, shown.collect());
}
