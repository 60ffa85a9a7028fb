//! `exposeCpus: file`: a program's file names every CPU on which it runs.

use cpuset::CpuSet;

use super::rebalance::{self, Sizes};
use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, FOLLOWS, Pod};
use crate::step::Step;

/// The program's pod.
const PROGRAM: &str = "follows";
const SMALL: usize = 2;
const LARGE: usize = 4;
/// Seconds; slow machines have to look at the container within them.
const NOTICE: u64 = 30;
/// For the plugin to have lifted the quota that the kubelet writes at a resize.
const SETTLED: u64 = 60;

pub(super) fn short(shape: &Shape) -> Option<Script> {
    follows(shape, 40, 2)
}

pub(super) fn long(shape: &Shape) -> Option<Script> {
    follows(shape, 1000, 20)
}

/// A resize to fewer CPUs leaves the program all of them for a while, in which its file names those
/// that go, and nobody else gets any; then the smaller set follows. Another resize, a restart of the
/// plugin or the runtime and the pod's end in that time leave nothing behind.
pub(super) fn notice(shape: &Shape) -> Option<Script> {
    if shape.room() < LARGE + 1 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(&format!("exposeCpus: file\nnoticeSeconds: {NOTICE}")));
    let program = Container::guaranteed("main", super::milli(LARGE)).running(FOLLOWS);
    script.run(Pod::new(PROGRAM, [program]));
    script.shared("web");
    let large = script.view();
    let resize = |size| Step::Resize(PROGRAM.to_owned(), super::milli(size));
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

/// The program follows its file through so many resizes and, between two uncore caches, moves. It
/// ends on a CPU that its file does not name, and the checks miss its process then.
fn follows(shape: &Shape, resizes: usize, moves: usize) -> Option<Script> {
    if shape.room() < LARGE + 1 {
        return None;
    }
    let caches = caches(shape);
    let moves = if caches.is_some() { moves } else { 0 };
    let mut script = Script::new(shape);
    let exposed = "exposeCpus: file";
    if caches.is_some() {
        let options = format!("{}\n{exposed}", rebalance::ALIGNED);
        script.plugin(rebalance::config(shape, &options, "minStay: 0s"));
        rebalance::fill_others(&mut script, shape, 2);
    } else {
        script.plugin(shape.config(exposed));
    }
    let program = Container::guaranteed("main", super::milli(SMALL)).running(FOLLOWS);
    script.run(Pod::new(PROGRAM, [program]));
    script.shared("web");
    let parts = moves.max(1);
    for part in 0..parts {
        script.resizes(PROGRAM, [LARGE, SMALL], resizes / parts);
        if let Some(caches) = caches {
            let [from, to] = [part, part + 1].map(|number| caches[number % 2]);
            moved(&mut script, from, to);
        }
    }
    script.does(Step::Settle(SETTLED));
    let before = script.view_where(move |view| match caches {
        Some(caches) => rebalance::is_in(view, PROGRAM, caches[moves % 2]),
        None => Ok(()),
    });
    if caches.is_some() {
        let metrics = Step::Fetch("/metrics".to_owned());
        script.says(metrics, &[&rebalance::counted("arrival", "done", moves)]);
    }
    script.does(Step::KillPlugin);
    script.unmoved(before);
    script.does(Step::Resize(PROGRAM.to_owned(), super::milli(LARGE)));
    script.view();
    // The log may have drifts: at a resize the kubelet writes the pod's CFS quota, which is lifted.
    script.remove(PROGRAM);
    Some(script)
}

/// The CPUs of two uncore caches between which the program can be moved, see [`moved`].
fn caches(shape: &Shape) -> Option<[CpuSet; 2]> {
    let Sizes { lower, upper, .. } = Sizes::of(shape)?;
    let is_large = lower.len().min(upper.len()) > LARGE;
    if is_large && lower.len().abs_diff(upper.len()) < SMALL { Some([lower, upper]) } else { None }
}

/// Moves the program: another pod takes all but a few CPUs of the cache where it goes, and then one
/// needs the whole of the cache where it is.
fn moved(script: &mut Script, from: CpuSet, to: CpuSet) {
    // So large that there is no room beside it for the first of these pods.
    script.resizes(PROGRAM, [LARGE, SMALL], 1);
    script.exclusive("beside", to.len() - SMALL);
    script.resizes(PROGRAM, [SMALL, LARGE], 1);
    script.exclusive("whole", from.len());
    script.remove("whole");
    script.remove("beside");
}
