//! Pods come and go, programs die and come back.

use super::exclusive;
use super::invariants::parse;
use super::script::{Script, ViewId, guaranteed};
use super::shape::Shape;
use crate::pod::{Container, Pod};
use crate::step::{CgroupRef, Step};

/// Seconds after which what the runtime has lost must have been made up for: before the next look
/// at the groups.
const MADE_UP: u64 = 5;

/// Seconds for all containers to move to where another mechanism wants them.
const SETTLED: u64 = 60;

/// Seconds until the previous mechanism is undone: one check pass and a margin.
const LET_GO: u64 = 15;

/// To full in parts of different sizes, every other one away, full again with others, a restart,
/// empty; then one that asks for everything.
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
        // Uneven on purpose; six or seven of them on any machine.
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
    // Nothing has been lost.
    script.exclusive("everything", room);
    script.expect(&[("everything", shape.free()), ("web", shape.reserved)]);
    script.quiet();
    Some(script)
}

/// containerd loses an update of a container that is being started, and no event follows.
pub(super) fn together(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.does(Step::RunTogether(vec![
        super::shared("web"),
        exclusive("db", 1),
        super::shared("batch"),
        exclusive("cache", 1),
    ]));
    script.does(Step::Wait(MADE_UP));
    script.view();
    Some(script)
}

/// Two exclusive pods and a shared one.
pub(super) fn some_pods(script: &mut Script) -> ViewId {
    script.shared("web");
    script.exclusive("db", 1);
    script.exclusive("cache", 1);
    script.view()
}

/// The runtime applies the updates of a plugin that starts before it asks for the next container.
pub(super) fn caught_up(script: &mut Script) {
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

/// Also what only the state file can know: whose the CPUs of a container are that is just being
/// restarted.
pub(super) fn plugin_restart(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.run(Pod::new("db", [guaranteed("main", 1), Container::guaranteed("side", 500)]));
    let before = script.view();
    // The plugin's first start: what the next one writes down, it could find in the groups of those
    // that run.
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

/// The bare program with its defaults. Launched again with NRI 0.6 it gets no list of what runs,
/// and containerd 1.7 tells it of no end of that either: shared containers of before would not make
/// room, and no CPUs of before come back.
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

pub(super) fn both_restart(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    let before = some_pods(&mut script);
    script.does(Step::KillBoth);
    goes_on(&mut script, before);
    Some(script)
}

/// Containers created without a plugin have all CPUs until it starts.
pub(super) fn containers_first(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    let online = shape.online();
    script.does(Step::Run(super::shared("web")));
    script.does(Step::Run(exclusive("db", 1)));
    script.does(Step::Run(exclusive("cache", 1)));
    script.plugin(shape.config(""));
    caught_up(&mut script);
    let sorted = script.view_where(move |view| {
        let own = parse(view.allowed("db")) | parse(view.allowed("cache"));
        let web = parse(view.allowed("web"));
        if web == online - own { Ok(()) } else { Err(format!("web may run on {web}")) }
    });
    script.exclusive("new", 1);
    script.exclusive_unmoved(sorted);
    Some(script)
}

/// What keeps exclusivity changes while everything runs: nobody moves, no CPU is shared at any
/// moment, and what kept it before leaves nothing behind that binds a class.
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

/// A partition of its own for each exclusive container: shared ones leave its CPUs though no update
/// is sent to them.
pub(super) fn kernel(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config("exclusivity: kernel"));
    let before = some_pods(&mut script);
    script.end_plugin();
    script.unmoved(before);
    script.remove("db");
    let gone = script.exclusive_unmoved(before);
    script.plugin(shape.config("exclusivity: kernel"));
    script.unmoved(gone);
    script.remove("cache");
    script.expect(&[("web", shape.online())]);
    Some(script)
}
