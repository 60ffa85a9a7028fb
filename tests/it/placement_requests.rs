//! The requests that `placement_bench --requests` prints: they cover the rows of
//! docs/performance.md.

#[path = "../../examples/placement_bench/requests.rs"]
mod requests;

use serde_json::Value;
use std::collections::BTreeSet;

/// A request's operation, number of CPUs, and number of NUMA nodes, as a row of the table.
fn row(request: &Value) -> String {
    let op = request["op"].as_str().unwrap();
    let Some(cpus) = request["topo"]["cpus"].as_array() else {
        return format!("| {op} | - | {} |", request["nodes"].as_array().unwrap().len());
    };
    let nodes: BTreeSet<u64> = cpus.iter().map(|cpu| cpu[3].as_u64().unwrap()).collect();
    format!("| {op} | {} | {} |", cpus.len(), nodes.len())
}

#[test]
fn requests_cover_every_row_of_the_table() {
    let requests = requests::requests().unwrap();
    let ids: BTreeSet<&str> = requests.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), requests.len(), "ids are unique");
    let rows: BTreeSet<String> = requests.iter().map(row).collect();
    let document = include_str!("../../docs/performance.md");
    let mut documented = BTreeSet::new();
    for line in document.lines() {
        if ["| admit", "| hints", "| merge", "| take"].iter().any(|op| line.starts_with(op)) {
            let cells: Vec<&str> = line.split('|').take(4).collect();
            documented.insert(format!("{}|", cells.join("|")));
        }
    }
    assert_eq!(rows, documented);
}
