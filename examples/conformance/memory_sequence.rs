//! `memory-sequence.jsonl`: the life of a node whose memory is counted, pod by pod.
//!
//! Steps are compared until one of the two nodes has what the other has not. From there on every
//! answer only has to be legal: no node has more claims than memory, each container has what it asks
//! for, and a restart changes nothing.
//!
//! Reasons and messages of refusals are compared as a whole; the memory that a rejection names
//! besides is no part of the kubelet's message. Under a strict policy a lack of memory is a
//! `TopologyAffinityError` here, where the kubelet has an `UnexpectedAdmissionError` of its Memory
//! Manager: such a vector is excepted, but its other steps are compared.

use super::memory::{MemoryMachines, Reserved, capacity};
use super::simulated::{Granted, Node, PodSpec};
use super::take::by_whole_cores;
use super::topologies::rows;
use super::{Outcome, Tally};
use cpuset::{CpuSet, NodeSet};
use ledger::{Policy, Settings};
use placement::memory_manager::{Amounts, NodeMemoryClaim, Room};
use placement::{CpuManagerConfig, NodeLimit, Reason, Rejection, Reservation};
use serde::Deserialize;
use std::collections::BTreeMap;
use topology::model::NodeFacts;
use topology::{Facts, Topology};

/// CPUs of nodes, and distances between them.
pub(super) type CpuMachines = BTreeMap<String, Topology>;

#[derive(Deserialize)]
pub(super) struct Machine {
    name: String,
    nodes: Vec<MachineNode>,
}

#[derive(Deserialize)]
struct MachineNode {
    id: usize,
    distances: Vec<u32>,
    /// CPU, core, socket and uncore cache.
    cpus: Vec<[usize; 4]>,
}

/// Adds a machine's CPUs to the others.
pub(super) fn read(machine: Machine, machines: &mut CpuMachines) -> Outcome {
    let cpus = machine.nodes.iter().flat_map(|node| {
        node.cpus.iter().map(|&[cpu, core, socket, uncore]| [cpu, core, socket, node.id, uncore])
    });
    let nodes = machine.nodes.iter().map(|node| NodeFacts {
        id: node.id,
        distances: node.distances.clone(),
        memoryless: false,
    });
    let facts =
        Facts { cpus: rows(&cpus.collect::<Vec<_>>()), nodes: nodes.collect(), ..Facts::default() };
    match Topology::build(facts) {
        Ok(topology) => {
            machines.insert(machine.name, topology);
            Outcome::Passed
        }
        Err(error) => Outcome::Failed(format!("{}: {error}", machine.name)),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    machine: String,
    memory_policy: String,
    reserved_memory: Vec<Reserved>,
    cpu_policy: String,
    #[serde(default)]
    reserved_cpus: String,
    num_reserved: Option<String>,
    #[serde(default)]
    cpu_options: BTreeMap<String, String>,
    policy: String,
    scope: String,
    #[serde(default)]
    tm_options: BTreeMap<String, String>,
    gates: BTreeMap<String, bool>,
    start_error: Option<String>,
    #[serde(default)]
    steps: Vec<Step>,
    wrong_from_step: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Step {
    Admit {
        pod: PodSpec,
        expect: Box<Expect>,
    },
    /// The containers of an admitted pod run already. The kubelet frees the memory of ended init
    /// containers with the start of the next container.
    Start {
        pod: String,
        container: String,
    },
    Remove {
        name: String,
        expect: Box<Expect>,
    },
    Restart {
        expect: Box<Expect>,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expect {
    admitted: bool,
    containers: BTreeMap<String, Assigned>,
    reason: Option<String>,
    message: Option<String>,
    cpus: Option<String>,
    false_refusal: Option<String>,
    panic: Option<String>,
    error: Option<String>,
    rejected: Option<serde_json::Value>,
    init_reallocated: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Assigned {
    blocks: Vec<(Vec<usize>, String, u64)>,
    mems: Option<String>,
    cpus: Option<String>,
}

impl Assigned {
    /// `None` without memory.
    fn claim(&self) -> Option<NodeMemoryClaim> {
        let nodes: NodeSet = self.blocks.iter().flat_map(|(nodes, ..)| nodes.clone()).collect();
        let amount =
            |(_, kind, bytes): &(Vec<usize>, String, u64)| Some((kind.parse().ok()?, *bytes));
        let amounts: Amounts = self.blocks.iter().filter_map(amount).collect();
        if amounts.is_empty() { None } else { Some(NodeMemoryClaim { nodes, amounts }) }
    }
}

/// What a step shows about the two nodes.
enum Compared {
    Equal,
    /// They have the same pods and memory, and refuse a pod in different words.
    Reworded,
    /// They need not have the same pods and memory.
    Different,
}

impl Vector {
    fn node(
        &self,
        machines: &CpuMachines,
        memory: &MemoryMachines,
    ) -> Option<Result<Node, String>> {
        let topology = machines.get(&self.machine)?.clone();
        let memory = match self.memory_policy.as_str() {
            "Static" => Some(capacity(memory.get(&self.machine)?, &self.reserved_memory)?),
            _ => None,
        };
        let pairs = |options: &BTreeMap<String, String>| -> Vec<(String, String)> {
            options.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let (cpu_options, topology_options) = (pairs(&self.cpu_options), pairs(&self.tm_options));
        let is_static = self.cpu_policy == "static";
        // Without a policy nothing is reserved, which these checks do not know.
        let reserved = if is_static { self.num_reserved.as_deref().unwrap_or("0") } else { "1" };
        let milli_cpus = match reserved.strip_suffix('m') {
            Some(milli) => milli.parse().ok()?,
            None => reserved.parse::<u64>().ok()? * 1000,
        };
        let config = CpuManagerConfig {
            cpu_options: &borrowed(&cpu_options),
            topology_policy: &self.policy,
            topology_scope: &self.scope,
            topology_options: &borrowed(&topology_options),
            reservation: Reservation { cpus: self.reserved_cpus.parse().ok()?, milli_cpus },
        };
        let mut placement = match config.check(&topology, NodeLimit::Held) {
            Ok(placement) => placement,
            Err(error) => return Some(Err(error.to_string())),
        };
        if !is_static {
            placement.reserved = CpuSet::EMPTY;
        }
        let policy = if is_static { Policy::Static } else { Policy::None };
        let settings = Settings { policy, placement, memory, ..Settings::default() };
        Some(Ok(Node::with_settings(topology, settings)))
    }

    /// The first step that is only checked for legality.
    fn first_excepted(&self) -> usize {
        let is_other = |step: &Step| match step {
            // Hints of a stand-in device manager, and pods that the kubelet does not count.
            Step::Admit { pod, expect } => pod.is_beyond_memory() || expect.panic.is_some(),
            // The kubelet admits running pods again.
            Step::Restart { expect } => expect.is_other_restart(),
            Step::Start { .. } | Step::Remove { .. } => false,
        };
        let other = self.steps.iter().position(is_other).unwrap_or(self.steps.len());
        if self.gates.get("PodLevelResourceManagers") == Some(&true) {
            return 0;
        }
        other.min(self.wrong_from_step.unwrap_or(self.steps.len()))
    }

    fn run(
        &self,
        machines: &CpuMachines,
        memory: &MemoryMachines,
        tally: &mut Tally,
    ) -> Result<bool, String> {
        let node = self.node(machines, memory).ok_or("not a configuration")?;
        let mut node = match (node, &self.start_error) {
            (Err(_), Some(_)) => return Ok(true),
            (Err(error), None) => return Err(error),
            (Ok(node), _) => node,
        };
        // The kubelet crashes at its start.
        if self.start_error.is_some() {
            return Ok(false);
        }
        let mut end = self.first_excepted();
        let mut is_reworded = false;
        // Pods whose ended init containers have memory in the kubelet still.
        let mut starting: BTreeMap<&str, &PodSpec> = BTreeMap::new();
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Step::Start { pod, container } => {
                    starting.retain(|name, spec| name != pod || !spec.is_app(container));
                }
                Step::Remove { name, .. } => drop(starting.remove(name.as_str())),
                Step::Admit { .. } if !starting.is_empty() => end = end.min(number),
                Step::Admit { .. } | Step::Restart { .. } => {}
            }
            let exact = number < end;
            tally.count(if exact { "steps compared" } else { "steps legal" }.to_owned());
            let compared = step.run(&mut node, exact, tally);
            match compared.map_err(|error| format!("step {number}: {error}, {step:?}"))? {
                Compared::Equal => {}
                Compared::Reworded => is_reworded = true,
                Compared::Different => end = end.min(number),
            }
            if let Step::Admit { pod, expect } = step
                && expect.admitted
                && pod.leaves_init_memory()
            {
                starting.insert(&pod.name, pod);
            }
            is_legal(&node).map_err(|error| format!("step {number}: {error}, {step:?}"))?;
        }
        Ok(end == self.steps.len() && !is_reworded)
    }
}

fn borrowed(options: &[(String, String)]) -> Vec<(&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn is_legal(node: &Node) -> Result<(), String> {
    node.ledger.check()?;
    let Some(capacity) = &node.ledger.settings().memory else { return Ok(()) };
    let claims: Vec<NodeMemoryClaim> =
        node.ledger.memory_claims().map(|claim| claim.memory).collect();
    if Room::new(capacity, &claims).is_legal() {
        Ok(())
    } else {
        Err(format!("more memory is given than there is: {claims:?}"))
    }
}

impl Step {
    fn run(&self, node: &mut Node, exact: bool, tally: &mut Tally) -> Result<Compared, String> {
        let mut compared = Compared::Equal;
        let expect = match self {
            Step::Start { .. } => return Ok(Compared::Equal),
            Step::Restart { .. } => {
                let before: Vec<_> = node.ledger.memory_claims().collect();
                node.restart()?;
                let after: Vec<_> = node.ledger.memory_claims().collect();
                return if before == after {
                    Ok(Compared::Equal)
                } else {
                    Err(format!("a restart changes {before:?} to {after:?}"))
                };
            }
            Step::Remove { name, expect } => {
                node.remove(name)?;
                expect
            }
            Step::Admit { pod, expect } => {
                let answer = node.admit_all(pod)?;
                if let Ok(granted) = &answer {
                    pod.check_memory(node, granted)?;
                }
                if !exact {
                    return Ok(Compared::Different);
                }
                if let Some(why) = &expect.false_refusal {
                    let policy = node.ledger.settings().placement.topology_manager.policy.name();
                    let here = if answer.is_ok() { "admitted legally" } else { "refused" };
                    tally.count(format!("refused falsely ({why}) under {policy}: {here}"));
                }
                if expect.is_refused_for_nodes() && answer.is_ok() {
                    tally.count("refused for its nodes: admitted legally".to_owned());
                    return Ok(Compared::Different);
                }
                if let Err(rejection) = &answer
                    && expect.is_refused_for_memory()
                    && expect.message.as_ref() != Some(&rejection.message)
                {
                    let policy = node.ledger.settings().placement.topology_manager.policy;
                    let is_topology = rejection.reason == Reason::TopologyAffinity;
                    if !(policy.is_strict() && is_topology && rejection.memory.is_some()) {
                        tally
                            .count("refused for its memory: refused for another reason".to_owned());
                        return Ok(Compared::Different);
                    }
                    let why = format!("refused for its memory under {}", policy.name());
                    tally.count(format!("{why}: TopologyAffinityError"));
                    compared = Compared::Reworded;
                }
                if answer.is_ok()
                    && !expect.admitted
                    && let Some(how) = pod.is_better(node, &BTreeMap::new())
                {
                    tally.count(format!("ours: {how}"));
                    return Ok(Compared::Different);
                }
                let has_words = answer
                    .as_ref()
                    .is_err_and(|rejection| expect.message.as_ref() == Some(&rejection.message));
                if (expect.admitted != answer.is_ok()
                    || (expect.is_refused_for_cores() && !has_words))
                    && let Some(how) = expect.ours(node, &answer)
                {
                    tally.count(format!("ours: {how}"));
                    return Ok(Compared::Different);
                }
                if expect.admitted != answer.is_ok() {
                    let answer = answer.map_err(|error| error.to_string());
                    return Err(format!("admitted is {answer:?}"));
                }
                // CPUs have files of their own, with what the kubelet does wrong.
                if !expect.has_cpus(&answer) {
                    tally.count("other CPUs".to_owned());
                    return Ok(Compared::Different);
                }
                if matches!(compared, Compared::Equal) {
                    expect.compare(pod, &answer)?;
                }
                // The kubelet may leave CPUs of its init containers to the pod.
                if node.ledger.settings().policy == Policy::Static && pod.leaves_init_cpus() {
                    return Ok(Compared::Different);
                }
                expect
            }
        };
        if let (true, Some(cpus)) = (exact, &expect.cpus)
            && node.ledger.settings().policy == Policy::Static
            && node.shared().to_string() != *cpus
        {
            return Err(format!("shared CPUs are {}, expected {cpus}", node.shared()));
        }
        Ok(compared)
    }
}

impl Expect {
    /// Whether a restart changes what running pods have, or the kubelet does not start.
    fn is_other_restart(&self) -> bool {
        self.error.is_some() || self.rejected.is_some() || self.init_reallocated.is_some()
    }

    /// Whether the kubelet found no nodes for the memory of an admitted container.
    fn is_refused_for_memory(&self) -> bool {
        self.message.as_ref().is_some_and(|message| message.contains("[memorymanager]"))
    }

    /// As before, or because no nodes had memory, CPUs and devices together.
    fn is_refused_for_nodes(&self) -> bool {
        let topology = Some(Reason::TopologyAffinity.name());
        self.is_refused_for_memory() || self.reason.as_deref() == topology
    }

    fn is_refused_for_cores(&self) -> bool {
        self.reason.as_deref() == Some(Reason::SmtAlignment.name())
    }

    fn ours(
        &self,
        node: &Node,
        answer: &Result<BTreeMap<String, Granted>, Rejection>,
    ) -> Option<&'static str> {
        let granted = answer.iter().flatten();
        let ours = granted.filter_map(|(name, granted)| Some((name.clone(), granted.cpus?)));
        let theirs = self
            .containers
            .iter()
            .filter_map(|(name, theirs)| Some((name.clone(), theirs.cpus.as_ref()?.parse().ok()?)));
        let options = &node.ledger.settings().placement.options;
        by_whole_cores(
            node.ledger.topology(),
            options,
            &ours.collect(),
            &theirs.collect(),
            self.message.as_deref(),
        )
    }

    fn has_cpus(&self, answer: &Result<BTreeMap<String, Granted>, Rejection>) -> bool {
        let Ok(granted) = answer else { return true };
        granted.iter().all(|(name, ours)| {
            let theirs = self.containers.get(name).and_then(|theirs| theirs.cpus.as_ref());
            ours.cpus.map(|cpus| cpus.to_string()).as_ref() == theirs
        })
    }

    fn compare(
        &self,
        pod: &PodSpec,
        answer: &Result<BTreeMap<String, Granted>, Rejection>,
    ) -> Result<(), String> {
        let granted = match answer {
            Ok(granted) => granted,
            Err(rejection) => {
                let ours = (Some(rejection.reason.name()), Some(rejection.message.as_str()));
                let theirs = (self.reason.as_deref(), self.message.as_deref());
                return if ours == theirs {
                    Ok(())
                } else {
                    Err(format!("{ours:?}, expected {theirs:?}"))
                };
            }
        };
        for name in pod.names() {
            let nothing = Assigned::default();
            let theirs = self.containers.get(name).unwrap_or(&nothing);
            let ours = granted.get(name).cloned().unwrap_or_default();
            // The kubelet's claim of an init container shrinks at once.
            if pod.is_init(name) {
                continue;
            }
            if ours.memory != theirs.claim() {
                return Err(format!("{name} has {:?}, expected {:?}", ours.memory, theirs.claim()));
            }
            let mems = ours.memory.map(|claim| claim.nodes.to_string());
            if mems != theirs.mems {
                return Err(format!("{name} has mems {mems:?}, expected {:?}", theirs.mems));
            }
        }
        Ok(())
    }
}

pub(super) fn check(
    vector: Vector,
    machines: &CpuMachines,
    memory: &MemoryMachines,
    tally: &mut Tally,
) -> Outcome {
    match vector.run(machines, memory, tally) {
        Err(error) => {
            let Vector { id, policy, scope, cpu_policy, machine, .. } = &vector;
            Outcome::Failed(format!("{id}: {policy}, {scope}, {cpu_policy} on {machine}: {error}"))
        }
        Ok(true) => Outcome::Passed,
        Ok(false) => Outcome::Excepted,
    }
}
