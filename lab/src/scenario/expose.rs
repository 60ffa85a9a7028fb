//! `exposeCpus: file`: a program's file names every CPU on which it runs.

use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, FOLLOWS, Pod};
use crate::step::Step;

/// Resizes of the program's container, up and down.
const RESIZES: usize = 40;
const SMALL: usize = 2;
const LARGE: usize = 4;

/// The program ends on a CPU that its file does not name, and the checks miss its process then.
pub(super) fn resizes(shape: &Shape) -> Option<Script> {
    if shape.room() < LARGE + 1 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config("exposeCpus: file"));
    let program = Container::guaranteed("main", super::milli(SMALL)).running(FOLLOWS);
    script.run(Pod::new("follows", [program]));
    script.does(Step::RunBusy(super::shared("web")));
    for turn in 0..RESIZES {
        let size = if turn % 2 == 0 { LARGE } else { SMALL };
        script.does(Step::Resize("follows".to_owned(), super::milli(size)));
    }
    script.view();
    let before = script.view();
    script.does(Step::KillPlugin);
    script.unmoved(before);
    script.does(Step::Resize("follows".to_owned(), super::milli(LARGE)));
    script.view();
    // The log may have drifts: at a resize the kubelet writes the pod's CFS quota, which is lifted.
    script.remove("follows");
    Some(script)
}
