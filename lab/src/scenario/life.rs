//! Pods start and end; the plugin and the runtime die and restart.

use anyhow::Result;

use super::shape::Shape;
use super::{exclusive, guaranteed, milli};
use crate::pod::{Container, Pod};
use crate::testbed::{CgroupRef, Testbed, refused};
use crate::view::View;

/// Seconds for all containers to move to where another mechanism wants them.
const SETTLED: u64 = 60;

/// Seconds for two check passes: the second one would report a drift.
const CHECKED_TWICE: u64 = 14;

/// Seconds until the previous mechanism is undone: one check pass and a margin.
const LET_GO: u64 = 15;

/// Fills the node with different sizes, removes every other pod, fills it with others, restarts the
/// plugin, empties it; then one pod requests all CPUs.
pub(super) fn churn(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let room = shape.room();
    testbed.start_plugin(
        &shape.config("cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}"),
    )?;
    testbed.shared("web")?;
    let mut sizes = Vec::new();
    let mut left = room;
    for part in 1.. {
        // Different sizes; six or seven pods on any machine.
        let size = left.min((room / 6).max(1) + part % 2);
        if size == 0 {
            break;
        }
        sizes.push((format!("first-{part}"), size));
        left -= size;
    }
    for (name, size) in &sizes {
        testbed.exclusive(name, *size)?;
    }
    testbed.view()?;
    refused(testbed.exclusive("one-too-many", 1), "not enough")?;
    testbed.remove("one-too-many")?;
    let mut freed = 0;
    for (name, size) in sizes.iter().step_by(2) {
        testbed.remove(name)?;
        freed += size;
    }
    let half = testbed.view()?;
    let mut number = 0;
    while freed > 0 {
        number += 1;
        let size = freed.min((room / 4).max(1));
        testbed.exclusive(&format!("second-{number}"), size)?;
        freed -= size;
    }
    let full = testbed.exclusive_unmoved(&half)?;
    testbed.kill_plugin()?;
    testbed.unmoved(&full)?;
    for (name, _) in sizes.iter().skip(1).step_by(2) {
        testbed.remove(name)?;
    }
    testbed.view()?;
    for number in 1..=number {
        testbed.remove(&format!("second-{number}"))?;
    }
    testbed.expect(&[("web", shape.online)])?;
    // No CPU has been lost.
    testbed.exclusive("everything", room)?;
    testbed.expect(&[("everything", shape.free()), ("web", shape.reserved)])?;
    testbed.logs_no_drift()
}

/// What happens on every node and is nothing to warn of: starts, init containers, resizes that succeed
/// and one that waits, deletions, daemon-reloads, restarts of the runtime and of the plugin.
pub(super) fn ordinary(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.shared("web")?;
    testbed.exclusive("db", 1)?;
    for round in 0..2 {
        let [job, cache] = ["job", "cache"].map(|name| format!("{name}-{round}"));
        testbed.start(&Pod::new(&job, [Container::best_effort("main")]))?;
        testbed.resize("db", milli(2))?;
        testbed.realise_classes()?;
        refused(testbed.resize("db", milli(shape.room() + 1)), "")?;
        testbed.wait(CHECKED_TWICE);
        testbed.exclusive(&cache, 1)?;
        testbed.resize("db", milli(1))?;
        testbed.kill_runtime()?;
        testbed.remove(&job)?;
        testbed.realise_classes()?;
        testbed.remove(&cache)?;
        testbed.wait(CHECKED_TWICE);
        if round == 1 {
            testbed.reconfigure(&shape.config(""))?;
        }
        testbed.view()?;
        testbed.logs_no_warning()?;
    }
    Ok(())
}

/// Two exclusive pods and a shared one.
fn some_pods(testbed: &mut Testbed<'_>) -> Result<View> {
    testbed.shared("web")?;
    testbed.exclusive("db", 1)?;
    testbed.exclusive("cache", 1)?;
    testbed.view()
}

/// The plugin, then the runtime is killed. Also checks what only the state file has: the owner of a
/// restarting container's CPUs.
pub(super) fn restarts(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.shared("web")?;
    testbed.start(&Pod::new("db", [guaranteed("main", 1), Container::guaranteed("side", 500)]))?;
    let before = testbed.view()?;
    // At the plugin's first start: at the next ones, it could read the decisions from cgroups.
    testbed.end("db")?;
    testbed.invariants().held = 1;
    testbed.kill_plugin()?;
    testbed.exclusive("cache", 1)?;
    testbed.view()?;
    testbed.retry("db")?;
    testbed.invariants().held = 0;
    let back = testbed.exclusive_unmoved(&before)?;
    testbed.kill_plugin()?;
    testbed.unmoved(&back)?;
    testbed.kill_runtime()?;
    testbed.unmoved(&back)?;
    testbed.exclusive("new", 1)?;
    let with_new = testbed.exclusive_unmoved(&back)?;
    testbed.remove("db")?;
    testbed.exclusive_unmoved(&with_new)?;
    Ok(())
}

/// Pods that were created while the plugin was away have their CPUs as soon as it is back: all in one
/// pass, not one by one as drifts.
pub(super) fn created_while_away(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.exclusive("db", 1)?;
    testbed.end_plugin()?;
    let names = ["first", "second", "third"];
    for name in &names[..shape.room().min(4) - 1] {
        testbed.start(&exclusive(name, 1))?;
    }
    testbed.shared("web")?;
    testbed.restart_plugin()?;
    testbed.wait(1);
    testbed.view()?;
    testbed.wait(CHECKED_TWICE);
    testbed.view()?;
    testbed.logs_no_drift()?;
    testbed.logs_no_warning()
}

/// A plain process with its defaults. Launched again with NRI 0.6, it gets no list of running
/// containers, and containerd 1.7 does not report their end: earlier shared containers do not make
/// room, and earlier CPUs do not return.
pub(super) fn launched(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.launch(&shape.config(""))?;
    let before = some_pods(testbed)?;
    testbed.kill_runtime()?;
    testbed.unmoved(&before)?;
    testbed.remove("web")?;
    testbed.exclusive("new", 1)?;
    // The runtime applies the updates of a plugin that starts before it asks for the next container.
    testbed.shared("late")?;
    testbed.exclusive_unmoved(&before)?;
    Ok(())
}

/// The exclusivity mechanism changes while everything runs: no container moves, no exclusive CPU is
/// shared at any time, and the previous mechanism leaves no bound in a class.
pub(super) fn mechanisms(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let class = CgroupRef::Named("kubepods/burstable");
    let config = |mode: &str| shape.with(mode).config("");
    testbed.start_bare(&config("groups"), false)?;
    let before = some_pods(testbed)?;
    for mode in ["runtime", "kernel", "groups", "kernel", "runtime", "groups", "auto"] {
        testbed.watches(|testbed| {
            testbed.reconfigure(&config(mode))?;
            testbed.settles(SETTLED, &[])
        })?;
        testbed.exclusive_unmoved(&before)?;
        if mode == "runtime" {
            testbed.wait(LET_GO);
            testbed.reads(class, "cpuset.cpus.effective", &shape.online.to_string())?;
        }
    }
    testbed.start(&exclusive("new", 1))?;
    testbed.exclusive_unmoved(&before)?;
    Ok(())
}
