//! A storm: pods start and end on a real runtime, the plugin is killed at any moment, and the
//! affinity of all processes is checked continuously.
//!
//! | module | what |
//! |---|---|
//! | `storm` | the state that all threads share |
//! | `churn` | a kubelet whose pods start, end and fail; several at a time |
//! | `hotplug` | CPUs that go offline and come back |
//! | `spoiler` | a second plugin, which refuses some of what ours has decided |
//! | `killer` | SIGKILL to the plugin, the runtime or both, and their restart |
//! | `witness`, `history` | checks of the processes: overlaps and moves; recent events of containers |

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use cpuset::CpuSet;
use fastrand::Rng;

use crate::cgroup;
use crate::command::{last_lines, millis};
use crate::instance::Instance;
use crate::node::Node;
use crate::{kernel, scenario};

mod churn;
pub mod command;
mod history;
mod hotplug;
mod killer;
mod spoiler;
mod storm;
pub mod summary;
mod witness;

use storm::Storm;
pub use summary::{Changes, StormSettings, Summary};

const LOGGED: usize = 5000;
/// Longest pause between two rewrites of the class cgroups, in milliseconds.
const REALISED: u64 = 10_000;

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
    let storm = Storm::new(settings, node, reserved);
    let start = Instant::now();
    let warned_before = kernel::is_tainted()?;
    let nri = node.containerd().nri_socket();
    let pause = Duration::from_millis(if settings.only_runtime { 1 } else { 20 });
    std::thread::scope(|scope| -> Result<()> {
        let storm = &storm;
        let workers: Vec<_> = (0..settings.workers as u64)
            .map(|number| scope.spawn(move || churn::run(storm, number)))
            .collect();
        let checking = scope.spawn(move || {
            while !storm.is_over() {
                storm.witness.check();
                std::thread::sleep(pause);
            }
        });
        let spoiling = scope.spawn(move || spoiler::run(storm, nri));
        let realising = scope.spawn(move || realise(storm));
        let plugging = settings.changes.hotplug.then(|| scope.spawn(move || hotplug::run(storm)));
        let killed = killer::run(storm, node, plugin, report);
        // The workers remove their pods while there is a plugin.
        storm.over.store(true, Ordering::Relaxed);
        let workers: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        if let Some(why) = storm.hopeless() {
            bail!(why);
        }
        for worker in workers {
            worker.map_err(|_| anyhow!("a worker panicked"))??;
        }
        checking.join().map_err(|_| anyhow!("the witness panicked"))?;
        spoiling.join().map_err(|_| anyhow!("the second plugin panicked"))??;
        realising.join().map_err(|_| anyhow!("the thread that rewrites cgroups panicked"))??;
        if let Some(plugging) = plugging {
            plugging.join().map_err(|_| anyhow!("the thread of the CPUs panicked"))??;
        }
        killed
    })?;
    let millis = millis(start.elapsed());
    if settings.changes.rebalance {
        storm.witness.compare_with(&plugin.log());
    }
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
        storm.counts().realised += 1;
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
