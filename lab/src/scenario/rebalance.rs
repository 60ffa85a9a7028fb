//! `rebalance`: running containers move to better CPUs, and some never do.
//!
//! Two uncore caches matter, the last ones; pods fill all others. A `small` pod is all that the last
//! one has, and a `new` one needs the whole of it.

use super::exclusive;
use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use crate::pod::{BINDS, Pod};
use crate::step::Step;
use crate::view::View;
use cpuset::CpuSet;

/// In the plugin's log for each step of a plan.
const MOVED: &str = "moved from exclusive CPU";
const WOULD_MOVE: &str = "would move from exclusive CPU";
/// In the plugin's log for a step that was undone.
const TAKEN_BACK: &str = "move taken back";
/// Logged when another configuration is in force.
const CHANGED: &str = "config: reloaded; in force: ";

/// Seconds for containers to be where they were moved to.
const FOLLOWED: u64 = 30;
/// A smaller uncore cache has no room for all of this.
const LEAST: usize = 4;
/// CPUs of the pod that always stays in the lower cache.
const STAY: usize = 1;

pub(super) const ALIGNED: &str =
    "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\nplacement: kubelet";
const COMPACT: &str = "placement: compact";

pub(super) fn config(shape: &Shape, engine: &str, rebalance: &str) -> String {
    shape.config(&format!(
        "{engine}\nrebalance: {{movesPer100Starts: 100, {rebalance}}}\n\
         namespaces:\n- names: [default]\n  allow: {{movable: [\"false\"]}}"
    ))
}

/// Sizes for two uncore caches.
pub(super) struct Sizes {
    /// The CPUs of the caches that can be exclusive.
    pub(super) lower: CpuSet,
    pub(super) upper: CpuSet,
    small: usize,
}

impl Sizes {
    /// None if the caches are too few or too small. Where cores have more than two threads, or a
    /// cache several NUMA nodes, the kubelet's answer to odd sizes lies across caches that have
    /// room.
    pub(super) fn of(shape: &Shape) -> Option<Self> {
        let is_divided = |cache: &CpuSet| !shape.nodes().iter().any(|node| cache.is_subset(node));
        if shape.threads() > 2 || shape.caches().iter().any(is_divided) {
            return None;
        }
        let [.., lower, upper] = shape.caches()[..] else { return None };
        let (lower, upper) = (lower & shape.free(), upper & shape.free());
        let small = (upper.len() / 4).max(2);
        // In a cache of 5 CPUs, the pod for the rest of the lower cache fits better into the upper.
        let fits = upper.len() >= LEAST && upper.len() != 5 && lower.len() > small + STAY;
        fits.then_some(Self { lower, upper, small })
    }
}

/// Fills all uncore caches but the last so many.
pub(super) fn fill_others(script: &mut Script, shape: &Shape, but: usize) {
    let caches = shape.caches();
    for (number, cache) in caches[..caches.len() - but].iter().enumerate() {
        script.exclusive(&format!("filler-{number}"), (*cache & shape.free()).len());
    }
}

/// Starts the plugin, and `stay` in the lower cache.
fn begin(script: &mut Script, shape: &Shape, config: String) {
    script.plugin(config);
    fill_others(script, shape, 2);
    script.run(fixed("stay", STAY));
}

/// Starts a pod in the upper cache, although the lower one has room for it in the end.
fn above(script: &mut Script, sizes: &Sizes, start: Step) {
    script.exclusive("gone", sizes.lower.len() - STAY);
    script.does(start);
    script.remove("gone");
}

fn binds(name: &str, cpus: usize) -> Pod {
    let mut pod = exclusive(name, cpus);
    pod.containers[0].command = BINDS.map(str::to_owned).to_vec();
    pod
}

fn fixed(name: &str, cpus: usize) -> Pod {
    exclusive(name, cpus).wishing("movable", "false")
}

pub(super) fn is_in(view: &View, pod: &str, cpus: CpuSet) -> Result<(), String> {
    let allowed = view.allowed(pod);
    if !parse(allowed).is_empty() && parse(allowed).is_subset(&cpus) {
        Ok(())
    } else {
        Err(format!("{pod} may run on {allowed}, expected some of {cpus}"))
    }
}

/// The busy pod ran on its own CPUs only.
fn keeps_to_own(view: &View, pod: &str) -> Result<(), String> {
    let (allowed, ran) = view.busy(pod);
    let (allowed, ran) = (parse(allowed), parse(ran));
    if !ran.is_empty() && ran.is_subset(&allowed) {
        Ok(())
    } else {
        Err(format!("{pod} may run on {allowed}, and ran on {ran}"))
    }
}

pub(super) fn counted(occasion: &str, outcome: &str, count: usize) -> String {
    format!(
        "nri_cpu_manager_rebalance_moves_total{{occasion=\"{occasion}\",outcome=\"{outcome}\"}} \
         {count}\n"
    )
}

pub(super) fn aligned(shape: &Shape) -> Option<Script> {
    moves(shape, ALIGNED)
}

pub(super) fn compact(shape: &Shape) -> Option<Script> {
    moves(shape, COMPACT)
}

/// A busy container leaves an uncore cache for one that needs all of it; another one, which lies
/// across two caches, moves into one when a pod has ended. Busy shared containers never run where
/// these are.
fn moves(shape: &Shape, engine: &str) -> Option<Script> {
    let sizes = Sizes::of(shape)?;
    let Sizes { lower, upper, small } = sizes;
    let mut script = Script::new(shape);
    let config = config(shape, engine, "minStay: 0s");
    begin(&mut script, shape, config);
    above(&mut script, &sizes, Step::RunBusy(exclusive("small", small)));
    script.does(Step::RunBusy(super::shared("web")));
    let before = script.view_where(move |view| is_in(view, "small", upper));
    let new = exclusive("new", upper.len());
    script.watches(vec![Step::Run(new), Step::Settle(FOLLOWED)]);
    script.view_where(move |view| {
        is_in(view, "small", lower)?;
        keeps_to_own(view, "small")?;
        keeps_to_own(view, "web")
    });
    script.unmoved_but(before, &["small", "web"]);
    script.expect(&[("new", upper)]);
    script.says(Step::Log, &["default/small/main", MOVED, ": default/new/main "]);
    script.says(Step::Explain("small".to_owned()), &[MOVED, ": default/new/main "]);
    script.says(Step::Status, &["rebalance: 1 moved for a container that started, 0 after"]);
    let metrics = || Step::Fetch("/metrics".to_owned());
    script.says(metrics(), &[&counted("arrival", "done", 1), &counted("departure", "done", 0)]);

    // One CPU is left in each cache.
    let rest = lower.len() - STAY - small - 1;
    script.remove("new");
    script.exclusive("left", upper.len() - 1);
    if rest > 0 {
        script.run(fixed("rest", rest));
    }
    script.does(Step::RunBusy(exclusive("wide", 2)));
    let torn = script.view_where(move |view| match parse(view.allowed("wide")) {
        cpus if cpus.is_disjoint(&lower) || cpus.is_disjoint(&upper) => {
            Err(format!("wide may run on {cpus}, expected both caches"))
        }
        _ => Ok(()),
    });
    // Where the runtime keeps exclusivity, the next creation moves it, and the one after that gives
    // shared containers what it has left.
    script.watches(vec![
        Step::Remove("left".to_owned()),
        Step::Run(super::shared("late")),
        Step::Run(super::shared("later")),
        Step::WaitFor(MOVED.to_owned(), 2),
        Step::Settle(FOLLOWED),
    ]);
    script.view_where(move |view| {
        is_in(view, "wide", upper)?;
        keeps_to_own(view, "wide")?;
        keeps_to_own(view, "web")
    });
    script.unmoved_but(torn, &["wide", "web"]);
    script.says(Step::Log, &["default/wide/main", ": default/wide/main "]);
    script.says(metrics(), &[&counted("arrival", "done", 1), &counted("departure", "done", 1)]);
    script.says(Step::Status, &["1 moved for a container that started, 1 after one had ended\n"]);
    // A restarted plugin finds them where they are.
    let moved = script.view();
    script.does(Step::KillPlugin);
    script.unmoved(moved);
    script.never_says(TAKEN_BACK);
    script.quiet();
    Some(script)
}

/// Two busy containers change places for a third one, which needs CPUs of both: one of them waits on
/// other CPUs meanwhile. Before, each of the caches of 5 CPUs has one or two free ones.
pub(super) fn ring(shape: &Shape) -> Option<Script> {
    let caches = shape.caches();
    let is_known = caches.len() == 4 && caches.iter().all(|cache| cache.len() == 5);
    let is_known = is_known && shape.threads() == 1 && shape.free().len() == 19;
    // The runtime cannot move a container twice with one answer.
    if !is_known || shape.exclusivity == "runtime" {
        return None;
    }
    let [first, second, ..] = caches[..] else { return None };
    let mut script = Script::new(shape);
    script.plugin(config(shape, COMPACT, "minStay: 0s"));
    script.exclusive("gone-2", 2);
    script.does(Step::RunBusy(exclusive("two", 2)));
    script.exclusive("a", 3);
    script.exclusive("gone-1", 1);
    script.exclusive("b", 4);
    script.does(Step::RunBusy(exclusive("one", 1)));
    script.exclusive("c", 2);
    script.remove("gone-1");
    script.exclusive("d", 3);
    script.remove("gone-2");
    let before = script.view_where(move |view| {
        is_in(view, "two", first)?;
        is_in(view, "one", second)
    });
    script.watches(vec![Step::RunBusy(exclusive("three", 3)), Step::Settle(FOLLOWED)]);
    let moved = script.view_where(move |view| {
        is_in(view, "one", first)?;
        is_in(view, "two", second)?;
        is_in(view, "three", first)?;
        ["one", "two", "three"].iter().try_for_each(|pod| keeps_to_own(view, pod))
    });
    script.unmoved_but(before, &["one", "two"]);
    script.says(Step::Log, &["default/one/main", ": temporarily: default/three/main "]);
    let metrics = Step::Fetch("/metrics".to_owned());
    script.says(metrics, &[&counted("arrival", "staged", 1), &counted("arrival", "done", 2)]);
    script.does(Step::KillPlugin);
    script.unmoved(moved);
    script.never_says(TAKEN_BACK);
    script.quiet();
    Some(script)
}

/// Who has said no, whose threads have affinities of their own, or who has just started, does not
/// move; and with `mode: suggest` nobody does.
pub(super) fn stays(shape: &Shape) -> Option<Script> {
    let sizes = Sizes::of(shape)?;
    let small = sizes.small;
    let mut script = Script::new(shape);
    begin(&mut script, shape, config(shape, ALIGNED, "minStay: 0s"));
    torn(&mut script, &sizes, fixed("fixed", small));
    torn(&mut script, &sizes, binds("binds", small));
    script.never_says(MOVED);

    script.does(Step::SwapConfig(config(shape, ALIGNED, "minStay: 0s, mode: suggest")));
    script.does(Step::WaitFor(CHANGED.to_owned(), 1));
    torn(&mut script, &sizes, exclusive("asked", small));
    script.says(Step::Log, &["default/asked/main", WOULD_MOVE]);
    script
        .says(Step::Status, &["rebalance: dry run (mode: suggest), 1 container would have moved"]);
    let metrics = Step::Fetch("/metrics".to_owned());
    script.says(metrics, &[&counted("arrival", "suggested", 1), &counted("arrival", "done", 0)]);

    script.does(Step::SwapConfig(config(shape, ALIGNED, "minStay: 1h")));
    script.does(Step::WaitFor(CHANGED.to_owned(), 2));
    torn(&mut script, &sizes, exclusive("young", small));
    script.never_says(MOVED);
    script.quiet();
    Some(script)
}

/// A container that lies across two caches moves into one when it has stayed for long enough, and
/// not before, without any other event. Where the runtime enforces exclusivity, the next creation
/// moves it.
pub(super) fn young(shape: &Shape) -> Option<Script> {
    let sizes = Sizes::of(shape)?;
    let Sizes { lower, upper, .. } = sizes;
    if shape.exclusivity == "runtime" {
        return None;
    }
    let mut script = Script::new(shape);
    begin(&mut script, shape, config(shape, ALIGNED, "minStay: 45s"));
    // One CPU is left in each cache.
    script.exclusive("left", upper.len() - 1);
    script.run(fixed("rest", lower.len() - STAY - 1));
    script.run(exclusive("wide", 2));
    script.remove("left");
    script.says(Step::Status, &["stays: ", " s of minStay left: default/wide/main\n"]);
    script.does(Step::Wait(15));
    script.never_says(MOVED);
    script.does(Step::WaitFor(MOVED.to_owned(), 1));
    script.does(Step::Settle(FOLLOWED));
    script.view_where(move |view| is_in(view, "wide", upper));
    script.says(Step::Status, &["  budget: ", " after an end or minStay: 1 moved ("]);
    script.quiet();
    Some(script)
}

/// Another pod that needs the whole upper cache gets parts of both, because this one does not move.
/// Both end.
fn torn(script: &mut Script, sizes: &Sizes, pod: Pod) {
    let Sizes { upper, .. } = *sizes;
    let name = pod.name.clone();
    above(script, sizes, Step::Run(pod));
    let stays = name.clone();
    let before = script.view_where(move |view| is_in(view, &stays, upper));
    script.exclusive("new", upper.len());
    let all = script.exclusive_unmoved(before);
    script.view_where(move |view| match parse(view.allowed("new")) {
        cpus if cpus.is_subset(&upper) => Err(format!("new may run on {cpus}")),
        _ => Ok(()),
    });
    script.remove("new");
    script.exclusive_unmoved(all);
    script.remove(&name);
}
