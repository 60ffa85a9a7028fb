//! CPUs that the kernel was booted to isolate.

use cpuset::CpuSet;

use super::exclusive;
use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use crate::pod::Pod;
use crate::step::Step;
use crate::view::View;

pub(super) const NAME: &str = "isolated-cpus";

/// Logged when another configuration is in force.
const CHANGED: &str = "config: reloaded; in force: ";

const CONFIG: &str = "namespaces:
- names: [default]
  allow: {isolated-cpus: [prefer, require]}";

/// A pod with an exclusive CPU that must be isolated.
fn requiring(name: &str, cpus: usize) -> Pod {
    exclusive(name, cpus).wishing("isolated-cpus", "require")
}

/// Shared pods never run on isolated CPUs, which every view shows, and an exclusive one does only if
/// it wishes to. With `isolatedCPUs: prefer` in the ConfigMap nothing moves, and a container without a
/// wish gets isolated CPUs first, then others.
pub(super) fn isolated_cpus(shape: &Shape) -> Option<Script> {
    let isolated = shape.isolated();
    let others = shape.free() - isolated;
    if isolated.len() < 2 || others.len() < 3 {
        return None;
    }
    let pool = shape.online() - isolated;
    let mut script = Script::new(shape);
    script.plugin(shape.config(CONFIG));
    script.shared("web");
    script.expect(&[("web", pool)]);
    script.exclusive("ordinary", 1);
    script.view_where(move |view| has_only(view, "ordinary", others));
    script.run(requiring("dpdk", isolated.len() - 1));
    let both = script.view_where(move |view| has_only(view, "dpdk", isolated));
    let list = format!("isolated {isolated} (isolcpus), never shared");
    script.says(Step::Status, &[&list]);
    script.refused(Step::Run(requiring("more", 2)), "IsolatedCPUsError");
    script.remove("more");
    script.does(Step::KillPlugin);
    script.unmoved(both);
    script.does(Step::SwapConfig(shape.config(&format!("{CONFIG}\nisolatedCPUs: prefer"))));
    script.does(Step::WaitFor(CHANGED.to_owned(), 1));
    script.unmoved(both);
    script.exclusive("first", 1);
    script.view_where(move |view| has_only(view, "first", isolated));
    script.exclusive("second", 1);
    script.view_where(move |view| has_only(view, "second", others));
    for pod in ["ordinary", "dpdk", "first", "second"] {
        script.remove(pod);
    }
    script.expect(&[("web", pool)]);
    Some(script)
}

fn has_only(view: &View, pod: &str, cpus: CpuSet) -> Result<(), String> {
    let allowed = parse(view.allowed(pod));
    if !allowed.is_empty() && allowed.is_subset(&cpus) {
        return Ok(());
    }
    Err(format!("{pod} may run on {allowed}, expected some of {cpus}"))
}
