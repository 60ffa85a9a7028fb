//! CPUs go offline and online while everything runs.

use cpuset::CpuSet;

use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, Pod};
use crate::step::Step;

/// Logged after a change.
const ONLINE_CHANGED: &str = "hotplug: online CPUs have changed";

fn last(cpus: CpuSet) -> Option<usize> {
    cpus.iter().last()
}

/// A container that lost a CPU keeps the rest, gets another one, and keeps it when the lost CPU is
/// online again. A shared container of its pod stays off all of them.
pub(super) fn exclusive(shape: &Shape) -> Option<Script> {
    let free = shape.free();
    let room = shape.room();
    if room < 3 {
        return None;
    }
    // At first only these two can be exclusive, so that db has them on every machine.
    let own = free - free.lowest(room - 2);
    let victim = last(own)?;
    let narrow = Shape { reserved: shape.online() - own, ..shape.clone() };
    let mut script = Script::new(&narrow);
    script.plugin(narrow.config(""));
    script.shared("web");
    script.run(Pod::new("db", [super::guaranteed("main", 2), Container::guaranteed("side", 500)]));
    script.expect(&[("db", own)]);
    script.reserve(shape.reserved);
    script.does(Step::Reconfigure(shape.config("")));
    script.expect(&[("db", own)]);
    script.does(Step::SetOnline(victim, false));
    script.does(Step::WaitFor(ONLINE_CHANGED.into(), 1));
    // The update of db is sent with the next answer.
    script.shared("late");
    let repaired = script.view_where(move |view| {
        let now = parse(view.allowed("db"));
        if (now & own).len() == 1 {
            Ok(())
        } else {
            Err(format!("db had {own}, lost {victim}, and has {now}"))
        }
    });
    script.does(Step::SetOnline(victim, true));
    script.does(Step::WaitFor(ONLINE_CHANGED.into(), 2));
    script.shared("later");
    script.exclusive_unmoved(repaired);
    Some(script)
}
