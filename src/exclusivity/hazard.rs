//! Sequences of writes that break a kernel.

use super::cgroup_tree::{CgroupTree, Write};
use crate::ledger::CgroupPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {}

pub fn hazard(_: &CgroupTree, _: &CgroupPath, _: Write) -> Option<Hazard> {
    None
}
