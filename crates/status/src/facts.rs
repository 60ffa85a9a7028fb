//! [`facts`]: everything that a snapshot says besides its lists of containers and records, each once, in words. The
//! text of `status`, health and readiness, and the page are made of it.

use super::config_state::overrides;
use super::config_status::Indented;
use super::domains::{numa_nodes, scattered, uncore_caches};
use super::memory::MemoryStatus;
use super::node::{KubeletDevices, LastPlan, lack_of_cpus};
use super::noise::{heaviest, verdicts};
use super::quiet;
use super::snapshot::{Node, OBSERVES, Snapshot};
use exclusivity::Isolation;
use ledger::{MoveFigures, MoveOutcome, Occasion, RebalanceMode, Stance};
use placement::memory_manager::amount;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wording::{count, or_none};

/// How much a fact matters; the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It keeps the plugin from placing containers as configured.
    Obstacle,
    /// Containers are placed, and the node needs an administrator.
    Warning,
    Note,
}

/// Something that a reader should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fact {
    pub level: Level,
    /// A word: what it is about. Facts that follow one another may have the same.
    pub label: String,
    /// A sentence, or a few words.
    pub value: String,
    /// What to do, if that is not part of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Fact {
    fn new(level: Level, label: &str, value: impl Into<String>) -> Fact {
        Fact { level, label: label.to_owned(), value: value.into(), advice: None }
    }

    pub(super) fn obstacle(label: &str, value: impl Into<String>) -> Fact {
        Fact::new(Level::Obstacle, label, value)
    }

    pub(super) fn warning(label: &str, value: impl Into<String>) -> Fact {
        Fact::new(Level::Warning, label, value)
    }

    fn note(label: &str, value: impl Into<String>) -> Fact {
        Fact::new(Level::Note, label, value)
    }

    fn advising(self, advice: impl Into<String>) -> Fact {
        Fact { advice: Some(advice.into()), ..self }
    }
}

/// The most urgent first; those of one level in the order in which a reader asks.
pub fn facts(snapshot: &Snapshot) -> Vec<Fact> {
    let mut facts = snapshot.health.0.clone();
    let connections = count(snapshot.runtime.connections, "connection");
    facts.push(Fact::note("runtime", format!("{} ({connections} so far)", snapshot.runtime)));
    if let Some(node) = &snapshot.node {
        facts.extend(config(node));
        facts.extend(cpus(node));
        facts.extend(node.memory.iter().map(memory));
        facts.extend(exclusivity(node));
        facts.extend(devices(node));
        facts.extend(drift(node));
        facts.extend(interrupts(node));
        facts.extend(noise(node));
        facts.extend(rebalance(node));
    }
    facts.sort_by_key(|fact| fact.level);
    facts
}

fn config(node: &Node) -> Vec<Fact> {
    let mut facts = Vec::new();
    // The stance to refuse is an obstacle.
    if node.figures.stance == Stance::Observe {
        facts.push(Fact::warning("stance", OBSERVES));
    }
    facts.push(Fact::note("config", node.config.line(None)));
    let source = &node.parts.config_source;
    let overrides = overrides(&source.overrides);
    let read = format!("from {}{overrides}, read at {}", source.source, source.loaded);
    facts.push(Fact::note("config", read));
    let namespaces = Indented(&node.config.namespaces, "").to_string();
    facts.extend(namespaces.lines().map(|line| Fact::note("config", line)));
    facts
}

fn cpus(node: &Node) -> Vec<Fact> {
    let cpus = &node.figures.cpus;
    let mut facts = Vec::new();
    if node.figures.pods_lacking_cpus > 0 && node.parts.config_source.nothing_to_assign.is_none() {
        let pods = count(node.figures.pods_lacking_cpus, "pod");
        facts.push(Fact::warning("lacking", format!("{pods}: {}", lack_of_cpus(cpus.reserved))));
    }
    facts.push(Fact::note(
        "CPUs",
        format!(
            "online {}, reserved {}, exclusive {}, free {}, shared pool {}",
            or_none(cpus.online),
            or_none(cpus.reserved),
            or_none(cpus.exclusive - cpus.shared),
            or_none(cpus.free),
            or_none(cpus.shared)
        ),
    ));
    if !cpus.isolated.is_empty() {
        facts.push(Fact::note(
            "CPUs",
            format!(
                "isolated {} (isolcpus), never shared: exclusive {}, free {}",
                cpus.isolated,
                or_none(cpus.isolated & cpus.exclusive),
                or_none(cpus.isolated_free)
            ),
        ));
    }
    if !node.core_sizes.is_empty() {
        let sizes = node.core_sizes.iter().rev();
        let sizes = sizes.map(|(size, cores)| format!("{cores} of {}", count(*size as u64, "cpu")));
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        facts.push(Fact::note("CPUs", format!("cores differ in size: {sizes}")));
    }
    if !node.never_fit.is_empty() {
        let never = format!("requests that never fit here: {} CPUs", node.never_fit);
        facts.push(Fact::note("CPUs", never));
    }
    if !cpus.lent().is_empty() {
        let lent = format!("lent {}: of ended containers, shared until they are back", cpus.lent());
        facts.push(Fact::note("CPUs", lent));
    }
    for (group, cpus) in &node.parts.exclusivity.foreign_partitions {
        let foreign = format!("foreign {cpus}: cpuset partition {group} of another program");
        facts.push(Fact::note("CPUs", foreign));
    }
    let by = [
        ("NUMA node", numa_nodes(&node.machine, cpus)),
        ("uncore cache", uncore_caches(&node.machine, cpus)),
    ];
    let by = by.map(|(name, domains)| format!("{:.2} by {name}", scattered(cpus, &domains)));
    let scattered = format!("free CPUs (0 best, 1 worst): {}", by.join(", "));
    facts.push(Fact::note("scattered", scattered));
    facts
}

fn memory(memory: &MemoryStatus) -> Fact {
    let types = memory.types.iter().map(|one| {
        let [free, in_one] = [one.free, one.free_in_one_node].map(amount);
        let scattered = one.fragmentation;
        format!("{} {free}, up to {in_one} in one NUMA node ({scattered:.2})", one.kind)
    });
    let types: Vec<String> = types.collect();
    Fact::note("scattered", format!("free memory (0 best, 1 worst): {}", types.join("; ")))
}

fn exclusivity(node: &Node) -> Vec<Fact> {
    let figures = &node.parts.exclusivity;
    let mut facts = Vec::new();
    if let Some(why) = &figures.because {
        let text = format!("exclusivity {}: {why}", node.config.exclusivity);
        facts.push(Fact::note("cgroups", text));
    }
    for (pod, why) in &figures.unbound_pods {
        let text = format!("pod {pod}: the runtime keeps it off exclusive CPUs: {why}");
        facts.push(Fact::note("cgroups", text));
    }
    for bound in &figures.cgroup_bounds {
        let limited = wording::cpus(bound.cpus);
        let text = format!(
            "{}: another program limits it to {limited} since {}",
            bound.cgroup, bound.since
        );
        let advice = format!("to remove the limit: {}", bound.remove_with);
        facts.push(Fact::warning("cgroups", text).advising(advice));
    }
    if figures.partition_refusals > 0 {
        let times = count(figures.partition_refusals, "time");
        facts.push(Fact::note("cgroups", format!("the kernel made no partition {times}")));
    }
    let isolation = node.parts.quiet.isolation.as_ref().map(Isolation::facts);
    facts.extend(
        isolation.map(|facts| {
            Fact::note("cgroups", format!("isolated partitions: {}", facts.join("; ")))
        }),
    );
    facts
}

/// Where the plugin gets the NUMA nodes of devices from.
fn devices(node: &Node) -> Option<Fact> {
    if node.config.topology_manager_policy == "none" {
        return None;
    }
    let files = "drivers and /sys say on which NUMA nodes they are";
    let text = match &node.parts.kubelet_devices {
        KubeletDevices::Answers => "the kubelet says on which NUMA nodes they are".to_owned(),
        KubeletDevices::Unmounted => format!(
            "{files}; the kubelet is not asked, because its podresources directory is not mounted (overlay devices)"
        ),
        KubeletDevices::Unasked => format!("{files}; the kubelet has not answered yet"),
        KubeletDevices::Fails(why) => format!("{files}; the kubelet fails: {why}"),
    };
    Some(Fact::note("devices", text))
}

fn drift(node: &Node) -> Vec<Fact> {
    let figures = &node.parts.drift;
    let mut facts = Vec::new();
    if figures.drifting > 0 {
        let containers = count(figures.drifting, "container");
        facts.push(Fact::warning(
            "drifting",
            format!("{containers} not as decided, despite repairs"),
        ));
    }
    if figures.late > 0 {
        let containers = count(figures.late, "container");
        let each = figures.change_seconds.map(|seconds| format!(" ({seconds:.2} s each)"));
        let each = each.unwrap_or_default();
        facts.push(Fact::note(
            "late",
            format!("{containers} waiting for an update by the runtime{each}"),
        ));
    }
    let moves: Vec<String> = node
        .figures
        .moves
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{count} {}", reason.name()))
        .collect();
    if !moves.is_empty() {
        facts.push(Fact::note("moved", format!("while running: {}", moves.join(", "))));
    }
    facts
}

/// Interrupts on exclusive CPUs.
fn interrupts(node: &Node) -> Vec<Fact> {
    let figures = &node.parts.quiet;
    let report = &figures.report;
    // Obstacles of all passes are among the warnings of health.
    let errors = report.errors.iter().map(|error| Fact::warning("interrupts", error.as_str()));
    let mut facts: Vec<Fact> = errors.collect();
    if figures.goal.is_empty() {
        return facts;
    }
    let mut note = |text: String| facts.push(Fact::note("interrupts", text));
    note(format!(
        "{} kept off exclusive CPUs, {} refused, {} pending; {}",
        report.away.len(),
        report.refused.len() + report.nowhere.len(),
        report.pending.len(),
        quiet::irqbalance(&report.irqbalance)
    ));
    for refused in &report.refused {
        let interrupt = quiet::interrupt(&refused.interrupt);
        note(format!("refused: {interrupt}: {}", refused.why));
    }
    for one in &report.nowhere {
        note(format!("no other CPU: {}", quiet::interrupt(one)));
    }
    for one in &report.pending {
        note(format!("until it fires: {}", quiet::interrupt(one)));
    }
    for (file, why) in &report.refused_files {
        note(format!("refused: {file}: {why}"));
    }
    for one in figures.goal.containers.iter().filter(|one| node.shows(&one.name)) {
        note(format!("{}: {}", one.name, quiet::of_container(one, report)));
    }
    facts
}

/// What ran or fired on exclusive CPUs besides their containers.
fn noise(node: &Node) -> Vec<Fact> {
    if let Some(error) = &node.noise.obstacle {
        return vec![Fact::note("noise", format!("on exclusive CPUs: {error}"))];
    }
    let Some(noise) = &node.noise.recent else { return Vec::new() };
    let mut lines =
        vec![format!("on exclusive CPUs in {:.0} s: {}", noise.seconds, verdicts(noise))];
    if let Some(milliseconds) = noise.sample_milliseconds {
        let threads = count(noise.threads_read as u64, "thread");
        lines.push(format!("a sample reads {threads} in {milliseconds} ms"));
    }
    lines.extend(noise.hidden());
    for container in &noise.containers {
        let heaviest = heaviest(container).into_iter();
        lines.extend(heaviest.map(|line| format!("{}, {line}", container.name)));
    }
    lines.into_iter().map(|line| Fact::note("noise", line)).collect()
}

fn rebalance(node: &Node) -> Vec<Fact> {
    let note = |text: String| Fact::note("rebalance", text);
    let Some(moves) = &node.figures.rebalance else {
        return vec![note("off, running containers keep their CPUs".to_owned())];
    };
    let of = |occasion| moves.totals.of(occasion, MoveOutcome::Done);
    let undone = moves.totals.all(MoveOutcome::Undone);
    let undone = match undone {
        0 => String::new(),
        steps => format!(", {} taken back", count(steps, "step")),
    };
    let mut facts = vec![note(match moves.mode {
        RebalanceMode::Suggest => {
            let would = count(moves.totals.all(MoveOutcome::Suggested), "container");
            format!("dry run (mode: suggest), {would} would have moved")
        }
        RebalanceMode::Move => format!(
            "{} moved for a container that started, {} after one had ended{undone}",
            of(Occasion::Arrival),
            of(Occasion::Departure)
        ),
    })];
    facts.push(note(format!(
        "budget: {} of {} moves left, {} of them without a container that starts; 100 starts add {}",
        moves.moves_left, moves.moves_at_most, moves.spare_moves, moves.moves_per_100_starts
    )));
    for (occasion, plan) in &node.parts.plans.last {
        facts.push(note(last_plan(*occasion, plan)));
    }
    if node.parts.plans.only_at_creations {
        facts.push(note(
            "containers move only when another one is created: cgroups do not bind all pods"
                .to_owned(),
        ));
    }
    if node.parts.plans.threads_unseen {
        facts.push(note(
            "threads with CPU affinities of their own cannot be seen: hostPID (overlay host-pid)"
                .to_owned(),
        ));
    }
    let mut stay: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in &node.containers {
        if let Some(stays) = &one.stays {
            stay.entry(stays.to_string()).or_default().push(one.full_name());
        }
    }
    let stay = stay.into_iter();
    facts.extend(stay.map(|(why, of)| note(format!("stays: {why}: {}", of.join(", ")))));
    facts
}

fn last_plan(occasion: Occasion, plan: &LastPlan) -> String {
    let when = match occasion {
        Occasion::Arrival => "for a container that started",
        Occasion::Departure => "after an end or minStay",
    };
    let moved = if plan.moved > 0 { format!("{} moved", plan.moved) } else { String::new() };
    let why = plan.why.as_deref().unwrap_or_default();
    let gap = if moved.is_empty() || why.is_empty() { "" } else { ", then " };
    format!("last plan {when}: {moved}{gap}{why} ({})", plan.at)
}

/// What is left of the budget of moves: `1 of 2 moves left`.
pub(super) fn budget(moves: Option<&MoveFigures>) -> String {
    let Some(moves) = moves else { return "off".to_owned() };
    let dry = if moves.mode == RebalanceMode::Suggest { "dry run, " } else { "" };
    format!("{dry}{} of {} moves left", moves.moves_left, moves.moves_at_most)
}
