//! The machine as described, against what Linux reports of it.

use super::script::Script;
use super::shape::Shape;
use crate::hardware::Hardware;

/// The machine as reported by Linux and by the plugin's reader is the one described.
pub(super) fn machine(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    let described = Hardware::of(&shape.topology);
    script.view_where(move |view| {
        same("Linux", &view.hardware, &described)?;
        same("the plugin's reader", &view.read, &described)
    });
    Some(script)
}

fn same(machine: &str, reported: &Hardware, described: &Hardware) -> Result<(), String> {
    let parts = |hardware: &Hardware| {
        let Hardware { online, cores, sockets, caches, nodes } = hardware;
        [
            ("online CPUs", online.clone()),
            ("cores", format!("{cores:?}")),
            ("sockets", format!("{sockets:?}")),
            ("uncore caches", format!("{caches:?}")),
            ("NUMA nodes", format!("{nodes:?}")),
        ]
    };
    for ((what, reported), (_, described)) in parts(reported).into_iter().zip(parts(described)) {
        if reported != described {
            return Err(format!("{machine} reports {what} {reported}, described: {described}"));
        }
    }
    Ok(())
}
