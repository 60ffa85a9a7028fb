//! Containers that use other CPUs beside their exclusive ones.

use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use super::{exclusive, milli};
use crate::step::Step;
use crate::view::View;

const CONFIG: &str = "exposeCpus: true
namespaces:
- names: [default]
  allow: {cpus: [exclusive+shared]}";

/// A mixed container beside neighbours that start, grow and end: nobody else runs on its exclusive
/// CPUs, and it follows the shared pool. Then it is resized, and the plugin is killed.
pub(super) fn mixed(shape: &Shape) -> Option<Script> {
    let room = shape.room();
    if room < 6 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(CONFIG));
    script.shared("web");
    let program = exclusive("program", 2).wishing("cpus", "exclusive+shared");
    script.does(Step::RunBusy(program));
    script.view_where(|view| names_each_part(view, "program"));
    let neighbour = exclusive("neighbour", room - 3);
    script.watches(vec![Step::RunBusy(neighbour), Step::Wait(1)]);
    let crowded = script.view();
    script.says(Step::Explain("program".to_owned()), &["(cpus: exclusive+shared)"]);
    script.does(Step::KillPlugin);
    script.unmoved(crowded);
    script.does(Step::Resize("program".to_owned(), milli(3)));
    script.view();
    script.refused(Step::Resize("program".to_owned(), milli(4)), "not enough");
    script.watches(vec![Step::Remove("neighbour".to_owned()), Step::Wait(1)]);
    script.view();
    script.does(Step::Resize("program".to_owned(), milli(1)));
    script.view();
    let other = exclusive("other", 1).wishing("cpus", "exclusive+shared");
    script.run(other);
    script.view();
    script.remove("program");
    script.remove("other");
    script.expect(&[("web", shape.online())]);
    Some(script)
}

/// The environment of a mixed container names its exclusive CPUs and the shared ones.
fn names_each_part(view: &View, pod: &str) -> Result<(), String> {
    let Some(container) = view.containers.iter().find(|c| c.pod == pod) else {
        return Err(format!("{pod} does not run"));
    };
    let own = parse(container.decided.as_deref().unwrap_or_default());
    let shared = parse(&container.allowed) - own;
    let expected =
        [format!("NRI_CPU_MANAGER_CPUS={own}"), format!("NRI_CPU_MANAGER_SHARED_CPUS={shared}")];
    match expected.iter().find(|variable| !container.environment.contains(variable)) {
        Some(missing) => Err(format!("{missing} is not in {:?}", container.environment)),
        None => Ok(()),
    }
}
