//! Drift: another program wrote a container's cgroup. What a container does within its own is none.

use anyhow::Result;

use super::milli;
use super::shape::Shape;
use crate::testbed::{CgroupRef, Testbed};

/// Seconds to find and repair a drift: two check passes, and the time until the first one.
const REPAIRED: u64 = 15;

/// Writes `cpuset.cpus` of a shared container and of an exclusive one. Then both make cgroups of their
/// own within theirs, through a crash of the plugin and a resize.
pub(super) fn drift(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.shared("web")?;
    testbed.exclusive("db", 2)?;
    let before = testbed.view()?;
    for pod in ["db", "web"] {
        testbed.nest(pod)?;
    }
    testbed.wait(2 * REPAIRED);
    testbed.unmoved(&before)?;
    testbed.logs_no_drift()?;
    testbed.kill_plugin()?;
    testbed.wait(REPAIRED);
    testbed.unmoved(&before)?;
    testbed.resize("db", milli(1))?;
    let small = testbed.view()?;
    testbed.logs_no_drift()?;

    let disturbed: &[&str] = match shape.exclusivity.as_str() {
        // The CPUs in `cpuset.cpus.exclusive` stay the partition's own.
        "kernel" => &[],
        "runtime" => &["web", "db"],
        // The cgroups above a shared container bound whatever its own has.
        _ => &["db"],
    };
    testbed.write(CgroupRef::Container("web"), "cpuset.cpus", &shape.online.to_string())?;
    testbed.write(CgroupRef::Container("db"), "cpuset.cpus", &shape.reserved.to_string())?;
    testbed.settles(REPAIRED, disturbed)?;
    testbed.unmoved(&small)?;
    Ok(())
}
