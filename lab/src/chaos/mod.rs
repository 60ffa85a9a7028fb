//! A storm: pods start and end on a real runtime, the plugin is killed at any moment, and the
//! affinity of all processes is checked continuously.
//!
//! What the simulation plays (`sim/`) is not here: random configurations, failing writes, refusals by
//! other plugins, containers that fail in a row.
//!
//! | module | what |
//! |---|---|
//! | `churn` | a kubelet whose pods start, restart, are resized and end; several at a time |
//! | `killer` | SIGKILL to the plugin, the runtime or both, and their restart |
//! | `witness` | checks of the processes: overlaps and moves |
//! | `summary` | the settings of a storm, and what came of it |

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use cpuset::CpuSet;
use fastrand::Rng;

use crate::cgroup::{self, Driver};
use crate::command::{last_lines, millis};
use crate::instance::Instance;
use crate::node::Node;
use crate::{kernel, scenario};

mod churn;
pub mod command;
mod killer;
pub mod summary;
mod witness;

pub use summary::{Changes, StormSettings, Summary};
use witness::Witness;

/// Lines of each log that are kept.
const LOGGED: usize = 5000;
/// Longest pause between two rewrites of the class cgroups, in milliseconds.
const REALISED: u64 = 10_000;
/// Longest pause between two changes of the online CPUs, in milliseconds.
const PLUGGED: u64 = 3_000;
/// Failed creations without a success that end a storm.
const HOPELESS: u64 = 10;

/// The state that all threads of a storm share.
struct Storm<'a> {
    settings: &'a StormSettings,
    driver: Driver,
    /// The runtime's socket.
    socket: PathBuf,
    /// CPUs that are never exclusive, and never go offline.
    reserved: CpuSet,
    witness: Witness,
    /// Kills and restarts of the runtime; odd while it is down.
    turns: AtomicU64,
    /// Held for reading by threads that change the node, for writing while all must rest.
    rest: RwLock<()>,
    over: AtomicBool,
}

impl Storm<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A call has failed. If the first ones all do, the storm ends with this error.
    fn failed_with(&self, error: Error) -> Result<()> {
        self.witness.note(&format!("failed: {error:#}"));
        let counts = &mut self.witness.observed().summary;
        counts.failed += 1;
        let failures = counts.failed + counts.refused;
        if counts.creations > 0 || failures < HOPELESS {
            return Ok(());
        }
        self.over.store(true, Ordering::Relaxed);
        Err(error.context(format!("the first {failures} creations failed; the last one")))
    }

    /// All counts so far.
    fn summary(&self, kills: u64) -> Summary {
        let runtime_kills = self.turns.load(Ordering::Relaxed) / 2;
        Summary { kills, runtime_kills, ..self.witness.summary() }
    }

    /// Size of the largest container: a quarter of all CPUs.
    fn most(&self) -> i64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        i64::try_from(cpus / 4).unwrap_or(i64::MAX).max(1)
    }
}

/// Runs a storm on a node that has only the plugin, which also runs at the end. `report` receives
/// progress. Violations are counted; an error means that the lab failed or the plugin did not come
/// back.
pub fn storm(
    node: &mut Node,
    plugin: &mut dyn Instance,
    settings: &StormSettings,
    report: &mut dyn FnMut(&str),
) -> Result<Summary> {
    let reserved: CpuSet = settings.reserved.parse().context("the reserved CPUs are not a list")?;
    let storm = Storm {
        settings,
        driver: node.driver(),
        socket: node.containerd().socket(),
        reserved,
        witness: Witness::new(reserved, settings),
        turns: AtomicU64::new(0),
        rest: RwLock::new(()),
        over: AtomicBool::new(false),
    };
    let start = Instant::now();
    let warned_before = kernel::is_tainted()?;
    let pause = Duration::from_millis(if settings.only_runtime { 1 } else { 20 });
    std::thread::scope(|scope| -> Result<()> {
        let storm = &storm;
        let mut threads: Vec<_> = (0..settings.workers as u64)
            .map(|number| scope.spawn(move || churn::run(storm, number)))
            .collect();
        threads.push(scope.spawn(move || {
            while !storm.is_over() {
                storm.witness.check();
                std::thread::sleep(pause);
            }
            Ok(())
        }));
        threads.push(scope.spawn(move || realise(storm)));
        if settings.changes.hotplug {
            threads.push(scope.spawn(move || plug(storm)));
        }
        let killed = killer::run(storm, node, plugin, report);
        // The workers remove their pods while there is a plugin.
        storm.over.store(true, Ordering::Relaxed);
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        for thread in ended {
            thread.map_err(|_| anyhow!("a thread of the storm panicked"))??;
        }
        killed
    })?;
    let millis = millis(start.elapsed());
    report("all pods are removed: filling the node");
    let lost = unassignable(node, reserved)?;
    let mut summary = Summary {
        lost,
        millis,
        kernel_warned: kernel::is_tainted()? && !warned_before,
        distrusted: if settings.only_runtime { distrusted(&plugin.log()) } else { Vec::new() },
        recording: node.recording(),
        ..storm.summary(settings.kills)
    };
    let runtime = node.containerd().log();
    let complaints: Vec<&str> = runtime.lines().filter(|l| !l.contains("level=info")).collect();
    summary.log = format!(
        "{}\n{}\n",
        last_lines(&plugin.log(), LOGGED),
        last_lines(&complaints.join("\n"), LOGGED)
    );
    if summary.kernel_warned {
        summary.log += &format!("the kernel:\n{}\n", last_lines(&kernel::log(), LOGGED));
    }
    Ok(summary)
}

fn distrusted(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(scenario::DISTRUSTED)).map(str::to_owned).collect()
}

/// Rewrites the cgroups of classes at random times like systemd, which clears the CPUs of empty
/// classes.
fn realise(storm: &Storm<'_>) -> Result<()> {
    let mut rng = Rng::with_seed(storm.settings.seed.wrapping_add(1));
    while !storm.is_over() {
        std::thread::sleep(Duration::from_millis(rng.u64(0..REALISED)));
        let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
        cgroup::realise_classes(storm.driver)?;
        storm.witness.observed().summary.realised += 1;
    }
    Ok(())
}

/// Takes one CPU at a time offline and online again, exclusive ones too. All are online when the
/// storm is over, and whenever all activity rests.
fn plug(storm: &Storm<'_>) -> Result<()> {
    let mut rng = Rng::with_seed(storm.settings.seed.wrapping_add(2));
    let mut pause = || std::thread::sleep(Duration::from_millis(rng.u64(0..PLUGGED)));
    let mut victims = Rng::with_seed(storm.settings.seed.wrapping_add(3));
    while !storm.is_over() {
        pause();
        let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
        let some = kernel::cpus("online")? - storm.reserved;
        let Some(cpu) = victims.choice(some.iter().collect::<Vec<_>>()) else { return Ok(()) };
        // The scheduler may want the CPU for deadline servers' bandwidth: it stays online then.
        if kernel::set_online(cpu, false).is_ok() {
            pause();
            kernel::set_online(cpu, true)?;
        }
    }
    Ok(())
}

/// Number of CPUs that no container can get on an empty node.
///
/// A container requests all of them; after each refusal, the next one requests half, until single
/// CPUs are refused.
fn unassignable(node: &mut Node, reserved: CpuSet) -> Result<u64> {
    let mut left = kernel::cpus("online")? - reserved;
    let mut size = left.len();
    let mut number = 0;
    while size > 0 && !left.is_empty() {
        number += 1;
        let name = format!("fill-{number}");
        let admitted = node.run(&scenario::exclusive(&name, size)).is_ok();
        if admitted {
            left -= node.allowed(&name, "main")?;
            size = size.min(left.len());
        } else {
            node.remove(&name)?;
            size /= 2;
        }
    }
    node.remove_all()?;
    Ok(left.len() as u64)
}
