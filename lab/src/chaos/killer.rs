//! Kills the plugin, the runtime or both with SIGKILL, and restarts them.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use nix::sys::signal::Signal;

use super::Storm;
use crate::command::last_lines;
use crate::instance::Instance;
use crate::node::Node;
use crate::scenario;

/// A pod that makes an event happen while all else rests.
const NUDGE: &str = "nudge";

/// One kill in eight hits the runtime, and one hits both.
const RUNTIME: u8 = 0;
const BOTH: u8 = 1;
/// All activity stops for a check after so many kills.
const REST: u64 = 20;
/// Longest wait for creations, in case they have stopped.
const CALM: Duration = Duration::from_secs(10);
/// Includes a busy machine with emulated CPUs.
const BACK: Duration = Duration::from_secs(60);

/// The plugin runs at the end, as at the start.
pub(super) fn run(
    storm: &Storm<'_>,
    node: &mut Node,
    plugin: &mut dyn Instance,
    report: &mut dyn FnMut(&str),
) -> Result<()> {
    let settings = storm.settings;
    let mut rng = Rng::with_seed(settings.seed);
    for kill in 1..=settings.kills {
        // By creations, not by time, so that both stay in proportion on any machine. The pause
        // makes the kill hit any moment of the runtime's and the plugin's work; without a wait, the
        // next kill hits the plugin's start.
        wait_for(storm, rng.u64(0..=2 * settings.creations_per_kill));
        std::thread::sleep(Duration::from_micros(rng.u64(0..100_000)));
        if storm.is_over() {
            return Ok(());
        }
        let victim = if settings.only_runtime { RUNTIME } else { rng.u8(0..8) };
        if victim != RUNTIME {
            plugin.end(node, Signal::SIGKILL)?;
        }
        storm.witness.killed(kill);
        if victim == RUNTIME || victim == BOTH {
            kill_runtime(storm, node, plugin, kill, &mut rng)?;
        }
        if victim != RUNTIME {
            if rng.bool() {
                // Containers start without the plugin.
                wait_for(storm, rng.u64(0..=3));
            }
            plugin.start(node)?;
        }
        if kill % REST == 0 || kill == settings.kills {
            let everything = storm.rest.write().unwrap_or_else(PoisonError::into_inner);
            plugin
                .wait_for_synchronisation(node, 1, BACK)
                .context("the plugin did not come back")?;
            if !storm.witness.check_at_rest(&mut || nudge(node))? {
                report(&format!("end of the plugin's log:\n{}", last_lines(&plugin.log(), 30)));
            }
            drop(everything);
            report(&storm.summary(kill).line());
        }
    }
    Ok(())
}

/// Counted first: a call that is lost from then on may have been carried out.
fn kill_runtime(
    storm: &Storm<'_>,
    node: &mut Node,
    plugin: &mut dyn Instance,
    kill: u64,
    rng: &mut Rng,
) -> Result<()> {
    storm.turns.fetch_add(1, Ordering::SeqCst);
    node.kill_runtime()?;
    std::thread::sleep(Duration::from_millis(rng.u64(0..500)));
    node.restart_runtime()?;
    if storm.settings.only_runtime {
        // The first synchronisation, and one for each kill: nothing starts without the plugin.
        plugin.wait_for_synchronisation(node, kill as usize + 1, BACK)?;
    }
    storm.turns.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn wait_for(storm: &Storm<'_>, creations: u64) {
    let created = || storm.witness.observed().summary.creations;
    let target = created() + creations;
    let start = Instant::now();
    let is_behind = || created() < target && !storm.is_over();
    while is_behind() && start.elapsed() < CALM {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An event that changes nothing.
fn nudge(node: &mut Node) -> Result<()> {
    node.run(&scenario::shared(NUDGE))?;
    node.remove(NUDGE)
}
