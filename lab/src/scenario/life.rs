//! Pods start and end; the plugin and the runtime die and restart.

use super::script::{Script, ViewId};
use super::shape::Shape;
use super::{exclusive, guaranteed, milli};
use crate::pod::{Container, Pod};
use crate::step::{CgroupRef, Step};

/// Seconds for all containers to move to where another mechanism wants them.
const SETTLED: u64 = 60;

/// Seconds for two check passes: the second one would report a drift.
const CHECKED_TWICE: u64 = 14;

/// Seconds until the previous mechanism is undone: one check pass and a margin.
const LET_GO: u64 = 15;

/// Fills the node with different sizes, removes every other pod, fills it with others, restarts the
/// plugin, empties it; then one pod requests all CPUs.
pub(super) fn churn(shape: &Shape) -> Option<Script> {
    let room = shape.room();
    let mut script = Script::new(shape);
    script.plugin(
        shape.config("cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}"),
    );
    script.shared("web");
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
        script.exclusive(name, *size);
    }
    script.view();
    script.refused(Step::Run(exclusive("one-too-many", 1)), "not enough");
    script.remove("one-too-many");
    let mut freed = 0;
    for (name, size) in sizes.iter().step_by(2) {
        script.remove(name);
        freed += size;
    }
    let half = script.view();
    let mut number = 0;
    while freed > 0 {
        number += 1;
        let size = freed.min((room / 4).max(1));
        script.exclusive(&format!("second-{number}"), size);
        freed -= size;
    }
    let full = script.exclusive_unmoved(half);
    script.does(Step::KillPlugin);
    script.unmoved(full);
    for (name, _) in sizes.iter().skip(1).step_by(2) {
        script.remove(name);
    }
    script.view();
    for number in 1..=number {
        script.remove(&format!("second-{number}"));
    }
    script.expect(&[("web", shape.online())]);
    // No CPU has been lost.
    script.exclusive("everything", room);
    script.expect(&[("everything", shape.free()), ("web", shape.reserved)]);
    script.quiet();
    Some(script)
}

/// What happens on every node and is nothing to warn of: starts, init containers, resizes that succeed
/// and one that waits, deletions, daemon-reloads, restarts of the runtime and of the plugin.
pub(super) fn ordinary(shape: &Shape) -> Option<Script> {
    if shape.room() < 3 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.exclusive("db", 1);
    for round in 0..2 {
        let job = format!("job-{round}");
        script.run(Pod::new(&job, [Container::best_effort("main")]));
        script.does(Step::Resize("db".to_owned(), 2000));
        script.does(Step::RealiseClasses);
        script.refused(Step::Resize("db".to_owned(), milli(shape.room() + 1)), "");
        script.does(Step::Wait(CHECKED_TWICE));
        script.exclusive(&format!("cache-{round}"), 1);
        script.does(Step::Resize("db".to_owned(), 1000));
        script.does(Step::KillRuntime);
        script.remove(&job);
        script.does(Step::RealiseClasses);
        script.remove(&format!("cache-{round}"));
        script.does(Step::Wait(CHECKED_TWICE));
        if round % 2 == 1 {
            script.does(Step::Reconfigure(shape.config("")));
        }
        script.view();
        script.never_warns();
    }
    Some(script)
}

/// Two exclusive pods and a shared one.
fn some_pods(script: &mut Script) -> ViewId {
    script.shared("web");
    script.exclusive("db", 1);
    script.exclusive("cache", 1);
    script.view()
}

/// The runtime applies the updates of a plugin that starts before it asks for the next container.
fn caught_up(script: &mut Script) {
    script.shared("late");
}

/// A new pod is admitted, and the CPUs of a removed one return.
fn goes_on(script: &mut Script, before: ViewId) {
    script.unmoved(before);
    script.exclusive("new", 1);
    let with_new = script.exclusive_unmoved(before);
    script.remove("db");
    script.exclusive_unmoved(with_new);
}

/// Also checks what only the state file has: the owner of a restarting container's CPUs.
pub(super) fn plugin_restart(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.run(Pod::new("db", [guaranteed("main", 1), Container::guaranteed("side", 500)]));
    let before = script.view();
    // At the plugin's first start: at the next ones, it could read the decisions from cgroups.
    script.does(Step::End("db".into(), "main".into()));
    script.holding(1);
    script.does(Step::KillPlugin);
    script.exclusive("another", 1);
    script.view();
    script.does(Step::Retry("db".into()));
    script.holding(0);
    let back = script.exclusive_unmoved(before);
    script.does(Step::KillPlugin);
    script.unmoved(back);
    Some(script)
}

pub(super) fn runtime_restart(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    let before = some_pods(&mut script);
    script.does(Step::KillRuntime);
    goes_on(&mut script, before);
    Some(script)
}

/// A plain process with its defaults. Launched again with NRI 0.6, it gets no list of running
/// containers, and containerd 1.7 does not report their end: earlier shared containers do not make
/// room, and earlier CPUs do not return.
pub(super) fn launched(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.launch(shape.config(""));
    let before = some_pods(&mut script);
    script.does(Step::KillRuntime);
    script.unmoved(before);
    script.remove("web");
    script.exclusive("new", 1);
    caught_up(&mut script);
    script.exclusive_unmoved(before);
    Some(script)
}

/// The exclusivity mechanism changes while everything runs: no container moves, no exclusive CPU is
/// shared at any time, and the previous mechanism leaves no bound in a class.
pub(super) fn mechanisms(shape: &Shape) -> Option<Script> {
    let class = CgroupRef::Named("kubepods/burstable".to_owned());
    let shape = &Shape { exclusivity: String::new(), ..shape.clone() };
    let config = |mode: &str| shape.config(&format!("exclusivity: {mode}"));
    let mut script = Script::new(shape);
    script.does(Step::StartBare(config("groups")));
    let before = some_pods(&mut script);
    for mode in ["runtime", "kernel", "groups", "kernel", "runtime", "groups", "auto"] {
        script.watches(vec![Step::Reconfigure(config(mode)), Step::Settle(SETTLED)]);
        script.exclusive_unmoved(before);
        if mode == "runtime" {
            script.does(Step::Wait(LET_GO));
            let effective = Step::ReadCgroup(class.clone(), "cpuset.cpus.effective".to_owned());
            script.says(effective, &[&shape.online().to_string()]);
        }
    }
    script.exclusive("new", 1);
    script.exclusive_unmoved(before);
    Some(script)
}

/// Each exclusive container has its own partition: shared ones leave its CPUs without an update.
pub(super) fn kernel(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config("exclusivity: kernel"));
    let before = some_pods(&mut script);
    script.end_plugin();
    script.unmoved(before);
    // Its CPU stays unused until the plugin is back: cgroups keep all others off it.
    script.remove("db");
    script.plugin(shape.config("exclusivity: kernel"));
    script.exclusive_unmoved(before);
    script.remove("cache");
    script.expect(&[("web", shape.online())]);
    Some(script)
}
