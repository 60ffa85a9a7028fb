//! CPUs that the kernel was booted to isolate.

use anyhow::{Result, ensure};
use cpuset::CpuSet;

use super::exclusive;
use super::shape::Shape;
use crate::invariants::parse;
use crate::pod::Pod;
use crate::testbed::{Testbed, refused, says};
use crate::view::View;

pub(super) const NAME: &str = "isolated-cpus";

/// Logged when another configuration is in force.
const CHANGED: &str = "config: reloaded; in force: ";

const CONFIG: &str = "namespaces:
- names: [default]
  allow: {isolated-cpus: [prefer, require]}";

/// A pod with an exclusive CPU that must be isolated.
fn requiring(name: &str, cpus: usize) -> Pod {
    exclusive(name, cpus).asking("isolated-cpus", "require")
}

/// Shared pods never run on isolated CPUs, which every view shows, and an exclusive one does only if
/// it asks to. With `isolatedCPUs: prefer` in the ConfigMap nothing moves, and a container without a
/// pod option gets isolated CPUs first, then others.
pub(super) fn isolated_cpus(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let isolated = shape.isolated;
    let others = shape.free() - isolated;
    let pool = shape.online - isolated;
    testbed.start_plugin(&shape.config(CONFIG))?;
    testbed.shared("web")?;
    testbed.expect(&[("web", pool)])?;
    testbed.exclusive("ordinary", 1)?;
    has_only(&testbed.view()?, "ordinary", others)?;
    testbed.start(&requiring("dpdk", isolated.len() - 1))?;
    let both = testbed.view()?;
    has_only(&both, "dpdk", isolated)?;
    says(&testbed.status()?, &[&format!("isolated {isolated} (isolcpus), never shared")])?;
    refused(testbed.start(&requiring("more", 2)), "IsolatedCPUsError")?;
    testbed.remove("more")?;
    testbed.kill_plugin()?;
    testbed.unmoved(&both)?;
    testbed.swap_config(&shape.config(&format!("{CONFIG}\nisolatedCPUs: prefer")))?;
    testbed.wait_for(CHANGED, 1)?;
    testbed.unmoved(&both)?;
    for (pod, cpus) in [("first", isolated), ("second", others)] {
        testbed.exclusive(pod, 1)?;
        has_only(&testbed.view()?, pod, cpus)?;
    }
    for pod in ["ordinary", "dpdk", "first", "second"] {
        testbed.remove(pod)?;
    }
    testbed.expect(&[("web", pool)])?;
    Ok(())
}

fn has_only(view: &View, pod: &str, cpus: CpuSet) -> Result<()> {
    let allowed = parse(view.allowed(pod));
    let has_only = !allowed.is_empty() && allowed.is_subset(&cpus);
    ensure!(has_only, "{pod} may run on {allowed}, expected some of {cpus}");
    Ok(())
}
