//! `exposeCpus: file`: a program's file names every CPU on which it runs.

use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, FOLLOWS, Pod};
use crate::step::Step;

/// The program's pod.
const PROGRAM: &str = "follows";
const SMALL: usize = 2;
const LARGE: usize = 4;
/// Resizes in a row.
const TIMES: usize = 40;
/// Seconds; slow machines have to check the container within them.
const NOTICE: u64 = 30;
/// For the plugin to have lifted the quota that the kubelet writes at a resize.
const SETTLED: u64 = 60;

fn program(cpus: usize) -> Pod {
    let main = Container::guaranteed("main", super::milli(cpus)).running(FOLLOWS);
    Pod::new(PROGRAM, [main])
}

fn resize(cpus: usize) -> Step {
    Step::Resize(PROGRAM.to_owned(), super::milli(cpus))
}

/// The program follows its file through resizes without a pause. It ends on a CPU that its file does
/// not name, and the checks miss its process then.
pub(super) fn resizes(shape: &Shape) -> Option<Script> {
    if shape.room() < LARGE + 1 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config("exposeCpus: file"));
    script.run(program(SMALL));
    script.shared("web");
    script.resizes(PROGRAM, [LARGE, SMALL], TIMES);
    script.does(Step::Settle(SETTLED));
    let before = script.view();
    script.does(Step::KillPlugin);
    script.unmoved(before);
    script.does(resize(LARGE));
    script.view();
    // The log may have drifts: at a resize the kubelet writes the pod's CFS quota, which is lifted.
    script.remove(PROGRAM);
    Some(script)
}

/// A resize to fewer CPUs leaves the program all of them for a while, in which its file names those
/// that go, and no other container gets any; then the smaller set follows. Another resize, a restart of the
/// plugin or the runtime and the pod's end in that time leave nothing behind.
pub(super) fn notice(shape: &Shape) -> Option<Script> {
    if shape.room() < LARGE + 1 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(&format!("exposeCpus: file\nnoticeSeconds: {NOTICE}")));
    script.run(program(LARGE));
    script.shared("web");
    let large = script.view();
    let shrink = |script: &mut Script, size| {
        script.does(resize(size));
        script.leaving(PROGRAM, LARGE - size);
        script.view();
    };
    let ends = |script: &mut Script| {
        script.does(Step::Wait(NOTICE));
        script.does(Step::Settle(SETTLED));
        script.leaving(PROGRAM, 0);
        script.view();
    };

    shrink(&mut script, SMALL);
    script.unmoved(large);
    script.exclusive("late", 1);
    script.unmoved_but(large, &["web"]);
    ends(&mut script);
    script.remove("late");

    script.does(resize(LARGE));
    script.view();
    shrink(&mut script, SMALL);
    shrink(&mut script, LARGE - 1);
    ends(&mut script);

    for interruption in [Step::KillPlugin, Step::KillRuntime] {
        script.does(resize(LARGE));
        script.view();
        shrink(&mut script, SMALL);
        script.does(interruption);
        ends(&mut script);
    }

    script.does(resize(LARGE));
    shrink(&mut script, SMALL);
    script.remove(PROGRAM);
    script.expect(&[("web", shape.online())]);
    Some(script)
}
