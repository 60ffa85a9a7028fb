//! Drift: another program wrote a container's cgroup. What a container does within its own is none.

use super::script::Script;
use super::shape::Shape;
use crate::step::{CgroupRef, Step};

/// Seconds to find and repair a drift: two check passes, and the time until the first one.
const REPAIRED: u64 = 15;

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
        // The CPUs in `cpuset.cpus.exclusive` stay the partition's own.
        "kernel" => &[],
        "runtime" => &["web", "db"],
        // The cgroups above a shared container bound whatever its own has.
        _ => &["db"],
    };
    script.does(write("web", "cpuset.cpus", &shape.online().to_string()));
    script.does(write("db", "cpuset.cpus", &shape.reserved.to_string()));
    script.settles(REPAIRED, disturbed);
    script.unmoved(before);
    Some(script)
}

/// Containers with cgroups of their own within, one of them exclusive: nothing of that is a drift, and
/// a resize, a crash of the plugin and the end of the pod are as ever.
pub(super) fn nested(shape: &Shape) -> Option<Script> {
    if shape.room() < 3 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.exclusive("db", 2);
    let before = script.view();
    for pod in ["db", "web"] {
        script.does(Step::Nest(pod.to_owned()));
    }
    // Two check passes.
    script.does(Step::Wait(25));
    script.unmoved(before);
    script.quiet();
    script.does(Step::KillPlugin);
    script.does(Step::Wait(15));
    script.unmoved(before);
    script.quiet();
    script.does(Step::Resize("db".to_owned(), super::milli(3)));
    script.view();
    script.does(Step::Resize("db".to_owned(), super::milli(1)));
    script.view();
    script.remove("db");
    script.expect(&[("web", shape.online())]);
    Some(script)
}
