//! `nri-cpu-manager status`: the node and its containers, as a running plugin sees them.

use super::client::{self, ClientError};
use super::output::{Color, Drawing, offer, overrides, show, table};
use super::{NamespaceArgs, UsageError};
use crate::serve::page;
use crate::view::lack_of_cpus;
use crate::view::noise::{heaviest, verdicts};
use crate::view::picture::{Picture, Usage, text as drawn};
use crate::view::status::{
    ContainerStatus, DomainStatus, Indented, InterruptsStatus, MemoryStatus, NodeStatus,
    RebalanceStatus, RecordStatus, Status,
};
use clap::Args;
use cpuset::CpuSet;
use placement::memory_manager::amount;
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::iter;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use wording::{self, count, or_none};

/// Clears a terminal and begins at its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// The time between two statuses, in seconds, if `--watch` gives none.
const PAUSE: &str = "2";
/// Where the list of containers has their memory, on nodes where memory is counted: behind `CORES`.
const MEMORY_COLUMN: usize = 7;

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The plugin's state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Drawing::Text)]
    pub output: Drawing,
    #[command(flatten)]
    pub namespaces: NamespaceArgs,
    /// Show the status again after this many seconds (by default 2), until Ctrl-C; wait for a
    /// plugin that restarts
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = PAUSE,
        value_parser = pause
    )]
    pub watch: Option<Duration>,
    /// Whether to colour the picture
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

fn pause(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.1);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected seconds, at least 0.1".to_owned())
}

pub fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let Some(pause) = args.watch else {
        let answer = client::ask(&args.state_dir, "/status")?;
        return Ok(show(out, &shown(args, &answer)?)?);
    };
    if args.output == Drawing::Svg {
        let why =
            "--watch repeats text or JSON: the page of the plugin follows the node as a picture";
        return Err(UsageError(why.to_owned()).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(watch(args, pause, out));
    // A question that the plugin has not answered must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Shows the status until SIGINT, or until the reader of `out` has gone away.
async fn watch(
    args: &StatusArgs,
    pause: Duration,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let terminal = io::stdout().is_terminal();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut waiting = false;
    loop {
        let state_dir = args.state_dir.clone();
        let answer = tokio::select! {
            answer = spawn_blocking(move || client::ask(&state_dir, "/status")) => answer?,
            _ = interrupt.recv() => return Ok(()),
        };
        match answer {
            Ok(answer) => {
                waiting = false;
                let text = shown(args, &answer)?;
                let block = if terminal { format!("{CLEAR}{text}") } else { format!("{text}\n") };
                if !offer(out, &block)? {
                    return Ok(());
                }
            }
            Err(error) => {
                if !waiting {
                    // There is no place to report a failure.
                    let _ = writeln!(io::stderr(), "waiting for the plugin: {error}");
                }
                waiting = true;
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// The plugin's answer in the form that was requested.
fn shown(args: &StatusArgs, answer: &str) -> Result<String, Box<dyn Error>> {
    if args.output == Drawing::Json {
        let mut status: Value = serde_json::from_str(answer).map_err(ClientError::from)?;
        keep(&mut status, &args.namespaces);
        return Ok(format!("{status:#}\n"));
    }
    let mut status: Status = client::read(answer)?;
    if !args.namespaces.namespaces.is_empty()
        && let Some(node) = &mut status.node
    {
        node.show_only(&args.namespaces.namespaces);
    }
    Ok(match args.output {
        Drawing::Svg => page::picture(&status)?,
        _ => text(&status, args.color.style()),
    })
}

/// Removes containers and records of other namespaces. The rest stays as it came: a newer plugin's
/// answer may have fields that this program does not know.
fn keep(status: &mut Value, namespaces: &NamespaceArgs) {
    for list in ["containers", "refusals", "troubles"] {
        if let Some(Value::Array(entries)) = status.pointer_mut(&format!("/node/{list}")) {
            entries.retain(|one| namespaces.includes(one["namespace"].as_str().unwrap_or("")));
        }
    }
}

pub fn text(status: &Status, style: drawn::Style) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, status, style);
    text
}

fn write(f: &mut String, status: &Status, style: drawn::Style) -> std::fmt::Result {
    write!(f, "nri-cpu-manager {} at {}", status.plugin_version, status.at)?;
    match &status.node_name {
        Some(name) => writeln!(f, " on node {name}")?,
        None => writeln!(f)?,
    }
    match status.obstacles.as_slice() {
        [] => writeln!(f, "ready:    yes")?,
        obstacles => writeln!(f, "ready:    no, {}", obstacles.join("; "))?,
    }
    let connections = count(status.runtime.connections, "connection");
    writeln!(f, "runtime:  {} ({connections} so far)", status.runtime)?;
    if let Some(node) = &status.node {
        write_node(f, node, style)?;
    }
    Ok(())
}

/// Where the plugin gets the NUMA nodes of devices from.
fn devices(kubelet: &str) -> String {
    let files = "drivers and /sys say on which NUMA nodes they are";
    match kubelet {
        "answers" => "the kubelet says on which NUMA nodes they are".to_owned(),
        "unmounted" => format!(
            "{files}; the kubelet is not asked, because its podresources directory is not mounted (overlay devices)"
        ),
        "unasked" => format!("{files}; the kubelet has not answered yet"),
        failure => format!("{files}; the kubelet {failure}"),
    }
}

fn write_node(f: &mut String, node: &NodeStatus, style: drawn::Style) -> std::fmt::Result {
    let config = &node.config;
    writeln!(f, "config:   {}", config.line(None))?;
    write!(f, "{}", Indented(&config.namespaces, "          "))?;
    let from = &node.config_source;
    let overrides = overrides(&from.overrides);
    writeln!(f, "          from {}{overrides}, read at {}", from.source, from.loaded)?;
    if let Some(rejection) = from.rejection() {
        writeln!(f, "          REJECTED, {rejection}")?;
    }
    if let Some(fields) = from.needs_restart() {
        writeln!(f, "          {fields}")?;
    }
    if let Some(nothing) = &node.nothing_to_assign {
        writeln!(f, "          {nothing}")?;
    }
    if let Some(why) = node.why_not_assigning() {
        writeln!(f, "stance:   {}: {why}", node.stance)?;
    }
    if let Some(error) = &node.checkpoint_error {
        writeln!(f, "state:    not written: {error}")?;
    }
    if let Some(error) = &node.cgroups_error {
        writeln!(f, "cgroups:  {error}")?;
    }
    if let Some(why) = &node.exclusivity_because {
        writeln!(f, "cgroups:  exclusivity {}: {why}", node.config.exclusivity)?;
    }
    for (group, why) in &node.distrusted_cgroups {
        writeln!(f, "cgroups:  {group}: setting each cgroup below it individually: {why}")?;
    }
    for (pod, why) in &node.unbound_pods {
        writeln!(f, "cgroups:  pod {pod}: the runtime keeps it off exclusive CPUs: {why}")?;
    }
    for (group, cpus) in &node.cgroup_bounds {
        write!(f, "cgroups:  {group}: another program limits it to {}", wording::cpus(*cpus))?;
        match node.cgroup_bound_details.get(group) {
            Some(details) => writeln!(
                f,
                " since {}; to remove the limit: {}",
                details.since, details.remove_with
            )?,
            None => writeln!(f)?,
        }
    }
    if config.topology_manager_policy != "none" {
        writeln!(f, "devices:  {}", devices(&node.kubelet_devices))?;
    }
    let cpus = &node.cpus;
    writeln!(
        f,
        "CPUs:     online {}, reserved {}, exclusive {}, free {}, shared pool {}",
        or_none(cpus.online),
        or_none(cpus.reserved),
        or_none(cpus.exclusive),
        or_none(cpus.free),
        or_none(cpus.shared)
    )?;
    if !cpus.isolated.is_empty() {
        writeln!(
            f,
            "          isolated {} (isolcpus), never shared: exclusive {}, free {}",
            cpus.isolated,
            or_none(cpus.isolated & cpus.exclusive),
            or_none(cpus.isolated_free)
        )?;
    }
    if !cpus.core_sizes.is_empty() {
        let sizes = cpus.core_sizes.iter().rev();
        let sizes = sizes.map(|(size, cores)| format!("{cores} of {}", count(*size as u64, "cpu")));
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        writeln!(f, "          cores differ in size: {sizes}")?;
    }
    if !cpus.never_fit.is_empty() {
        writeln!(f, "          requests that never fit here: {} CPUs", cpus.never_fit)?;
    }
    if !cpus.lent.is_empty() {
        writeln!(
            f,
            "          lent {}: of ended containers, shared until they are back",
            cpus.lent
        )?;
    }
    for (group, cpus) in &node.foreign_partitions {
        writeln!(f, "          foreign {cpus}: cpuset partition {group} of another program")?;
    }
    if let Some(filter) = &node.filter {
        let namespaces = filter.namespaces.join(", ");
        writeln!(
            f,
            "shown:    containers and records in {namespaces}; CPUs and counts of the node"
        )?;
    }
    writeln!(f)?;
    match Picture::of_status(node) {
        Ok(picture) => writeln!(f, "{}", drawn::draw(&picture, style))?,
        Err(error) => writeln!(f, "no picture: {error}\n")?,
    }
    writeln!(f, "{}", table(&domains(node)))?;
    let scattered: Vec<String> = node
        .fragmentation
        .iter()
        .map(|(boundary, value)| format!("{value:.2} by {}", boundary.replace('_', " ")))
        .collect();
    writeln!(f, "fragmentation of free CPUs (0 best, 1 worst): {}\n", scattered.join(", "))?;
    if let Some(memory) = &node.memory {
        write_memory(f, memory)?;
    }
    write_containers(f, node)?;
    if let Some(drift) = node.drift() {
        writeln!(f, "drifting: {drift}")?;
    }
    if node.late_containers > 0 {
        let containers = count(node.late_containers, "container");
        write!(f, "late:     {containers} waiting for an update by the runtime")?;
        if let Some(seconds) = node.runtime_change_seconds {
            write!(f, " ({seconds:.2} s each)")?;
        }
        writeln!(f)?;
    }
    if !node.moves.is_empty() {
        let moves: Vec<String> =
            node.moves.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        writeln!(f, "moved while running: {}", moves.join(", "))?;
    }
    write_interrupts(f, node)?;
    write_noise(f, node)?;
    write_rebalance(f, node)?;
    if node.partition_refusals > 0 {
        writeln!(f, "refused by the kernel: {}", count(node.partition_refusals, "time"))?;
    }
    if node.pods_lacking_cpus > 0 && node.nothing_to_assign.is_none() {
        writeln!(f, "lacking:  {}: {}", node.pods_lacking_cpus, lack_of_cpus(node.cpus.reserved))?;
    }
    write_records(f, "refused", &node.refusals)?;
    write_records(f, "troubles", &node.troubles)
}

/// Interrupts on exclusive CPUs, and what the kernel keeps away from isolated partitions.
fn write_interrupts(f: &mut String, node: &NodeStatus) -> std::fmt::Result {
    if let Some(interrupts) = &node.interrupts {
        let InterruptsStatus { away, refused, pending, nowhere, refused_files, errors, .. } =
            interrupts;
        writeln!(
            f,
            "interrupts: {away} kept off exclusive CPUs, {} refused, {} pending; {}",
            refused.len() + nowhere.len(),
            pending.len(),
            interrupts.irqbalance_words()
        )?;
        for one in refused {
            writeln!(f, "  refused: {one}")?;
        }
        for one in nowhere {
            writeln!(f, "  no other CPU: {one}")?;
        }
        for one in pending {
            writeln!(f, "  until it fires: {one}")?;
        }
        for (file, why) in refused_files {
            writeln!(f, "  refused: {file}: {why}")?;
        }
        for error in errors {
            writeln!(f, "  {error}")?;
        }
        for one in &node.containers {
            if let Some(quiet) = &one.quiet {
                writeln!(f, "  {}: {quiet}", one.full_name())?;
            }
        }
    }
    if !node.isolation.is_empty() {
        writeln!(f, "isolated partitions: {}", node.isolation.join("; "))?;
    }
    Ok(())
}

/// What ran or fired on exclusive CPUs besides their containers.
fn write_noise(f: &mut String, node: &NodeStatus) -> std::fmt::Result {
    if let Some(error) = &node.noise_error {
        return writeln!(f, "noise on exclusive CPUs: {error}");
    }
    let Some(noise) = &node.noise else { return Ok(()) };
    writeln!(f, "noise on exclusive CPUs in {:.0} s: {}", noise.seconds, verdicts(noise))?;
    if let Some(milliseconds) = noise.sample_milliseconds {
        let threads = count(noise.threads_read as u64, "thread");
        writeln!(f, "  a sample reads {threads} in {milliseconds} ms")?;
    }
    for line in noise.hidden() {
        writeln!(f, "  {line}")?;
    }
    for container in &noise.containers {
        for line in heaviest(container) {
            writeln!(f, "  {}, {line}", container.name)?;
        }
    }
    Ok(())
}

fn write_rebalance(f: &mut String, node: &NodeStatus) -> std::fmt::Result {
    let Some(moves) = &node.rebalance else {
        return writeln!(f, "rebalance: off, running containers keep their CPUs");
    };
    if moves.mode == "suggest" {
        let would = count(moves.suggested, "container");
        writeln!(f, "rebalance: dry run (mode: suggest), {would} would have moved")?;
    } else {
        let RebalanceStatus { arrival, departure, .. } = moves;
        write!(
            f,
            "rebalance: {arrival} moved for a container that started, {departure} after one had ended"
        )?;
        if moves.undone > 0 {
            write!(f, ", {} taken back", count(moves.undone, "step"))?;
        }
        writeln!(f)?;
    }
    let RebalanceStatus { moves_left, moves_at_most, spare_moves, .. } = moves;
    writeln!(
        f,
        "  budget: {moves_left} of {moves_at_most} moves left, {spare_moves} of them without a container \
         that starts; 100 starts add {}",
        moves.moves_per_100_starts
    )?;
    for plan in &moves.last_plans {
        let when = match plan.occasion.as_str() {
            "arrival" => "for a container that started",
            _ => "after an end or minStay",
        };
        let moved = if plan.moved > 0 { format!("{} moved", plan.moved) } else { String::new() };
        let why = plan.why.as_deref().unwrap_or_default();
        let gap = if moved.is_empty() || why.is_empty() { "" } else { ", then " };
        writeln!(f, "  last plan {when}: {moved}{gap}{why} ({})", plan.at)?;
    }
    if moves.only_at_creations {
        writeln!(
            f,
            "  containers move only when another one is created: cgroups do not bind all pods"
        )?;
    }
    if moves.threads_unseen {
        writeln!(
            f,
            "  threads with CPU affinities of their own cannot be seen: hostPID (overlay host-pid)"
        )?;
    }
    let mut stay: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in &node.containers {
        if let Some(stays) = &one.stays {
            stay.entry(&stays.text).or_default().push(one.full_name());
        }
    }
    for (why, containers) in stay {
        writeln!(f, "  stays: {why}: {}", containers.join(", "))?;
    }
    Ok(())
}

/// NUMA nodes with their uncore caches; of a cache in several nodes, the part in each.
fn domains(node: &NodeStatus) -> Vec<Vec<String>> {
    let mut rows = vec![["", "CPUs", "exclusive", "free"].map(str::to_owned).to_vec()];
    let mut row = |label: String, one: &DomainStatus, inside: CpuSet| {
        let lists = [one.cpus, one.exclusive, one.free].map(|cpus| or_none(cpus & inside));
        rows.push([vec![label], lists.to_vec()].concat());
    };
    for numa in &node.numa_nodes {
        let inside = numa.cpus;
        row(format!("NUMA node {}", numa.id), numa, inside);
        for uncore in node.uncore_caches.iter().filter(|one| !one.cpus.is_disjoint(&inside)) {
            let part = if uncore.cpus.is_subset(&inside) { "" } else { " (part)" };
            row(format!("  uncore cache {}{part}", uncore.id), uncore, inside);
        }
    }
    rows
}

fn write_memory(f: &mut String, memory: &MemoryStatus) -> std::fmt::Result {
    let head = ["", "memory", "allocatable", "allocated", "free"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in &memory.numa_nodes {
        let [allocatable, allocated, free] = [one.allocatable, one.allocated, one.free].map(amount);
        rows.push(vec![
            format!("NUMA node {}", one.id),
            one.kind.clone(),
            allocatable,
            allocated,
            free,
        ]);
    }
    for one in &memory.together {
        rows.push(vec![one.label(), one.kind.clone(), String::new(), amount(one.allocated)]);
    }
    writeln!(f, "{}", table(&rows))?;
    let types = memory.types.iter().map(|one| {
        let [free, in_one] = [one.free, one.free_in_one_node].map(amount);
        let scattered = one.fragmentation;
        format!("{} {free}, up to {in_one} in one NUMA node ({scattered:.2})", one.kind)
    });
    let types: Vec<String> = types.collect();
    writeln!(f, "free memory (fragmentation: 0 best, 1 worst): {}\n", types.join("; "))
}

fn write_containers(f: &mut String, node: &NodeStatus) -> std::fmt::Result {
    let head =
        ["", "CONTAINER", "CPUS", "USE", "NUMA", "UNCORE", "CORES", "KEPT BY", "STATE", "SINCE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(node.listed().into_iter().map(row));
    if node.memory.is_some() {
        let listed = node.listed();
        let cells = listed.iter().map(|one| memory_cell(one));
        let cells = iter::once("MEMORY".to_owned()).chain(cells);
        rows.iter_mut().zip(cells).for_each(|(row, cell)| row.insert(MEMORY_COLUMN, cell));
    }
    writeln!(f, "{}", table(&rows))
}

fn memory_cell(one: &ContainerStatus) -> String {
    match &one.memory {
        Some(memory) => memory.short(),
        None => "-".to_owned(),
    }
}

fn row(one: &ContainerStatus) -> Vec<String> {
    let dash = || "-".to_owned();
    let numbers = |numbers: &[usize]| {
        let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        if list.is_empty() { dash() } else { list.join(",") }
    };
    let usage = match (one.exclusive, one.shared.is_empty()) {
        (true, true) => "exclusive",
        (true, false) => "exclusive+shared",
        (false, _) if one.left_alone.is_some() => "left alone",
        (false, _) if !one.own_pool.is_empty() => "own pool",
        (false, _) if one.reserved => "reserved",
        (false, _) => "shared",
    };
    let cores = match (one.exclusive, one.placement.whole_cores) {
        (false, _) => "-",
        (true, true) => "whole",
        _ if !one.idle.is_empty() => "idle siblings",
        (true, false) => "partial",
    };
    vec![
        one.usage().map(Usage::sign).unwrap_or_default(),
        one.full_name(),
        or_none(one.cpus),
        usage.to_owned(),
        numbers(&one.placement.numa_nodes),
        numbers(&one.placement.uncore_caches),
        cores.to_owned(),
        one.mechanism.clone().unwrap_or_else(dash),
        one.state.clone(),
        one.since.clone().or_else(|| one.created.clone()).unwrap_or_else(dash),
    ]
}

/// Newest first; equal ones in a row become one line with their number.
fn write_records(f: &mut String, title: &str, records: &[RecordStatus]) -> std::fmt::Result {
    if records.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title} (newest first):")?;
    let same = |a: &RecordStatus, b: &RecordStatus| {
        (&a.namespace, &a.pod, &a.container, &a.text)
            == (&b.namespace, &b.pod, &b.container, &b.text)
    };
    for run in records.chunk_by(same).rev() {
        let Some(last) = run.last() else { continue };
        let times = if run.len() > 1 { format!(" ({} times)", run.len()) } else { String::new() };
        writeln!(f, "  {}  {}: {}{times}", last.at, last.full_name(), last.text)?;
    }
    Ok(())
}
