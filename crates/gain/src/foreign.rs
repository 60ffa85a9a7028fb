//! `bench-gain noise`: what else runs or fires on the CPUs of a program that never sleeps, next to
//! neighbours and under a load that makes interrupts, in each mode.
//!
//! Counts decide: times mean little on emulated processors. The crate `noise` counts device interrupts and
//! context switches of foreign threads; the program counts what it feels of them, as involuntary switches
//! and as gaps between two readings of its clock.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use cpuset::CpuSet;
use kernel::{Kernel, Linux};
use noise::{Kind, NoiseReport, Observation, Owner, Sample};
use quiet::{Goal, InterruptMode, Irqbalance, Originals, QuietContainer, Steering};
use serde::{Deserialize, Serialize};

use crate::affinity;
use crate::experiment::{Experiment, INTERRUPTED, PATIENCE, finish, role};
use crate::measured::now;
use crate::tree::{self, Mode, Tree};
use crate::{Interrupted, Site};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NoiseArguments {
    /// Seconds per mode
    #[arg(long, default_value = "60", value_parser = crate::seconds)]
    seconds: Duration,
    /// Shell command that makes interrupts meanwhile, such as 'ping -f HOST'; repeat it for several
    #[arg(long = "load", value_name = "COMMAND")]
    loads: Vec<String>,
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
struct Level {
    name: &'static str,
    mode: Mode,
    /// Whether interrupts are moved away.
    is_quiet: bool,
}

const LEVELS: [Level; 5] = [
    Level { name: "none", mode: Mode::None, is_quiet: false },
    Level { name: "groups", mode: Mode::Groups, is_quiet: false },
    Level { name: "kernel", mode: Mode::Kernel, is_quiet: false },
    Level { name: "isolated", mode: Mode::Isolated, is_quiet: false },
    Level { name: "quiet", mode: Mode::Isolated, is_quiet: true },
];

const MODES: [Mode; 4] = [Mode::None, Mode::Groups, Mode::Kernel, Mode::Isolated];

/// Shortest gaps that are counted, in nanoseconds, and their names.
const GAPS: [(u64, &str); 5] = [
    (5_000, "5 µs"),
    (20_000, "20 µs"),
    (100_000, "100 µs"),
    (1_000_000, "1 ms"),
    (10_000_000, "10 ms"),
];

/// Between two samples. Threads that come and go in between are not seen.
const PAUSE: Duration = Duration::from_secs(1);
/// An interrupt that was moved fires once more where it was.
const WARM_UP: Duration = Duration::from_secs(3);

/// What the program felt on all of its CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spun {
    /// Gaps of at least each of [`GAPS`].
    gaps: [u64; GAPS.len()],
    involuntary: u64,
}

impl Spun {
    fn record(&mut self, gap: u64) {
        for ((least, _), count) in GAPS.iter().zip(&mut self.gaps) {
            if gap < *least {
                return;
            }
            *count += 1;
        }
    }

    fn add(&mut self, other: Spun) {
        for (count, more) in self.gaps.iter_mut().zip(other.gaps) {
            *count += more;
        }
        self.involuntary += other.involuntary;
    }
}

/// What was counted on the exclusive CPUs.
#[derive(Debug, Clone, Copy)]
struct Counts {
    interrupts: u64,
    /// Of foreign threads.
    switches: u64,
    spun: Spun,
    /// Minutes of a CPU.
    minutes: f64,
}

impl Counts {
    fn foreign(&self) -> f64 {
        self.per_minute(self.interrupts + self.switches)
    }

    fn per_minute(&self, count: u64) -> f64 {
        count as f64 / self.minutes
    }
}

pub(crate) fn measure(
    arguments: &NoiseArguments,
    command: &[&'static str],
    out: &mut dyn std::io::Write,
) -> Result<()> {
    // Before this program leaves the CPUs that it measures on: the load may run on all.
    let _loads = Loads::start(&arguments.loads)?;
    let site = Site::prepare()?;
    let experiment = Experiment {
        command,
        hierarchy: &site.hierarchy,
        cpus: site.cpus,
        neighbours: 2 * site.cpus.all.len(),
        time: arguments.seconds,
        runs: 1,
    };
    let (possible, skipped) = experiment.possible(&MODES);
    for one in &skipped {
        eprintln!("skipped: {}: {}", one.mode.label(), one.reason);
    }
    let mut rows = Vec::new();
    for level in LEVELS {
        let counts = if possible.contains(&level.mode) {
            eprintln!("{}: {} s", level.name, arguments.seconds.as_secs());
            let counts = count(&experiment, level);
            Some(counts.with_context(|| format!("measuring {}", level.name))?)
        } else {
            None
        };
        rows.push((level.name, counts));
    }
    let text = text(site.cpus.exclusive, experiment.neighbours, &rows);
    out.write_all(text.as_bytes()).context("cannot print the report")
}

fn count(experiment: &Experiment<'_>, level: Level) -> Result<Counts> {
    let exclusive = experiment.cpus.exclusive;
    // Restored after the partition has ended: until then, its CPUs stay without kernel workers.
    let _away = if level.is_quiet { Some(Away::from(experiment)?) } else { None };
    let tree = Tree::new(experiment.hierarchy, level.mode, experiment.cpus, experiment.neighbours)?;
    let _neighbours = experiment.start_neighbours(&tree, experiment.neighbours)?;
    thread::sleep(WARM_UP);
    let mut child = start_spinning(experiment, &tree, level.mode)?;

    // Only the counts are used, without advice.
    let owner = Owner {
        name: "measured".to_owned(),
        cgroup: tree::measured()?,
        cpus: exclusive,
        in_force: noise::InForce::default(),
    };
    let sample = || Sample::take(&Linux, &noise::Roots::default(), exclusive);
    let start = Instant::now();
    let mut observation = Observation::new(vec![owner]);
    let mut earlier = sample()?;
    while child.try_wait()?.is_none() {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        ensure!(start.elapsed() < 4 * experiment.time + PATIENCE, "the program does not end");
        thread::sleep(PAUSE);
        let later = sample()?;
        observation.add(&earlier, &later);
        earlier = later;
    }
    let elapsed = start.elapsed();
    let spun = finish(&mut child, PATIENCE)?;
    let spun = serde_json::from_str(&spun).context("the program printed something else")?;
    let noise = observation.noise(elapsed, &BTreeSet::new());
    ensure!(noise.interrupts_error.is_none(), "{}", noise.hidden().join("; "));
    let (interrupts, switches) = foreign(&noise);
    let minutes = elapsed.as_secs_f64() / 60.0 * exclusive.len() as f64;
    Ok(Counts { interrupts, switches, spun, minutes })
}

/// Device interrupts, and context switches of threads that are not bound to one CPU.
fn foreign(noise: &NoiseReport) -> (u64, u64) {
    let by_cpu = noise.containers.iter().flat_map(|container| &container.by_cpu);
    let mut interrupts = 0;
    let mut switches = 0;
    for finding in by_cpu.flat_map(|one| &one.findings) {
        if finding.kind == Kind::DeviceInterrupt {
            interrupts += finding.count;
        } else if finding.kind.is_thread() {
            switches += finding.count;
        }
    }
    (interrupts, switches)
}

fn start_spinning(experiment: &Experiment<'_>, tree: &Tree<'_>, mode: Mode) -> Result<Child> {
    let cpus = if mode.pins() { experiment.cpus.exclusive } else { experiment.cpus.all };
    let mut command = role(experiment.command, "spin", &tree.measured_files()?)?;
    command.arg("--cpus").arg(cpus.to_string());
    command.arg("--threads").arg(experiment.cpus.exclusive.len().to_string());
    command.arg("--seconds").arg(experiment.time.as_secs_f64().to_string());
    if mode.pins() {
        command.arg("--pinned");
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    child.context("cannot start the program")
}

/// Reads the clock in so many threads. With `is_pinned`, each has one of the CPUs, because nothing spreads
/// threads in an isolated partition.
pub(crate) fn spin(cpus: CpuSet, threads: usize, time: Duration, is_pinned: bool) -> Result<Spun> {
    let mut running = Vec::new();
    for cpu in cpus.iter().take(threads) {
        let own = if is_pinned { CpuSet::of(cpu)? } else { cpus };
        running.push(thread::spawn(move || spin_on(own, time)));
    }
    let mut spun = Spun::default();
    for thread in running {
        spun.add(thread.join().map_err(|_| anyhow!("a thread failed"))??);
    }
    Ok(spun)
}

fn spin_on(cpus: CpuSet, time: Duration) -> Result<Spun> {
    affinity::set(cpus)?;
    let mut spun = Spun::default();
    let before = involuntary_context_switches()?;
    let mut last = now()?;
    let end = last + time;
    while last < end {
        let time = now()?;
        spun.record(time.saturating_sub(last).as_nanos() as u64);
        last = time;
    }
    spun.involuntary = involuntary_context_switches()?.saturating_sub(before);
    Ok(spun)
}

/// Of the calling thread.
fn involuntary_context_switches() -> Result<u64> {
    let status = Linux.text(Path::new("/proc/thread-self/status"))?;
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    Ok(count.context("the kernel does not report involuntary switches")?.trim().parse()?)
}

/// Interrupts stay away from the exclusive CPUs until this is dropped.
#[derive(Debug)]
struct Away(Steering);

impl Away {
    fn from(experiment: &Experiment<'_>) -> Result<Away> {
        let container = QuietContainer {
            name: "measured".to_owned(),
            cpus: experiment.cpus.exclusive,
            interrupts: InterruptMode::Away,
            ..QuietContainer::default()
        };
        let goal =
            Goal { online: experiment.cpus.all, containers: vec![container], ..Goal::default() };
        let roots = quiet::Roots { proc: "/proc".into(), sys: "/sys".into() };
        let sockets = quiet::IRQBALANCE_DIRECTORIES.map(PathBuf::from).to_vec();
        let steering = Steering::new(roots, Originals::default(), Irqbalance::new(sockets));
        let mut away = Away(steering);
        let report = away.0.pass(&Linux, &goal);
        if let Some(error) = report.errors.first() {
            bail!("interrupts stay: {error}");
        }
        Ok(away)
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let restored = self.0.restore(&Linux);
        for (setting, why) in &restored.left {
            eprintln!("not restored: {setting}: {why}");
        }
        for error in &restored.errors {
            eprintln!("not restored: {error}");
        }
    }
}

/// Shell commands that end with this value.
#[derive(Debug, Default)]
struct Loads(Vec<Child>);

impl Loads {
    fn start(commands: &[String]) -> Result<Loads> {
        let mut loads = Loads::default();
        for load in commands {
            let mut command = Command::new("sh");
            command.args(["-c", load]).stdin(Stdio::null()).stdout(Stdio::null());
            let child = command.stderr(Stdio::null()).process_group(0).spawn();
            loads.0.push(child.with_context(|| format!("cannot start {load}"))?);
        }
        Ok(loads)
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = Linux.kill_group(child.id());
            let _ = child.wait();
        }
    }
}

/// A table in Markdown, and the line with the sums.
fn text(exclusive: CpuSet, neighbours: usize, rows: &[(&str, Option<Counts>)]) -> String {
    let mut text = format!(
        "On CPUs {exclusive}, per CPU and minute, next to {neighbours} neighbours:\n\n\
         | mode | device interrupts | switches of foreign threads | involuntary switches |"
    );
    let mut rule = "\n|---|---:|---:|---:|".to_owned();
    for (_, name) in GAPS {
        // Writing to a string cannot fail.
        let _ = write!(text, " gaps from {name} |");
        rule += "---:|";
    }
    text += &rule;
    text.push('\n');
    for (name, counts) in rows {
        let Some(counts) = counts else { continue };
        let Counts { interrupts, switches, spun, .. } = counts;
        let _ = write!(text, "| `{name}` |");
        for count in [interrupts, switches, &spun.involuntary].into_iter().chain(&spun.gaps) {
            let _ = write!(text, " {:.0} |", counts.per_minute(*count));
        }
        text.push('\n');
    }
    text += "\nforeign-on-exclusive";
    for (name, counts) in rows {
        let _ = match counts {
            Some(counts) => write!(text, " {name}={:.0}", counts.foreign()),
            None => write!(text, " {name}=-"),
        };
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_count_for_each_threshold_that_they_reach() {
        let mut spun = Spun::default();
        for gap in [4_999, 5_000, 150_000, 20_000_000] {
            spun.record(gap);
        }
        assert_eq!(spun.gaps, [3, 2, 2, 1, 1]);
        spun.add(spun);
        assert_eq!(spun.gaps, [6, 4, 4, 2, 2]);
    }

    #[test]
    fn a_spinning_program_ends_in_time() {
        let cpus = affinity::of(std::process::id()).unwrap();
        let start = Instant::now();
        spin(cpus, 1, Duration::from_millis(100), false).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn the_last_line_has_each_mode() {
        let spun = Spun { gaps: [8, 4, 4, 2, 0], involuntary: 6 };
        let counts = Counts { interrupts: 10, switches: 20, spun, minutes: 2.0 };
        let rows = [("none", Some(counts)), ("kernel", None)];
        let text = text("2-3".parse().unwrap(), 8, &rows);
        assert!(text.ends_with("\n\nforeign-on-exclusive none=15 kernel=-\n"), "{text}");
        assert!(text.contains("\n| `none` | 5 | 10 | 3 | 4 | 2 | 2 | 1 | 0 |\n"), "{text}");
        let lines: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|l| l.matches('|').count())
            .collect();
        assert_eq!(lines, [10, 10, 10]);
    }
}
