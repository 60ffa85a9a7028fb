//! CPUs go offline and come back while everything runs.

use nri_cpu_manager::cpuset::CpuSet;

use super::script::Script;
use super::shape::Shape;
use crate::step::Step;

/// What the plugin's log says when it has seen the change.
const SEEN: &str = "online CPUs are now";

/// The highest of these.
fn last(cpus: CpuSet) -> Option<usize> {
    cpus.iter().last()
}

/// Nothing exclusive moves, the pool shrinks and grows, and no new container gets the CPU while it is offline.
pub(super) fn shared(shape: &Shape) -> Option<Script> {
    let victim = last(shape.free())?;
    let rest = shape.room().checked_sub(2).filter(|rest| *rest > 0)?;
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.exclusive("db", 1);
    let before = script.look();
    script.does(Step::SetOnline(victim, false));
    script.exclusive_unmoved(before);
    // Before the plugin's next look by the clock, so before it had to know.
    script.exclusive("rest", rest);
    let full = script.exclusive_unmoved(before);
    script.refused(Step::Run(super::script::exclusive("one-too-many", 1)), "not enough");
    script.remove("one-too-many");
    script.does(Step::SetOnline(victim, true));
    script.does(Step::WaitFor(SEEN.into(), 2));
    script.exclusive("new", 1);
    script.exclusive_unmoved(full);
    Some(script)
}

/// A container that lost a CPU gets another one near the others, and keeps it when the old one is back.
pub(super) fn exclusive(shape: &Shape) -> Option<Script> {
    let victim = last(shape.free())?;
    let size = shape.room().checked_sub(2).filter(|size| *size > 0)?;
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    // Alone it is on the last CPU; two others are free.
    script.exclusive("filler", size);
    script.exclusive("db", 2);
    script.look();
    script.remove("filler");
    script.look_for(move |view| {
        let own = super::invariants::parse(view.allowed("db"));
        if own.contains(victim) { Ok(()) } else { Err(format!("db is not on CPU {victim}")) }
    });
    script.does(Step::SetOnline(victim, false));
    script.does(Step::WaitFor(SEEN.into(), 1));
    // Its change goes along with the next answer.
    script.shared("late");
    let repaired = script.look();
    script.does(Step::SetOnline(victim, true));
    script.does(Step::WaitFor(SEEN.into(), 2));
    script.shared("later");
    script.exclusive_unmoved(repaired);
    Some(script)
}
