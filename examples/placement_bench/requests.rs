//! Requests to time, for every row of the table in docs/performance.md. They are generated: the
//! machines alone would be a megabyte.

use cpuset::CpuSet;
use machines::synthetic::{DescriptionError, Machine};
use serde_json::{Value, json};
use topology::Topology;

/// Machines of `take` requests.
const TAKE: &[&str] = &[
    "pack:2 numa:1 l3:1 core:3 pu:2",
    "pack:1 numa:1 l3:1 core:12 pu:2",
    "pack:1 numa:1 l3:8 core:4 pu:2",
    "pack:2 numa:1 l3:4 core:8 pu:1",
    "pack:1 numa:1 l3:8 core:8 pu:2",
    "pack:2 numa:2 l3:6 core:8 pu:1",
    "pack:2 numa:2 l3:1 core:30 pu:2",
    "pack:2 numa:4 l3:1 core:15 pu:2",
    "pack:1 numa:1 l3:16 core:8 pu:2",
    "pack:4 numa:4 l3:1 core:9 pu:2",
    "pack:2 numa:1 l3:12 core:8 pu:2",
];

/// Machines of `hints` requests.
const HINTS: &[&str] = &[
    "pack:2 numa:6 l3:1 core:10 pu:2",
    "pack:1 numa:1 l3:16 core:8 pu:2",
    "pack:2 numa:1 l3:8 core:8 pu:2",
    "pack:2 numa:2 l3:4 core:8 pu:2",
    "pack:2 numa:4 l3:2 core:8 pu:2",
    "pack:2 numa:8 l3:1 core:8 pu:2",
];

/// Machines of `admit` requests.
const ADMIT: &[&str] = &[
    "pack:1 numa:1 l3:16 core:8 pu:2",
    "pack:2 numa:1 l3:8 core:8 pu:2",
    "pack:2 numa:2 l3:4 core:8 pu:2",
    "pack:2 numa:4 l3:2 core:8 pu:2",
];

/// Numbers of NUMA nodes of `merge` requests.
const MERGE: [usize; 3] = [2, 4, 8];

/// Policies and scopes of the topology manager.
const POLICIES: [(&str, &str); 6] = [
    ("none", "container"),
    ("best-effort", "container"),
    ("restricted", "container"),
    ("single-numa-node", "container"),
    ("restricted", "pod"),
    ("single-numa-node", "pod"),
];

/// All requests, an object each.
pub(crate) fn requests() -> Result<Vec<Value>, DescriptionError> {
    let mut all = Vec::new();
    for words in TAKE {
        takes(&mut all, &words.parse()?)?;
    }
    for words in HINTS {
        let machine: Machine = words.parse()?;
        let topology = machine.topology()?;
        let n = topology.cpus().len() / 4;
        all.push(json!({
            "op": "hints", "topo": rows(&topology), "n": n, "reusable": "",
            "available": (topology.online() - first_core(&topology)).to_string(),
        }));
    }
    all.extend(MERGE.into_iter().flat_map(merges));
    for words in ADMIT {
        admissions(&mut all, &words.parse::<Machine>()?.topology()?);
    }
    for (number, request) in all.iter_mut().enumerate() {
        request["id"] = json!(format!("{number:03}-{}", request["op"].as_str().unwrap_or("")));
    }
    Ok(all)
}

/// Requests to a machine with only its first core taken, and to one with every other core taken.
fn takes(all: &mut Vec<Value>, machine: &Machine) -> Result<(), DescriptionError> {
    let topology = machine.topology()?;
    let idle = topology.online() - first_core(&topology);
    let cores = topology.cores().iter().step_by(2);
    let half = cores.fold(idle, |free, core| free - core.cpus);
    for available in [idle, half] {
        let mut n = 1;
        while n <= available.len() {
            for (uncore, distribute) in [(false, false), (true, false), (false, true)] {
                if distribute && topology.cpu_nodes() == 1 {
                    continue;
                }
                all.push(json!({
                    "op": "take", "topo": rows(&topology), "available": available.to_string(), "n": n,
                    "strategy": "packed", "uncore": uncore, "distribute": distribute, "group": 1,
                }));
            }
            n *= 4;
        }
    }
    Ok(())
}

/// Hints of two resources for every combination of nodes: the first prefers single nodes, the
/// second pairs.
fn merges(nodes: usize) -> impl Iterator<Item = Value> {
    let policies = ["best-effort", "restricted", "single-numa-node"].into_iter();
    policies.map(move |policy| {
        json!({
            "op": "merge", "nodes": (0..nodes).collect::<Vec<usize>>(), "policy": policy, "tm_options": {},
            "providers": [{ "cpu": hints(nodes, 1) }, { "memory": hints(nodes, 2) }],
        })
    })
}

/// A hint for every combination of nodes; those of this many nodes are preferred.
fn hints(nodes: usize, preferred: u32) -> Vec<Value> {
    let mut hints = Vec::new();
    for mask in 1..1u32 << nodes {
        let set: Vec<usize> = (0..nodes).filter(|node| mask >> node & 1 == 1).collect();
        hints.push(json!({ "mask": set, "preferred": mask.count_ones() == preferred }));
    }
    hints
}

/// One more pod with 8 exclusive CPUs, on a node with half of its CPUs taken.
fn admissions(all: &mut Vec<Value>, topology: &Topology) {
    let mut steps = Vec::new();
    for number in 0..=topology.cpus().len() / 16 {
        steps.push(json!({ "pod": {
            "name": format!("p{number}"), "qos": "guaranteed", "containers": [{ "name": "c", "cpu": "8" }],
        }}));
    }
    for (policy, scope) in POLICIES {
        all.push(json!({
            "op": "admit", "topo": rows(topology), "reserved": first_core(topology).to_string(), "num_reserved": "2",
            "cpu_options": {}, "policy": policy, "scope": scope, "steps": steps,
        }));
    }
}

fn first_core(topology: &Topology) -> CpuSet {
    topology.cores()[0].cpus
}

/// CPU, core, socket, NUMA node and uncore cache of each CPU.
fn rows(topology: &Topology) -> Value {
    let cpus = topology.cpus().iter();
    let rows = cpus.map(|cpu| [cpu.id, cpu.core, cpu.socket, cpu.numa, cpu.uncore]);
    json!({ "cpus": rows.collect::<Vec<_>>() })
}
