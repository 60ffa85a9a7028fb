//! The result for people: configurations side by side, and the node at the end.

use super::report::{PlacementReport, RunReport, Setup, SimulationReport};
use placement::memory_manager::amount;
use placement::quality::LiveScore;
use simulate::{Figures, Moves, Values};
use status::config_state::overrides;
use status::memory::{self, MemoryStatus};
use status::picture::{Picture, Usage, text};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use terminal::output::table;
use wording::count;

/// The most containers in the list; the JSON has all.
const LISTED: usize = 40;

pub(super) fn text(report: &SimulationReport, pictures: &[Picture], style: text::Style) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, report, pictures, style);
    out
}

fn write(
    f: &mut String,
    report: &SimulationReport,
    pictures: &[Picture],
    style: text::Style,
) -> std::fmt::Result {
    writeln!(
        f,
        "machine:   {}, {}, {}, {}",
        report.machine,
        count(report.cpus, "CPU"),
        count(report.uncore_caches, "uncore cache"),
        count(report.numa_nodes, "NUMA node")
    )?;
    writeln!(f, "workload:  {}", report.workload)?;
    for run in &report.runs {
        let Setup { config, settings, overrides: lines } = &run.setup;
        writeln!(f, "config:    {config}: {settings}{}", overrides(lines))?;
    }
    writeln!(f, "\n{}", table(&rows(&report.runs)))?;
    for (run, picture) in report.runs.iter().zip(pictures) {
        writeln!(
            f,
            "{} at {} s:\n{}",
            run.setup.config,
            run.figures.end,
            text::draw(picture, style)
        )?;
        write_placements(f, run, picture)?;
        let shared = run
            .placements
            .iter()
            .filter_map(|one| Some([one.full_name(), one.why_shared.clone()?]));
        write_reasons(f, "on shared CPUs", shared.collect())?;
        let refused = run
            .refusals
            .iter()
            .map(|one| [one.full_name(), format!("at {} s: {}", one.time, one.why)]);
        write_reasons(f, "refused at first", refused.collect())?;
    }
    Ok(())
}

/// Names with a reason each, below a title.
fn write_reasons(f: &mut String, title: &str, rows: Vec<[String; 2]>) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}:")?;
    for [name, why] in rows.iter().take(LISTED) {
        writeln!(f, "  {name}: {why}")?;
    }
    match rows.len().saturating_sub(LISTED) {
        0 => writeln!(f),
        more => writeln!(f, "and {more} more; --output json lists all\n"),
    }
}

fn rows(runs: &[RunReport]) -> Vec<Vec<String>> {
    let names = runs.iter().map(|run| run.setup.config.clone()).collect();
    let mut rows = vec![[vec![String::new()], names].concat()];
    let mut row = |label: &str, of: &dyn Fn(&Figures) -> String| {
        let cells = runs.iter().map(|run| of(&run.figures)).collect();
        rows.push([vec![label.to_owned()], cells].concat());
    };
    row("pods", &|run| run.pods.arrived.to_string());
    row("  admitted", &|run| part(run.pods.complete, run.pods.arrived));
    row("  admitted after waiting", &|run| match run.pods.waited {
        0 => "0".to_owned(),
        waited => format!(
            "{waited} (mean {:.0} s, max {:.0} s)",
            run.pods.mean_wait, run.pods.longest_wait
        ),
    });
    row("refused at first", &|run| run.refused.values().sum::<usize>().to_string());
    let reasons: BTreeSet<&str> =
        runs.iter().flat_map(|run| run.figures.refused.keys().copied()).collect();
    for reason in reasons {
        let count = |run: &Figures| run.refused.get(reason).copied().unwrap_or(0).to_string();
        row(&format!("  {reason}"), &count);
    }
    row("  with enough CPUs free", &|run| run.refused_by_free_cpus.enough.to_string());
    row("shared containers", &|run| run.shared.to_string());
    row("exclusive containers", &|run| run.exclusive.containers.to_string());
    let all = |run: &Figures| run.exclusive.containers;
    row("  fewest possible uncore caches", &|run| {
        part(run.exclusive.fewest_uncore_caches, all(run))
    });
    row("  fewest possible NUMA nodes", &|run| part(run.exclusive.fewest_numa_nodes, all(run)));
    row("  fewest possible sockets", &|run| part(run.exclusive.fewest_sockets, all(run)));
    row("  whole cores", &|run| part(run.exclusive.whole_cores, all(run)));
    row("live containers, after each arrival", &|run| live_mean(&run.live));
    row("  in one uncore cache if they fit", &|run| {
        part(run.live.in_one_uncore_cache as usize, run.live.fit_one_uncore_cache as usize)
    });
    row("  excess uncore caches", &|run| a_container(run.live.excess_uncore_caches, &run.live));
    row("  excess NUMA nodes", &|run| a_container(run.live.excess_numa_nodes, &run.live));
    row("  cores shared with others", &|run| a_container(run.live.shared_cores, &run.live));
    row("moves of running containers", &|run| moves(&run.moves));
    row("updates of running containers", &|run| run.updates.to_string());
    row("exclusive CPUs", &|run| values(&run.exclusive_cpus, 0));
    for (boundary, label) in [("uncore_cache", "uncore cache"), ("numa_node", "NUMA node")] {
        row(&format!("fragmentation by {label}"), &|run| values(&run.fragmentation[boundary], 2));
    }
    if runs.iter().any(|run| run.figures.exclusive_cpus.samples.len() > 1) {
        row("exclusive CPUs over time", &|run| curve(&run.exclusive_cpus));
        row("fragmentation (uncore) over time", &|run| curve(&run.fragmentation["uncore_cache"]));
    }
    if runs.iter().any(|run| run.memory.is_some()) {
        let cells = runs.iter().map(|run| run.memory.as_ref().map(free_memory).unwrap_or_default());
        rows.push([vec!["free memory at the end".to_owned()], cells.collect()].concat());
    }
    rows
}

fn free_memory(memory: &MemoryStatus) -> String {
    let types = memory.types.iter().map(|one| {
        let [free, in_one] = [one.free, one.free_in_one_node].map(amount);
        format!("{} {free} (up to {in_one} in one NUMA node)", one.kind)
    });
    types.collect::<Vec<_>>().join(", ")
}

/// A count with its percentage, rounded down: only all are 100 %.
fn part(some: usize, all: usize) -> String {
    let Some(tenths) = (some * 1000).checked_div(all) else { return "0".to_owned() };
    format!("{some} ({}.{} %)", tenths / 10, tenths % 10)
}

/// The mean number of live containers with exclusive CPUs.
fn live_mean(live: &LiveScore) -> String {
    let mean = live.containers as f64 / live.samples.max(1) as f64;
    format!("mean {mean:.1}, {} samples", live.samples)
}

fn a_container(sum: u64, live: &LiveScore) -> String {
    format!("{:.3} a container", sum as f64 / live.containers.max(1) as f64)
}

fn moves(moves: &Moves) -> String {
    match moves.containers {
        0 => "0".to_owned(),
        containers => format!(
            "{containers} ({} CPUs; {} to another NUMA node, {} staged)",
            moves.cpus, moves.across_numa_nodes, moves.staged
        ),
    }
}

fn values(values: &Values, digits: usize) -> String {
    match values.samples.len() {
        0 => format!("{:.digits$}", values.last),
        _ => format!(
            "mean {:.digits$}, max {:.digits$}, last {:.digits$}",
            values.mean, values.most, values.last
        ),
    }
}

/// A value over time in eight heights, of which the highest is the largest value.
fn curve(values: &Values) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = |value: f64| {
        let share = if values.most > 0.0 { value / values.most } else { 0.0 };
        HEIGHTS[(share * 7.0).round() as usize]
    };
    // Half as many columns as samples.
    values.samples.chunks(2).map(|pair| height(pair.iter().copied().fold(0.0, f64::max))).collect()
}

/// The containers of the picture, then those on shared CPUs.
fn write_placements(f: &mut String, run: &RunReport, picture: &Picture) -> std::fmt::Result {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for one in &picture.tenants {
        let (sign, cpus) = (Usage::Held(one.badge).sign(), one.cpus.to_string());
        let report = run.placements.iter().find(|report| report.badge.as_ref() == Some(&sign));
        let memory = report.map(memory_cell).unwrap_or_default();
        rows.push(vec![sign, one.name.clone(), cpus, one.placement.clone(), memory]);
    }
    for one in run.placements.iter().filter(|one| !one.exclusive) {
        let (sign, meaning) = (Usage::Shared.sign(), Usage::Shared.meaning());
        rows.push(vec![sign, one.full_name(), one.cpus.clone(), meaning, memory_cell(one)]);
    }
    let more = rows.len().saturating_sub(LISTED);
    rows.truncate(LISTED);
    if !rows.is_empty() {
        let head = ["", "CONTAINER", "CPUS", "PLACEMENT", "MEMORY"];
        rows.insert(0, head.map(str::to_owned).to_vec());
        if run.memory.is_none() {
            rows.iter_mut().for_each(|row| row.truncate(head.len() - 1));
        }
        write!(f, "{}", table(&rows))?;
    }
    if more == 0 { writeln!(f) } else { writeln!(f, "and {more} more; --output json lists all\n") }
}

fn memory_cell(one: &PlacementReport) -> String {
    one.memory.as_ref().map(memory::short).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn only_all_of_them_are_100_percent() {
        for (some, all, expect) in [
            (99_995, 100_000, "99995 (99.9 %)"),
            (100_000, 100_000, "100000 (100.0 %)"),
            (2, 3, "2 (66.6 %)"),
            (0, 3, "0 (0.0 %)"),
            (0, 0, "0"),
        ] {
            assert_eq!(part(some, all), expect);
        }
    }
}
