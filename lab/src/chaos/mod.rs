//! A storm: pods come and go on a real runtime, the plugin is killed at any moment, and the
//! processes are asked all the time whether the promises hold.
//!
//! | module | what |
//! |---|---|
//! | `storm` | what all threads of it share |
//! | `churn` | a kubelet with pods that never rest, and whose containers fail; several at a time |
//! | `spoiler` | another plugin, which refuses some of what ours has decided |
//! | `killer` | SIGKILL to the plugin under test, however it was started, or to the runtime, or to both, and their next start |
//! | `witness`, `story` | what the processes say: overlaps and moves; and what happened before |
//! | `fill` | at the end: whether every CPU can still be had |

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use fastrand::Rng;
use nri_cpu_manager::cpuset::CpuSet;

use crate::cgroup;
use crate::command::last_lines;
use crate::instance::Instance;
use crate::kernel;
use crate::node::Node;

mod churn;
pub mod command;
mod fill;
mod killer;
mod spoiler;
mod storm;
mod story;
pub mod summary;
mod witness;

use storm::Storm;
pub use summary::{Settings, Summary};

const LOGGED: usize = 5000;
/// Longest pause between two rewrites of the class cgroups, in milliseconds.
const REALISED: u64 = 10_000;

/// Lets the storm loose on a node that is empty but for the plugin, which runs afterwards, too.
/// `tell` hears how it goes.
///
/// # Errors
/// When the lab fails, or the plugin does not come back. Broken promises are no errors here: they
/// are counted.
pub fn storm(
    node: &mut Node,
    plugin: &mut dyn Instance,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> Result<Summary> {
    let reserved: CpuSet =
        settings.reserved.parse().context("the list of reserved CPUs cannot be understood")?;
    let storm = Storm::new(settings, node, reserved);
    let start = Instant::now();
    let warned_before = kernel::has_warned()?;
    let nri = node.containerd().nri_socket();
    std::thread::scope(|scope| -> Result<()> {
        let storm = &storm;
        let workers: Vec<_> = (0..settings.workers as u64)
            .map(|number| scope.spawn(move || churn::run(storm, number)))
            .collect();
        let looking = scope.spawn(move || {
            while !storm.is_over() {
                storm.witness.look();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let spoiling = scope.spawn(move || spoiler::run(storm, nri));
        let realising = scope.spawn(move || realise(storm));
        let killed = killer::run(storm, node, plugin, tell);
        // The workers remove their pods while there is a plugin.
        storm.over.store(true, Ordering::Relaxed);
        let workers: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        if let Some(why) = storm.hopeless() {
            bail!(why);
        }
        for worker in workers {
            worker.map_err(|_| anyhow!("a worker broke off"))??;
        }
        looking.join().map_err(|_| anyhow!("the witness broke off"))?;
        spoiling.join().map_err(|_| anyhow!("the plugin that refuses broke off"))??;
        realising.join().map_err(|_| anyhow!("what writes groups broke off"))??;
        killed
    })?;
    let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    tell("all pods are gone: filling the node");
    let lost = fill::lost(node, reserved)?;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut summary = Summary {
        kills: settings.kills,
        runtime_kills: load(&storm.turns) / 2,
        realised: load(&storm.realised),
        creations: load(&storm.creations),
        refused: load(&storm.refused),
        spoiled: load(&storm.spoiled),
        reborn: load(&storm.reborn),
        relapsed: load(&storm.relapsed),
        initialised: load(&storm.initialised),
        failed: load(&storm.failed),
        lost,
        millis,
        kernel_warned: kernel::has_warned()? && !warned_before,
        ..Summary::default()
    };
    storm.witness.testify(&mut summary);
    let runtime = node.runtime_log();
    let complaints: Vec<&str> = runtime.lines().filter(|l| !l.contains("level=info")).collect();
    summary.log = format!(
        "{}\n{}\n",
        last_lines(&plugin.log(), LOGGED),
        last_lines(&complaints.join("\n"), LOGGED)
    );
    Ok(summary)
}

/// Does all the time what systemd does with slices: it writes them anew, which clears the CPUs of
/// classes that are empty.
fn realise(storm: &Storm<'_>) -> Result<()> {
    let mut rng = Rng::with_seed(storm.settings.seed.wrapping_add(1));
    while !storm.is_over() {
        std::thread::sleep(Duration::from_millis(rng.u64(0..REALISED)));
        let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
        cgroup::realise_classes(storm.driver)?;
        Storm::count(&storm.realised);
    }
    Ok(())
}
