//! A storm: pods come and go on a real runtime, the plugin is killed at any moment, and the
//! processes are asked all the time whether the promises hold.
//!
//! | module | what |
//! |---|---|
//! | `storm` | what all threads of it share |
//! | `churn` | a kubelet with pods that never rest, and whose containers fail; several at a time |
//! | `spoiler` | another plugin, which refuses some of what ours has decided |
//! | `killer` | SIGKILL to the plugin under test, however it was started, and its next start |
//! | `witness`, `story` | what the processes say: overlaps and moves; and what happened before |
//! | `fill` | at the end: whether every CPU can still be had |

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use nri_cpu_manager::cpuset::CpuSet;

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
use witness::Witness;

/// Lines of each log that are kept.
const LOGGED: usize = 5000;

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
    let storm = Storm {
        settings,
        witness: Witness::new(reserved),
        rest: RwLock::new(()),
        over: AtomicBool::new(false),
        creations: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        spoiled: AtomicU64::new(0),
        reborn: AtomicU64::new(0),
        relapsed: AtomicU64::new(0),
        initialised: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    };
    let start = Instant::now();
    let warned_before = kernel::has_warned()?;
    let kubelets: Vec<_> =
        (0..settings.workers).map(|_| node.another_kubelet()).collect::<Result<_>>()?;
    let nri = node.containerd().nri_socket();
    std::thread::scope(|scope| -> Result<()> {
        let storm = &storm;
        let workers: Vec<_> = (0..)
            .zip(kubelets)
            .map(|(number, kubelet)| scope.spawn(move || churn::run(storm, kubelet, number)))
            .collect();
        let looking = scope.spawn(move || {
            while !storm.over.load(Ordering::Relaxed) {
                storm.witness.look();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let spoiling = scope.spawn(move || spoiler::run(storm, nri));
        let killed = killer::run(storm, node, plugin, tell);
        // The workers remove their pods while there is a plugin.
        storm.over.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a worker broke off"))??;
        }
        looking.join().map_err(|_| anyhow!("the witness broke off"))?;
        spoiling.join().map_err(|_| anyhow!("the plugin that refuses broke off"))??;
        killed
    })?;
    let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    tell("all pods are gone: filling the node");
    let lost = fill::lost(node, reserved)?;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut summary = Summary {
        kills: settings.kills,
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
