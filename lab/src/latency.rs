//! `hack/bench-latency`: how the time to create and start an exclusive container depends on the
//! number of shared ones, without the plugin and with each exclusivity mechanism.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::cgroup;
use crate::job::Software;
use crate::kubelet::RunningPod;
use crate::node::Node;
use crate::plugin::Plugin;
use crate::pod::{Container, Pod};
use crate::scenario::{exclusive, exclusivity};
use crate::task::Task;
use crate::vm::{self, Machine};

pub(crate) mod class_write;

/// Containers per shared pod.
const IN_A_POD: usize = 10;

/// Exclusivity mechanisms of the configuration. Without the plugin, only the runtime's and the
/// machine's own share grows.
const MODES: [Option<&str>; 4] = [None, Some("runtime"), Some("groups"), Some("kernel")];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LatencySettings {
    pub shared: Vec<usize>,
    /// Per number and mode.
    pub samples: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Measurements {
    writes: Vec<ClassWrite>,
    /// Of all modes for each number of shared containers.
    rows: Vec<Medians>,
}

/// The medians for one number of shared containers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Medians {
    pub shared: usize,
    pub millis: [f64; MODES.len()],
}

/// Median time of a write to the cgroup of a class.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassWrite {
    pub containers: usize,
    /// One per container, and one per pod for its sandbox.
    pub tasks: usize,
    /// Median.
    pub millis: f64,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Numbers of running shared containers, ascending
    #[arg(long, value_delimiter = ',', default_value = "0,50,100,200")]
    pub shared: Vec<usize>,
    /// Exclusive containers to time for each number and mechanism; the median counts
    #[arg(long, default_value_t = 5)]
    pub samples: usize,
    /// What runs there.
    #[command(flatten)]
    pub software: Software,
}

/// Runs on a VM, because partitions need it, and prints the tables.
pub fn run(options: &Options) -> Result<()> {
    let Options { shared, samples, software } = options.clone();
    if samples == 0 || shared.is_empty() || !shared.is_sorted() {
        bail!("--samples must be at least 1, and the numbers of --shared ascending");
    }
    let binaries = Binaries::build()?;
    // An update of a shared container takes up to a second on emulated CPUs.
    let changes: usize =
        shared.iter().map(|count| (count + 10) * MODES.len() * (samples + 1)).sum();
    let patience = Duration::from_secs(900 + changes as u64);
    let machine = Machine { memory: 6144, ..Machine::single("latency", 1, 4) };
    let task = Task::Latency(LatencySettings { shared, samples });
    let Measurements { writes, rows } = vm::run(&machine, software, task, &binaries, patience)?;
    print!("{}\n{}", table_of_writes(&writes), table(&rows));
    println!("{}", last_line(&rows));
    Ok(())
}

fn table_of_writes(writes: &[ClassWrite]) -> String {
    let mut table = format!(
        "{:>25} {:>15} {:>15} {:>15}\n",
        "containers below a class", "tasks", "write, ms", "relative to one"
    );
    for ClassWrite { containers, tasks, millis } in writes {
        let relative = millis / writes[0].millis;
        table += &format!("{containers:>25} {tasks:>15} {millis:>15.2} {relative:>15.1}\n");
    }
    table
}

fn table(rows: &[Medians]) -> String {
    let mut table = format!("{:>25}", "running shared containers");
    for mode in MODES {
        table += &format!(" {:>15}", format!("{}, ms", mode.unwrap_or("no plugin")));
    }
    table.push('\n');
    for Medians { shared, millis } in rows {
        table += &format!("{shared:>25}");
        for millis in millis {
            table += &format!(" {millis:>15.1}");
        }
        table.push('\n');
    }
    table
}

/// The slope of each mode: milliseconds that each shared container adds.
fn last_line(rows: &[Medians]) -> String {
    let mut line = "ms-per-shared-container".to_owned();
    for (at, mode) in MODES.into_iter().enumerate() {
        let points: Vec<_> = rows.iter().map(|row| (row.shared as f64, row.millis[at])).collect();
        line += &format!(" {}={:.2}", mode.unwrap_or("none"), slope(&points));
    }
    line
}

/// On an empty node without a plugin.
pub fn measure(
    node: &mut Node,
    program: &Path,
    settings: &LatencySettings,
    report: &mut dyn FnMut(&str),
) -> Result<Measurements> {
    let writes = class_write::measure()?;
    let mut rows = Vec::new();
    let mut running = 0;
    for &shared in &settings.shared {
        while running < shared {
            let count = IN_A_POD.min(shared - running);
            let containers =
                (0..count).map(|number| Container::burstable(&format!("c{number}"), 1));
            node.run(&Pod::new(&format!("shared-{running}"), containers))?;
            running += count;
        }
        let mut millis = [0.0; MODES.len()];
        for (mode, median) in MODES.iter().zip(&mut millis) {
            // As a plain process: the timed calls do not depend on how it was started.
            let plugin = match mode {
                Some(mode) => Some(Plugin::start(&node.plugin(program, &exclusivity(mode))?)?),
                None => None,
            };
            *median = median_of(node, settings.samples, Duration::ZERO)?;
            if let Some(plugin) = plugin {
                plugin.end(Signal::SIGTERM)?;
                // The next one has no state.
                cgroup::clear_classes();
            }
            let mode = mode.unwrap_or("no plugin");
            report(&format!("{shared} shared containers, {mode}: {median:.1} ms"));
        }
        rows.push(Medians { shared, millis });
    }
    Ok(Measurements { writes, rows })
}

/// Of exclusive containers, in milliseconds, each after a `rest`.
pub(crate) fn median_of(node: &mut Node, samples: usize, rest: Duration) -> Result<f64> {
    // The first one includes the first update of the shared containers.
    once(node)?;
    let mut times = Vec::new();
    for _ in 0..samples {
        thread::sleep(rest);
        times.push(once(node)?);
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).context("nothing was measured")?;
    Ok(median.as_secs_f64() * 1000.0)
}

fn once(node: &mut Node) -> Result<Duration> {
    let kubelet = node.another_kubelet()?;
    let pod = exclusive("timed", 2);
    let sandbox = kubelet.run_sandbox(&pod)?;
    let container = &pod.containers[0];
    let start = Instant::now();
    let id = kubelet.create_container(&pod, container, &sandbox, 0)?;
    kubelet.launch_container(&id)?;
    let time = start.elapsed();
    let started = kubelet.started(&id, &container.name)?;
    kubelet.remove_pod(&RunningPod { pod, sandbox, containers: vec![started] })?;
    Ok(time)
}

/// Slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let both: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if spread > 0.0 { both / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{Medians, last_line, slope};

    #[test]
    fn a_slope_is_fitted_to_all_points() {
        let close = |points: &[(f64, f64)], expected: f64| {
            assert!((slope(points) - expected).abs() < 1e-9, "{points:?}");
        };
        close(&[(0.0, 5.0), (50.0, 505.0), (200.0, 2005.0)], 10.0);
        close(&[(0.0, 5.0), (100.0, 5.0)], 0.0);
        close(&[(7.0, 5.0)], 0.0);
    }

    #[test]
    fn the_last_line_has_a_slope_for_each_mode() {
        let row =
            |shared: usize, runtime| Medians { shared, millis: [500.0, runtime, 501.0, 499.0] };
        let line = "ms-per-shared-container none=0.00 runtime=140.00 groups=0.00 kernel=0.00";
        assert_eq!(last_line(&[row(0, 700.0), row(50, 7700.0)]), line);
    }
}
