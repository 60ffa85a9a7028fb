//! Sequences of writes that break a kernel.

use super::cgroup_tree::{CgroupTree, Write};
use crate::ledger::CgroupPath;

pub enum Hazard {}

pub fn hazard(_: &CgroupTree, _: &CgroupPath, _: Write) -> Option<Hazard> {
    None
}
