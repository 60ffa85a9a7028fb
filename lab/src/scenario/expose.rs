//! `exposeCPUs: file`: a program's file names every CPU on which it runs.

use anyhow::Result;

use super::milli;
use super::shape::Shape;
use crate::pod::{Container, FOLLOWS, Pod};
use crate::testbed::Testbed;

/// The program's pod.
const PROGRAM: &str = "follows";
const SMALL: usize = 2;
const LARGE: usize = 4;
/// Resizes in a row.
const TIMES: usize = 40;
/// Seconds for the plugin to have lifted the quota that the kubelet writes at a resize.
const SETTLED: u64 = 60;

/// The program follows its file through resizes without a pause. It ends on a CPU that its file does
/// not name, and the checks miss its process then.
pub(super) fn resizes(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config("exposeCPUs: file"))?;
    let main = Container::guaranteed("main", milli(SMALL)).running(FOLLOWS);
    testbed.start(&Pod::new(PROGRAM, [main]))?;
    testbed.shared("web")?;
    testbed.resize_in_a_row(PROGRAM, [LARGE, SMALL], TIMES)?;
    testbed.settles(SETTLED, &[])?;
    let before = testbed.view()?;
    testbed.kill_plugin()?;
    testbed.unmoved(&before)?;
    testbed.resize(PROGRAM, milli(LARGE))?;
    testbed.view()?;
    // The log may have drifts: at a resize the kubelet writes the pod's CFS quota, which is lifted.
    testbed.remove(PROGRAM)
}
