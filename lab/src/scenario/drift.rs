//! What was decided is not so: it was changed by hand, the runtime has lost it, or it never was.

use super::exclusive;
use super::script::Script;
use super::shape::Shape;
use crate::step::{CgroupRef, Step};

/// Seconds within which a drift has to be found and repaired: two looks, and the time until the
/// first one.
const REPAIRED: u64 = 15;

/// Seconds within which what the runtime has lost must have been made up for: before the next look
/// at the groups.
const MADE_UP: u64 = 5;

fn write(pod: &str, file: &str, value: &str) -> Step {
    Step::WriteCgroup(CgroupRef::Container(pod.to_owned()), file.to_owned(), value.to_owned())
}

/// Writes `cpuset.cpus` of a shared container and of an exclusive one.
pub(super) fn by_hand(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.exclusive("db", 1);
    let before = script.view();
    let disturbed: &[&str] = match shape.exclusivity.as_str() {
        // What `cpuset.cpus.exclusive` names stays the partition's, and nobody else's.
        "kernel" => &[],
        "runtime" => &["web", "db"],
        // The groups above it keep a shared container where it is, whatever is set for its own.
        _ => &["db"],
    };
    script.does(write("web", "cpuset.cpus", &shape.online().to_string()));
    script.does(write("db", "cpuset.cpus", &shape.reserved.to_string()));
    script.settles(REPAIRED, disturbed);
    script.unmoved(before);
    Some(script)
}

/// containerd loses updates of a container that is being started; no event follows.
pub(super) fn lost_update(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.does(Step::RunSlowly(super::shared("web"), vec![Step::Run(exclusive("db", 1))]));
    script.settles(MADE_UP, &[]);
    script.view();
    Some(script)
}

/// An exclusive container that was there before the plugin had a quota like any other; then it gets
/// one again by hand.
pub(super) fn quota(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.does(Step::Run(exclusive("db", 1)));
    script.plugin(shape.config(""));
    script.settles(REPAIRED, &[]);
    let before = script.view();
    script.does(write("db", "cpu.max", "50000 100000"));
    script.settles(REPAIRED, &["db"]);
    script.unmoved(before);
    Some(script)
}
