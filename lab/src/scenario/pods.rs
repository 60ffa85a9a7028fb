//! Pods of several containers.

use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use super::{exclusive, guaranteed, milli};
use crate::pod::{Container, Pod};
use crate::step::Step;

/// Seconds until check passes have found what they would complain about.
const CHECKED: u64 = 25;

/// An init container of two CPUs; after its end a sidecar of one and the pod's own container of
/// two. The pod never holds more than its three CPUs, so all others can be assigned.
pub(super) fn init_and_sidecar(shape: &Shape) -> Option<Script> {
    let rest = shape.room().checked_sub(3)?;
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.run(Pod::new("db", [guaranteed("init", 2)]).within(3000));
    script.view();
    script.does(Step::End("db".into(), "init".into()));
    script.does(Step::Add("db".into(), guaranteed("sidecar", 1)));
    // Unused CPUs of the init container are in the shared pool until the pod needs them.
    let sidecar = script.view();
    script.does(Step::Add("db".into(), guaranteed("main", 2)));
    let complete = script.exclusive_unmoved(sidecar);
    if rest > 0 {
        script.exclusive("rest", rest);
        script.exclusive_unmoved(complete);
    }
    script.refused(Step::Run(exclusive("one-too-many", 1)), "not enough");
    script.remove("one-too-many");
    script.remove("db");
    script.exclusive("after", 3);
    script.view();
    script.remove("after");
    // One of the two CPUs of an ended init container is nobody's: what groups write for a container
    // beside it is what the checks accept.
    script.run(Pod::new("half", [guaranteed("init", 2)]).within(2000));
    script.does(Step::End("half".into(), "init".into()));
    script.does(Step::Add("half".into(), guaranteed("main", 1)));
    script.does(Step::Add("half".into(), Container::guaranteed("rest", 500)));
    let half = script.view();
    script.does(Step::Wait(CHECKED));
    script.unmoved(half);
    script.quiet();
    Some(script)
}

/// As recorded from a kubelet: in a pod with pod-level resources, a container without its own
/// arrives with the pod's, also one that `kubectl debug` adds. Taken literally, the pod would get
/// more than it requested. What comes later takes nothing from what is there.
pub(super) fn budget(shape: &Shape) -> Option<Script> {
    if shape.room() < 3 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.inherits("db", "free");
    script.run(Pod::new("db", [guaranteed("main", 2), guaranteed("free", 3)]).within(3000));
    let look = script.view_where(|view| {
        let free = view.containers.iter().find(|c| (&*c.pod, &*c.container) == ("db", "free"));
        let free = free.map(|c| parse(&c.allowed)).unwrap_or_default();
        let shared = parse(view.allowed("web"));
        if free == shared {
            Ok(())
        } else {
            Err(format!("free may run on {free}, not on {shared}"))
        }
    });
    script.inherits("db", "debug");
    script.does(Step::Add("db".into(), guaranteed("debug", 3)));
    script.exclusive_unmoved(look);
    script.exclusive("rest", shape.room() - 2);
    let all = script.exclusive_unmoved(look);
    script.does(Step::KillPlugin);
    script.unmoved(all);
    script.does(Step::End("db".into(), "debug".into()));
    script.does(Step::Wait(CHECKED));
    script.exclusive_unmoved(all);
    script.quiet();
    Some(script)
}

/// Grows to 3 CPUs, shrinks to 1 and to half a CPU, and grows again.
pub(super) fn resize(shape: &Shape) -> Option<Script> {
    if shape.room() < 3 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.shared("web");
    script.exclusive("db", 2);
    script.view();
    for amount in [milli(3), milli(1), 500, milli(2)] {
        script.does(Step::Resize("db".into(), amount));
        script.view();
    }
    script.refused(Step::Resize("db".into(), milli(shape.room() + 1)), "UnexpectedAdmissionError");
    script.does(Step::KillPlugin);
    script.view();
    script.quiet();
    Some(script)
}
