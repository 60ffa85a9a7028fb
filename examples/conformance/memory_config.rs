//! `memory-config.jsonl`: configurations of the Memory Manager that the kubelet accepts, or refuses
//! to start with.

use super::Outcome;
use super::memory::MemoryMachines;
use config::{EvictionThreshold, memory_amount};
use placement::memory_manager::{
    Capacity, MemoryManagerConfig, MemoryReservation, NodeMemory, WrittenAmount,
};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
struct Reserved {
    node: i64,
    limits: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    machine: String,
    memory_policy: String,
    reserved_memory: Vec<Reserved>,
    /// Texts of `--reserved-memory` instead.
    reserved_memory_flag: Option<Vec<String>>,
    kube_reserved: BTreeMap<String, String>,
    system_reserved: BTreeMap<String, String>,
    eviction_hard: BTreeMap<String, String>,
    ok: bool,
    stage: Option<String>,
    error: Option<String>,
    /// Errors of which the kubelet gives one.
    #[serde(default)]
    any_of: Vec<String>,
    /// Node allocatable's reservation, if the kubelet comes that far.
    reservation: Option<BTreeMap<String, String>>,
    /// None with policy `None`.
    allocatable: Option<Vec<Block>>,
    /// The kubelet starts with more memory than there is.
    wrong: Option<String>,
}

/// Node, type and bytes.
type Block = (usize, String, u64);

/// One item of `--reserved-memory`. A type's last amount counts.
fn flag(text: &str) -> Option<Reserved> {
    let (node, limits) = text.split_once(':')?;
    let limit = |limit: &str| {
        let (kind, amount) = limit.split_once('=')?;
        Some((kind.to_owned(), amount.to_owned()))
    };
    let limits = limits.split(',').map(limit).collect::<Option<BTreeMap<String, String>>>()?;
    Some(Reserved { node: node.parse().ok()?, limits })
}

fn reservation(reserved: &Reserved) -> Option<MemoryReservation> {
    let limit = |(kind, text): (&String, &String)| Some((kind.clone(), memory_amount(text).ok()?));
    let limits = reserved.limits.iter().map(limit).collect::<Option<Vec<_>>>()?;
    Some(MemoryReservation { node: reserved.node, limits })
}

/// As in the kubelet, without types of which a node has nothing.
fn blocks(capacity: &Capacity) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (node, amounts) in capacity.nodes() {
        let some = amounts.iter().filter(|(_, bytes)| **bytes > 0);
        blocks.extend(some.map(|(kind, bytes)| (node, kind.to_string(), *bytes)));
    }
    blocks.sort();
    blocks
}

impl Vector {
    /// Whether the kubelet refuses another field, before it comes to these.
    fn is_about_another_field(&self) -> bool {
        match self.stage.as_deref() {
            Some("flag" | "kube-reserved" | "eviction-hard" | "topology manager") => true,
            Some("validation") => self.errors().any(|error| error.contains("topologyManager")),
            _ => false,
        }
    }

    fn errors(&self) -> impl Iterator<Item = &String> {
        self.error.iter().chain(&self.any_of)
    }

    fn reserved(&self) -> Option<Vec<MemoryReservation>> {
        match &self.reserved_memory_flag {
            Some(texts) => {
                let items = texts.iter().flat_map(|text| text.split(';'));
                items.map(|text| reservation(&flag(text)?)).collect()
            }
            None => self.reserved_memory.iter().map(reservation).collect(),
        }
    }

    fn node_allocatable(&self, machine: &[NodeMemory]) -> Option<WrittenAmount> {
        let total: u64 = machine.iter().map(|node| node.total).sum();
        let mut sum = WrittenAmount::default();
        for reserved in [&self.system_reserved, &self.kube_reserved] {
            if let Some(text) = reserved.get("memory") {
                sum = sum.plus(memory_amount(text).ok()?);
            }
        }
        const SIGNAL: &str = "memory.available";
        // The kubelet refuses what is no threshold after it has refused what is no limit.
        let text = self.eviction_hard.get(SIGNAL);
        if let Some(Ok(threshold)) = text.map(|text| EvictionThreshold::parse(SIGNAL, text)) {
            sum = sum.plus(threshold.of(total));
        }
        Some(sum)
    }

    /// None if it is no vector.
    fn run(&self, machines: &MemoryMachines) -> Option<Outcome> {
        let machine = machines.get(&self.machine)?;
        let reserved = self.reserved()?;
        let node_allocatable = self.node_allocatable(machine)?;
        let theirs = self.reservation.as_ref();
        let theirs = theirs.map(|all| all.get("memory").map_or("0", String::as_str));
        if theirs.is_some_and(|theirs| theirs != node_allocatable.to_string()) {
            return Some(self.failed(&format!("{node_allocatable} reserved")));
        }
        let config = MemoryManagerConfig {
            policy: &self.memory_policy,
            reserved: &reserved,
            node_allocatable,
        };
        Some(match config.check(machine, |_| true) {
            Ok(capacity) => {
                let ours = capacity.as_ref().map(blocks);
                let mut theirs = self.allocatable.clone();
                theirs.iter_mut().for_each(|blocks| blocks.sort());
                let same = self.ok && ours == theirs;
                if same { Outcome::Passed } else { self.failed(&format!("{ours:?}")) }
            }
            Err(error) => {
                let text = error.to_string();
                if self.errors().any(|theirs| *theirs == text) {
                    Outcome::Passed
                } else if self.wrong.is_some() {
                    Outcome::Excepted
                } else {
                    self.failed(&text)
                }
            }
        })
    }

    fn failed(&self, why: &str) -> Outcome {
        Outcome::Failed(format!("{}: {why}, {self:?}", self.id))
    }
}

pub(super) fn check(vector: Vector, machines: &MemoryMachines) -> Outcome {
    if vector.is_about_another_field() {
        return Outcome::Excepted;
    }
    vector.run(machines).unwrap_or_else(|| vector.failed("not a vector"))
}
