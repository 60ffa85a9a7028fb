//! A storm: pods come and go on a real runtime, the plugin is killed at any moment, and the processes are asked all the
//! time whether the promises hold.
//!
//! | module | what |
//! |---|---|
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
use serde::{Deserialize, Serialize};

use crate::command::last_lines;
use crate::instance::Instance;
use crate::kernel;
use crate::node::Node;
use crate::scenario;

mod churn;
mod command;
mod fill;
mod killer;
mod spoiler;
mod story;
mod witness;

pub use command::{Options, run};
use witness::Witness;

/// Where the pods are that come and go: the lab's other pods are elsewhere, and so is the plugin's own.
const NAMESPACE: &str = "storm";
/// The pod that makes something happen when all rest.
const NUDGE: &str = "nudge";
/// Lines of each log that are kept.
const LOGGED: usize = 5000;

/// What a storm is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// How often the plugin is killed.
    pub kills: u64,
    /// Containers that are created between two kills, on average.
    pub creations_per_kill: u64,
    /// Kubelets at work at the same time.
    pub workers: usize,
    /// What is done follows from it; how the threads' and the runtime's work interleaves does not.
    pub seed: u64,
    /// CPUs that are never exclusive.
    pub reserved: String,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// SIGKILLs.
    pub kills: u64,
    /// Containers that the runtime created.
    pub creations: u64,
    /// Containers that were not created: too large for the node, or for what was free, or another plugin's refusal.
    pub refused: u64,
    /// Those of them that another plugin refused, after ours had decided.
    pub spoiled: u64,
    /// Pods that got another sandbox, while the runtime went on listing the dead one.
    pub reborn: u64,
    /// Containers that failed several times in a row before they came back.
    pub relapsed: u64,
    /// Other calls that the runtime could not carry out.
    pub failed: u64,
    /// Containers that were seen to have CPUs for themselves: without any there is nothing to break.
    pub exclusive: u64,
    /// Pairs of running containers that had a CPU together, which one of them had for itself.
    pub overlaps: u64,
    /// Containers whose exclusive CPUs changed though nobody had asked for it.
    pub moved: u64,
    /// CPUs that nobody could have any more when all pods were gone.
    pub lost: u64,
    /// Whether the kernel warned of itself meanwhile.
    pub kernel_warned: bool,
    /// How often all processes were looked at.
    pub looks: u64,
    /// How long the storm was, in milliseconds.
    pub millis: u64,
    /// How long the longest repair took that the plugin needed an event for, in milliseconds.
    pub longest_repair: u64,
    /// What was wrong, in words; the first few.
    pub findings: Vec<String>,
    /// The end of what the plugin logged, over all its lives, and of what the runtime complained of.
    pub log: String,
}

impl Summary {
    /// Whether every promise was kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        (self.overlaps, self.moved, self.lost) == (0, 0, 0) && !self.kernel_warned
    }

    /// The command's last line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { kills, creations, overlaps, moved, lost, .. } = self;
        format!("kills={kills} creations={creations} overlaps={overlaps} moved={moved} lost={lost}")
    }
}

/// What all threads of a storm share.
struct Storm<'a> {
    settings: &'a Settings,
    witness: Witness,
    /// Held for reading by whoever changes something on the node, for writing when everybody shall rest.
    rest: RwLock<()>,
    over: AtomicBool,
    creations: AtomicU64,
    refused: AtomicU64,
    spoiled: AtomicU64,
    reborn: AtomicU64,
    relapsed: AtomicU64,
    failed: AtomicU64,
}

impl Storm<'_> {
    /// How it goes, in words.
    fn state(&self, kills: u64) -> String {
        let mut summary = Summary {
            kills,
            creations: self.creations.load(Ordering::Relaxed),
            ..Summary::default()
        };
        self.witness.testify(&mut summary);
        summary.line()
    }

    /// The largest container that the storm has: a quarter of what there is.
    fn most(&self) -> i64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        i64::try_from(cpus / 4).unwrap_or(1).max(1)
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Something that the plugin is asked about and that changes nothing.
fn nudge(node: &mut Node) -> Result<()> {
    node.run(&scenario::shared(NUDGE))?;
    node.remove(NUDGE)
}

/// Lets the storm loose on a node that is empty but for the plugin, which runs afterwards, too. `tell` hears how it goes.
///
/// # Errors
/// When the lab fails, or the plugin does not come back. Broken promises are no errors here: they are counted.
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
