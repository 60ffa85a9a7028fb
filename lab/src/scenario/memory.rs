//! `memoryManagerPolicy: Static`: memory and huge pages are counted by NUMA node.

use anyhow::{Result, ensure};
use cpuset::{CpuSet, NodeSet};

use super::shape::Shape;
use super::{guaranteed, milli};
use crate::invariants::parse;
use crate::kernel;
use crate::memory::ProcessMemory;
use crate::pod::{Container, MIB, Pod};
use crate::testbed::{Testbed, refused};

/// What containers write, in bytes.
const HELD: i64 = 64 * MIB;
const HUGE_PAGE: u64 = 2 << 20;

/// `systemReserved`, in MiB.
const SYSTEM: i64 = 28;
/// The kubelet's default of `evictionHard`, in MiB.
const EVICTION: i64 = 100;

/// The topology manager refuses a container whose CPUs and memory are on no node together, and the memory
/// manager one whose memory no nodes have.
const NOT_ADMITTED: &str = "FailedPrecondition";

/// The topology manager's limit is eight nodes.
pub(super) fn applies(shape: &Shape) -> bool {
    nodes_with_cpus(shape).len() > 1 && shape.hardware.nodes.len() <= 8
}

pub(super) fn memory(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    pages_are_on_the_chosen_node(testbed, shape)?;
    testbed.clear()?;
    a_pod_waits_for_memory_of_one_node(testbed, shape)?;
    testbed.clear()?;
    huge_pages_are_counted(testbed, shape)?;
    if nodes_with_cpus(shape).len() < shape.hardware.nodes.len() {
        testbed.clear()?;
        a_node_without_cpus_is_used(testbed, shape)?;
    }
    Ok(())
}

/// A container with exclusive CPUs and one that shares have their pages on one node each, also after
/// a crash of the plugin.
fn pages_are_on_the_chosen_node(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&config(shape, "single-numa-node"))?;
    let pods = [("exclusive", milli(2)), ("sharing", 500)];
    for (name, cpu) in pods {
        let main = holding(Container::guaranteed("main", cpu).with_memory(2 * HELD));
        testbed.start(&Pod::new(name, [main]))?;
    }
    let before = testbed.view()?;
    let mut placed = Vec::new();
    for (name, _) in pods {
        let memory = held(testbed, name)?;
        ensure!(memory.allowed.len() == 1, "{name}: {memory:?}, expected one node");
        placed.push(memory.allowed);
    }
    let cpus = parse(before.allowed("exclusive"));
    let local = cpus_of(shape, placed[0]);
    ensure!(cpus.is_subset(&local), "CPUs {cpus}, memory on node {}", placed[0]);
    testbed.kill_plugin()?;
    testbed.unmoved(&before)?;
    for ((name, _), nodes) in pods.into_iter().zip(placed) {
        let memory = held(testbed, name)?;
        ensure!(memory.allowed == nodes, "{name}: {memory:?}, before the crash {nodes}");
    }
    Ok(())
}

/// Each node has room for one pod. One more is refused, also by a plugin that has been restarted, and
/// gets the node of a pod that ends.
fn a_pod_waits_for_memory_of_one_node(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let size = more_than_half(shape)?;
    let count = nodes_with_cpus(shape).len();
    testbed.start_plugin(&config(shape, "single-numa-node"))?;
    let mut taken = NodeSet::EMPTY;
    for number in 0..count {
        let name = format!("large-{number}");
        testbed.start(&large(&name, size))?;
        let nodes = testbed.memory(&name, 0)?.allowed;
        let is_new = nodes.len() == 1 && nodes.intersection(taken).is_empty();
        ensure!(is_new, "{name} has memory on nodes {nodes}, the pods before it on {taken}");
        taken = taken.union(nodes);
    }
    let full = testbed.view()?;
    refused(testbed.start(&large("waiting", size)), NOT_ADMITTED)?;
    testbed.kill_plugin()?;
    testbed.unmoved(&full)?;
    refused(testbed.retry("waiting"), NOT_ADMITTED)?;
    let freed = testbed.memory("large-1", 0)?.allowed;
    testbed.remove("large-1")?;
    testbed.retry("waiting")?;
    is_on(testbed, "waiting", freed)?;
    testbed.exclusive_unmoved(&full)?;
    Ok(())
}

/// Two nodes have huge pages, one of them few. A pod that needs more than any node has left is
/// refused until another one ends.
fn huge_pages_are_counted(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let nodes = nodes_with_cpus(shape);
    let [few, many] = [nodes[0], nodes[1]];
    for (node, pages) in [(few, 4), (many, 16)] {
        testbed.set_huge_pages(node, pages)?;
    }
    testbed.start_plugin(&config(shape, "single-numa-node"))?;
    testbed.start(&with_huge_pages("db", 12))?;
    is_on(testbed, "db", NodeSet::of(many))?;
    testbed.free_huge_pages(many, 4)?;
    testbed.free_huge_pages(few, 4)?;
    refused(testbed.start(&with_huge_pages("waiting", 8)), NOT_ADMITTED)?;
    testbed.start(&with_huge_pages("small", 4))?;
    testbed.view()?;
    testbed.remove("db")?;
    testbed.retry("waiting")?;
    is_on(testbed, "waiting", NodeSet::of(many))?;
    testbed.view()?;
    testbed.clear()?;
    for node in [few, many] {
        testbed.set_huge_pages(node, 0)?;
    }
    Ok(())
}

/// A container needs more memory than any node has, and the other node with CPUs is in use: it gets
/// that of its CPUs and one with memory only.
fn a_node_without_cpus_is_used(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let size = more_than_half(shape)?;
    let mut most = 0;
    for node in 0..shape.hardware.nodes.len() {
        most = most.max(room(node)?);
    }
    testbed.start_plugin(&config(shape, "best-effort"))?;
    testbed.start(&large("first", size))?;
    testbed.start(&large("second", size))?;
    testbed.remove("first")?;
    let main = holding(guaranteed("main", 2).with_memory(most + HELD));
    testbed.start(&Pod::new("wide", [main]))?;
    let memory = held(testbed, "wide")?;
    let view = testbed.view()?;
    let cpus = parse(view.allowed("wide"));
    let is_local = |node: &usize| cpus.is_subset(&cpus_of(shape, NodeSet::of(*node)));
    let has_no_cpus = |node: &usize| cpus_of(shape, NodeSet::of(*node)).is_empty();
    let nodes: Vec<usize> = memory.allowed.iter().collect();
    ensure!(
        nodes.len() == 2 && nodes.iter().any(is_local) && nodes.iter().any(has_no_cpus),
        "wide may run on CPUs {cpus}, memory: {memory:?}"
    );
    Ok(())
}

/// Everything that is reserved is on node 0.
fn config(shape: &Shape, policy: &str) -> String {
    let reserved = SYSTEM + EVICTION;
    shape.config(&format!(
        "topologyManagerPolicy: {policy}
memoryManagerPolicy: Static
systemReserved: {{memory: {SYSTEM}Mi}}
reservedMemory:
- numaNode: 0
  limits: {{memory: {reserved}Mi}}"
    ))
}

fn nodes_with_cpus(shape: &Shape) -> Vec<usize> {
    let nodes = shape.hardware.nodes.iter().enumerate();
    nodes.filter(|(_, node)| !node.cpus.is_empty()).map(|(number, _)| number).collect()
}

fn cpus_of(shape: &Shape, nodes: NodeSet) -> CpuSet {
    let all = nodes.iter().filter_map(|node| shape.hardware.nodes.get(node));
    all.map(|node| parse(&node.cpus)).collect()
}

/// What containers can be given of a node, in bytes.
fn room(node: usize) -> Result<i64> {
    let reserved = if node == 0 { (SYSTEM + EVICTION) * MIB } else { 0 };
    Ok(i64::try_from(kernel::memory_of_node(node)?)? - reserved)
}

/// As much memory as each node with CPUs has once and none has twice, in bytes.
fn more_than_half(shape: &Shape) -> Result<i64> {
    let mut rooms = Vec::new();
    for node in nodes_with_cpus(shape) {
        rooms.push(room(node)?);
    }
    let most = rooms.iter().max().copied().unwrap_or_default();
    let size = most / 2 / MIB * MIB + 16 * MIB;
    ensure!(rooms.iter().all(|room| *room >= size), "nodes differ too much: {rooms:?}");
    Ok(size)
}

fn large(name: &str, bytes: i64) -> Pod {
    Pod::new(name, [guaranteed("main", 1).with_memory(bytes)])
}

/// The container writes [`HELD`] and keeps it.
fn holding(container: Container) -> Container {
    container.running(["/bin/probe".to_owned(), "hold".to_owned(), HELD.to_string()])
}

/// A pod that asks for huge pages and takes all of them.
fn with_huge_pages(name: &str, pages: u64) -> Pod {
    let bytes = pages * HUGE_PAGE;
    let main = guaranteed("main", 1).with_huge_pages(bytes);
    let command = ["/bin/probe".to_owned(), "hold-huge".to_owned(), bytes.to_string()];
    Pod::new(name, [main.running(command)])
}

/// Once the pod has written its memory, all of which must be where it may be.
fn held(testbed: &mut Testbed<'_>, pod: &str) -> Result<ProcessMemory> {
    let memory = testbed.memory(pod, HELD.unsigned_abs())?;
    ensure!(memory.used().is_subset(memory.allowed), "{pod} has pages elsewhere: {memory:?}");
    Ok(memory)
}

fn is_on(testbed: &mut Testbed<'_>, pod: &str, nodes: NodeSet) -> Result<()> {
    let memory = testbed.memory(pod, 0)?;
    ensure!(memory.allowed == nodes, "{pod}: {memory:?}, expected nodes {nodes}");
    Ok(())
}
