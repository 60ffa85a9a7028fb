//! The end of a storm: every CPU must be to be had.

use anyhow::{Context, Result};
use nri_cpu_manager::cpuset::CpuSet;

use crate::node::Node;
use crate::scenario::exclusive;

/// How many of the CPUs that are not reserved cannot be had by containers that ask for all of them.
///
/// One container asks for all; where that is refused, for half of what is left, until single CPUs
/// are refused.
pub(super) fn lost(node: &mut Node, reserved: CpuSet) -> Result<u64> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .context("cannot read the online CPUs")?;
    let online: CpuSet = online.trim().parse().context("the list of online CPUs is strange")?;
    let mut left = online - reserved;
    let mut size = left.len();
    let mut number = 0;
    while size > 0 && !left.is_empty() {
        number += 1;
        let name = format!("fill-{number}");
        let got = node.run(&exclusive(&name, i64::try_from(size).unwrap_or(1))).is_ok();
        if got {
            left -= node.allowed(&name, "main")?;
            size = size.min(left.len());
        } else {
            node.remove(&name)?;
            size /= 2;
        }
    }
    node.remove_all()?;
    Ok(left.len() as u64)
}
